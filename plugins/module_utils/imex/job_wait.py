# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait of a prolog until its tray is ready and sees every tray of the job in its clique."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, status
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.job_daemon import (
    call_peers,
    cause,
    daemons,
    start_daemon,
    stop_daemon,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.job_state import (
    DAEMON,
    PEER,
    Failure,
    Job,
    Settings,
    read_text,
    reason_of,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

# A ctl that answers needs much less; one that hangs takes this from the wait.
_CTL_TIMEOUT = 6.0
# A daemon comes back to a peer that was not up yet after 15, 31, 62 s; SIGUSR1 makes it call again at once.
_FIRST_RECONNECT = 4.0
# How long the ctl is not asked while a connection is missing: all daemons of a rack start within it.
_PATIENCE, _LATER_PATIENCE = 3.0, 2.0
# A pair whose lists differed stays apart until both daemons are new, so both must be down at one time.
_MISMATCH_PAUSE = 3.0
# Between two looks at the kernel's sockets; the kernel itself answers within microseconds.
_FIRST_PAUSE, _LONGEST_PAUSE, _KERNEL_TIMEOUT = 0.03, 0.2, 2.0
# Of sock_diag(7): the kernel names sockets by it six times as fast as in /proc/net/tcp, whose reading walks through
# tables that grow with a host's memory.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, _DONE, _ERROR = 4, 20, 0x301, 3, 2
_ESTABLISHED, _HEADER = 1, 16
# Before an IPv4 address in a socket of IPv6.
_MAPPED = bytes(10) + b"\xff\xff"


def wait_for_peers(settings: Settings, job: Job, members: Sequence[tuple[str, str]], deadline: float) -> None:
    """Until this tray's own row says READY, and CONNECTED of every member; Failure when that is vain, or too late.

    A member that comes late is called anew by SIGUSR1. A member with another list may have the daemon of an earlier
    job still: then this daemon is started anew, with a pause in which the other's is new too.
    """
    own = [node for node, _line in members].index(job.node)
    others = [line for number, (_node, line) in enumerate(members) if number != own]
    # With a short wait earlier, for a ctl that meets a dead tray may take some seconds itself.
    first = min(_PATIENCE, settings.wait / 4)
    pause, patience, reconnect, started, seen = 0.1, first, _FIRST_RECONNECT, time.monotonic(), _View(None, {}, "")
    while True:
        # The ctl asks every member: asked again and again, it keeps all these daemons from their start.
        _until_connected(others, min(time.monotonic() + patience, deadline))
        left = deadline - time.monotonic()
        if left <= 0:
            raise _verdict(settings, members, own, seen)
        seen = _look(own, min(_CTL_TIMEOUT, max(0.5, left)), seen)
        words = {seen.row.get(number) for number in range(len(members)) if number != own}
        if seen.state == "ready":
            if words <= {"connected"}:
                return
            if "map_mismatch" in words and deadline - time.monotonic() > 2 * _MISMATCH_PAUSE:
                stop_daemon(settings)
                time.sleep(_MISMATCH_PAUSE)
                start_daemon(deadline)
                pause, patience, reconnect, started = 0.1, first, _FIRST_RECONNECT, time.monotonic()
                continue
            if "version_mismatch" in words and time.monotonic() - started > _MISMATCH_PAUSE:
                raise _verdict(settings, members, own, seen)
            if time.monotonic() - started > reconnect:
                reconnect = 2 * reconnect + 2
                call_peers()
        elif seen.state is None and not daemons():
            raise Failure(cause(f"{DAEMON} has ended right after its start; see its log"))
        time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
        pause, patience = min(pause * 1.6, 1.0), _LATER_PATIENCE


def _until_connected(addresses: Sequence[str], deadline: float) -> None:
    """Until the kernel has this tray's connections to IMEX of each address, a hint that costs nobody else anything.

    A daemon calls every other, and its row tells of its own calls. Only for IPv4, and at once where the kernel does not
    say. Where a release connects in another way, until the deadline.
    """
    try:
        wanted = {bytes(map(int, address.split("."))) for address in addresses}
    except ValueError:
        return
    port = int(files.Config(read_text(files.CONFIG_FILE)).get("SERVER_PORT") or 50000)
    pause = _FIRST_PAUSE
    while time.monotonic() < deadline:
        found = _connected_to(port)
        if found is None or wanted <= found:
            return
        time.sleep(pause)
        pause = min(pause * 1.4, _LONGEST_PAUSE)


def _connected_to(port: int) -> set[bytes] | None:
    """The IPv4 addresses, of four bytes, to whose port this host has a connection; None where the kernel does not say.

    gRPC makes sockets of IPv6 that have IPv4 addresses within.
    """
    import socket

    found = set()
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            for row in _sockets(family):
                # struct inet_diag_msg: four bytes, then ports in network order, then the addresses of 16 bytes.
                there = row[24:40]
                if int.from_bytes(row[6:8], "big") == port:
                    found.add(there[:4] if family == socket.AF_INET else there.removeprefix(_MAPPED))
    except OSError:
        return None
    return found


def _sockets(family: int) -> Iterator[bytes]:
    """struct inet_diag_msg of each established connection of TCP; OSError where the kernel does not say."""
    import socket

    order = sys.byteorder
    # struct inet_diag_req_v2: family, protocol, extensions, states; of which socket, that is of any.
    asked = bytes((family, socket.IPPROTO_TCP, 0, 0)) + (1 << _ESTABLISHED).to_bytes(4, order) + bytes(48)
    head = (_HEADER + len(asked)).to_bytes(4, order) + _SOCK_DIAG_BY_FAMILY.to_bytes(2, order)
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    try:
        link.settimeout(_KERNEL_TIMEOUT)
        link.send(head + _REQUEST_DUMP.to_bytes(2, order) + bytes(8) + asked)
        while True:
            said = link.recv(1 << 17)
            while said:
                length, kind = int.from_bytes(said[:4], order), int.from_bytes(said[4:6], order)
                if kind == _DONE:
                    return
                if kind == _ERROR or length < _HEADER:
                    raise OSError("no sock_diag")
                yield said[_HEADER:length]
                said = said[(length + 3) & ~3 :]
    finally:
        link.close()


class _View(NamedTuple):
    """This tray's own row: its state, id -> connection, and what is wrong with the answer."""

    state: str | None
    row: dict[int, str]
    wrong: str


def _look(own: int, timeout: float, before: _View) -> _View:
    done = child.run(["nvidia-imex-ctl", "-N", "-j"], timeout)
    if done.timed_out:
        if timeout < _CTL_TIMEOUT and before.state is not None:
            return before  # the deadline has cut it short, which says nothing against the ctl
        return before._replace(state=None, wrong=f"nvidia-imex-ctl gave no answer within {timeout:.0f} s")
    try:
        row = status.parse_row(done.stdout, own)
    except status.StatusError as error:
        return _View(None, {}, f"{error} ({reason_of(done)})")
    return _View(*row, "") if row else _View(None, {}, "nvidia-imex-ctl says nothing of this tray")


def _verdict(settings: Settings, members: Sequence[tuple[str, str]], own: int, seen: _View) -> Failure:
    """What the wait has ended with, in one sentence."""
    if seen.wrong:
        return Failure(f"{seen.wrong} though the daemon runs; restart the daemon, and reboot the tray if that recurs")
    if seen.state != "ready":
        word = seen.state or "unknown"
        return Failure(cause(f"the daemon is {word}, not ready, after {settings.wait:g} s; see its log"))
    found: dict[str, list[str]] = {}
    for number, (node, _line) in enumerate(members):
        word = seen.row.get(number) or "unknown"
        if number != own and word != "connected":
            found.setdefault(word, []).append(node)
    if "map_mismatch" in found:
        text = (
            f"{summarize(found['map_mismatch'])} has another list than this tray (!M!); run the imex role on all trays"
            f" of clique {settings.clique}, which gives them one map"
        )
    elif "version_mismatch" in found:
        text = (
            f"{summarize(found['version_mismatch'])} runs another version of IMEX than this tray (!V!); bring driver"
            " and package to one version"
        )
    else:
        parts = [f"{summarize(nodes)} {word.replace('_', ' ')}" for word, nodes in sorted(found.items())]
        text = (
            f"not connected to all trays of the job in clique {settings.clique} after {settings.wait:g} s:"
            f" {', '.join(parts)}; see that it is up, that its prolog ran, and that IMEX's ports are open between trays"
        )
    return Failure(text, PEER)
