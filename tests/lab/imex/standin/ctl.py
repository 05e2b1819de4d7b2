# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-imex-ctl [-i IP PORT | -u SOCKET | -c CONFIG] -N|-n|-q|-s [-H] [-j] [-t ms]: questions to daemons."""

from __future__ import annotations

import json
import socket
import sys
import time

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


class Usage(Exception):
    pass


def parse(arguments):
    """{"mode": letter, "names", "json", "to": ("tcp", ip, port) | ("unix", path) | None, "config", "limit"}."""
    options = {"mode": "", "names": False, "json": False, "to": None, "config": config.CONFIG, "limit": None}
    words = list(arguments)
    try:
        while words:
            word = words.pop(0)
            if word in ("-n", "-N", "-q", "-s"):
                options["mode"] = word[1]
            elif word == "-H":
                options["names"] = True
                options["mode"] = options["mode"] or "N"
            elif word == "-j":
                options["json"] = True
            elif word == "-i":
                options["to"] = ("tcp", words.pop(0), int(words.pop(0)))
            elif word in ("-u", "--u"):
                options["to"] = ("unix", words.pop(0))
            elif word.startswith("--u="):
                options["to"] = ("unix", word[4:])
            elif word == "-c":
                options["config"] = words.pop(0)
            elif word == "-t":
                options["limit"] = int(words.pop(0)) / 1000
            else:
                raise Usage(f"{word}: not implemented by the stand-in")
    except (IndexError, ValueError):
        raise Usage("an option lacks its value") from None
    if not options["mode"]:
        raise Usage("nothing to do")
    return options


def main(arguments=None):
    try:
        options = parse(arguments or sys.argv[1:])
    except Usage as error:
        print(f"nvidia-imex-ctl: {error}", file=sys.stderr)
        return 1
    if hooks.read()["imex"] == "garbage":
        print("terminate called after throwing an instance of 'std::runtime_error'")
        return 0
    answer = hooks.captured(options["mode"] + ("j" if options["json"] else ""))
    if answer is not None:
        print(answer, end="", flush=True)
        return 0
    try:
        settings = config.read(options["config"])
        if options["to"] is None:
            options["to"] = _local(settings)
        if options["mode"] in "qs":
            return _state(options)
        entries = config.nodes(settings["IMEX_NODE_CONFIG_FILE"])
        return _domain(options, settings, entries)
    except config.ConfigError as error:
        print(error)
        return 255
    except BrokenPipeError:
        return 1


def _local(settings):
    if settings["IMEX_CMD_ENABLED"] != "1":
        return None
    if settings["IMEX_CMD_UNIX_DOMAIN_PATH"]:
        return ("unix", settings["IMEX_CMD_UNIX_DOMAIN_PATH"])
    return ("tcp", settings["IMEX_CMD_BIND_INTERFACE_IP"] or "127.0.0.1", config.number(settings, "IMEX_CMD_PORT"))


def _local_row(options):
    """The local daemon's own row, waited for as long as it takes; None without a daemon."""
    if options["to"] is None:
        return None
    try:
        if options["to"][0] == "unix":
            link = socket.socket(socket.AF_UNIX)
            link.connect(options["to"][1])
        else:
            link = socket.create_connection(options["to"][1:], 5)
        link.settimeout(options["limit"])
        with link, link.makefile("rwb") as stream:
            stream.write(b'{"ask": "row"}\n')
            stream.flush()
            return json.loads(stream.readline() or b"null")
    except (OSError, ValueError):
        return None


def _state(options):
    row = _local_row(options)
    if row is None:
        print("Query Status returned error code: 14")
        return 1
    print(row["status"], flush=True)
    deadline = time.monotonic() + (options["limit"] or 0)
    last = row["status"]
    while options["mode"] == "s" and time.monotonic() < deadline:
        time.sleep(0.2)
        row = _local_row(options)
        word = row["status"] if row else "UNAVAILABLE"
        if word != last:
            print(word, flush=True)
        last = word
    return 0


def _domain(options, settings, entries):
    deadline = time.monotonic() + (options["limit"] if options["limit"] is not None else 1e9)
    while True:
        own = _local_row(options)
        rows = _rows_of(entries, config.number(settings, "IMEX_CMD_PORT"), own)
        text = (
            _as_json(rows, entries, options["names"])
            if options["json"]
            else _as_text(rows, entries, options["names"], own)
        )
        print(text, flush=True)
        if options["mode"] == "N" or time.monotonic() >= deadline:
            return 0
        time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))


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


def _as_json(rows, entries, names):
    nodes = {}
    for number, entry in sorted(enumerate(entries), key=lambda item: str(item[0]), reverse=True):
        row = rows.get(number) or {"status": "UNAVAILABLE", "version": "", "hostName": ""}
        cells = _cells(rows, number, entries)
        nodes[str(number)] = {
            "status": row["status"],
            "host": entry,
            "connections": {
                str(other): {"host": entries[other], "status": cell, "changed": True} for other, cell in cells.items()
            },
            "changed": True,
            "version": row["version"],
            "hostName": row["hostName"] if names else "",
        }
    return json.dumps({"nodes": nodes, "timestamp": stamp(), "status": _domain_status(rows, entries)})


def _as_text(rows, entries, names, own):
    lines = [LEGEND, stamp(), "Nodes:"]
    mine = own["id"] if own else None
    for number, entry in enumerate(entries):
        row = rows.get(number) or {"status": "UNAVAILABLE", "version": "", "hostName": ""}
        mark, address = ("*", f"{entry} *") if number == mine else ("-", entry)
        line = f"Node #{number!s:<3} {mark} {address:<18} - {row['status']:<20} - Version: {row['version']}"
        lines.append(line + (f"   - Hostname: {row['hostName']}" if names else ""))
    ids = range(len(entries))
    lines += ["", " Nodes From\\To  " + "".join(f"{number!s:<4}" for number in ids).rstrip()]
    for number in ids:
        cells = _cells(rows, number, entries)
        lines.append(f"{number:>8}        " + "".join(f"{CELLS[cells[other]]:<4}" for other in ids).rstrip())
    return "\n".join([*lines, "", f"Domain State: {_domain_status(rows, entries)}"])
