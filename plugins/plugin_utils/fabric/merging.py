# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge the answers of several sources into one observation a tray, in the order of trust. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, shortened
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import UNKNOWN, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import folded, grouped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import OutageError

# Fields that a less trusted source may add where the most trusted one has no value. Never the clique: a source that
# reports none has observed a tray that is not attached.
_ADDED: tuple[str, ...] = (
    "chassis_serial",
    "tray_index",
    "host_id",
    "gpu_uuids",
    "addresses",
    "driver_version",
    "slurm_node",
    "kubernetes_node",
    "ansible_host",
    "slurm_cluster",
    "kubernetes_cluster",
)


@dataclass(frozen=True)
class Answer:
    """The answer of one source.

    targets: the trays to observe; None for those that it reports. findings: about the source itself. blocks: of a
    running Slurm (see SourceResult for both). failure: why there is no answer at all. measured: whether min_answer
    applies. hints: whether it only adds to the observations of other sources.
    """

    source: str
    observations: Sequence[Observation] = ()
    targets: Collection[str] | None = None
    failure: str = ""
    measured: bool = True
    hints: bool = False
    findings: Sequence[Finding] = ()
    blocks: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Merged:
    """One observation for each tray, in the order in which the sources first name it, and findings about sources.

    outage: whether a source failed or answered for too few trays, so that another run may observe more. blocks: of a
    running Slurm. unclaimed: blocks without a tray that is in the fabric file or that a source reports as attached.
    """

    observations: list[Observation]
    findings: list[Finding]
    outage: bool = False
    blocks: tuple[tuple[str, int], ...] = ()
    unclaimed: tuple[tuple[str, int], ...] = ()


def merge(
    answers: Iterable[Answer],
    min_answer: float,
    fabric_file: bool,
    nodes: Mapping[str, str] | None = None,
    blocks: Collection[str] | None = None,
) -> Merged:
    """Merge the answers, given in the order of trust.

    A source that failed, or answered for less than min_answer percent of its trays, is an OutageError, unless the
    fabric file is a source too: then its places are kept and the outage is a finding. nodes: tray -> NodeName in Slurm
    of the trays in the fabric file; other trays have the NodeName that they report, or their own name. blocks: names of
    the blocks of the fabric file's cliques; where given, a block of a running Slurm is a finding if it has nodes and
    none of them is one of the trays.
    """
    findings: list[Finding] = []
    hints: list[Observation] = []
    running: tuple[tuple[str, int], ...] = ()
    others, any_outage = fabric_file, False
    by_tray: dict[str, list[Observation]] = {}
    for answer in answers:
        outage = _outage(answer, min_answer)
        if outage and not fabric_file:
            why = "".join(f" ({row['message'].partition(';')[0]})" for row in answer.findings)
            raise OutageError(f"{outage.rstrip('.')}{why}; restore it, or add fabric_file to sources")
        findings += answer.findings
        running += answer.blocks
        if outage:
            any_outage = True
            message = f"{outage}; the places in the fabric file are kept, discover again when the source is back."
            findings.append(finding("source_failed", message))
        if answer.hints:
            hints += answer.observations
            continue
        others = True
        for observation in answer.observations:
            by_tray.setdefault(observation.tray, []).append(observation)
    observed = [_one(several) if len(several) > 1 else several[0] for several in by_tray.values()]
    if hints and not others:
        return Merged(hints, findings, any_outage, running)
    if hints:
        observed = _hinted(observed, hints, nodes or {})
    if blocks is None:
        return Merged(observed, findings, any_outage, running)
    placed = {*(nodes or {}).values()}
    claimed = {row.block[0] for row in observed if row.block and row.identity}
    claimed.update(row.block[0] for row in hints if row.block and (row.slurm_node or row.tray) in placed)
    unclaimed = tuple(block for block in running if block[0] not in claimed.union(blocks))
    populated = {row.block[0] for row in hints if row.block}
    findings += (_unclaimed(*block) for block in unclaimed if block[0] in populated)
    return Merged(observed, findings, any_outage, running, unclaimed)


def _unclaimed(name: str, position: int) -> Finding:
    message = (
        f"Block {name} of Slurm at position {position} has no tray that is placed or attached, so slurm_topology would "
        "leave it without nodes; discover its trays first, unless they are to leave Slurm."
    )
    return finding("tray_unplaced", message, block=name)


def _hinted(rows: Iterable[Observation], hints: Sequence[Observation], nodes: Mapping[str, str]) -> list[Observation]:
    """Add block, cluster and, where no source reports it, NodeName of a running Slurm to the observations.

    A tray that another source reports in a different cluster is another node of the same name, or a finding.
    """
    by_node = {row.slurm_node or row.tray: row for row in hints}
    by_host = {**by_node, **{row.tray: row for row in hints}}
    pairs = []
    for row in rows:
        node = row.slurm_node or nodes.get(row.tray)
        pairs.append((row, by_node.get(node) if node else by_host.get(row.tray), node))
    matched = {hint.tray for row, hint, _node in pairs if hint and _may_be_in(row, hint.slurm_cluster)}
    found = []
    for row, hint, node in pairs:
        if hint and _may_be_in(row, hint.slurm_cluster):
            node_name = row.slurm_node if node else hint.slurm_node
            cluster = hint.slurm_cluster if row.slurm_cluster is None else row.slurm_cluster
            row = replace(row, block=hint.block, slurm_node=node_name, slurm_cluster=cluster)
        elif hint and hint.tray not in matched:
            row = replace(row, findings=(*row.findings, *_contradictions((row, hint))))
        found.append(row)
    return found


