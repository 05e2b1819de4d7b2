# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layer switch: what the NVLink switches of a domain report, and their partitions against the fabric file.

A fault is one failure of the domain, not one for each of its trays. A GPU is found in the list of a switch by the
number that NVML reports of it (fabric_guid, else its UUID), and its slot, host and module must be the switch's location
of it. That both are the same is inferred from NVIDIA's sources: where they disagree, nothing of the tray is compared.

Of a tray that does not answer, the verdict file keeps the numbers and places of its GPUs under ``switch`` (memory())::

    {"r01t01": [["0x3d1c5e0a9b2f4c77", "gpu-3d1c...", "10.1.2"]]}

Pure functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import folded, names
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, SWITCH, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, only
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence

DAYS = 30
"""A certificate that expires sooner is a failure."""
DEFAULT_CLIQUE = 32766
_MODES = {
    "full_bandwidth": "GPUs without all their NVLinks are parked, and jobs run on the others",
    "adaptive_bandwidth": "jobs run on all GPUs with less bandwidth",
    "user_action_required": "the switch waits for a person who decides",
    "user_action": "the switch waits for a person who decides",
}
"""Resiliency mode -> what a health that is neither healthy nor unhealthy means in it."""


class Gpu(NamedTuple):
    """A GPU by its driver. ids: its fabric GUID and its UUID as of nvue.uid(); place: slot.host.module, or empty."""

    ids: tuple[str, ...]
    place: str


class Rack(NamedTuple):
    """An NVLink domain: its name, its only clique or None, and its trays."""

    name: str
    clique: str | None
    trays: list[str]


def check(evidence: Evidence) -> Iterator[Finding]:
    """The switches of each domain that were read."""
    known = _gpus(evidence)
    for name, reports in (evidence.switches or {}).items():
        cliques = [clique for clique, row in evidence.fabric.cliques.items() if row["domain"] == name]
        trays = [tray for clique in cliques for tray in evidence.fabric.members[clique]]
        rack = Rack(name, only(clique for clique in cliques if evidence.fabric.members[clique]), trays)
        yield from _switches(rack, reports)
        primaries = [report for report in reports if report.controller and report.controller.is_primary]
        if len(primaries) == 1:
            yield from _partitions(evidence, rack, primaries[0])
            yield from _members(evidence, rack, primaries[0], known)


def memory(evidence: Evidence) -> dict[str, list[list[str]]]:
    """What the verdict file keeps for the next run."""
    return {tray: [[*gpu.ids, gpu.place] for gpu in gpus] for tray, gpus in _gpus(evidence).items()}


def _gpus(evidence: Evidence) -> dict[str, list[Gpu]]:
    """Placed tray -> its GPUs, as it reports them now, or as it did when it last answered."""
    found: dict[str, list[Gpu]] = {}
    for tray in evidence.fabric.trays:
        part = evidence.trays[tray].gpu if tray in evidence.trays else None
        if part is None or part.observed is None:
            if rows := list(filter(_is_kept, as_list(evidence.switch_before.get(tray)))):
                found[tray] = [Gpu(tuple(row[:-1]), row[-1]) for row in rows]
            continue
        gpus = []
        for gpu in part.gpus:
            numbers = (part.slot_number, part.observed.host_id, gpu.module_id)
            place = "" if None in numbers else ".".join(map(str, numbers))
            gpus.append(Gpu(tuple(filter(None, map(nvue.uid, (gpu.fabric_guid, gpu.uuid)))), place))
        found[tray] = gpus
    return found


def _is_kept(row: Any) -> bool:
    return isinstance(row, list) and len(row) > 1 and all(isinstance(text, str) and len(text) < 64 for text in row)


# --------------------------------------------------------------------------------------------- switches and controller


def _switches(rack: Rack, reports: Sequence[nvue.Report]) -> Iterator[Finding]:
    silent = [report for report in reports if report.problem]
    primaries = [report for report in reports if report.controller and report.controller.is_primary]
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
    elif primaries or not silent:
        yield from _controller(rack, reports, primaries)


