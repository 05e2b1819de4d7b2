# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change files and units of a tray and run programs there; check mode records the changes only."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import disk, files, packages

SECONDS = 30.0
INSTALL_SECONDS = 600.0
# systemd kills a daemon that ignores SIGTERM after 90 s.
STOP_SECONDS = 120.0


class TrayError(files.ImexError):
    """The tray could not be brought to the desired state; the message names the step that failed."""


@dataclass
class HostChanges:
    """The changes of one run. ``done``: their descriptions. ``before``, ``after``: path -> text, for --diff."""

    check: bool = False
    done: list[str] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)

    def add(self, change: str) -> None:
        self.done.append(change)

    def write(self, path: str, text: str | None, mode: int, secret: bool = False, quiet: bool = False) -> None:
        """Write a file, or remove it where ``text`` is None.

        A ``secret`` is recorded without its text, a ``quiet`` change not at all.
        """
        old = disk.read_text(path)
        if text is None:
            if not os.path.lexists(path):
                return
            self._add_file(path, "" if secret else old, None)
            if not self.check:
                os.unlink(path)
            return
        if old == text and stat.S_IMODE(os.stat(path).st_mode) == mode:
            return
        if not quiet:
            self._add_file(path, "(a secret)\n" if secret and old else old, "(another secret)\n" if secret else text)
        if not self.check:
            disk.write_text(path, text, mode, 0o700 if secret else 0o755)

    def _add_file(self, path: str, before: str | None, after: str | None) -> None:
        self.add(f"remove {path}" if after is None else f"write {path}" if before is None else f"change {path}")
        self.before[path], self.after[path] = before or "", after or ""

    def systemctl(self, *arguments: str, seconds: float = SECONDS, may_fail: bool = False) -> None:
        done = child.run(["systemctl", *arguments], seconds)
        if done.rc != 0 and not may_fail:
            reason = done.stderr.strip().partition("\n")[0] or ("timed out" if done.timed_out else "no output")
            raise TrayError(f"systemctl {' '.join(arguments)} failed ({reason}); see the journal of this tray.")

    def run_checked(self, command: Sequence[str], seconds: float, what: str) -> None:
        """Run a command that changes the tray; TrayError with ``what`` as its message where it fails."""
        done = run_large(command, seconds)
        if done.rc != 0:
            reason = (done.error or done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2][:300]
            raise TrayError(f"{what} ({reason or 'timed out'}); run {command[0]} by hand on this tray.")


def run_large(command: Sequence[str], seconds: float = INSTALL_SECONDS) -> child.Result:
    """Run a command that may write large files: packages, package lists, an initramfs."""
    return child.run(command, seconds, env={**os.environ, **packages.APT_ENVIRONMENT}, large_files=True)
