# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait in the prolog until its tray is ready and connected to every tray of the job in its clique."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, status
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.daemon import (
    daemons,
    reconnect_peers,
    start_daemon,
    stop_daemon,
    with_log,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.state import (
    ACTIVE,
    CLIQUE,
    DAEMON,
    PEER,
    TRAY,
    Failure,
    Job,
    Settings,
    state_of,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

# nvidia-imex-ctl answers much faster, also with an unreachable tray; one that hangs may end this much after the wait.
_CTL_TIMEOUT = 6.0
# A daemon retries a peer that was not up after 15, 31, 62 s; on SIGUSR1 it reconnects at once.
_FIRST_RECONNECT = 4.0
# Daemons with different lists connect only after both restarted, so both must be down at the same time.
_MISMATCH_PAUSE = 3.0
# Between two queries of the ctl, which asks every member.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5


def wait_for_peers(settings: Settings, job: Job, members: Sequence[tuple[str, str]], deadline: float) -> None:
    """Wait until this tray's row is READY, and CONNECTED for every member. Raises Failure.

    On SIGUSR1 the daemon reconnects to a member that was late. A member with another list may still have the daemon of
    an earlier job: then this daemon restarts, with a pause in which the other restarts too. A job that has left its
    trays meanwhile, because a tray at fault requeued it, ends the wait.
    """
    own = [node for node, _line in members].index(job.node)
    pause, reconnect, started, observed = _FIRST_PAUSE, _FIRST_RECONNECT, time.monotonic(), _Status(None, {}, "")
    while True:
        if time.monotonic() >= deadline:
            raise _failure_of(settings, members, own, observed)
        observed = _query_ctl(own)
        connections = {observed.row.get(number) for number in range(len(members)) if number != own}
        age = time.monotonic() - started
        if observed.state == "ready":
            if connections <= {"connected"}:
                return
            if "map_mismatch" in connections and deadline - time.monotonic() > 2 * _MISMATCH_PAUSE:
                stop_daemon(settings)
                time.sleep(_MISMATCH_PAUSE)
                start_daemon(deadline)
                pause, reconnect, started = _FIRST_PAUSE, _FIRST_RECONNECT, time.monotonic()
                continue
            if "version_mismatch" in connections and age > _MISMATCH_PAUSE:
                raise _failure_of(settings, members, own, observed)
            if age > reconnect:
                reconnect = 2 * reconnect + 2
                if state_of(job) not in ACTIVE:
                    raise Failure("the job ended, or another of its trays requeued it, during the wait", PEER)
                reconnect_peers()
        elif observed.state is None and not daemons():
            raise Failure(with_log(f"{DAEMON} ended right after its start"))
        time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
        pause = min(pause * 1.3, _LONGEST_PAUSE)


class _Status(NamedTuple):
    """This tray's own row: its state, id -> connection, and a problem with the answer, empty for none."""

    state: str | None
    row: dict[int, str]
    problem: str


def _query_ctl(own: int) -> _Status:
    done = child.run(["nvidia-imex-ctl", "-N", "-j"], _CTL_TIMEOUT)
    if done.timed_out:
        return _Status(None, {}, f"nvidia-imex-ctl gave no answer within {_CTL_TIMEOUT:g} s")
    try:
        row = status.parse_domain(done.stdout, own).own
    except status.StatusError as error:
        return _Status(None, {}, f"{error} ({done.reason})")
    if row is None:
        return _Status(None, {}, "nvidia-imex-ctl has no row of this tray")
    return _Status(row.state, row.connections, "")


def _failure_of(settings: Settings, members: Sequence[tuple[str, str]], own: int, observed: _Status) -> Failure:
    """The failure of a wait that timed out."""
    if observed.problem:
        # -q asks this tray's daemon alone, so what peers answer cannot put this tray at fault.
        done = child.run(["nvidia-imex-ctl", "-q"], _CTL_TIMEOUT)
        return Failure(
            f"{observed.problem} although the daemon runs; restart the daemon, and reboot the tray if it happens again",
            PEER if status.parse_state(done.stdout) == "ready" else TRAY,
        )
    if observed.state != "ready":
        word = observed.state or "unknown"
        fault = PEER if word.startswith("waiting_for_") else TRAY
        return Failure(with_log(f"the daemon is {word}, not ready, after {settings.wait:g} s"), fault)
    found: dict[str, list[str]] = {}
    missing: dict[str, str] = {}
    for number, (node, line) in enumerate(members):
        word = observed.row.get(number) or "unknown"
        if number != own and word != "connected":
            found.setdefault(word, []).append(node)
            missing[node] = line
    others = outdated(settings, missing)
    if others and _is_outdated(settings):
        return Failure(
            f"most trays of clique {settings.clique} have a newer list of its members than this tray, which missed a"
            " run of the role imex; run it on this tray"
        )
    if others:
        # The other may be right, so neither tray is at fault.
        return Failure(
            f"{summarize(others)} and this tray have different members of clique {settings.clique}"
            " (nvlink-job.json), because a run of the role imex missed one of them; run it on the whole clique",
            CLIQUE,
        )
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


def outdated(settings: Settings, trays: Mapping[str, str]) -> list[str]:
    """The trays that offer another list of the clique's members; ``trays``: node -> its address."""
    offers, ours = boot.query(list(trays.values()), settings.list_port), (settings.clique, settings.sha256)
    found = {node: offers.get(address) for node, address in trays.items()}
    return [node for node, theirs in found.items() if theirs and (theirs["clique"], theirs["sha256"]) != ours]


def _is_outdated(settings: Settings) -> bool:
    """Whether most members of the clique offer one newer list: no single tray's answer can put this one at fault."""
    offers = boot.query([address for _node, address in settings.members], settings.list_port).values()
    newer = Counter(
        offer["sha256"]
        for offer in offers
        if offer["clique"] == settings.clique and offer["generation"] > settings.generation
    )
    return 2 * max(newer.values(), default=0) > len(settings.members)
