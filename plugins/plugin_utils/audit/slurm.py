# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks that slurmctld runs, not those of its file, against the fabric file; and the tiers against slurmdbd."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE, ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.audit.evidence import Controller, Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.audit.failure import (
    SLURM,
    TIERS,
    Failure,
    failure,
    some,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import listed, mapped, sentence

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
        message = (
            f"slurmctld of {controller.host} runs no block topology (TopologyPlugin {controller.info.get('plugin')})."
        )
        yield failure("slurm_topology_missing", SLURM, message)
        return
    found = list(_blocks(seen, cluster, topology))
    file = mapped(controller.info.get("file"))
    if file.get("running") is False:
        for row in found:
            row["cause"] = f"slurmctld does not run what {file.get('path')} says: it was edited and not loaded, or"
            row["cause"] += " the blocks were changed by scontrol update"
    yield from found
    for note in map(mapped, listed(controller.info.get("findings"))):
        code = note.get("code")
        severe = code in CATALOGUE and (CATALOGUE[code].severity == ERROR or code == "slurm_topology_differs")
        if severe and code not in _SAID_HERE and not (found and code == "slurm_topology_differs"):
            yield failure(code, SLURM, sentence(note.get("message")), note.get("tray"))


def _blocks(seen: Evidence, cluster: str | None, topology: Mapping[str, Any]) -> Iterator[Failure]:
    fabric = seen.fabric
    views = [view for view in fabric.blocks(cluster) if view.trays]
    clique_of = {view.name: view.clique for view in views}
    tray_of = {fabric.trays[tray]["slurm_node"]: tray for view in views for tray in view.trays}
    home = {fabric.trays[tray]["slurm_node"]: view.name for view in views for tray in view.trays}
    running: dict[str, list[str]] = defaultdict(list)
    for block in map(mapped, listed(topology.get("blocks"))):
        for node in listed(block.get("nodes")):
            running[str(node)].append(str(block.get("name")))
    wrong: dict[tuple[str, ...], list[str]] = defaultdict(list)
    nowhere: dict[str, list[str]] = defaultdict(list)
    for node, block in home.items():
        now = list(dict.fromkeys(running.get(node, ())))
        if len(now) > 1:
            where = " and ".join(now)
            message = f"slurmctld has {tray_of[node]} in blocks {where}, and its clique's is {block} alone."
            yield failure("slurm_block_overlap", SLURM, message, tray_of[node], clique_of[block])
        elif not now:
            nowhere[block].append(tray_of[node])
        elif now[0] != block:
            # Two trays that change places are one mistake.
            wrong[tuple(sorted((block, now[0])))].append(tray_of[node])
    explained: set[str] = set()
    for pair, trays in wrong.items():
        yield from _elsewhere(seen, pair, trays, cluster, running, explained)
    for block, trays in nowhere.items():
        clique = clique_of[block]
        if len(trays) == sum(1 for other in home.values() if other == block):
            message = f"slurmctld runs no block {block}, in which clique {clique} with {some(trays)} should be."
            yield failure("slurm_block_missing", SLURM, message, None, clique, trays=trays)
        else:
            tray = trays[0] if len(trays) == 1 else None
            message = f"slurmctld has {some(trays)} in no block, and the fabric file in {block}."
            yield failure("slurm_tray_no_block", SLURM, message, tray, clique, trays=trays)
    retired = {view.name for view in fabric.blocks(cluster)}
    for block in map(mapped, listed(topology.get("blocks"))):
        name = str(block.get("name"))
        if name not in retired and name not in explained and listed(block.get("nodes")):
            message = f"slurmctld runs a block {name}, which no clique of the fabric file has."
            yield failure("block_unclaimed", SLURM, message)


def _elsewhere(
    seen: Evidence,
    pair: tuple[str, ...],
    trays: list[str],
    cluster: str | None,
    running: Mapping[str, list[str]],
    explained: set[str],
) -> Iterator[Failure]:
    """Trays whose blocks are mixed up between two; a block under another name where all its trays are there."""
    fabric = seen.fabric
    views = {view.name: view for view in fabric.blocks(cluster) if view.trays}
    home = {tray: view for view in views.values() for tray in view.trays}
    there = {tray: running[fabric.trays[tray]["slurm_node"]][0] for tray in trays}
    strange = next((name for name in pair if name not in views), None)
    clique = home[trays[0]].clique
    if strange is not None and len(trays) == len(home[trays[0]].trays):
        explained.add(strange)
        message = f"slurmctld runs block {home[trays[0]].name} of clique {clique} under the name {strange}."
        yield failure("slurm_block_missing", SLURM, message, None, clique, trays=trays)
        return
    told = "; ".join(f"{tray} in {there[tray]} instead of {home[tray].name}" for tray in trays[:4])
    message = f"slurmctld has {told}{' and more' if len(trays) > 4 else ''}."
    one = len(trays) == 1
    cliques = {home[tray].clique for tray in trays}
    yield failure(
        "slurm_tray_other_block",
        SLURM,
        message,
        trays[0] if one else None,
        clique if len(cliques) == 1 else None,
        trays=trays,
    )


def check_tiers(seen: Evidence) -> Iterator[Failure]:
    """The layer tiers: what slurm_tiers would change, a failure for each partition and QoS."""
    for controller in seen.slurm or ():
        tiers = controller.tiers
        if tiers is None or controller.problem:
            continue
        errors = [note for note in map(mapped, listed(tiers.get("findings"))) if note.get("severity") == ERROR]
        if tiers.get("failed") and not errors:
            message = f"The tiers of {controller.host} could not be compared ({sentence(tiers.get('msg'))})."
            yield failure("slurm_tier_unread", TIERS, message)
        for note in errors:
            code = note.get("code") if note.get("code") in CATALOGUE else "slurm_tier_unread"
            yield failure(str(code), TIERS, sentence(note.get("message")))
        yield from _drifted([str(line) for line in listed(tiers.get("changes"))])


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
