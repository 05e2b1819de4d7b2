# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write and parse Slurm's topology files and the output of ``scontrol``, without any library.

Private to this collection; it may change in any release. Python 3.9, standard library only.

``render`` and ``parse`` are inverse to each other for every topology that passes the linter. The YAML parser supports
block style, quoted scalars and short flow lists: what this module writes, what ``scontrol show topoconf`` prints and
what people write by hand. It keeps every scalar as text, since Slurm prints a block named ``true`` or ``007`` unquoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import (
    key_values,
    logical_lines,
    shown_values,
)

YAML = "yaml"
CONF = "conf"
FILE_NAMES = {YAML: "topology.yaml", CONF: "topology.conf"}
HEADER = "# Written by rackscale.nvlink (slurm_topology) from the fabric file: changes by hand are overwritten."
_OWN = "# Other topologies of rackscale.nvlink: "


class SlurmError(NvlinkError):
    """Slurm cannot be read, checked or changed; the message is one sentence with the remedy."""


@dataclass(frozen=True)
class Block:
    """One block: its name, its nodes one by one, and the hostlist that names them in a file (empty: a placeholder)."""

    name: str
    nodes: tuple[str, ...] = ()
    folded: str = ""

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


# --------------------------------------------------------------------------------------------------------- writing


def render(topologies: Sequence[Topology], style: str, own: Sequence[str] = ()) -> str:
    """The text of topology.yaml (style yaml: any number of topologies) or topology.conf (style conf: exactly one).

    own: the names of the other topologies of this collection, which own_topologies() reads.
    """
    if style == YAML:
        return render_yaml(topologies, own)
    if len(topologies) != 1:
        raise SlurmError(f"topology.conf has one topology, not {len(topologies)}: use topology.yaml (Slurm 25.05).")
    return render_conf(topologies[0])


def render_conf(topology: Topology) -> str:
    lines = [HEADER]
    for block in topology.blocks:
        hostlist = block.hostlist()
        lines.append(f"BlockName={block.name} Nodes={hostlist}" if hostlist else f"BlockName={block.name}")
    if topology.block_sizes:
        lines.append("BlockSizes=" + ",".join(str(size) for size in topology.block_sizes))
    return "\n".join(lines) + "\n"


def own_topologies(text: str) -> list[str]:
    """The other topologies that this collection has written, from the header of the file."""
    for line in text.splitlines():
        if line.startswith(_OWN):
            try:
                names = json.loads(line[len(_OWN) :])
            except ValueError:
                return []
            return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return []


def render_yaml(topologies: Sequence[Topology], own: Sequence[str] = ()) -> str:
    lines = [HEADER, *([_OWN + json.dumps(sorted(own))] if own else []), "---"]
    for topology in topologies:
        # The key `topology` must come first in its map (topology.yaml(5)).
        lines.append(f"- topology: {_scalar(topology.name)}")
        lines.append(f"  cluster_default: {'true' if topology.cluster_default else 'false'}")
        if topology.kind != "block":
            lines.extend(_emit({topology.kind: topology.body}, 2))
            continue
        lines.append("  block:")
        if topology.block_sizes:
            lines.append("    block_sizes:")
            lines.extend(f"      - {size}" for size in topology.block_sizes)
        lines.append("    blocks:")
        for block in topology.blocks:
            lines.append(f"      - block: {_scalar(block.name)}")
            hostlist = block.hostlist()
            if hostlist:
                lines.append(f"        nodes: {_scalar(hostlist)}")
    return "\n".join(lines) + "\n"


def _emit(value: Any, indent: int) -> list[str]:
    """Nested maps and lists of scalars in block style, for a site's other topologies."""
    pad = " " * indent
    lines: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, (dict, list)) and item:
                lines.append(f"{pad}{key}:")
                lines.extend(_emit(item, indent + 2))
            elif isinstance(item, (dict, list)):
                lines.append(f"{pad}{key}: {'{}' if isinstance(item, dict) else '[]'}")
            elif item:
                lines.append(f"{pad}{key}: {_scalar(item, words=True)}")
    else:
        for item in value:
            if isinstance(item, dict) and item:
                inner = _emit(item, indent + 2)
                lines.append(f"{pad}- {inner[0].lstrip()}" if inner else f"{pad}- {{}}")
                lines.extend(inner[1:])
            else:
                lines.append(f"{pad}- {_scalar(str(item), words=True)}")
    return lines


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._\-\[\],]*\Z", re.ASCII)
_NUMBER = re.compile(r"\d+\Z", re.ASCII)
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def _scalar(text: str, words: bool = False) -> str:
    """A YAML scalar; quoted where a YAML parser could read a number, a boolean or syntax."""
    if _PLAIN.match(text) and (words or text.lower() not in _WORDS):
        return text
    if words and _NUMBER.match(text):
        return text
    return json.dumps(text)


