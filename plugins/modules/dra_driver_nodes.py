# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dra_driver_nodes
short_description: Let the plugin of NVIDIA's DRA driver onto nodes, wave by wave
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - For a release whose plugin is held back by C(dra_driver_waves) of the role P(rackscale.nvlink.dra_driver#role). The
    playbook C(rackscale.nvlink.rollout) with C(rollout_name=dra) has it in its waves.
  - A node is let in by the label C(rackscale.nvlink/dra-driver=true) under the field manager C(rackscale.nvlink-dra).
    A pod of an older release is deleted, so that one of the newest takes its place. Then each node must have a pod that
    is ready, its ResourceSlices, and the clique's label where the driver writes it.
options:
  state:
    description:
      - V(present) lets the plugin onto the nodes of O(trays) and waits. A node on which it does not come up and that
        was let in by this call is held back again. It does not fail for that, RV(refused) says so.
      - V(kept) labels the nodes on which the plugin runs, so that none loses it when the release is held back.
      - V(absent) takes the label from all nodes that have it from this collection.
    type: str
    choices: [present, kept, absent]
    required: true
  waves:
    description: Always true here. It is taken so that one description serves M(rackscale.nvlink.dra_driver_info) too.
    type: bool
    default: false
  trays:
    description: The trays, by their inventory names.
    type: list
    elements: str
    default: []
  wait:
    description: Seconds in which the plugin must come up on all of them.
    type: float
    default: 0
extends_documentation_fragment:
  - rackscale.nvlink.dra_driver
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - Nothing is waited for.
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
- name: Let the plugin onto the first clique
  rackscale.nvlink.dra_driver_nodes:
    state: present
    kubeconfig: ~/.kube/config
    trays: "{{ groups['nvlink_clique_r01a'] }}"
    wait: 300
  register: wave
"""

RETURN = r"""
labelled:
  description: The nodes that were let in, without those that are held back again.
  returned: success
  type: list
  elements: str
  sample: [r01t01, r01t02]
replaced:
  description: The nodes whose pod of an older release was deleted.
  returned: success
  type: list
  elements: str
  sample: []
refused:
  description: Tray and why the plugin did not come up there.
  returned: success
  type: dict
  sample: {}
"""
