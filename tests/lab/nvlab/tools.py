# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of the machine that the lab needs, and their installation."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from .errors import LabError

PACKAGE_OF = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "gcc": "gcc",
    "make": "make",
    "nsenter": "util-linux",
    "openssl": "openssl",
}
# A user's PATH may lack the directories of the administrator's programs.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def need_root() -> None:
    if os.geteuid() != 0:
        raise LabError("the lab needs root (containers and network namespaces): run it as root.")


def ensure_tools(more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Install what is missing by apt-get; more: further programs, each with its package."""
    wanted = {**PACKAGE_OF, **more}
    missing = sorted({package for tool, package in wanted.items() if not shutil.which(tool, path=PATH)})
    if not shutil.which("gcc", path=PATH) or not os.path.exists("/usr/include/stdio.h"):
        missing = sorted({*missing, "gcc", "libc6-dev"})
    if not missing:
        return
    if not shutil.which("apt-get", path=PATH):
        raise LabError(f"the lab needs the packages {', '.join(missing)} and finds no apt-get: install them.")
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-qq", "-y"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ([*apt, "update"], [*apt, "install", "--no-install-recommends", *missing]):
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 and "install" in command:
            raise LabError(f"the lab needs {', '.join(missing)} and apt-get failed: {last_line(done.stderr)}")


def call(command: Sequence[str], what: str, keep: Sequence[int] = ()) -> str:
    """Run a command of the lab's own with the open files `keep`; LabError with its last line when it fails."""
    done = subprocess.run(
        list(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": PATH},
        pass_fds=keep,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"{what} failed ({command[0]}, exit {done.returncode}): {last_line(done.stderr or done.stdout)}")
    return done.stdout


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"
