# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's block topology: one block a clique, in the order of their positions.

Pure: a fabric becomes blocks, blocks become the text of topology.yaml (25.05 and later) and topology.conf (before).
Blocks, their order and their sizes come from the fabric file alone; a retired clique is a block without nodes. What a
version of Slurm cannot load is decided by module_utils/slurm/rules.py, which also runs on the controller's host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    CONF,
    YAML,
    Block,
    SlurmError,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import model

try:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
except ImportError:
    NodeSet = None

TOPOLOGY_NAME = "nvlink"
# Rendered away from a cluster, no version can be asked: each file is for the newest Slurm that reads it and is tested.
RENDERED_FOR: dict[str, rules.Version] = {YAML: (26, 5, 5), CONF: (24, 11, 5)}


def render(fabric: model.Fabric, state: model.State) -> dict[str, str]:
    """``slurm/topology.yaml`` and ``slurm/topology.conf``, each only where Slurm would load it."""
    texts = {}
    for style in RENDERED_FOR:
        candidate, found = _checked(fabric, style)
        if not any(finding["severity"] == "error" for finding in found):
            texts[f"slurm/{files.FILE_NAMES[style]}"] = files.render([candidate.topology], style)
    return texts


def findings(fabric: model.Fabric, state: model.State) -> list[model.Finding]:
    """What Slurm would make of the two files: the linter's findings, said once where both styles have them."""
    found: list[model.Finding] = []
    for style in RENDERED_FOR:
        found.extend(finding for finding in _checked(fabric, style)[1] if finding not in found)
    return found


def _checked(fabric: model.Fabric, style: str) -> tuple[rules.Candidate, list[model.Finding]]:
    version = RENDERED_FOR[style]
    kept, found = rules.drop_placeholders(blocks(fabric), version)
    topology = Topology(
        name=TOPOLOGY_NAME if style == YAML else "default",
        blocks=kept,
        block_sizes=rules.auto_block_sizes(kept, version),
    )
    candidate = rules.Candidate(version=version, style=style, topology=topology)
    return candidate, found + rules.lint(candidate)


def blocks(fabric: model.Fabric) -> tuple[Block, ...]:
    """One block a clique, ordered by position; nodes are the trays' names in Slurm."""
    made = []
    for view in fabric.blocks():
        nodes = tuple(fabric.trays[name]["slurm_node"] for name in view.trays)
        made.append(Block(view.name, nodes, fold(nodes)))
    return tuple(made)


def fold(nodes: Iterable[str]) -> str:
    """A hostlist that Slurm's own reader takes for exactly these nodes: ``r01t[01-18]``; empty for no node.

    ClusterShell folds; where its syntax and Slurm's part (steps, groups, odd characters) the names are listed one by
    one.
    """
    if NodeSet is None:
        raise SlurmError(
            "Folding node names needs ClusterShell: install the Python package clustershell on the controller."
        )
    names = list(nodes)
    # Doubles and names that the linter refuses must reach it as they are.
    if len(set(names)) != len(names) or any(set(name) & set("[],!&^@%*?:/# \t\n") or not name for name in names):
        return ""
    folded = str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
    return folded if _reads_back(folded, names) else ",".join(names)


def _reads_back(folded: str, names: Sequence[str]) -> bool:
    try:
        return sorted(expand(folded)) == sorted(names)
    except SlurmError:
        return False
