# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write and parse Slurm's topology files and the output of ``scontrol``, without any library.

Private to this collection; it may change in any release. Python 3.9, standard library only.

``render`` and ``parse`` are inverse to each other for every topology that passes the linter. yaml_reader keeps every
scalar as text, since Slurm prints a block named ``true`` or ``007`` unquoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import (
    key_values,
    logical_lines,
    shown_values,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.yaml_reader import Key, Reader, YamlError

YAML = "yaml"
CONF = "conf"
FILE_NAMES = {YAML: "topology.yaml", CONF: "topology.conf"}
HEADER = "# Written by rackscale.nvlink (slurm_topology) from the fabric file: changes by hand are overwritten."
_OWN = "# Other topologies of rackscale.nvlink: "


class SlurmError(NvlinkError):
    """Slurm cannot be read, checked or changed; the message is one sentence with the remedy."""


@dataclass(frozen=True)
class Block:
    """One block: its name, its nodes one by one, and the hostlist that names them in a file (empty: a placeholder).

    group: the level above, whose blocks Slurm aggregates; known of desired blocks only, since no file has it.
    """

    name: str
    nodes: tuple[str, ...] = ()
    folded: str = ""
    group: str = ""

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


def render(topologies: Sequence[Topology], style: str, own: Sequence[str] = (), old: str = "") -> str:
    """The text of topology.yaml (style yaml: any number of topologies) or topology.conf (style conf: exactly one).

    own: the names of the other topologies of this collection, which own_topologies() reads. old: the text of the
    topology.yaml that it replaces, whose comments and unchanged topologies stay as they are.
    """
    if style == YAML:
        return render_yaml(topologies, own, old)
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


def render_yaml(topologies: Sequence[Topology], own: Sequence[str] = (), old: str = "") -> str:
    """The text of topology.yaml; old: the text that it replaces, whose comments and unchanged topologies stay."""
    comments, parts = _parts(old) if old else ([], {})
    lines = [HEADER, *([_OWN + json.dumps(sorted(own))] if own else []), *comments, "---"]
    for topology in topologies:
        part = parts.get(topology.name)
        kept = _kept_lines(part, topology) if part is not None else ""
        if kept:
            lines.append(kept[:-1])
        else:
            lines += [*(part.comments if part is not None else []), *_yaml_lines(topology)]
    text = "\n".join(lines) + "\n"
    # What a reader of the new text gets decides, whatever the old text was.
    same = not old or [one.fingerprint() for one in parse_yaml(text)] == [one.fingerprint() for one in topologies]
    return text if same else render_yaml(topologies, own)


def _yaml_lines(topology: Topology) -> list[str]:
    # The key `topology` must come first in its map (topology.yaml(5)).
    lines = [f"- topology: {_scalar(topology.name)}"]
    lines.append(f"  cluster_default: {'true' if topology.cluster_default else 'false'}")
    if topology.kind != "block":
        return lines + _emit({topology.kind: topology.body}, 2)
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
    return lines


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


def tree_of(text: str) -> Topology | None:
    """The tree of a topology.conf as one of topology.yaml, None where it has no switch.

    SlurmError where it has lines that a tree of topology.yaml has no place for. LinkSpeed is left out: slurmctld does
    not use it.
    """
    switches = []
    for number, line in enumerate(logical_lines(text), 1):
        pairs = {key.lower(): value for key, value in key_values(line)}
        if "switchname" not in pairs or pairs.keys() - {"switchname", "switches", "nodes", "linkspeed"}:
            raise SlurmError(
                f"Line {number} is no switch and cannot move to topology.yaml ({line[:60]}): write the site's tree to"
                " topology.yaml, then run again."
            )
        entry = {"switch": pairs["switchname"], "children": pairs.get("switches", ""), "nodes": pairs.get("nodes", "")}
        switches.append({key: value for key, value in entry.items() if value})
    return Topology(kind="tree", body={"switches": switches}) if switches else None


def parse_yaml(text: str) -> list[Topology]:
    """topology.yaml, or what ``scontrol show topoconf`` prints (Slurm 25.05 and later)."""
    document = load_yaml(text)
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


# ---------------------------------------------------------------------------------------------------------- YAML


def load_yaml(text: str) -> Any:
    """Maps, lists and text of a YAML text; None where it is empty. Raises SlurmError with the line."""
    return _read(text).value


def _read(text: str) -> Reader:
    try:
        return Reader(text)
    except YamlError as error:
        raise SlurmError(f"{str(error).rstrip('.')}: correct it, or write it in plain block style.") from None


@dataclass(frozen=True)
class _Part:
    """One topology of a file with its text: lines of block style (empty where it has no lines of its own)."""

    topology: Topology
    lines: str
    comments: list[str]
    keys: dict[str, Key]  # their spans count from the start of lines


def _parts(text: str) -> tuple[list[str], dict[str, _Part]]:
    """The comments in front of a topology.yaml, and its topologies by their names."""
    reader = _read(text)
    known = parse_yaml(text)
    comments = {
        at: comment for at, comment in reader.comments.items() if comment != HEADER and not comment.startswith(_OWN)
    }
    starts = [reader.text.rfind("\n", 0, at) + 1 for at in reader.items]
    if len(starts) != len(known) or any(starts[n] != at for n, at in enumerate(reader.items)):
        return list(comments.values()), {topology.name: _Part(topology, "", [], {}) for topology in known}
    # Comments above an item belong to it, those above the first one to the file.
    for number in range(1, len(starts)):
        before = reader.text[: starts[number]].splitlines(keepends=True)
        while before and starts[number] > starts[number - 1] and (before[-1][:1] == "#" or not before[-1].strip()):
            starts[number] -= len(before.pop())
    end = reader.text.rfind("\n...", starts[-1] if starts else 0) + 1 or len(reader.text)
    parts = {}
    for topology, begin, stop in zip(known, starts, [*starts[1:], end]):
        parts[topology.name] = _Part(
            topology,
            reader.text[begin:stop].rstrip("\n") + "\n",
            [comment for at, comment in comments.items() if begin <= at < stop],
            {
                key.name: key._replace(start=key.start - begin, end=key.end - begin)
                for key in reader.keys
                if key.depth == 2 and begin <= key.start < stop
            },
        )
    outside = [comment for at, comment in comments.items() if not starts or not starts[0] <= at < end]
    return outside, parts


def _kept_lines(part: _Part, topology: Topology) -> str:
    """The lines of an unchanged topology of the file, with its cluster_default set; empty where they cannot be kept."""
    if not part.lines or replace(part.topology, cluster_default=True) != replace(topology, cluster_default=True):
        return ""
    if part.topology.cluster_default == topology.cluster_default:
        return part.lines
    word = "true" if topology.cluster_default else "false"
    default, name = part.keys.get("cluster_default"), part.keys.get("topology")
    if default is not None and default.end > default.start:
        return part.lines[: default.start] + word + part.lines[default.end :]
    if default is not None or name is None:  # a key without a value, or a map in braces
        return ""
    line_end = part.lines.index("\n", name.end) + 1
    return part.lines[:line_end] + f"{' ' * name.column}cluster_default: {word}\n" + part.lines[line_end:]
