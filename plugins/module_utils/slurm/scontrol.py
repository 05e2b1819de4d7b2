# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what ``scontrol`` prints, and what a topology is; plugin_utils/slurm/topology_files.py has its files. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import shown_values

YAML = "yaml"
CONF = "conf"
FILE_NAMES = {YAML: "topology.yaml", CONF: "topology.conf"}
_REASON = re.compile(r" Reason=(.*?) \[([^\]\s]*@[^\]\s]*)\]")
HEADER = "# Written by rackscale.nvlink (slurm_topology) from the fabric file: changes by hand are overwritten."


class SlurmError(NvlinkError):
    """Slurm cannot be read, checked or changed; the message is one sentence with the remedy."""


@dataclass(frozen=True)
class Block:
    """One block: its name, its nodes one by one, and the hostlist that names them in a file (empty: a placeholder).

    group: the level above, whose blocks Slurm aggregates; clique: the clique that is split into this and other blocks,
    empty for a whole one. Both are known of desired blocks only, since no file has them.
    """

    name: str
    nodes: tuple[str, ...] = ()
    folded: str = ""
    group: str = ""
    clique: str = ""

    def hostlist(self) -> str:
        return self.folded or ",".join(self.nodes)


@dataclass(frozen=True)
class Topology:
    """One topology of a topology file.

    kind is block, tree, flat, ring, torus3d or none (Slurm prints an unset one so). Only ``block`` has
    fields; ``body`` is the parsed content of another kind. topology.conf has one topology, which
    Slurm calls ``default``.
    """

    name: str = "default"
    kind: str = "block"
    cluster_default: bool = True
    blocks: tuple[Block, ...] = ()
    block_sizes: tuple[int, ...] = ()
    body: Any = None

    def fingerprint(self) -> tuple[Any, ...]:
        """What Slurm compares: names, order, sizes and node sets, not how a hostlist is written."""
        return (
            self.name,
            self.kind,
            self.cluster_default,
            tuple((block.name, frozenset(block.nodes)) for block in self.blocks),
            self.block_sizes,
            json.dumps(self.body, sort_keys=True),
        )


@dataclass(frozen=True)
class ShownBlock:
    """One line of ``scontrol show topology``."""

    name: str
    nodes: tuple[str, ...]
    size: int | None
    aggregated: bool


def documents(topologies: Iterable[Topology]) -> list[dict[str, Any]]:
    """The topologies as maps, lists and texts, in the form of topology.yaml; ``topologies_of()`` is the inverse."""
    return [
        {
            "topology": topology.name,
            "cluster_default": str(topology.cluster_default).lower(),
            topology.kind: topology.body
            if topology.kind != "block"
            else {
                "block_sizes": list(topology.block_sizes),
                "blocks": [{"block": block.name, "nodes": block.hostlist()} for block in topology.blocks],
            },
        }
        for topology in topologies
    ]


def topologies_of(document: Any) -> list[Topology]:
    """The topologies of a parsed topology.yaml, whose scalars are texts; SlurmError where it is none."""
    if document in ("", None):
        return []
    if isinstance(document, dict):
        document = [document]  # slurmctld also reads a single topology, and a single block
    if not isinstance(document, list):
        raise SlurmError("topology.yaml is not a list of topologies: begin each with '- topology: NAME'.")
    return [_topology(item, f"Topology number {number} in topology.yaml") for number, item in enumerate(document, 1)]


# What data_convert_type() of Slurm reads as a boolean; a tilde or null is no value.
_TRUE = ("true", "t", "yes", "y", "on", "1")
_FALSE = ("false", "f", "no", "n", "off", "0", "null", "~")


def _topology(item: Any, where: str) -> Topology:
    if not isinstance(item, dict) or not isinstance(item.get("topology"), str):
        raise SlurmError(f"{where} is not a map with the key topology: name it.")
    default = str(item.get("cluster_default", "false")).lower() in _TRUE
    # show topoconf prints every kind of topology, unset ones as an empty map.
    kinds = {
        kind: value
        for kind, value in item.items()
        if kind not in ("topology", "cluster_default")
        and not (value in ({}, "", None) or (isinstance(value, str) and value.lower() in _FALSE))
    }
    if len(kinds) > 1:
        raise SlurmError(f"{where} has several kinds of topology ({', '.join(sorted(kinds))}): keep one.")
    if not kinds and item.get("flat") == {} and not item.keys() - {"topology", "cluster_default", "flat"}:
        kinds = {"flat": "true"}  # without options; next to other empty maps it is an unset kind of show topoconf
    if not kinds:
        return Topology(name=item["topology"], kind="none", cluster_default=default)
    kind, body = next(iter(kinds.items()))
    if kind != "block":
        return Topology(name=item["topology"], kind=kind, cluster_default=default, body=body)
    if not isinstance(body, dict) or not isinstance(body.get("blocks", []), (list, dict, str)):
        raise SlurmError(f"{where}, key block, is not a map with blocks: write block_sizes and blocks under it.")
    entries = body.get("blocks") or []
    blocks = []
    for entry in [entries] if isinstance(entries, dict) else entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("block"), str):
            raise SlurmError(f"{where}, key blocks, has an entry without the key block: name every block.")
        blocks.append(block_of(entry["block"], entry.get("nodes", ""), where))
    sizes = body.get("block_sizes") or []
    return Topology(
        name=item["topology"],
        cluster_default=default,
        blocks=tuple(blocks),
        block_sizes=sizes_of(sizes if isinstance(sizes, list) else [sizes], where),
    )


