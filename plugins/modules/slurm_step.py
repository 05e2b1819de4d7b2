#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_step
short_description: "[INTERNAL] Run one step of the role slurm on a tray or a Slurm controller"
version_added: 1.0.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Makes a tray a node of a configless Slurm, writes slurmctld's configuration from the fabric file, and prepares
    backup controllers.
  - The nodes are those of the fabric file. The hardware of a tray is what O(step=prepare_tray) measured in this run,
    else what its present node line has. So a run that is limited to one tray changes the line of that tray alone.
    Impossible hardware is a finding of its tray, whose line stays.
  - What all trays share, such as C(DefMemPerCPU), is set by the site or is what most trays report.
  - Present lines C(Include) of slurm.conf are kept, among them those of M(rackscale.nvlink.slurm_topology).
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  step:
    description:
      - V(prepare_tray) installs the cluster's key on a tray that has Slurm's packages and returns the tray's hardware.
        V(start_tray) starts slurmd, which fetches its configuration from slurmctld. A slurmd that runs with the right
        options is not restarted. Jobs continue where it is. Each is one task, because a task costs the controller about
        10 ms a tray even if it is skipped.
      - V(configure) writes C(slurm.conf), C(nvlink_nodes.conf), C(gres.conf) and C(cgroup.conf) and has slurmctld load
        them. slurmctld is started where it does not run. Else it is reconfigured, and restarted only for settings that
        it reads at its start alone. Jobs continue in all cases. If slurmctld refuses the files, the old ones are
        restored, and the task fails.
      - V(install_key) installs the cluster's key on the host of a backup slurmctld.
      - V(read_files) returns the files of the first slurmctld. V(start_backup) writes them on another host and starts
        its slurmctld, which waits until it must take over. It is restarted where C(slurm.conf) changes, and reads the
        other files when it takes over. The files are C(slurm.conf), its includes from the same folder, and the other
        files of that folder that slurmctld reads. None of them contains a secret. Files in other folders are the site's
        to keep equal.
    type: str
    choices: [prepare_tray, start_tray, configure, install_key, read_files, start_backup]
    required: true
  auth:
    description: The authentication of Slurm's daemons (C(AuthType)).
    type: str
    choices: [munge, slurm]
    default: munge
  key:
    description: The cluster's key in Base64, for O(step=prepare_tray) and O(step=install_key). It is never shown.
    type: str
  conf_servers:
    description: The slurmctlds from which slurmd fetches its configuration, each C(HOST:PORT). Required with
      O(step=prepare_tray) and O(step=start_tray).
    type: list
    elements: str
  options_file:
    description: The environment file of slurmd's unit, with C(SLURMD_OPTIONS).
    type: path
    default: /etc/default/slurmd
  log:
    description: C(SlurmdLogFile) or C(SlurmctldLogFile), read for the error message where the daemon does not start.
      Required on trays, with O(step=configure) and with O(step=start_backup).
    type: path
  programs:
    description: The programs that slurmd runs, for O(step=prepare_tray).
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The program. Left out if empty.
        type: path
        required: true
      text:
        description: Its text.
        type: str
        required: true
  logrotate:
    description: The rule of logrotate for O(log), for O(step=prepare_tray).
    type: str
    default: ""
  controllers:
    description:
      - Inventory names of the Slurm controllers. On one of them the steps of a tray do nothing. The action plugin reads
        it.
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
  files:
    description: The files that O(step=read_files) returned on the first controller, for O(step=start_backup).
    type: dict
    default: {}
  fabric_file:
    description: Path of the fabric file on the Ansible controller. The action plugin reads it.
    type: path
  cluster:
    description: The Slurm cluster of the fabric file. By default the one with the name O(cluster_name).
    type: str
  observations:
    description: The variable in which the results of O(step=prepare_tray) are registered.
    type: str
  cluster_name:
    description: C(ClusterName). Required with O(step=configure).
    type: str
  templates:
    description: The template of C(slurm.conf), C(gres.conf) and C(cgroup.conf), by name. The action plugin reads it.
    type: dict
    default: {}
  conf_dir:
    description: The folder of C(slurm.conf).
    type: path
    default: /etc/slurm
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
        O(node).
    type: bool
    default: false
  node:
    description: More keys for every node line.
    type: dict
    default: {}
  allow_removal:
    description:
      - Whether a tray that is no longer in the fabric file, or a partition that is no longer in C(slurm.conf), is
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
    description: Whether slurmdbd must have the cluster before slurmctld starts.
    type: bool
    default: false
  texts:
    description: The files by name. Set by the action plugin; without it O(step=configure) only returns the present
      files.
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
    support: partial
    details:
      - On trays changes are described in words, since some of these files contain secrets.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_topology
"""

EXAMPLES = r"""
- name: Configure slurmd and measure the tray
  rackscale.nvlink.slurm_step:
    step: prepare_tray
    key: "{{ munge_key.content }}"
    conf_servers: ["ctl:6817"]
    log: /var/log/slurm/slurmd.log
  register: slurm_tray_result

- name: Configure and start slurmctld
  rackscale.nvlink.slurm_step:
    step: configure
    fabric_file: "{{ inventory_dir }}/fabric.json"
    observations: slurm_tray_result
    cluster_name: nvl72
    log: /var/log/slurm/slurmctld.log
    templates: {slurm.conf: slurm.conf.j2, gres.conf: gres.conf.j2, cgroup.conf: cgroup.conf.j2}