def _may_be_in(row: Observation, cluster: str | None) -> bool:
    return cluster is None or row.slurm_cluster in (None, cluster)


def _outage(answer: Answer, min_answer: float) -> str:
    """The message, without remedy, of an outage; empty if the answer is sufficient."""
    if answer.failure:
        return answer.failure
    reached = {row.tray for row in answer.observations if row.reachable}
    targets = {row.tray for row in answer.observations}.union(answer.targets or ())
    # A source without any tray has not answered: many outages look like an empty list.
    if answer.measured and not answer.hints and min_answer and len(reached) * 100 < min_answer * max(1, len(targets)):
        silent = ((row.tray, row.problem or "no answer") for row in answer.observations if not row.reachable)
        # A source with findings of its own has grouped the causes in them.
        why = "" if answer.findings else "".join(f"; {text}" for text in grouped(silent))
        limit = f"min_answer is {min_answer:g} percent"
        return f"{answer.source}: answers for {len(reached)} of {count(len(targets), 'tray')}, {limit}{why}"
    return ""


def too_few(answers: Sequence[Answer], merged: Merged, placed: Collection[str], min_answer: float | None) -> str:
    """Why a discovery observed too little to be one: no tray answered, or too few; empty if enough did.

    placed: the trays of the fabric file; any other host without a GPU is no tray. min_answer: the share of the trays
    that must answer, in percent; None for at least one.
    """
    if all(answer.hints and not answer.failure for answer in answers):
        return ""
    rows = merged.observations
    reached = [row for row in rows if row.reachable]
    no_trays = [row.tray for row in reached if row.tray not in placed and not row.may_be_a_tray]
    hosts = {row.tray for row in rows}.union(*(answer.targets or () for answer in answers if not answer.hints))
    trays, answered = len(hosts) - len(no_trays), len(reached) - len(no_trays)
    if not answered:
        what = "no tray answered"
    elif min_answer and answered * 100 < min_answer * trays:
        what = f"{answered} of {count(trays, 'tray')} answered, and min_answer is {min_answer:g} percent"
    else:
        return ""
    why = [answer.failure for answer in answers if answer.failure]
    why += [f"{row.source} names no tray" for row in answers if not (row.failure or row.hints or row.observations)]
    why += grouped((row.tray, row.problem or "no answer") for row in rows if not row.reachable)
    if no_trays:
        why.append(f"{folded(no_trays, 'host')}: no GPU found")
    return f"{what}: {'; '.join(why)}" if why else what


def _one(several: Sequence[Observation]) -> Observation:
    """Merge observations of one tray: the most trusted that reached it, missing values from the next, disagreements."""
    reached = [row for row in several if row.reachable] or [several[0]]
    best = reached[0]
    findings = list(_contradictions(reached))
    added: dict[str, Any] = {}
    for other in reached[1:]:
        # A source that means another tray by this name must not add its GPUs.
        if other.identity in (None, best.identity):
            missing = (
                key for key in _ADDED if not (getattr(best, key) or getattr(best, key) == 0) and key not in added
            )
            added.update({key: getattr(other, key) for key in missing if getattr(other, key) not in (None, ())})
            if best.health == UNKNOWN and other.health != UNKNOWN:
                added.setdefault("health", other.health)
            added["gpu_count"] = max(added.get("gpu_count", best.gpu_count), other.gpu_count)
    if not (added or findings):
        return best
    return replace(best, **added, findings=(*best.findings, *findings))


def _contradictions(rows: Iterable[Observation]) -> Iterator[Finding]:
    """Yield a finding for each row that contradicts the most trusted value of a field.

    The rows are in the order of trust.
    """
    first: dict[str, Observation] = {}
    for row in rows:
        differ: dict[str, list[str]] = {}
        for word, value_of in _COMPARED.items():
            if value := value_of(row):
                trusted = first.setdefault(word, row)
                if value_of(trusted) != value:
                    differ.setdefault(trusted.source, []).append(word)
        for words in differ.values():
            yield _contradiction(first[words[0]], row, words)


def _contradiction(trusted: Observation, other: Observation, words: Sequence[str]) -> Finding:
    """A finding with both values of each field, their sources and times."""
    rows = ([f"{word} {shortened(_COMPARED[word](row), 60)}" for word in words] for row in (trusted, other))
    ours, others = map(", ".join, rows)
    message = (
        f"Tray {trusted.tray}: source {trusted.source} reports {ours} ({trusted.observed_at or 'no time'}), "
        f"source {other.source} reports {others} ({other.observed_at or 'no time'}); "
        f"{trusted.source} counts, which sources lists first"
    )
    return finding("sources_disagree", message, tray=trusted.tray)


_COMPARED: Mapping[str, Callable[[Observation], str]] = {
    "clique": lambda row: f"{row.identity[0]}.{row.identity[1]}" if row.identity else "",
    "GPUs": lambda row: " ".join(sorted(row.gpu_uuids)),
    "chassis": lambda row: row.chassis_serial or "",
    "tray index": lambda row: "" if row.tray_index is None else str(row.tray_index),
    "Slurm cluster": lambda row: row.slurm_cluster or "",
    "Kubernetes cluster": lambda row: row.kubernetes_cluster or "",
}