def _controller(rack: Rack, reports: Sequence[nvue.Report], primaries: Sequence[nvue.Report]) -> Iterator[Finding]:
    states = []
    for report in primaries or reports:
        state, status, reason = report.controller or ("no controller", "", "")
        if primaries and state == "CONFIGURED" and status.lower() == "ok":
            return
        words = ", ".join(filter(None, (state, status and f"status {status}", reason)))
        states.append(f"{report.switch}: {words}")
    what = "reports a fault" if primaries else "runs on none of its switches"
    message = f"The controller of NVLink domain {rack.name} {what} ({summarize(states)})."
    yield failure("switch_controller_down", SWITCH, message, None, rack.clique, trays=rack.trays)


# ------------------------------------------------------------------------------------------------------- partitions


def _partitions(evidence: Evidence, rack: Rack, report: nvue.Report) -> Iterator[Finding]:
    """One failure for all partitions with one health and mode, and one for all without multicast groups."""
    unhealthy: dict[tuple[str, str], list[nvue.Partition]] = defaultdict(list)
    for row in report.partitions:
        if row.health != "healthy":
            unhealthy[row.health, row.mode].append(row)

    def clique_and_trays(rows: Sequence[nvue.Partition]) -> tuple[str | None, list[str]]:
        cliques = {tray: evidence.clique_of(tray) or "" for tray in rack.trays}
        same = {
            clique
            for clique in {*cliques.values()}
            if any(_is_same(row, evidence.fabric.cliques[clique]) for row in rows)
        }
        return only(same), [tray for tray in rack.trays if cliques[tray] in same]

    def where(rows: Sequence[nvue.Partition]) -> str:
        ids = f"{'s' if len(rows) > 1 else ''} {summarize([str(row.id) for row in rows])}"
        return f"Switch {report.switch}: NVLink partition{ids} of {rack.name}"

    for (health, mode), rows in unhealthy.items():
        clique, trays = clique_and_trays(rows)
        means = "no job may run there" if health == "unhealthy" else _MODES.get(mode, f"mode {mode}")
        severity = ERROR if health == "unhealthy" else WARNING
        message = f"{where(rows)} {'are' if len(rows) > 1 else 'is'} {health} in the mode {mode}: {means}."
        yield failure("switch_partition_degraded", SWITCH, message, None, clique, trays=trays, severity=severity)
    if rows := [row for row in report.partitions if row.multicast_limit == 0 and row.gpus]:
        message = (
            f"{where(rows)} {'have' if len(rows) > 1 else 'has'} a multicast limit of 0, so NVLink SHARP does not work."
        )
        yield failure("switch_multicast_limit", SWITCH, message, None, clique_and_trays(rows)[0])


def _is_same(partition: nvue.Partition, clique: Any) -> bool:
    """Whether a partition is a clique. Older releases have another number for the default one, which has this name."""
    is_default = clique["clique_id"] == DEFAULT_CLIQUE and "default" in partition.name.lower()
    return partition.id == clique["clique_id"] or is_default


