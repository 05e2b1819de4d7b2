# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Split cliques into several blocks of Slurm's topology, as the site wants it. Pure.

One step of a placement, after every clique has its own block. IMEX, labels and the clique itself stay as they are: only
the blocks change. A name and position that a clique was given stays its own, also while no tray is in that block.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Clique, Fabric, Tray
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, names_of
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown, similar

# Blocks with their trays.
Parts = Sequence[tuple[str, Sequence[str]]]
OPTION = "slurm_topology_split"
BLOCK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def applied(fabric: Fabric, wanted: Mapping[Any, Any] | None) -> Fabric:
    """The fabric with its cliques split as wanted: clique -> sizes, or names with trays; any other has one block.

    None: all stay as they are. PlacementError for a split that does not have each tray of the clique once, or that
    takes the name of another block.
    """
    if wanted is None:
        return fabric
    for clique in wanted:
        if clique not in fabric.cliques:
            hint = similar(clique, fabric.cliques, "; use the name of one that has all its trays")
            raise PlacementError(f"{OPTION}: {shown(clique)} is no clique of the fabric file{hint}")
    views = [view for cluster in (None, *fabric.slurm_clusters) for view in fabric.slurm_blocks(cluster)]
    taken = {view.name for view in views}
    positions = itertools.count(1 + max((view.position for view in views), default=-1))
    cliques, block_of = dict(fabric.cliques), dict[str, str]()
    # In the order of their blocks, whatever the order in which they were written.
    for clique in sorted(wanted, key=lambda name: cliques[name]["block"]["position"]):
        row = cliques[clique]
        own, known = row["block"]["name"], dict(row.get("split_blocks", {}))
        for name, trays in _parts(clique, wanted[clique], fabric.members[clique], own, taken - {own, *known}):
            if name not in (own, *known):
                known[name] = next(positions)
            if name != own:
                block_of.update(dict.fromkeys(trays, name))
        taken.update(known)
        cliques[clique] = cast(Clique, {**row, "split_blocks": known} if known else row)
    trays_then = {name: _in_block(row, block_of.get(name)) for name, row in fabric.trays.items()}
    return replace(fabric, cliques=cliques, trays=trays_then)


def _in_block(tray: Tray, block: str | None) -> Tray:
    """A tray in a split block, or in none; the same object where it is there already."""
    if tray.get("block") == block:
        return tray
    row = {key: value for key, value in tray.items() if key != "block"}
    return cast(Tray, {**row, "block": block} if block else row)


def _parts(clique: str, given: Any, members: Sequence[str], own: str, taken: set[str]) -> Parts:
    """The blocks of a clique with their trays; taken: the names of the blocks that it cannot have."""
    if isinstance(given, Mapping):
        return _named(clique, given, members, taken)
    sizes = given if isinstance(given, (list, tuple)) else []
    if not sizes or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        how = "write the sizes of its blocks, as in [14, 4], or their names, each with a hostlist"
        raise PlacementError(f"{OPTION}: {clique} is {shown(given)}; {how}")
    if sum(sizes) != len(members):
        what = f"the sizes {shown(list(sizes))} of {clique} are {count(sum(sizes), 'tray')} in all"
        raise PlacementError(f"{OPTION}: {what}, and the fabric file has {len(members)} there; correct the sizes")
    # A dash is in no clique's name, so no clique that comes later is named like it.
    numbered = (f"{own[:60]}-{number}" for number in itertools.count(2))
    names = itertools.chain([own], (name for name in numbered if name not in taken))
    ends = itertools.accumulate(sizes)
    return [(name, members[end - size : end]) for size, end, name in zip(sizes, ends, names)]


def _named(clique: str, given: Mapping[Any, Any], members: Sequence[str], taken: set[str]) -> Parts:
    """The blocks that the site names, with their trays."""
    parts = names_of(OPTION, given, "r01t[01-14]")
    for name, trays in parts.items():
        if not trays:
            raise PlacementError(f"{OPTION}: {shown(name)} of {clique} has no tray; list its trays, or leave it out")
        if not BLOCK_NAME.fullmatch(name):
            raise PlacementError(f"{OPTION}: {shown(name)} is no block name; use letters, digits, . _ and -")
        if name in taken:
            raise PlacementError(f"{OPTION}: {name} is another block's name; choose another one for {clique}")
    listed = Counter(itertools.chain(*parts.values()))
    for what, wrong in (
        ("trays that are not in the clique", listed.keys() - set(members)),
        ("trays in two blocks", {tray for tray, number in listed.items() if number > 1}),
        ("trays in no block", set(members) - listed.keys()),
    ):
        if wrong:
            raise PlacementError(f"{OPTION}: {clique} has {what}, {summarize(sorted(wrong))}; list each tray once")
    return list(parts.items())