# --------------------------------------------------------------------------------------------------------- reading


def parse(text: str, style: str) -> list[Topology]:
    """The topologies of a topology file of that style; raises SlurmError where it cannot be read."""
    return parse_yaml(text) if style == YAML else [parse_conf(text)]


def parse_conf(text: str) -> Topology:
    """topology.conf: a block topology, or with kind ``tree`` (body: its lines) one that holds SwitchName lines."""
    blocks: list[Block] = []
    sizes: tuple[int, ...] = ()
    other: list[str] = []
    for number, line in enumerate(logical_lines(text), 1):
        pairs = {key.lower(): value for key, value in key_values(line)}
        where = f"Line {number} of topology.conf"
        if "blockname" in pairs:
            blocks.append(_block(pairs["blockname"], pairs.get("nodes", ""), where))
        elif "blocksizes" in pairs:
            sizes = _sizes(pairs["blocksizes"].split(","), where)
        else:
            other.append(line)
    if other:
        return Topology(kind="tree", blocks=tuple(blocks), block_sizes=sizes, body=other)
    return Topology(blocks=tuple(blocks), block_sizes=sizes)


def parse_yaml(text: str) -> list[Topology]:
    """topology.yaml, or what ``scontrol show topoconf`` prints (Slurm 25.05 and later)."""
    document = load_yaml(text)
    if document in ("", None):
        return []
    if not isinstance(document, list):
        raise SlurmError("topology.yaml is not a list of topologies: begin each with '- topology: NAME'.")
    return [_topology(item, f"Topology number {number} in topology.yaml") for number, item in enumerate(document, 1)]


def _topology(item: Any, where: str) -> Topology:
    if not isinstance(item, dict) or not isinstance(item.get("topology"), str):
        raise SlurmError(f"{where} is not a map with the key topology: name it.")
    default = str(item.get("cluster_default", "false")).lower() in ("true", "yes", "on", "1")
    # show topoconf prints every kind of topology, unset ones as an empty map.
    kinds = {
        kind: value
        for kind, value in item.items()
        if kind not in ("topology", "cluster_default") and value not in ({}, "", None, "false")
    }
    if len(kinds) > 1:
        raise SlurmError(f"{where} has several kinds of topology ({', '.join(sorted(kinds))}): keep one.")
    if not kinds:
        return Topology(name=item["topology"], kind="none", cluster_default=default)
    kind, body = next(iter(kinds.items()))
    if kind != "block":
        return Topology(name=item["topology"], kind=kind, cluster_default=default, body=body)
    if not isinstance(body, dict) or not isinstance(body.get("blocks", []), (list, str)):
        raise SlurmError(f"{where}, key block, is not a map with blocks: write block_sizes and blocks under it.")
    entries = body.get("blocks") or []
    blocks = []
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("block"), str):
            raise SlurmError(f"{where}, key blocks, has an entry without the key block: name every block.")
        blocks.append(_block(entry["block"], entry.get("nodes", ""), where))
    sizes = body.get("block_sizes") or []
    return Topology(
        name=item["topology"],
        cluster_default=default,
        blocks=tuple(blocks),
        block_sizes=_sizes(sizes if isinstance(sizes, list) else [sizes], where),
    )


def _block(name: str, nodes: Any, where: str) -> Block:
    if not isinstance(nodes, str):
        raise SlurmError(f"{where}, block {name}: nodes is not a hostlist: write it as text.")
    try:
        return Block(name, tuple(expand(nodes)), nodes)
    except HostlistError as error:
        raise SlurmError(f"{where}, block {name}: {error}") from error


def _sizes(values: Iterable[Any], where: str) -> tuple[int, ...]:
    try:
        return tuple(int(value) for value in values)
    except (TypeError, ValueError):
        raise SlurmError(f"{where} has block sizes that are not numbers: write whole numbers.") from None


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
                _block(name, pairs.get("Nodes", ""), "scontrol show topology").nodes,
                int(size) if _NUMBER.match(size) else None,
                "AggregatedBlock" in pairs,
            )
        )
    return shown


def parse_records(text: str) -> list[dict[str, str]]:
    """One-line records (``scontrol -o show nodes|partitions``) as maps; a value ends at white space."""
    return [dict(shown_values(line)) for line in text.splitlines() if line.strip()]


def parse_config(text: str) -> dict[str, str]:
    """``scontrol show config``: settings in lower case, their values (empty for (null))."""
    settings = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() and " " not in key.strip():
            settings[key.strip().lower()] = "" if value.strip() == "(null)" else value.strip()
    return settings


# ------------------------------------------------------------------------------------------- the YAML subset


