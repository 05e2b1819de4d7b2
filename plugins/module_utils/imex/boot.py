# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check whether IMEX may start on this tray: nvidia-imex.service runs this before each start.

imex_domain installs this file unchanged as a program of the tray, so it imports only the standard library. A tray that
was off while its clique's node list changed would start with the old list, and then not connect to its peers (!M!)
until the whole clique is restarted. Every member offers its record (clique, generation and hash of its list) on a port;
this reads the records of the members in the tray's own list:

- Two have a higher generation, or the only other one has: exit 1, the unit stays off.
- A majority has the same list: exit 0. At the deadline one member with the same list is enough, unless members report
  another clique, or another list of the same generation, or one reports a higher generation.
- None has the same: exit 255, which fails the unit, and systemd starts it again by its Restart=.

A start by the role is approved in /run, which is cleared at boot: it does not wait, but a higher generation still
counts. A member may be compromised, so no single answer keeps this tray off against a majority, and an answer is
bounded in time, bytes, types and lengths.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import socket
import stat
import sys
import time
from typing import TypedDict


class _Written(TypedDict, total=False):
    """nodes: the path of the list. since: when it was written, in seconds since the epoch.

    channels: the minor numbers that the role created.
    """

    owner: str
    nodes: str
    since: float
    channels: list[int]


class Record(_Written):
    """The record of a node list; a peer reports the keys that are here."""

    clique: str
    generation: int
    sha256: str


STAY_OFF, TRY_AGAIN = 1, 255
_ROUND = 1.0
_PAUSE = 1.0
_MAX_BYTES = 65536
_MAX_NAME, _MAX_GENERATION = 255, 1 << 31
CHANNELS = "/dev/nvidia-caps-imex-channels"


def decide(own: Record, answers: dict[str, Record], members: int) -> tuple[str, str]:
    """Decide from the records of peers: (start|wait|uncertain|contested|stale, why).

    A peer of another clique may have moved, or be about to, which proves nothing but makes the list uncertain. One of
    several peers that alone reports a newer list, or another one of the same generation, contests the tray's list.

    ``own``: this tray's record. ``answers``: peer -> its record. ``members``: the number of lines in the list.
    """
    clique, generation = own["clique"], own["generation"]
    known = {peer: answer for peer, answer in sorted(answers.items()) if _is_count(answer.get("generation"))}
    agreeing = [peer for peer, answer in known.items() if _agrees(own, answer)]
    others = {peer: answer for peer, answer in known.items() if peer not in agreeing}
    moved = [
        f"{peer} (clique {answer.get('clique')})" for peer, answer in others.items() if answer.get("clique") != clique
    ]
    lists = {peer: answer["generation"] for peer, answer in others.items() if answer.get("clique") == clique}
    against = [
        f"{peer} has generation {number} of the list of clique {clique}, this tray has generation {generation}"
        for peer, number in lists.items()
        if number > generation
    ]
    differing = [peer for peer, number in lists.items() if number == generation]
    if len(agreeing) + 1 <= len(differing):
        against += [f"{peer} has another list of generation {generation} of clique {clique}" for peer in differing]
    if len(against) > 1 or (against and members == 2):
        return "stale", against[0]
    if (len(agreeing) + 1) * 2 > members:
        return "start", f"{len(agreeing)} of {members - 1} members have the same list"
    if against:
        return "contested", against[0]
    if moved:
        return "uncertain", f"members of its list are in another clique now: {', '.join(moved[:3])}"
    return "wait", f"{len(agreeing)} of {members - 1} members report the same list"


def check(record: str, approval: str, port: int, wait: float, unconfirmed: str = "stay_off") -> int:
    """The exit status; the reason goes to standard error, and so to the journal."""
    own = read_record(record)
    if own is None:
        return _end(STAY_OFF, f"{record} is not a record of a node list; run the role imex on this tray")
    nodes = own.get("nodes", "/etc/nvidia-imex/nodes_config.cfg")
    try:
        with open(nodes, "rb") as file:
            data = file.read()
    except OSError as error:
        return _end(STAY_OFF, f"{nodes} cannot be read ({error.strerror}); run the role imex on this tray")
    if hashlib.sha256(data).hexdigest() != own["sha256"]:
        return _end(
            STAY_OFF, f"{nodes} is not the node list that the role imex wrote; run the role on the whole clique"
        )
    entries = data.decode("utf-8", "replace").split()
    peers = [entry for entry in entries if not is_local(entry)]
    approved = _read(approval).split() == [str(own["generation"]), own["sha256"]]
    deadline = time.monotonic() + wait
    while peers:
        answers = query(peers, port)
        verdict, why = decide(own, answers, len(peers) + 1)
        if verdict == "stale":
            return _end(STAY_OFF, f"{why}; run the role imex on this tray, which updates the list")
        if verdict == "start" or (approved and verdict != "contested"):
            break
        if time.monotonic() >= deadline:
            if verdict in ("uncertain", "contested"):
                return _end(TRY_AGAIN, f"{why}; run the role imex on this tray; until then systemd retries")
            if unconfirmed == "start" or any(_agrees(own, answer) for answer in answers.values()):
                break
            return _end(
                TRY_AGAIN,
                f"none of {len(peers)} other members confirmed within {wait:g} s that the list of clique"
                f" {own['clique']} is still generation {own['generation']}; systemd retries",
            )
        time.sleep(_PAUSE)
    return 0


