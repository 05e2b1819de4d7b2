# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packages and log rotation of a host of Slurm.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError

# For all calls of the package manager together: enough for a few hundred megabytes from a slow mirror.
INSTALL_SECONDS = 1800.0


class Host(host.Host):
    """A host of Slurm to change."""

    _installs_until: float | None = None

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
        return errors[0][:300] if errors else result.reason.rstrip(".")

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
