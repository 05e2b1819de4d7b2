#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: imex_domain
short_description: "[INTERNAL] Run one phase of the role imex on a tray"
version_added: 1.0.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Gives IMEX on a tray to one owner, whichever it had before. Where that owner is C(nvidia-imex.service), all trays of
    a clique get the same node list (C(nodes_config.cfg)), byte for byte.
  - A daemon reads its node list when it starts, and members that started with different lists do not connect
    (C(!M!)). A change is therefore one task for each O(phase). All trays of the clique end a phase before the next one
    begins, so the play must use the C(linear) strategy; the module fails otherwise.
  - No phase waits for the same phase on another tray, so any number of forks will do.
  - Each clique is decided separately. A clique that is blocked does not affect the others.
  - Its action plugin reads the variables of the role P(rackscale.nvlink.imex#role), checks them and renders its
    templates.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  phase:
    description:
      - V(inspect) changes nothing. The tray reports what is on it, and the controller finds the changes to make and
        other owners of IMEX. An error that is found fails V(prepare), not this phase.
      - V(read) runs on the controller only, once for all trays, and does for them what V(inspect) does, by one process
        over ssh. It returns RV(read), and RV(unchanged_hosts) from what it has read.
      - V(pending) runs on the controller only, once for all trays, and returns RV(pending) from the results of
        V(inspect), which it deletes.
      - V(compare) runs on the controller only, once for all trays, and returns RV(unchanged_hosts) from the
        results of V(inspect). It reads no variable of the role, so that none of a tray decides.
      - V(prepare) changes nothing. On a tray whose clique changes, it does what V(inspect) does, and finds running jobs
        and the package of the driver's version too.
      - V(report) runs on the controller only, once for all trays after the other phases, and returns RV(text).
      - V(stop_and_write) decides for the clique from the results of V(prepare) on all its trays, stops daemons where
        that is needed and writes every file. Nothing starts.
      - V(start) compares the hash of the node list with that of the fabric file's list, and starts the daemon.
      - V(wait) waits until this tray is ready and connected to the members that were started.
      - V(verdict) runs on the controller only and evaluates the clique from the status of all its members.
    type: str
    choices: [inspect, read, pending, compare, prepare, stop_and_write, start, wait, verdict, report]
    required: true
  desired:
    description: The desired state of the tray. Set by the action plugin.
    type: dict
    default: {}
  plan:
    description: What the phase does and waits for. Set by the action plugin.
    type: dict
    default: {}
  asked:
    description: What the tray is asked. Set by the action plugin.
    type: dict
    default: {}
  tls:
    description: The contents of the TLS files. Set by the action plugin.
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
"""

EXAMPLES = r"""
- name: Inspect the tray
  rackscale.nvlink.imex_domain:
    phase: inspect
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
changes:
  description: What changed, or would in check mode.
  returned: always
  type: list
  elements: str
  sample: [stop nvidia-imex.service, change /etc/nvidia-imex/nodes_config.cfg]
blocked:
  description: Whether the clique was left unchanged, because of a finding on one of its trays.
  returned: when it was
  type: bool
  sample: true
certificate:
  description:
    - What the role signs for this tray on the controller with C(imex_tls=ca), where a tray's own facts do not count.
      C(folder), C(days) and C(rotate) are C(imex_tls_ca_dir), C(imex_tls_days) and C(imex_tls_rotate) of localhost. The
      address is that of the fabric file, C(imex_fabric_file) of localhost or its default.
    - C(due) is whether all certificates are made again, which that of a new tray is in any case.
  returned: with O(phase=inspect) and certificates to sign
  type: dict
  sample:
    folder: /srv/ca
    files: {key: /srv/ca/r01t01.key, certificate: /srv/ca/r01t01.pem, authority: /srv/ca/ca.pem}
    name: r01t01
    subject_alt_name: ["IP:198.51.100.11", "DNS:r01t01"]
    days: 365
    rotate: false
    due: false
unchanged_hosts:
  description:
    - The hosts for which no further phase has anything to do, because their whole clique is in the desired state, or
      because their owner needs no node list and they are as desired. A map of names to V(true).
  returned: with O(phase=compare) and O(phase=read)
  type: dict
  sample: {r01t01: true, r01t02: true}
read:
  description: The hosts that were inspected, as a map of names to V(true). V(inspect) is for the others.
  returned: with O(phase=read)
  type: dict
  sample: {r01t01: true}
play:
  description: The play of the phases, whose changes V(report) reports.
  returned: with O(phase=compare) and O(phase=read)
  type: str
  sample: 0242ac11-0002-0d6b-4e2c-000000000004
text:
  description: What the phases of a play have done, as lines of text, one for trays with equal changes and last
    one for all.
  returned: with O(phase=report)
  type: list
  elements: str
  sample:
    - "r01t[01-02]: write /etc/nvidia-imex/nodes_config.cfg"
    - "IMEX: 36 trays, 2 changed."
ok:
  description: Whether every member is ready and connected to every other.
  returned: with O(phase=verdict)
  type: bool
  sample: true
clique:
  description: The clique that was evaluated.
  returned: with O(phase=verdict)
  type: str
  sample: r01
pending:
  description:
    - A host's C(pending) is whether the other phases would change this tray, or wait for its peers. It is also true
      where an error was found, which they report. C(reasons) are the pending changes.
    - C(refused) is why the other phases would refuse the change whatever happens on the trays until then, so that no
      tray is drained for it.
  returned: with O(phase=pending)
  type: dict
  sample: {r01t01: {pending: true, reasons: [change /etc/nvidia-imex/config.cfg]}}
findings:
  description: What was found. A finding of severity V(error) fails the tray that it is about.
  returned: always
  type: list
  elements: dict
  contains:
    code:
      description: The reason code.
      returned: success
      type: str
      sample: imex_list_outdated
    severity:
      description: One of V(error), V(warning) and V(info).
      returned: success
      type: str
      sample: warning
    message:
      description: One sentence that names the remedy.
      returned: success
      type: str
      sample: r01t04 did not get generation 3 of the IMEX node list of clique r01.
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, packages, reporting, starting, tray
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Row

# The action plugin validates its options with this.
ARGUMENT_SPEC: dict[str, Specification] = {
    "phase": {
        "type": "str",
        "choices": [
            *("inspect", "read", "pending", "compare", "prepare"),
            *("stop_and_write", "start", "wait", "verdict", "report"),
        ],
        "required": True,
    },
}
TRAY_SPEC: dict[str, Specification] = {
    "desired": {"type": "dict", "default": {}},
    "plan": {"type": "dict", "default": {}},
    "asked": {"type": "dict", "default": {}},
    "tls": {
        "type": "dict",
        "options": {
            "key": {"type": "str", "no_log": True},
            "certificate": {"type": "str"},
            "authority": {"type": "str"},
        },
    },
}
"""What the action plugin adds for the tray: the fields of DesiredState, of a plan of Phases, and reporting.Options."""


def main() -> None:
    actions.begin()
    module = AnsibleModule(argument_spec={**ARGUMENT_SPEC, **TRAY_SPEC}, supports_check_mode=True)
    host = Host(module.check_mode, reporting.SECONDS)
    try:
        row = _run(host, module.params)
    except NvlinkError as error:
        # Changes made until then are reported: they are not rolled back.
        row = {"facts": getattr(error, "facts", None)}
        findings = getattr(error, "findings", [])
        module.fail_json(msg=str(error), changes=host.changes, actions=actions.done(), row=row, findings=findings)
    findings = row.get("findings") or []
    result: Result = {"changed": bool(host.changes), "changes": host.changes, "row": row, "findings": findings}
    result["actions"] = actions.done()
    if host.before:
        result["diff"] = host.diff()
    module.exit_json(**result)


def _run(host: Host, given: Arguments) -> Row:
    phase, plan, asked = given["phase"], given["plan"], reporting.Options(**given["asked"])
    if phase in ("inspect", "prepare"):
        return {"report": reporting.report(host, asked)}
    tls = {name: text for name, text in (given["tls"] or {}).items() if text}
    local = tray.Tray(domain.DesiredState(**given["desired"], tls=tls), host, asked)
    if phase == "stop_and_write":
        if not plan["allow_jobs"] and not host.check:
            local.forbid_jobs(plan["slurm_nodes"])
        offer = packages.Offer(*plan["offer"]) if plan["offer"] else None
        found = reporting.report(host, asked)
        return local.stop_and_write(found, plan["generation"], plan["restart_clique"], offer, plan["allow_jobs"])
    if phase == "start":
        return starting.start(local, plan["start_wait"], plan["reload_tls"])
    return starting.wait(local, plan["ready_wait"], plan["started"], plan["reconnect"])


if __name__ == "__main__":
    main()