def query(peers: list[str], port: int) -> dict[str, Record]:
    """peer -> clique, generation and sha256 of its record, of the peers that answer within a second."""
    answers = ask([(peer, port) for peer in peers], _ROUND, _MAX_BYTES)
    records = {peer: parse_record(data.decode("utf-8", "replace")) for (peer, _port), data in answers.items()}
    return {
        peer: {"clique": record["clique"], "generation": record["generation"], "sha256": record["sha256"]}
        for peer, record in records.items()
        if record
    }


def ask(ends: list[tuple[str, int]], seconds: float, size: int = 0) -> dict[tuple[str, int], bytes]:
    """(host, port) -> at most ``size`` bytes that it sends in time, of those that accept a connection.

    All are asked concurrently.
    """

    def one(end: tuple[str, int]) -> bytes | None:
        deadline, data = time.monotonic() + seconds, b""
        try:
            with socket.create_connection(end, seconds) as link:
                while len(data) < size:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return None
                    link.settimeout(left)
                    part = link.recv(4096)
                    if not part:
                        break
                    data += part
        except OSError:
            return None
        return data

    with concurrent.futures.ThreadPoolExecutor(max(1, min(64, len(ends)))) as pool:
        return {end: data for end, data in zip(ends, pool.map(one, ends)) if data is not None}


def _agrees(own: Record, answer: Record) -> bool:
    """Whether a peer has the same list: of the same generation, or under the new name of a renamed clique."""
    renamed = answer.get("clique") != own["clique"]
    return answer.get("sha256") == own["sha256"] and (renamed or answer.get("generation") == own["generation"])


def is_local(entry: str) -> bool:
    """Whether the entry is an address of this host: only such an address can be bound."""
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(entry, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as bound:
            bound.bind(address)
        return True
    except OSError:
        return False


def read_record(path: str) -> Record | None:
    return parse_record(_read(path))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_GENERATION


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_NAME and value.isprintable()


def parse_record(text: str) -> Record | None:
    """Parse a record; None for any other text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    sound = isinstance(data, dict) and _is_name(data.get("clique")) and _is_name(data.get("sha256"))
    return data if sound and _is_count(data.get("generation")) else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return ""


def _end(status: int, why: str) -> int:
    sys.stderr.write(f"nvlink-imex: IMEX is not started: {why}.\n")
    return status


def major_of_channels(proc_devices: str) -> int | None:
    """The driver's major number for channels in this boot; None where it has none."""
    found = re.search(r"(?m)^[ \t]*([0-9]+)[ \t]+nvidia-caps-imex-channels[ \t]*$", _read(proc_devices))
    return int(found.group(1)) if found else None


def make_channels(minors: list[int], major: int) -> list[str]:
    """Create the devices that are missing or have another major or mode; their names."""
    made = []
    for minor in minors:
        name = f"channel{minor}"
        path, device = os.path.join(CHANNELS, name), os.makedev(major, minor)
        status = os.lstat(path) if os.path.lexists(path) else None
        if status and (status.st_mode, status.st_rdev) == (stat.S_IFCHR | 0o666, device):
            continue
        made.append(name)
        os.makedirs(CHANNELS, mode=0o755, exist_ok=True)
        if status:
            os.unlink(path)
        os.mknod(path, 0o666 | stat.S_IFCHR, device)
        os.chmod(path, 0o666)
    return made


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="nvlink-imex", description="Checks before nvidia-imex starts on a tray.")
    commands = parser.add_subparsers(dest="command", required=True)
    may_start = commands.add_parser("check", help="0: start; 1: stay off; 255: no member answered, retry")
    may_start.add_argument("--record", default="/etc/nvidia-imex/nvlink.json")
    may_start.add_argument("--approval", default="/run/nvlink-imex/start-approved")
    may_start.add_argument("--port", type=int, default=50006)
    may_start.add_argument("--wait", type=float, default=30.0)
    may_start.add_argument("--unconfirmed", choices=("stay_off", "start"), default="stay_off")
    channels = commands.add_parser("channels", help="create channel devices with the major of this boot")
    channels.add_argument("--proc-devices", default="/proc/devices")
    channels.add_argument("minors", nargs="+", type=int)
    options = parser.parse_args(arguments)
    if options.command == "check":
        return check(options.record, options.approval, options.port, options.wait, options.unconfirmed)
    major = major_of_channels(options.proc_devices)
    if major is None:
        sys.stderr.write("nvlink-imex: the driver has no IMEX channels, so none is created.\n")
        return 0
    make_channels(options.minors, major)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
