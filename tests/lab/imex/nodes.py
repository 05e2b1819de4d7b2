# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bare nodes for an IMEX daemon: each a network, mount and process namespace, on one bridge of their own.

Lighter than a tray of the lab and enough for the daemon itself. A node lives as long as the pipe to its first process:
when the test ends, however it ends, the kernel ends everything in the node and takes its network away.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

NETWORK = "198.51.100"
# A file system of its own wherever a daemon writes; ended children are reaped by the kernel.
FIRST = """\
mount -t tmpfs none /run && mount -t tmpfs none /var/log && mkdir /run/imex && ip link set lo up || exit 1
echo ready
exec env --ignore-signal=CHLD cat
"""
CONFIG = {
    "LOG_LEVEL": "4",
    "LOG_FILE_NAME": "/run/imex/log",
    "DAEMONIZE": "1",
    "IMEX_NODE_CONFIG_FILE": "/run/imex/nodes_config.cfg",
    "IMEX_CMD_ENABLED": "1",
    "IMEX_CMD_PORT": "50005",
    "IMEX_WAIT_FOR_QUORUM": "RECOVERY",
}


class Namespace:
    """A first process in namespaces of its own, and the way in."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", FIRST],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            raise RuntimeError("a namespace cannot be made: run as root, with unshare and iproute2 installed")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text()
        self.pid = int(children.split()[0])

    def run(self, *command: str, timeout: float = 30.0, input: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--", *command],
            input=input or "",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def close(self) -> None:
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.wait(timeout=20)
        self._holder.stdout.close()


class Node(Namespace):
    """One member: its files under /run/imex, its daemon, its ctl."""

    def __init__(self, hub: Namespace, number: int, programs: Path) -> None:
        super().__init__()
        self.programs = programs
        self.address = f"{NETWORK}.{11 + number}"
        port = f"port{number}"
        # The node's pid means something out here only, so this one command enters nothing but the hub's network.
        cable = f"nsenter --target={hub.pid} --net -- ip link add {port} type veth peer name eth0 netns {self.pid}"
        _check(subprocess.run(cable.split(), capture_output=True, text=True, check=False))
        _check(hub.run("ip", "link", "set", port, "up", "master", "hub0"))
        for command in ("ip link set eth0 up", f"ip addr add {self.address}/24 dev eth0"):
            _check(self.run(*command.split()))

    def write(self, name: str, text: str) -> None:
        """A file of /run/imex."""
        _check(self.run("sh", "-c", f"cat > /run/imex/{name}", input=text))

    def read(self, path: str) -> str:
        return self.run("cat", path).stdout

    def configure(self, addresses: list[str], **settings: Any) -> None:
        self.write("nodes_config.cfg", "".join(f"{address}\n" for address in addresses))
        merged = {**CONFIG, **{key: str(value) for key, value in settings.items()}}
        self.write("config.cfg", "".join(f"{key}={value}\n" for key, value in merged.items()))

    def start(self, *options: str, timeout: float = 15.0) -> subprocess.CompletedProcess[str]:
        """Start the daemon as its unit does, without a GPU."""
        command = [str(self.programs / "nvidia-imex"), "-c", "/run/imex/config.cfg", "--nogpu", *options]
        return self.run(*command, timeout=timeout)

    def ctl(self, *options: str, timeout: float = 15.0) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs / "nvidia-imex-ctl"), "-c", "/run/imex/config.cfg", *options]
        return self.run(*command, timeout=timeout)

    def pids(self) -> list[str]:
        return self.run("pgrep", "-x", "nvidia-imex").stdout.split()

    def signal(self, name: str) -> None:
        for pid in self.pids():
            self.run("kill", f"-{name}", pid)

    def stop(self, name: str = "TERM") -> None:
        """End the daemon and wait until it has ended."""
        self.signal(name)
        wait_until(lambda: not self.pids(), f"SIG{name} ends the daemon")

    def state(self) -> str:
        return self.ctl("-q").stdout.strip()

    def domain(self) -> dict[str, Any]:
        done = self.ctl("-N", "-j")
        _check(done)
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def row(self, number: int) -> dict[str, str]:
        """This node's own cells, when it is node `number`: id -> status."""
        cells = self.domain()["nodes"][str(number)]["connections"]
        return {other: cell["status"] for other, cell in cells.items()}


class Nodes:
    """Some nodes on one bridge: `with Nodes(4, programs) as nodes:`."""

    def __init__(self, count: int, programs: Path) -> None:
        self.hub = Namespace()
        self.all: list[Node] = []
        try:
            _check(self.hub.run(*["ip", "link", "add", "hub0", "type", "bridge", "forward_delay", "0"]))
            _check(self.hub.run(*["ip", "link", "set", "hub0", "up"]))
            for number in range(count):
                self.all.append(Node(self.hub, number, programs))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __getitem__(self, number: int) -> Node:
        return self.all[number]

    @property
    def addresses(self) -> list[str]:
        return [node.address for node in self.all]

    def close(self) -> None:
        for namespace in (*self.all, self.hub):
            namespace.close()

    def configure(self, **settings: Any) -> None:
        """One list and one configuration on all."""
        for node in self.all:
            node.configure(self.addresses, **settings)

    def reset(self) -> None:
        """No daemon and no file of an earlier test."""
        for node in self.all:
            if node.pids():
                node.stop("KILL")
            node.run("sh", "-c", "rm -rf /run/imex/* /run/nvidia-imex /run/nvidia-imex-standin.session")


def wait_until(condition: Any, what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def _check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"{' '.join(done.args)} ended with {done.returncode}: {done.stderr or done.stdout}"
