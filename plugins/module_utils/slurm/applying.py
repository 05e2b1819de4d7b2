# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply a plan: write, load, read back; on any failure the old files are restored and loaded.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Observed on slurmctld 24.11.5 and 26.05.5:
- ``scontrol reconfigure`` starts a second slurmctld that reads everything and takes over only if it comes up; else the
  command exits with 1 and the old one continues. So a refused topology has no effect until the next
  restart, which is why the old file is restored at once.
- The reason ("fatal: ...") is only in slurmctld's log.
- The same reconfigure changes TopologyPlugin (none to block and back), SelectType and PrologFlags; none needs a
  restart.
- Without the topology.conf that its plugin needs, the new slurmctld waits up to 60 s for it and answers no
  request meanwhile.
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
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.surveying import Survey, read_file, refresh
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.transaction import PREVIOUS, Files, sync

# Seconds after a successful reconfigure until slurmctld must show the new topology.
SETTLE = 5.0


def apply(plan: Plan) -> None:
    """Write, load, read back. On any failure the old files are restored and loaded; SlurmError has the reason."""
    observed = plan.survey
    if plan.waits_for:
        raise SlurmError(
            f"This host is a standby, and the active controller {observed.acting} runs another topology"
            f" ({plan.waits_for}): apply the topology on {observed.acting} first; nothing was changed here."
        )
    changes = Files(observed.conf.path)
    try:
        # The topology first, then the plugin that needs it, then the Include line that sets the plugin.
        for path in sorted(plan.writes, key=lambda path: (path != observed.path, path == observed.conf.path)):
            changes.write(path, plan.writes[path])
    except OSError as error:
        changes.undo()
        raise SlurmError(
            f"{error.filename or observed.path} could not be written ({error.strerror}): free disk space or correct the"
            f" mode of {observed.conf_dir}; nothing was changed."
        ) from None
    if not plan.reconfigure:
        return
    log = Log(observed.config.get("slurmctldlogfile", ""))
    try:
        problem = _load(plan, log)
    except BaseException:
        # Interrupted or unforeseen: restore the old files in any case.
        _restore(plan, changes)
        raise
    if problem:
        raise SlurmError(f"{problem}; {_restore(plan, changes)}.")


def _load(plan: Plan, log: Log) -> str:
    """Have slurmctld read the files and compare; the problem in a clause, empty if there is none."""
    observed = plan.survey
    if plan.live is not None:
        result = observed.slurm.place(plan.live.node, plan.live.units)
        if result.rc == 0 and not _settle(plan):
            return ""
        plan.live = None  # the result then has reconfigured: true
    result = observed.slurm.reconfigure()
    if result.rc != 0 or result.timed_out:
        fatal = log.fatal()
        return (
            f"slurmctld refused the new topology ({fatal})"
            if fatal
            else f"scontrol reconfigure failed ({reason(result)})"
        )
    return _settle(plan)


def _settle(plan: Plan) -> str:
    """Wait until slurmctld runs what was written; the problem in a clause if it does not after SETTLE seconds."""
    deadline = time.monotonic() + SETTLE
    while True:
        try:
            differs = plan.differs(refresh(plan.survey))
            if not differs:
                return ""
            problem = f"slurmctld runs another topology than the written one ({differs})"
        except SlurmError as error:
            problem = f"slurmctld does not answer after the reconfigure ({str(error).rstrip('.')})"
        if time.monotonic() > deadline:
            return problem
        time.sleep(0.25)


def _restore(plan: Plan, changes: Files) -> str:
    """Restore the old files and have slurmctld load them; the result in a clause."""
    observed = plan.survey
    name = os.path.basename(observed.path)
    if changes.done:
        changes.undo()
        text = f"the old {name} is restored" if observed.file is not None else f"the new {name} is removed"
    else:
        text = _restore_previous(observed, plan)
    deadline = time.monotonic() + max(observed.slurm.timeout, SETTLE)
    while True:
        # A slurmctld that still waits for a file answers no request; it loads the old one once restored.
        with contextlib.suppress(SlurmError):
            # Where the reconfigure fails for another reason, the previous slurmctld may still run.
            observed.slurm.reconfigure()
            after = refresh(observed)
            if (after.running, after.shown) == (observed.running, observed.shown) or _runs_its_file(after):
                return f"{text}, and slurmctld runs the previous topology"
        if time.monotonic() > deadline:
            return f"{text}, but slurmctld does not run it: read its log and restart it"
        time.sleep(0.5)


def _runs_its_file(observed: Survey) -> bool:
    """Whether slurmctld runs the first block topology of the existing file."""
    data = read_file(observed.path)
    if data is None:
        return False
    written = files.parse(data.decode("utf-8", "replace"), observed.style)
    topology = next((known for known in written if known.kind == "block"), None)
    return topology is not None and not difference(topology, observed)


def _restore_previous(observed: Survey, plan: Plan) -> str:
    """Restore ``.previous`` if slurmctld runs it, for a file that an interrupted earlier run has left unchecked."""
    name = os.path.basename(observed.path)
    data = read_file(observed.path + PREVIOUS)
    if data is not None:
        try:
            old = files.parse(data.decode("utf-8", "replace"), observed.style)
        except SlurmError:
            old = []
        topology = same_named(old, plan.topology.name)
        if topology is not None and not difference(topology, observed):
            os.replace(observed.path + PREVIOUS, observed.path)
            sync(observed.conf_dir)
            return f"the old {name} is restored"
    return f"{name} is unchanged"


class Log:
    """The part of slurmctld's log that is written from now on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.start = self._size()

    def _size(self) -> int:
        try:
            return os.path.getsize(self.path) if self.path else 0
        except OSError:
            return 0

    def fatal(self) -> str:
        """The last fatal line without its time; empty where there is none, or no log file."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.start if self._size() >= self.start else 0)
                text = file.read(1 << 20).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""
        lines = [line.partition("fatal: ")[2] for line in text.splitlines() if "fatal: " in line]
        # 24.11 may exit after a failed reconfigure (restart.py); the reason is the line before that.
        lines = [line for line in lines if not line.startswith("assoc_mgr_lock: ")] or lines
        return lines[-1].strip()[:300] if lines else ""
