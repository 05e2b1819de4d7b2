# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill a child before any of its system calls, list the calls, or have the kernel fail one: ptrace and seccomp.

Linux on x86_64 and aarch64; no program is needed for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

# name -> number on x86_64 and on aarch64 (None where it does not exist).
_NUMBERS: dict[str, tuple[int, int | None]] = {
    "open": (2, None), "openat": (257, 56), "close": (3, 57), "write": (1, 64), "pwrite64": (18, 68),
    "writev": (20, 66), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "unlink": (87, None),
    "unlinkat": (263, 35), "link": (86, None), "linkat": (265, 37), "mkdir": (83, None), "mkdirat": (258, 34),
    "fchmod": (91, 52), "fchmodat": (268, 53), "chmod": (90, None), "fchown": (93, 55), "truncate": (76, 45),
    "ftruncate": (77, 46), "fsync": (74, 82), "flock": (73, 32), "clone": (56, 220), "clone3": (435, 435),
    "vfork": (58, None), "wait4": (61, 260), "kill": (62, 129),
}  # fmt: skip
_COLUMN = 0 if platform.machine() == "x86_64" else 1
NUMBER = {name: row[_COLUMN] for name, row in _NUMBERS.items() if row[_COLUMN] is not None}
NAME = {number: name for name, number in NUMBER.items()}
CHANGING = frozenset(NUMBER) - {"close", "wait4"}
"""Calls that change files or start processes: between two of them a kill leaves the same files."""
_WRITABLE = os.O_WRONLY | os.O_RDWR | os.O_CREAT

MOUNTS = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))
"""Starts a command that may mount. Root needs no namespace of users, which a chroot does not allow."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long
_TRACEME, _SYSCALL, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
_TRACESYSGOOD, _EXITKILL = 1, 0x100000
_ENTRY = 1


class _Info(ctypes.Structure):
    """struct ptrace_syscall_info of a stop at the entry of a call."""

    _fields_ = (
        ("op", ctypes.c_uint8), ("pad", ctypes.c_uint8 * 3), ("arch", ctypes.c_uint32), ("ip", ctypes.c_uint64),
        ("sp", ctypes.c_uint64), ("number", ctypes.c_uint64), ("arguments", ctypes.c_uint64 * 8),
    )  # fmt: skip


@dataclass
class Trace:
    """The calls of a child: names, or numbers of unlisted ones. killed: whether it was killed before the last one."""

    calls: list[str] = field(default_factory=list)
    killed: bool = False


def _ptrace(request: int, pid: int, address: Any = None, data: Any = None) -> int:
    done = int(_libc.ptrace(request, pid, address, data))
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return done


def run(work: Callable[[], Any], kill_at: int | None = None, only: Collection[str] | None = None) -> Trace:
    """Run it in a child and record its system calls; SIGKILL before the kill_at-th one (from 0).

    only: names of the calls that count and are recorded, of those that open a file only the ones that may write it; all
    by default. Its own children are not traced, and end with it or go on as after any kill.
    """
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            _ptrace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            with contextlib.suppress(Exception):
                work()
            status = 0
        os._exit(status)
    os.waitpid(child, 0)
    _ptrace(_SETOPTIONS, child, None, _TRACESYSGOOD | _EXITKILL)
    trace, info, forward = Trace(), _Info(), 0
    while True:
        _ptrace(_SYSCALL, child, None, forward)
        _pid, status = os.waitpid(child, 0)
        forward = 0
        if not os.WIFSTOPPED(status):
            return trace
        if os.WSTOPSIG(status) != signal.SIGTRAP | 0x80:
            forward = os.WSTOPSIG(status)
            continue
        _ptrace(_GET_SYSCALL_INFO, child, ctypes.sizeof(info), ctypes.addressof(info))
        if info.op != _ENTRY:
            continue
        name = NAME.get(info.number, str(info.number))
        if only is not None:
            reads = name in ("open", "openat") and not info.arguments[int(name == "openat") + 1] & _WRITABLE
            if name not in only or reads:
                continue
        if len(trace.calls) == kill_at:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            trace.killed = True
            return trace
        trace.calls.append(name)


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Filter)))


def fail(call: str, number: int = errno.EIO) -> None:
    """From now on the kernel fails this system call of this process with this error. Cannot be taken back."""
    rows = (_Filter * 4)(
        _Filter(0x20, 0, 0, 0),  # load the number of the call
        _Filter(0x15, 0, 1, NUMBER[call]),  # if it is this one
        _Filter(0x06, 0, 0, 0x00050000 | number),  # SECCOMP_RET_ERRNO
        _Filter(0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    )
    program = _Program(4, rows)
    if _libc.prctl(38, 1, 0, 0, 0) or _libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
