# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layer switch: what the NVLink switches of a domain report, and their partitions against the fabric file.

A fault is one failure of the domain, not one for each of its trays. How a GPU is found in the list of a switch is
described in partitions/places.py; where both sides disagree, nothing of the tray is compared. Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, folded, names
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, SWITCH, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import places
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.places import Gpu, is_clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.wish import OPTION, trays_of
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import only
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence

DAYS = 30
"""A certificate that expires sooner is a failure."""
_MODES = {
    "full_bandwidth": "GPUs without all their NVLinks are parked, and jobs run on the others",
    "adaptive_bandwidth": "jobs run on all GPUs with less bandwidth",
    "user_action_required": "the switch waits for a person who decides",
    "user_action": "the switch waits for a person who decides",
}
"""Resiliency mode -> what a health that is neither healthy nor unhealthy means in it."""


class Rack(NamedTuple):
    """An NVLink domain: its name, its only clique or None, and its trays."""

    name: str
    clique: str | None
    trays: list[str]


def check(evidence: Evidence) -> Iterator[Finding]:
    """The switches of each domain that were read."""
    known = _gpus(evidence)
    for name, reports in (evidence.switches or {}).items():
        trays = trays_of(evidence.fabric, name)
        rack = Rack(name, only(evidence.fabric.trays[tray]["clique"] for tray in trays), trays)
        primaries = [report for report in reports if report.controller.is_primary]
        yield from _switches(rack, reports, primaries)
        if len(primaries) == 1:
            yield from _partitions(evidence, rack, primaries[0])
            yield from _members(evidence, rack, primaries[0], known)


def memory(evidence: Evidence) -> dict[str, list[list[str]]]:
    """What the verdict file keeps for the next run."""
    return places.memory(_gpus(evidence))


def _gpus(evidence: Evidence) -> dict[str, list[Gpu]]:
    return places.known(evidence.fabric.trays, evidence.trays, evidence.switch_before)


# --------------------------------------------------------------------------------------------- switches and controller


def _switches(rack: Rack, reports: Sequence[nvue.Report], primaries: Sequence[nvue.Report]) -> Iterator[Finding]:
    silent = [report for report in reports if report.problem]
    of = f"of NVLink domain {rack.name}"
    if silent:
        which = f"{len(silent)} of {count(len(reports), 'switch', 'switches')} {of} cannot be read"
        others = "" if primaries or len(silent) == len(reports) else ", and no other one runs the controller"
        message = f"{which} ({names(report.switch for report in silent)}){others}: {silent[0].problem}."
        yield failure("switch_unreadable", SWITCH, message, None, rack.clique)
    if soon := [row for row in reports if row.days_left is not None and row.days_left < DAYS]:
        days = min(report.days_left or 0 for report in soon)
        which = names(report.switch for report in soon)
        message = f"The certificate of {which} {of} expires in {count(int(days), 'day')}."
        yield failure("switch_certificate_expires", SWITCH, message, None, rack.clique)
    if len(primaries) > 1:
        lists = {tuple(sorted((row.id, row.gpus) for row in report.partitions)) for report in primaries}
        same = "the same partitions" if len(lists) == 1 else "different partitions"
        which = " and ".join(report.switch for report in primaries)
        message = f"{which} {of} both run the controller, and list {same}."
        yield failure("switches_disagree", SWITCH, message, None, rack.clique, trays=rack.trays)
    elif (primaries or not silent) and not any(report.controller.is_ok for report in primaries):
        states = summarize(f"{report.switch}: {report.controller.words}" for report in primaries or reports)
        what = "reports a fault" if primaries else "runs on none of its switches"
        message = f"The controller of NVLink domain {rack.name} {what} ({states})."
        yield failure("switch_controller_down", SWITCH, message, None, rack.clique, trays=rack.trays)


# ------------------------------------------------------------------------------------------------------- partitions


