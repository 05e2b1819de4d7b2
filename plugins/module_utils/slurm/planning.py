# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what is there and what is wanted to what would be done. Reads through the survey, writes nothing.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, rules, settings, switches
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.comparing import (
    describe,
    difference,
    left_over,
    other_difference,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import INCLUDE_NAME
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import YAML, Block, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.surveying import Survey, read_file
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

Finding = dict[str, Any]


@dataclass(frozen=True)
class DesiredState:
    """What a caller wants to run: the blocks in order, sizes (empty: chosen here), the topology's name, policy.

    others: topologies of kind flat or tree that stand beside it and are this collection's too; cluster_default: the
    name of the topology that partitions without Topology= use, empty for the block topology; allow_moving_jobs: whether
    trays may change their block under a running job; live_update: whether one moved tray may go without a reconfigure.
    """

    blocks: tuple[Block, ...]
    block_sizes: tuple[int, ...] = ()
    name: str = "nvlink"
    manage_conf: bool = False
    segments: tuple[int, ...] = ()
    others: tuple[Topology, ...] = ()
    cluster_default: str = ""
    allow_moving_jobs: bool = False
    live_update: bool = True


@dataclass(frozen=True)
class LiveMove:
    """One node that changes its block without a reconfigure; units is the value of Topology= for scontrol update."""

    node: str
    units: str


@dataclass
class Plan:
    """What would be done: the new bytes of each file, what is in the way, and the difference in a person's words."""

    survey: Survey
    topology: Topology
    wanted: list[Topology]
    made: list[Topology]
    settings: dict[str, str]
    findings: list[Finding]
    writes: dict[str, bytes]
    reconfigure: bool = False
    live: LiveMove | None = None
    waits_for: str = ""  # on a standby: what the controller in charge does not run yet
    moves: list[dict[str, str | None]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    difference: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.writes) or self.reconfigure or self.live is not None

    def stopped_by(self) -> list[Finding]:
        """The findings that forbid to write anything."""
        # A topology.conf that no plugin reads yet is harmless, and must be there before the plugin is set.
        return [
            found for found in self.findings if found["severity"] == "error" and found["code"] != "slurm_plugin_missing"
        ]

    def differs(self, seen: Survey) -> str:
        """In what the Slurm that runs differs from this plan, in a few words; empty where it does not."""
        problem = difference(self.topology, seen) or other_difference(self.made, seen.running)
        if not problem and seen.style == YAML:
            problem = left_over(self.wanted, seen.running)
        for key in self.settings:
            value = seen.config.get(key.lower(), "")
            if not problem and not settings.satisfies(key, value):
                problem = f"{key} is {value or 'unset'}"
        return problem


def plan(seen: Survey, wish: DesiredState) -> Plan:
    """Compare the wish with what is there; reads, writes nothing."""
    blocks, findings = rules.drop_placeholders(wish.blocks, seen.version)
    sizes = wish.block_sizes or rules.auto_block_sizes(blocks, seen.version)
    # Slurm calls the one topology of a topology.conf "default".
    name = wish.name if seen.style == YAML else "default"
    default = wish.cluster_default if seen.style == YAML and wish.cluster_default else name
    topology = Topology(name=name, blocks=blocks, block_sizes=sizes, cluster_default=default == name)
    written = seen.written()
    made, others, found = _beside(seen, wish, written, name, default)
    findings += found
    own = sorted(other.name for other in made)
    before = seen.running_topology(name)
    wants = settings.wanted_settings(seen.style, seen.version, topology.cluster_default) if wish.manage_conf else {}
    ranked = "TopologyParam" in wants and "topologyparam" not in seen.conf.settings
    findings += rules.lint(
        rules.Candidate(
            version=seen.version,
            style=seen.style,
            topology=topology,
            known_nodes=seen.slurm.nodes(),
            partitions=seen.slurm.partitions(),
            previous=before,
            others=tuple(others),
            segments=wish.segments,
            node_topologies=_overrides(seen, topology),
            made=tuple(made),
            power_saving=seen.power_saving,
            node_rank=ranked or settings.satisfies("TopologyParam", seen.config.get("topologyparam", "")),
        )
    )
    findings += settings.twin_findings(seen.style, seen.version, seen.twin)
    findings += settings.settings_findings(seen.style, seen.config, seen.conf.settings, wish.manage_conf)
    # Where a site has put it among the others it stays: a topology that was made by hand is adopted as it is.
    number = next((number for number, known in enumerate(written) if known.name == name), 0) if others else 0
    wanted = [*others[:number], topology, *others[number:]]
    writes = {}
    same = _same(written, wanted)
    if not same or own != seen.own_topologies():
        writes[seen.path] = files.render(wanted, seen.style, own).encode()
    if wish.manage_conf:
        writes.update(_managed(seen, wants))
        # What a site sets itself stays as it is.
        wants = {key: value for key, value in wants.items() if key != "TopologyParam" or ranked}
    # Where topology.conf is not read yet there is nothing to compare with, and nothing to load.
    loaded = seen.style == YAML or settings.satisfies("TopologyPlugin", seen.plugin)
    made_plan = Plan(seen, topology, wanted, made, wants, findings, writes)
    differs = made_plan.differs(seen) if loaded or wish.manage_conf else ""
    # The head of the file alone is nothing to load.
    loads = not same or bool(set(writes) - {seen.path})
    made_plan.reconfigure = (loaded or wish.manage_conf) and bool(loads or differs)
    made_plan.moves, lines = describe(before if before is not None else same_named(written, name), topology)
    if seen.acting:
        # A standby only writes, and only what runs already: at a takeover it finds no file that was refused.
        made_plan.reconfigure, made_plan.waits_for = False, differs
    elif made_plan.reconfigure and wish.live_update:
        made_plan.live = _live(made_plan, before)
    _jobs(made_plan, wish.allow_moving_jobs)
    lines += [f"topology {gone}: removed, it was of a list that has it no more" for gone in _gone(seen, wish, name)]
    if not lines and writes.get(seen.path) is not None:
        lines = [f"{os.path.basename(seen.path)}: {'written anew' if seen.file is not None else 'created'}"]
    lines += [f"{os.path.basename(path)}: {_summary(data)}" for path, data in writes.items() if path != seen.path]
    if made_plan.reconfigure and not lines:
        lines = ["slurmctld: runs another topology than its file, and reads the file again"]
    made_plan.difference = lines
    return made_plan


def _beside(
    seen: Survey, wish: DesiredState, written: Sequence[Topology], name: str, default: str
) -> tuple[list[Topology], list[Topology], list[Finding]]:
    """The topologies beside the block topology: those that are made here, all of them in order, and findings."""
    findings: list[Finding] = []
    if seen.style != YAML:
        if any(other.kind != "block" for other in written):
            message = f"{seen.path} holds lines of a tree or Include lines, which would be lost: move it away first."
            findings.append(finding("slurm_topology_foreign", message))
        if wish.others or wish.cluster_default:
            message = (
                f"Slurm {seen.version_text} with topology.conf has one topology for all nodes, so"
                f" {', '.join(other.name for other in wish.others) or wish.cluster_default} is left out: keep nodes"
                " without GPUs in partitions of their own, or upgrade to 25.05."
            )
            findings.append(finding("slurm_topologies_one", message))
        return [], [], findings
    made = [replace(other, cluster_default=other.name == default) for other in wish.others]
    new = {other.name: other for other in made}
    others = [
        new.pop(other.name) if other.name in new else replace(other, cluster_default=other.name == default)
        for other in written
        if other.name != name and other.name not in _gone(seen, wish, name)
    ]
    mine = {other.name for other in made}
    findings += [
        finding("slurm_other_topology", f"The topology {other.name} ({other.kind}) stays beside {name}.")
        for other in others
        if other.name not in mine
    ]
    others += [other for other in made if other.name in new]
    if default not in (name, *(other.name for other in others)):
        message = (
            f"The cluster's default topology is to be {default}, which the file does not hold"
            f" ({', '.join([name, *(other.name for other in others)])}): correct cluster_default."
        )
        findings.append(finding("slurm_cluster_default", message))
    return made, others, findings


def _gone(seen: Survey, wish: DesiredState, name: str) -> list[str]:
    """The topologies that an earlier run has made beside the blocks and that are wanted no more."""
    return [own for own in seen.own_topologies() if own not in (name, *(other.name for other in wish.others))]


def _live(plan: Plan, before: Topology | None) -> LiveMove | None:
    """The one move that needs no reconfigure; None where anything else changes, or where it would not last.

    A node that slurmctld starts and stops (CLOUD) or that registers itself (DYNAMIC) keeps a live topology over a
    restart, against the file; so it goes the long way.
    """
    seen, after = plan.survey, plan.topology
    if seen.style != YAML or before is None or len(plan.moves) != 1 or set(plan.writes) - {seen.path}:
        return None
    node, source, target = (plan.moves[0][key] for key in ("node", "from", "to"))
    if node is None or source is None or target is None or node in seen.conf.node_topologies:
        return None
    wanted = tuple(replace(block, nodes=tuple(sorted(block.nodes)), folded="") for block in after.blocks)
    moved = tuple(
        replace(
            block,
            nodes=tuple(
                sorted({*(other for other in block.nodes if other != node), *([node] if block.name == target else [])})
            ),
            folded="",
        )
        for block in before.blocks
    )
    if replace(after, blocks=wanted).fingerprint() != replace(before, blocks=moved).fingerprint():
        return None
    # The move must be all that differs from what runs, in the settings and in the topologies beside it too.
    others = [other for other in plan.wanted if other is not after]
    # slurmctld shows the default first, wherever the file has it.
    names = [sorted(known.name for known in topologies) for topologies in (seen.running, plan.wanted)]
    if other_difference(others, seen.running) or names[0] != names[1]:
        return None
    if any(not settings.satisfies(key, seen.config.get(key.lower(), "")) for key in plan.settings):
        return None
    units = []
    for known in seen.running:
        if known.name == after.name:
            units.append(f"{known.name}:{target}")
        elif known.kind == "block":
            units += [f"{known.name}:{block.name}" for block in known.blocks if node in block.nodes]
        elif known.kind == "tree":
            way = switches.path(known, node)
            units += [":".join([known.name, *way])] if way else []
        elif known.kind != "flat":
            return None
    if seen.slurm.node_state(node) & {"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "POWERED_DOWN"}:
        return None
    return LiveMove(node, ",".join(units))


def _jobs(plan: Plan, allowed: bool) -> None:
    """The jobs on trays that leave their block, as a gate: Slurm lets them run on, but their placement is gone."""
    moving = {move["node"]: move for move in plan.moves if move["from"] is not None}
    if not moving or plan.survey.acting:
        return
    for job in plan.survey.slurm.jobs():
        nodes = [node for node in job.nodes if node in moving]
        if nodes:
            plan.jobs.append({"job": job.id, "user": job.user, "partition": job.partition, "nodes": nodes})
    if not plan.jobs:
        return
    plan.jobs.sort(key=lambda job: (len(job["job"]), job["job"]))
    told = summarize(
        (f"job {job['job']} of {job['user']} on {summarize(job['nodes'], 2)}" for job in plan.jobs), limit=3
    )
    count = "1 job runs" if len(plan.jobs) == 1 else f"{len(plan.jobs)} jobs run"
    if allowed:
        message = f"{count} on trays that change their block ({told}): they run on where they are."
        plan.findings.append(finding("slurm_jobs_move", message))
    else:
        message = (
            f"{count} on trays that change their block ({told}): wait until they end, or set allow_moving_jobs to true."
        )
        plan.findings.append(finding("slurm_jobs_on_moving_trays", message))


def _overrides(seen: Survey, topology: Topology) -> dict[str, str]:
    """node -> block for the NodeName lines in slurm.conf that place a node in this topology themselves."""
    placed = {}
    for node, text in seen.conf.node_topologies.items():
        for part in text.split(","):
            name, _colon, unit = part.strip().partition(":")
            if name == topology.name and unit:
                placed[node] = unit
    return placed


def same_named(topologies: Sequence[Topology], name: str) -> Topology | None:
    return next((known for known in topologies if known.name == name and known.kind == "block"), None)


def _same(written: Sequence[Topology], wanted: Sequence[Topology]) -> bool:
    return [known.fingerprint() for known in written] == [known.fingerprint() for known in wanted]


def _managed(seen: Survey, wants: Mapping[str, str]) -> dict[str, bytes]:
    """Our include file and the Include line in slurm.conf, as far as they are not there yet."""
    lines = [f"{key}={value}" for key, value in wants.items() if key.lower() not in seen.conf.settings]
    path = os.path.join(seen.conf_dir, INCLUDE_NAME)
    text = "\n".join([files.HEADER, *lines]) + "\n"
    writes: dict[str, bytes] = {}
    if not lines and not seen.conf.includes_ours:
        return writes
    if read_file(path) != text.encode():
        writes[path] = text.encode()
    if not seen.conf.includes_ours:
        data = read_file(seen.conf.path) or b""
        # No folder in the name: only such an include travels to configless nodes.
        writes[seen.conf.path] = (
            data + (b"" if data.endswith(b"\n") or not data else b"\n") + f"Include {INCLUDE_NAME}\n".encode()
        )
    return writes


def _summary(data: bytes) -> str:
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line and not line.startswith("#")]
    return f"gets the line {lines[-1]}" if lines and lines[-1].startswith("Include ") else ", ".join(lines) or "emptied"
