# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric in numbers: metrics/nvlink_fabric.json for programs, metrics/nvlink_fabric.prom for Prometheus.

The .prom file is for the textfile collector of node_exporter. Both have the same numbers and no write time: compute
ages from timestamps in the query, as ``time() - nvlink_...timestamp_seconds`` in Prometheus. Numbers are summed per
clique; no series is per tray, so ten thousand trays are a few thousand series.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import view
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import Verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import capacity

SCHEMA_VERSION = 1
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)

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
    "nvlink_clique_gpus": "GPUs that the fabric file places in a clique.",
    "nvlink_clique_trays_by_health": "Trays of a clique, by health.",
    "nvlink_clique_trays_by_state": "Trays of a clique, by state.",
    "nvlink_clique_working_trays": (
        "Working trays of a clique, neither unhealthy nor stale: the largest job inside the clique."
    ),
    "nvlink_clique_oldest_observation_timestamp_seconds": (
        "Time of the oldest observation among the trays of a clique."
    ),
    "nvlink_segment_reach_trays": "Trays of the largest Slurm job with segments of so many trays.",
    "nvlink_segment_blocks": "Blocks that hold a segment of so many trays.",
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
}
"""Metric, always a gauge, and its help text, in the order of the file."""


def render(fabric: model.Fabric, state: model.State, context: RenderContext) -> dict[str, str]:
    """Render both files from a fabric, its state and, where there is one, a verdict."""
    document = numbers(fabric, state, context)
    return {
        "metrics/nvlink_fabric.json": fabric_file.encode(document).decode(),
        "metrics/nvlink_fabric.prom": exposition(document),
    }


def numbers(fabric: model.Fabric, state: model.State, context: RenderContext) -> dict[str, Any]:
    """All numbers as plain data; docs/monitoring.md describes it."""
    shown = view.figure(fabric, state)
    findings = Counter((str(finding.get("code")), str(finding.get("severity"))) for finding in shown.findings)
    capacities = capacity.capacities(fabric, state, context.block_sizes)
    return {
        "schema_version": SCHEMA_VERSION,
        "fabric_sha256": fabric_file.digest(fabric_file.serialise(fabric)),
        "state_written_at": _time(state.written_at),
        "domains": {
            domain.name: {"expected_trays": fabric.domains[domain.name]["expected_trays"], "trays": len(domain.trays)}
            for domain in shown.domains
        },
        "cliques": {clique.name: _clique(clique, fabric, state) for clique in shown.cliques if clique.trays},
        "unplaced_trays": len(shown.unplaced),
        "findings": [
            {"code": code, "severity": severity, "count": count} for (code, severity), count in sorted(findings.items())
        ],
        "capacity": [asdict(found) for found in capacities],
        "verify": _verify(context.verdict),
    }


def _clique(clique: view.Clique, fabric: model.Fabric, state: model.State) -> dict[str, Any]:
    members = fabric.members[clique.name]
    states = Counter(state.trays[name]["state"] if name in state.trays else model.UNKNOWN for name in members)
    observed = [_time(state.trays[name]["observed_at"]) for name in members if name in state.trays]
    return {
        "domain": clique.domain,
        "clique": clique.text,
        "block": clique.block,
        "trays": clique.trays,
        "gpus": clique.gpus,
        "working_trays": clique.works,
        "health": {word: clique.health.get(word, 0) for word in view.HEALTH},
        # An unplaced tray has no clique.
        "state": {word: states[word] for word in (model.PRESENT, model.STALE, model.CONFLICT, model.UNKNOWN)},
        "oldest_observation": min(filter(None, observed), default=None),
    }


