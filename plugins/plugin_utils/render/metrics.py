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
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import view
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import Verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import capacity

SCHEMA_VERSION = 1
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)

Labels = dict[str, str]


class Family(NamedTuple):
    """One metric, always a gauge: its name, help text and samples."""

    name: str
    help: str
    samples: list[tuple[Labels, int]]


def render(fabric: model.Fabric, state: model.State, context: RenderContext) -> dict[str, str]:
    """Render both files from a fabric, its state and, where there is one, a verdict."""
    document = numbers(fabric, state, context)
    return {
        "metrics/nvlink_fabric.json": fabric_file.encode(document).decode(),
        "metrics/nvlink_fabric.prom": exposition(families(document)),
    }


def numbers(fabric: model.Fabric, state: model.State, context: RenderContext) -> dict[str, Any]:
    """All numbers as plain data; docs/monitoring.md describes it."""
    shown = view.figure(fabric, state)
    findings = Counter((str(finding.get("code")), str(finding.get("severity"))) for finding in shown.findings)
    capacities = capacity.capacities(fabric, state, context.block_sizes, context.aggregate_blocks)
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
            use.name: {
                "nodes": use.nodes,
                "free_nodes": use.free_nodes,
                "stranded_gpus": use.stranded_gpus,
                "blocked_by": {domain: len(nodes) for domain, nodes in use.blocked_by.items()},
            }
            for use in verdict.uses or ()
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


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def families(document: Mapping[str, Any]) -> list[Family]:
    """The numbers as metrics; a metric without samples is left out."""
    made = [*_of_the_file(document), *_of_cliques(document["cliques"]), *_of_capacity(document["capacity"])]
    made += [
        Family(
            "nvlink_findings",
            "Findings about the fabric, by code and severity.",
            [({"code": row["code"], "severity": row["severity"]}, row["count"]) for row in document["findings"]],
        )
    ]
    if document["verify"]:
        made += _of_verify(document["verify"])
        made += _of_compute_domains(document["verify"]["compute_domains"])
    return [family for family in made if family.samples]


def _of_the_file(document: Mapping[str, Any]) -> Iterator[Family]:
    written = document["state_written_at"]
    yield Family("nvlink_fabric_info", "The fabric file, by its SHA-256.", [({"sha256": document["fabric_sha256"]}, 1)])
    yield Family(
        "nvlink_state_written_timestamp_seconds",
        "When the state of the trays was last written.",
        [({}, _seconds(written))] if written else [],
    )
    domains = document["domains"]
    yield Family(
        "nvlink_domain_expected_trays",
        "Trays that an NVLink domain is expected to have.",
        [({"domain": name}, row["expected_trays"]) for name, row in domains.items()],
    )
    yield Family(
        "nvlink_domain_trays",
        "Trays that the fabric file places in an NVLink domain.",
        [({"domain": name}, row["trays"]) for name, row in domains.items()],
    )
    yield Family("nvlink_unplaced_trays", "Observed trays without a place.", [({}, document["unplaced_trays"])])


def _of_cliques(cliques: Mapping[str, Any]) -> Iterator[Family]:
    def each(name: str) -> Labels:
        return {"clique": name, "domain": cliques[name]["domain"]}

    yield Family(
        "nvlink_clique_info",
        "A clique: the value of its node label and its Slurm block.",
        [({**each(name), "block": row["block"], "label": row["clique"]}, 1) for name, row in cliques.items()],
    )
    yield Family(
        "nvlink_clique_gpus",
        "GPUs that the fabric file places in a clique.",
        [(each(name), row["gpus"]) for name, row in cliques.items()],
    )
    for word in ("health", "state"):
        yield Family(
            f"nvlink_clique_trays_by_{word}",
            f"Trays of a clique, by {word}.",
            [
                ({**each(name), word: value}, number)
                for name, row in cliques.items()
                for value, number in row[word].items()
            ],
        )
    yield Family(
        "nvlink_clique_working_trays",
        "Working trays of a clique, neither unhealthy nor stale: the largest job inside the clique.",
        [(each(name), row["working_trays"]) for name, row in cliques.items()],
    )
    yield Family(
        "nvlink_clique_oldest_observation_timestamp_seconds",
        "Time of the oldest observation among the trays of a clique.",
        [
            (each(name), _seconds(row["oldest_observation"]))
            for name, row in cliques.items()
            if row["oldest_observation"]
        ],
    )


