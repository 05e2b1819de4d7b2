#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_tray
short_description: "[INTERNAL] Make a tray a node of a configless Slurm"
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Runs on a tray that has Slurm's packages, in two steps. O(state=prepared) installs the cluster's key and returns the
    tray's hardware. O(state=started) starts slurmd, which fetches its configuration from slurmctld.
  - Between the two, M(rackscale.nvlink.slurm_conf) writes the hardware into slurmctld's files.
  - Each step is one task, because a task costs the controller about 10 ms a tray even if it is skipped.
  - A slurmd that runs with the right options is not restarted. Jobs continue where it is.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  state:
    description: The step.
    type: str
    choices: [prepared, started]
    required: true
  auth:
    description: The authentication of Slurm's daemons (C(AuthType)).
    type: str
    choices: [munge, slurm]
    default: munge
  key:
    description: The cluster's key in Base64, for O(state=prepared). It is never shown.
    type: str
  conf_servers:
    description: The slurmctlds from which slurmd fetches its configuration, each C(HOST:PORT).
    type: list
    elements: str
    required: true
  options_file:
    description: The environment file of slurmd's unit, with C(SLURMD_OPTIONS).
    type: path
    default: /etc/default/slurmd
  log:
    description: C(SlurmdLogFile), read for the error message where slurmd does not start.
    type: path
    default: /var/log/slurm/slurmd.log
  health_check:
    description: Path at which to install the program of C(HealthCheckProgram). None if empty.
    type: str
    default: ""
  gpus:
    description: The number of GPUs that the health check expects. With V(0) it checks none.
    type: int
    default: 0
  prolog_dirs:
    description:
      - Folders of the programs that C(Prolog) and C(Epilog) name by a pattern. Each gets a program that does nothing,
        because Slurm fails every job and drains the tray where such a pattern matches no file.
    type: list
    elements: path
    default: []
  controllers:
    description:
      - Inventory names of the Slurm controllers. On one of them the module does nothing. The action plugin reads it.
    type: list
    elements: str
    default: []
  controller_failed:
    description: Whether the Slurm controller failed in this run, so that this fails too. The action plugin reads it.
    type: bool
    default: false
  after:
    description:
      - The variables in which the results of earlier steps are registered. Where one of them failed, or the tray was
        unreachable, so is this. The action plugin reads it.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that one call of a tool, or the start of a unit, may take.
    type: float
    default: 120
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - Without slurmd the hardware is null.
  diff_mode:
    support: none
    details:
      - Changes are described in words, since some of these files contain secrets.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_conf
"""

EXAMPLES = r"""
- name: Configure slurmd and measure the tray
  rackscale.nvlink.slurm_tray:
    state: prepared
    key: "{{ munge_key.content }}"
    conf_servers: ["ctl:6817"]
  register: slurm_tray_result

- name: Start slurmd
  rackscale.nvlink.slurm_tray:
    state: started
    conf_servers: ["ctl:6817"]
"""

RETURN = r"""
hardware:
  description: The hardware that C(slurmd -C) prints, memory in MiB; null where slurmd is not installed yet.
  returned: success and O(state=prepared)
  type: dict
  sample: {CPUs: 144, Boards: 1, SocketsPerBoard: 2, CoresPerSocket: 72, ThreadsPerCore: 1, RealMemory: 878000}
channel_count:
  description: The driver's number of IMEX channels, null where it does not report it.
  returned: success and O(state=prepared)
  type: int
  sample: 2048
changes:
  description: What changed, or would in check mode.
  returned: always
  type: list
  elements: str
  sample: ["/etc/default/slurmd written"]
findings:
  description: Always empty.
  returned: always
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import keys, tray

ARGUMENTS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["prepared", "started"], "required": True},
    "auth": {"type": "str", "choices": ["munge", "slurm"], "default": "munge"},
    "key": {"type": "str", "no_log": True},
    "conf_servers": {"type": "list", "elements": "str", "required": True},
    "options_file": {"type": "path", "default": "/etc/default/slurmd"},
    "log": {"type": "path", "default": "/var/log/slurm/slurmd.log"},
    "health_check": {"type": "str", "default": ""},
    "gpus": {"type": "int", "default": 0},
    "prolog_dirs": {"type": "list", "elements": "path", "default": []},
    # The action plugin reads these on the Ansible controller.
    "controllers": {"type": "list", "elements": "str", "default": []},
    "controller_failed": {"type": "bool", "default": False},
    "after": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "float", "default": 120},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    changes: list[str] = []
    result: dict[str, Any] = {"changes": changes, "findings": []}
    try:
        host = Host(module.check_mode, module.params["timeout"])
        host.changes = changes
        desired = _desired(module.params)
        if module.params["state"] == "prepared":
            measured = tray.prepare(host, desired)
            result.update(hardware=measured.hardware, channel_count=measured.channel_count)
        else:
            tray.start(host, desired)
    except NvlinkError as error:
        module.fail_json(msg=str(error), changed=bool(changes), **result)
    module.exit_json(changed=bool(changes), **result)


def _desired(params: dict[str, Any]) -> tray.DesiredState:
    return tray.DesiredState(
        auth=params["auth"],
        key=keys.decoded(params["key"]),
        conf_servers=params["conf_servers"],
        options_file=params["options_file"],
        health_check=params["health_check"],
        gpus=params["gpus"],
        prolog_dirs=params["prolog_dirs"],
        log=params["log"],
    )


if __name__ == "__main__":
    main()
