# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan carried out: write, load, read back; on any failure the old files are back and loaded.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Seen on slurmctld 24.11.5 and 26.05.5 and relied upon here:
- ``scontrol reconfigure`` starts a second slurmctld that reads everything anew and takes over only if it comes up; else
  the command ends with 1 and the old one runs on. So a topology that is refused does no harm until the next
  restart, which is why the old file is put back at once.
- The reason ("fatal: ...") stands in slurmctld's log only.
- The same reconfigure changes TopologyPlugin (none to block and back), SelectType and PrologFlags; none needs a
  restart.
- Without the topology.conf that its plugin wants, the new slurmctld waits up to 60 s for it and answers
  nobody meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.comparing import difference
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.planning import Plan, same_named
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import reason
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.surveying import Survey, look_again, read_file
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.transaction import PREVIOUS, Files, sync

# How long a slurmctld that took the reconfigure may need until it shows the new topology, in seconds.
SETTLE = 5.0


def apply(plan: Plan) -> None:
    """Write, load, read back; on any failure the old files are back and loaded. SlurmError says what happened."""
    seen = plan.survey
    if plan.waits_for:
        raise SlurmError(
            f"This controller stands by, and {seen.acting}, which is in charge, runs something else ({plan.waits_for}):"
            f" apply the topology on {seen.acting} first; nothing was changed here."
        )
    changes = Files(seen.conf.path)
    try:
        # The topology first, then the plugin that wants it, then the line that makes the plugin known.
        for path in sorted(plan.writes, key=lambda path: (path != seen.path, path == seen.conf.path)):
            changes.write(path, plan.writes[path])
    except OSError as error:
        changes.undo()
        raise SlurmError(
            f"{error.filename or seen.path} could not be written ({error.strerror}): make room or correct the mode of"
            f" {seen.conf_dir}; nothing was changed."
        ) from None
    if not plan.reconfigure:
        return
    log = Log(seen.config.get("slurmctldlogfile", ""))
    try:
        problem = _load(plan, log)
    except BaseException:
        # Interrupted or unforeseen: the old files first, whatever it was.
        _restore(plan, changes)
        raise
    if problem:
        raise SlurmError(f"{problem}; {_restore(plan, changes)}.")


def _load(plan: Plan, log: Log) -> str:
    """Have slurmctld read the files and compare; the problem in a clause, empty where all is well."""
    seen = plan.survey
    if plan.live is not None:
        result = seen.slurm.place(plan.live.node, plan.live.units)
        if result.rc == 0 and not _settle(plan):
            return ""
        plan.live = None  # told in the result: it took a reconfigure after all
    result = seen.slurm.reconfigure()
    if result.rc != 0 or result.timed_out:
        fatal = log.fatal()
        return (
            f"slurmctld refused the new topology ({fatal})"
            if fatal
            else f"scontrol reconfigure failed ({reason(result)})"
        )
    return _settle(plan)


def _settle(plan: Plan) -> str:
    """Wait until what runs is what was written; the problem in a clause where it is not after SETTLE seconds."""
    deadline = time.monotonic() + SETTLE
    while True:
        try:
            differs = plan.differs(look_again(plan.survey))
            if not differs:
                return ""
            problem = f"slurmctld runs another topology than the one it was given ({differs})"
        except SlurmError as error:
            problem = f"slurmctld does not answer after the reconfigure ({str(error).rstrip('.')})"
        if time.monotonic() > deadline:
            return problem
        time.sleep(0.25)


def _restore(plan: Plan, changes: Files) -> str:
    """Put the old files back and have them loaded; says in a clause how far that came."""
    seen = plan.survey
    name = os.path.basename(seen.path)
    if changes.done:
        changes.undo()
        told = f"the old {name} is back" if seen.file is not None else f"the new {name} is removed again"
    else:
        told = _restore_previous(seen, plan)
    deadline = time.monotonic() + max(seen.slurm.timeout, SETTLE)
    while True:
        # A slurmctld that still waits for a file answers nobody; it takes the old one when it comes back.
        with contextlib.suppress(SlurmError):
            # Where the reconfigure fails for another reason, the slurmctld of before may still be the one that runs.
            seen.slurm.reconfigure()
            after = look_again(seen)
            if (after.running, after.shown) == (seen.running, seen.shown) or _runs_its_file(after):
                return f"{told} and running"
        if time.monotonic() > deadline:
            return f"{told}, but slurmctld does not run it: look at its log and restart it"
        time.sleep(0.5)


def _runs_its_file(seen: Survey) -> bool:
    """Whether the first block topology of the file that is there is what runs."""
    data = read_file(seen.path)
    if data is None:
        return False
    written = files.parse(data.decode("utf-8", "replace"), seen.style)
    topology = next((known for known in written if known.kind == "block"), None)
    return topology is not None and not difference(topology, seen)


def _restore_previous(seen: Survey, plan: Plan) -> str:
    """Nothing was written in this run, yet the file is refused: an earlier run was cut off before its check.

    The file before it comes back if it is what runs.
    """
    name = os.path.basename(seen.path)
    data = read_file(seen.path + PREVIOUS)
    if data is not None:
        try:
            old = files.parse(data.decode("utf-8", "replace"), seen.style)
        except SlurmError:
            old = []
        topology = same_named(old, plan.topology.name)
        if topology is not None and not difference(topology, seen):
            os.replace(seen.path + PREVIOUS, seen.path)
            sync(seen.conf_dir)
            return f"the old {name} is back"
    return f"{name} stays as it was found"


class Log:
    """What slurmctld adds to its log from now on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.start = self._size()

    def _size(self) -> int:
        try:
            return os.path.getsize(self.path) if self.path else 0
        except OSError:
            return 0

    def fatal(self) -> str:
        """The last fatal line, without its time; empty where there is none or no log file."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.start if self._size() >= self.start else 0)
                text = file.read(1 << 20).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""
        lines = [line.partition("fatal: ")[2] for line in text.splitlines() if "fatal: " in line]
        # 24.11 may end itself after a reconfigure that failed (restart.py); the reason is what it said before that.
        lines = [line for line in lines if not line.startswith("assoc_mgr_lock: ")] or lines
        return lines[-1].strip()[:300] if lines else ""
