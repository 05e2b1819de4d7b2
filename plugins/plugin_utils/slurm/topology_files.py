# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write and parse topology.yaml and topology.conf. Pure.

``render`` and ``parse`` are inverse to each other for every topology that passes the linter. Every scalar stays text,
as in Slurm, which prints a block named ``true`` or ``007`` unquoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    HEADER,
    YAML,
    Block,
    SlurmError,
    Topology,
    block_of,
    documents,
    sizes_of,
    topologies_of,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import key_values, logical_lines
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import plain_yaml

_OWN = "# Other topologies of rackscale.nvlink: "
_LEFT_OUT = "# Blocks that min_block_size leaves out: "
_FORMER = "# Default topology before rackscale.nvlink: "


# --------------------------------------------------------------------------------------------------------- writing


def render(topologies: Sequence[Topology], style: str, own: Sequence[str] = (), old: str = "", former: str = "") -> str:
    """The text of topology.yaml (style yaml: any number of topologies) or topology.conf (style conf: exactly one).

    own: of topology.yaml the names of the other topologies of this collection, which own_topologies() reads; of
    topology.conf those of the blocks that are left out, which left_out() reads. former: the site's default topology
    before, which former_default() reads. old: the text of the topology.yaml that it replaces, whose comments and
    unchanged topologies stay as they are.
    """
    if style == YAML:
        return render_yaml(topologies, own, old, former)
    topology = topologies[0]
    lines = [HEADER, *([_LEFT_OUT + json.dumps(list(own))] if own else [])]
    for block in topology.blocks:
        hostlist = block.hostlist()
        lines.append(f"BlockName={block.name} Nodes={hostlist}" if hostlist else f"BlockName={block.name}")
    if topology.block_sizes:
        lines.append("BlockSizes=" + ",".join(str(size) for size in topology.block_sizes))
    return "\n".join(lines) + "\n"


def own_topologies(text: str) -> list[str]:
    """The other topologies that this collection has written, from the header of the file."""
    return _names(text, _OWN)


def left_out(text: str) -> list[str]:
    """The blocks that the site leaves out of topology.conf, from the header of the file."""
    return _names(text, _LEFT_OUT)


def former_default(text: str) -> str:
    """The default topology before this collection has written the file, from its header; empty where it has none."""
    return next(iter(_names(text, _FORMER)), "")


def _names(text: str, head: str) -> list[str]:
    line = next((line for line in text.splitlines() if line.startswith(head)), "")
    try:
        names = json.loads(line[len(head) :])
    except (ValueError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def render_yaml(topologies: Sequence[Topology], own: Sequence[str] = (), old: str = "", former: str = "") -> str:
    """The text of topology.yaml; old: the text that it replaces, whose comments and unchanged topologies stay."""
    comments, parts = _parts(old) if old else ([], {})
    head = [_OWN + json.dumps(sorted(own))] if own else []
    head += [_FORMER + json.dumps([former])] if former else []
    lines = [HEADER, *head, *comments, "---"]
    for topology in topologies:
        part = parts.get(topology.name)
        kept = _kept_lines(part, topology) if part is not None else ""
        if kept:
            lines.append(kept[:-1])
        else:
            lines += [*(_comments(part.lines) if part is not None else []), *_yaml_lines(topology)]
    text = "\n".join(lines) + "\n"
    # What a reader of the new text gets decides, whatever the old text was.
    return text if not old or same(parse_yaml(text), topologies) else render_yaml(topologies, own, former=former)


def same(some: Sequence[Topology], others: Sequence[Topology]) -> bool:
    """Whether Slurm takes both for equal."""
    return [one.fingerprint() for one in some] == [one.fingerprint() for one in others]


def _yaml_lines(topology: Topology) -> list[str]:
    # The key `topology` must come first in its map (topology.yaml(5)).
    lines = [f"- topology: {_scalar(topology.name)}"]
    lines.append(f"  cluster_default: {'true' if topology.cluster_default else 'false'}")
    [document] = documents([topology])
    is_block = topology.kind == "block"
    if is_block and not topology.block_sizes:
        del document["block"]["block_sizes"]
    return lines + _emit({topology.kind: document[topology.kind]}, 2, words=not is_block)


def _emit(value: Any, indent: int, words: bool) -> list[str]:
    """Nested maps and lists of scalars in block style; words: as of _scalar(), for a site's other topologies."""
    pad = " " * indent
    lines: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, (dict, list)) and item:
                lines.append(f"{pad}{key}:")
                lines.extend(_emit(item, indent + 2, words))
            elif isinstance(item, (dict, list)):
                lines.append(f"{pad}{key}: {'{}' if isinstance(item, dict) else '[]'}")
            elif item:
                lines.append(f"{pad}{key}: {_scalar(item, words)}")
    else:
        for item in value:
            inner = _emit(item, indent + 2, words) if isinstance(item, dict) else []
            first = _scalar(item, words) if isinstance(item, str) else json.dumps(item)
            lines.append(f"{pad}- {inner[0].lstrip() if inner else first}")
            lines.extend(inner[1:])
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
            blocks.append(block_of(pairs["blockname"], pairs.get("nodes", ""), where))
        elif "blocksizes" in pairs:
            sizes = sizes_of(pairs["blocksizes"].split(","), where)
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


