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
  - The phases of M(rackscale.nvlink.dra_driver_info) and those that need the results of earlier steps of the role
    P(rackscale.nvlink.dra_driver#role).
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  phase:
    description:
      - V(preflight), V(checks) and V(uninstall) are those of M(rackscale.nvlink.dra_driver_info).
      - V(imex) checks whether the owner of IMEX may change.
      - V(upgrade) compares a 25.x release with the release that replaces it.
      - V(probe) returns the objects of a probe and checks those that exist, V(probe_leftovers) finds what they left.
    type: str
    choices: [preflight, checks, uninstall, imex, upgrade, probe, probe_leftovers]
    required: true
  inputs:
    description: Results of earlier steps. The keys are those of the class Inputs in C(plugin_utils/dra/phases.py).
    type: dict
    default: {}
extends_documentation_fragment:
  - rackscale.nvlink.dra_driver
  - rackscale.nvlink.dra_driver.checks
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.info_module
attributes:
  action:
    description: Runs on the controller and executes nothing on the host.
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
"""

RETURN = r"""
ok:
  description: Whether there is no finding of severity error.
  returned: success
  type: bool
  sample: true
changes:
  description: Always empty, since the module changes nothing.
  returned: success
  type: list
  elements: dict
  sample: []
findings:
  description: The findings. They are also warnings of the task.
  returned: always
  type: list
  elements: dict
  sample:
    - code: dra_node_not_selected
      severity: error
      node: r01t03
      message: >-
        The driver would not run on node r01t03: it has none of the labels of the chart's affinity; label it
        nvidia.com/gpu.present=true, or let node-feature-discovery set one of the others.
release_values:
  description: The values for the installation of the chart, from the shape, the version of the API and O(values).
  returned: success
  type: dict
  sample: {resourceApiVersion: resource.k8s.io/v1}
stand_alone:
  description: Whether the driver is installed by its own chart, not by GPU Operator.
  returned: success
  type: bool
  sample: true
api_version:
  description: The preferred version of C(resource.k8s.io) that the API server serves. Null if it serves none.
  returned: success
  type: str
  sample: v1
kubernetes_version:
  description: The version of the API server.
  returned: success
  type: str
  sample: v1.34.4
nodes:
  description: The nodes on which the driver is to run.
  returned: success
  type: list
  elements: str
  sample: [r01t01, r01t02]
pending_nodes:
  description: With O(waves), the nodes on which the plugin is not enabled yet.
  returned: success
  type: list
  elements: str
  sample: []
upgrades_old_chart:
  description: Whether the installed release is of a 25.x chart.
  returned: success
  type: bool
  sample: false
claims:
  description: The claims with devices of the driver.
  returned: success
  type: list
  elements: dict
  sample: [{namespace: jobs, name: train-0, uid: 0b1c..., reserved: true}]
crds:
  description: The installed CRDs of the driver.
  returned: success
  type: list
  elements: str
  sample: [computedomains.resource.nvidia.com]
crds_shared:
  description: Whether GPU Operator or another field manager uses them too.
  returned: success
  type: bool
  sample: false
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