def _of_capacity(clusters: list[dict[str, Any]]) -> Iterator[Family]:
    def each(key: str) -> Iterator[tuple[Labels, dict[str, Any]]]:
        for found in clusters:
            name = {"slurm_cluster": found["cluster"]} if found["cluster"] else {}
            for row in found[key]:
                yield {**name, **_size(row)}, row

    yield Family(
        "nvlink_segment_reach_trays",
        "Trays of the largest Slurm job with segments of so many trays.",
        [(labels, row["trays"]) for labels, row in each("reaches")],
    )
    yield Family(
        "nvlink_segment_blocks",
        "Blocks that hold a segment of so many trays.",
        [(labels, row["blocks"]) for labels, row in each("reaches")],
    )
    yield Family(
        "nvlink_job_blocks_allowed",
        "Blocks that Slurm allows a job of so many trays.",
        [(labels, row["allowed"]) for labels, row in each("jobs")],
    )
    yield Family(
        "nvlink_job_blocks_needed",
        "Blocks that a job of so many trays needs with the working trays.",
        [(labels, row["needed"]) for labels, row in each("jobs") if row["needed"] is not None],
    )
    yield Family(
        "nvlink_job_starts",
        "Whether a job of so many trays starts on the idle cluster without a segment.",
        [(labels, int(row["starts"])) for labels, row in each("jobs")],
    )


def _size(row: Mapping[str, Any]) -> Labels:
    return {"segment": str(row["segment"])} if "blocks" in row else {"job_trays": str(row["nodes"])}


def _of_verify(verify: Mapping[str, Any]) -> Iterator[Family]:
    layers = verify["layers"]
    checked = verify["checked_at"]
    yield Family("nvlink_verify_ok", "Whether the last verify found no error.", [({}, int(verify["ok"]))])
    yield Family(
        "nvlink_verify_timestamp_seconds", "When verify last ran.", [({}, _seconds(checked))] if checked else []
    )
    yield Family(
        "nvlink_layer_checked",
        "Whether the last verify checked a layer.",
        [({"layer": name}, int(row["checked"])) for name, row in layers.items()],
    )
    yield Family(
        "nvlink_layer_ok",
        "Whether a checked layer has no error.",
        [({"layer": name}, int(row["ok"])) for name, row in layers.items() if row["checked"]],
    )
    yield Family(
        "nvlink_layer_failures",
        "Failures that the last verify found in a layer, by severity.",
        [
            ({"layer": name, "severity": word}, number)
            for name, row in layers.items()
            for word, number in row["failures"].items()
        ],
    )


def _of_compute_domains(uses: Mapping[str, Any]) -> Iterator[Family]:
    yield Family(
        "nvlink_clique_free_nodes",
        "Nodes of a clique that a new ComputeDomain can use.",
        [({"clique": name}, row["free_nodes"]) for name, row in uses.items()],
    )
    yield Family(
        "nvlink_clique_stranded_gpus",
        "Free GPUs on nodes that a ComputeDomain has, which no other one can use.",
        [({"clique": name}, row["stranded_gpus"]) for name, row in uses.items() if row["stranded_gpus"] is not None],
    )
    yield Family(
        "nvlink_clique_blocked_nodes",
        "Nodes of a clique with stranded GPUs, by the ComputeDomain that has them.",
        [
            ({"clique": name, "compute_domain": domain}, number)
            for name, row in uses.items()
            for domain, number in row["blocked_by"].items()
            if row["stranded_gpus"]
        ],
    )


def exposition(made: list[Family]) -> str:
    """Prometheus' text format."""
    lines = []
    for family in made:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} gauge"]
        lines += [f"{family.name}{_braced(labels)} {value}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _braced(labels: Labels) -> str:
    text = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{text}}}" if text else ""
