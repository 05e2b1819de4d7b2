#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_conf
short_description: Give slurmctld its configuration from the fabric file
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Writes C(slurm.conf), C(nvlink_nodes.conf), C(gres.conf) and C(cgroup.conf) and has slurmctld run them.
  - slurmctld is started where it does not run. Else it is told to reconfigure, and restarted only for what it reads at
    its start alone. Jobs go on in all cases.
  - Which nodes there are says the fabric file. Their hardware is what M(rackscale.nvlink.slurm_tray) measured in this
    run, and for all other trays what the node lines in force say. So a run that is limited to one tray changes the line
    of that tray alone.
  - Lines C(Include) that slurm.conf has already are kept, among them those of M(rackscale.nvlink.slurm_topology).
  - If slurmctld refuses the files, those of before are put back, and the module fails with one sentence.
options:
  fabric_file:
    description: Path of the fabric file on the Ansible controller. The action plugin reads it.
    type: path
  slurm_cluster:
    description: Which of the fabric file's Slurm clusters is meant. The one called as O(cluster) by default.
    type: str
  observations:
    description: The name under which the results of M(rackscale.nvlink.slurm_tray) are registered.
    type: str
  cluster:
    description: C(ClusterName).
    type: str
    required: true
  hosts:
    description: The controllers, each with its address, empty where the name resolves. The primary one is first.
    type: dict
    default: {}
  auth:
    description: How Slurm's daemons know each other.
    type: str
    choices: [munge, slurm]
    default: munge
  user:
    description: C(SlurmUser).
    type: str
    default: slurm
  conf_dir:
    description: The folder of C(slurm.conf).
    type: path
    default: /etc/slurm
  state_dir:
    description: C(StateSaveLocation).
    type: path
    default: /var/lib/slurm/slurmctld
  spool_dir:
    description: C(SlurmdSpoolDir).
    type: path
    default: /var/lib/slurm/slurmd
  log_dir:
    description: The folder of the logs.
    type: path
    default: /var/log/slurm
  accounting_host:
    description: The host of slurmdbd. Slurm keeps no accounts if empty.
    type: str
    default: ""
  imex:
    description: Whether each job gets an IMEX channel of its own, by C(switch/nvidia_imex).
    type: bool
    default: true
  imex_channels:
    description: C(imex_channel_count). If 0, one less than the smallest count that a driver told.
    type: int
    default: 0
  imex_dev_major:
    description: The major number of the channels' devices, for hosts without the driver. 0 asks the driver.
    type: int
    default: 0
  gres:
    description: How slurmd finds the GPUs, by the files C(/dev/nvidiaN), by NVML, or not at all. Slurm ignores a GPU
      that has no file.
    type: str
    choices: [files, autodetect, none]
    default: files
  gpu_type:
    description: The type of the GPUs, as jobs may ask for it.
    type: str
    default: ""
  health_check:
    description: C(HealthCheckProgram). None if empty.
    type: str
    default: ""
  prolog:
    description: C(Prolog), a program or a pattern. None if empty.
    type: str
    default: ""
  epilog:
    description: C(Epilog), a program or a pattern. None if empty.
    type: str
    default: ""
  task_prolog:
    description: C(TaskProlog). None if empty.
    type: str
    default: ""
  tiers:
    description:
      - The tiers that M(rackscale.nvlink.slurm_tiers) gives to Slurm after this. Where there are any, users need an
        association, QoS give limits and priority, and a job that its partition refuses is not left waiting. Preemption
        is on where a tier's QoS preempts.
    type: list
    elements: dict
    default: []
  memory_step:
    description: C(RealMemory) is rounded down to a multiple of this many MiB.
    type: int
    default: 1024
  node_addresses:
    description: Whether node lines have C(NodeAddr), from C(ansible_host). Needed where names do not resolve.
    type: bool
    default: false
  settings:
    description: Settings of C(slurm.conf), which win over the module's own. One without a value takes ours away.
    type: dict
    default: {}
  cgroup:
    description: Settings of C(cgroup.conf), which win over the module's own.
    type: dict
    default: {}
  node:
    description: More keys for every node line.
    type: dict
    default: {}
  partitions:
    description: The partitions, each a map of C(name) and the keys of its line.
    type: list
    elements: dict
    default: []
  lines:
    description: More lines for C(slurm.conf).
    type: list
    elements: str
    default: []
  allow_removal:
    description:
      - Whether a tray that left the fabric file, or a partition that left O(partitions), may leave Slurm while it has
        jobs, which ends them.
      - Without it neither leaves where slurmctld does not tell its jobs.
    type: bool
    default: false
  accounting:
    description: Set by the action plugin.
    type: bool
    default: false
  log:
    description: Set by the action plugin.
    type: path
    default: /var/log/slurm/slurmctld.log
  texts:
    description: The files by name. Set by the action plugin; without it the module only tells what is there.
    type: dict
  made_from:
    description: Set by the action plugin.
    type: str
    default: ""
  timeout:
    description: Seconds that one call of a tool, or the start of a unit, may take.
    type: int
    default: 120
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - Where no tray has slurmd yet, no hardware is known and no text can be shown.
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_tray
  - module: rackscale.nvlink.slurm_controller
  - module: rackscale.nvlink.slurm_topology
