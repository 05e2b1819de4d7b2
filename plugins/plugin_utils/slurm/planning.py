# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the change from the observed to the desired topology. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import node_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import live, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import (
    INCLUDE_NAME,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    CONF,
    FILE_NAMES,
    HEADER,
    YAML,
    Block,
    SlurmError,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.comparing import Expected, are_apart
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import (
    changes,
    linter,
    plan_gates,
    settings,
    topology_files,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.moves import describe
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed, complete

OVERRIDE = "override (variable slurm_topology_override)"
FILES = (INCLUDE_NAME, *FILE_NAMES.values())
"""The files of the topology; the first one is included by slurm.conf."""


@dataclass(frozen=True)
class DesiredState:
    """The desired topology: the blocks in order, block sizes (empty: chosen here), its name, and the policy.

    others: other topologies of kind flat or tree that this collection writes; cluster_default: the name of the topology
    that partitions without Topology= use, empty for the block topology; allow_moving_jobs: whether trays may change
    their block under a running job; override: the gates of gates.GATES that do not object; min_block_size: cliques with
    fewer trays get no block before 25.05, where the smallest block limits the base block size.
    """

    blocks: tuple[Block, ...]
    block_sizes: tuple[int, ...] = ()
    name: str = "nvlink"
    manage_conf: bool = False
    others: tuple[Topology, ...] = ()
    cluster_default: str = ""
    allow_moving_jobs: bool = False
    override: tuple[str, ...] = ()
    min_block_size: int = 0

    @classmethod
    def of(cls, options: Arguments, blocks: Sequence[Block]) -> DesiredState:
        """As the options of slurm_topology say, with these of its blocks."""
        same = ("manage_conf", "cluster_default", "allow_moving_jobs", "min_block_size")
        given: dict[str, Any] = {option: options[option] for option in same}
        given.update((option, tuple(options[option])) for option in ("block_sizes", "override"))
        others = tuple(map(_other, options["other_topologies"]))
        return cls(tuple(blocks), name=options["topology_name"], others=others, **given)


def _other(entry: Arguments) -> Topology:
    """Another topology, with the body that topology.yaml has."""
    if entry["kind"] == "flat":
        return Topology(entry["name"], "flat", False, body="true")
    switches = [
        {"switch": switch["switch"], **{key: switch[key] for key in ("children", "nodes") if switch[key]}}
        for switch in entry["switches"]
    ]
    return Topology(entry["name"], "tree", False, body={"switches": switches})


@dataclass(kw_only=True)
class Plan(changes.Change):
    """The planned change of the topology. waits_for: on a standby, in what the active controller differs."""

    desired: DesiredState
    topology: Topology
    topologies: list[Topology]
    made: list[Topology]
    settings: dict[str, str]
    waits_for: str = ""
    moves: list[dict[str, str | None]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)

    def expected(self) -> Expected:
        """What slurmctld is to run."""
        return replace(
            expected(self.observed, self.topology),
            made=tuple(self.made),
            names=tuple(known.name for known in self.topologies) if self.observed.style == YAML else (),
            settings={key: settings.ACCEPTED[key] for key in self.settings},
        )

    def change(self) -> dict[str, Any]:
        """The option ``change`` of the step transact (topology/transact.py); SlurmError where a standby must wait."""
        observed = self.observed
        if self.waits_for:
            raise SlurmError(
                f"This host is a standby, and the active controller {observed.acting} runs another topology"
                f" ({self.waits_for}): apply the topology on {observed.acting} first; nothing was changed here."
            )
        # Written by an earlier run that was interrupted before slurmctld has read it.
        replaced = same_named(observed.replaced(), self.topology.name) if not self.writes else None
        cut_off = replaced is not None and not expected(observed, replaced).differs(observed.runs)
        blocks = [known for known in (observed.replaced() if cut_off else observed.written()) if known.kind == "block"]
        moving = (
            []
            if self.desired.allow_moving_jobs or observed.acting
            else [row["node"] for row in self.moves if row["from"]]
        )
        return {
            **self.files(),
            "checksums": dict(observed.checksums),
            "expected": self.expected().document(),
            "before": expected(observed, blocks[0]).document() if blocks else None,
            "moving": moving,
            "load": self.reconfigure,
            "cut_off": [observed.path] if cut_off else [],
            "override": "" if live.GATE in self.desired.override else OVERRIDE,
        }

    def result(self, stopped: bool) -> dict[str, Any]:
        """The result of slurm_topology, without a rehearsal; stopped: nothing was changed."""
        return {
            **super().result(stopped),
            "path": self.observed.path,
            "topology_name": self.topology.name,
            "block_sizes": list(self.topology.block_sizes),
            "moves": self.moves,
            "jobs": self.jobs,
            "standby_of": self.observed.acting or None,
        }


def expected(observed: Observed, topology: Topology) -> Expected:
    """What slurmctld is to run of one block topology."""
    # 24.05 does not print aggregated blocks.
    if observed.style == YAML or observed.version < (24, 11, 0):
        return Expected(observed.style, topology)
    sizes, nodes = topology.block_sizes, {block.name: block.nodes for block in topology.blocks}
    base = sizes[0] if sizes else len(set(topology.blocks[0].nodes)) if topology.blocks else 0
    aggregated = tuple(
        (size, tuple({node for name in group for node in nodes[name]}))
        for size, group in linter.aggregates(topology, base)
    )
    return Expected(observed.style, topology, aggregated=aggregated)


def candidate(
    observed: Observed, topology: Topology, others: Sequence[Topology], ranked: bool = False, **more: Any
) -> linter.Candidate:
    """A topology for the linter, as this Slurm would load it. ranked: TopologyParam will have BlockAsNodeRank."""
    return linter.Candidate(
        version=observed.version,
        style=observed.style,
        topology=topology,
        known_nodes=frozenset(node.name for node in observed.nodes),
        partitions=observed.partitions,
        others=tuple(others),
        power_saving=observed.power_saving,
        node_rank=ranked or settings.satisfies("TopologyParam", observed.config.get("topologyparam", "")),
        **more,
    )


def plan(observed: Observed, desired: DesiredState) -> Plan:
    """Compare the desired with the observed state; reads only."""
    blocks, findings = linter.drop_placeholders(desired.blocks, observed.version)
    blocks, small = linter.leave_out(blocks, desired.min_block_size, observed.version)
    for block in small:
        findings.append(
            host_finding(
                "slurm_blocks_limited",
                "left_out",
                block=block.name,
                number=count(len(block.nodes), "node"),
                nodes=block.hostlist(),
                minimum=desired.min_block_size,
            )
        )
    sizes, found = linter.choose_sizes(blocks, observed.version, desired.block_sizes)
    findings += found
    # Slurm calls the one topology of a topology.conf "default".
    name = desired.name if observed.style == YAML else "default"
    default = desired.cluster_default if observed.style == YAML and desired.cluster_default else name
    topology = Topology(name=name, blocks=blocks, block_sizes=sizes, cluster_default=default == name)
    written = observed.written()
    made, others, found = _other_topologies(observed, desired, written, name, default)
    findings += found
    own = sorted(other.name for other in made) or [block.name for block in small]
    before = observed.runs.blocks(name)
    needed, given = {}, dict(observed.settings)
    if desired.manage_conf:
        needed = settings.wanted_settings(observed.style, observed.version, topology.cluster_default)
    # Where slurmctld does not read topology.conf yet, there is nothing to compare with or to load.
    loaded = observed.style == YAML or settings.satisfies("TopologyPlugin", observed.plugin)
    unset = ""
    plugin = given.get("topologyplugin", settings.PLUGIN)
    if "TopologyPlugin" in needed and not settings.satisfies("TopologyPlugin", plugin):
        del given["topologyplugin"]
        unset = "" if loaded else "TopologyPlugin"
    ranked = "TopologyParam" in needed and "topologyparam" not in given
    # Every other finding would name a symptom of this.
    node_names.check([node for block in blocks for node in block.nodes], observed.nodes)
    known = frozenset(node.name for node in observed.nodes)
    runs = before if before is not None else same_named(written, name)
    linted = linter.lint(
        candidate(
            observed,
            topology,
            others,
            ranked,
            previous=before,
            node_topologies=observed.node_topologies,
            made=tuple(made),
        )
    )
    # A standby only writes what the active controller runs. Nodes that Slurm does not have are no reason to shrink.
    defaults = ("" if desired.cluster_default else _default(observed.running or written), default)
    if desired.manage_conf and _runs_switches(observed, written):
        defaults = (plan_gates.TREE, "the blocks")
    if not observed.acting and not any(found["code"] == "node_renamed" for found in linted):
        # From 25.05 on a small block does not limit the base.
        smallest = not desired.block_sizes and observed.version < rules.YAML_SINCE
        findings += plan_gates.check(
            before,
            topology,
            known,
            desired.override,
            base=smallest,
            default=defaults,
            sizes=() if desired.block_sizes else observed.site_sizes(name),
        )
    findings += linted
    findings += observed.duplicate
    if observed.style == YAML and FILE_NAMES[CONF] in observed.texts and not observed.duplicate:
        findings.append(host_finding("slurm_conf_advice", "other_file_soon"))
    found = settings.settings_findings(observed.style, observed.config, given, desired.manage_conf)
    # A run with manage_conf has slurmctld load them.
    findings += [row for row in found if not (desired.manage_conf and row["case"] == "not_loaded")]
    # It keeps its position in the file, so that a file written by hand is adopted unchanged.
    number = next((number for number, known in enumerate(written) if known.name == name), 0) if others else 0
    topologies = [*others[:number], topology, *others[number:]]
    writes: dict[str, str] = {}
    includes = ""
    same = topology_files.same(written, topologies)
    if not same or own != observed.named() or not (observed.file or "").startswith(HEADER):
        former = topology_files.former_default(observed.file or "") or _default(written)
        # Ours is no topology of the site.
        former = former if former not in (default, name, *own) else ""
        writes[observed.path] = topology_files.render(topologies, observed.style, own, observed.file or "", former)
    if desired.manage_conf:
        text = _managed(observed, needed, given)
        includes = INCLUDE_NAME if text and not observed.includes_ours else ""
        if text and text != observed.texts.get(INCLUDE_NAME):
            writes[os.path.join(observed.conf_dir, INCLUDE_NAME)] = text
        # A setting of the site is kept.
        needed = {key: value for key, value in needed.items() if key != "TopologyParam" or ranked}
    made_plan = Plan(
        observed=observed,
        findings=findings,
        # The topology comes first, then the plugin that needs it, then the line that sets the plugin.
        writes=writes,
        includes=includes,
        unset=unset,
        desired=desired,
        topology=topology,
        topologies=topologies,
        made=made,
        settings=needed,
    )
    differs = made_plan.expected().differs(observed.runs) if loaded or desired.manage_conf else ""
    # A change of the header alone needs no reconfigure.
    loads = not same or bool(set(made_plan.written) - {observed.path})
    made_plan.reconfigure = (loaded or desired.manage_conf) and bool(loads or differs)
    made_plan.moves, lines = describe(runs, topology)
    if observed.acting:
        # A standby only writes what the active controller runs, so that a takeover never loads a refused file.
        made_plan.reconfigure, made_plan.waits_for = False, differs
    _jobs(made_plan)
    lines += [f"block {block.name}: left out, {block.hostlist()}" for block in small if lines or made_plan.written]
    lines += [f"topology {gone}: removed, since it is no longer listed" for gone in _gone(observed, desired, name)]
    lines += _site_lines(observed, written, default)
    if not lines and writes.get(observed.path) is not None:
        lines = [f"{os.path.basename(observed.path)}: {'rewritten' if observed.file is not None else 'created'}"]
    lines += [f"{os.path.basename(path)}: {_summary(text)}" for path, text in writes.items() if path != observed.path]
    lines += [f"{os.path.basename(observed.main)}: {unset}={plugin} becomes a comment"] if unset else []
    lines += [f"{os.path.basename(observed.main)}: gets the line Include {INCLUDE_NAME}"] if includes else []
    if made_plan.reconfigure and not lines:
        lines = ["slurmctld: runs another topology than its file has, and reads the file again"]
    made_plan.difference = lines
    return made_plan


def _other_topologies(
    observed: Observed, desired: DesiredState, written: Sequence[Topology], name: str, default: str
) -> tuple[list[Topology], list[Topology], list[HostFinding]]:
    """The topologies other than the blocks: those written here, all of them in order, and findings."""
    findings: list[HostFinding] = []
    if observed.style != YAML:
        movable = _runs_switches(observed, written)
        if any(other.kind != "block" for other in written) and not (movable and desired.manage_conf):
            how = "set slurm_topology_manage_conf, or " if movable else ""
            findings.append(host_finding("slurm_topology_foreign", "tree", path=observed.path, how=how))
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
    gone = _gone(observed, desired, name)
    others = [
        new.pop(other.name) if other.name in new else replace(other, cluster_default=other.name == default)
        for other in written
        if other.name != name and other.name not in gone
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


def _runs_switches(observed: Observed, written: Sequence[Topology]) -> bool:
    """Whether a topology.conf of switches alone runs, which manage_conf replaces together with its plugin."""
    if observed.style == YAML or observed.plugin.lower() != "topology/tree":
        return False
    lines = [line for known in written if known.kind != "block" for line in known.body]
    return bool(lines) and all("switchname" in line.lower() for line in lines)


def _default(topologies: Sequence[Topology]) -> str:
    """The topology of partitions without Topology=: the first one that is marked, else the first one."""
    marked = [known for known in topologies if known.cluster_default] or topologies
    return marked[0].name if marked else ""


def _site_lines(observed: Observed, written: Sequence[Topology], default: str) -> list[str]:
    """The lines of the diff about the site's own topologies."""
    lines = []
    if observed.tree is not None and observed.file is None:
        moved = count(len(observed.tree.body["switches"]), "switch", "switches")
        lines.append(f"topology {observed.tree.name}: the tree of topology.conf, {moved}, moves here")
    before = _default(written)
    return [*lines, f"cluster default: {before} -> {default}"] if before and before != default else lines


def _gone(observed: Observed, desired: DesiredState, name: str) -> list[str]:
    """The topologies that an earlier run has written next to the blocks and that are no longer desired."""
    return [own for own in observed.own_topologies() if own not in (name, *(other.name for other in desired.others))]


def _jobs(plan: Plan) -> None:
    """The jobs on trays that leave their block, and are then in several: Slurm does not stop them."""
    moving = {move["node"]: move for move in plan.moves if move["from"] is not None}
    if not moving or plan.observed.acting:
        return
    block_of = plan.expected().block_of()
    for job in plan.observed.jobs:
        nodes = [node for node in job.nodes if node in moving]
        if nodes and are_apart(job.nodes, block_of):
            plan.jobs.append({"job": job.id, "user": job.user, "partition": job.partition, "nodes": nodes})
    if not plan.jobs:
        return
    plan.jobs.sort(key=lambda job: (len(job["job"]), job["job"]))
    text = summarize(
        (f"job {job['job']} of {job['user']} on {summarize(job['nodes'], 2)}" for job in plan.jobs), limit=3
    )
    run = f"{count(len(plan.jobs), 'job')} {'runs' if len(plan.jobs) == 1 else 'run'}"
    if plan.desired.allow_moving_jobs:
        plan.findings.append(host_finding("slurm_gate_overridden", "jobs", run=run, jobs=text))
    else:
        plan.findings.append(host_finding("jobs_running", "moving", run=run, jobs=text))


def same_named(topologies: Sequence[Topology], name: str) -> Topology | None:
    return next((known for known in topologies if known.name == name and known.kind == "block"), None)


def _managed(observed: Observed, needed: Mapping[str, str], given: Mapping[str, str]) -> str:
    """The text of the file that slurm.conf includes; empty where none is needed. given: the site's settings."""
    lines = [f"{key}={value}" for key, value in needed.items() if key.lower() not in given]
    return "\n".join([HEADER, *lines]) + "\n" if lines or observed.includes_ours else ""


def _summary(text: str) -> str:
    return ", ".join(line for line in text.splitlines() if line and not line.startswith("#")) or "emptied"


def plan_removal(survey: Any, path: str, name: str) -> dict[str, Any]:
    """The option ``change`` that removes the topology. survey: the texts and checksums that the host returned.

    path: of topology.yaml, which stays as it is where this collection has not written it.
    """
    with complete(survey):
        texts, checksums = dict(survey["texts"]), dict(survey["checksums"])
    text = str(texts.get(FILE_NAMES[YAML], ""))
    try:
        kept = {FILE_NAMES[YAML]: kept_yaml(text, name)} if text.startswith(HEADER) else {}
    except SlurmError as error:
        raise SlurmError(f"{path}: {error}") from None
    none: dict[str, Any] = {"expected": None, "before": None, "moving": [], "cut_off": [], "leaving": [], "own": []}
    files = changes.removed_files(texts, FILES, kept)
    return {**files, **none, "checksums": checksums, "gone": name, "load": True, "reloads": True, "rehearsal": None}


def kept_yaml(text: str, name: str) -> str | None:
    """The text of topology.yaml with the site's topologies alone and no header, without ours; None if none is left."""
    ours = {name, *topology_files.own_topologies(text)}
    others = [known for known in topology_files.parse_yaml(text) if known.name not in ours]
    former = topology_files.former_default(text)
    if former:
        others = [replace(known, cluster_default=known.name == former) for known in others]
    return topology_files.render(others, YAML, old=text).partition("\n")[2] if others else None
