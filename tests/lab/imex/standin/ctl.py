# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-imex-ctl [-c CONFIG] -N|-q [-H] [-j], or --version: questions to daemons."""

from __future__ import annotations

import getopt
import json
import socket
import sys

from . import config, hooks, wire
from .daemon import stamp

CELLS = {
    "CONNECTED": "C",
    "NEVER_CONNECTED": "N",
    "RECOVERING": "R",
    "DISCONNECTED": "D",
    "INVALID": "I",
    "AUTHENTICATING": "A",
    "VERSION_MISMATCH": "!V!",
    "NODE_MAP_MISMATCH": "!M!",
}
LEGEND = """\
Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
N - Never Connected
R - Recovering - Connection was lost, but clean up has not yet been triggered.
D - Disconnected - Connection was lost, and clean up has been triggreed.
A - Authenticating - If GSSAPI enabled, client has initiated mutual authentication.
!V! - Version mismatch, communication disabled.
!M! - Node map mismatch, communication disabled.
C - Connected - Ready for operation
"""
PEER_SECONDS = 2.0


def main(arguments=None):
    try:
        options = dict(getopt.getopt(arguments or sys.argv[1:], "c:Nqj", ["version"])[0])
    except getopt.GetoptError as error:
        print(f"nvidia-imex-ctl: {error}, or the stand-in does not implement it", file=sys.stderr)
        return 1
    if "--version" in options:
        print(f"nvidia-imex-ctl version is: {hooks.version()}")
        return 0
    as_json, mode = "-j" in options, "q" if "-q" in options else "N"
    answer = hooks.captured(mode + "j" * as_json)
    if answer is not None:
        print(answer, end="", flush=True)
        return 0
    try:
        settings = config.read(options.get("-c", config.CONFIG))
        entries = config.nodes(settings["IMEX_NODE_CONFIG_FILE"]) if mode == "N" else []
        own = _local_row(settings)
        if mode == "q":
            print(own["status"] if own else "Query Status returned error code: 14")
            return 0 if own else 1
        rows = _rows_of(entries, config.number(settings, "IMEX_CMD_PORT"), own)
        print(_as_json(rows, entries) if as_json else _as_text(rows, entries, own), flush=True)
        return 0
    except config.ConfigError as error:
        print(error)
        return 255
    except BrokenPipeError:
        return 1


def _local_row(settings):
    """The local daemon's own row, waited for as long as it takes; None without a daemon."""
    if settings["IMEX_CMD_ENABLED"] != "1":
        return None
    path = settings["IMEX_CMD_UNIX_DOMAIN_PATH"]
    try:
        if path:
            link = socket.socket(socket.AF_UNIX)
            link.connect(path)
        else:
            link = socket.create_connection(("127.0.0.1", config.number(settings, "IMEX_CMD_PORT")), 5)
        link.settimeout(None)
        with link, link.makefile("rwb") as stream:
            stream.write(b'{"ask": "row"}\n')
            stream.flush()
            return json.loads(stream.readline() or b"null")
    except (OSError, ValueError):
        return None


def _rows_of(entries, port, own):
    """Node id -> its own row; the ids of those that did not answer in time are missing."""
    loop, rows, open_lines = wire.Loop(), {}, set()
    if own and own["id"] is not None:
        rows[own["id"]] = own

    def done(line):
        line.close()
        open_lines.discard(line)
        loop.running = bool(open_lines)

    def ask(number, entry):
        address = config.resolve(entry)
        sock = address and wire.dial(address, port)
        if sock:

            def answered(line, row):
                rows[number] = row
                done(line)

            open_lines.add(
                wire.Line(loop, sock, answered, done, on_open=lambda line: line.send({"ask": "row"}), connecting=True)
            )

    for number, entry in enumerate(entries):
        if number not in rows:
            ask(number, entry)
    loop.later(PEER_SECONDS, lambda: setattr(loop, "running", False))
    loop.running = bool(open_lines)
    loop.run()
    return rows


def _cells(rows, number, entries):
    """The row of a node; one that did not answer is built from the list alone."""
    row = rows.get(number)
    known = row["connections"] if row else {}
    return {other: known.get(str(other), "INVALID") for other in range(len(entries))}


def _domain_status(rows, entries):
    ready = [number for number in range(len(entries)) if rows.get(number, {}).get("status") == "READY"]
    if not ready:
        return "DOWN"
    whole = all(cell == "CONNECTED" for number in ready for cell in _cells(rows, number, entries).values())
    return "UP" if whole and len(ready) == len(entries) else "DEGRADED"


# The row of a member that is down.
ABSENT = {"status": "UNAVAILABLE", "version": ""}


def _as_json(rows, entries):
    nodes = {}
    for number, entry in sorted(enumerate(entries), key=lambda item: str(item[0]), reverse=True):
        row = rows.get(number) or ABSENT
        cells = _cells(rows, number, entries)
        nodes[str(number)] = {
            "status": row["status"],
            "host": entry,
            "connections": {
                str(other): {"host": entries[other], "status": cell, "changed": True} for other, cell in cells.items()
            },
            "changed": row is not ABSENT,
            "version": row["version"],
            # Of a member that is down; otherwise only -H prints it.
            "hostName": "N/A" if row is ABSENT else "",
        }
    return json.dumps({"nodes": nodes, "timestamp": stamp(), "status": _domain_status(rows, entries)})


def _as_text(rows, entries, own):
    lines = [LEGEND, stamp(), "Nodes:"]
    mine = own["id"] if own else None
    for number, entry in enumerate(entries):
        row = rows.get(number) or ABSENT
        mark, address = ("*", f"{entry} *") if number == mine else ("-", entry)
        lines.append(f"Node #{number!s:<3} {mark} {address:<18} - {row['status']:<20} - Version: {row['version']}")
    ids = range(len(entries))
    lines += ["", " Nodes From\\To  " + "".join(f"{number!s:<4}" for number in ids).rstrip()]
    for number in ids:
        cells = _cells(rows, number, entries)
        lines.append(f"{number:>8}        " + "".join(f"{CELLS[cells[other]]:<4}" for other in ids).rstrip())
    return "\n".join([*lines, "", f"Domain State: {_domain_status(rows, entries)}"])
