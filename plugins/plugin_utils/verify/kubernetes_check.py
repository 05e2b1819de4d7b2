# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layer kubernetes: node labels, ComputeDomainCliques and ResourceSlices compared with the fabric file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import GROUP, checks, domains, preflight, stranded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.device_plugins import GPU_DRIVER
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.domains import DOMAIN_DRIVER
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import ComputeDomains, Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import (
    FABRIC_FILE,
    INFO,
    KUBERNETES,
    WARNING,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import cliques, labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped, only
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import Gpus
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence

STARTING = 5
"""Minutes in which a ComputeDomain of a new pod, or the controller, starts; dra_driver_wait is as long."""


def check(evidence: Evidence) -> Iterator[Finding]:
    """The layer kubernetes."""
    if evidence.kubernetes is None:
        if evidence.kubernetes_problem:
            message = f"The API server did not answer ({evidence.kubernetes_problem})."
            yield failure("k8s_unreachable", KUBERNETES, message)
        return
    tray_of, present = _trays(evidence), _present(evidence, evidence.kubernetes)
    yield from _labels(evidence, evidence.kubernetes, tray_of)
    yield from _readiness(evidence, evidence.kubernetes, tray_of)
    yield from _slices(evidence, evidence.kubernetes, present)
    yield from _domains(evidence, evidence.kubernetes, tray_of)
    yield from _driver(evidence, evidence.kubernetes, present)


def compute_domains(evidence: Evidence) -> ComputeDomains | None:
    """None without a cluster that has ComputeDomains."""
    snapshot = evidence.kubernetes
    if snapshot is None or GROUP not in snapshot["groups"]:
        return None
    members: dict[str, dict[str, int]] = defaultdict(dict)
    for node, tray in _present(evidence, snapshot).items():
        row = evidence.fabric.trays[tray]
        members[row["clique"]][node] = len(row["gpu_uuids"])
    found = stranded.cliques(snapshot, members)
    return {
        "unknown": [*(f"{row}." for row in stranded.unreadable(snapshot)), *checks.starting(snapshot, STARTING)],
        "cliques": {clique: use._asdict() for clique, use in found.items()},
    }


MAX_LINES = 20
"""Cliques with stranded GPUs that are printed."""


def stranded_lines(found: ComputeDomains | None) -> list[str]:
    """A line for each clique with stranded GPUs, of the result of compute_domains()."""
    if found is None:
        return []
    lines = stranded.sentences({clique: stranded.CliqueUse(**row) for clique, row in found["cliques"].items()})
    more = [f"{count(len(lines) - MAX_LINES, 'more clique')} with stranded GPUs."] if len(lines) > MAX_LINES else []
    return [*found["unknown"], *lines[:MAX_LINES], *more]


def _trays(evidence: Evidence) -> dict[str, str]:
    """Node -> tray, of one Kubernetes cluster."""
    cluster = evidence.kubernetes_cluster
    return {
        tray["kubernetes_node"]: name
        for name, tray in evidence.fabric.trays.items()
        if cluster is None or tray.get("kubernetes_cluster") == cluster
    }


def _present(evidence: Evidence, snapshot: Snapshot) -> dict[str, str]:
    """Those of _trays() that the cluster has."""
    there = {labels.name(node) for node in snapshot["nodes"]}
    return {node: tray for node, tray in _trays(evidence).items() if node in there}


def _labels(evidence: Evidence, snapshot: Snapshot, tray_of: Mapping[str, str]) -> Iterator[Finding]:
    topology = cliques.describe(evidence.fabric, evidence.kubernetes_cluster)
    gpus = {
        evidence.fabric.trays[tray]["kubernetes_node"]: f"{now.identity[0]}.{now.identity[1]}" if now.identity else None
        for tray, now in evidence.observations.items()
    }
    for note in labels.compare(topology, snapshot["nodes"], gpus, flavored=False):
        if note["severity"] != INFO:
            nodes = note.get("nodes") or filter(None, [note.get("tray")])
            trays = [tray_of.get(node, node) for node in nodes]
            layer = FABRIC_FILE if note["code"] == "tray_unplaced" else KUBERNETES
            yield failure(note["code"], layer, note["message"], only(trays), note.get("clique"), trays=trays)


def _readiness(evidence: Evidence, snapshot: Snapshot, tray_of: Mapping[str, str]) -> Iterator[Finding]:
    for node in snapshot["nodes"]:
        tray = tray_of.get(labels.name(node))
        if tray and domains.is_lost(node):
            message = f"Node {labels.name(node)} is not Ready."
            clique = evidence.fabric.trays[tray]["clique"]
            yield failure("node_not_ready", KUBERNETES, message, tray, clique, severity=WARNING)


def _slices(evidence: Evidence, snapshot: Snapshot, tray_of: Mapping[str, str]) -> Iterator[Finding]:
    """ResourceSlices of each node; nothing in a cluster without the DRA driver."""
    published: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in snapshot["slices"]:
        spec = mapped(row.get("spec"))
        published[str(spec.get("driver"))][str(spec.get("nodeName"))] += len(as_list(spec.get("devices")))
    drivers = [driver for driver in (DOMAIN_DRIVER, GPU_DRIVER) if driver in published]
    for node, tray in tray_of.items():
        clique, known = evidence.fabric.trays[tray]["clique"], len(evidence.fabric.trays[tray]["gpu_uuids"])
        missing = [driver for driver in drivers if node not in published[driver]]
        if missing:
            message = f"The driver publishes no ResourceSlice of {' and '.join(missing)} for node {node}."
            yield failure("dra_node_outdated", KUBERNETES, message, tray, clique)
        elif GPU_DRIVER in drivers and published[GPU_DRIVER][node] < known:
            number = published[GPU_DRIVER][node]
            message = f"The driver publishes {number} of the {known} GPUs that the fabric file has on node {node}."
            yield failure("dra_node_outdated", KUBERNETES, message, tray, clique)


def _domains(evidence: Evidence, snapshot: Snapshot, tray_of: Mapping[str, str]) -> Iterator[Finding]:
    """Daemons of ComputeDomainCliques whose clique is not that of their node in the fabric file."""
    wrong: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in snapshot["compute_domain_cliques"]:
        for daemon in map(mapped, as_list(row.get("daemons"))):
            node, actual = str(daemon.get("nodeName")), str(daemon.get("cliqueID"))
            tray = tray_of.get(node)
            if tray is None:
                continue
            clique = evidence.fabric.trays[tray]["clique"]
            if actual and actual != evidence.fabric.clique_text(clique):
                wrong[clique, actual].append(tray)
    for (clique, actual), trays in wrong.items():
        message = f"A ComputeDomainClique has {summarize(trays)} in {actual}; the fabric file has clique {clique}."
        yield failure("dra_node_outdated", KUBERNETES, message, only(trays), clique, trays=sorted(set(trays)))


def _driver(evidence: Evidence, snapshot: Snapshot, tray_of: Mapping[str, str]) -> Iterator[Finding]:
    """The checks of the role dra_driver that need no values of the chart; none without the driver."""
    fabric, imex = evidence.fabric, evidence.imex
    placed = {
        tray: preflight.Tray(node, Gpus(clique=fabric.clique_text(fabric.trays[tray]["clique"])), imex.get(tray))
        for node, tray in tray_of.items()
    }
    for row in checks.live(snapshot, placed, STARTING):
        trays = [tray_of[node] for node in row.get("nodes", ()) if node in tray_of] or [
            *filter(None, [row.get("tray")])
        ]
        tray, clique, severity = only(trays), only(map(evidence.clique_of, trays)), row["severity"]
        yield failure(row["code"], KUBERNETES, row["message"], tray, clique, trays=trays, severity=severity)
