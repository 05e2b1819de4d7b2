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
      - The NVIDIA Topograph that the source V(topograph) asks for a Slurm block topology.
      - A tray's clique is known only where Topograph writes C(topology.conf) and its provider took the domains from
        nvidia-smi (V(infiniband-bm)) or from the node label C(nvidia.com/gpu.clique). Elsewhere a finding says that the
        block names no clique.
      - Topograph gathers requests for some seconds before it works, so O(topograph.deadline) must not be small.
    type: dict
    suboptions:
      url:
        description: Topograph's address, without C(/v1), as in C(http://topograph.example.org:49021).
        type: str
        required: true
      provider:
        description: Where Topograph looks, sent to it as it stands here.
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
            description: The provider's credentials. They are secret, so let a template look them up.
            type: dict
      engine:
        description:
          - What Topograph makes of it, sent to it as it stands here.
          - The default is the engine V(slurm) with the plugin V(topology/block).
          - With the parameter C(topologies) it writes C(topology.yaml), which names no domains. With the parameter
            C(topologyConfigPath) it answers nothing but C(OK), so leave that one out.
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
          - The nodes to ask for, as Topograph's API describes them. The default is left to Topograph.
        type: list
        elements: dict
      tray_name:
        description:
          - A JMESPath expression that gives the tray's inventory name, over an object with C(node) (Slurm's name of
            it), C(block) and C(domain), as in C(sub('^slurm-', '', node)).
          - The default is Slurm's name of the node.
        type: str
      poll_interval:
        description: Seconds between two looks whether the topology is there.
        type: float
        default: 2
      slurm_cluster:
        description:
          - The name that the fabric file gives in C(clusters) to the Slurm that the topology is for, where several
            share it. The trays in its blocks are then in that cluster, unless the site says otherwise.
        type: str
""".rstrip()
        + CONNECTION.replace("{source}", "topograph")
    )
