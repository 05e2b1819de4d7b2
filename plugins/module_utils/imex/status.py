# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the output of nvidia-imex-ctl: -q, -N -j and the table of -N, of the releases 570 to 595.

Words are returned in lower case. Unknown words of other releases are kept, unknown keys and lines are ignored. Only
output without any known structure is an error.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.files import ImexError

STATES = (
    "initializing",
    "starting_auth_server",
    "waiting_for_peers",
    "waiting_for_recovery",
    "init_gpu",
    "ready",
    "shutting_down",
    "unavailable",
)
DOMAIN_STATES = ("up", "degraded", "down")
# The letters of the table. Of the JSON's words connected and invalid are proven, the others follow the legend.
CELLS = {
    "C": "connected",
    "N": "never_connected",
    "R": "recovering",
    "D": "disconnected",
    "I": "invalid",
    "A": "authenticating",
    "!V!": "version_mismatch",
    "!M!": "map_mismatch",
    "!A!": "authentication_error",
}
MAX_NODES = 4096
_MAX_WORD = 48
NOT_CONFIGURED = "Failed to read node configuration file"

_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,253}")
_VERSION = re.compile(r"NO_GPU|[0-9]{1,6}(\.[0-9A-Za-z]{1,16}){0,5}")
_STAMP = re.compile(r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4} [0-9:.]{5,15}")
_NODE = re.compile(
    r"Node\s+#(?P<id>[0-9]{1,6})\s+(?P<mark>[-*])\s+(?P<host>\S+)(?:\s+\((?P<aka>[^)]*)\))?(?:\s+\*)?\s+-\s+(?P<rest>.*)\Z"
)
_MATRIX = re.compile(r"\s*Nodes From.To\s")
_ROW = re.compile(r"\s*([0-9]{1,6})((?:\s+(?:![A-Z]!|[A-Z?]))+)\s*\Z")


class StatusError(ImexError):
    """The output of nvidia-imex-ctl cannot be parsed."""


class Node(NamedTuple):
    """One row. Only the row of the host itself is reliable, that of another may be filled in from the list."""

    id: int
    host: str | None
    host_name: str | None
    state: str | None
    version: str | None
    connections: dict[int, str]


class Domain(NamedTuple):
    """``local`` is the id that the table marks with a star, None where nothing is marked (all JSON)."""

    status: str | None
    timestamp: str | None
    nodes: dict[int, Node]
    local: int | None = None


def parse_state(text: str) -> str | None:
    """The state that -q prints; None for any other text, as that of an error."""
    words = text.split()
    word = words[0] if len(words) == 1 else ""
    return word.lower() if re.fullmatch(r"[A-Z][A-Z_]{2,39}", word) else None


def parse_domain(text: str) -> Domain:
    """Parse the output of -N with or without -j. Raises StatusError where it is neither."""
    return parse_json(text) if text.lstrip().startswith("{") else parse_table(text)


def parse_row(text: str, number: int) -> tuple[str | None, dict[int, str]] | None:
    """State and connections of one node in the output of -N with or without -j; None where it has no row."""
    if not text.lstrip().startswith("{"):
        node = parse_table(text).nodes.get(number)
        return (node.state, node.connections) if node else None
    row = _read_json(text)["nodes"].get(str(number))
    return (_word(row.get("status")), _connections(row.get("connections"))) if isinstance(row, dict) else None


def _read_json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise StatusError("nvidia-imex-ctl -N -j printed no JSON") from None
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), dict):
        raise StatusError("nvidia-imex-ctl -N -j printed JSON without nodes")
    return data


def is_same_version(one: str, other: str) -> bool:
    """Whether two versions are equal in the parts of the shorter one: R570's ctl prints 570.172 for 570.172.08.

    At least two numbers must be equal: the first alone is the branch.
    """
    pair = one.split("."), other.split(".")
    known = min(map(len, pair))
    return one == other or (known > 1 and pair[0][:known] == pair[1][:known])


