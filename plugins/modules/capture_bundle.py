#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: capture_bundle
short_description: "[INTERNAL] Write an anonymised support bundle"
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Makes a support bundle of what M(rackscale.nvlink.fabric_capture) has read on trays and Slurm controllers, and
    anonymises it. It sends nothing anywhere.
  - A bundle in which an identifier is left, and one without the answer of any host, is not written.
notes:
  - Used by the playbooks of this collection alone; its options may change in any release.
options:
  state:
    description:
      - V(planned) checks O(path) and the number of trays, before a host is asked, and returns which hosts to ask.
      - V(written) writes the bundle.
    type: str
    choices: [planned, written]
    required: true
  path:
    description: The bundle, whose name ends with C(.tar.gz). The mapping table is next to it.
    type: path
    required: true
  trays:
    description: Inventory names of the trays that were asked.
    type: list
    elements: str
    default: []
  controllers:
    description: Inventory names of the Slurm controllers that were asked.
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
  idempotent:
    support: none
    details:
      - Each run makes a bundle of what the hosts answer then.
  platform:
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Write the bundle
  rackscale.nvlink.capture_bundle:
    state: written
    path: "{{ inventory_dir }}/site.tar.gz"
    trays: "{{ groups['trays'] }}"
"""

RETURN = r"""
changes:
  description: The files that were or would be written.
  returned: always
  type: list
  elements: str
findings:
  description: Always empty.
  returned: always
  type: list
  elements: dict
path:
  description: The bundle.
  returned: always
  type: str
mapping_path:
  description: The mapping table, which stays on the controller.
  returned: always
  type: str
files:
  description: Path of each file in the bundle, and its size in bytes.
  returned: state written
  type: dict
  sample: {"trays/a01b01/nvidia-smi.xml": 61230}
mapped:
  description: How many identifiers of each kind were replaced.
  returned: state written
  type: dict
  sample: {"UUIDs": 73, "names": 22}
missing:
  description: The hosts without an answer.
  returned: state written
  type: list
  elements: str
trays:
  description: The trays to ask.
  returned: state planned
  type: list
  elements: str
controllers:
  description: The Slurm controllers to ask.
  returned: state planned
  type: list
  elements: str
text:
  description: The summary to print.
  returned: state written
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = {
    "state": {"type": "str", "choices": ["planned", "written"], "required": True},
    "path": {"type": "path", "required": True},
    "trays": {"type": "list", "elements": "str", "default": []},
    "controllers": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rackscale.nvlink.capture_bundle runs on the controller in its action plugin; run it from a playbook"
    )


if __name__ == "__main__":
    main()
