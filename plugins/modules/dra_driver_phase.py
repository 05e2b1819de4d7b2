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
  - The phases of M(rackscale.nvlink.dra_driver_info), and those that need the results of earlier steps of the role
    P(rackscale.nvlink.dra_driver#role). No phase changes anything.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  phase:
    description:
      - V(preflight), V(checks) and V(uninstall) are those of M(rackscale.nvlink.dra_driver_info).
      - V(imex) has the errors of V(preflight) before the trays are read, so before the owner of IMEX changes.
      - V(upgrade) compares a 25.x release with the release that replaces it.
      - V(dry_run) dry-runs the rendered chart on the API server, V(release_failure) reports why Helm failed.
      - V(probe) returns the objects of a probe and checks those that exist, V(probe_leftovers) finds what they left.
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
  diff_mode:
    support: none
    details:
      - It changes nothing.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Check what can be checked before the trays change
  rackscale.nvlink.dra_driver_phase:
    phase: imex
    kubeconfig: ~/.kube/config
    shape: host_managed
"""

RETURN = r"""
findings:
  description: As in M(rackscale.nvlink.dra_driver_info).
  returned: always
  type: list
  elements: dict
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