def _verify(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    layers = {
        layer.name: {
            "checked": layer.checked,
            "ok": layer.ok,
            "failures": {word: layer.failures.get(word, 0) for word in view.SEVERITIES},
        }
        for layer in verdict.layers
    }
    return {
        "ok": verdict.ok,
        "checked_at": _time(verdict.checked_at),
        "layers": layers,
        "compute_domains": {
            name: {**use, "blocked_by": {domain: len(nodes) for domain, nodes in use["blocked_by"].items()}}
            for name, use in (verdict.uses or {}).items()
        },
    }


def _time(text: str | None) -> str | None:
    """Convert a time to UTC in whole seconds; None where it is invalid, since a state file may be edited by hand."""
    if not text or not _RFC_3339.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return None


def _seconds(text: str | None) -> int | None:
    return int(datetime.fromisoformat(text).timestamp()) if text else None


def exposition(document: Mapping[str, Any]) -> str:
    """The numbers in Prometheus' text format; a metric without samples is left out."""
    samples_of: dict[str, list[str]] = {name: [] for name in HELP}
    for name, labels, value in _samples(document):
        if value is not None:
            samples_of[name].append(f"{name}{_braced(labels)} {value}")
    lines = []
    for name, samples in samples_of.items():
        if samples:
            lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge", *samples]
    return "\n".join(lines) + "\n"


def _braced(labels: Labels) -> str:
    text = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{text}}}" if text else ""


def _samples(document: Mapping[str, Any]) -> Iterator[Sample]:
    yield "nvlink_fabric_info", {"sha256": document["fabric_sha256"]}, 1
    yield "nvlink_state_written_timestamp_seconds", {}, _seconds(document["state_written_at"])
    for name, row in document["domains"].items():
        yield "nvlink_domain_expected_trays", {"domain": name}, row["expected_trays"]
        yield "nvlink_domain_trays", {"domain": name}, row["trays"]
    yield "nvlink_unplaced_trays", {}, document["unplaced_trays"]
    for name, row in document["cliques"].items():
        yield from _of_clique({"clique": name, "domain": row["domain"]}, row)
    for found in document["capacity"]:
        yield from _of_capacity({"slurm_cluster": found["cluster"]} if found["cluster"] else {}, found)
    for row in document["findings"]:
        yield "nvlink_findings", {"code": row["code"], "severity": row["severity"]}, row["count"]
    if document["verify"]:
        yield from _of_verify(document["verify"])


def _of_clique(labels: Labels, row: Mapping[str, Any]) -> Iterator[Sample]:
    yield "nvlink_clique_info", {**labels, "block": row["block"], "label": row["clique"]}, 1
    yield "nvlink_clique_gpus", labels, row["gpus"]
    for word in ("health", "state"):
        for value, number in row[word].items():
            yield f"nvlink_clique_trays_by_{word}", {**labels, word: value}, number
    yield "nvlink_clique_working_trays", labels, row["working_trays"]
    yield "nvlink_clique_oldest_observation_timestamp_seconds", labels, _seconds(row["oldest_observation"])


def _of_capacity(labels: Labels, found: Mapping[str, Any]) -> Iterator[Sample]:
    for row in found["reaches"]:
        segment = {**labels, "segment": str(row["segment"])}
        yield "nvlink_segment_reach_trays", segment, row["trays"]
        yield "nvlink_segment_blocks", segment, row["blocks"]
    for row in found["jobs"]:
        job = {**labels, "job_trays": str(row["nodes"])}
        yield "nvlink_job_blocks_allowed", job, row["allowed"]
        yield "nvlink_job_blocks_needed", job, row["needed"]
        yield "nvlink_job_starts", job, int(row["starts"])


def _of_verify(verify: Mapping[str, Any]) -> Iterator[Sample]:
    yield "nvlink_verify_ok", {}, int(verify["ok"])
    yield "nvlink_verify_timestamp_seconds", {}, _seconds(verify["checked_at"])
    for name, row in verify["layers"].items():
        layer = {"layer": name}
        yield "nvlink_layer_checked", layer, int(row["checked"])
        yield "nvlink_layer_ok", layer, int(row["ok"]) if row["checked"] else None
        for word, number in row["failures"].items():
            yield "nvlink_layer_failures", {**layer, "severity": word}, number
    for name, row in verify["compute_domains"].items():
        clique = {"clique": name}
        yield "nvlink_clique_free_nodes", clique, row["free_nodes"]
        yield "nvlink_clique_stranded_gpus", clique, row["stranded_gpus"]
        for domain, number in row["blocked_by"].items() if row["stranded_gpus"] else ():
            yield "nvlink_clique_blocked_nodes", {**clique, "compute_domain": domain}, number
