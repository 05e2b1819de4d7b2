#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: imex_domain
short_description: Bring the IMEX of a clique to one owner and one list, phase by phase
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Makes one owner of IMEX true on a tray, whichever it had before, and where that owner is C(nvidia-imex.service)
    gives all trays of a clique one list of members, in the same bytes.
  - A daemon reads its list at its start, and members that started with different lists never talk again (C(!M!)). So a
    change is several tasks over all trays of the clique, one for each O(phase), in this order. The task barrier of the
    C(linear) strategy is what makes all stop before any starts; under another strategy the module refuses to work.
  - No phase waits for what the same phase has still to do on another tray, so any number of forks will do.
  - Every clique is decided upon alone. What keeps one from its change does not touch another.
  - The role P(rackscale.nvlink.imex#role) has the tasks in their order.
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
options:
  phase:
    description:
      - V(look) changes nothing. It finds the package of the driver's version, what is to be done, other owners and
        running jobs.
      - V(stop_and_write) decides for the clique from what all its trays found, stops daemons where that is needed and
        writes every file. Nothing starts.
      - V(start) proves the list by its hash, and starts.
      - V(wait) waits until this tray is ready and sees those that were started.
      - V(verdict) runs on the controller only and judges the clique by its members' own words.
      - V(ask) and V(due) are a question that may come before, and change nothing. V(ask) sees what V(look) does, but
        fails on nothing, and running jobs do not matter. V(due) runs on the controller only and says in RV(due)
        whether the other phases would change the tray.
    type: str
    choices: [look, stop_and_write, start, wait, verdict, ask, due]
    required: true
  owner:
    description:
      - V(domain) runs C(nvidia-imex.service) with the list of the tray's clique.
      - V(host_managed) is the same, with the command socket of the DRA driver's host mode.
      - V(job) installs the package and leaves the daemon to the prolog of Slurm.
      - V(driver_managed) stops, disables and masks the unit, for Kubernetes' DRA driver.
      - V(none) stops and disables it.
    type: str
    choices: [domain, job, driver_managed, host_managed, none]
    required: true
  fabric_file:
    description: The fabric file on the Ansible controller. Needed where O(owner) is V(domain) or V(host_managed).
    type: path
  tray:
    description:
      - The name of the tray in the fabric file, by default the inventory name. Where it is another, trays that cannot
        be reached must be named in O(allow_outdated), for nobody can tell which hosts they are.
    type: str
  allow_outdated:
    description: Trays that may stay behind when their clique's list changes, though this run could not reach them.
    type: list
    elements: str
    default: []
  config:
    description: Keys of C(config.cfg) and their values. Keys that are not named keep what they have.
    type: dict
    default: {}
  manage_package:
    description: Whether to install the package of the driver's version.
    type: bool
    default: true
  package:
    description: The package's name, by default C(nvidia-imex) or C(nvidia-imex-BRANCH), whichever has the version.
    type: str
    default: ''
  version:
    description: The driver's version, by default that of the loaded driver.
    type: str
    default: ''
  channels:
    description: The channels to make devices of, by their minor numbers.
    type: list
    elements: int
    default: []
  proc_devices:
    description: The file in which the kernel names the major numbers of devices.
    type: path
    default: /proc/devices
  channel_count:
    description: The driver's option C(NVreg_ImexChannelCount). Left alone if it is not given.
    type: int
  create_channel0:
    description: The driver's option C(NVreg_CreateImexChannel0). Left alone if it is not given.
    type: bool
  tls_files:
    description: Files on the controller, which may be vaulted, that the trays get for TLS between members.
    type: dict
    suboptions:
      key:
        description: The private key.
        type: path
      certificate:
        description: The certificate of the tray.
        type: path
      authority:
        description: The certificate of the authority.
        type: path
  tls:
    description: The contents of O(tls_files), filled in by the action plugin.
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
  manage_firewall:
    description: Whether to open the ports of members where firewalld or ufw runs.
    type: bool
    default: true
  list_port:
    description: The port on which members tell each other which list they have.
    type: int
    default: 50006
  boot_wait:
    description: Seconds that the check at boot waits for members to answer, from 3 to 3600.
    type: float
    default: 30
  boot_unconfirmed:
    description: What the check at boot does where no member answers.
    type: str
    choices: [stay_off, start]
    default: stay_off
  allow_jobs:
    description: Whether a daemon may be stopped under running jobs.
    type: bool
    default: false
  job_files:
    description: Files of O(owner=job), which are removed under every other owner.
    type: list
    elements: path
    default: []
  ctl_timeout:
    description: Seconds that one answer of C(nvidia-imex-ctl) may take.
    type: float
    default: 10
  timeout:
    description: Seconds that V(phase=wait) waits at most.
    type: float
    default: 60
  start_timeout:
    description: Seconds that V(phase=start) watches the start. Whatever still starts then is left to V(phase=wait).
    type: float
    default: 15
  besides:
    description: With V(phase=due), what else is to be done on the tray, in words. If there is anything, it is due.
    type: list
    elements: str
    default: []
  clique:
    description: The clique's name, filled in by the action plugin.
    type: str
  nodes:
    description: The clique's list, filled in by the action plugin.
    type: list
    elements: str
  slurm_nodes:
    description: The clique's names in Slurm, filled in by the action plugin.
    type: list
    elements: str
    default: []
  ask:
    description: Members outside this run, filled in by the action plugin.
    type: list
    elements: str
    default: []
  expect:
    description: Members that were started, filled in by the action plugin.
    type: list
    elements: str
    default: []
  outdated:
    description: Trays that owe the list, filled in by the action plugin.
    type: list
    elements: str
    default: []
  generation:
    description: The generation of the list, filled in by the action plugin.
    type: int
    default: 0
  stop:
    description: Whether the whole clique restarts, filled in by the action plugin.
    type: bool
    default: false
  reload:
    description: Whether new TLS files wait to be loaded, filled in by the action plugin.
    type: bool
    default: false
  call:
    description: Whether the daemon was started in this run, filled in by the action plugin.
    type: bool
    default: false
seealso:
  - module: rackscale.nvlink.fabric_facts
"""

EXAMPLES = r"""
- name: Give each clique one IMEX domain
  hosts: nvlink
  gather_facts: false
  module_defaults:
    rackscale.nvlink.imex_domain:
      owner: domain
      fabric_file: "{{ nvlink_fabric_file }}"
  tasks:
    - name: See what is to be done
      rackscale.nvlink.imex_domain:
        phase: look

    - name: Stop what must stop and write one list
      rackscale.nvlink.imex_domain:
        phase: stop_and_write

    - name: Start
      rackscale.nvlink.imex_domain:
        phase: start

    - name: Wait until all see each other
      rackscale.nvlink.imex_domain:
        phase: wait

    - name: Judge the clique
      rackscale.nvlink.imex_domain:
        phase: verdict
"""

RETURN = r"""
actions:
  description: What was done, in check mode what would be.
  returned: success
  type: list
  elements: str
  sample: [stop nvidia-imex.service, change /etc/nvidia-imex/nodes_config.cfg]
held:
  description: Whether the clique was left as it is, because of a finding on one of its trays.
  returned: when it was
  type: bool
  sample: true
ok:
  description: Whether every member is ready and sees every other.
  returned: with O(phase=verdict)
  type: bool
  sample: true
clique:
  description: The clique that was judged.
  returned: with O(phase=verdict)
  type: str
  sample: r01
due:
  description:
    - Whether the other phases would change anything on this tray, or wait for its peers. True also where something is
      wrong, which the other phases tell.
    - Who owes the list is noted in every run of them, and does not count.
  returned: with O(phase=due)
  type: bool
  sample: false
why:
  description: What is to be done, in words. Empty where nothing is.
  returned: with O(phase=due)
  type: list
  elements: str
  sample: [change /etc/nvidia-imex/config.cfg]
facts:
  description: The facts C(nvlink_imex) of M(rackscale.nvlink.fabric_facts) at the end.
  returned: with O(phase=wait)
  type: dict
findings:
  description: What was noticed. One of severity V(error) fails the tray that it is about.
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
      sample: r01t04 could not be given generation 3 of the IMEX list of clique r01; bring it back.
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, starting, tray


def main() -> None:
    words: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
    files = {"key": {"type": "path", "no_log": False}, "certificate": {"type": "path"}, "authority": {"type": "path"}}
    module = AnsibleModule(
        argument_spec={
            "phase": {
                "type": "str",
                "choices": ["look", "stop_and_write", "start", "wait", "verdict", "ask", "due"],
                "required": True,
            },
            "owner": {
                "type": "str",
                "choices": ["domain", "job", "driver_managed", "host_managed", "none"],
                "required": True,
            },
            "fabric_file": {"type": "path"},
            "tray": {"type": "str"},
            "allow_outdated": words,
            "config": {"type": "dict", "default": {}},
            "manage_package": {"type": "bool", "default": True},
            "package": {"type": "str", "default": ""},
            "version": {"type": "str", "default": ""},
            "channels": {"type": "list", "elements": "int", "default": []},
            "proc_devices": {"type": "path", "default": "/proc/devices"},
            "channel_count": {"type": "int"},
            "create_channel0": {"type": "bool"},
            "tls_files": {"type": "dict", "options": files},
            "tls": {
                "type": "dict",
                "options": {
                    "key": {"type": "str", "no_log": True},
                    "certificate": {"type": "str"},
                    "authority": {"type": "str"},
                },
            },
            "manage_firewall": {"type": "bool", "default": True},
            "list_port": {"type": "int", "default": 50006},
            "boot_wait": {"type": "float", "default": 30},
            "boot_unconfirmed": {"type": "str", "choices": ["stay_off", "start"], "default": "stay_off"},
            "allow_jobs": {"type": "bool", "default": False},
            "job_files": {"type": "list", "elements": "path", "default": []},
            "ctl_timeout": {"type": "float", "default": 10},
            "timeout": {"type": "float", "default": 60},
            "start_timeout": {"type": "float", "default": 15},
            "besides": words,
            "clique": {"type": "str"},
            "nodes": {"type": "list", "elements": "str"},
            "slurm_nodes": words,
            "ask": words,
            "expect": words,
            "outdated": words,
            "generation": {"type": "int", "default": 0},
            "stop": {"type": "bool", "default": False},
            "reload": {"type": "bool", "default": False},
            "call": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    options = module.params
    try:
        want = domain.wanted(options)
    except NvlinkError as error:
        module.fail_json(msg=f"imex_domain: {error}")
    here = tray.Tray(want, options["ctl_timeout"], module.check_mode)
    hands = here.hands
    try:
        row = _phase(here, options)
    except NvlinkError as error:
        # What was done until then is told too: it has not been undone.
        row = {"facts": getattr(error, "facts", None)}
        module.fail_json(msg=str(error), actions=hands.done, row=row, findings=[])
    notes = row.get("findings") or []
    wrong = [note["message"] for note in notes if note["severity"] == ERROR]
    if wrong:
        module.fail_json(msg=wrong[0], actions=hands.done, row=row, findings=notes)
    result: dict[str, Any] = {
        "changed": bool(hands.done),
        "actions": hands.done,
        "row": row,
        "findings": notes,
    }
    if options["phase"] == "wait":
        result["facts"] = row["facts"]
    if hands.before or hands.after:
        result["diff"] = [
            {
                "before_header": path,
                "after_header": path,
                "before": hands.before[path],
                "after": hands.after[path],
            }
            for path in sorted(hands.before)
        ]
    module.exit_json(**result)


def _phase(here: tray.Tray, options: dict[str, Any]) -> dict[str, Any]:
    phase = options["phase"]
    if phase == "look":
        return here.look(options["ask"], options["slurm_nodes"], options["allow_jobs"])
    if phase == "stop_and_write":
        return here.stop_and_write(options["generation"], options["outdated"], options["stop"])
    if phase == "start":
        return starting.start(here, options["start_timeout"], options["reload"], options["outdated"])
    return starting.wait(here, options["timeout"], options["expect"], options["call"])


if __name__ == "__main__":
    main()
