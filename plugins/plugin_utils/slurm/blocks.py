# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks and the switches of Slurm's topology from the fabric, and host lists as Slurm reads them. Pure.

One block for each clique, in the order of their positions. Blocks, their order and their sizes come from the fabric
file alone; a retired clique and a reserved block have no nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, SlurmError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model

try:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
except ImportError:
    NodeSet = None

# Characters that ClusterShell's node sets and Slurm's hostlists read differently.
_ODD = frozenset("[],!&^@%*?:/# \t\n")


def blocks(fabric: model.Fabric, cluster: str | None = None) -> tuple[Block, ...]:
    """One block for each clique of a cluster, by position; nodes are the trays' NodeNames.

    Reserved blocks are included without nodes.
    """
    made = []
    for view in fabric.slurm_blocks(cluster):
        nodes = tuple(fabric.trays[name]["slurm_node"] for name in view.trays)
        made.append(Block(view.name, nodes, fold(nodes)))
    return tuple(made)


def switches(name: str, places: Mapping[str, tuple[str, str]]) -> list[dict[str, str]]:
    """The switches of the tree ``name`` from node -> (leaf, spine or ""); SlurmError where a leaf has two spines.

    Several switches at the top get a common switch ``<name>-core``, since Slurm starts no job across switches that are
    not connected.
    """
    nodes: dict[str, list[str]] = {}
    spine_of: dict[str, str] = {}
    for node, (leaf, spine) in places.items():
        nodes.setdefault(leaf, []).append(node)
        known = spine_of.setdefault(leaf, spine)
        if known != spine:
            raise SlurmError(
                f"The leaf switch {leaf} has the spines {known or 'none'} and {spine or 'none'} (at {node}): set the"
                " same spine on all its trays."
            )
    below: dict[str, list[str]] = {}
    for leaf, spine in spine_of.items():
        if spine:
            below.setdefault(spine, []).append(leaf)
    tops = [*below, *(leaf for leaf, spine in spine_of.items() if not spine)]
    if len(tops) > 1:
        below = {f"{name}-core": tops, **below}
    return [
        *({"switch": spine, "children": fold(model.natural_sorted(leaves))} for spine, leaves in below.items()),
        *({"switch": leaf, "nodes": fold(nodes[leaf])} for leaf in model.natural_sorted(nodes)),
    ]


def fold(nodes: Iterable[str]) -> str:
    """A hostlist that Slurm expands to exactly these nodes, such as ``r01t[01-18]``; empty for no node.

    ClusterShell folds; where its syntax differs from Slurm's (steps, groups, special characters) the names are listed
    one by one. Since it takes 6 times as long as a whole topology.yaml, names that differ only in their last number, as
    in a rack, are folded here, with the same result.
    """
    if NodeSet is None:
        raise SlurmError(
            "Folding node names needs ClusterShell: install the Python package clustershell on the controller."
        )
    names = list(nodes)
    # Duplicates and invalid names must reach the linter unchanged.
    if len(set(names)) != len(names) or "" in names or not _ODD.isdisjoint("".join(names)):
        return ""
    if _differ_at_the_end(names):
        return hostlist.fold(names)
    folded = str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
    return folded if _reads_back(folded, names) else ",".join(names)


def _differ_at_the_end(names: Sequence[str]) -> bool:
    """Whether all have the same stem, followed by the same number of digits."""
    if len(set(map(len, names))) != 1:
        return False
    stems = set(map(hostlist.stem_of, names))
    return len(stems) == 1 and 0 < len(names[0]) - len(stems.pop()) <= hostlist.MAX_DIGITS


def _reads_back(folded: str, names: Sequence[str]) -> bool:
    try:
        return sorted(hostlist.expand(folded)) == sorted(names)
    except SlurmError:
        return False
