# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's Slurm: an ordinary cluster without blocks. Texts only; the units are in the base tree."""

from __future__ import annotations

from .addresses import CONTROLLER, CONTROLLER_ADDRESS
from .scenario import Scenario

PARTITION = "all"
CGROUP_CONF = "CgroupPlugin=disabled\n"
# The trays are configless: they fetch every file from the controller, at the start and at `scontrol reconfigure`.
SLURMD_DEFAULT = f"SLURMD_OPTIONS='--conf-server {CONTROLLER}:6817'\n"

FIXED = """\
ClusterName=nvlab
SlurmctldHost={controller}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdSpoolDir=/var/spool/slurmd
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile=/var/log/slurmd.log
SlurmctldParameters=enable_configless
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=60
InactiveLimit=0
KillWait=2
MinJobAge=60
MessageTimeout=10
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
UnkillableStepTimeout=60
"""

ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={controller}
AccountingStorageEnforce=associations,limits,qos
"""
# MariaDB identifies root by its unix socket; slurmdbd makes its tables itself.
SLURMDBD_CONF = f"""\
DbdHost={CONTROLLER}
SlurmUser=root
AuthType=auth/munge
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
LogFile=/var/log/slurmdbd.log
PidFile=/run/slurmdbd.pid
"""


def slurm_conf(scenario: Scenario) -> str:
    assert scenario.slurm is not None
    slurm = scenario.slurm
    lines = [FIXED.format(controller=CONTROLLER, address=CONTROLLER_ADDRESS).rstrip("\n")]
    if slurm.select_type:
        lines.append(f"SelectType={slurm.select_type}")
    if slurm.select_type == "select/cons_tres":
        lines.append("SelectTypeParameters=CR_Core")
    if slurm.topology_plugin:
        lines.append(f"TopologyPlugin={slurm.topology_plugin}")
    if slurm.prolog_flags:
        lines.append(f"PrologFlags={slurm.prolog_flags}")
    if slurm.accounting:
        lines.append(ACCOUNTING.format(controller=CONTROLLER).rstrip("\n"))
    lines += slurm.conf
    lines += [f"NodeName={tray.name} NodeAddr={tray.address} CPUs=4 RealMemory=1024" for tray in scenario.trays]
    lines.append(f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"
