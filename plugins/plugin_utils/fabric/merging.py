# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several sources' answers made one observation a tray: the order of trust decides, never that of arrival. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import UNKNOWN, Finding, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import SourceResult, shown

# What a less trusted source may add where the most trusted one is silent. Never the clique: a source that does not
# name one has seen a tray that is not attached.
_ADDED: tuple[str, ...] = (
    "chassis_serial",
    "tray_index",
    "gpu_uuids",
    "addresses",
    "driver_version",
    "slurm_node",
    "kubernetes_node",
    "ansible_host",
    "slurm_cluster",
    "kubernetes_cluster",
)


class MergeError(NvlinkError):
    """What a site has written about its sources together is wrong."""


class OutageError(NvlinkError):
    """A source that failed, or that answered for too few trays, and there is no fabric file to stand in for it."""


@dataclass(frozen=True)
class Answer:
    """What one source said. asked: the trays that it should have told of, those that it told of where None.

    findings are about the source itself, blocks are those of a running Slurm (both see SourceResult).
    failure is why it gave no answer at all. measured: whether min_answer is asked of it.
    hints: whether it only adds to what others say of a tray.
    """

    source: str
    observations: Sequence[Observation] = ()
    asked: Collection[str] | None = None
    failure: str = ""
    measured: bool = True
    hints: bool = False
    findings: Sequence[Finding] = ()
    blocks: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Merged:
    """One observation a tray, in the order in which the sources first name them, and what is to be said of sources.

    outage: whether a source gave no answer, or too few, so that another run may well hear more. blocks: of a running
    Slurm. unclaimed: those of them that no tray is in that the fabric file holds or a source sees attached.
    """

    observations: list[Observation]
    findings: list[Finding]
    outage: bool = False
    blocks: tuple[tuple[str, int], ...] = ()
    unclaimed: tuple[tuple[str, int], ...] = ()


def percent(option: str, value: Any) -> float:
    """A part in percent; MergeError if it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= 100:
        raise MergeError(f"{option}: {shown(value)} must be a number from 0 to 100")
    return number


def ask(source: str, question: Callable[[], SourceResult], asked: Collection[str] | None = None) -> Answer:
    """A source's answer, also if it failed; what a person wrote wrongly is raised on."""
    try:
        told = question()
    except NvlinkError as error:
        if not _is_outage(error):
            raise
        return Answer(source, failure=str(error).rstrip("."))
    return Answer(source, told.observations, asked, findings=told.findings, blocks=told.blocks)


def merge(
    answers: Iterable[Answer],
    min_answer: float,
    fabric_file: bool,
    nodes: Mapping[str, str] | None = None,
    blocks: Collection[str] | None = None,
) -> Merged:
    """The answers, which stand in the order of trust, as one.

    A source that failed, or told of less than min_answer percent of the trays that it was asked for, is an OutageError,
    unless the fabric file is a source too: then that stands and the outage is a finding. nodes: tray -> its name in
    Slurm, of those that the fabric file holds; other trays are known there as they say, or by their own names. blocks:
    the names of those that the fabric file's cliques have; where given, a block of a running Slurm that has nodes, and
    none of them is one of the trays, is a finding.
    """
    findings: list[Finding] = []
    hints: list[Observation] = []
    running: tuple[tuple[str, int], ...] = ()
    others, any_outage = fabric_file, False
    told: dict[str, list[Observation]] = {}
    for answer in answers:
        outage = _outage(answer, min_answer)
        if outage and not fabric_file:
            why = "".join(f" ({row['message'].partition(';')[0]})" for row in answer.findings)
            raise OutageError(f"{outage[1].rstrip('.')}{why}; bring it back, or put fabric_file into sources")
        findings += answer.findings
        running += answer.blocks
        if outage:
            any_outage = True
            code, message = outage
            findings.append(finding(code, f"{message}; the fabric file stands, discover again when it is back."))
        if answer.hints:
            hints += answer.observations
            continue
        others = True
        for observation in answer.observations:
            told.setdefault(observation.tray, []).append(observation)
    seen = [_one(several) if len(several) > 1 else several[0] for several in told.values()]
    if hints and not others:
        return Merged(hints, findings, any_outage, running)
    if hints:
        seen = _hinted(seen, hints, nodes or {})
    if blocks is None:
        return Merged(seen, findings, any_outage, running)
    placed = {*(nodes or {}).values()}
    claimed = {row.block[0] for row in seen if row.block and row.identity}
    claimed.update(row.block[0] for row in hints if row.block and (row.slurm_node or row.tray) in placed)
    unclaimed = tuple(block for block in running if block[0] not in claimed.union(blocks))
    inhabited = {row.block[0] for row in hints if row.block}
    findings += (_unclaimed(*block) for block in unclaimed if block[0] in inhabited)
    return Merged(seen, findings, any_outage, running, unclaimed)


def _unclaimed(name: str, position: int) -> Finding:
    message = (
        f"Slurm's block {name} at position {position} has no tray that is placed or attached, so slurm_topology would "
        "leave it without nodes; discover its trays first, or let them go."
    )
    return finding("block_unclaimed", message, block=name)


