#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_conf
short_description: "[INTERNAL] Write slurmctld's configuration from the fabric file and start it"
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Writes C(slurm.conf), C(nvlink_nodes.conf), C(gres.conf) and C(cgroup.conf) and has slurmctld load them.
  - slurmctld is started where it does not run. Else it is reconfigured, and restarted only for settings that it reads
    at its start alone. Jobs continue in all cases.
  - The nodes are those of the fabric file. The hardware of a tray is what M(rackscale.nvlink.slurm_tray) measured in
    this run, else what its present node line has. So a run that is limited to one tray changes the line of that tray
    alone. Impossible hardware is a finding of its tray, whose line stays.
  - What all trays share, such as C(DefMemPerCPU), is set by the site or is what most trays report.
  - Present lines C(Include) of slurm.conf are kept, among them those of M(rackscale.nvlink.slurm_topology).
  - If slurmctld refuses the files, the old ones are restored, and the module fails.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  fabric_file:
    description: Path of the fabric file on the Ansible controller. The action plugin reads it.
    type: path
  cluster:
    description: The Slurm cluster of the fabric file. By default the one with the name O(cluster_name).
    type: str
  observations:
    description: The variable in which the results of M(rackscale.nvlink.slurm_tray) are registered.
    type: str
  cluster_name:
    description: C(ClusterName).
    type: str
    required: true
  hosts:
    description: The controllers, each with its address, empty where the name resolves. The primary one is first.
    type: dict
    default: {}
  auth:
    description: The authentication of Slurm's daemons (C(AuthType)).
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
    description: The host of slurmdbd. No accounting if empty.
    type: str
    default: ""
  imex:
    description: Whether each job gets its own IMEX channel, by C(switch/nvidia_imex).
    type: bool
    default: true
  imex_channel_count:
    description:
      - C(imex_channel_count). If V(0), one less than the count that more than half of the trays' drivers report in this
        run, else the present one.
    type: int
    default: 0
  imex_dev_major:
    description: The major number of the channels' devices, for hosts without the driver. V(0) uses the driver's.
    type: int
    default: 0
  gres:
    description: How slurmd finds the GPUs, by the files C(/dev/nvidiaN), by NVML, or not at all. Slurm ignores a GPU
      that has no file.
    type: str
    choices: [files, autodetect, none]
    default: files
  gpu_type:
    description: The type of the GPUs, as jobs request it.
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
      - The tiers that M(rackscale.nvlink.slurm_tiers) configures after this. Where there are any, users need an
        association, QoS limits and priorities are enforced, and a job that its partition refuses does not stay pending.
        Preemption is on where a tier's QoS preempts.
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
  node_features:
    description:
      - Whether node lines have the names of the tray's NVLink domain and clique as C(Features), after those of
        O(node). Then there is a line for each clique.
    type: bool
    default: false
  settings:
    description: Settings of C(slurm.conf), which override the module's own. One without a value removes the module's.
    type: dict
    default: {}
  cgroup:
    description: Settings of C(cgroup.conf), which override the module's own.
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
      - Whether a tray that is no longer in the fabric file, or a partition that is no longer in O(partitions), is
        removed from Slurm while it has jobs, which ends them.
      - Without it neither is removed where slurmctld does not list its jobs.
    type: bool
    default: false
  override:
    description:
      - Names of gates that do not object in this run. V(nodes_removed), when more than one of the present nodes would
        be removed from Slurm, jobs or not.
      - V(live_changes_lost), when a reconfigure would undo what operators changed with C(scontrol update).
    type: list
    elements: str
    choices: [nodes_removed, live_changes_lost]
    default: []
  accounting:
    description: Set by the action plugin.
    type: bool
    default: false
  log:
    description: Set by the action plugin.
    type: path
    default: /var/log/slurm/slurmctld.log
  texts:
    description: The files by name. Set by the action plugin; without it the module only returns the present files.
    type: dict
  made_from:
    description: Set by the action plugin.
    type: str
    default: ""
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
      - Where no tray has slurmd yet, no hardware is known and no file can be shown.
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_tray
  - module: rackscale.nvlink.slurm_topology
"""

EXAMPLES = r"""
- name: Configure and start slurmctld
  rackscale.nvlink.slurm_conf:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    observations: slurm_tray_result
    cluster_name: nvl72
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
  sample: ["change nvlink_nodes.conf"]
installed:
  description: Whether slurmctld is installed.
  returned: success
  type: bool
present:
  description: The files that existed before, by name.
  returned: always, without texts
  type: dict
outdated:
  description: Whether it failed because another run changed the node lines meanwhile.
  returned: failure
  type: bool
findings:
  description: Findings with code, severity and message, each with its remedy.
  returned: always
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm

ARGUMENTS: dict[str, dict[str, Any]] = {
    "fabric_file": {"type": "path"},
    "cluster": {"type": "str"},
    "observations": {"type": "str"},
    "cluster_name": {"type": "str", "required": True},
    "hosts": {"type": "dict", "default": {}},
    "auth": {"type": "str", "choices": ["munge", "slurm"], "default": "munge"},
    "user": {"type": "str", "default": "slurm"},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "state_dir": {"type": "path", "default": "/var/lib/slurm/slurmctld"},
    "spool_dir": {"type": "path", "default": "/var/lib/slurm/slurmd"},
    "log_dir": {"type": "path", "default": "/var/log/slurm"},
    "accounting_host": {"type": "str", "default": ""},
    "imex": {"type": "bool", "default": True},
    "imex_channel_count": {"type": "int", "default": 0},
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
    "node_features": {"type": "bool", "default": False},
    "settings": {"type": "dict", "default": {}},
    "cgroup": {"type": "dict", "default": {}},
    "node": {"type": "dict", "default": {}},
    "partitions": {"type": "list", "elements": "dict", "default": []},
    "lines": {"type": "list", "elements": "str", "default": []},
    "allow_removal": {"type": "bool", "default": False},
    "override": {"type": "list", "elements": "str", "choices": list(cluster.GATES), "default": []},
    "accounting": {"type": "bool", "default": False},
    "log": {"type": "path", "default": "/var/log/slurm/slurmctld.log"},
    "texts": {"type": "dict"},
    "made_from": {"type": "str", "default": ""},
    "timeout": {"type": "float", "default": 120},
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
        desired = cluster.DesiredState(
            texts=params["texts"],
            made_from=params["made_from"],
            conf_dir=params["conf_dir"],
            cluster=params["cluster_name"],
            accounting=params["accounting"],
            log=params["log"],
            allow_removal=params["allow_removal"],
            override=tuple(params["override"]),
        )
        changed = cluster.apply(host, desired)
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
