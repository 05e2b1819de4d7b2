# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers hardware and fabric_file: trays that are unreachable, unhealthy, missing, new, moved or swapped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import identity, operations, products
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import KEEP_BLOCK, Fabric, Identity, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import of_gpus
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import (
    CATALOGUE,
    ERROR,
    FABRIC_FILE,
    HARDWARE,
    INFO,
    WARNING,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import imex as imex_lists
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import only
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import TrayReport
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence

# A part of an answer is missing, so nothing about it was checked. It is an error in any part, whatever the tray says.
_MISSING = ("tray_subset_failed", "tray_answer_invalid")

RECOVERY = {
    "node_reboot": "reboot",
    "system_reboot": "reboot",
    "bus_reset": "reboot",
    "gpu_reset": "reset_gpu",
    "drain_and_reset": "reset_gpu",
    "drain_p2p": "drain",
    "recover_imex_domain": "restart_imex",
}
"""NVML's recovery action -> one of findings.ACTIONS, worst first.

The order is the driver's own (_gpuRefreshRecoveryActionInLock in NVIDIA/open-gpu-kernel-modules, gpu.c); what each
needs is in NVIDIA's GPU Memory Error Management, "Error Recovery and Response Flags". nvidia-smi has no command that
resets the bus alone; a reboot does.
"""


def check(evidence: Evidence) -> Iterator[Finding]:
    """The layers hardware and fabric_file; without queried trays only the consistency of the file."""
    for note in imex_lists.findings(evidence.fabric, State()):
        yield failure(note["code"], FABRIC_FILE, note["message"], note.get("tray"), note.get("clique"))
    for tray, why in evidence.unreachable.items():
        message = f"{tray} cannot be reached ({why or 'no answer'})."
        yield failure("tray_unreachable", HARDWARE, message, tray, evidence.clique_of(tray))
    for tray, report in evidence.trays.items():
        yield from _own_findings(evidence, report)
        if tray not in evidence.fabric.trays and report.gpu and report.gpu.attached:
            message = f"{tray} is attached to an NVLink fabric and has no place in the fabric file."
            yield failure("acceptance_pending", FABRIC_FILE, message, tray, severity=WARNING)
    followed = identity.follow(evidence.fabric, evidence.fabric, evidence.observations)
    yield from _other_ids(evidence, followed)
    # A copy reads all observations again.
    followed_evidence = evidence if followed is evidence.fabric else replace(evidence, fabric=followed)
    single = _single(followed_evidence)
    yield from _split_per_tray(followed_evidence, single)
    yield from _places(followed_evidence, {tray for trays in single.values() for tray in trays})
    for note in operations.smaller(followed, evidence.observations):
        clique = note["clique"] or ""
        trays = [tray for tray in evidence.answered(clique) if tray in evidence.observations]
        yield failure(note["code"], HARDWARE, note["message"], None, clique, trays=trays)
    placed = evidence.fabric.trays
    # Of a tray that has fewer than in the fabric file, _gpus has said so.
    rest = {name: now for name, now in evidence.observations.items() if now.gpu_count >= len(placed[name]["gpu_uuids"])}
    for message, trays in products.fewer_gpus(rest):
        yield failure("gpu_missing", HARDWARE, message, trays=trays)


def _own_findings(evidence: Evidence, report: TrayReport) -> Iterator[Finding]:
    """Findings of the tray's own facts on its GPUs, one failure a cause, and facts that could not be read."""
    tray = report.tray
    needs = {gpu.index: gpu.recovery_action for gpu in report.gpu.gpus} if report.gpu else {}
    worst = [word for word in RECOVERY if word in needs.values()]
    notes = []
    for note in (*report.findings, *report.refused):
        code = note["code"]
        # Nobody must act for a host without a place, but somebody may expect multi-node NVLink of it.
        is_local = code == "fabric_not_supported" and tray not in evidence.fabric.trays
        is_listed = CATALOGUE[code].severity != INFO or is_local
        if is_listed and (note.get("part") == "gpu" or code in _MISSING):
            word = needs.get(note.get("gpu"))
            notes.append((worst.index(word) if word in worst else len(worst), note))
    notes.sort(key=lambda row: row[0])
    for code, text in of_gpus(note for _rank, note in notes):
        severity = ERROR if code in _MISSING else None
        action = RECOVERY[worst[0]] if worst and code == "recovery_action" else ""
        text = f"{tray}: {text.removeprefix(f'{tray} ')}"
        gpu = only(note.get("gpu") for _rank, note in notes if note["code"] == code)
        yield failure(code, HARDWARE, text, tray, evidence.clique_of(tray), severity=severity, action=action, gpu=gpu)


def _other_ids(evidence: Evidence, followed: Fabric) -> Iterator[Finding]:
    """One failure for a domain whose cluster UUID or clique IDs changed; followed: the fabric with the new ones."""
    for note in identity.findings(evidence.fabric, followed):
        trays = []
        for tray, now in evidence.observations.items():
            own = followed.trays[tray]["clique"]
            is_changed = now.identity == followed.identity(own) != evidence.fabric.identity(own)
            if is_changed and followed.cliques[own]["domain"] == note["domain"]:
                trays.append(tray)
        message = note["message"].partition(";")[0]
        clique = only(followed.trays[tray]["clique"] for tray in trays)
        yield failure(note["code"], FABRIC_FILE, message, None, clique, trays=trays)


def _single(evidence: Evidence) -> dict[str, list[str]]:
    """Domain -> its trays that are alone in a clique and not there in the fabric file, where it is split per tray."""
    reported = {tray: now.identity for tray, now in evidence.observations.items() if now.identity}
    single = identity.alone(evidence.fabric, reported)
    found = {}
    for name, domain in evidence.fabric.domains.items():
        trays = single.get(domain["cluster_uuid"], set())
        own = [tray for tray in reported if tray in trays and reported[tray] != _accepted(evidence, tray)]
        # One tray that leaves a clique of two has moved.
        if len(own) > ("tray_partitions" not in domain):
            found[name] = own
    return found


def _split_per_tray(evidence: Evidence, single: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """One failure for each domain; of no consequence where its trays keep their block."""
    for domain, trays in single.items():
        what = "is" if len(trays) == 1 else "are each"
        message = f"{count(len(trays), 'tray')} of NVLink domain {domain} {what} alone in a clique: {summarize(trays)}."
        is_decided = evidence.fabric.domains[domain].get("tray_partitions") == KEEP_BLOCK
        severity = INFO if is_decided else ERROR
        yield failure("tray_partitions", FABRIC_FILE, message, trays=trays, severity=severity)


def _accepted(evidence: Evidence, tray: str) -> Identity:
    return evidence.fabric.identity(evidence.fabric.trays[tray]["clique"])


def _places(evidence: Evidence, single: Collection[str]) -> Iterator[Finding]:
    """Trays whose place is not that of the fabric file; single: those that another failure is about."""
    owner_of = {gpu: name for name, tray in evidence.fabric.trays.items() for gpu in tray["gpu_uuids"]}
    moved: dict[str, dict[Identity, list[str]]] = defaultdict(lambda: defaultdict(list))
    swapped: set[str] = set()
    for tray, now in evidence.observations.items():
        place = evidence.fabric.trays[tray]
        clique, known = place["clique"], set(place["gpu_uuids"])
        # The tray to which the fabric file assigns all these GPUs.
        owner = only(map(owner_of.get, now.gpu_uuids))
        if owner and owner != tray:
            if tray not in swapped:
                yield _swapped(evidence, tray, owner)
                swapped |= {tray, owner}
            continue
        if now.identity is None:
            message = f"The GPUs of {tray} report no common clique, and the fabric file places it in {clique}."
            yield failure("tray_not_attached", HARDWARE, message, tray, clique, severity=ERROR)
        elif now.identity != _accepted(evidence, tray) and tray not in single:
            moved[clique][now.identity].append(tray)
        if known and now.gpu_uuids:
            yield from _gpus(tray, clique, known, set(now.gpu_uuids))
        slots = (place["tray_index"], now.tray_index)
        if None not in slots and slots[0] != slots[1]:
            message = f"{tray} reports tray index {slots[1]}, and the fabric file has {slots[0]}."
            yield failure("tray_misplaced", FABRIC_FILE, message, tray, clique)
    for clique, groups in moved.items():
        yield from _moved(evidence, clique, groups)


def _swapped(evidence: Evidence, tray: str, other: str) -> Finding:
    both = sorted((tray, other))
    message = f"{tray} has the GPUs that the fabric file assigns to {other}"
    back = evidence.observations.get(other)
    is_both = back and not set(back.gpu_uuids).isdisjoint(evidence.fabric.trays[tray]["gpu_uuids"])
    message += ", and the reverse." if is_both else "."
    return failure("tray_moved", FABRIC_FILE, message, None, only(map(evidence.clique_of, both)), trays=both)


def _gpus(tray: str, clique: str, known: set[str], now: set[str]) -> Iterator[Finding]:
    new, gone = now - known, known - now
    if new:
        which = f"{len(new)} of its {len(now)}" if known & now else f"all {len(new)} of its"
        message = f"{tray}: {which} GPUs are not those of the fabric file."
        yield failure("tray_replaced", FABRIC_FILE, message, tray, clique, severity=WARNING)
    elif gone:
        message = f"{tray} reports {len(now)} of its {len(known)} GPUs ({summarize(sorted(gone))} missing)."
        yield failure("gpu_missing", HARDWARE, message, tray, clique, severity=ERROR)


def _moved(evidence: Evidence, clique: str, groups: Mapping[Identity, list[str]]) -> Iterator[Finding]:
    """One failure for a clique of which every tray moved, split or not; else one for each group that moved together."""
    attached = {tray for tray, now in evidence.observations.items() if now.identity}
    moved = [tray for trays in groups.values() for tray in trays]
    if len(moved) == len(attached.intersection(evidence.fabric.members[clique])) > 1:
        actual = "; ".join(f"{len(trays)} {_where(evidence, identity)}" for identity, trays in groups.items())
        message = f"All {len(moved)} trays of clique {clique} that answer are in another clique: {actual}."
        yield failure("tray_moved", FABRIC_FILE, message, None, clique, trays=moved)
        return
    for there, trays in groups.items():
        report = "report that they are" if len(trays) > 1 else "reports that it is"
        where = _where(evidence, there)
        message = f"{summarize(trays)} {report} {where}; the fabric file has {clique}."
        yield failure("tray_moved", FABRIC_FILE, message, only(trays), clique, trays=trays)


def _where(evidence: Evidence, identity: Identity) -> str:
    names = {evidence.fabric.identity(name): name for name in evidence.fabric.cliques}
    known = names.get(identity)
    return f"in clique {known}" if known else f"in {identity[0]}.{identity[1]}, which is no clique of the fabric file"
