# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option of the inventory's source topograph."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.doc_fragments.source_http import CONNECTION


class ModuleDocFragment:
    # Annotated, because ansible-test takes a plain assignment for one literal.
    DOCUMENTATION: str = (
        r"""
options:
  topograph:
    description:
      - The NVIDIA Topograph from which the source V(topograph) requests a Slurm block topology.
      - The clique of a tray is known only if Topograph writes C(topology.conf) and its provider reads the domains from
        nvidia-smi (V(infiniband-bm)) or from the node label C(nvidia.com/gpu.clique). Otherwise a finding reports that
        the block has no clique.
      - Topograph collects requests for some seconds before it starts, so O(topograph.deadline) must not be small.
    type: dict
    suboptions:
      url:
        description: Topograph's address, without C(/v1), as in C(http://topograph.example.org:49021).
        type: str
        required: true
      provider:
        description: The provider of Topograph, sent to it unchanged.
        type: dict
        required: true
        suboptions:
          name:
            description: The provider's name, as in V(infiniband-bm).
            type: str
            required: true
          params:
            description: The provider's parameters.
            type: dict
          creds:
            description: The provider's credentials. They are secret, so use a template that looks them up.
            type: dict
      engine:
        description:
          - The engine of Topograph, sent to it unchanged.
          - The default is the engine V(slurm) with the plugin V(topology/block).
          - With the parameter C(topologies) it writes C(topology.yaml), which has no domains. With the parameter
            C(topologyConfigPath) it answers C(OK) only, so leave that one out.
        type: dict
        suboptions:
          name:
            description: The engine's name.
            type: str
            required: true
          params:
            description: The engine's parameters.
            type: dict
      nodes:
        description:
          - The nodes to include, in the form of Topograph's API. The default is that of Topograph.
        type: list
        elements: dict
      tray_name:
        description:
          - A JMESPath expression for the tray's inventory name, over an object with C(node) (its NodeName in
            Slurm), C(block) and C(domain), as in C(sub('^slurm-', '', node)).
          - The default is the NodeName in Slurm.
        type: str
      poll_interval:
        description: Seconds between two requests for the topology.
        type: float
        default: 2
      slurm_cluster:
        description:
          - The name of the Slurm cluster of this topology in C(clusters) of the fabric file, where several share it.
            The trays in its blocks are then in that cluster, unless host variables set another one.
        type: str
""".rstrip()
        + CONNECTION.replace("{source}", "topograph")
    )