def parse_json(text: str) -> Domain:
    data = _read_json(text)
    nodes: dict[int, Node] = {}
    for key, value in data["nodes"].items():
        number = _number(key)
        if number is not None and isinstance(value, dict):
            nodes[number] = Node(
                number,
                _matching(_HOST, value.get("host")),
                _matching(_HOST, value.get("hostName")),
                _word(value.get("status")),
                _matching(_VERSION, value.get("version")),
                _connections(value.get("connections")),
            )
    return Domain(_word(data.get("status")), _matching(_STAMP, data.get("timestamp")), nodes)


def parse_table(text: str) -> Domain:
    """Parse the table: a legend, the time, one line a node, the matrix, the domain's state."""
    status = timestamp = local = None
    nodes: dict[int, Node] = {}
    columns: list[int] | None = None
    for line in text.splitlines():
        found = _NODE.match(line.strip())
        if found:
            number = int(found.group("id"))
            if number >= MAX_NODES:
                continue
            nodes[number] = _node_line(number, found)
            local = number if found.group("mark") == "*" else local
        elif _MATRIX.match(line):
            columns = [int(word) for word in line.split()[2:] if word.isdecimal() and word.isascii() and len(word) < 7]
        elif line.strip().startswith("Domain State:"):
            status, columns = _word(line.partition(":")[2].strip()), None
        elif columns is not None:
            row = _ROW.match(line)
            if row and int(row.group(1)) in nodes:
                cells = (CELLS.get(cell, cell.lower()) for cell in row.group(2).split())
                nodes[int(row.group(1))].connections.update(zip(columns, cells))
        elif _STAMP.fullmatch(line.strip()):
            timestamp = line.strip()
    if not nodes and status is None:
        raise StatusError("nvidia-imex-ctl -N printed no table")
    return Domain(status, timestamp, nodes, local)


def _node_line(number: int, found: re.Match[str]) -> Node:
    """The state is first, then parts with a name of their own: Version, Hostname and others."""
    # Not by a regular expression, whose time would grow with the square of a run of blanks.
    state, *parts = " ".join(found.group("rest").split()).split(" - ")
    named = {name.strip().lower(): value.strip(" -") for name, _colon, value in (part.partition(":") for part in parts)}
    return Node(
        number,
        _matching(_HOST, found.group("host")),
        _matching(_HOST, named.get("hostname") or found.group("aka")),
        _word(state.partition("- Version")[0].strip(" -")),
        _matching(_VERSION, named.get("version")),
        {},
    )


def _connections(value: Any) -> dict[int, str]:
    found: dict[int, str] = {}
    for key, cell in value.items() if isinstance(value, dict) else ():
        number = _number(key)
        word = _connection(cell.get("status") if isinstance(cell, dict) else cell)
        if number is not None and word is not None:
            found[number] = word
    return found


def _connection(value: Any) -> str | None:
    """One word for a connection, however a release writes a mismatch."""
    word = _word(value)
    if word is None or word in CELLS.values():
        return word
    if "version" in word and "mismatch" in word:
        return "version_mismatch"
    if "mismatch" in word and ("map" in word or "config" in word):
        return "map_mismatch"
    return "authentication_error" if word.startswith("auth") and ("error" in word or "fail" in word) else word


def _word(value: Any) -> str | None:
    if not isinstance(value, str) or not value.isascii() or len(value) > _MAX_WORD:
        return None
    if not value[:1].isalpha() or not value.replace("_", "").replace(" ", "").isalnum():
        return None
    word = value.strip().replace(" ", "_").lower()
    while "__" in word:
        word = word.replace("__", "_")
    return word


def _matching(pattern: re.Pattern[str], value: Any) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _number(key: Any) -> int | None:
    text = str(key)
    plain = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_NODES)) + 2
    return int(text) if plain and int(text) < MAX_NODES else None
