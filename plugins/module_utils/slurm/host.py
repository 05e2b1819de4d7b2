# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes of a host: packages, files with owner and mode, systemd units.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Every change goes through a Host, which records it and, in check mode, only records it.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, child
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import reason

# For all calls of the package manager together: enough for a few hundred megabytes from a slow mirror.
INSTALL_SECONDS = 1800.0


class Host:
    """A host to change. ``changes``: clauses, without secrets. timeout: seconds for one call of a tool."""

    def __init__(self, check: bool, timeout: float = 120.0) -> None:
        if timeout <= 0:
            raise SlurmError(f"timeout is {timeout}: use a number of seconds above 0.")
        self.check = check
        self.timeout = timeout
        self.changes: list[str] = []
        self._installs_until: float | None = None

    def call(
        self, *argv: str, input: str | None = None, timeout: float | None = None, large_files: bool = False
    ) -> child.Result:
        environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        return child.run(argv, timeout or self.timeout, input, environment, large_files)

    # ------------------------------------------------------------------------------------------------------ packages

    def install(self, names: Sequence[str], masked: Sequence[str] = ()) -> None:
        """Install the missing packages. The ``masked`` units cannot start meanwhile.

        Debian starts a daemon as soon as it is unpacked; slurmd without its configuration blocks dpkg for the 90
        seconds of its start timeout.
        """
        missing = self.missing(names)
        if not missing:
            return
        self.changes.append(f"packages installed: {', '.join(missing)}")
        if self.check:
            return
        with self._masked(masked):
            if shutil.which("apt-get"):
                self._apt(missing)
            else:
                self._dnf(missing)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of the packages that are not installed."""
        if shutil.which("dpkg-query"):
            result = self.call("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n", *names)
            present = {
                words[0]
                for words in (line.split() for line in result.stdout.splitlines())
                if len(words) == 2 and words[1] == "installed"
            }
            return [name for name in names if name not in present]
        if shutil.which("rpm"):
            return [name for name in names if self.call("rpm", "--query", "--whatprovides", name).rc != 0]
        raise SlurmError(
            "This host has neither dpkg nor rpm: install Slurm manually and use the role slurm_topology alone."
        )

    def _apt(self, names: Sequence[str]) -> None:
        lock = ["-o", "DPkg::Lock::Timeout=300"]
        # dpkg must not prompt for a file that the site has changed (slurmd's options).
        keep = ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
        command = ["apt-get", "--yes", "--quiet", "--no-install-recommends", *lock, *keep, "install", *names]
        error = self._run_package_manager(command)
        if error:
            # The package lists may be missing or old; a failure to refresh them shows in the second attempt.
            self._run_package_manager(["apt-get", "--quiet", *lock, "update"])
            error = self._run_package_manager(command)
        if error:
            raise SlurmError(
                f"apt-get could not install {', '.join(names)} ({error}): add a package source that has them."
            )

    def _dnf(self, names: Sequence[str]) -> None:
        program = shutil.which("dnf") or shutil.which("yum")
        if not program:
            raise SlurmError("This host has neither apt-get nor dnf: install Slurm manually.")
        error = self._run_package_manager([program, "--assumeyes", "--quiet", "install", *names])
        if error:
            raise SlurmError(f"dnf could not install {', '.join(names)} ({error}): enable a repository that has them.")

    def _run_package_manager(self, command: Sequence[str]) -> str:
        """Run a package manager; its error, empty on success."""
        now = time.monotonic()
        until = self._installs_until = self._installs_until or now + INSTALL_SECONDS
        result = self.call(*command, timeout=max(until - now, 1.0), large_files=True)
        if result.rc == 0:
            return ""
        text = f"{result.stdout}\n{result.stderr}"
        errors = [line.strip() for line in text.splitlines() if line.startswith(("E: ", "dpkg: error", "Error"))]
        return errors[0][:300] if errors else reason(result).rstrip(".")

    @contextlib.contextmanager
    def _masked(self, units: Sequence[str]) -> Iterator[None]:
        """Mask the inactive units inside the block, in /run: after a crash the mask is gone at the next boot."""
        masked = [unit for unit in units if not self.is_active(unit)]
        if masked:
            self.call("systemctl", "--runtime", "mask", *masked)
        try:
            yield
        finally:
            if masked:
                self.call("systemctl", "--runtime", "unmask", *masked)

    # --------------------------------------------------------------------------------------------------------- files

    def folder(self, path: str, owner: str, mode: int) -> None:
        """Make a folder with this owner and mode."""
        self._own(path, owner, mode, lambda: os.makedirs(path, exist_ok=True), os.path.isdir(path))

    def file(self, path: str, data: bytes, owner: str = "root", mode: int = 0o644, secret: bool = False) -> bool:
        """Write a file with this owner and mode; whether its content changed. No message contains the content."""
        before = read(path)
        if before != data:
            self.changes.append(f"{path} {'written' if before is None else 'changed'}")
            if not self.check:
                write(path, data, owner, mode)
            return True
        self._own(path, owner, mode, lambda: None, True)
        return False

    def _own(self, path: str, owner: str, mode: int, make: Callable[[], None], there: bool) -> None:
        if there:
            before = os.stat(path)
            uid, gid = ids(owner) if not self.check or owner_exists(owner) else (before.st_uid, before.st_gid)
            if (stat.S_IMODE(before.st_mode), before.st_uid, before.st_gid) == (mode, uid, gid):
                return
            self.changes.append(f"{path} gets owner {owner} and mode {mode:04o}")
        else:
            self.changes.append(f"{path} made")
        if self.check:
            return
        make()
        os.chown(path, *ids(owner))
        os.chmod(path, mode)

    def logrotate(self, name: str, logs: Sequence[str], unit: str) -> None:
        """Rotate logs that no other file in logrotate.d rotates; logrotate fails on two entries for one log."""
        folder = "/etc/logrotate.d"
        ours = os.path.join(folder, name)
        if not os.path.isdir(folder):
            return
        for other in sorted(os.listdir(folder)):
            path = os.path.join(folder, other)
            if path != ours and any(log.encode() in (read(path) or b"") for log in logs):
                return
        lines = [
            "compress",
            "missingok",
            "nocreate",
            "delaycompress",
            "notifempty",
            "rotate 12",
            "size 5M",
            "sharedscripts",
        ]
        body = "".join(f"  {line}\n" for line in lines)
        # systemctl, since Debian's slurmctld has another process name after a reconfigure. The old spelling of the
        # option, which all versions of systemd accept.
        script = f"  postrotate\n    systemctl kill --kill-who=main --signal=SIGUSR2 {unit} || true\n  endscript\n"
        self.file(ours, f"{' '.join(logs)} {{\n{body}{script}}}\n".encode())

    # --------------------------------------------------------------------------------------------------------- units

    def is_active(self, unit: str) -> bool:
        return self.call("systemctl", "is-active", "--quiet", unit).rc == 0

    def enable(self, unit: str) -> None:
        if self.call("systemctl", "is-enabled", "--quiet", unit).rc == 0:
            return
        self.changes.append(f"{unit} enabled")
        if not self.check:
            result = self.call("systemctl", "enable", "--quiet", unit)
            if result.rc != 0:
                raise SlurmError(f"{unit} cannot be enabled ({reason(result)}): install its package.")

    def run(self, unit: str, restart: bool = False, log: str = "") -> bool:
        """Enable and start a unit; ``restart`` restarts one that runs. Returns whether it was started or restarted."""
        self.enable(unit)
        active = self.is_active(unit)
        if active and not restart:
            return False
        self.changes.append(f"{unit} {'restarted' if active else 'started'}")
        if self.check:
            return True
        # A unit that failed too often does not start until its counter is reset.
        self.call("systemctl", "reset-failed", unit)
        cursor = LogCursor(log)
        result = self.call("systemctl", "restart" if active else "start", unit)
        if result.rc != 0 or not self.is_active(unit):
            error = self.last_error(unit, cursor, reason(result))
            raise SlurmError(f"{unit} does not start ({error}): correct that first.")
        return True

    @contextlib.contextmanager
    def restoring(self, path: str, unit: str) -> Iterator[None]:
        """Restore a changed file where its unit does not start with it, and restart the unit with the old file."""
        before = read(path)
        status = os.stat(path) if before is not None else None
        try:
            yield
        except SlurmError as error:
            if self.check or before is None or status is None or read(path) == before:
                raise
            write(path, before, pwd.getpwuid(status.st_uid).pw_name, stat.S_IMODE(status.st_mode))
            self.call("systemctl", "reset-failed", unit)
            self.call("systemctl", "restart", unit)
            raise SlurmError(f"{str(error).rstrip('.')}; the old {os.path.basename(path)} was restored.") from None

    def last_error(self, unit: str, cursor: LogCursor, otherwise: str) -> str:
        """The last error that a daemon has written to its log or to the journal since the cursor."""
        text = cursor.text()
        if not _errors(text):
            lines = ("--lines=200", "--no-pager", "--output=cat", f"--since=@{cursor.time}")
            text = self.call("journalctl", "--unit", unit, *lines).stdout
        return (_errors(text) or [otherwise])[-1][:300].rstrip(".")

    def wait_for_port(self, port: int, unit: str, seconds: float) -> bool:
        """Wait until a TCP port on this host is listened on, at most ``seconds`` and while its unit runs."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return True
            if time.monotonic() > deadline or not self.is_active(unit):
                return False
            time.sleep(0.2)


