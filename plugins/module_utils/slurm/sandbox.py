# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a daemon in Linux namespaces, isolated from this host; nothing of it remains afterwards.

Private to this collection; it may change in any release. Python 3.9, standard library only; Linux, root.

The sandbox has its own namespaces:

- mounts: the whole file system is read-only, /run is a small tmpfs that only the sandbox has, and all its files are
  there. It has its own /etc/passwd, hosts and nsswitch.conf, so that no directory service is queried.
- network: loopback only. No daemon of the cluster can be reached, and no port can clash.
- processes: the first process is this collection's, and all others end with it. The kernel kills it when the caller
  ends, even by SIGKILL; so neither processes nor mounts nor files have to be cleaned up.

Programs in the sandbox run as users that no host has, without capabilities and without a way to gain any, at low
priority, with bounded memory; the kernel's OOM killer chooses them first.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError

HOST = "nvlink-rehearsal"
FOLDER = "/run/nvlink-rehearsal"
# UIDs that neither systemd nor any distribution allocates: no other process may signal these.
DAEMON = 65533
USER = 65532
# Not a loopback address, or getaddrinfo would call this host one without a network (AI_ADDRCONFIG); from TEST-NET-1.
ADDRESS = "192.0.2.1"
MEMORY = 4 << 30
DISK = 256 << 20

# CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET
_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND = 2, 4, 8, 4096
_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = 442, -100, 0x8000, 1
_SIOCSIFADDR, _SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8916, 0x8913, 0x8914, 1
_MARGIN = 2.0


class SandboxUnavailable(SlurmError):
    """This host does not permit the sandbox; the message is a clause with the reason."""


class Timeout(SandboxUnavailable):
    """The work did not end within the time limit."""


class Sandbox:
    """Files, programs and the deadline (time.monotonic, seconds) for code that runs inside.

    argv[0] of a program is its plain name whatever its file is called: slurmctld depends on it, and Debian's file is
    slurmctld-wlm.
    """

    def __init__(self, deadline: float, programs: Mapping[str, str]) -> None:
        self.deadline = deadline
        self.programs = programs
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C",
            # On a controller with many cores malloc would allocate an arena for each thread.
            "MALLOC_ARENA_MAX": "4",
            **{key: os.environ[key] for key in ("LD_LIBRARY_PATH", "TZ") if key in os.environ},
        }

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def path(self, name: str) -> str:
        return os.path.join(FOLDER, name)

    def write(self, name: str, data: str | bytes) -> str:
        path = self.path(name)
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        os.chmod(path, 0o644)
        return path

    def owned(self, path: str) -> str:
        """Make a folder that the daemon may write to."""
        os.makedirs(path, 0o755, exist_ok=True)
        os.chown(path, DAEMON, DAEMON)
        return path

    def start(self, name: str, *arguments: str, output: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a daemon in the foreground, as user DAEMON."""
        with open(self.path(output), "ab") as file:
            daemon = subprocess.Popen(  # pylint: disable=ansible-bad-function  # it outlives the call
                [name, *arguments],
                stdout=file,
                stderr=file,
                **self._process(name, DAEMON, environment),
            )
        self.daemons.append(daemon)
        return daemon

    def end(self) -> None:
        """Kill every daemon; their child processes end with the sandbox."""
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()

    def run(self, name: str, *arguments: str, user: int = USER, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end as an unprivileged user; subprocess.TimeoutExpired at the deadline."""
        # AnsibleModule.run_command cannot run a program as another user.
        return subprocess.run(  # pylint: disable=ansible-bad-function
            [name, *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=max(self.left, 0.01),
            **self._process(name, user, environment),
        )

    def _process(self, name: str, user: int, environment: Mapping[str, str]) -> dict[str, Any]:
        """What each process has: its program, no input, a user and environment of the sandbox."""
        return {
            "executable": self.programs[name],
            "stdin": subprocess.DEVNULL,
            "cwd": "/",
            "env": {**self.environment, **environment},
            "user": user,
            "group": user,
            "extra_groups": [],
        }


def run_inside(work: Callable[[Sandbox], Any], programs: Mapping[str, str], timeout: float) -> Any:
    """Call ``work`` in a new sandbox and return its result, which must be JSON, within ``timeout`` + 2 seconds.

    programs: name -> path of what it may run. Raises SandboxUnavailable where this host does not permit a sandbox,
    Timeout where ``work`` did not return in time.
    """
    if os.geteuid() != 0:
        raise SandboxUnavailable("it needs root")
    caller = os.getpid()
    reply = child.call(_in_namespaces, timeout + _MARGIN, work, dict(programs), timeout, caller)
    if not isinstance(reply.value, dict):
        if reply.result.timed_out:
            raise Timeout("it did not end in time")
        error = reply.result.error or reply.result.stderr.strip().rpartition("\n")[2]
        raise SandboxUnavailable(f"its process ended early ({error[:200]})")
    if "timeout" in reply.value:
        raise Timeout(str(reply.value["timeout"]))
    if "unavailable" in reply.value:
        raise SandboxUnavailable(str(reply.value["unavailable"]))
    return reply.value.get("value")


# ------------------------------------------------------------------------------------------------ outside the sandbox


def _in_namespaces(
    work: Callable[[Sandbox], Any], programs: dict[str, str], timeout: float, caller: int
) -> dict[str, Any]:
    """In a child of the caller: create the namespaces, start their first process and return its reply."""
    deadline = time.monotonic() + timeout
    _die_with_parent()
    if os.getppid() != caller:
        os._exit(1)
    try:
        _check(_libc().unshare(_NAMESPACES), "its own namespaces")
    except SandboxUnavailable as error:
        return {"unavailable": str(error)}
    reply_read, reply_write = os.pipe()
    parent_read, parent_write = os.pipe()  # `parent_write` is open as long as this process lives
    pid = os.fork()
    if pid == 0:
        os.close(reply_read)
        os.close(parent_write)
        _first_process(work, Sandbox(deadline, programs), reply_write, parent_read)
    os.close(reply_write)
    os.close(parent_read)
    with os.fdopen(reply_read, "rb") as pipe:
        reply = pipe.read()
    _pid, status = os.waitpid(pid, 0)
    if not reply:
        return {"unavailable": f"its first process ended with {os.waitstatus_to_exitcode(status)}"}
    value: dict[str, Any] = json.loads(reply)
    return value


def _die_with_parent() -> None:
    _check(_libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "an end together with its parent")


# ------------------------------------------------------------------------------------------------- inside the sandbox


def _first_process(work: Callable[[Sandbox], Any], sandbox: Sandbox, reply: int, parent: int) -> None:
    """Set up the sandbox, do the work and write the outcome as JSON to ``reply``. Never returns.

    parent: a pipe that is at its end once the parent has ended.
    """
    answer: dict[str, Any]
    try:
        _die_with_parent()
        os.set_blocking(parent, False)
        with contextlib.suppress(BlockingIOError):
            os.read(parent, 1)
            os._exit(1)  # the parent ended before the death signal was set
        os.close(parent)
        _set_up(sandbox)
        answer = {"value": work(sandbox)}
        sandbox.end()
    except Timeout as error:
        answer = {"timeout": str(error)}
    except SandboxUnavailable as error:
        answer = {"unavailable": str(error)}
    except subprocess.TimeoutExpired:
        answer = {"timeout": "it did not end in time"}
    except BaseException as error:  # nothing may unwind into the caller's code
        answer = {"unavailable": f"its process ended early ({type(error).__name__}: {str(error)[:200]})"}
    try:
        data = json.dumps(answer).encode()
        while data:
            data = data[os.write(reply, data) :]
    finally:
        os._exit(0)


def _set_up(sandbox: Sandbox) -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    os.nice(10)
    _limit()
    libc = _libc()
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE, None, "its own mounts")
    _read_only()
    _mount("tmpfs", "/run", "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, f"size={DISK},mode=755", "its own /run")
    with contextlib.suppress(SandboxUnavailable):  # some containers forbid it
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None, "its own /proc")
    os.mkdir(FOLDER, 0o755)
    for name, text in _names().items():
        path = sandbox.write(name, text)
        target = os.path.realpath(f"/etc/{name}")
        if os.path.exists(target):
            _mount(path, target, None, _MS_BIND, None, f"its own /etc/{name}")
    _check(libc.sethostname(HOST.encode(), len(HOST)), "its own host name")
    _loopback()
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "programs without privileges")


