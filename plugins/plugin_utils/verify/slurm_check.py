# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers slurm and tiers: the blocks that slurmctld has loaded, partitions and QoS, against the fabric file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import node_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import limits
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import (
    CATALOGUE,
    ERROR,
    SLURM,
    TIERS,
    WARNING,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped, only
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.node_states import of_trays
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Controller, Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

# The comparison with the fabric file reports these itself, or their cause.
_REPORTED_HERE = frozenset({"slurm_block_overlap", "tray_unplaced", "slurm_no_blocks"})


# Of the other warnings slurm_topology_info is the place; these say that the verdict may change at any moment, or that a
# job of a broken tray may not get the spare.
_WARNINGS_REPORTED = frozenset({"slurm_topology_differs", "slurm_topology_other_writer", limits.CODE})


def check(evidence: Evidence) -> Iterator[Finding]:
    """The layer slurm."""
    for controller in evidence.slurm or ():
        if controller.problem:
            message = f"Slurm on {controller.host} did not answer ({controller.problem})."
            yield failure("slurm_unreachable", SLURM, message)
        else:
            yield from _topology(evidence, controller)


def cluster_of(evidence: Evidence, controller: Controller) -> tuple[bool, str | None]:
    """(whether the fabric file has this Slurm cluster, its name there; None where the file names no clusters)."""
    names = evidence.fabric.slurm_clusters
    if not names:
        return True, None
    here = str(controller.info.get("cluster") or "").lower()
    found = [name for name in names if name.lower() == here] or (names if len(names) == 1 else [])
    return bool(found), found[0] if found else None


def node_states(evidence: Evidence) -> dict[str, str] | None:
    """Tray -> its state in Slurm, as of slurm/node_states.py; None where no controller answered."""
    answered = [controller for controller in evidence.slurm or () if not controller.problem]
    found: dict[str, str] = {}
    for controller in answered:
        known, cluster = cluster_of(evidence, controller)
        shown = mapped(controller.info.get("nodes")) if known else {}
        found.update(of_trays(shown, evidence.fabric, cluster))
    return found if answered else None


def _topology(evidence: Evidence, controller: Controller) -> Iterator[Finding]:
    known, cluster = cluster_of(evidence, controller)
    if not known:
        return
    topology = controller.info.get("topology")
    if not isinstance(topology, Mapping):
        message = f"slurmctld on {controller.host} runs no block topology ({sentence(controller.info.get('plugin'))})."
        yield failure("slurm_blocks_differ", SLURM, message)
        return
    renamed = _renamed(evidence, cluster, topology)
    found = [renamed] if renamed else list(_blocks(evidence, cluster, topology))
    file = mapped(controller.info.get("file"))
    if file.get("running") is False:
        for row in found:
            row["cause"] = f"slurmctld has not loaded {file.get('path')} since it was edited, or scontrol update"
            row["cause"] += " changed the blocks"
    yield from found
    notes = list(map(mapped, as_list(controller.info.get("findings"))))
    # Other blocks place other jobs, and without select/cons_tres there are no segments.
    if not found:
        unknown = any(note.get("code") == "slurm_select_type" for note in notes)
        yield from _jobs(evidence, controller, unknown)
    for note in notes:
        code = str(note.get("code"))
        severe = code in CATALOGUE and (CATALOGUE[code].severity == ERROR or code in _WARNINGS_REPORTED)
        if severe and code not in _REPORTED_HERE and not (found and code == "slurm_topology_differs"):
            yield failure(code, SLURM, sentence(note.get("message")), note.get("tray"))


def _jobs(evidence: Evidence, controller: Controller, no_segments: bool) -> Iterator[Finding]:
    """What slurmctld answered on test jobs (live_jobs.py), against the blocks that it shows."""
    tests = mapped(controller.info.get("test_jobs"))
    tray_of = {fields["slurm_node"]: tray for tray, fields in evidence.fabric.trays.items()}
    for row in map(mapped, as_list(tests.get("rows"))):
        kind, rehearsed = row.get("kind"), row.get("rehearsed")
        job = f"a job of {count(int(row.get('nodes') or 0), 'tray')} in partition {row.get('partition')}"
        same = rehearsed == row.get("outcome")
        files = {"placed": ", and a rehearsal with its files places it"}.get(str(rehearsed), "")
        files = ", as a rehearsal with its files does" if same else files
        cause = "the partition's limits or topology, or SelectType in slurm.conf" if same else None
        if kind == "segments" and not no_segments:
            got = "refuses it" if row.get("outcome") == "refused" else f"places {sentence(row.get('reason'))}"
            message = (
                f"The blocks of slurmctld have room for {job} with --segment={row.get('segment')}, each segment in one"
                f" block, but it {got}{files}."
            )
            yield failure("slurm_reconfigure_needed", SLURM, message, cause=cause)
        elif kind == "block":
            nodes = [str(node) for node in as_list(row.get("trays"))]
            alone = f"; {summarize(nodes)} {'is' if len(nodes) == 1 else 'are'} refused alone, too" if nodes else ""
            message = (
                f"slurmctld refuses {job} on the usable trays of block {row.get('block')}, although it shows them there"
                f" ({sentence(row.get('reason'))}){files}{alone}."
            )
            # Files that refuse it may do so on purpose.
            severity = WARNING if same else None
            trays = [tray_of[node] for node in nodes if node in tray_of]
            yield failure(
                "slurm_reconfigure_needed", SLURM, message, only(trays), trays=trays, severity=severity, cause=cause
            )
        elif kind == "all" and not same and (rehearsed or row.get("predicted")):
            message = f"slurmctld refuses {job}, all that are usable ({sentence(row.get('reason'))}){files}."
            yield failure("slurm_reconfigure_needed", SLURM, message)
    if tests.get("why"):
        message = (
            f"slurmctld on {controller.host} answered {tests.get('asked')} of {tests.get('planned')} questions where it"
            f" would place jobs ({sentence(tests['why'])})."
        )
        yield failure("slurm_jobs_unanswered", SLURM, message)


def _renamed(evidence: Evidence, cluster: str | None, topology: Mapping[str, Any]) -> Finding | None:
    """The failure where slurmctld has trays under other names: in no block they would seem to be."""
    nodes = [
        str(node) for block in map(mapped, as_list(topology.get("blocks"))) for node in as_list(block.get("nodes"))
    ]
    trays = {
        evidence.fabric.trays[tray]["slurm_node"]: tray
        for view in evidence.fabric.blocks(cluster)
        for tray in view.trays
    }
    found = node_names.renamed(trays, map(node_names.NodeNames, nodes))
    if not found:
        return None
    message = node_names.sentence("slurmctld", found, "fabric_slurm_node")
    return failure("node_renamed", SLURM, message, trays=[trays[name] for name in found])


@dataclass(frozen=True)
class _Layout:
    """desired: tray -> its block in the fabric file, empty where it has none in this Slurm cluster.

    running: tray -> its blocks in slurmctld. clique_of: block with trays -> its clique. unknown: blocks with nodes in
    slurmctld that the fabric file lacks. unclaimed: block of the fabric file -> its nodes in slurmctld that are no
    trays of the fabric file.
    """

    desired: Mapping[str, str]
    running: Mapping[str, list[str]]
    clique_of: Mapping[str, str]
    unknown: tuple[str, ...]
    unclaimed: Mapping[str, list[str]]

    def trays(self, block: str) -> list[str]:
        return [tray for tray, own in self.desired.items() if own == block]


def _layout(evidence: Evidence, cluster: str | None, topology: Mapping[str, Any]) -> _Layout:
    left_out = as_list(topology.get("left_out"))
    views = [view for view in evidence.fabric.slurm_blocks(cluster) if view.clique and view.name not in left_out]
    placed = {tray: view.name for view in views for tray in view.trays}
    desired = placed | {tray: "" for tray in evidence.fabric.trays if tray not in placed}
    # Nodes of different clusters may have the same name: those of this one are the last.
    tray_of = {evidence.fabric.trays[tray]["slurm_node"]: tray for tray in reversed(desired)}
    given = {view.name for view in views}
    running: dict[str, list[str]] = {tray: [] for tray in desired}
    unknown = []
    unclaimed: dict[str, list[str]] = defaultdict(list)
    for block in map(mapped, as_list(topology.get("blocks"))):
        name, nodes = str(block.get("name")), as_list(block.get("nodes"))
        if nodes and name not in given:
            unknown.append(name)
        for tray in dict.fromkeys(tray_of[node] for node in nodes if node in tray_of):
            running[tray].append(name)
        if name in given and (others := [str(node) for node in nodes if node not in tray_of]):
            unclaimed[name] += others
    clique_of = {view.name: view.clique for view in views if view.trays}
    return _Layout(desired, running, clique_of, tuple(unknown), unclaimed)


def _blocks(evidence: Evidence, cluster: str | None, topology: Mapping[str, Any]) -> Iterator[Finding]:
    layout = _layout(evidence, cluster, topology)
    misplaced: dict[frozenset[str], list[str]] = defaultdict(list)
    in_no_block: dict[str, list[str]] = defaultdict(list)
    for tray, block in layout.desired.items():
        running = layout.running[tray]
        if block and len(running) > 1:
            message = (
                f"slurmctld has {tray} in blocks {' and '.join(running)}; the fabric file has it in {block} alone."
            )
            yield failure("slurm_block_overlap", SLURM, message, tray, layout.clique_of[block])
        elif block and not running:
            in_no_block[block].append(tray)
        elif running and running[0] != block:
            # Two trays in each other's block are one failure.
            misplaced[frozenset((block, running[0]))].append(tray)
    renamed = {}
    for trays in misplaced.values():
        block, unknown = layout.desired[trays[0]], layout.running[trays[0]][0]
        if block and unknown in layout.unknown and trays == layout.trays(block):
            renamed[unknown] = block
            message = f"slurmctld has block {block} of clique {layout.clique_of[block]} under the name {unknown}."
            yield failure("slurm_blocks_differ", SLURM, message, None, layout.clique_of[block], trays=trays)
        else:
            yield _misplaced(evidence, layout, trays)
    for block, trays in in_no_block.items():
        yield _in_no_block(layout, block, trays)
    for block, nodes in layout.unclaimed.items():
        message = f"slurmctld has {summarize(nodes)} in block {block}; the fabric file has no tray of that name."
        yield failure("slurm_node_unclaimed", SLURM, message, None, layout.clique_of.get(block))
    for name in layout.unknown:
        if name not in renamed:
            message = f"slurmctld has block {name}, which no clique of the fabric file has."
            yield failure("tray_unplaced", SLURM, message)


def _misplaced(evidence: Evidence, layout: _Layout, trays: list[str]) -> Finding:
    """Trays of one block that slurmctld has in another, and the reverse; or trays of no block that it has in one."""
    rows = summarize(
        f"{tray} in {' and '.join(layout.running[tray])} instead of {layout.desired[tray] or 'no block'}"
        for tray in trays
    )
    message = f"slurmctld has {rows}."
    clique = only(map(evidence.clique_of, trays))
    return failure("slurm_blocks_differ", SLURM, message, only(trays), clique, trays=trays)


def _in_no_block(layout: _Layout, block: str, trays: list[str]) -> Finding:
    """Trays that are in no block; the block itself where none of its trays is in any."""
    clique = layout.clique_of[block]
    if trays == layout.trays(block):
        message = (
            f"slurmctld has no block {block}, which the fabric file gives to clique {clique} with {summarize(trays)}."
        )
        return failure("slurm_blocks_differ", SLURM, message, None, clique, trays=trays)
    message = f"slurmctld has {summarize(trays)} in no block; the fabric file has block {block}."
    return failure("slurm_blocks_differ", SLURM, message, only(trays), clique, trays=trays)


def check_tiers(evidence: Evidence) -> Iterator[Finding]:
    """The layer tiers: what slurm_tiers would change."""
    for controller in evidence.slurm or ():
        tiers = controller.tiers
        if tiers is None or controller.problem:
            continue
        errors = [note for note in map(mapped, as_list(tiers.get("findings"))) if note.get("severity") == ERROR]
        if tiers.get("failed") and not errors:
            message = f"The tiers of {controller.host} could not be compared ({sentence(tiers.get('msg'))})."
            yield failure("slurm_unreachable", TIERS, message)
        for note in errors:
            code = note.get("code") if note.get("code") in CATALOGUE else "slurm_unreachable"
            yield failure(str(code), TIERS, sentence(note.get("message")))
        changes = [str(line) for line in as_list(tiers.get("changes"))]
        if changes:
            message = f"The tiers differ from slurm_tiers; the role would change: {sentence(summarize(changes))}."
            yield failure("slurm_tier_differs", TIERS, message)