class LogCursor:
    """The present end of a daemon's log and of the journal; ``text`` is what was logged after it."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.time = int(time.time())
        self.size = os.path.getsize(log) if log and os.path.exists(log) else 0

    def text(self) -> str:
        with contextlib.suppress(OSError), open(self.log or os.devnull, "rb") as file:
            file.seek(self.size)
            return file.read(1 << 20).decode("utf-8", "replace")
        return ""


def _errors(text: str) -> list[str]:
    """The messages of the highest severity in a log of Slurm or MariaDB."""
    for word in ("fatal: ", "[ERROR] ", "error: "):
        messages = [line.partition(word)[2].strip() for line in text.splitlines() if word in line]
        messages = [message for message in messages if message != "Aborting"]
        if messages:
            return messages
    return []


def owner_exists(owner: str) -> bool:
    try:
        ids(owner)
    except SlurmError:
        return False
    return True


def ids(owner: str) -> tuple[int, int]:
    """uid and gid of ``user`` or ``user:group``; the group is the user's own where none is given."""
    user, _colon, group = owner.partition(":")
    try:
        entry = pwd.getpwnam(user)
        return entry.pw_uid, grp.getgrnam(group).gr_gid if group else entry.pw_gid
    except KeyError:
        raise SlurmError(
            f"There is no user or group {owner} on this host: install the package that creates it."
        ) from None


def read(path: str) -> bytes | None:
    """A file's bytes; None where there is none."""
    try:
        return atomic.read(path)
    except OSError as error:
        raise SlurmError(f"{path} cannot be read ({error.strerror}): run as root.") from None


def write(path: str, data: bytes, owner: str, mode: int) -> None:
    """Replace a file atomically; the temporary file has its owner and mode before it takes the name."""
    uid_and_gid = ids(owner)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        atomic.write(path, data, mode, uid_and_gid, follow=False)
    except OSError as error:
        raise SlurmError(
            f"{path} could not be written ({error.strerror}): make room or correct the folder's mode."
        ) from None
