# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply a plan of tiers: records in slurmdbd, one transaction of slurmctld, and what no partition names any more.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Removals in slurmdbd come last, when no partition names the QoS any more; if one fails, the next run continues there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import PREVIOUS, REMOVED, Checksums
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import partitions
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.partitions import Partition
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.sacctmgr import Sacctmgr
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.transaction import Transaction

# description: in words, empty for a part of another one; do, undo: the arguments of sacctmgr.
Step = Mapping[str, Sequence[str]]


def apply(
    slurm: Slurm,
    conf_dir: str,
    change: Arguments,
    files: Mapping[str, bytes | None],
    known: Checksums,
) -> bool:
    """Apply all of the change or nothing; SlurmError has in one sentence what failed and what was restored.

    Returns as Transaction.apply().

    The caller holds the lock. files, known: as of Transaction. change, as TierPlan.change() makes it:

    before, after: the steps in slurmdbd, in their order. columns: those of QoS, to read the records. partitions: [name,
    its settings as [key, value]] of each partition that is to run; removed: the names of those that go; leaving: those
    of them that run, in which no job may be. load: whether slurmctld is to load the files. excludes: as of
    transact.writes(). override: as of Transaction.
    """
    config, running = slurm.config(), slurm.records("partitions")
    before = {record["PartitionName"] for record in running}
    desired = [Partition(name, tuple(map(tuple, settings))) for name, settings in change["partitions"]]
    accounts = Sacctmgr(slurm, config.get("clustername", "").lower())
    records = accounts.records(change["columns"]) if change["before"] else {}

    def problem() -> str:
        differs = partitions.problem(desired, change["removed"], slurm.records("partitions"))
        return f"slurmctld does not run the new partitions ({differs})" if differs else ""

    def unhindered() -> None:
        busy = slurm.jobs_in(change["leaving"])
        if busy:
            raise SlurmError(f"Jobs have started in partitions that go ({busy}): run again.")

    transaction = Transaction(
        slurm,
        conf_dir,
        files,
        what="to run without these files" if change["excludes"] else "the new partitions",
        problem=problem,
        restored=lambda: {record["PartitionName"] for record in slurm.records("partitions")} == before,
        load=Transaction.reconfigure if change["load"] else None,
        known=known,
        override=change["override"],
        unhindered=unhindered,
        own={*(partition.name for partition in desired), *change["removed"]},
        log=config.get("slurmctldlogfile", ""),
        keep=REMOVED if change["excludes"] else PREVIOUS,
    )
    done: list[Step] = []
    try:
        for step in change["before"]:
            done.append(step)  # first: a step that is interrupted may have taken effect
            failed = accounts.run(step["do"])
            if failed:
                done.pop()
                raise SlurmError(f"sacctmgr {' '.join(step['do'][:3])} failed ({failed}); no file was changed")
        restarted = transaction.apply()
    except SlurmError as error:
        raise SlurmError(f"{str(error).rstrip('.')}{_undo(done, accounts, records, change['columns'])}.") from None
    except BaseException:
        _undo(done, accounts, records, change["columns"])
        raise
    for step in change["after"]:
        failed = accounts.run(step["do"])
        if failed:
            raise SlurmError(
                f"The partitions are applied, but sacctmgr {' '.join(step['do'][:3])} failed ({failed}): correct that"
                " and run again, which continues there."
            )
    return restarted


def _undo(done: Sequence[Step], accounts: Sacctmgr, before: Mapping[str, str], columns: str) -> str:
    """Undo the steps; a clause with what was restored. before: the records at first."""
    failed = [step for step in reversed(done) if step["undo"] and accounts.run(step["undo"])]
    if failed:
        # A step that was interrupted before it took effect cannot be undone either: compare the records.
        with contextlib.suppress(SlurmError):
            if accounts.records(columns) == before:
                failed = []
    if failed:
        what = failed[0]["description"] or failed[0]["do"][2]
        return f", but slurmdbd keeps {what}: run again when it answers"
    return ", and the records in slurmdbd were restored" if done else ""