@dataclass(frozen=True)
class _Line:
    number: int
    indent: int
    text: str


def load_yaml(text: str) -> Any:
    """Maps, lists and text of the YAML subset described above. Raises SlurmError with the line."""
    lines: list[_Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        if "\t" in raw[: len(raw) - len(raw.lstrip())]:
            raise _unreadable(number, "it is indented with a tab")
        stripped = raw.strip()
        if not stripped or stripped.startswith(("#", "%YAML")) or stripped in ("---", "..."):
            continue
        lines.append(_Line(number, len(raw) - len(raw.lstrip(" ")), stripped))
    if not lines:
        return None
    value, following = _node(lines, 0, lines[0].indent, 0)
    if following != len(lines):
        raise _unreadable(lines[following].number, "its indentation fits nothing above it")
    return value


def _node(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[Any, int]:
    if depth > 20:
        raise _unreadable(lines[at].number, "it is nested too deeply")
    if lines[at].text == "-" or lines[at].text.startswith("- "):
        return _list(lines, at, indent, depth)
    if _key(lines[at]) is not None:
        return _map(lines, at, indent, depth)
    return _value(lines[at].text, lines[at].number), at + 1


def _list(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while at < len(lines) and lines[at].indent == indent and (lines[at].text == "-" or lines[at].text.startswith("- ")):
        line = lines[at]
        rest = line.text[1:]
        inner = rest.lstrip()
        if not inner or inner.startswith("#"):
            if at + 1 < len(lines) and lines[at + 1].indent > indent:
                item, at = _node(lines, at + 1, lines[at + 1].indent, depth + 1)
            else:
                item, at = "", at + 1
        else:
            # The rest after the dash is a node with a larger indentation.
            shifted = _Line(line.number, indent + 1 + len(rest) - len(inner), inner)
            lines[at] = shifted
            item, at = _node(lines, at, shifted.indent, depth + 1)
        items.append(item)
    return items, at


def _map(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[dict[str, Any], int]:
    result: dict[str, Any] = {}
    while at < len(lines) and lines[at].indent == indent:
        line = lines[at]
        found = _key(line)
        if found is None:
            break
        key, rest = found
        if key in result:
            raise _unreadable(line.number, f"the key {key} is there twice")
        following = lines[at + 1] if at + 1 < len(lines) else None
        if rest and not rest.startswith("#"):
            result[key], at = _value(rest, line.number), at + 1
        elif following is not None and (
            following.indent > indent
            # libyaml writes the items of a list at the indentation of its key.
            or (following.indent == indent and (following.text == "-" or following.text.startswith("- ")))
        ):
            result[key], at = _node(lines, at + 1, following.indent, depth + 1)
        else:
            result[key], at = "", at + 1
    return result, at


_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*:(?:\s+(.*))?\Z", re.ASCII | re.DOTALL)


def _key(line: _Line) -> tuple[str, str] | None:
    match = _KEY.match(line.text)
    return None if match is None else (match.group(1), (match.group(2) or "").strip())


_ESCAPES = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    " ": " ",
    '"': '"',
    "/": "/",
    "\\": "\\",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*(?:\s#.*)?\Z""")


def _value(text: str, number: int) -> Any:
    if text[0] in "\"'":
        match = _QUOTED.match(text)
        if match is None:
            raise _unreadable(number, "a quoted text does not end on its line")
        quoted = match.group(1)
        if quoted[0] == "'":
            return quoted[1:-1].replace("''", "'")
        return _ESCAPE.sub(lambda found: _unescape(found.group(1), number), quoted[1:-1])
    text = re.sub(r"\s#.*\Z", "", text).rstrip()
    if text == "{}":
        return {}
    if text.startswith("[") and text.endswith("]"):
        inside = text[1:-1].strip()
        if re.search(r"[\[\]{}\"']", inside):
            raise _unreadable(number, "it nests brackets or quotes in a flow list")
        return [part.strip() for part in inside.split(",") if part.strip()] if inside else []
    if text[0] in "[]{}&*!|>@`%,?":
        raise _unreadable(number, f"it uses YAML syntax beyond plain maps and lists ({text[0]})")
    if re.search(r":(\s|\Z)", text):
        raise _unreadable(number, "it has a map inside a value")
    return text


def _unescape(code: str, number: int) -> str:
    if code[0] in "xuU" and len(code) > 1:
        point = int(code[1:], 16)
        if point > 0x10FFFF:
            raise _unreadable(number, "it has an invalid character")
        return chr(point)
    if code not in _ESCAPES:
        raise _unreadable(number, f"it has the unknown escape \\{code}")
    return _ESCAPES[code]


def _unreadable(number: int, why: str) -> SlurmError:
    return SlurmError(f"Line {number} of topology.yaml cannot be read, {why}: write it in plain block style.")
