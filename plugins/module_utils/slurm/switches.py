# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check trees of switches next to the block topology: what slurmctld refuses, and what it loads but cannot use. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A tree is a Topology of kind ``tree`` whose body is that of topology.yaml: {"switches": [{"switch": NAME, "children":
HOSTLIST of switches | "nodes": HOSTLIST}]}. Observed on slurmctld 26.05.5; the tests repeat it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Topology

MAX_NAME = 64  # topology.yaml(5)


class Switch:
    """One switch: its name, its child switches and its nodes; ``broken`` where a hostlist cannot be read."""

    def __init__(self, entry: Any) -> None:
        values = entry if isinstance(entry, dict) else {}
        self.name = str(values.get("switch") or "")
        self.broken = ""
        self.children = self._list(values.get("children"))
        self.nodes = self._list(values.get("nodes"))

    def _list(self, text: Any) -> tuple[str, ...]:
        try:
            return tuple(expand(str(text or "")))
        except HostlistError as error:
            self.broken = str(error).rstrip(".")
            return ()


def of(topology: Topology) -> list[Switch]:
    """The switches of a tree; none for another kind."""
    body = topology.body if topology.kind == "tree" and isinstance(topology.body, dict) else {}
    entries = body.get("switches")
    if isinstance(entries, dict):
        entries = [entries]
    return [Switch(entry) for entry in entries] if isinstance(entries, list) else []


def fatal(topology: Topology) -> Iterator[str]:
    """Why slurmctld does not start with this tree, in clauses with the remedy."""
    if topology.kind != "tree":
        return
    switches = of(topology)
    if not switches:
        yield "it has no switch: list its switches, or remove the tree"
    names = Counter(switch.name for switch in switches)
    for switch in switches:
        if switch.broken:
            yield f"switch {switch.name[:80]} has a bad hostlist ({switch.broken}): correct it"
        for child in switch.children:
            if child == switch.name or (child not in names and not switch.nodes):
                yield f"switch {switch.name} has the child {child}, which is not a switch: define it, or correct it"
    for name, count in names.items():
        if count > 1:
            yield f"switch {name} is defined {count} times: define it once"
    if _has_loop(switches):
        yield "its switches form a loop: remove one of its links"


def doubtful(topology: Topology, known_nodes: frozenset[str] | None) -> Iterator[str]:
    """What slurmctld loads with at most a warning, and then schedules otherwise than intended."""
    if topology.kind != "tree":
        return
    switches = of(topology)
    leaf_of: dict[str, str] = {}
    parent_of: dict[str, str] = {}
    for switch in switches:
        if switch.nodes and switch.children:
            yield f"switch {switch.name} has children and nodes, and its children are ignored: keep only one of them"
        if not switch.nodes and not switch.children and not switch.broken:
            yield f"switch {switch.name} has neither children nor nodes: remove it"
        if len(switch.name) > MAX_NAME or set(switch.name) & set(",[]: \t"):
            yield f"the switch name {switch.name[:80]!r} cannot be listed: use up to 64 letters, digits, '.', '_', '-'"
        for node in switch.nodes:
            if leaf_of.setdefault(node, switch.name) != switch.name:
                yield f"{node} is at the switches {leaf_of[node]} and {switch.name}: list it at one"
        for child in switch.children:
            if parent_of.setdefault(child, switch.name) != switch.name:
                yield f"switch {child} is below {parent_of[child]} and {switch.name}: list it below one"
    unknown = [] if known_nodes is None else [node for node in leaf_of if node not in known_nodes]
    if unknown:
        yield f"Slurm has no node {unknown[0]}: add it to slurm.conf, or correct its name"
    roots = [switch.name for switch in switches if switch.name not in parent_of]
    if len(roots) > 1:
        yield f"no switch joins {', '.join(roots[:5])}, so no job spans them: define a switch above them"


def path(topology: Topology, node: str) -> list[str]:
    """The switches above a node from the top down, as ``Topology=`` of a node names them; empty where it has none."""
    switches = of(topology)
    parent_of = {child: switch.name for switch in switches for child in switch.children}
    found = next((switch.name for switch in switches if node in switch.nodes), "")
    above: list[str] = []
    while found and found not in above:
        above.insert(0, found)
        found = parent_of.get(found, "")
    return above


def path_problem(topology: Topology, path: list[str]) -> str:
    """What of a path of switches, from the top down, the tree does not have; empty where slurmctld places a node there.

    slurmctld makes a missing switch below one that has no nodes; an empty path takes the node out of the tree.
    """
    known = {switch.name: switch for switch in of(topology)}
    for above, name in zip(["", *path], path):
        if name not in known and not above:
            return f"no switch {name!r}"
        if name not in known and above in known and known[above].nodes and not known[above].children:
            return f"no switch {name!r}, and {above} above it has nodes"
    last = known.get(path[-1]) if path else None
    return f"no leaf {last.name!r}, but a switch with children" if last and last.children else ""


def fingerprint(topology: Topology) -> list[tuple[str, list[str], list[str]]]:
    """The content of a tree, independent of how its hostlists are written, for comparisons."""
    return sorted((switch.name, sorted(switch.children), sorted(switch.nodes)) for switch in of(topology))


def _has_loop(switches: list[Switch]) -> bool:
    below = {switch.name: [child for child in switch.children if child != switch.name] for switch in switches}
    waiting = Counter(child for children in below.values() for child in children)
    free = [name for name in below if not waiting[name]]
    while free:
        for child in below.pop(free.pop()):
            waiting[child] -= 1
            if not waiting[child] and child in below:
                free.append(child)
    return bool(below)