def _hinted(seen: Iterable[Observation], hints: Sequence[Observation], nodes: Mapping[str, str]) -> list[Observation]:
    """The observations with the block and the cluster that Slurm has their tray in, and its NodeName if nobody says it.

    Of a tray that is said to be in another cluster Slurm means another tray, or it is a finding.
    """
    by_node = {row.slurm_node or row.tray: row for row in hints}
    by_host = {**by_node, **{row.tray: row for row in hints}}
    pairs = []
    for row in seen:
        node = row.slurm_node or nodes.get(row.tray)
        pairs.append((row, by_node.get(node) if node else by_host.get(row.tray), node))
    meant = {hint.tray for row, hint, _node in pairs if hint and _may_be_in(row, hint.slurm_cluster)}
    found = []
    for row, hint, node in pairs:
        if hint and _may_be_in(row, hint.slurm_cluster):
            named = row.slurm_node if node else hint.slurm_node
            cluster = hint.slurm_cluster if row.slurm_cluster is None else row.slurm_cluster
            row = replace(row, block=hint.block, slurm_node=named, slurm_cluster=cluster)
        elif hint and hint.tray not in meant:
            row = replace(row, findings=(*row.findings, *_contradictions((row, hint))))
        found.append(row)
    return found


def _may_be_in(row: Observation, cluster: str | None) -> bool:
    return cluster is None or row.slurm_cluster in (None, cluster)


def _is_outage(error: NvlinkError) -> bool:
    from ansible_collections.rackscale.nvlink.plugins.plugin_utils.http import HttpError

    return isinstance(error, (OutageError, HttpError))


def _outage(answer: Answer, min_answer: float) -> tuple[str, str] | None:
    """The code and the sentence, less its remedy, of what is wrong with the answer as a whole."""
    if answer.failure:
        return "source_failed", answer.failure
    reached = {row.tray for row in answer.observations if row.reachable}
    asked = {row.tray for row in answer.observations}.union(answer.asked or ())
    # A source that has nothing to tell of has not answered: an empty list is how many an outage looks.
    if answer.measured and not answer.hints and min_answer and len(reached) * 100 < min_answer * max(1, len(asked)):
        percent = f"min_answer is {min_answer:g} percent"
        return "too_few_answers", f"{answer.source}: answers for {len(reached)} of {len(asked)} trays, {percent}"
    return None


def _one(several: Sequence[Observation]) -> Observation:
    """The most trusted observation that reached the tray, what it leaves open from the next, and who disagrees."""
    reached = [row for row in several if row.reachable] or [several[0]]
    best = reached[0]
    findings = list(_contradictions(reached))
    added: dict[str, Any] = {}
    for other in reached[1:]:
        # One that means another tray by this name must not lend it its GPUs.
        if other.identity in (None, best.identity):
            silent = (key for key in _ADDED if not (getattr(best, key) or getattr(best, key) == 0) and key not in added)
            added.update({key: getattr(other, key) for key in silent if getattr(other, key) not in (None, ())})
            if best.health == UNKNOWN and other.health != UNKNOWN:
                added.setdefault("health", other.health)
            added["gpu_count"] = max(added.get("gpu_count", best.gpu_count), other.gpu_count)
    if not (added or findings):
        return best
    return replace(best, **added, findings=(*best.findings, *findings))


def _contradictions(rows: Iterable[Observation]) -> Iterator[Finding]:
    """A finding for each row that says something of the tray otherwise than the first that said it.

    The rows stand in the order of trust.
    """
    first: dict[str, Observation] = {}
    for row in rows:
        differ: dict[str, list[str]] = {}
        for word, say in _SAYINGS.items():
            if said := say(row):
                trusted = first.setdefault(word, row)
                if say(trusted) != said:
                    differ.setdefault(trusted.source, []).append(word)
        for words in differ.values():
            yield _contradiction(first[words[0]], row, words)


def _contradiction(trusted: Observation, other: Observation, words: Sequence[str]) -> Finding:
    """Both values of each word, who says them and when."""
    ours, others = (", ".join(f"{word} {_short(_SAYINGS[word](row))}" for word in words) for row in (trusted, other))
    message = (
        f"Tray {trusted.tray}: source {trusted.source} says {ours} ({trusted.observed_at or 'no time'}), "
        f"source {other.source} says {others} ({other.observed_at or 'no time'}); "
        f"{trusted.source} is trusted more, correct the other or the order of sources."
    )
    return finding("sources_disagree", message, tray=trusted.tray)


_SAYINGS: Mapping[str, Callable[[Observation], str]] = {
    "clique": lambda row: f"{row.identity[0]}.{row.identity[1]}" if row.identity else "",
    "GPUs": lambda row: " ".join(sorted(row.gpu_uuids)),
    "chassis": lambda row: row.chassis_serial or "",
    "tray index": lambda row: "" if row.tray_index is None else str(row.tray_index),
    "Slurm cluster": lambda row: row.slurm_cluster or "",
    "Kubernetes cluster": lambda row: row.kubernetes_cluster or "",
}


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
