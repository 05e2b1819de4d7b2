# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks that slurmctld runs, not those of its file, against the fabric file; and the tiers against slurmdbd."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE, ERROR
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped, sentence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Controller, Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.failure import (
    SLURM,
    TIERS,
    Failure,
    failure,
)

# What the comparison with the fabric file has said itself, or what follows from it.
_SAID_HERE = frozenset({"slurm_block_overlap", "slurm_node_uncovered", "slurm_no_blocks", "slurm_no_nodes"})


def check(seen: Evidence) -> Iterator[Failure]:
    """The layer slurm."""
    for controller in seen.slurm or ():
        if controller.problem:
            message = f"Slurm on {controller.host} did not answer ({controller.problem})."
            yield failure("slurm_unanswered", SLURM, message)
        else:
            yield from _topology(seen, controller)


def cluster_of(seen: Evidence, controller: Controller) -> tuple[bool, str | None]:
    """(whether the fabric file speaks of this Slurm, the name of its cluster there; None where it has no clusters)."""
    names = seen.fabric.slurm_clusters
    if not names:
        return True, None
    here = str(controller.info.get("cluster") or "").lower()
    found = [name for name in names if name.lower() == here] or (names if len(names) == 1 else [])
    return bool(found), found[0] if found else None


def _topology(seen: Evidence, controller: Controller) -> Iterator[Failure]:
    known, cluster = cluster_of(seen, controller)
    if not known:
        return
    topology = controller.info.get("topology")
    if not isinstance(topology, Mapping):
        message = f"slurmctld of {controller.host} runs no block topology ({sentence(controller.info.get('plugin'))})."
        yield failure("slurm_topology_missing", SLURM, message)
        return
    found = list(_blocks(seen, cluster, topology))
    file = mapped(controller.info.get("file"))
    if file.get("running") is False:
        for row in found:
            row["cause"] = f"slurmctld does not run what {file.get('path')} says: it was edited and not loaded, or"
            row["cause"] += " the blocks were changed by scontrol update"
    yield from found
    for note in map(mapped, as_list(controller.info.get("findings"))):
        code = str(note.get("code"))
        severe = code in CATALOGUE and (CATALOGUE[code].severity == ERROR or code == "slurm_topology_differs")
        if severe and code not in _SAID_HERE and not (found and code == "slurm_topology_differs"):
            yield failure(code, SLURM, sentence(note.get("message")), note.get("tray"))


@dataclass(frozen=True)
class _Layout:
    """home: tray -> the block that the fabric file gives it. now: tray -> the blocks that slurmctld has it in.

    clique_of: the clique of a block that has trays. strange: running blocks with nodes that the fabric file never gave.
    """

    home: Mapping[str, str]
    now: Mapping[str, list[str]]
    clique_of: Mapping[str, str]
    strange: tuple[str, ...]

    def trays(self, block: str) -> list[str]:
        return [tray for tray, own in self.home.items() if own == block]


def _layout(seen: Evidence, cluster: str | None, topology: Mapping[str, Any]) -> _Layout:
    views = seen.fabric.blocks(cluster)
    home = {tray: view.name for view in views for tray in view.trays}
    tray_of = {seen.fabric.trays[tray]["slurm_node"]: tray for tray in home}
    given = {view.name for view in views}
    now: dict[str, list[str]] = {tray: [] for tray in home}
    strange = []
    for block in map(mapped, as_list(topology.get("blocks"))):
        name, nodes = str(block.get("name")), as_list(block.get("nodes"))
        if nodes and name not in given:
            strange.append(name)
        for tray in dict.fromkeys(tray_of[node] for node in nodes if node in tray_of):
            now[tray].append(name)
    return _Layout(home, now, {view.name: view.clique for view in views if view.trays}, tuple(strange))


