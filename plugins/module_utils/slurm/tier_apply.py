# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan of tiers carried out; on any failure up to the reading back, files and records are as they were.

Private to this collection; it may change in any release. Python 3.9, standard library only.

What is taken away in slurmdbd comes last, when slurmctld no longer names it; if that fails, the next run goes on there.
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

# How long a slurmctld that refused a reconfigure is given to show whether it goes on, in seconds.
CALM = 1.0


def apply(plan: TierPlan) -> None:
    """Do it all, or nothing; SlurmError says in one sentence what failed and what was put back."""
    seen = plan.survey.seen
    accounts = Sacctmgr(seen.slurm, plan.survey.cluster)
    changes = Files(seen.conf.path)
    done: list[Step] = []
    loading = False
    try:
        for step in plan.before:
            done.append(step)  # before it is done: one that was cut off may have been done
            problem = accounts.run(step.do)
            if problem:
                done.pop()
                raise SlurmError(f"sacctmgr {' '.join(step.do[:3])} failed ({problem})")
        # Our own file before the line in slurm.conf that names it.
        for path in sorted(plan.writes, key=lambda path: path == seen.conf.path):
            changes.write(path, plan.writes[path])
        if plan.reconfigure:
            loading = True
            problem = _load(plan)
            if problem:
                raise SlurmError(problem)
    except OSError as error:
        told = _back(plan, changes, done, accounts, loading)
        raise SlurmError(
            f"{error.filename or plan.survey.path} could not be written ({error.strerror}): make room or correct the"
            f" mode of {seen.conf_dir}; {told}."
        ) from None
    except SlurmError as error:
        raise SlurmError(f"{str(error).rstrip('.')}; {_back(plan, changes, done, accounts, loading)}.") from None
    except BaseException:
        _back(plan, changes, done, accounts, loading)
        raise
    for step in plan.after:
        problem = accounts.run(step.do)
        if problem:
            raise SlurmError(
                f"The partitions are applied, but sacctmgr {' '.join(step.do[:3])} failed ({problem}): correct that and"
                " run again, the next run goes on there."
            )


def _load(plan: TierPlan) -> str:
    """Have slurmctld read the files and compare; the problem in a clause, empty where all is well."""
    slurm = plan.survey.seen.slurm
    log = Log(plan.survey.seen.config.get("slurmctldlogfile", ""))
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
            problem = f"slurmctld runs other partitions than those it was given ({problem})"
        except SlurmError as error:
            problem = f"slurmctld does not answer after the reconfigure ({str(error).rstrip('.')})"
        if time.monotonic() > deadline:
            return problem
        time.sleep(0.25)


def _back(plan: TierPlan, changes: Files, done: list[Step], accounts: Sacctmgr, loading: bool) -> str:
    """Undo everything, the files first; says in a clause how far that came."""
    wrote = bool(changes.done)
    changes.undo()
    told = "the old partitions are back" if wrote else "no file was changed"
    if loading and wrote:
        told += _reload(plan)
    failed = [step for step in reversed(done) if step.undo and accounts.run(step.undo)]
    if failed:
        # A step that was cut off before it did anything cannot be undone either: look at what is there.
        failed = _still_there(plan, failed, accounts)
    if failed:
        return f"{told}, but slurmdbd keeps {failed[0].told or failed[0].do[2]}: run again when it answers"
    return f"{told}, and so are the records in slurmdbd" if done else told


def _still_there(plan: TierPlan, steps: list[Step], accounts: Sacctmgr) -> list[Step]:
    try:
        now = accounts.records()
    except SlurmError:
        return steps
    before = plan.survey.records
    return [] if before is not None and now == before else steps


def _reload(plan: TierPlan) -> str:
    """slurmctld takes the old files; a reconfigure that was refused has left the old one running, as a rule."""
    slurm = plan.survey.seen.slurm
    names = {record["PartitionName"] for record in plan.survey.partitions}
    deadline = time.monotonic() + max(slurm.timeout, SETTLE)
    restarted = ""
    while True:
        # One that ends itself (restart.py) does so within moments, and would take a new one down with it.
        time.sleep(CALM)
        if not restarted and start_if_exited(slurm.timeout):
            restarted = " in a slurmctld that had exited and was started again"
        with contextlib.suppress(SlurmError):
            slurm.reconfigure()
            if _runs(slurm, names):
                time.sleep(CALM)
                if _runs(slurm, names):
                    return f" and running{restarted}"
        if time.monotonic() > deadline:
            return ", but slurmctld does not run them: look at its log and restart it"


def _runs(slurm: Slurm, names: set[str]) -> bool:
    return {record["PartitionName"] for record in running_partitions(slurm)} == names
