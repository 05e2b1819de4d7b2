# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait in the prolog until its tray is ready and connected to every tray of the job in its clique."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, status
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.daemon import (
    cause,
    daemons,
    reconnect_peers,
    start_daemon,
    stop_daemon,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.state import (
    DAEMON,
    PEER,
    Failure,
    Job,
    Settings,
    read_text,
    reason_of,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

# nvidia-imex-ctl answers much faster; one that hangs costs this much of the wait.
_CTL_TIMEOUT = 6.0
# A daemon retries a peer that was not up after 15, 31, 62 s; on SIGUSR1 it reconnects at once.
_FIRST_RECONNECT = 4.0
# How long to wait for missing connections before each query of the ctl: all daemons of a rack start within it.
_SOCKET_WAIT, _LATER_SOCKET_WAIT = 3.0, 2.0
# Daemons with different lists connect only after both restarted, so both must be down at the same time.
_MISMATCH_PAUSE = 3.0
# Between two reads of the kernel's sockets; the kernel itself answers within microseconds.
_FIRST_PAUSE, _LONGEST_PAUSE, _KERNEL_TIMEOUT = 0.03, 0.2, 2.0
# Of sock_diag(7), by which the kernel lists sockets six times as fast as in /proc/net/tcp: reading that walks through
# tables that grow with a host's memory.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, _DONE, _ERROR = 4, 20, 0x301, 3, 2
_ESTABLISHED, _HEADER = 1, 16
# The prefix of an IPv4 address in an IPv6 socket.
_MAPPED = bytes(10) + b"\xff\xff"


def wait_for_peers(settings: Settings, job: Job, members: Sequence[tuple[str, str]], deadline: float) -> None:
    """Wait until this tray's row is READY, and CONNECTED for every member. Raises Failure.

    On SIGUSR1 the daemon reconnects to a member that was late. A member with another list may still have the daemon of
    an earlier job: then this daemon restarts, with a pause in which the other restarts too.
    """
    own = [node for node, _line in members].index(job.node)
    others = [line for number, (_node, line) in enumerate(members) if number != own]
    # Earlier with a short wait, because the ctl may take some seconds with an unreachable tray.
    first = min(_SOCKET_WAIT, settings.wait / 4)
    pause, socket_wait, reconnect, started, observed = (
        0.1,
        first,
        _FIRST_RECONNECT,
        time.monotonic(),
        _Status(None, {}, ""),
    )
    while True:
        # The ctl queries every member, so frequent calls would slow the start of all these daemons.
        _until_connected(others, min(time.monotonic() + socket_wait, deadline))
        left = deadline - time.monotonic()
        if left <= 0:
            raise _failure_of(settings, members, own, observed)
        observed = _query_ctl(own, min(_CTL_TIMEOUT, max(0.5, left)), observed)
        connections = {observed.row.get(number) for number in range(len(members)) if number != own}
        if observed.state == "ready":
            if connections <= {"connected"}:
                return
            if "map_mismatch" in connections and deadline - time.monotonic() > 2 * _MISMATCH_PAUSE:
                stop_daemon(settings)
                time.sleep(_MISMATCH_PAUSE)
                start_daemon(deadline)
                pause, socket_wait, reconnect, started = 0.1, first, _FIRST_RECONNECT, time.monotonic()
                continue
            if "version_mismatch" in connections and time.monotonic() - started > _MISMATCH_PAUSE:
                raise _failure_of(settings, members, own, observed)
            if time.monotonic() - started > reconnect:
                reconnect = 2 * reconnect + 2
                reconnect_peers()
        elif observed.state is None and not daemons():
            raise Failure(cause(f"{DAEMON} ended right after its start; see its log"))
        time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
        pause, socket_wait = min(pause * 1.6, 1.0), _LATER_SOCKET_WAIT


def _until_connected(addresses: Sequence[str], deadline: float) -> None:
    """Wait until the kernel lists a connection of this tray to IMEX at each address, without load on other trays.

    A daemon connects to every other, and its row shows its own connections. IPv4 only; returns at once where the kernel
    does not list connections. Where a release connects in another way, it waits until the deadline.
    """
    try:
        expected = {bytes(map(int, address.split("."))) for address in addresses}
    except ValueError:
        return
    port = int(files.Config(read_text(files.CONFIG_FILE)).get("SERVER_PORT") or 50000)
    pause = _FIRST_PAUSE
    while time.monotonic() < deadline:
        found = _connected_to(port)
        if found is None or expected <= found:
            return
        time.sleep(pause)
        pause = min(pause * 1.4, _LONGEST_PAUSE)


def _connected_to(port: int) -> set[bytes] | None:
    """The IPv4 addresses (four bytes) to whose port this host is connected; None where the kernel does not list them.

    gRPC uses IPv6 sockets with mapped IPv4 addresses.
    """
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
    """struct inet_diag_msg of each established TCP connection; OSError where the kernel does not support this."""
    order = sys.byteorder
    # struct inet_diag_req_v2: family, protocol, extensions, padding, states, and any socket.
    request = bytes((family, socket.IPPROTO_TCP, 0, 0)) + (1 << _ESTABLISHED).to_bytes(4, order) + bytes(48)
    head = (_HEADER + len(request)).to_bytes(4, order) + _SOCK_DIAG_BY_FAMILY.to_bytes(2, order)
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    try:
        link.settimeout(_KERNEL_TIMEOUT)
        link.send(head + _REQUEST_DUMP.to_bytes(2, order) + bytes(8) + request)
        while True:
            reply = link.recv(1 << 17)
            while reply:
                length, kind = int.from_bytes(reply[:4], order), int.from_bytes(reply[4:6], order)
                if kind == _DONE:
                    return
                if kind == _ERROR or length < _HEADER:
                    raise OSError("no sock_diag")
                yield reply[_HEADER:length]
                reply = reply[(length + 3) & ~3 :]
    finally:
        link.close()


class _Status(NamedTuple):
    """This tray's own row: its state, id -> connection, and a problem with the answer, empty for none."""

    state: str | None
    row: dict[int, str]
    problem: str


def _query_ctl(own: int, timeout: float, before: _Status) -> _Status:
    done = child.run(["nvidia-imex-ctl", "-N", "-j"], timeout)
    if done.timed_out:
        if timeout < _CTL_TIMEOUT and before.state is not None:
            return before  # cut short by the deadline, which is no fault of the ctl
        return before._replace(state=None, problem=f"nvidia-imex-ctl gave no answer within {timeout:.0f} s")
    try:
        row = status.parse_domain(done.stdout, own).own
    except status.StatusError as error:
        return _Status(None, {}, f"{error} ({reason_of(done)})")
    if row is None:
        return _Status(None, {}, "nvidia-imex-ctl has no row of this tray")
    return _Status(row.state, row.connections, "")


def _failure_of(settings: Settings, members: Sequence[tuple[str, str]], own: int, observed: _Status) -> Failure:
    """The failure of a wait that timed out."""
    if observed.problem:
        return Failure(
            f"{observed.problem} although the daemon runs; restart the daemon, and reboot the tray if it happens again"
        )
    if observed.state != "ready":
        word = observed.state or "unknown"
        return Failure(cause(f"the daemon is {word}, not ready, after {settings.wait:g} s; see its log"))
    found: dict[str, list[str]] = {}
    for number, (node, _line) in enumerate(members):
        word = observed.row.get(number) or "unknown"
        if number != own and word != "connected":
            found.setdefault(word, []).append(node)
    if "map_mismatch" in found:
        text = (
            f"started with another node list than this tray (!M!): {summarize(found['map_mismatch'])}; run the role"
            f" imex on all trays of clique {settings.clique}, which writes one list"
        )
    elif "version_mismatch" in found:
        text = (
            f"another version of IMEX than on this tray (!V!) runs on {summarize(found['version_mismatch'])}; install"
            " one version of driver and package"
        )
    else:
        parts = [f"{summarize(nodes)} {word.replace('_', ' ')}" for word, nodes in sorted(found.items())]
        text = (
            f"not connected to all trays of the job in clique {settings.clique} after {settings.wait:g} s:"
            f" {', '.join(parts)}; check there whether the tray is up, its prolog ran, and the IMEX ports are open"
        )
    return Failure(text, PEER)