def block_of(name: str, nodes: Any, where: str) -> Block:
    if not isinstance(nodes, str):
        raise SlurmError(f"{where}, block {name}: nodes is not a hostlist: write it as text.")
    try:
        return Block(name, tuple(expand(nodes)), nodes)
    except HostlistError as error:
        raise SlurmError(f"{where}, block {name}: {error}") from error


def names_of(text: str) -> list[str]:
    """The names of a hostlist in a file or in what scontrol prints; none for (null), or where it cannot be read."""
    try:
        return expand("" if text == "(null)" else text)
    except HostlistError:
        return []


def sizes_of(values: Iterable[Any], where: str) -> tuple[int, ...]:
    try:
        return tuple(int(value) for value in values)
    except (TypeError, ValueError):
        raise SlurmError(f"{where} has block sizes that are not numbers: write whole numbers.") from None


_KEY = re.compile(r"([a-z]\w*):(?: +(.*))?\Z")
_ESCAPE = re.compile(r"\\(x..|u.{4}|U.{8}|.)")
_ESCAPES = dict(zip("0abtnvfre_NLP", "\0\a\b\t\n\v\f\r\x1b\xa0\x85\u2028\u2029"))


def parse_topoconf(text: str) -> list[Topology]:
    """What ``scontrol show topoconf`` prints: libyaml's block style. Every scalar stays text: a block may be ``true``.

    SlurmError where it is something else.
    """
    lines = [line for line in text.splitlines() if line.strip() not in ("", "---", "...") and line[0] != "%"]
    rows = [(len(line) - len(line.lstrip(" ")), line.strip(" ")) for line in reversed(lines)]  # the next one is last
    try:
        found = _printed_node(rows) if rows else None
    except (ValueError, OverflowError, RecursionError):
        found = ""
    if rows or found == "":
        line = rows[-1][1][:60] if rows else "a text"
        raise SlurmError(f"scontrol show topoconf cannot be read ({line}): check that scontrol is Slurm's own.")
    return topologies_of(found)


def _printed_node(rows: list[tuple[int, str]]) -> Any:
    """The node that begins on the next line; its lines are removed from the rows."""
    indent, line = rows[-1]
    if line.startswith("- "):
        items = []
        while rows and rows[-1][0] == indent and rows[-1][1].startswith("- "):
            inner = rows.pop()[1][2:]
            rows.append((indent + 2, inner.lstrip(" ")))
            items.append(_printed_node(rows))
        return items
    if not _KEY.match(line):
        return _printed_scalar(rows.pop()[1])
    found: dict[str, Any] = {}
    while rows and rows[-1][0] == indent and (key := _KEY.match(rows[-1][1])):
        rows.pop()
        value: Any = _printed_scalar(key[2] or "")
        if rows and not key[2]:
            below, begin = rows[-1][0], rows[-1][1][:2]
            # The items of a list are at the indentation of its key.
            if below > indent or (below == indent and begin == "- "):
                value = _printed_node(rows)
        found[key[1]] = value
    return found


def _printed_scalar(text: str) -> Any:
    if text in ("{}", "[]"):
        return {} if text == "{}" else []
    if text[:1] == "'":
        return text[1:-1].replace("''", "'")
    if text[:1] == '"':
        return _ESCAPE.sub(_unescaped, text[1:-1])
    return text


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code[1:], 16)) if code[0] in "xuU" and len(code) > 1 else _ESCAPES.get(code, code)


def parse_show_topology(text: str) -> list[ShownBlock]:
    """``scontrol show topology`` under topology/block; lines of another plugin (SwitchName=) are left out."""
    shown = []
    for line in text.splitlines():
        pairs = dict(shown_values(line))
        name = pairs.get("BlockName") or pairs.get("AggregatedBlock")
        if name is None:
            continue
        size = pairs.get("BlockSize", "")
        shown.append(
            ShownBlock(
                name,
                block_of(name, pairs.get("Nodes", ""), "scontrol show topology").nodes,
                int(size) if size.isdecimal() else None,
                "AggregatedBlock" in pairs,
            )
        )
    return shown


def parse_records(text: str) -> list[dict[str, str]]:
    """One-line records (``scontrol -o show nodes|partitions``) as maps; a value ends at white space, a reason later.

    ReasonBy is who set the reason, and when, as in ``root@2026-11-21T15:10:00``.

    Of equal keys the first counts: a reason, which a user wrote, may look like a key and its value.
    """
    return [_record(line) for line in text.splitlines() if line.strip()]


def _record(line: str) -> dict[str, str]:
    record: dict[str, str] = {}
    for key, value in shown_values(line):
        record.setdefault(key, value)
    if reason := _REASON.search(line):
        record["Reason"], record["ReasonBy"] = reason.groups()
    return record


def parse_config(text: str) -> dict[str, str]:
    """``scontrol show config``: settings in lower case, their values (empty for (null))."""
    settings = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() and " " not in key.strip():
            settings[key.strip().lower()] = "" if value.strip() == "(null)" else value.strip()
    return settings
