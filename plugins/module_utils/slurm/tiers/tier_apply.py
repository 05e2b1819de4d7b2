# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply a plan of tiers: records in slurmdbd, one transaction of slurmctld, and what no partition names any more.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Removals in slurmdbd come last, when no partition names the QoS any more; if one fails, the next run continues there.
"""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.daemon import Transaction
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.accounting import Sacctmgr, Step
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.tier_plan import TierPlan, running_partitions


def apply(plan: TierPlan, override: str) -> None:
    """Apply all of the plan or nothing; SlurmError has in one sentence what failed and what was restored.

    override: as of Transaction.
    """
    observed = plan.survey.observed
    accounts = Sacctmgr(observed.slurm, plan.survey.cluster)

    def names() -> set[str]:
        return {record["PartitionName"] for record in running_partitions(observed.slurm)}

    def problem() -> str:
        differs = plan.problem(running_partitions(observed.slurm))
        return f"slurmctld does not run the new partitions ({differs})" if differs else ""

    before = {record["PartitionName"] for record in plan.survey.partitions}
    transaction = Transaction(
        observed.slurm,
        observed.conf_dir,
        plan.writes,
        what="the new partitions",
        problem=problem,
        restored=lambda: names() == before,
        load=Transaction.reconfigure if plan.reconfigure else None,
        stamps=observed.stamps,
        override=override,
        own=plan.own(),
        log=observed.config.get("slurmctldlogfile", ""),
        keep=plan.keep,
    )
    done: list[Step] = []
    try:
        for step in plan.before:
            done.append(step)  # first: a step that is interrupted may have taken effect
            failed = accounts.run(step.do)
            if failed:
                done.pop()
                raise SlurmError(f"sacctmgr {' '.join(step.do[:3])} failed ({failed}); no file was changed")
        transaction.apply()
    except SlurmError as error:
        raise SlurmError(f"{str(error).rstrip('.')}{_undo(plan, done, accounts)}.") from None
    except BaseException:
        _undo(plan, done, accounts)
        raise
    for step in plan.after:
        failed = accounts.run(step.do)
        if failed:
            raise SlurmError(
                f"The partitions are applied, but sacctmgr {' '.join(step.do[:3])} failed ({failed}): correct that and"
                " run again, which continues there."
            )


def _undo(plan: TierPlan, done: list[Step], accounts: Sacctmgr) -> str:
    """Undo the steps; a clause with what was restored."""
    failed = [step for step in reversed(done) if step.undo and accounts.run(step.undo)]
    if failed:
        # A step that was interrupted before it took effect cannot be undone either: compare the records.
        try:
            if plan.survey.records is not None and accounts.records() == plan.survey.records:
                failed = []
        except SlurmError:
            pass
    if failed:
        return f", but slurmdbd keeps {failed[0].description or failed[0].do[2]}: run again when it answers"
    return ", and the records in slurmdbd were restored" if done else ""