"""

EXAMPLES = r"""
- name: Configure and start slurmctld
  rackscale.nvlink.slurm_conf:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    observations: slurm_tray_result
    cluster: nvl72
    hosts: {ctl: 198.51.100.2}
    partitions:
      - {name: all, Nodes: ALL, Default: true}
"""

RETURN = r"""
changes:
  description: What changed, or would in check mode.
  returned: always
  type: list
  elements: str
  sample: ["nvlink_nodes.conf changed"]
installed:
  description: Whether slurmctld is installed.
  returned: success
  type: bool
present:
  description: The files that were there before, by name.
  returned: always, without texts
  type: dict
outdated:
  description: Whether it failed because another run changed the node lines meanwhile.
  returned: failure
  type: bool
findings:
  description: What is worth knowing, each with its remedy.
  returned: always
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm

ARGUMENTS: dict[str, dict[str, Any]] = {
    "fabric_file": {"type": "path"},
    "slurm_cluster": {"type": "str"},
    "observations": {"type": "str"},
    "cluster": {"type": "str", "required": True},
    "hosts": {"type": "dict", "default": {}},
    "auth": {"type": "str", "choices": ["munge", "slurm"], "default": "munge"},
    "user": {"type": "str", "default": "slurm"},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "state_dir": {"type": "path", "default": "/var/lib/slurm/slurmctld"},
    "spool_dir": {"type": "path", "default": "/var/lib/slurm/slurmd"},
    "log_dir": {"type": "path", "default": "/var/log/slurm"},
    "accounting_host": {"type": "str", "default": ""},
    "imex": {"type": "bool", "default": True},
    "imex_channels": {"type": "int", "default": 0},
    "imex_dev_major": {"type": "int", "default": 0},
    "gres": {"type": "str", "choices": ["files", "autodetect", "none"], "default": "files"},
    "gpu_type": {"type": "str", "default": ""},
    "health_check": {"type": "str", "default": ""},
    "prolog": {"type": "str", "default": ""},
    "epilog": {"type": "str", "default": ""},
    "task_prolog": {"type": "str", "default": ""},
    "tiers": {"type": "list", "elements": "dict", "default": []},
    "memory_step": {"type": "int", "default": 1024},
    "node_addresses": {"type": "bool", "default": False},
    "settings": {"type": "dict", "default": {}},
    "cgroup": {"type": "dict", "default": {}},
    "node": {"type": "dict", "default": {}},
    "partitions": {"type": "list", "elements": "dict", "default": []},
    "lines": {"type": "list", "elements": "str", "default": []},
    "allow_removal": {"type": "bool", "default": False},
    "accounting": {"type": "bool", "default": False},
    "log": {"type": "path", "default": "/var/log/slurm/slurmctld.log"},
    "texts": {"type": "dict"},
    "made_from": {"type": "str", "default": ""},
    "timeout": {"type": "int", "default": 120},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    changes: list[str] = []
    result: dict[str, Any] = {"changes": changes, "findings": []}
    try:
        before = cluster.present(params["conf_dir"])
        if params["texts"] is None:
            module.exit_json(changed=False, present=before, installed=_installed(), **result)
        host = Host(module.check_mode, params["timeout"])
        host.changes = changes
        wish = cluster.DesiredState(
            texts=params["texts"],
            made_from=params["made_from"],
            conf_dir=params["conf_dir"],
            cluster=params["cluster"],
            accounting=params["accounting"],
            log=params["log"],
            allow_removal=params["allow_removal"],
        )
        changed = cluster.apply(host, wish)
    except NvlinkError as error:
        module.fail_json(msg=str(error), outdated=isinstance(error, cluster.Outdated), **result)
    if module._diff:
        texts = {
            **params["texts"],
            cluster.CONF: cluster.keep_includes(params["texts"][cluster.CONF], before.get(cluster.CONF, "")),
        }
        result["diff"] = [
            {"before_header": name, "after_header": name, "before": before.get(name, ""), "after": texts[name]}
            for name in changed
        ]
    module.exit_json(changed=bool(changes), installed=_installed(), **result)


def _installed() -> bool:
    try:
        Slurm().program("slurmctld")
    except NvlinkError:
        return False
    return True


if __name__ == "__main__":
    main()