- name: Read the files of the first slurmctld
  rackscale.nvlink.slurm_step:
    step: read_files
  delegate_to: ctl1
  register: first

- name: Start a backup slurmctld
  rackscale.nvlink.slurm_step:
    step: start_backup
    files: "{{ first.files }}"
    log: /var/log/slurm/slurmctld.log
  delegate_to: ctl2
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
hardware:
  description: The hardware that C(slurmd -C) prints, memory in MiB; null where slurmd is not installed yet.
  returned: with O(step=prepare_tray)
  type: dict
  sample: {CPUs: 144, Boards: 1, SocketsPerBoard: 2, CoresPerSocket: 72, ThreadsPerCore: 1, RealMemory: 878000}
channel_count:
  description: The driver's number of IMEX channels, null where it does not report it.
  returned: with O(step=prepare_tray)
  type: int
  sample: 2048
changes:
  description: What changed, or would in check mode.
  returned: always
  type: list
  elements: str
  sample: ["change nvlink_nodes.conf"]
present:
  description: The files that existed before, by name.
  returned: with O(step=configure), without O(texts)
  type: dict
outdated:
  description: Whether it failed because another run changed the node lines meanwhile.
  returned: with O(step=configure), on failure
  type: bool
files:
  description: The files by name, each in Base64.
  returned: with O(step=read_files)
  type: dict
findings:
  description: Findings with code, severity and message, each with its remedy.
  returned: always
  type: list
  elements: dict
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import (
    cluster,
    conf_folder,
    keys,
    slurmd_host,
    standby,
)

STEPS = {
    "prepare_tray": slurmd_host.prepare,
    "start_tray": slurmd_host.start,
    "configure": cluster.configure,
    "install_key": keys.install_on_backup,
    "read_files": standby.read_files,
    "start_backup": standby.start_backup,
}
"""Step -> its function of the host and the options, which returns the result besides `changes`, and the `diff`."""
_RESTORES = ("configure", "start_backup")
"""Steps that undo their changes where they fail."""
PROGRAM: dict[str, Specification] = {
    "path": {"type": "path", "required": True},
    "text": {"type": "str", "required": True},
}
ARGUMENTS: dict[str, Specification] = {
    "step": {"type": "str", "choices": list(STEPS), "required": True},
    "auth": {"type": "str", "choices": ["munge", "slurm"], "default": "munge"},
    "key": {"type": "str", "no_log": True},
    "conf_servers": {"type": "list", "elements": "str"},
    "options_file": {"type": "path", "default": "/etc/default/slurmd"},
    "log": {"type": "path"},
    "programs": {"type": "list", "elements": "dict", "default": [], "options": PROGRAM},
    "logrotate": {"type": "str", "default": ""},
    "controllers": {"type": "list", "elements": "str", "default": []},
    "controller_failed": {"type": "bool", "default": False},
    "after": {"type": "list", "elements": "str", "default": []},
    "files": {"type": "dict", "default": {}},
    "fabric_file": {"type": "path"},
    "cluster": {"type": "str"},
    "observations": {"type": "str"},
    "cluster_name": {"type": "str"},
    "templates": {"type": "dict", "default": {}},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "imex": {"type": "bool", "default": True},
    "imex_channel_count": {"type": "int", "default": 0},
    "gres": {"type": "str", "choices": ["files", "autodetect", "none"], "default": "files"},
    "gpu_type": {"type": "str", "default": ""},
    "memory_step": {"type": "int", "default": 1024},
    "node_addresses": {"type": "bool", "default": False},
    "node_features": {"type": "bool", "default": False},
    "node": {"type": "dict", "default": {}},
    "allow_removal": {"type": "bool", "default": False},
    "override": {"type": "list", "elements": "str", "choices": list(cluster.GATES), "default": []},
    "accounting": {"type": "bool", "default": False},
    "texts": {"type": "dict"},
    "made_from": {"type": "str", "default": ""},
    "timeout": {"type": "float", "default": 120},
}
REQUIRED_IF = [
    ("step", "prepare_tray", ("conf_servers", "log")),
    ("step", "start_tray", ("conf_servers", "log")),
    ("step", "configure", ("cluster_name", "log")),
    ("step", "start_backup", ("log",)),
]


def main() -> None:
    actions.begin()
    module = AnsibleModule(argument_spec=ARGUMENTS, required_if=REQUIRED_IF, supports_check_mode=True)
    step = module.params["step"]
    changes: list[str] = []
    result: Result = {"changes": changes, "findings": []}
    try:
        host = Host(module.check_mode, module.params["timeout"])
        host.changes = changes
        found = STEPS[step](host, module.params)
    except NvlinkError as error:
        if step == "configure":
            result["outdated"] = isinstance(error, conf_folder.Outdated)
        result["actions"] = actions.done()
        module.fail_json(msg=str(error), changed=bool(changes) and step not in _RESTORES, **result)
    if not module._diff:
        found.pop("diff", None)
    module.exit_json(changed=bool(changes), actions=actions.done(), **found, **result)


if __name__ == "__main__":
    main()
