# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the change from the observed to the desired topology. Reads through the survey, writes nothing.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import host, node_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import (
    HostFinding,
    block_finding,
    host_finding,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, live, rules, switches
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import INCLUDE_NAME
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import YAML, Block, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import gates, settings
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.comparing import (
    describe,
    difference,
    leftover,
    other_difference,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.surveying import Survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize


@dataclass(frozen=True)
class DesiredState:
    """The desired topology: the blocks in order, block sizes (empty: chosen here), its name, and the policy.

    others: other topologies of kind flat or tree that this collection writes; cluster_default: the name of the topology
    that partitions without Topology= use, empty for the block topology; allow_moving_jobs: whether trays may change
    their block under a running job; live_update: whether one tray may move without a reconfigure; override: the gates
    of gates.GATES that do not object; min_block_size: cliques with fewer trays get no block before 25.05, where the
    smallest block limits the base block size.
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
    override: tuple[str, ...] = ()
    min_block_size: int = 0
    aggregate_blocks: bool = False


@dataclass(frozen=True)
class LiveMove:
    """One node that changes its block without a reconfigure; units is the value of Topology= for scontrol update."""

    node: str
    units: str


@dataclass
class Plan:
    """The planned change: the new bytes of each file, the findings, and the lines of the diff."""

    survey: Survey
    topology: Topology
    topologies: list[Topology]
    made: list[Topology]
    settings: dict[str, str]
    findings: list[HostFinding]
    writes: dict[str, bytes]
    reconfigure: bool = False
    live: LiveMove | None = None
    waits_for: str = ""  # on a standby: in what the active controller differs
    moves: list[dict[str, str | None]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    difference: list[str] = field(default_factory=list)
    may_undo: bool = False  # whether live changes may be undone

    @property
    def changed(self) -> bool:
        return bool(self.writes) or self.reconfigure or self.live is not None

    def stopped_by(self) -> list[HostFinding]:
        """The findings that block every change."""
        return gates.stopping(self.findings)

    def differs(self, observed: Survey) -> str:
        """How the running Slurm differs from this plan, in a clause; empty where it does not."""
        problem = difference(self.topology, observed) or other_difference(self.made, observed.running)
        if not problem and observed.style == YAML:
            problem = leftover(self.topologies, observed.running)
        for key in self.settings:
            value = observed.config.get(key.lower(), "")
            if not problem and not settings.satisfies(key, value):
                problem = f"{key} is {value or 'unset'}"
        return problem


def plan(observed: Survey, desired: DesiredState) -> Plan:
    """Compare the desired with the observed state; reads only."""
    blocks, findings = rules.drop_placeholders(desired.blocks, observed.version)
    blocks, left_out = rules.leave_out(blocks, desired.min_block_size, observed.version)
    for block in left_out:
        findings.append(
            block_finding(
                "slurm_blocks_limited",
                "left_out",
                block=block.name,
                number=count(len(block.nodes), "node"),
                nodes=block.hostlist(),
                minimum=desired.min_block_size,
            )
        )
    sizes, found = rules.choose_sizes(blocks, observed.version, desired.block_sizes, desired.aggregate_blocks)
    findings += found
    # Slurm calls the one topology of a topology.conf "default".
    name = desired.name if observed.style == YAML else "default"
    default = desired.cluster_default if observed.style == YAML and desired.cluster_default else name
    topology = Topology(name=name, blocks=blocks, block_sizes=sizes, cluster_default=default == name)
    written = observed.written()
    made, others, found = _other_topologies(observed, desired, written, name, default)
    findings += found
    own = sorted(other.name for other in made)
    before = observed.running_topology(name)
    needed = (
        settings.wanted_settings(observed.style, observed.version, topology.cluster_default)
        if desired.manage_conf
        else {}
    )
    ranked = "TopologyParam" in needed and "topologyparam" not in observed.conf.settings
    nodes = observed.slurm.node_names()
    # Every other finding would name a symptom of this.
    node_names.check([node for block in blocks for node in block.nodes], nodes)
    known = frozenset(node.name for node in nodes)
    runs = before if before is not None else same_named(written, name)
    linted = rules.lint(
        rules.Candidate(
            version=observed.version,
            style=observed.style,
            topology=topology,
            known_nodes=known,
            partitions=observed.slurm.partitions(),
            previous=before,
            others=tuple(others),
            segments=desired.segments,
            node_topologies=observed.conf.node_topologies,
            made=tuple(made),
            power_saving=observed.power_saving,
            node_rank=ranked or settings.satisfies("TopologyParam", observed.config.get("topologyparam", "")),
        )
    )
    # A standby only writes what the active controller runs. Nodes that Slurm does not have are no reason to shrink.
    defaults = ("" if desired.cluster_default else _default(observed.running or written), default)
    if not observed.acting and not any(found["code"] == "node_renamed" for found in linted):
        # From 25.05 on a small block does not limit the base.
        smallest = not desired.block_sizes and observed.version < rules.YAML_SINCE
        findings += gates.check(before, topology, known, desired.override, base=smallest, default=defaults)
    findings += linted
    findings += settings.duplicate_findings(observed.style, observed.version, observed.duplicate)
    findings += settings.settings_findings(observed.style, observed.config, observed.conf.settings, desired.manage_conf)
    # It keeps its position in the file, so that a file written by hand is adopted unchanged.
    number = next((number for number, known in enumerate(written) if known.name == name), 0) if others else 0
    topologies = [*others[:number], topology, *others[number:]]
    writes = {}
    same = _same(written, topologies)
    if not same or own != observed.own_topologies():
        writes[observed.path] = files.render(
            topologies, observed.style, own, (observed.file or b"").decode("utf-8", "replace")
        ).encode()
    if desired.manage_conf:
        writes.update(_managed(observed, needed))
        # A setting of the site is kept.
        needed = {key: value for key, value in needed.items() if key != "TopologyParam" or ranked}
    # Where slurmctld does not read topology.conf yet, there is nothing to compare with or to load.
    loaded = observed.style == YAML or settings.satisfies("TopologyPlugin", observed.plugin)
    made_plan = Plan(observed, topology, topologies, made, needed, findings, writes)
    differs = made_plan.differs(observed) if loaded or desired.manage_conf else ""
    # A change of the header alone needs no reconfigure.
    loads = not same or bool(set(writes) - {observed.path})
    made_plan.reconfigure = (loaded or desired.manage_conf) and bool(loads or differs)
    made_plan.moves, lines = describe(runs, topology)
    if observed.acting:
        # A standby only writes what the active controller runs, so that a takeover never loads a refused file.
        made_plan.reconfigure, made_plan.waits_for = False, differs
    elif made_plan.reconfigure and desired.live_update:
        made_plan.live = _live(made_plan, before)
    made_plan.may_undo = live.GATE in desired.override
    if made_plan.reconfigure and made_plan.live is None:
        findings += gates.check_live(live.survey(observed.slurm, observed.conf_dir, writes), desired.override)
    _jobs(made_plan, desired.allow_moving_jobs)
    lines += [f"block {block.name}: left out, {block.hostlist()}" for block in left_out if lines or made_plan.writes]
    lines += [f"topology {gone}: removed, since it is no longer listed" for gone in _gone(observed, desired, name)]
    lines += _site_lines(observed, written, default)
    if not lines and writes.get(observed.path) is not None:
        lines = [f"{os.path.basename(observed.path)}: {'rewritten' if observed.file is not None else 'created'}"]
    lines += [f"{os.path.basename(path)}: {_summary(data)}" for path, data in writes.items() if path != observed.path]
    if made_plan.reconfigure and not lines:
        lines = ["slurmctld: runs another topology than its file has, and reads the file again"]
    made_plan.difference = lines
    return made_plan


def _other_topologies(
    observed: Survey, desired: DesiredState, written: Sequence[Topology], name: str, default: str
) -> tuple[list[Topology], list[Topology], list[HostFinding]]:
    """The topologies other than the blocks: those written here, all of them in order, and findings."""
    findings: list[HostFinding] = []
    if observed.style != YAML:
        if any(other.kind != "block" for other in written):
            findings.append(host_finding("slurm_topology_foreign", "tree", path=observed.path))
        if desired.others or desired.cluster_default:
            findings.append(
                host_finding(
                    "release_old",
                    "one_topology",
                    version=observed.version_text,
                    others=", ".join(other.name for other in desired.others) or desired.cluster_default,
                )
            )
        return [], [], findings
    if taken := [known.kind for known in written if known.name == name and known.kind not in ("block", "none")]:
        findings.append(host_finding("slurm_topology_foreign", "name", name=name, kind=taken[0]))
    made = [replace(other, cluster_default=other.name == default) for other in desired.others]
    new = {other.name: other for other in made}
    others = [
        new.pop(other.name) if other.name in new else replace(other, cluster_default=other.name == default)
        for other in written
        if other.name != name and other.name not in _gone(observed, desired, name)
    ]
    mine = {other.name for other in made}
    findings += [
        host_finding("slurm_conf_note", "topology", name=other.name, kind=other.kind, own=name)
        for other in others
        if other.name not in mine
    ]
    others += [other for other in made if other.name in new]
    if default not in (name, *(other.name for other in others)):
        findings.append(
            host_finding(
                "slurm_conf_inconsistent",
                "cluster_default",
                default=default,
                known=", ".join([name, *(other.name for other in others)]),
            )
        )
    return made, others, findings


def _default(topologies: Sequence[Topology]) -> str:
    """The topology of partitions without Topology=: the first one that is marked, else the first one."""
    marked = [known for known in topologies if known.cluster_default] or topologies
    return marked[0].name if marked else ""


def _site_lines(observed: Survey, written: Sequence[Topology], default: str) -> list[str]:
    """The lines of the diff about the site's own topologies."""
    lines = []
    if observed.tree is not None and observed.file is None:
        moved = count(len(observed.tree.body["switches"]), "switch", "switches")
        lines.append(f"topology {observed.tree.name}: the tree of topology.conf, {moved}, moves here")
    before = _default(written)
    return [*lines, f"cluster default: {before} -> {default}"] if before and before != default else lines


def _gone(observed: Survey, desired: DesiredState, name: str) -> list[str]:
    """The topologies that an earlier run has written next to the blocks and that are no longer desired."""
    return [own for own in observed.own_topologies() if own not in (name, *(other.name for other in desired.others))]


def _live(plan: Plan, before: Topology | None) -> LiveMove | None:
    """The single move that needs no reconfigure; None where anything else changes, or where it would not last.

    A node that slurmctld starts and stops (CLOUD) or that registers itself (DYNAMIC) keeps a live topology over a
    restart, against the file; so it needs a reconfigure.
    """
    observed, after = plan.survey, plan.topology
    if observed.style != YAML or before is None or len(plan.moves) != 1 or set(plan.writes) - {observed.path}:
        return None
    node, source, target = (plan.moves[0][key] for key in ("node", "from", "to"))
    if node is None or source is None or target is None or node in observed.conf.node_topologies:
        return None
    target_blocks = tuple(replace(block, nodes=tuple(sorted(block.nodes)), folded="") for block in after.blocks)
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
    if replace(after, blocks=target_blocks).fingerprint() != replace(before, blocks=moved).fingerprint():
        return None
    # The move must be the only difference, in the settings and in the other topologies too.
    others = [other for other in plan.topologies if other is not after]
    # slurmctld lists the default first, whatever its position in the file.
    listed = [sorted(known.name for known in topologies) for topologies in (observed.running, plan.topologies)]
    if other_difference(others, observed.running) or listed[0] != listed[1]:
        return None
    if any(not settings.satisfies(key, observed.config.get(key.lower(), "")) for key in plan.settings):
        return None
    units = []
    for known in observed.running:
        if known.name == after.name:
            units.append(f"{known.name}:{target}")
        elif known.kind == "block":
            unchanged = [f"{known.name}:{block.name}" for block in known.blocks if node in block.nodes]
            if unchanged and rules.update_drops_nodes(observed.version):
                return None
            units += unchanged
        elif known.kind == "tree":
            path = switches.path(known, node)
            units += [":".join([known.name, *path])] if path else []
        elif known.kind != "flat":
            return None
    if observed.slurm.node_state(node) & {"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "POWERED_DOWN"}:
        return None
    return LiveMove(node, ",".join(units))


def _jobs(plan: Plan, allowed: bool) -> None:
    """The jobs on trays that leave their block: Slurm does not stop them, but they are then in several blocks."""
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
    text = summarize(
        (f"job {job['job']} of {job['user']} on {summarize(job['nodes'], 2)}" for job in plan.jobs), limit=3
    )
    run = f"{count(len(plan.jobs), 'job')} {'runs' if len(plan.jobs) == 1 else 'run'}"
    if allowed:
        plan.findings.append(host_finding("slurm_gate_overridden", "jobs", run=run, jobs=text))
    else:
        plan.findings.append(host_finding("jobs_running", "moving", run=run, jobs=text))


def same_named(topologies: Sequence[Topology], name: str) -> Topology | None:
    return next((known for known in topologies if known.name == name and known.kind == "block"), None)


def _same(written: Sequence[Topology], topologies: Sequence[Topology]) -> bool:
    return [known.fingerprint() for known in written] == [known.fingerprint() for known in topologies]


def _managed(observed: Survey, needed: Mapping[str, str]) -> dict[str, bytes]:
    """The include file and its Include line in slurm.conf, where they are missing or differ."""
    lines = [f"{key}={value}" for key, value in needed.items() if key.lower() not in observed.conf.settings]
    path = os.path.join(observed.conf_dir, INCLUDE_NAME)
    text = "\n".join([files.HEADER, *lines]) + "\n"
    writes: dict[str, bytes] = {}
    if not lines and not observed.conf.includes_ours:
        return writes
    if host.read(path) != text.encode():
        writes[path] = text.encode()
    if not observed.conf.includes_ours:
        data = host.read(observed.conf.path) or b""
        # A relative name, since only such an include reaches configless nodes.
        writes[observed.conf.path] = (
            data + (b"" if data.endswith(b"\n") or not data else b"\n") + f"Include {INCLUDE_NAME}\n".encode()
        )
    return writes


def _summary(data: bytes) -> str:
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line and not line.startswith("#")]
    return f"gets the line {lines[-1]}" if lines and lines[-1].startswith("Include ") else ", ".join(lines) or "emptied"
