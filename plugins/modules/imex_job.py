#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: imex_job
short_description: Give each Slurm job its own IMEX domains
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Installs on a tray the program that Slurm runs as Prolog and Epilog, with the map of the tray's clique and what the
    site wants where a job's IMEX domain does not come up. C(nvidia-imex.service) is left to the prolog.
  - The prolog splits a job by clique from that map, so it asks no controller. Each clique of the job gets an IMEX
    domain of its own, and the prolog waits until every tray of the job in the clique is connected.
  - Nothing is installed where C(slurm.conf) of the tray makes it useless or harmful, which is told as findings.
  - It starts no daemon and does not touch that of a running job.
options:
  state:
    description: V(absent) takes everything away, but not while a job has its IMEX on the tray.
    type: str
    choices: [present, absent]
    default: present
  force:
    description: Whether V(absent) may take its IMEX from a running job, which breaks it.
    type: bool
    default: false
  fabric_file:
    description: The fabric file on the controller, which tells O(clique) and O(members) of the tray.
    type: path
  tray:
    description: The tray's name in the fabric file. The host's name in the inventory if omitted.
    type: str
  clique:
    description: The tray's clique. Taken from O(fabric_file) where that is given.
    type: str
  members:
    description: All trays of the clique in the order that they have in IMEX lists, down or not. Taken from O(fabric_file).
    type: list
    elements: dict
    default: []
    suboptions:
      node:
        description: The tray's name in Slurm.
        type: str
        required: true
      address:
        description: Its address for IMEX.
        type: str
        required: true
  policy:
    description:
      - What the prolog does where the IMEX domain does not come up. With V(drain) it fails, so Slurm drains the tray
        and gives the job back. With V(requeue) the job is given back and the tray stays in use. With V(run) the job
        runs without IMEX, which its log says.
      - A job that is refused for what it asked for (shared trays) is cancelled by V(drain) and V(requeue), and one
        whose clique is taken is requeued, since no tray is at fault there.
    type: str
    choices: [drain, requeue, run]
    default: drain
  scope:
    description:
      - V(clique_exclusive) lets one job at a time have an IMEX domain in a clique. The prolog sees whether a tray of
        the clique that is not the job's has a daemon.
    type: str
    choices: [job, clique_exclusive]
    default: job
  wait:
    description: Seconds in which the job's IMEX domain must be ready, 5 to 3600.
    type: int
    default: 60
  stop_wait:
    description: Seconds that the daemon has to end by SIGTERM before systemd kills it, 1 to 600.
    type: int
    default: 20
  min_trays:
    description: Of how many trays in one clique a job gets an IMEX domain there.
    type: int
    default: 2
  max_requeues:
    description: How often a job is requeued before it is held instead.
    type: int
    default: 3
  channel0:
    description:
      - Whether the prolog makes C(channel0). V(auto) makes it unless C(switch/nvidia_imex) gives each job a channel.
    type: str
    choices: [auto, always, never]
    default: auto
  path:
    description: Folders of Slurm's commands on the tray, where they are not in the usual ones.
    type: list
    elements: path
    default: []
  slurm_conf:
    description: The tray's C(slurm.conf). That which slurmd uses by default, also of a configless cluster, if omitted.
    type: path
  prolog_dir:
    description: The folder that C(Prolog) names in C(slurm.conf).
    type: path
    default: /etc/slurm/prolog.d
  epilog_dir:
    description: The folder that C(Epilog) names in C(slurm.conf).
    type: path
    default: /etc/slurm/epilog.d
  python:
    description: The Python 3.9 or later that runs the program.
    type: path
    default: /usr/bin/python3
  proc_devices:
    description: Where the kernel tells the major number of the channels.
    type: path
    default: /proc/devices
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Of the program only its SHA-256 is shown.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.fabric_facts
"""

EXAMPLES = r"""
- name: Let Slurm's prolog give each job its IMEX domains
  rackscale.nvlink.imex_job:
    fabric_file: "{{ nvlink_fabric_file }}"
    policy: requeue

- name: Take it away again
  rackscale.nvlink.imex_job:
    state: absent
"""

RETURN = r"""
changes:
  description: What changed, or would in check mode.
  returned: success
  type: list
  elements: str
  sample: ["write /usr/local/libexec/nvlink-imex-job"]
findings:
  description:
    - What is wrong with Slurm's settings for it, see docs/findings.md.
    - Without C(PrologFlags=Alloc), or with a limit of Slurm's that is shorter than the wait, nothing is changed.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import job_host, job_state


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "force": {"type": "bool", "default": False},
            "fabric_file": {"type": "path"},
            "tray": {"type": "str"},
            "clique": {"type": "str"},
            "members": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "node": {"type": "str", "required": True},
                    "address": {"type": "str", "required": True},
                },
            },
            "policy": {"type": "str", "choices": list(job_state.POLICIES), "default": "drain"},
            "scope": {"type": "str", "choices": list(job_state.SCOPES), "default": "job"},
            "wait": {"type": "int", "default": 60},
            "stop_wait": {"type": "int", "default": 20},
            "min_trays": {"type": "int", "default": 2},
            "max_requeues": {"type": "int", "default": 3},
            "channel0": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
            "path": {"type": "list", "elements": "path", "default": []},
            "slurm_conf": {"type": "path"},
            "prolog_dir": {"type": "path", "default": "/etc/slurm/prolog.d"},
            "epilog_dir": {"type": "path", "default": "/etc/slurm/epilog.d"},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "proc_devices": {"type": "path", "default": "/proc/devices"},
        },
        supports_check_mode=True,
    )
    act = job_host.present if module.params["state"] == "present" else job_host.absent
    try:
        result = act(module.params, module.check_mode)
    except (NvlinkError, OSError) as error:
        module.fail_json(msg=f"imex_job: {error}")
    more = {}
    if module._diff:
        more["diff"] = [
            {"before_header": name, "after_header": name, "before": result.before[name], "after": result.after[name]}
            for name in result.before
        ]
    module.exit_json(changed=bool(result.changes), changes=result.changes, findings=result.findings, **more)


if __name__ == "__main__":
    main()
