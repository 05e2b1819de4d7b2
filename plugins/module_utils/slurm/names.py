# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find hosts that the fabric file and Slurm call by different names, such as r01t01.example.com and r01t01. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError

SHORT = "{{ inventory_hostname_short }}"


class NodeNames(NamedTuple):
    """NodeName, NodeHostName and NodeAddr of a node, as ``scontrol show nodes`` prints them."""

    name: str
    host: str = ""
    address: str = ""


def node_names(record: Mapping[str, str]) -> NodeNames:
    return NodeNames(record["NodeName"], record.get("NodeHostName", ""), record.get("NodeAddr", ""))


def short(name: str) -> str:
    """The name without its domain; an IP address unchanged."""
    return name if name.replace(".", "").isdecimal() or ":" in name else name.partition(".")[0]


def renamed(wanted: Iterable[str], nodes: Iterable[NodeNames]) -> dict[str, str]:
    """Name that Slurm does not have -> the NodeName of the only node that is that host, and of no other such name."""
    rows, names = list(nodes), dict.fromkeys(wanted)
    known = {row.name for row in rows}
    taken = known.intersection(names)
    if len(taken) == len(names):
        return {}
    of: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for label in (row.name, row.host, row.address):
            of[label.lower()].add(row.name)
            of[short(label).lower()].add(row.name)
    claims: dict[str, list[str]] = defaultdict(list)
    for name in names:
        nodes_of = set() if name in known else of.get(name.lower()) or of.get(short(name).lower()) or set()
        if len(nodes_of) == 1 and not nodes_of & taken:
            claims[next(iter(nodes_of))].append(name)
    return {claimed[0]: node for node, claimed in claims.items() if len(claimed) == 1}


def check(wanted: Iterable[str], nodes: Iterable[NodeNames]) -> None:
    """Raise SlurmError with the variable to set where Slurm has these hosts under other names."""
    found = renamed(wanted, nodes)
    if found:
        raise SlurmError(sentence("slurmctld", found, "fabric_slurm_node"))


def sentence(who: str, found: Mapping[str, str], variable: str) -> str:
    """One sentence: the two names, the variable, and its value where one expression serves all hosts."""
    name, node = next(iter(found.items()))
    more = f" (and {len(found) - 1} more alike)" if len(found) > 1 else ""
    if all(short(given) == own for given, own in found.items()):
        remedy = f'set {variable}: "{SHORT}" for the group nvlink'
    elif all(own.partition(".")[0] == given for given, own in found.items()) and (
        len({own.partition(".")[2] for own in found.values()}) == 1
    ):
        remedy = f'set {variable}: "{{{{ inventory_hostname }}}}.{node.partition(".")[2]}" for the group nvlink'
    else:
        remedy = f"set {variable} of each of these hosts, such as {variable}: {node} of {name}"
    return f"{who} calls {name} {node}{more}: {remedy}, then discover and accept again."