def _partitions(evidence: Evidence, rack: Rack, report: nvue.Report) -> Iterator[Finding]:
    """One failure for all partitions with one health and mode, with one mode, and with one multicast limit."""
    cliques = evidence.fabric.cliques
    named = [part for part in evidence.wishes.get(rack.name, ()) if part.name in cliques]
    unhealthy = equal(((row.health, row.mode), row) for row in report.partitions if row.health != "healthy")
    wished = [
        (row, part) for row in report.partitions for part in named if is_clique(row, cliques[part.name]["clique_id"])
    ]
    modes = [(row, part.resiliency) for row, part in wished if part.resiliency]
    # An older release has user_action for user_action_required.
    other = equal(((row.mode, mode), row) for row, mode in modes if not mode.startswith(row.mode))
    limits = {row.id: part.multicast_limit for row, part in wished if part.multicast_limit is not None}
    least_of = [(row, row.multicast_limit, limits.get(row.id, 1)) for row in report.partitions if row.gpus]
    low = equal(((limit, least), row) for row, limit, least in least_of if limit is not None and limit < least)

    def clique_and_trays(rows: Sequence[nvue.Partition]) -> tuple[str | None, list[str]]:
        clique_of = {tray: evidence.clique_of(tray) or "" for tray in rack.trays}
        ids = {tray: cliques[clique]["clique_id"] for tray, clique in clique_of.items()}
        trays = [tray for tray, clique_id in ids.items() if any(is_clique(row, clique_id) for row in rows)]
        return only(clique_of[tray] for tray in trays), trays

    def where(rows: Sequence[nvue.Partition], one: str = "has", several: str = "have") -> str:
        ids = f"{'s' if len(rows) > 1 else ''} {summarize([str(row.id) for row in rows])}"
        return f"Switch {report.switch}: NVLink partition{ids} of {rack.name} {one if len(rows) == 1 else several}"

    for (health, mode), rows in unhealthy.items():
        clique, trays = clique_and_trays(rows)
        means = "no job may run there" if health == "unhealthy" else _MODES.get(mode, f"mode {mode}")
        severity = ERROR if health == "unhealthy" else WARNING
        message = f"{where(rows, 'is', 'are')} {health} in the mode {mode}: {means}."
        yield failure("switch_partition_degraded", SWITCH, message, None, clique, trays=trays, severity=severity)
    for (now, wanted), rows in other.items():
        message = f"{where(rows)} the mode {now}, and {OPTION} has {wanted}."
        yield failure("switch_partition_mode", SWITCH, message, None, clique_and_trays(rows)[0])
    for (limit, least), rows in low.items():
        so = f"and {OPTION} has {least}" if limit else "so NVLink SHARP does not work"
        message = f"{where(rows)} a multicast limit of {limit}, {so}."
        yield failure("switch_multicast_limit", SWITCH, message, None, clique_and_trays(rows)[0])


def _members(evidence: Evidence, rack: Rack, report: nvue.Report, known: dict[str, list[Gpu]]) -> Iterator[Finding]:
    """The partition of each tray's GPUs against the fabric file; what the GPUs report is quoted."""
    found = places.locate({tray: known[tray] for tray in rack.trays if tray in known}, report.partitions)
    wrong, lists = list(found.doubts.values()), f"Switch {report.switch} lists"
    answered = evidence.trays.keys() - found.doubts.keys()
    missing = [tray for tray, gpus in found.gpus.items() for gpu in gpus if gpu.partition is None]
    out = Counter(tray for tray in missing if tray in answered)
    certain = [tray for tray in found.gpus if tray not in found.doubts and tray not in out]
    clique_of = {tray: evidence.clique_of(tray) or "" for tray in certain}
    ids = {tray: evidence.fabric.cliques[clique]["clique_id"] for tray, clique in clique_of.items()}
    differ = places.elsewhere(found, report.partitions, ids)
    elsewhere = equal(((parts, clique_of[tray], _reported(evidence, tray)), tray) for tray, parts in differ)
    if wrong:
        message = f"{lists} GPUs of NVLink domain {rack.name} otherwise: {summarize(wrong, limit=2)}."
        yield failure("switch_gpu_mismatch", SWITCH, message, None, rack.clique)
    gpus_out = f"{count(out.total(), 'GPU')} of {folded(out)}"
    if out and (strange := _strange(evidence, rack, report, known)):
        message = (
            f"{lists} {count(strange, 'GPU')} with numbers and places that no tray of NVLink domain {rack.name}"
            f" reports, and lacks {gpus_out}."
        )
        yield failure("switch_gpu_mismatch", SWITCH, message, None, rack.clique)
    elif out:
        message = f"{lists} {gpus_out} of NVLink domain {rack.name} in no NVLink partition."
        yield failure("switch_gpu_unassigned", SWITCH, message, None, rack.clique, trays=[*out])
    if elsewhere:
        texts = [
            f"{names(trays)} in NVLink partition {parts}, the fabric file has clique {clique}"
            f" ({evidence.fabric.cliques[clique]['clique_id']}), and {reported}"
            for (parts, clique, reported), trays in elsewhere.items()
        ]
        message = (
            f"{lists} {'; it lists '.join(texts[:3])}. The GPUs decide where a job can run now,"
            " the switch what they join after a reset."
        )
        trays = [tray for group in elsewhere.values() for tray in group]
        yield failure("switch_partition_differs", SWITCH, message, None, rack.clique, trays=trays)


def _strange(evidence: Evidence, rack: Rack, report: nvue.Report, known: dict[str, list[Gpu]]) -> int:
    """How many GPUs of a switch's list are no tray's, other than those of trays of which nothing is known.

    Then the switch may list the GPUs that seem to be in no partition by numbers that NVML does not report.
    """
    own = [gpu for tray in rack.trays for gpu in known.get(tray, ())]
    ids, at = {uid for gpu in own for uid in gpu.ids}, {gpu.place for gpu in own}
    listed = [gpu for row in report.partitions for gpu in row.gpus]
    unclaimed = sum(gpu.uid not in ids and places.place(gpu) not in at for gpu in listed)
    silent = [evidence.fabric.trays[tray] for tray in rack.trays if tray not in known]
    return max(0, unclaimed - sum(len(row["gpu_uuids"]) for row in silent))


def _reported(evidence: Evidence, tray: str) -> str:
    now = evidence.observations.get(tray)
    if now is None:
        return "no tray answers" if tray in evidence.reports else "no tray was asked"
    return f"the GPUs report clique ID {now.identity[1]}" if now.identity else "the GPUs report no clique"
