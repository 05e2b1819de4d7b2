#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: imex_domain_phase
short_description: "[INTERNAL] Run one phase of imex_domain on a tray"
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Runs on the tray what the action plugin of M(rackscale.nvlink.imex_domain) has decided for the tray's clique.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
extends_documentation_fragment:
  - rackscale.nvlink.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - The contents of TLS files are not shown.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
options:
  phase:
    description: The phase of M(rackscale.nvlink.imex_domain).
    type: str
    choices: [inspect, stop_and_write, start, wait]
    required: true
  options:
    description: The options of M(rackscale.nvlink.imex_domain), checked by its action plugin.
    type: dict
    required: true
  plan:
    description: What the action plugin derived from the fabric file and from the other trays of the clique.
    type: dict
    default: {}
    suboptions:
      clique:
        description: The name of the clique.
        type: str
        default: ''
      nodes:
        description: The lines of the clique's C(nodes_config.cfg), in order.
        type: list
        elements: str
        default: []
      slurm_nodes:
        description: The Slurm nodes of the clique, whose jobs V(phase=inspect) looks up. V(phase=stop_and_write) looks
          them up where there are any, and fails where jobs run there.
        type: list
        elements: str
        default: []
      outside:
        description: Lines of the members that this run does not reach. V(phase=inspect) reads their records.
        type: list
        elements: str
        default: []
      started:
        description: Lines of the other members that were started. V(phase=wait) waits for connections to them.
        type: list
        elements: str
        default: []
      outdated:
        description: Trays that do not get this node list, for the record.
        type: list
        elements: str
        default: []
      generation:
        description: The generation of the node list.
        type: int
        default: 0
      restart_clique:
        description: Whether all daemons of the clique stop before any starts.
        type: bool
        default: false
      reload_tls:
        description: Whether a running daemon must load new TLS files.
        type: bool
        default: false
      reconnect:
        description: Whether V(phase=wait) may signal the daemon to connect to its peers again.
        type: bool
        default: false
      tls:
        description: The contents of O(rackscale.nvlink.imex_domain#module:tls_files).
        type: dict
        suboptions:
          key:
            description: The private key.
            type: str
          certificate:
            description: The certificate of the tray.
            type: str
          authority:
            description: The certificate of the authority.
            type: str
seealso:
  - module: rackscale.nvlink.imex_domain
"""

EXAMPLES = r"""
- name: Inspect a tray, as the action plugin of imex_domain does
  rackscale.nvlink.imex_domain_phase:
    phase: inspect
    options:
      owner: none
"""

RETURN = r"""
changes:
  description: What changed, or would in check mode.
  returned: always
  type: list
  elements: str
  sample: [stop nvidia-imex.service]
row:
  description: The tray's result of the phase, from which the action plugin decides for the clique.
  returned: always
  type: dict
facts:
  description: The fact C(nvlink_imex) of M(rackscale.nvlink.fabric_facts) at the end.
  returned: with O(phase=wait)
  type: dict
findings:
  description: What was found. One of severity V(error) fails the tray.
  returned: always
  type: list
  elements: dict
  sample: []
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, starting, tray

_NAMES: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "phase": {"type": "str", "choices": ["inspect", "stop_and_write", "start", "wait"], "required": True},
    "options": {"type": "dict", "required": True},
    "plan": {
        "type": "dict",
        "default": {},
        "options": {
            "clique": {"type": "str", "default": ""},
            "nodes": _NAMES,
            "slurm_nodes": _NAMES,
            "outside": _NAMES,
            "started": _NAMES,
            "outdated": _NAMES,
            "generation": {"type": "int", "default": 0},
            "restart_clique": {"type": "bool", "default": False},
            "reload_tls": {"type": "bool", "default": False},
            "reconnect": {"type": "bool", "default": False},
            "tls": {
                "type": "dict",
                "options": {
                    "key": {"type": "str", "no_log": True},
                    "certificate": {"type": "str"},
                    "authority": {"type": "str"},
                },
            },
        },
    },
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    options, plan = module.params["options"], module.params["plan"]
    try:
        desired = domain.desired_state(options, plan)
    except NvlinkError as error:
        module.fail_json(msg=f"imex_domain: {error}", changes=[], row={}, findings=[])
    local = tray.Tray(desired, float(options.get("timeout") or 10), module.check_mode)
    host = local.host
    try:
        row = _run(local, module.params["phase"], options, plan)
    except NvlinkError as error:
        # Changes made until then are reported: they are not rolled back.
        row = {"facts": getattr(error, "facts", None)}
        module.fail_json(msg=str(error), changes=host.changes, row=row, findings=[])
    findings = row.get("findings") or []
    errors = [entry["message"] for entry in findings if entry["severity"] == ERROR]
    if errors:
        module.fail_json(msg=errors[0], changes=host.changes, row=row, findings=findings)
    result: dict[str, Any] = {"changed": bool(host.changes), "changes": host.changes, "row": row, "findings": findings}
    if module.params["phase"] == "wait":
        result["facts"] = row["facts"]
    if host.before:
        result["diff"] = host.diff()
    module.exit_json(**result)


def _run(local: tray.Tray, phase: str, options: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    if phase == "inspect":
        if options["owner"] != domain.JOB and any(map(os.path.lexists, options.get("job_files") or ())):
            return {"job_left": True}
        return local.inspect(plan["outside"], plan["slurm_nodes"], bool(options.get("allow_jobs")))
    if phase == "stop_and_write":
        if not options.get("allow_jobs") and not local.check:
            local.forbid_jobs(plan["slurm_nodes"])
        return local.stop_and_write(plan["generation"], plan["outdated"], plan["restart_clique"])
    if phase == "start":
        return starting.start(local, options["start_wait"], plan["reload_tls"], plan["outdated"])
    return starting.wait(local, options["ready_wait"], plan["started"], plan["reconnect"])


if __name__ == "__main__":
    main()
