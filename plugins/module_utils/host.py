# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change a host: files with owner and mode, folders, systemd units, commands.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Every change goes through a Host, which records it and, in check mode, only records it.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pwd
import stat
import time
from typing import TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils import actions, atomic, child
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count

# A longer program is one line of a diff.
_MAX_PROGRAM_LINES = 60
_SECRET = "(a secret)\n"
_OTHER_SECRET = "(another secret)\n"


class HostError(NvlinkError):
    """The host could not be changed as desired; the message names the step that failed."""


class FileState(TypedDict):
    """sha256: None where it is no regular file, or cannot be read."""

    sha256: str | None
    mode: int
    uid: int
    gid: int


class Host:
    """A host to change. timeout: seconds for one call of a program.

    ``changes``: descriptions, without secrets. ``before``, ``after``: path -> text of its files, for --diff.
    """

    def __init__(self, check: bool, timeout: float = 120.0) -> None:
        if timeout <= 0:
            raise HostError(f"timeout is {timeout:g}: use a number of seconds above 0.")
        self.check = check
        self.timeout = timeout
        self.changes: list[str] = []
        self.before: dict[str, str] = {}
        self.after: dict[str, str] = {}

    # ------------------------------------------------------------------------------------------------------ commands

    def call(
        self, *argv: str, timeout: float | None = None, large_files: bool = False, acts: bool = False
    ) -> child.Result:
        """Run a program, also in check mode. large_files: it may write large files, as a package manager does.

        acts: it changes something, see child.run().
        """
        environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        return child.run(argv, timeout or self.timeout, environment, large_files, acts=acts)

    def require(self, *argv: str, timeout: float | None = None, large_files: bool = False) -> child.Result:
        """Run a program that changes something and must succeed, also in check mode; HostError where it fails."""
        done = self.call(*argv, timeout=timeout, large_files=large_files, acts=True)
        if done.rc != 0:
            raise HostError(f"{' '.join(argv)} failed ({done.reason.rstrip('.')}): run it by hand on this host.")
        return done

    def change(self, description: str, *argv: str, timeout: float | None = None, large_files: bool = False) -> bool:
        """Make a change by a program that must succeed, and record it; False in check mode, which only records it."""
        if argv and not self.check:
            self.require(*argv, timeout=timeout, large_files=large_files)
        self.changes.append(description)
        return not self.check

    # --------------------------------------------------------------------------------------------------------- files

    def file(
        self,
        path: str,
        data: bytes | None,
        owner: str = "root",
        mode: int = 0o644,
        secret: bool = False,
        quiet: bool = False,
    ) -> bool:
        """Write a file with this owner and mode, or remove it where data is None; whether its content changed.

        owner: ``user`` or ``user:group``. No message contains the content, and no diff that of a secret. quiet: the
        change is not recorded.
        """
        had = self.state(path)
        known = had["sha256"] if had else None
        changed = had is not None if data is None else known != hashlib.sha256(data).hexdigest()
        if not changed and (data is None or self._has(had, owner, mode)):
            return False
        before = self.content(path)
        if not self.check:
            if data is None:
                _remove(path)
            else:
                write(path, data, owner, mode, 0o700 if secret else 0o755)
        if not changed:
            self.changes.append(f"set owner {owner} and mode {mode:04o} of {path}")
        elif not quiet:
            verb = "remove" if data is None else "write" if known is None else "change"
            self.changes.append(f"{verb} {path}")
            shown = ["" if text is None else text.decode("utf-8", "replace") for text in (before, data)]
            if secret:
                shown = [text and mask for text, mask in zip(shown, (_SECRET, _OTHER_SECRET))]
            # The first text before a change and the last one after it.
            self.before.setdefault(path, shown[0])
            self.after[path] = shown[1]
        return changed

    def state(self, path: str) -> FileState | None:
        """What file() compares; None where there is nothing."""
        if not os.path.lexists(path):
            return None
        status, data = os.stat(path, follow_symlinks=os.path.exists(path)), atomic.read_regular(path)
        sha256 = None if data is None else hashlib.sha256(data).hexdigest()
        return {"sha256": sha256, "mode": stat.S_IMODE(status.st_mode), "uid": status.st_uid, "gid": status.st_gid}

    def content(self, path: str) -> bytes | None:
        """What --diff shows as the text before; None where it is no regular file."""
        return atomic.read_regular(path)

    def _has(self, found: FileState | None, owner: str, mode: int) -> bool:
        """Whether this owner and mode were found; an owner that does not exist yet, in check mode, counts as right."""
        known = not self.check or owner_exists(owner)
        return found is not None and found["mode"] == mode and (not known or (found["uid"], found["gid"]) == ids(owner))

    def folder(self, path: str, owner: str, mode: int) -> None:
        """Make a folder with this owner and mode."""
        if os.path.isdir(path):
            if self._has(self.state(path), owner, mode):
                return
            change = f"set owner {owner} and mode {mode:04o} of {path}"
        else:
            change = f"make {path}"
        if not self.check:
            uid_and_gid = ids(owner)
            try:
                atomic.make_folders(path, mode)
                os.chown(path, *uid_and_gid)
                os.chmod(path, mode)
            except OSError as error:
                raise _cannot(path, "be made", error) from None
            actions.record(change)
        self.changes.append(change)

    def diff(self) -> list[dict[str, str]]:
        """The changed files as a module returns them in ``diff``; a program is one line."""
        return [_difference(path, self.before[path], self.after[path]) for path in sorted(self.before)]

    # --------------------------------------------------------------------------------------------------------- units

    def is_active(self, unit: str) -> bool:
        return self.call("systemctl", "is-active", "--quiet", unit).rc == 0

    def enable(self, unit: str) -> None:
        if self.call("systemctl", "is-enabled", "--quiet", unit).rc != 0:
            self.change(f"enable {unit}", "systemctl", "enable", "--quiet", unit)

    def run(self, unit: str, restart: bool = False, log: str = "") -> bool:
        """Enable and start a unit; ``restart`` restarts one that runs. Returns whether it was started or restarted."""
        self.enable(unit)
        active = self.is_active(unit)
        if active and not restart:
            return False
        verb = "restart" if active else "start"
        if not self.change(f"{verb} {unit}"):
            return True
        # A unit that failed too often does not start until its counter is reset.
        self.call("systemctl", "reset-failed", unit, acts=True)
        cursor = LogCursor(log)
        result = self.call("systemctl", verb, unit, acts=True)
        if result.rc != 0 or not self.is_active(unit):
            error = self.last_error(unit, cursor, result.reason)
            raise HostError(f"{unit} does not start ({error}): correct that first.")
        return True

    def last_error(self, unit: str, cursor: LogCursor, otherwise: str) -> str:
        """The last error that a daemon has written to its log or to the journal since the cursor."""
        text = cursor.text()
        if not _errors(text):
            lines = ("--lines=200", "--no-pager", "--output=cat", f"--since=@{cursor.time}")
            text = self.call("journalctl", "--unit", unit, *lines).stdout
        return (_errors(text) or [otherwise])[-1][:300].rstrip(".")


