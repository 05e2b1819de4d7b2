# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dra_driver_nodes
short_description: "[INTERNAL] Enable the plugin of the NVIDIA DRA driver on nodes, wave by wave"
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - For a release whose plugin is restricted to labelled nodes, as the role P(rackscale.nvlink.dra_driver#role) installs
    it with waves. The playbook C(rackscale.nvlink.rollout) with C(rollout_name=dra) runs it in each wave.
  - A node is enabled by the label C(rackscale.nvlink/dra-driver=true) under the field manager C(rackscale.nvlink-dra).
    A pod of an older revision is deleted, so that one of the newest replaces it. Each node must then have a ready pod,
    its ResourceSlices, and the clique label where the driver writes it.
  - Where the driver is to allocate GPUs that a device plugin allocates, the node is first cordoned and labelled
    C(nvidia.com/gpu.deploy.device-plugin=false), until no pod has a GPU of the device plugin and the kubelet has
    removed them from the node's capacity, for up to O(wait) plus five minutes. Otherwise the node is restored. It is
    uncordoned when the plugin of the driver is ready.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  state:
    description:
      - V(present) enables the plugin on the nodes of O(trays) and waits. A node that this call enabled and on which the
        plugin does not become ready is disabled again. The task does not fail for that, see RV(failures).
      - V(adopted) labels the nodes on which the plugin runs, so that none loses it when the release is restricted.
      - V(absent) removes the label from all nodes that have it from this collection.
    type: str
    choices: [present, adopted, absent]
    required: true
extends_documentation_fragment:
  - rackscale.nvlink.dra_driver
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - It does not wait.
  diff_mode:
    support: full
    details:
      - The labels of nodes.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Enable the plugin on the first clique
  rackscale.nvlink.dra_driver_nodes:
    state: present
    kubeconfig: ~/.kube/config
    trays: "{{ groups['nvlink_clique_r01a'] }}"
    wait: 300
  register: wave
"""

RETURN = r"""
changes:
  description: The changes, or in check mode those that would be made.
  returned: success
  type: list
  elements: dict
  sample: [{action: label, node: r01t01}, {action: delete_pod, node: r01t02}]
  contains:
    action:
      description: V(label), V(unlabel), V(delete_pod) or V(remove_device_plugin).
      type: str
    node:
      description: The node.
      type: str
findings:
  description: Always empty, see RV(failures).
  returned: success
  type: list
  elements: dict
  sample: []
failures:
  description: Tray and the reason why the plugin is not ready there.
  returned: success
  type: dict
  sample: {}
"""
