# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start IMEX on this tray and wait until it is connected to the members that were started with it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, HostError
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, peers, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts, Row, Unit
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import daemon
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.reporting import approval, read_record
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.tray import Tray, sha256_of

# The daemon handles SIGUSR1 once in 5 s.
_RECONNECT_SECONDS = 6.0


def start(tray: Tray, seconds: float, reload: bool) -> Row:
    """Approve the node list for this boot and start the unit, without waiting for other members.

    ``seconds``: how long to watch the start. Raises HostError.
    """
    sha256 = sha256_of(tray.desired.nodes_path)
    record = read_record()
    if not tray.host.check and (sha256 != tray.desired.sha256 or not record or record["sha256"] != sha256):
        raise HostError(
            f"{tray.desired.nodes_path} is not the node list of clique {tray.desired.clique}; find what else writes"
            " that file on this tray, then run the role again."
        )
    if record:
        tray.host.file(domain.START_APPROVAL, approval(record).encode(), quiet=True)
    state = _unit_state(tray.host)
    if state in ("active", "reloading"):
        if reload and tray.host.change("reload the TLS files (SIGUSR1)"):
            daemon.reconnect_peers()
        return {"started": False, "facts": None}
    if not tray.host.change(f"start {survey.UNIT}"):
        return {"started": True, "facts": None}
    tray.host.call("systemctl", "reset-failed", survey.UNIT, acts=True)
    tray.host.require("systemctl", "start", "--no-block", survey.UNIT)
    deadline = time.monotonic() + seconds
    while True:
        time.sleep(0.2)
        state = _unit_state(tray.host)
        if state == "active" or time.monotonic() >= deadline:
            break
        if state in ("failed", "inactive") and not _has_job(tray.host):
            break
    if state in ("failed", "inactive"):
        observed = tray.facts()
        raise StartFailed(_start_failure(tray.host), observed)
    return {"started": True, "facts": None}


def wait(tray: Tray, seconds: float, started: Sequence[str], reconnect: bool) -> Row:
    """Wait until this tray is ready and connected to the ``started`` members, at most ``seconds``.

    ``reconnect``: this run started the daemon, so no job uses it yet and it may get SIGUSR1, on which it connects
    to all peers at once. Otherwise it retries a peer that was not up only after 15, 31, 62, ... seconds.
    """
    signalled = time.monotonic()
    deadline = time.monotonic() + seconds
    pause = 0.3
    while True:
        observed = tray.facts()
        disconnected = peers.disconnected(observed, started)
        up = peers.is_up(observed, len(tray.desired.entries), started)
        if up or tray.host.check or time.monotonic() >= deadline or not _may_still_connect(observed):
            break
        if reconnect and observed["ready"] and disconnected and time.monotonic() - signalled > _RECONNECT_SECONDS:
            daemon.reconnect_peers()
            signalled = time.monotonic()
        time.sleep(min(pause, max(0.05, deadline - time.monotonic())))
        pause = min(pause * 1.5, 3.0)
    return {"facts": observed}


class StartFailed(HostError):
    """The unit did not start. ``facts``: the state of IMEX at that time."""

    def __init__(self, message: str, observed: Facts) -> None:
        super().__init__(message)
        self.facts = observed


def _start_failure(host: Host) -> str:
    """The reason by the check at boot, else where to find it."""
    journal = host.call("journalctl", "--unit", survey.UNIT, "--output=cat", "--lines=20", "--no-pager")
    lines = [line for line in journal.stdout.splitlines() if line.startswith("nvlink-imex:")]
    if lines:
        return lines[-1].partition(": ")[2]
    return f"{survey.UNIT} does not start; see journalctl -u {survey.UNIT} on this tray."


def _may_still_connect(observed: Facts) -> bool:
    """Whether waiting can help: not after the daemon ended, nor with different node lists or versions."""
    if not observed["running"]:
        unit: Unit = observed["unit"] or {}
        return unit.get("active") in ("activating", "reloading")
    return not any(peer["connection"] in ("map_mismatch", "version_mismatch") for peer in observed["peers"])


def _unit_state(host: Host) -> str:
    return host.call("systemctl", "is-active", survey.UNIT).stdout.strip()


def _has_job(host: Host) -> bool:
    job = host.call("systemctl", "show", "--property=Job", "--value", survey.UNIT).stdout.strip()
    return job not in ("", "0")
