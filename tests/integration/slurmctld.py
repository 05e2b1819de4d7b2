# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real slurmctld alone, in the lab's base tree: no systemd, no munge, no slurmd; up in well under a second.

It lives in mount, pid and host name namespaces of its own over an overlay of the tree, so that nothing outside changes
and the end of one process ends everything. Its configuration folder is the same folder inside and outside, and ``bin``
holds scontrol and slurmctld for the outside: so the code under test runs as it does on a controller.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[1] / "lab"
SUITES = {"trixie": (24, 11), "forky": (26, 5)}
# 24.11 runs in `make test-all` alone.
EACH_SUITE = ("forky", pytest.param("trixie", marks=pytest.mark.long))
HOST = "ctl"
ENTER = ("-m", "-u", "-p", "--root", "--wd=/")

CONF = """\
ClusterName=sandbox
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={slurmd_port}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=/var/spool/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile={log}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MailProg=/bin/true
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=60
MessageTimeout=10
"""


def base_tree(suite: str) -> Path:
    """The lab's cached root of a Debian suite, created if missing."""
    if str(LAB) not in sys.path:
        sys.path.insert(0, str(LAB))
    from nvlab import image

    return Path(image.ensure_base(suite))


def free_port() -> int:
    """A port outside the kernel's ephemeral range, so that it is still free when slurmctld restarts."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class Slurmctld:
    """One sandbox; ``conf_dir`` and ``bin_dir`` are the values for the modules' options of these names."""

    def __init__(self, suite: str, directory: Path, host: str = HOST) -> None:
        self.suite = suite
        self.host = host
        self.hosts = {host: "127.0.0.1"}
        self.shared: list[Path] = []
        self.version = SUITES[suite]
        self.directory = directory
        self.conf_dir = directory / "etc"
        self.bin_dir = directory / "bin"
        self.log = self.conf_dir.parent / "log" / "slurmctld.log"
        self.port = free_port()
        self.holder: subprocess.Popen[bytes] | None = None
        self.pid = 0
        for name in ("etc", "bin", "log", "upper", "work", "root"):
            (directory / name).mkdir(exist_ok=True)

    # ------------------------------------------------------------------------------------------ configuration

    def configure(self, *lines: str, plugin: str = "", select: str = "", prolog: str = "Alloc") -> None:
        """Write slurm.conf: the fixed part, settings (none where empty), and lines of nodes and partitions."""
        text = CONF.format(host=self.host, port=self.port, slurmd_port=free_port(), log=self.log)
        for key, value in (("TopologyPlugin", plugin), ("SelectType", select), ("PrologFlags", prolog)):
            text += f"{key}={value}\n" if value else ""
        (self.conf_dir / "slurm.conf").write_text(text + "".join(f"{line}\n" for line in lines))

    @staticmethod
    def nodes(hostlist: str, *more: str) -> str:
        # CLOUD nodes count as idle without a slurmd. Each has an address, which avoids a DNS query per name.
        return f"NodeName={hostlist} NodeAddr=127.0.0.1 CPUs=4 State=CLOUD {' '.join(more)}"

    def share(self, path: Path) -> None:
        """A folder that is the same inside and outside, and in every sandbox that shares it."""
        self.shared.append(path)

    # ------------------------------------------------------------------------------------------------ running

    def start(self) -> None:
        """Create the sandbox and start slurmctld in it; AssertionError with its log if it does not start."""
        base, root, conf = base_tree(self.suite), self.directory / "root", self.conf_dir
        outer = f"lowerdir={base},upperdir={self.directory / 'upper'},workdir={self.directory / 'work'}"
        log_dir = self.log.parent
        names = "".join(f"{address} {name}\\n" for name, address in {"localhost": "127.0.0.1", **self.hosts}.items())
        shared = "\n".join(f"mkdir -p {root}{path}; mount --bind {path} {root}{path}" for path in self.shared)
        script = f"""set -e
            hostname {self.host}
            mount -t overlay overlay -o {outer} {root}
            mkdir -p {root}{conf} {root}{log_dir} {root}/var/spool/slurmctld {root}/proc {root}/dev
            mount --rbind {conf} {root}{conf}
            mount --bind {log_dir} {root}{log_dir}
            mount -t proc proc {root}/proc
            mount --rbind /dev {root}/dev
            mount -t tmpfs tmpfs {root}/run
            mkdir -p {root}/run/slurmctld
            printf '{names}' > {root}/etc/hosts
            {shared}
            exec chroot {root} sleep infinity"""
        spaces = ("-m", "-u", "-p", "--fork", "--kill-child", "--propagation", "private")
        command = ["unshare", *spaces, "sh", "-c", script]
        with open(self.directory / "sandbox.log", "wb") as log:
            self.holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.pid = self._inside()
        for name in ("scontrol", "slurmctld", "sbatch", "squeue"):
            self.program(name, f'exec nsenter -t {self.pid} {" ".join(ENTER)} {name} "$@"')
        self.launch()

    def program(self, name: str, script: str) -> None:
        """Put a program of that name into bin_dir: the real one, or one that fails."""
        path = self.bin_dir / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def real(self, name: str) -> str:
        return f"nsenter -t {self.pid} {' '.join(ENTER)} {name}"

    def _inside(self) -> int:
        assert self.holder is not None
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = int(children.read_text().split()[0])
                if Path(f"/proc/{pid}/comm").read_text().strip() == "sleep":
                    return pid
            assert self.holder.poll() is None, (self.directory / "sandbox.log").read_text()
            time.sleep(0.02)
        raise AssertionError("the sandbox did not come up")

    def launch(self, check: bool = True) -> bool:
        """Start slurmctld and return whether it answers; with check it must."""
        start_of_log = len(self.log.read_text()) if self.log.exists() else 0
        self.run("slurmctld", "-f", str(self.conf_dir / "slurm.conf"))
        up = self.answers(60, start_of_log)
        assert up or not check, self.log.read_text()
        return up

    def answers(self, patience: float, start_of_log: int | None = None) -> bool:
        """Wait until slurmctld answers; with the length of its log before, at most until its fatal message there."""
        deadline = time.monotonic() + patience
        while True:
            if "UP" in self.run("scontrol", "ping").stdout:
                return True
            fatal = start_of_log is not None and "fatal: " in self.log.read_text()[start_of_log:]
            if fatal or time.monotonic() > deadline:
                return False
            time.sleep(0.1)

    def reconfigure(self) -> bool:
        """Have slurmctld read its files; whether it has taken them.

        On a busy machine scontrol may give up after MessageTimeout, which is no answer: it is called again. Slurm
        before 24.11.6 may hang for ever, which says nothing about the files either.
        """
        for _again in range(6):
            done = self.run("scontrol", "reconfigure")
            if "timed out" not in done.stderr:
                return done.returncode == 0
            if not self.answers(60):
                self.kill_slurmctld()
                return self.launch(check=False)
        raise AssertionError(self.log.read_text())

    def kill_slurmctld(self) -> None:
        """Kill every slurmctld in the PID namespace of the sandbox."""
        # After a reconfigure the process is named after its file, slurmctld-wlm on Debian. The dead stay as zombies and
        # keep their port until the last thread has ended.
        self.run("pkill", "-9", "^slurmctld")
        deadline = time.monotonic() + 60
        while self.run("pgrep", "-r", "R,S,D", "^slurmctld").stdout or self._listens():
            assert time.monotonic() < deadline, "slurmctld was killed and still runs or listens"
            time.sleep(0.05)

    def _listens(self) -> bool:
        """Whether its port is taken on its own address: another sandbox of a pair may keep the same port on another."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.hosts[self.host], self.port))
            except OSError:
                return True
        return False

    def run(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        return subprocess.run(
            # Into the sandbox's own root folder: sbatch wants to know where it is.
            ["nsenter", "-t", str(self.pid), *ENTER, "sh", "-c", 'cd / && exec "$@"', "sh", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "SLURM_CONF": str(self.conf_dir / "slurm.conf"), "LC_ALL": "C"},
        )

    def stop(self) -> None:
        if self.holder is not None:
            self.holder.kill()  # its child, the namespace's first process, goes with it, and everything inside
            self.holder.wait()
            self.holder = None


@contextlib.contextmanager
def sandbox(suite: str, directory: Path, host: str = HOST) -> Iterator[Slurmctld]:
    """A sandbox that is configured by the caller, started by ``start()`` and ended at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    slurmctld = Slurmctld(suite, directory, host)
    try:
        yield slurmctld
    finally:
        slurmctld.stop()
        shutil.rmtree(directory, ignore_errors=True)
