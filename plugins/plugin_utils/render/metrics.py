# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric in numbers: metrics/nvlink_fabric.prom for Prometheus, by the textfile collector of node_exporter.

It has no write time: compute ages in the query, as ``time() - nvlink_...timestamp_seconds``. Numbers are summed per
clique; no series is per tray, so ten thousand trays are a few thousand series. docs/monitoring.md lists the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import SEVERITIES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import view
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.repairs import KINDS, Repairs, repairs, spares
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import layers, uses
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import capacity
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.node_states import WORDS

_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = dict[str, str]
Sample = tuple[str, Labels, int | None]
"""A metric, its labels and value; None for a value that is unknown."""


HELP = {
    "nvlink_fabric_info": "The fabric file, by its SHA-256.",
    "nvlink_state_written_timestamp_seconds": "When the state of the trays was last written.",
    "nvlink_domain_expected_trays": "Trays that an NVLink domain is expected to have.",
    "nvlink_domain_trays": "Trays that the fabric file places in an NVLink domain.",
    "nvlink_unplaced_trays": "Observed trays without a place.",
    "nvlink_clique_info": "A clique: the value of its node label and its Slurm block.",
    "nvlink_block_trays": "Trays of a block of a clique that is split in Slurm's topology.",
    "nvlink_clique_gpus": "GPUs that the fabric file places in a clique.",
    "nvlink_clique_trays_by_health": "Trays of a clique, by health.",
    "nvlink_clique_trays_by_state": "Trays of a clique, by state.",
    "nvlink_clique_working_trays": (
        "Working trays of a clique, not unhealthy, stale, drained or down: the largest job inside the clique."
    ),
    "nvlink_clique_oldest_observation_timestamp_seconds": (
        "Time of the oldest observation among the trays of a clique."
    ),
    "nvlink_slurm_states_timestamp_seconds": "When the states of the trays in Slurm were read.",
    "nvlink_block_idle_trays": "Trays of a Slurm block that work and where no job runs.",
    "nvlink_block_spare_trays": "Spare trays of a Slurm block: reserved, free of them, promoted, missing.",
    "nvlink_segment_reach_trays": "Trays of the largest Slurm job with segments of so many trays.",
    "nvlink_segment_blocks": "Blocks that hold a segment of so many trays.",
    "nvlink_segment_idle_segments": "Segments of so many trays that fit on idle trays.",
    "nvlink_job_blocks_allowed": "Blocks that Slurm allows a job of so many trays.",
    "nvlink_job_blocks_needed": "Blocks that a job of so many trays needs with the working trays.",
    "nvlink_job_starts": "Whether a job of so many trays starts on the idle cluster without a segment.",
    "nvlink_findings": "Findings about the fabric, by code and severity.",
    "nvlink_verify_ok": "Whether the last verify found no error.",
    "nvlink_verify_timestamp_seconds": "When verify last ran.",
    "nvlink_layer_checked": "Whether the last verify checked a layer.",
    "nvlink_layer_ok": "Whether a checked layer has no error.",
    "nvlink_layer_failures": "Failures that the last verify found in a layer, by severity.",
    "nvlink_clique_free_nodes": "Nodes of a clique that a new ComputeDomain can use.",
    "nvlink_clique_stranded_gpus": "Free GPUs on nodes that a ComputeDomain has, which no other one can use.",
    "nvlink_clique_blocked_nodes": "Nodes of a clique with stranded GPUs, by the ComputeDomain that has them.",
    "nvlink_repair_incidents": "Incidents of repair: open ones, and those closed in the last 30 days.",
    "nvlink_repair_oldest_incident_timestamp_seconds": "When the oldest open incident was opened.",
    "nvlink_repair_repeat_offenders": "Trays, GPUs, links and switch ports with several incidents in the last 30 days.",
    "nvlink_repair_lost_seconds": "How long trays of a domain were out of service for incidents.",
    "nvlink_repair_stopped": "Limits of repair that were reached and that a person has to reset.",
}
"""Metric, always a gauge, and its help text, in the order of the file."""


def render(fabric: model.Fabric, state: model.State, context: RenderContext) -> dict[str, str]:
    """Render the file from a fabric, its state and, where there is one, a verdict; no metric without samples."""
    samples_of: dict[str, list[str]] = {name: [] for name in HELP}
    for name, labels, value in _samples(fabric, state, context):
        if value is not None:
            samples_of[name].append(f"{name}{_braced(labels)} {value}")
    lines = []
    for name, samples in samples_of.items():
        if samples:
            lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge", *samples]
    return {"metrics/nvlink_fabric.prom": "\n".join(lines) + "\n"}


def _braced(labels: Labels) -> str:
    text = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{text}}}" if text else ""