# ---------------------------------------------------------------------------------------------------------- YAML


def parse_yaml(text: str) -> list[Topology]:
    """topology.yaml (Slurm 25.05 and later); raises SlurmError with the line where it cannot be read.

    A file with bytes that are no UTF-8 is refused, since its comments are kept, as slurmctld refuses it.
    """
    before, wrong, _rest = text.partition("\ufffd")
    if wrong:
        number = before.count("\n") + 1
        raise SlurmError(f"Line {number} is not in UTF-8: save the file in UTF-8.")
    try:
        return topologies_of(plain_yaml.load(text))
    except plain_yaml.YamlError as error:
        message = f"{str(error).rstrip('.')}: correct it, or write topology.yaml in plain block style."
        raise SlurmError(message) from None


@dataclass(frozen=True)
class _Part:
    """One topology of a file with its text: lines of block style (empty where it has no lines of its own).

    keys: the span of each value of its map, from the start of the lines, and the column of its key.
    """

    topology: Topology
    lines: str = ""
    keys: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)


def _comments(text: str) -> list[str]:
    """The comments of a text, without the header of this collection."""
    found = re.findall(r"(?m)(?:^|(?<=[ \t]))#.*$", text)
    return [comment.rstrip() for comment in found if not comment.startswith((HEADER, _OWN, _FORMER))]


def _parts(text: str) -> tuple[list[str], dict[str, _Part]]:
    """The comments in front of a topology.yaml, and its topologies by their names."""
    text = re.sub(r"\r\n?", "\n", text.lstrip("\ufeff"))
    known, root = parse_yaml(text), plain_yaml.composed(text)
    items = root.value if isinstance(root, yaml.SequenceNode) else []
    starts = [text.rfind("\n", 0, item.start_mark.index) + 1 for item in items]
    if len({*starts}) != len(known) or any(text[at] != "-" for at in starts) or not starts:
        return _comments(text), {topology.name: _Part(topology) for topology in known}
    # Comments above an item belong to it, those above the first one to the file.
    for number in range(1, len(starts)):
        before = text[starts[number - 1] : starts[number]].splitlines(keepends=True)
        while before and (before[-1][:1] == "#" or not before[-1].strip()):
            starts[number] -= len(before.pop())
    end = text.rfind("\n...", starts[-1]) + 1 or len(text)
    parts = {}
    for topology, item, begin, stop in zip(known, items, starts, [*starts[1:], end]):
        keys = {
            key.value: (value.start_mark.index - begin, value.end_mark.index - begin, key.start_mark.column)
            for key, value in ([] if item.flow_style else item.value)
        }
        parts[topology.name] = _Part(topology, text[begin:stop].rstrip("\n") + "\n", keys)
    return [*_comments(text[: starts[0]]), *_comments(text[end:])], parts


def _kept_lines(part: _Part, topology: Topology) -> str:
    """The lines of an unchanged topology of the file, with its cluster_default set; empty where they cannot be kept."""
    if not part.lines or replace(part.topology, cluster_default=True) != replace(topology, cluster_default=True):
        return ""
    if part.topology.cluster_default == topology.cluster_default:
        return part.lines
    word = "true" if topology.cluster_default else "false"
    default, name = part.keys.get("cluster_default"), part.keys.get("topology")
    if default is not None and default[1] > default[0]:
        return part.lines[: default[0]] + word + part.lines[default[1] :]
    if default is not None or name is None:  # a key without a value, or a map in braces
        return ""
    line_end = part.lines.index("\n", name[1]) + 1
    return part.lines[:line_end] + f"{' ' * name[2]}cluster_default: {word}\n" + part.lines[line_end:]
