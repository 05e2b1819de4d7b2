# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: doctor
short_description: "[INTERNAL] Judge whether a site can run"
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Checks the controller and the inventory, and in a second step what M(rackscale.nvlink.doctor_facts) has read from
    trays and Slurm controllers, and the nodes of Kubernetes. It changes nothing but O(path).
notes:
  - Used by the playbooks of this collection alone; its options may change in any release.
options:
  state:
    description:
      - V(planned) checks the controller and the inventory, and returns which hosts to inspect.
      - V(judged) returns all checks.
    type: str
    choices: [planned, judged]
    required: true
  fabric_file:
    description: Path of the fabric file; empty where none is set.
    type: path
    default: ''
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
  checks:
    description: The checks that V(planned) has returned.
    type: list
    elements: dict
    default: []
  fail:
    description: Whether the playbook fails where a check has an error.
    type: bool
    default: true
  path:
    description: File to write the result to as JSON.
    type: path
    default: ''
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - It writes O(path) in check mode, too, since that is a report of this run.
  diff_mode:
    support: none
  idempotent:
    support: full
  platform:
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Inspect the controller and the inventory
  rackscale.nvlink.doctor:
    state: planned
    trays: "{{ groups['trays'] }}"
"""

RETURN = r"""
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
checks:
  description: Name, status, host and message of each check of the controller and the inventory.
  returned: state planned
  type: list
  elements: dict
ready:
  description: Whether the controller has what it needs to ask hosts.
  returned: state planned
  type: bool
controllers:
  description: The Slurm controllers, a list of hosts.
  returned: state planned
  type: list
  elements: str
fabric_file:
  description: Path of the fabric file if it exists, else empty.
  returned: state planned
  type: str
sample:
  description: Trays to which the Slurm controllers connect, as options connects of M(rackscale.nvlink.doctor_facts).
  returned: state planned
  type: list
  elements: dict
addresses:
  description: Address of each tray where there is no fabric file, which has them.
  returned: state planned
  type: dict
with_imex:
  description: Whether the site runs IMEX as a service on trays.
  returned: state planned
  type: bool
verdict:
  description: The content of O(path).
  returned: state judged
  type: dict
  sample: {"ok": false, "summary": "...", "checks": [{"name": "ssh", "status": "error", "hosts": "r01t[01-18]",
    "message": "..."}]}
text:
  description: The checks as lines of text, without errors where RV(failure) has them.
  returned: state judged
  type: list
  elements: str
failure:
  description: The errors and the summary; empty where the playbook does not fail.
  returned: state judged
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["planned", "judged"], "required": True},
    "fabric_file": {"type": "path", "default": ""},
    "trays": {"type": "list", "elements": "str", "required": True},
    "pattern": {"type": "str"},
    "controllers": {"type": "list", "elements": "str", "default": []},
    "checks": {"type": "list", "elements": "dict", "default": []},
    "fail": {"type": "bool", "default": True},
    "path": {"type": "path", "default": ""},
}


def main() -> None:
    """Fail: the action plugin of the same name does the work."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(msg="rackscale.nvlink.doctor runs on the controller in its action plugin; run it from a playbook")


if __name__ == "__main__":
    main()