def _members(evidence: Evidence, rack: Rack, report: nvue.Report, known: dict[str, list[Gpu]]) -> Iterator[Finding]:
    """The partition of each tray's GPUs against the fabric file; what the GPUs report is quoted."""
    by_uid = {gpu.uid: (row, gpu) for row in report.partitions for gpu in row.gpus if gpu.uid}
    by_place: dict[str, list[tuple[nvue.Partition, nvue.Gpu]]] = defaultdict(list)
    for row in report.partitions:
        for gpu in row.gpus:
            by_place[_place(gpu)].append((row, gpu))
    wrong: list[str] = []
    out: dict[str, int] = {}
    elsewhere: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for tray in rack.trays:
        found: list[nvue.Partition] = []
        doubts, missing = [], 0
        for own in known.get(tray, ()):
            there = next((by_uid[uid] for uid in own.ids if uid in by_uid), None)
            at = by_place[own.place] if own.place else []
            there = there or (at[0] if len(at) == 1 else None)
            if there is None:
                missing += 1
            elif _differs(own, there[1]):
                listed = there[1].uid or "a GPU"
                doubts.append(f"{tray}: {listed} at {there[1].location}, its driver has {own.ids[0]} at {own.place}")
            else:
                found.append(there[0])
        clique = evidence.clique_of(tray) or ""
        if doubts:
            wrong += doubts
        elif missing and tray in evidence.trays:
            out[tray] = missing
        elif not all(_is_same(row, evidence.fabric.cliques[clique]) for row in found):
            parts = " and ".join(str(number) for number in sorted({row.id for row in found}))
            elsewhere[parts, clique, _reported(evidence, tray)].append(tray)
    if wrong:
        message = (
            f"Switch {report.switch} lists GPUs of NVLink domain {rack.name} otherwise: {summarize(wrong, limit=2)}."
        )
        yield failure("switch_gpu_mismatch", SWITCH, message, None, rack.clique)
    if out and (strange := _strange(evidence, rack, report, known)):
        message = (
            f"Switch {report.switch} lists {count(strange, 'GPU')} with numbers and places that no tray of NVLink"
            f" domain {rack.name} reports, and not {count(sum(out.values()), 'GPU')} of {folded(out)}."
        )
        yield failure("switch_gpu_mismatch", SWITCH, message, None, rack.clique)
    elif out:
        message = (
            f"Switch {report.switch} lists {count(sum(out.values()), 'GPU')} of {folded(out)} of NVLink domain"
            f" {rack.name} in no NVLink partition."
        )
        yield failure("switch_gpu_unassigned", SWITCH, message, None, rack.clique, trays=[*out])
    if elsewhere:
        texts = [
            f"{names(trays)} in NVLink partition {parts}, the fabric file has clique {clique}"
            f" ({evidence.fabric.cliques[clique]['clique_id']}), and {reported}"
            for (parts, clique, reported), trays in elsewhere.items()
        ]
        message = (
            f"Switch {report.switch} lists {'; it lists '.join(texts[:3])}. The GPUs decide where a job can run now,"
            " the switch what they join after a reset."
        )
        trays = [tray for group in elsewhere.values() for tray in group]
        yield failure("switch_partition_differs", SWITCH, message, None, rack.clique, trays=trays)


def _strange(evidence: Evidence, rack: Rack, report: nvue.Report, known: dict[str, list[Gpu]]) -> int:
    """How many GPUs of a switch's list are no tray's, other than those of trays of which nothing is known.

    Then the switch may list the GPUs that seem to be in no partition by numbers that NVML does not report.
    """
    own = [gpu for tray in rack.trays for gpu in known.get(tray, ())]
    ids, places = {uid for gpu in own for uid in gpu.ids}, {gpu.place for gpu in own}
    listed = [gpu for row in report.partitions for gpu in row.gpus]
    unclaimed = sum(gpu.uid not in ids and _place(gpu) not in places for gpu in listed)
    silent = [evidence.fabric.trays[tray] for tray in rack.trays if tray not in known]
    return max(0, unclaimed - sum(len(row["gpu_uuids"]) for row in silent))


def _place(gpu: nvue.Gpu) -> str:
    """slot.host.module of a location."""
    return gpu.location.partition(".")[2]


def _differs(own: Gpu, listed: nvue.Gpu) -> bool:
    is_other = bool(listed.uid and own.ids) and listed.uid not in own.ids
    return is_other or bool(listed.location and own.place and _place(listed) != own.place)


def _reported(evidence: Evidence, tray: str) -> str:
    now = evidence.observations.get(tray)
    if now is None:
        return "no tray answers" if tray in evidence.reports else "no tray was asked"
    return f"the GPUs report clique ID {now.identity[1]}" if now.identity else "the GPUs report no clique"
