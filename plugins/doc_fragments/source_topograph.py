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
      - The NVIDIA Topograph from which the source V(topograph) requests a Slurm block topology, or the ConfigMap to
        which Topograph writes it.
      - The clique of a tray is known only if Topograph writes C(topology.conf) or answers with instances, and reads the
        domains from nvidia-smi or from the node label C(nvidia.com/gpu.clique). Otherwise a finding reports that the
        block has no clique.
      - From release 1.0 on Topograph knows domains only where C(accelerator) of O(topograph.provider.params) names
        their source; V(infiniband-bm) needs its C(source) V(nvidia-smi).
      - Topograph collects requests for some seconds before it starts, so O(topograph.deadline) must not be small.
    type: dict
    suboptions:
      url:
        description:
          - Topograph's address, without C(/v1), as in C(http://topograph.example.org:49021). Needed without
            O(topograph.config_map).
        type: str
      provider:
        description: The provider of Topograph, sent to it unchanged. Needed with O(topograph.url).
        type: dict
        suboptions:
          name:
            description: The provider's name, as in V(infiniband-bm).
            type: str
            required: true
          params:
            description: The provider's parameters, such as C(accelerator).
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
          - The engine V(graph) answers with instances, whose IDs are those of O(topograph.nodes). The engine V(slinky)
            writes a ConfigMap, so read that one by O(topograph.config_map).
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
      config_map:
        description:
          - The ConfigMap to which Topograph's engine V(slinky) writes the topology. It is read from the API server
            instead of a request to O(topograph.url), by O(topograph.kubeconfig) or O(topograph.api_url).
          - The account needs the permission to get that ConfigMap only.
        type: dict
        suboptions:
          namespace:
            description: Its namespace.
            type: str
            required: true
          name:
            description: Its name, C(topologyConfigmapName) of the engine.
            type: str
            required: true
          key:
            description: The key of its data, C(topologyConfigPath) of the engine.
            type: str
            default: topology.conf
      kubeconfig:
        description:
          - With O(topograph.config_map), a kubeconfig file as an absolute path or one that starts with C(~/), or
            V(in-cluster) for the service account of the pod that Ansible runs in; see O(kubernetes.kubeconfig).
        type: path
      context:
        description: The context of that file. The default is its current context.
        type: str
      api_url:
        description:
          - With O(topograph.config_map), the API server instead of O(topograph.kubeconfig).
        type: str
      tray_name:
        description:
          - A JMESPath expression for the tray's inventory name, over an object with C(node) (its NodeName in
            Slurm, or the ID of the instance), C(block) and C(domain), as in C(sub('^slurm-', '', node)).
          - The default is that C(node).
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
