# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option of the inventory's source kubernetes."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.doc_fragments.source_http import CONNECTION


class ModuleDocFragment:
    # Annotated, because ansible-test takes a plain assignment for one literal.
    DOCUMENTATION: str = (
        r"""
options:
  kubernetes:
    description:
      - The cluster whose nodes the source V(kubernetes) lists. It reads their label C(nvidia.com/gpu.clique), which GPU
        Feature Discovery or the NVIDIA DRA driver writes, their number of GPUs and their internal addresses.
      - Without that label the annotation C(topograph.run/cluster-id) of NVIDIA Topograph counts.
      - A node that is not ready keeps the clique that its label names. Its observation is as old as its last heartbeat,
        and a finding reports it. Labels do not contain the health, so it is unknown.
      - The account needs the permission to list nodes only.
    type: dict
    suboptions:
      kubeconfig:
        description:
          - A kubeconfig file, as an absolute path or one that starts with C(~/), or several as in E(KUBECONFIG),
            or V(in-cluster) for the service account of the pod that Ansible runs in.
          - The official Python client C(kubernetes) reads it, with each kind of login that it supports, also C(exec)
            and C(auth-provider). A login plugin runs at most O(kubernetes.timeout) seconds.
          - Impersonation (C(as)) and a C(proxy-url) other than http and https are not supported.
        type: path
      context:
        description: The context of that file. The default is its current context.
        type: str
      api_url:
        description:
          - The API server, instead of O(kubernetes.kubeconfig). The options below apply to it.
        type: str
      label_selector:
        description:
          - The label selector of the trays, as in C(node-role.example.org/tray=true).
          - The default are all nodes with GPUs by a label or their capacity.
        type: str
      tray_name:
        description:
          - A JMESPath expression over the node's object for the tray's inventory name, as in
            C(split('.', metadata.name)[0]) or C(metadata.labels."example.org/tray").
          - The default is the node's name.
        type: str
      page_size:
        description: Number of nodes in one answer of the API server.
        type: int
        default: 500
      kubernetes_cluster:
        description:
          - The name of this cluster in C(clusters) of the fabric file, where several share it. Its trays are then in
            that cluster, unless host variables set another one.
        type: str
""".rstrip()
        + CONNECTION.replace("{source}", "kubernetes")
    )
