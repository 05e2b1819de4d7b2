# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find hosts that the fabric file calls otherwise than Slurm or Kubernetes, such as r01t01.example.com. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

SHORT = "{{ inventory_hostname_short }}"


class NodeNameError(NvlinkError):
    """The fabric file has other names than the cluster for the same hosts."""


class NodeNames(NamedTuple):
    """The name of a node, and the host names and addresses that its cluster has for it."""

    name: str
    others: tuple[str, ...] = ()


def of_slurm(record: Mapping[str, str]) -> NodeNames:
    """NodeName, NodeHostName and NodeAddr in a record of ``scontrol show nodes``."""
    return NodeNames(record["NodeName"], tuple(record.get(key, "") for key in ("NodeHostName", "NodeAddr")))


def short(name: str) -> str:
    """The name without its domain; an IP address unchanged."""
    return name if name.replace(".", "").isdecimal() or ":" in name else name.partition(".")[0]


def renamed(wanted: Iterable[str], nodes: Iterable[NodeNames]) -> dict[str, str]:
    """Name that the cluster does not have -> that of the only node that is that host, and of no other such name."""
    rows, names = list(nodes), dict.fromkeys(wanted)
    known = {row.name for row in rows}
    taken = known.intersection(names)
    if len(taken) == len(names):
        return {}
    # Two names with different domains are different hosts.
    of: dict[str, set[str]] = defaultdict(set)
    of_short: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for label in filter(None, (row.name, *row.others)):
            of[label.lower()].add(row.name)
            of_short[short(label).lower()].add(row.name)
    claims: dict[str, list[str]] = defaultdict(list)
    for name in names:
        key = name.lower()
        nodes_of = set() if name in known else of.get(key) or of_short.get(key) or of.get(short(key)) or set()
        if len(nodes_of) == 1 and not nodes_of & taken:
            claims[next(iter(nodes_of))].append(name)
    return {claimed[0]: node for node, claimed in claims.items() if len(claimed) == 1}


def check(wanted: Iterable[str], nodes: Iterable[NodeNames]) -> None:
    """Raise NodeNameError with the variable to set where Slurm has these hosts under other names."""
    found = renamed(wanted, nodes)
    if found:
        raise NodeNameError(sentence("slurmctld", found, "fabric_slurm_node"))


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
