# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render Slurm's block topology: one block for each clique, in the order of their positions.

Pure: converts a fabric to blocks, and blocks to the text of topology.yaml (25.05 and later) and topology.conf (before).
Blocks, their order and their sizes come from the fabric file alone; a retired clique and a reserved block have no
nodes. module_utils/slurm/rules.py decides what a version of Slurm can load; it also runs on the controller's
host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    CONF,
    YAML,
    Block,
    SlurmError,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model

try:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
except ImportError:
    NodeSet = None

TOPOLOGY_NAME = "nvlink"
# Characters that ClusterShell's node sets and Slurm's hostlists read differently.
_ODD = frozenset("[],!&^@%*?:/# \t\n")
# Without a cluster the version is unknown: each file is for the newest tested Slurm that reads it.
RENDERED_FOR: dict[str, rules.Version] = {YAML: (26, 5, 5), CONF: (24, 11, 5)}


def render(fabric: model.Fabric, state: model.State) -> dict[str, str]:
    """``slurm/topology.yaml`` and ``slurm/topology.conf``, each only where Slurm would load it.

    Where several Slurm clusters share the fabric, ``slurm/<cluster>/`` has those of each.
    """
    texts = {}
    for cluster in _clusters(fabric):
        folder = f"slurm/{cluster}" if cluster else "slurm"
        made = blocks(fabric, cluster)
        for style in RENDERED_FOR:
            if written := text(made, style):
                texts[f"{folder}/{files.FILE_NAMES[style]}"] = written
    return texts


def text(made: Sequence[Block], style: str) -> str:
    """The text of one file; empty where Slurm would not load it."""
    candidate, found = _checked(made, style)
    if any(finding["severity"] == "error" for finding in found):
        return ""
    return files.render([candidate.topology], style)


def findings(fabric: model.Fabric, state: model.State) -> list[model.Finding]:
    """The linter's findings about the files, once where both formats have them."""
    found: list[model.Finding] = []
    for cluster in _clusters(fabric):
        of_one: list[model.Finding] = []
        made = blocks(fabric, cluster)
        for style in RENDERED_FOR:
            of_one.extend(finding for finding in _checked(made, style)[1] if finding not in of_one)
        # Blocks of two clusters may have the same name.
        where = f"Slurm cluster {cluster}: " if cluster else ""
        found.extend({**row, "message": where + row["message"]} for row in of_one)
    return found


def _clusters(fabric: model.Fabric) -> list[str | None]:
    """The Slurm clusters that have trays; [None] for a fabric file that names no clusters."""
    if not fabric.slurm_clusters:
        return [None]
    with_trays = {tray.get("slurm_cluster") for tray in fabric.trays.values()}
    return [name for name in fabric.slurm_clusters if name in with_trays]


def _checked(made: Sequence[Block], style: str) -> tuple[rules.Candidate, list[model.Finding]]:
    version = RENDERED_FOR[style]
    kept, found = rules.drop_placeholders(made, version)
    topology = Topology(
        name=TOPOLOGY_NAME if style == YAML else "default",
        blocks=kept,
        block_sizes=rules.auto_block_sizes(kept, version),
    )
    candidate = rules.Candidate(version=version, style=style, topology=topology)
    return candidate, found + rules.lint(candidate)


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