def _names() -> dict[str, str]:
    with contextlib.suppress(KeyError):
        pwd.getpwuid(0)  # loads the name service modules before their configuration changes
    users = (("root", 0), ("nvlink-daemon", DAEMON), ("nvlink-user", USER))
    return {
        "passwd": "".join(f"{name}:x:{number}:{number}::/:/bin/sh\n" for name, number in users),
        "group": "".join(f"{name}:x:{number}:\n" for name, number in users),
        "hosts": f"127.0.0.1 localhost\n{ADDRESS} {HOST}\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }


def _limit() -> None:
    import resource  # not at the top: the sanity tests import this file where the module does not exist

    limits = ((resource.RLIMIT_DATA, MEMORY), (resource.RLIMIT_NOFILE, 8192), (resource.RLIMIT_NPROC, 4096))
    for name, maximum in limits:
        _soft, hard = resource.getrlimit(name)
        bound = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(name, (bound, bound))


def _read_only() -> None:
    """Remount all file systems read-only, also for a daemon that runs as root."""
    attributes = struct.pack("=4Q", _ATTR_RDONLY, 0, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    status = _libc().syscall(ctypes.c_long(_SYS_MOUNT_SETATTR), _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, size)
    _check(status, "a read-only file system, for which Linux must be 5.12 or later")


def _loopback() -> None:
    import fcntl  # not at the top: see _limit

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(handle, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(handle, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
        address = struct.pack("H2x4s8x", socket.AF_INET, socket.inet_aton(ADDRESS))
        fcntl.ioctl(handle, _SIOCSIFADDR, struct.pack("16s16s", b"lo:0", address))


# ------------------------------------------------------------------------------------------------------ system calls


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(status: int, what: str) -> None:
    if status != 0:
        raise SandboxUnavailable(f"this host does not permit {what} ({os.strerror(ctypes.get_errno())})")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None, what: str) -> None:
    words: Sequence[str | None] = (source, target, kind, data)
    encoded = [None if word is None else os.fsencode(word) for word in words]
    status = _libc().mount(encoded[0] or b"none", encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(status, what)
