# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply a plan of tiers; a failure before the result is verified restores files and records.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Removals in slurmdbd come last, when no partition names the QoS any more; if one fails, the next run continues there.
"""

from __future__ import annotations

import contextlib
import time

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.accounting import Sacctmgr, Step
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.applying import SETTLE, Log
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm, reason
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.restart import start_if_exited
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tier_plan import TierPlan, running_partitions
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.transaction import Files

# Seconds in which a slurmctld that refused a reconfigure may still exit.
CALM = 1.0


def apply(plan: TierPlan) -> None:
    """Apply all of the plan or nothing; SlurmError has in one sentence what failed and what was restored."""
    observed = plan.survey.observed
    accounts = Sacctmgr(observed.slurm, plan.survey.cluster)
    changes = Files(observed.conf.path)
    done: list[Step] = []
    loading = False
    try:
        for step in plan.before:
            done.append(step)  # first: a step that is interrupted may have taken effect
            problem = accounts.run(step.do)
            if problem:
                done.pop()
                raise SlurmError(f"sacctmgr {' '.join(step.do[:3])} failed ({problem})")
        # The file before the Include line in slurm.conf that names it.
        for path in sorted(plan.writes, key=lambda path: path == observed.conf.path):
            changes.write(path, plan.writes[path])
        if plan.reconfigure:
            loading = True
            problem = _load(plan)
            if problem:
                raise SlurmError(problem)
    except OSError as error:
        restored = _undo(plan, changes, done, accounts, loading)
        raise SlurmError(
            f"{error.filename or plan.survey.path} could not be written ({error.strerror}): make room or correct the"
            f" mode of {observed.conf_dir}; {restored}."
        ) from None
    except SlurmError as error:
        raise SlurmError(f"{str(error).rstrip('.')}; {_undo(plan, changes, done, accounts, loading)}.") from None
    except BaseException:
        _undo(plan, changes, done, accounts, loading)
        raise
    for step in plan.after:
        problem = accounts.run(step.do)
        if problem:
            raise SlurmError(
                f"The partitions are applied, but sacctmgr {' '.join(step.do[:3])} failed ({problem}): correct that and"
                " run again, which continues there."
            )


def _load(plan: TierPlan) -> str:
    """Reconfigure slurmctld and compare its partitions; the problem in a clause, empty on success."""
    slurm = plan.survey.observed.slurm
    log = Log(plan.survey.observed.config.get("slurmctldlogfile", ""))
    result = slurm.reconfigure()
    if result.rc != 0 or result.timed_out:
        fatal = log.fatal()
        return (
            f"slurmctld refused the partitions ({fatal})"
            if fatal
            else f"scontrol reconfigure failed ({reason(result)})"
        )
    deadline = time.monotonic() + SETTLE
    while True:
        try:
            problem = plan.problem(running_partitions(slurm))
            if not problem:
                return ""
            problem = f"slurmctld does not run the new partitions ({problem})"
        except SlurmError as error:
            problem = f"slurmctld does not answer after the reconfigure ({str(error).rstrip('.')})"
        if time.monotonic() > deadline:
            return problem
        time.sleep(0.25)


def _undo(plan: TierPlan, changes: Files, done: list[Step], accounts: Sacctmgr, loading: bool) -> str:
    """Undo everything, the files first; returns a clause with what was restored."""
    wrote = bool(changes.done)
    changes.undo()
    restored = "the old partitions were restored" if wrote else "no file was changed"
    if loading and wrote:
        restored += _reload(plan)
    failed = [step for step in reversed(done) if step.undo and accounts.run(step.undo)]
    if failed:
        # A step that was interrupted before it took effect cannot be undone either: compare the records.
        failed = _still_there(plan, failed, accounts)
    if failed:
        return f"{restored}, but slurmdbd keeps {failed[0].description or failed[0].do[2]}: run again when it answers"
    return f"{restored}, and the records in slurmdbd were restored" if done else restored


def _still_there(plan: TierPlan, steps: list[Step], accounts: Sacctmgr) -> list[Step]:
    try:
        now = accounts.records()
    except SlurmError:
        return steps
    before = plan.survey.records
    return [] if before is not None and now == before else steps


def _reload(plan: TierPlan) -> str:
    """Have slurmctld load the old files; after a refused reconfigure the old process usually still runs."""
    slurm = plan.survey.observed.slurm
    names = {record["PartitionName"] for record in plan.survey.partitions}
    deadline = time.monotonic() + max(slurm.timeout, SETTLE)
    restarted = ""
    while True:
        # A slurmctld that exits by itself (restart.py) does so within moments; one started before that would fail.
        time.sleep(CALM)
        if not restarted and start_if_exited(slurm.timeout):
            restarted = " in a slurmctld that had exited and was started again"
        with contextlib.suppress(SlurmError):
            slurm.reconfigure()
            if _runs(slurm, names):
                time.sleep(CALM)
                if _runs(slurm, names):
                    return f" and run{restarted}"
        if time.monotonic() > deadline:
            return ", but slurmctld does not run them: read its log and restart it"


def _runs(slurm: Slurm, names: set[str]) -> bool:
    return {record["PartitionName"] for record in running_partitions(slurm)} == names