def _seconds(text: str | None) -> int | None:
    """Seconds since 1970; None for an invalid time, since a state file may be edited by hand."""
    try:
        time = datetime.fromisoformat((text or "").upper())
        return int(time.astimezone(timezone.utc).timestamp()) if time.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _samples(fabric: model.Fabric, state: model.State, context: RenderContext) -> Iterator[Sample]:
    shown = view.figure(fabric, state, context.jobs)
    yield "nvlink_fabric_info", {"sha256": fabric_file.digest(fabric_file.serialise(fabric))}, 1
    yield "nvlink_state_written_timestamp_seconds", {}, _seconds(state.written_at)
    for domain in shown.domains:
        labels = {"domain": domain.name}
        yield "nvlink_domain_expected_trays", labels, fabric.domains[domain.name]["expected_trays"]
        yield "nvlink_domain_trays", labels, len(domain.trays)
    yield "nvlink_unplaced_trays", {}, len(shown.unplaced)
    for clique in shown.cliques:
        if clique.trays:
            yield from _of_clique(clique, fabric.members[clique.name], state, () if context.nodes is None else WORDS)
    for spare in spares(fabric, state, context):
        labels = _block_labels(fabric, spare.block, spare.cluster)
        for word in ("reserved", "free", "promoted", "missing"):
            yield "nvlink_block_spare_trays", {**labels, "state": word}, getattr(spare, word)
    yield "nvlink_slurm_states_timestamp_seconds", {}, _seconds(context.nodes_at)
    for found in capacity.capacities(fabric, state, context.block_sizes, context.nodes):
        yield from _of_capacity({"slurm_cluster": found.cluster} if found.cluster else {}, found)
        for block, number in (found.idle or {}).items():
            yield "nvlink_block_idle_trays", _block_labels(fabric, block, found.cluster), number
    findings = Counter((str(finding.get("code")), str(finding.get("severity"))) for finding in shown.findings)
    for (code, severity), number in sorted(findings.items()):
        yield "nvlink_findings", {"code": code, "severity": severity}, number
    if context.verdict:
        yield from _of_verify(context.verdict)
    if found_repairs := repairs(context):
        yield from _of_repairs(found_repairs, fabric)


def _block_labels(fabric: model.Fabric, block: model.BlockView, cluster: str) -> Labels:
    labels = {"block": block.name, "clique": block.clique, "domain": fabric.cliques[block.clique]["domain"]}
    return {**labels, "slurm_cluster": cluster} if cluster else labels


def _of_clique(
    clique: view.Clique, members: Sequence[str], state: model.State, words: Sequence[str]
) -> Iterator[Sample]:
    labels = {"clique": clique.name, "domain": clique.domain}
    observed = [state.trays[name] for name in members if name in state.trays]
    states = Counter(row["state"] for row in observed)
    states[model.UNKNOWN] += len(members) - len(observed)
    yield "nvlink_clique_info", {**labels, "block": clique.block, "label": clique.text}, 1
    for part in clique.parts:
        yield "nvlink_block_trays", {**labels, "block": part.name}, len(part.trays)
    yield "nvlink_clique_gpus", labels, clique.gpus
    for word in view.HEALTH:
        yield "nvlink_clique_trays_by_health", {**labels, "health": word}, clique.health.get(word, 0)
    # An unplaced tray has no clique.
    for word in (model.PRESENT, *words, model.STALE, model.CONFLICT, model.UNKNOWN):
        yield "nvlink_clique_trays_by_state", {**labels, "state": word}, states[word]
    yield "nvlink_clique_working_trays", labels, clique.works
    oldest = min(filter(None, (_seconds(row["observed_at"]) for row in observed)), default=None)
    yield "nvlink_clique_oldest_observation_timestamp_seconds", labels, oldest


def _of_capacity(labels: Labels, found: capacity.Capacity) -> Iterator[Sample]:
    for reach in found.reaches:
        segment = {**labels, "segment": str(reach.segment)}
        yield "nvlink_segment_reach_trays", segment, reach.trays
        yield "nvlink_segment_blocks", segment, reach.blocks
        yield "nvlink_segment_idle_segments", segment, reach.idle
    for row in found.jobs:
        job = {**labels, "job_trays": str(row.nodes)}
        yield "nvlink_job_blocks_allowed", job, row.allowed
        yield "nvlink_job_blocks_needed", job, row.needed
        yield "nvlink_job_starts", job, int(row.starts)


def _of_verify(verdict: Verdict) -> Iterator[Sample]:
    yield "nvlink_verify_ok", {}, int(verdict["ok"])
    yield "nvlink_verify_timestamp_seconds", {}, _seconds(verdict["checked_at"])
    for row in layers(verdict):
        layer = {"layer": row.name}
        yield "nvlink_layer_checked", layer, int(row.checked)
        yield "nvlink_layer_ok", layer, int(row.ok) if row.checked else None
        for word in SEVERITIES:
            yield "nvlink_layer_failures", {**layer, "severity": word}, row.failures.get(word, 0)
    for name, use in uses(verdict).items():
        clique = {"clique": name}
        yield "nvlink_clique_free_nodes", clique, use["free_nodes"]
        yield "nvlink_clique_stranded_gpus", clique, use["stranded_gpus"]
        for domain, nodes in use["blocked_by"].items() if use["stranded_gpus"] else ():
            yield "nvlink_clique_blocked_nodes", {**clique, "compute_domain": domain}, len(nodes)


def _of_repairs(found: Repairs, fabric: model.Fabric) -> Iterator[Sample]:
    yield "nvlink_repair_incidents", {"state": "open"}, len(found.open)
    yield "nvlink_repair_incidents", {"state": "closed"}, len(found.incidents) - len(found.open)
    oldest = min((one.opened_at for one in found.open), default=None)
    yield "nvlink_repair_oldest_incident_timestamp_seconds", {}, _seconds(oldest)
    for kind in KINDS:
        yield "nvlink_repair_repeat_offenders", {"kind": kind}, sum(one.kind == kind for one in found.offenders)
    lost: Counter[str] = Counter()
    for tray, hours in found.hours.items():
        if placed := fabric.trays.get(tray):
            lost[fabric.cliques[placed["clique"]]["domain"]] += int(hours * 3600)
    for domain, seconds in sorted(lost.items()):
        yield "nvlink_repair_lost_seconds", {"domain": domain}, seconds
    yield "nvlink_repair_stopped", {}, len(found.stopped)
