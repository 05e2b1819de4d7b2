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
from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    HEADER,
    YAML,
    Block,
    SlurmError,
    Topology,
    block_of,
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
    before, which former_default() reads. old: the text of the topology.yaml that it replaces, whose comments are kept.
    """
    if style == YAML:
        return render_yaml(topologies, own, old, former)
    return render_conf(topologies[0], own)


def render_conf(topology: Topology, left_out: Sequence[str] = ()) -> str:
    lines = [HEADER, *([_LEFT_OUT + json.dumps(list(left_out))] if left_out else [])]
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
    """The text of topology.yaml; old: the text that it replaces, whose comments stand above the topologies."""
    head = [_OWN + json.dumps(sorted(own))] if own else []
    head += [_FORMER + json.dumps([former])] if former else []
    lines = [HEADER, *head, *_comments(old), "---"]
    for topology in topologies:
        lines += _yaml_lines(topology)
    return "\n".join(lines) + "\n"


def _comments(text: str) -> list[str]:
    """The comments of a text, without the header of this collection."""
    found = re.findall(r"(?m)(?:^|(?<=[ \t]))#.*$", text)
    return [comment.rstrip() for comment in found if not comment.startswith((HEADER, _OWN, _FORMER))]


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
            inner = _emit(item, indent + 2) if isinstance(item, dict) else []
            first = _scalar(item, words=True) if isinstance(item, str) else json.dumps(item)
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