class LogCursor:
    """The present end of a daemon's log and of the journal; ``text`` is what was logged after it."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.time = int(time.time())
        self.size = os.path.getsize(log) if log and os.path.exists(log) else 0

    def text(self) -> str:
        with contextlib.suppress(OSError), open(self.log, "rb") as file:
            # From the beginning where logrotate has put a new file there.
            file.seek(self.size if os.path.getsize(self.log) >= self.size else 0)
            return file.read(1 << 20).decode("utf-8", "replace")
        return ""


def _errors(text: str) -> list[str]:
    """The messages of the highest severity in a log of Slurm."""
    for word in ("fatal: ", "error: "):
        messages = [line.partition(word)[2].strip() for line in text.splitlines() if word in line]
        if messages:
            return messages
    return []


def owner_exists(owner: str) -> bool:
    try:
        ids(owner)
    except HostError:
        return False
    return True


def ids(owner: str) -> tuple[int, int]:
    """uid and gid of ``user`` or ``user:group``; the group is the user's own where none is given."""
    user, _colon, group = owner.partition(":")
    try:
        entry = pwd.getpwnam(user)
        return entry.pw_uid, grp.getgrnam(group).gr_gid if group else entry.pw_gid
    except KeyError:
        raise HostError(
            f"There is no user or group {owner} on this host: install the package that creates it."
        ) from None


def read(path: str) -> bytes | None:
    """A file's bytes; None where there is none. HostError where it cannot be read."""
    try:
        return atomic.read(path)
    except OSError as error:
        raise HostError(f"{path} cannot be read ({error.strerror}): correct its mode, or run as root.") from None


def write(path: str, data: bytes, owner: str, mode: int, folder_mode: int = 0o755) -> None:
    """Replace a file atomically; it is never visible incomplete or with another owner or mode. HostError."""
    uid_and_gid = ids(owner)
    try:
        atomic.make_folders(os.path.dirname(path), folder_mode)
        # A link is replaced: in a folder of another user it could name any file.
        atomic.write(path, data, mode, uid_and_gid, follow=False)
    except OSError as error:
        raise _cannot(path, "be written", error) from None


def _remove(path: str) -> None:
    try:
        atomic.remove(path)
    except OSError as error:
        raise _cannot(path, "be removed", error) from None


def _difference(path: str, before: str, after: str) -> dict[str, str]:
    """A changed file for a person to read: hundreds of lines of a program say less than their number."""
    lines = len((after or before).splitlines())
    if lines <= _MAX_PROGRAM_LINES or not (after or before).startswith("#!"):
        return {"before_header": path, "after_header": path, "before": before, "after": after}
    word = "removed" if not after else "changed" if before else "new"
    return {"prepared": f"{path}: {word}, a program of {count(lines, 'line')}\n"}


def _cannot(path: str, what: str, error: OSError) -> HostError:
    return HostError(f"{path} cannot {what} ({error.strerror}): make room, or correct the mode of its folder.")
