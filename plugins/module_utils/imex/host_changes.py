# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change of a tray is made of: files, units, commands of other programs. In check mode all is only noted."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import disk, files, packages

SECONDS = 30.0
INSTALL_SECONDS = 600.0
# systemd ends a daemon that is deaf to SIGTERM after 90 s.
STOP_SECONDS = 120.0


class TrayError(files.ImexError):
    """The tray could not be brought to what is wanted; the sentence says where it stopped."""


@dataclass
class HostChanges:
    """``done``: what was done, or would be, a line each. ``before`` and ``after``: path -> text, for --diff."""

    check: bool = False
    done: list[str] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)

    def tell(self, words: str) -> None:
        self.done.append(words)

    def write(self, path: str, text: str | None, mode: int, secret: bool = False, quiet: bool = False) -> None:
        """Bring one file to its text and mode, or away. A secret is noted without its text, ``quiet`` not at all."""
        old = disk.read_text(path)
        if text is None:
            if not os.path.lexists(path):
                return
            self._note(path, "" if secret else old, None)
            if not self.check:
                os.unlink(path)
            return
        if old == text and stat.S_IMODE(os.stat(path).st_mode) == mode:
            return
        if not quiet:
            self._note(path, "(a secret)\n" if secret and old else old, "(another secret)\n" if secret else text)
        if not self.check:
            disk.write_text(path, text, mode, 0o700 if secret else 0o755)

    def _note(self, path: str, before: str | None, after: str | None) -> None:
        self.tell(f"remove {path}" if after is None else f"write {path}" if before is None else f"change {path}")
        self.before[path], self.after[path] = before or "", after or ""

    def systemctl(self, *words: str, seconds: float = SECONDS, may_fail: bool = False) -> None:
        done = child.run(["systemctl", *words], seconds)
        if done.rc != 0 and not may_fail:
            said = done.stderr.strip().partition("\n")[0] or ("no end in time" if done.timed_out else "no reason")
            raise TrayError(f"systemctl {' '.join(words)} failed ({said}); see the journal of this tray.")

    def must(self, command: Sequence[str], seconds: float, what: str) -> None:
        """Run a command that changes the tray, whose failure ends the change with ``what`` as the sentence."""
        done = unpack(command, seconds)
        if done.rc != 0:
            said = (done.error or done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2][:300]
            raise TrayError(f"{what} ({said or 'no end in time'}); run {' '.join(command[:1])} by hand on this tray.")


def unpack(command: Sequence[str], seconds: float = INSTALL_SECONDS) -> child.Result:
    """Run what may write large files: packages, their lists and apt's cache of them, an initramfs."""
    return child.run(command, seconds, env={**os.environ, **packages.APT_ENVIRONMENT}, large_files=True)
