# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dra_driver_phase
short_description: "[INTERNAL] Run one phase of the role dra_driver"
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - The phases of M(rackscale.nvlink.dra_driver_info), those that need the results of earlier steps of the role
    P(rackscale.nvlink.dra_driver#role), and those that enable the plugin of the driver on nodes, wave by wave. The
    playbook C(rackscale.nvlink.rollout) with C(rollout_name=dra) runs O(phase=enable_nodes) in each wave.
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
  phase:
    description:
      - V(preflight), V(checks) and V(uninstall) are those of M(rackscale.nvlink.dra_driver_info).
      - V(imex) checks whether the owner of IMEX may change.
      - V(upgrade) compares a 25.x release with the release that replaces it.
      - V(dry_run) dry-runs the rendered chart on the API server, V(release_failure) reports why Helm failed.
      - V(probe) returns the objects of a probe and checks those that exist, V(probe_leftovers) finds what they left.
      - V(enable_nodes) enables the plugin on the nodes of O(trays) and waits. A node that this call enabled and on
        which the plugin does not become ready is disabled again. The task does not fail for that, see RV(failures).
      - V(adopt_nodes) labels the nodes on which the plugin runs, so that none loses it when the release is restricted.
      - V(disable_nodes) removes the label from all nodes that have it from this collection.
    type: str
    choices:
      - preflight
      - checks
      - uninstall
      - imex
      - upgrade
      - dry_run
      - release_failure
      - probe
      - probe_leftovers
      - enable_nodes
      - adopt_nodes
      - disable_nodes
    required: true
  inputs:
    description: Results of earlier steps. The keys are those of the class Inputs in C(plugin_utils/dra/phases.py).
    type: dict
    default: {}
extends_documentation_fragment:
  - rackscale.nvlink.dra_driver
  - rackscale.nvlink.dra_driver.checks
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - O(phase=enable_nodes) does not wait.
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
- name: Check whether the owner of IMEX may change
  rackscale.nvlink.dra_driver_phase:
    phase: imex
    kubeconfig: ~/.kube/config
    shape: host_managed

- name: Enable the plugin on the first clique
  rackscale.nvlink.dra_driver_phase:
    phase: enable_nodes
    kubeconfig: ~/.kube/config
    trays: "{{ groups['nvlink_clique_r01a'] }}"
    wait: 300
  register: wave
"""

RETURN = r"""
changes:
  description: The changes of nodes, or in check mode those that would be made.
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
  description: As in M(rackscale.nvlink.dra_driver_info).
  returned: always
  type: list
  elements: dict
failures:
  description: Tray and the reason why the plugin is not ready there.
  returned: with O(phase=enable_nodes), O(phase=adopt_nodes) and O(phase=disable_nodes)
  type: dict
  sample: {}
results:
  description: The results of M(rackscale.nvlink.dra_driver_info), by their names there, and those below.
  returned: success
  type: dict
probe_objects:
  description: The objects to create for a probe, a ComputeDomain and a DaemonSet for each clique with free nodes.
  returned: O(phase=probe)
  type: list
  elements: dict
  sample: []
probe_domains:
  description: The UIDs of the existing ComputeDomains of the probe.
  returned: O(phase=probe)
  type: list
  elements: str
  sample: [0b1c...]
"""
