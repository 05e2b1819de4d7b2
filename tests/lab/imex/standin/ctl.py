# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-imex-ctl [-c CONFIG] -N -j|-q, or --version: questions to daemons."""

from __future__ import annotations

import contextlib
import getopt
import json
import socket
import sys
import threading
import time

from . import config, hooks

PEER_SECONDS = 2.0
# The row of a member that is down.
ABSENT = {"status": "UNAVAILABLE", "version": "", "connections": {}}


def main(arguments=None):
    try:
        options = dict(getopt.getopt(arguments or sys.argv[1:], "c:Nqj", ["version"])[0])
    except getopt.GetoptError as error:
        print(f"nvidia-imex-ctl: {error}, or the stand-in does not implement it", file=sys.stderr)
        return 1
    if "--version" in options:
        print(f"nvidia-imex-ctl version is: {hooks.version()}")
        return 0
    mode = "q" if "-q" in options else "N" + "j" * ("-j" in options)
    answer = hooks.captured(mode)
    if answer is not None:
        print(answer, end="", flush=True)
        return 0
    if mode == "N":
        print("nvidia-imex-ctl: the stand-in prints the domain as JSON only, by -N -j", file=sys.stderr)
        return 1
    try:
        settings = config.read(options.get("-c", config.CONFIG))
        entries = config.nodes(settings["IMEX_NODE_CONFIG_FILE"]) if mode == "Nj" else []
        own = _local_row(settings)
        if mode == "q":
            print(own["status"] if own else "Query Status returned error code: 14")
            return 0 if own else 1
        rows = _rows_of(entries, int(settings["IMEX_CMD_PORT"]), own)
        print(_as_json(rows, entries), flush=True)
        return 0
    except config.ConfigError as error:
        print(error)
        return 255
    except BrokenPipeError:
        return 1


def _row(link):
    """A daemon's own row, by a connection to its command service."""
    with link, link.makefile("rwb") as stream:
        stream.write(b"row\n")
        stream.flush()
        return json.loads(stream.readline())


def _local_row(settings):
    """The row of this host's daemon, waited for as long as it takes; None without a daemon."""
    if settings["IMEX_CMD_ENABLED"] != "1":
        return None
    try:
        if settings["IMEX_CMD_UNIX_DOMAIN_PATH"]:
            link = socket.socket(socket.AF_UNIX)
            link.connect(settings["IMEX_CMD_UNIX_DOMAIN_PATH"])
        else:
            link = socket.create_connection(("127.0.0.1", int(settings["IMEX_CMD_PORT"])), 5)
            link.settimeout(None)
        return _row(link)
    except (OSError, ValueError):
        return None


def _rows_of(entries, port, own):
    """Node id -> its own row; the ids of those that did not answer in time are missing."""
    rows = {own["id"]: own} if own else {}

    def ask(number, entry):
        with contextlib.suppress(OSError, ValueError):
            rows[number] = _row(socket.create_connection((entry, port), PEER_SECONDS))

    deadline = time.monotonic() + PEER_SECONDS
    others = [node for node in enumerate(entries) if node[0] not in rows]
    threads = [threading.Thread(target=ask, args=node, daemon=True) for node in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(rows)


def _as_json(rows, entries):
    nodes, ids = {}, range(len(entries))
    for number in ids:
        row = rows.get(number, ABSENT)
        cells = [row["connections"].get(str(other), "INVALID") for other in ids]
        nodes[str(number)] = {
            "status": row["status"],
            "host": entries[number],
            "connections": {
                str(other): {"host": entries[other], "status": cells[other], "changed": True} for other in ids
            },
            "changed": row is not ABSENT,
            "version": row["version"],
            # Of a member that is down; otherwise only -H prints it.
            "hostName": "N/A" if row is ABSENT else "",
        }
    ready = [node for node in nodes.values() if node["status"] == "READY"]
    cells = {cell["status"] for node in ready for cell in node["connections"].values()}
    up = "UP" if len(ready) == len(entries) and cells == {"CONNECTED"} else "DEGRADED"
    return json.dumps({"nodes": nodes, "timestamp": hooks.stamp(), "status": up if ready else "DOWN"})
