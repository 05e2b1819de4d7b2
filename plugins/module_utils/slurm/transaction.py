# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change what slurmctld runs in one transaction: write, load, read back; a failure restores and loads the old files.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Topology, tiers, slurm.conf, a backup's files and the removal of all of them are each one ``Transaction``.

Observed on slurmctld 24.11.5 and 26.05.5:
- No option only checks a configuration. ``scontrol reconfigure`` starts a second slurmctld that reads everything and
  takes over only if it comes up; else the command exits with 1 and the old one continues. So a reconfigure is the
  check. A refused file has no effect until the next restart, which is why the old one is restored at once.
- The reason ("fatal: ...") is only in slurmctld's log.
- The same reconfigure changes TopologyPlugin (none to block and back), SelectType and PrologFlags; none needs a
  restart.
- Without the topology.conf that its plugin needs, the new slurmctld waits up to 60 s for it and answers no request
  meanwhile. It continues once the old file is restored.
- scontrol gives up after MessageTimeout, also where the reconfigure then succeeds.

Observed on slurmctld 24.11.5 alone:
- With slurmdbd, after "Resuming operation, reconfigure failed" the old process may exit ("fatal: assoc_mgr_lock:
  pthread_rwlock_rdlock(): Resource deadlock avoided"). Nothing else would start it.
- It may hang for ever after "Attempting to reconfigure". Nothing answers, and systemd takes it for active. Slurm's
  CHANGELOG for 24.11.6 has it: "Fix a race condition that can cause slurmctld to hang forever when trying to shutdown
  or reconfigure". It says nothing about the new files, so a restart loads them.
Jobs are not affected by either, nor by a restart.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import LogCursor
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import live
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import (
    PREVIOUS,
    Checksums,
    Files,
    require_unchanged,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm, polls
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

UNIT = "slurmctld.service"
# Seconds after a reconfigure until slurmctld must run what was written.
RUNNING_SECONDS = 5.0
# Seconds in which a slurmctld that refused a reconfigure may still exit.
CALM = 1.0
# Seconds for a restart: systemd kills a hung daemon after TimeoutStopSec, 90 s where the unit has no other.
RESTART_SECONDS = 150.0
RESTARTED = (
    "slurmctld did not answer after scontrol reconfigure and was restarted with the new files; jobs continue. Slurm"
    " before 24.11.6 may hang at a reconfigure: upgrade it."
)


@dataclass
class Transaction:
    """One change of what slurmctld runs; a use gives only what differs. The caller holds the lock of the folder.

    files: path -> the new bytes, None to remove the file, in the order of writing.
    what: what slurmctld refuses, in messages, such as "the new topology".
    problem: reads back what runs; why it is not the new state in a clause, empty if it is. SlurmError: no answer.
    restored: reads back whether slurmctld runs what it ran before. SlurmError: no answer.
    load: has slurmctld read the files and returns why it did not, in a clause; None where nothing is to be loaded.
    known: checksums of the folder at the time of planning; a file that has changed since is not overwritten.
    log: SlurmctldLogFile. like: the file whose owner and mode new files get, slurm.conf if empty.
    seconds: how long slurmctld may take until it runs what was written.
    ran: whether slurmctld ran before. restart: whether the old files take a restart, not a reconfigure.
    override: the option, with its variable, that permits to undo live changes of operators; empty where the site does,
    or where none can be lost. own: partitions whose settings these files have. reloads: whether ``load`` has slurmctld
    read all its files in any case; one that does it later calls ``require_no_loss()`` first.
    unhindered: SlurmError where something has begun since the plan that forbids the change; asked last.
    keep: PREVIOUS or REMOVED. cut_off: files that an earlier run has replaced and not loaded, restored like those here.
    """

    slurm: Slurm
    conf_dir: str
    files: Mapping[str, bytes | None]
    what: str
    problem: Callable[[], str]
    restored: Callable[[], bool]
    load: Callable[[Transaction], str] | None
    known: Checksums | None = None
    log: str = ""
    like: str = ""
    seconds: float = field(default_factory=lambda: RUNNING_SECONDS)
    ran: bool = True
    restart: bool = False
    override: str = ""
    own: Collection[str] = ()
    reloads: bool = True
    unhindered: Callable[[], None] = lambda: None
    keep: str = PREVIOUS
    cut_off: tuple[str, ...] = ()
    _restarted: bool = field(default=False, init=False)

    def apply(self) -> bool:
        """Apply all or nothing; SlurmError has in one sentence what failed and what was restored.

        Returns whether slurmctld did not answer the reconfigure and was restarted (RESTARTED).
        """
        if self.known is not None:
            for path in self.files:
                require_unchanged(path, self.known)
        files = Files(self.like or os.path.join(self.conf_dir, "slurm.conf"), self.keep, self.known)
        loading = False
        try:
            # An operator may have changed something since the plan, during a rehearsal of minutes.
            if self.load is not None and self.reloads:
                self.require_no_loss()
            # After that, which may take minutes, too.
            self.unhindered()
            for path, data in self.files.items():
                files.put(path, data)
            if self.load is not None:
                loading = True
                files.adopt(self.cut_off)
                problem = self.load(self) or self.wait_until_running()
                if problem:
                    raise SlurmError(problem)
        except OSError as error:
            restored = self._restore(files, loading)
            raise SlurmError(
                f"{error.filename or self.conf_dir} could not be written ({error.strerror}): free disk space or correct"
                f" the mode of {self.conf_dir}; {restored}."
            ) from None
        except NvlinkError as error:
            # After require_no_loss() no reconfigure.
            restored = self._restore(files, loading and not isinstance(error, live.LiveChanges))
            raise SlurmError(f"{str(error).rstrip('.')}; {restored}.") from None
        except BaseException:
            # Interrupted or unforeseen: restore the old files in any case.
            self._restore(files, loading)
            raise
        files.commit()
        return self._restarted

    def require_no_loss(self) -> None:
        """LiveChanges where a reconfigure would undo what operators changed, and the site does not permit it."""
        if self.override and self.ran:
            live.require_none(self.slurm, self.conf_dir, self.files, self.override, self.own)

    def reconfigure(self) -> str:
        """Have slurmctld read its files; why it did not, in a clause."""
        cursor = LogCursor(self.log)
        result = self.slurm.reconfigure()
        if result.rc == 0 and not result.timed_out:
            return ""
        gave_up = result.timed_out or "timed out" in result.stderr
        answers = self._wait() if gave_up else self.slurm.answers()
        fatal = last_fatal(cursor.text())
        if fatal:
            return f"slurmctld refused {self.what} ({fatal})"
        if not answers:
            # One that hangs or has ended for another reason than the files does not come back by itself.
            if not restart(self.slurm.timeout) or not self._wait():
                return f"slurmctld does not answer since scontrol reconfigure ({result.reason})"
            self._restarted = True
        # Where scontrol gave up, or slurmctld was restarted, what now runs decides.
        return "" if gave_up or not answers else f"scontrol reconfigure failed ({result.reason})"

    def wait_until_running(self) -> str:
        """Wait until slurmctld runs what was written; the problem in a clause if it does not in time."""
        problem = ""
        for _poll in polls(self.seconds):
            try:
                problem = self.problem()
            except SlurmError as error:
                problem = f"slurmctld does not answer after the change ({str(error).rstrip('.')})"
            if not problem:
                break
        return problem

    def _wait(self) -> bool:
        """Wait until slurmctld answers; whether it does."""
        return any(self.slurm.answers() for _poll in polls(self.slurm.timeout))

    def _restore(self, files: Files, loading: bool) -> str:
        """Restore the old files and have slurmctld run them; the result in a clause."""
        text = "the old files were restored" if files.undo() else "nothing was changed"
        if files.foreign:
            text += f", but {summarize(files.foreign)}, which another program has changed meanwhile, stays"
        if not loading or not self.ran:
            return text
        timeout = self.slurm.timeout
        revived = "was restarted" if self.restart and restart(timeout) else ""
        deadline = time.monotonic() + max(timeout, RUNNING_SECONDS)
        while True:
            # A slurmctld that exits by itself does so within moments; one started before that would fail.
            time.sleep(CALM)
            answers = self.slurm.answers()
            with contextlib.suppress(SlurmError):
                if answers:
                    # Where the reconfigure fails for another reason, the previous slurmctld may still run.
                    self.slurm.reconfigure()
                    if self.restored():
                        time.sleep(CALM)
                        if self.restored():
                            how = f", which {revived}," if revived else ""
                            return f"{text}, and slurmctld{how} runs as before"
            if not answers and not revived and start_if_exited(timeout):
                revived = "had exited and was started again"
            if time.monotonic() > deadline:
                if answers:
                    return f"{text}, but slurmctld does not run as before: read its log and restart it"
                if revived or not restart(timeout):
                    return (
                        f"{text}, but slurmctld does not answer and {UNIT} does not restart it: read its log, end the"
                        " process if it hangs, and start it"
                    )
                revived = "no longer answered and was restarted"
                deadline = time.monotonic() + max(timeout, RUNNING_SECONDS)


# -------------------------------------------------------------------------------------------------------- the unit


def _unit_state(timeout: float) -> str:
    """ActiveState of slurmctld's unit; empty where systemd does not have it."""
    shown = child.run(["systemctl", "show", "--property=LoadState,ActiveState", UNIT], timeout)
    words = dict(line.partition("=")[::2] for line in shown.stdout.splitlines())
    return words.get("ActiveState", "") if shown.rc == 0 and words.get("LoadState") == "loaded" else ""


def start_if_exited(timeout: float) -> bool:
    """Start slurmctld's unit if systemd has it and it is not active; whether it was started."""
    if _unit_state(timeout) not in ("failed", "inactive"):
        return False
    child.run(["systemctl", "reset-failed", UNIT], timeout, acts=True)
    return child.run(["systemctl", "start", UNIT], timeout, acts=True).rc == 0


def restart(timeout: float) -> bool:
    """Restart slurmctld's unit, also where the daemon hangs; False where systemd does not have it or it fails."""
    if not _unit_state(timeout):
        return False
    child.run(["systemctl", "reset-failed", UNIT], timeout, acts=True)
    result = child.run(["systemctl", "restart", UNIT], RESTART_SECONDS, acts=True)
    if result.timed_out:
        # A unit without a TimeoutStopSec. The job of the restart continues once its daemon has ended.
        child.run(["systemctl", "kill", "--signal=SIGKILL", UNIT], timeout, acts=True)
        result = child.run(["systemctl", "restart", UNIT], RESTART_SECONDS, acts=True)
    return result.rc == 0


def last_fatal(log: str) -> str:
    """The last fatal message in lines of slurmctld's log; empty where there is none."""
    lines = [line.partition("fatal: ")[2] for line in log.splitlines() if "fatal: " in line]
    # 24.11 may exit after a failed reconfigure; the reason is the line before that.
    lines = [line for line in lines if not line.startswith("assoc_mgr_lock: ")] or lines
    return lines[-1].strip()[:300] if lines else ""
