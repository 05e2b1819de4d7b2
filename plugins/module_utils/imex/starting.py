# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX of this tray started, and watched until it sees the members that were started with it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, files, survey, verdict
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.host_changes import SECONDS, TrayError
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.tray import Tray, read_record, sha256_of

_PORT_SECONDS = 1.5
# The daemon heeds SIGUSR1 once in 5 s.
_CALL_SECONDS = 6.0


def start(here: Tray, seconds: float, reload: bool, outdated: Sequence[str]) -> dict[str, Any]:
    """Bless this list for this boot and start; nothing here waits for another member."""
    sha256 = sha256_of(here.want.nodes_path)
    record = read_record()
    if not here.check and (sha256 != here.want.sha256 or not record or record["sha256"] != sha256):
        raise TrayError(
            f"{here.want.nodes_path} is not the list of clique {here.want.clique}; find what else writes that file"
            " on this tray, then run the role again."
        )
    if record and list(outdated) != record.get("outdated"):
        here.hands.write(
            files.RECORD_FILE, domain.render_record(here.want, record["generation"], outdated), domain.PLAIN_MODE
        )
    if record:
        approval = f"{record['generation']} {record['sha256']}\n"
        here.hands.write(domain.START_APPROVAL, approval, domain.PLAIN_MODE, quiet=True)
    state = _unit_state()
    if state in ("active", "reloading"):
        if reload:
            here.hands.tell("reload the TLS files (SIGUSR1)")
            _signal(here, signal.SIGUSR1)
        return {"started": False, "facts": None}
    here.hands.tell(f"start {survey.UNIT}")
    if here.check:
        return {"started": True, "facts": None}
    child.run(["systemctl", "reset-failed", survey.UNIT], SECONDS)
    here.hands.systemctl("start", "--no-block", survey.UNIT)
    deadline = time.monotonic() + seconds
    while True:
        time.sleep(0.2)
        state = _unit_state()
        if state == "active" or time.monotonic() >= deadline:
            break
        if state in ("failed", "inactive") and not _has_job():
            break
    if state in ("failed", "inactive"):
        seen = here.facts()
        raise _NotStarted(_why_not_started(seen), seen)
    return {"started": True, "facts": None}


def wait(here: Tray, seconds: float, expect: Sequence[str], call: bool) -> dict[str, Any]:
    """Until this tray is READY and sees those of the list that this run has started, at most ``seconds``.

    ``call``: this run has started this daemon, so nobody uses it yet. What it called before a peer was there it
    calls again only after 15, 31, 62, ... seconds, but at once on SIGUSR1.
    """
    called = time.monotonic()
    deadline = time.monotonic() + seconds
    pause = 0.3
    while True:
        seen = here.facts()
        blind = verdict.unseen(seen, expect)
        settled = verdict.settled(seen, len(here.want.entries), expect)
        if settled or here.check or time.monotonic() >= deadline or not _may_change(seen):
            break
        if call and seen["ready"] and blind and time.monotonic() - called > _CALL_SECONDS:
            _signal(here, signal.SIGUSR1)
            called = time.monotonic()
        time.sleep(min(pause, max(0.05, deadline - time.monotonic())))
        pause = min(pause * 1.5, 3.0)
    ports = {}
    if not settled and not here.check and seen["running"]:
        silent = blind or list(expect)
        ports = closed_ports(silent, here.want.ports[:2])
    return {"facts": seen, "ports": ports, "running": seen["running"]}


def _signal(here: Tray, number: int) -> None:
    if not here.check:
        pid = (survey._unit() or {}).get("main_pid")
        if pid:
            os.kill(pid, number)


class _NotStarted(TrayError):
    """The unit did not start; ``facts`` of then."""

    def __init__(self, message: str, seen: dict[str, Any]) -> None:
        super().__init__(message)
        self.facts = seen


def _why_not_started(seen: Mapping[str, Any]) -> str:
    """The daemon's own reason, else that of the check before it, else where to look."""
    wrong = [note for note in seen["findings"] if note["severity"] == ERROR]
    known = [note["message"] for note in wrong if note["code"] not in ("imex_unit_failed", "imex_unit_down")]
    if known:
        return known[0]
    journal = child.run(["journalctl", "--unit", survey.UNIT, "--output=cat", "--lines=20", "--no-pager"], SECONDS)
    said = [line for line in journal.stdout.splitlines() if line.startswith("nvlink-imex:")]
    if said:
        return said[-1].partition(": ")[2]
    return (
        wrong[0]["message"] if wrong else f"{survey.UNIT} does not start; see journalctl -u {survey.UNIT} on this tray."
    )


def _may_change(seen: Mapping[str, Any]) -> bool:
    """Whether waiting can help: not for a daemon that has ended, nor for lists or versions that differ."""
    if not seen["running"]:
        return (seen["unit"] or {}).get("active") in ("activating", "reloading")
    return not any(peer["connection"] in ("map_mismatch", "version_mismatch") for peer in seen["peers"])


def closed_ports(hosts: Sequence[str], ports: Sequence[int]) -> dict[str, list[int]]:
    """host -> the ports of it that take no connection from here; of hosts of which at least one port is closed."""

    def probe(pair: tuple[str, int]) -> bool:
        try:
            socket.create_connection(pair, _PORT_SECONDS).close()
            return True
        except OSError:
            return False

    pairs = [(host, port) for host in hosts for port in ports]
    if not pairs:
        return {}
    with ThreadPoolExecutor(min(64, len(pairs))) as pool:
        is_open = list(pool.map(probe, pairs))
    found: dict[str, list[int]] = {}
    for (host, port), yes in zip(pairs, is_open):
        if not yes:
            found.setdefault(host, []).append(port)
    return found


def _unit_state() -> str:
    return child.run(["systemctl", "is-active", survey.UNIT], SECONDS).stdout.strip()


def _has_job() -> bool:
    return child.run(["systemctl", "show", "--property=Job", "--value", survey.UNIT], SECONDS).stdout.strip() not in (
        "",
        "0",
    )