def _blocks(seen: Evidence, cluster: str | None, topology: Mapping[str, Any]) -> Iterator[Failure]:
    layout = _layout(seen, cluster, topology)
    mixed: dict[frozenset[str], list[str]] = defaultdict(list)
    nowhere: dict[str, list[str]] = defaultdict(list)
    for tray, block in layout.home.items():
        now = layout.now[tray]
        if len(now) > 1:
            message = f"slurmctld has {tray} in blocks {' and '.join(now)}, and its clique's is {block} alone."
            yield failure("slurm_block_overlap", SLURM, message, tray, layout.clique_of[block])
        elif not now:
            nowhere[block].append(tray)
        elif now[0] != block:
            # Two trays that change places are one mistake.
            mixed[frozenset((block, now[0]))].append(tray)
    renamed = {}
    for trays in mixed.values():
        block, strange = layout.home[trays[0]], layout.now[trays[0]][0]
        if strange in layout.strange and trays == layout.trays(block):
            renamed[strange] = block
            message = f"slurmctld runs block {block} of clique {layout.clique_of[block]} under the name {strange}."
            yield failure("slurm_block_missing", SLURM, message, None, layout.clique_of[block], trays=trays)
        else:
            yield _mixed(layout, trays)
    for block, trays in nowhere.items():
        yield _nowhere(layout, block, trays)
    for name in layout.strange:
        if name not in renamed:
            message = f"slurmctld runs a block {name}, which no clique of the fabric file has."
            yield failure("block_unclaimed", SLURM, message)


def _mixed(layout: _Layout, trays: list[str]) -> Failure:
    """Trays that are mixed up between two blocks."""
    told = "; ".join(f"{tray} in {layout.now[tray][0]} instead of {layout.home[tray]}" for tray in trays[:4])
    message = f"slurmctld has {told}{' and more' if len(trays) > 4 else ''}."
    cliques = {layout.clique_of[layout.home[tray]] for tray in trays}
    tray = trays[0] if len(trays) == 1 else None
    clique = cliques.pop() if len(cliques) == 1 else None
    return failure("slurm_tray_other_block", SLURM, message, tray, clique, trays=trays)


def _nowhere(layout: _Layout, block: str, trays: list[str]) -> Failure:
    """Trays that are in no block; the block where none of its trays is in any."""
    clique = layout.clique_of[block]
    if trays == layout.trays(block):
        message = f"slurmctld runs no block {block}, in which clique {clique} with {summarize(trays)} should be."
        return failure("slurm_block_missing", SLURM, message, None, clique, trays=trays)
    message = f"slurmctld has {summarize(trays)} in no block, and the fabric file in {block}."
    return failure("slurm_tray_no_block", SLURM, message, trays[0] if len(trays) == 1 else None, clique, trays=trays)


def check_tiers(seen: Evidence) -> Iterator[Failure]:
    """The layer tiers: what slurm_tiers would change, a failure for each partition and QoS."""
    for controller in seen.slurm or ():
        tiers = controller.tiers
        if tiers is None or controller.problem:
            continue
        errors = [note for note in map(mapped, as_list(tiers.get("findings"))) if note.get("severity") == ERROR]
        if tiers.get("failed") and not errors:
            message = f"The tiers of {controller.host} could not be compared ({sentence(tiers.get('msg'))})."
            yield failure("slurm_tier_unread", TIERS, message)
        for note in errors:
            code = note.get("code") if note.get("code") in CATALOGUE else "slurm_tier_unread"
            yield failure(str(code), TIERS, sentence(note.get("message")))
        yield from _drifted([str(line) for line in as_list(tiers.get("changes"))])


def _drifted(lines: list[str]) -> Iterator[Failure]:
    """From lines as ``qos gold: Priority 5 -> 1000``; several of one subject are one failure.

    A line about the file alone adds nothing where a partition of it is named.
    """
    subjects: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        subject, _colon, change = line.partition(": ")
        subjects[subject].append(change)
    partitions = [subject for subject in subjects if subject.startswith("partition ")]
    for subject, changes in subjects.items():
        if partitions and (subject == "slurmctld" or subject.endswith(".conf")):
            continue
        what = subject[0].upper() + subject[1:]
        message = f"{what} is not as the tiers say; to mend it: {sentence('; '.join(changes))}."
        yield failure("slurm_tier_differs", TIERS, message)
