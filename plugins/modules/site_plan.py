# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: site_plan
short_description: "[INTERNAL] Plan the phases of the playbook site and check its inventory"
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Finds, from the inventory and the fabric file alone, errors that would stop a later phase of the playbook
    C(rackscale.nvlink.site), and reports all of them at once.
  - Returns the phases that apply. Slurm with a host in the group C(slurm_controller). IMEX with Slurm or C(imex_owner),
    and without the DRA driver. Kubernetes with C(dra_driver_shape) or C(k8s_topology_schedulers).
  - Applies C(--tags) and C(--skip-tags), so that a phase which is not selected runs no task on any host.
notes:
  - Reads variables of localhost and, of each tray, its address alone. Run it on localhost.
  - Used by the playbooks of this collection alone; its options may change in any release.
options:
  fabric_file:
    description: Absolute path of the fabric file, which may not exist yet.
    type: path
    required: true
  trays:
    description: Inventory names of the trays.
    type: list
    elements: str
    required: true
  pattern:
    description: The site's own pattern of O(trays); leave it out for the groups C(trays) and C(nvlink).
    type: str
  controllers:
    description: Hosts that run slurmctld.
    type: list
    elements: str
    default: []
  limit:
    description: The hosts that C(--limit) selects; leave it out without a limit.
    type: list
    elements: str
  phases:
    description: The phases to run instead of those that apply. Tags select among these.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
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
- name: Plan the phases
  rackscale.nvlink.site_plan:
    fabric_file: /srv/cluster/fabric.json
    trays: "{{ groups['trays'] }}"
    controllers: "{{ groups['slurm_controller'] | default([]) }}"
"""

RETURN = r"""
phases:
  description: The phases to run, in their order.
  returned: always
  type: list
  elements: str
  sample: [discover, slurm, imex, verify, report]
changes:
  description: Always empty.
  returned: always
  type: list
  elements: str
findings:
  description: Always empty.
  returned: always
  type: list
  elements: dict
slurm:
  description: C(site_slurm) of the Slurm controller, C(existing) or C(managed).
  returned: always
  type: str
  sample: existing
dra_driver:
  description:
    - Whether the phase kubernetes installs the DRA driver. It does not where C(k8s_topology_schedulers) is set and
      C(dra_driver_shape) is not.
  returned: always
  type: bool
  sample: false
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "fabric_file": {"type": "path", "required": True},
    "trays": {"type": "list", "elements": "str", "required": True},
    "pattern": {"type": "str"},
    "controllers": {"type": "list", "elements": "str", "default": []},
    "limit": {"type": "list", "elements": "str"},
    "phases": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Fail: the action plugin of the same name does the work."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rackscale.nvlink.site_plan runs on the controller in its action plugin; run it from a playbook"
    )


if __name__ == "__main__":
    main()
