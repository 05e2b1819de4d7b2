#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: imex_job
short_description: Configure IMEX per Slurm job
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Installs on a tray the program that Slurm runs as Prolog and Epilog, with a settings file that has the members of
    the tray's clique and the policy for jobs whose IMEX domain does not come up. The prolog starts
    C(nvidia-imex.service).
  - The prolog finds the job's trays in its clique from that file, without a request to slurmctld. The job gets one IMEX
    domain in each of its cliques, and the prolog waits until every tray of the job in the clique is connected.
  - Nothing is installed where the tray's C(slurm.conf) makes it useless or harmful, which findings report.
  - It starts no daemon and does not stop that of a running job.
options:
  state:
    description: V(absent) removes everything, but not while a job has its IMEX domain on the tray.
    type: str
    choices: [present, absent]
    default: present
  force:
    description: Whether V(state=absent) may stop the IMEX daemon of a running job, which breaks the job.
    type: bool
    default: false
  fabric_file:
    description: The fabric file on the controller, from which O(clique) and O(members) are read. Give either this, or
      those two.
    type: path
  tray:
    description: The tray's name in the fabric file, by default the inventory name.
    type: str
  clique:
    description: The name of the tray's clique, for a use without O(fabric_file).
    type: str
  members:
    description: All trays of the clique, down or not, in the order of the IMEX node list, for a use without
      O(fabric_file).
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
  outside:
    description: Slurm nodes of the clique that this run leaves out. Where one of them has other O(members), nothing
      changes, and a finding reports it.
    type: list
    elements: str
    default: []
  allow_outdated:
    description: Trays of the fabric file that may have other members of the clique, although this run leaves them out.
      A job on such a tray and on others of the clique is requeued.
    type: list
    elements: str
    default: []
  list_port:
    description: The port on which this tray offers its settings file to the other trays of the clique, 1 to 65535.
    type: int
    default: 50006
  policy:
    description:
      - What the prolog does where the IMEX domain does not come up. With V(drain) it fails, so Slurm drains the tray
        and requeues the job. With V(requeue) the job is requeued and the tray stays in service. With V(run) the job
        runs without IMEX, and its log has a line about that.
      - With V(drain) and V(requeue), a job that shares its trays is held, and one that O(scope) blocks is
        requeued, because no tray is at fault.
    type: str
    choices: [drain, requeue, run]
    default: drain
  scope:
    description:
      - V(clique_exclusive) allows one job at a time to have an IMEX domain in a clique. The prolog probes the daemons
        of the clique's other trays.
    type: str
    choices: [job, clique_exclusive]
    default: job
  wait:
    description: Seconds in which the job's IMEX domain must be ready, 5 to 3600.
    type: int
    default: 60
  stop_wait:
    description: Seconds after SIGTERM until systemd kills the daemon, 1 to 600.
    type: int
    default: 20
  min_trays:
    description: The number of trays in one clique from which a job gets an IMEX domain there, 1 to 65536.
    type: int
    default: 2
  max_requeues:
    description: How often a job is requeued before it is held, 0 to 1000.
    type: int
    default: 3
  channel0:
    description:
      - Whether the prolog creates C(channel0). V(auto) creates it unless C(switch/nvidia_imex) gives each job a
        channel.
    type: str
    choices: [auto, always, never]
    default: auto
  path:
    description: Folders of Slurm's commands on the tray, where they are not in the default search path.
    type: list
    elements: path
    default: []
  slurm_conf:
    description: The tray's C(slurm.conf), by default the one that slurmd uses, also in a configless cluster.
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
    description: The file in which the kernel lists the major numbers of devices.
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
      - Of the program only the number of lines is shown.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.fabric_facts
"""

EXAMPLES = r"""
- name: Configure IMEX per job
  rackscale.nvlink.imex_job:
    fabric_file: "{{ nvlink_fabric_file }}"
    policy: requeue

- name: Remove IMEX per job
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
    - Errors and omissions in C(slurm.conf), see docs/findings.md.
    - Without C(PrologFlags=Alloc), or with a time limit of Slurm shorter than O(wait), nothing changes.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import job_host
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import state


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
            "outside": {"type": "list", "elements": "str", "default": []},
            "allow_outdated": {"type": "list", "elements": "str", "default": []},
            "list_port": {"type": "int", "default": 50006},
            "policy": {"type": "str", "choices": list(state.POLICIES), "default": "drain"},
            "scope": {"type": "str", "choices": list(state.SCOPES), "default": "job"},
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
    run = job_host.present if module.params["state"] == "present" else job_host.absent
    host = Host(module.check_mode)
    try:
        findings = run(module.params, host)
    except (NvlinkError, OSError) as error:
        module.fail_json(msg=f"imex_job: {error}", changes=[], findings=[])
    diff = {"diff": host.diff()} if module._diff else {}
    module.exit_json(changed=bool(host.changes), changes=host.changes, findings=findings, **diff)


if __name__ == "__main__":
    main()
