# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source nvue: where the NVLink switches of the inventory list the GPUs, beside what the trays report.

It only adds findings, which the state file keeps: the GPUs alone place a tray. A GPU is found by its fabric GUID or its
UUID; that a switch lists it by one of these is inferred (places.py), so of a tray that it lists by neither nothing is
said. Of a tray without an answer the GPUs of the fabric file are compared with its clique there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Merged
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, names
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import places
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.targets import SWITCHES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import only

Reports = Mapping[str, Sequence[nvue.Report]]
"""NVLink domain -> the reports of its switches."""


def observe(
    others: Callable[[Fabric | None], tuple[Merged, str]],
    read: Callable[[Fabric, Collection[str]], Reports],
    fabric: Fabric | None,
) -> tuple[Merged, str]:
    """What the other sources observe (hosts.observe), with the findings of the switches.

    read: a fabric and its NVLink domains -> what their switches report. Without a fabric file no switch has a domain.
    SourceError where the trays have none.
    """
    merged, failure = others(fabric)
    if fabric is None:
        return merged, failure
    trays = _by_domain(fabric, merged.observations)
    reports = read(fabric, trays)
    if trays and not reports:
        raise SourceError(f"sources: nvue finds no switch of these trays; add them to the group {SWITCHES}")
    found = [row for domain in reports for row in _findings(fabric, domain, reports[domain], trays[domain])]
    return replace(merged, findings=[*merged.findings, *found]), failure


def _by_domain(fabric: Fabric, observations: Iterable[Observation]) -> dict[str, dict[str, Observation]]:
    """NVLink domain -> the trays that report it, or that have it in the fabric file where they report none of it."""
    names_of = {domain["cluster_uuid"]: name for name, domain in fabric.domains.items()}
    found: dict[str, dict[str, Observation]] = defaultdict(dict)
    for row in observations:
        domain = names_of.get(row.identity[0]) if row.identity else None
        if domain is None and row.tray in fabric.trays:
            domain = fabric.cliques[fabric.trays[row.tray]["clique"]]["domain"]
        if domain is not None:
            found[domain][row.tray] = row
    return found


def _findings(
    fabric: Fabric, domain: str, reports: Sequence[nvue.Report], rows: Mapping[str, Observation]
) -> Iterator[Finding]:
    report = only(row for row in reports if row.controller.is_primary)
    if report is None:
        why = next((row.problem for row in reports if row.problem), "none or several of them run the controller")
        message = f"Source nvue: the switches of NVLink domain {domain} show no partitions ({why.rstrip('.')})."
        yield finding("source_failed", message, domain=domain)
        return
    known = {tray: [places.Gpu((uid,), "") for uid in _uids(fabric, row)] for tray, row in rows.items()}
    found, of = places.locate(known, report.partitions), {tray: _reported(fabric, row) for tray, row in rows.items()}
    ids = {tray: clique_id for tray, (clique_id, _words) in of.items() if clique_id is not None}
    differ = places.elsewhere(found, report.partitions, ids)
    for (parts, reported), trays in equal(((parts, of[tray][1]), tray) for tray, parts in differ).items():
        message = (
            f"Source nvue: switch {report.switch} lists GPUs of {names(trays)} of NVLink domain {domain} in NVLink"
            f" partition {parts}, and {reported}; the GPUs alone place a tray, and the switch decides what they join"
            " after a reset."
        )
        yield finding("sources_disagree", message, domain=domain)


def _uids(fabric: Fabric, row: Observation) -> Iterable[str]:
    placed = fabric.trays[row.tray]["gpu_uuids"] if row.tray in fabric.trays else ()
    return filter(None, map(nvue.uid, (*row.fabric_guids, *(row.gpu_uuids or placed))))


def _reported(fabric: Fabric, row: Observation) -> tuple[int | None, str]:
    """(clique ID, the report that has it, in words); None and empty for a tray without one."""
    if row.identity:
        return row.identity[1], f"the GPUs report clique ID {row.identity[1]}"
    if row.tray not in fabric.trays:
        return None, ""
    clique = fabric.trays[row.tray]["clique"]
    clique_id = fabric.cliques[clique]["clique_id"]
    answer = "report none" if row.reachable else "do not answer"
    return clique_id, f"the GPUs {answer}, and the fabric file has clique {clique} ({clique_id})"
