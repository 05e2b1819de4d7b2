# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVLink domains as a figure that both the report and the domain map draw.

Pure: takes the fabric and its state (an empty one where there is no state file), returns a ``Figure``. Mostly
a domain is the trays of one rack; a rack may have several domains, and a domain several racks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model, products
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_key, natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, Subject, rank
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import spans
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.node_states import DOWN, DRAINED, RESERVED, WORDS

HEALTH = (model.HEALTHY, model.DEGRADED, model.UNHEALTHY, model.UNKNOWN)
STATES = (model.PRESENT, *WORDS, model.STALE, model.CONFLICT, model.UNPLACED)
# A tray is shown by the first of these that is its health or state, and a domain by the first of its trays.
TROUBLE = (model.UNHEALTHY, model.CONFLICT, DOWN, DRAINED, model.DEGRADED, model.STALE, model.UNKNOWN, RESERVED)
WORST_FIRST = (*TROUBLE, model.HEALTHY)
NO_SUBJECT: Subject = {"tray": None, "gpu": None, "clique": None, "domain": None, "block": None}
NO_TRAYS = "no trays"
# A tray index is one byte in NVML; a larger one in a fabric file must not draw a million slots.
MAX_SLOTS = 256


@dataclass(frozen=True)
class Clique:
    """One clique of the fabric file, with its place in Slurm and the sums of its trays.

    works: the number of its working trays. slurm_nodes, kubernetes_nodes: its trays by their names there, folded;
    with the name of the cluster where several share the fabric. parts: its blocks with trays where it is, or was, split
    in Slurm's topology.
    """

    name: str
    domain: str
    text: str
    block: str
    position: int
    trays: int
    works: int
    gpus: int
    health: dict[str, int]
    slurm_nodes: str
    kubernetes_nodes: str
    parts: tuple[model.BlockView, ...] = ()


@dataclass(frozen=True)
class Tray:
    """One tray in its slot. ``bad_gpus`` are the indices of GPUs with an error finding.

    ``block`` is None where it is in no Slurm cluster. ``place`` is its entry in the fabric file, empty without one.
    ``jobs`` are the IDs of the Slurm jobs that run there, ``reason`` is why it gets no new one.
    """

    name: str
    tray_index: int | None
    clique: Clique | None
    health: str
    state: str
    gpus: int
    bad_gpus: tuple[int, ...]
    last_seen: str | None
    block: model.Block | None
    place: Mapping[str, Any]
    jobs: tuple[str, ...] = ()
    reason: str = ""

    @property
    def why_state(self) -> str:
        """Its state, with the reason that Slurm has for it."""
        return ": ".join(filter(None, (self.state, self.reason)))

    @property
    def slurm(self) -> str:
        """Where it stands in Slurm: its cluster, where there are several, and its block's name and position."""
        return _in_slurm(self.place.get("slurm_cluster"), self.block) if self.block else "-"

    @property
    def word(self) -> str:
        """The worst of its health and state, as one word; healthy where it is present too."""
        return next((word for word in TROUBLE if word in (self.health, self.state)), model.HEALTHY)


@dataclass(frozen=True)
class Domain:
    """One NVLink domain: its slots from the lowest up; an empty slot is None.

    chassis: the racks that it is in. cliques: in block order.
    """

    name: str
    cluster_uuid: str
    chassis: str
    cliques: tuple[Clique, ...]
    slots: tuple[Tray | None, ...]
    below: int
    switches: int

    @property
    def trays(self) -> list[Tray]:
        """The trays that the fabric file places here, from the lowest slot up."""
        return [tray for tray in self.slots if tray is not None]

    @property
    def words(self) -> list[tuple[str, int]]:
        """The words of its trays with their numbers, worst first."""
        return counts((tray.word for tray in self.trays), WORST_FIRST)

    @property
    def sums(self) -> str:
        """Its trays of those expected, and how many have a problem: ``18 of 18 trays, 1 stale``."""
        bad = [f"{number} {word}" for word, number in self.words if word != model.HEALTHY]
        return ", ".join((f"{len(self.trays)} of {count(len(self.slots), 'tray')}", *bad))

    @property
    def word(self) -> str:
        """That of its worst tray."""
        return self.words[0][0] if self.words else NO_TRAYS

    @property
    def rank(self) -> int:
        """Its place by its worst tray."""
        return (*WORST_FIRST, NO_TRAYS).index(self.word)


@dataclass(frozen=True)
class Figure:
    """All that is drawn: domains and cliques in block order, unplaced trays by name, findings worst first.

    has_jobs: whether Slurm was queried for running jobs.
    """

    domains: tuple[Domain, ...]
    cliques: tuple[Clique, ...]
    unplaced: tuple[Tray, ...]
    findings: tuple[Finding, ...]
    has_state: bool
    has_jobs: bool

    @property
    def trays(self) -> Iterator[Tray]:
        """Every placed tray, in the order of the domains."""
        return (tray for domain in self.domains for tray in domain.trays)


def figure(fabric: model.Fabric, state: model.State, jobs: Mapping[str, tuple[str, ...]] | None = None) -> Figure:
    """Arrange trays, cliques and findings; a tray that is not in the state has health and state unknown.

    jobs: Slurm node name -> the IDs of the jobs that run there, where Slurm was queried.
    """
    findings = _findings(fabric, state)
    bad_gpus: dict[str, set[int]] = {}
    for finding in findings:
        tray, gpu = finding.get("tray"), finding.get("gpu")
        if finding.get("severity") == "error" and gpu is not None and tray:
            bad_gpus.setdefault(tray, set()).add(gpu)
    cliques = {block.clique: _clique(fabric, state, block) for block in fabric.blocks()}
    # One base for the whole fabric: a rack without its first tray must not be drawn one slot lower.
    indices = [tray["tray_index"] for tray in fabric.trays.values() if tray["tray_index"] is not None]
    base = 1 if indices and min(indices) >= 1 else 0

    def tray_of(name: str) -> Tray:
        entry: Any = fabric.trays.get(name, {})
        now: Any = state.trays.get(name, {})
        return Tray(
            name=name,
            tray_index=entry.get("tray_index", now.get("tray_index")),
            clique=cliques.get(entry.get("clique")),
            health=_word(now.get("health"), HEALTH),
            state=_word(now.get("state"), STATES),
            gpus=len(entry["gpu_uuids"]) if entry else now.get("gpu_count", 0),
            bad_gpus=tuple(sorted(bad_gpus.get(name, ()))),
            # Of a stale tray only: the time of a present one changes with every run.
            last_seen=now.get("observed_at") if now.get("state") == model.STALE else None,
            block=fabric.block_of.get(name),
            place=entry,
            jobs=(jobs or {}).get(entry.get("slurm_node", ""), ()),
            reason=now.get("reason", ""),
        )

    domains: dict[str, list[str]] = {}
    for block in fabric.blocks():
        domains.setdefault(cliques[block.clique].domain, []).extend(block.trays)
    for name in natural_sorted(fabric.domains):
        domains.setdefault(name, [])
    unplaced = natural_sorted(name for name in state.trays if name not in fabric.trays)
    drawn = (_domain(fabric, name, cliques, trays, base, tray_of) for name, trays in domains.items())
    return Figure(
        domains=tuple(drawn),
        cliques=tuple(cliques.values()),
        unplaced=tuple(tray_of(name) for name in unplaced),
        findings=tuple(findings),
        has_state=any(tray["source"] for tray in state.trays.values()),
        has_jobs=jobs is not None,
    )


def counts(words: Iterable[str], order: Sequence[str]) -> list[tuple[str, int]]:
    """Each word that occurs with its number, in this order."""
    of = Counter(words)
    return [(word, of[word]) for word in order if of[word]]


def subject(finding: Mapping[str, Any]) -> str:
    """The subject of a finding as text; empty where it concerns the whole fabric."""
    if finding["tray"]:
        return f"{finding['tray']} GPU {finding['gpu']}" if finding["gpu"] is not None else str(finding["tray"])
    return next((f"{key} {finding[key]}" for key in ("block", "clique", "domain") if finding[key]), "")


def _in_slurm(cluster: str | None, block: model.Block) -> str:
    return f"{f'{cluster} ' if cluster else ''}{block['name']} @{block['position']}"


def _word(value: Any, known: tuple[str, ...]) -> str:
    return value if value in known else "unknown"


def _clique(fabric: model.Fabric, state: model.State, block: model.BlockView) -> Clique:
    entry = fabric.cliques[block.clique]
    states = [state.trays[name] for name in block.trays if name in state.trays]
    health = Counter(_word(tray["health"], HEALTH) for tray in states)
    health[model.UNKNOWN] += len(block.trays) - len(states)
    return Clique(
        name=block.clique,
        domain=entry["domain"],
        text=fabric.clique_text(block.clique),
        block=_blocks(fabric, block),
        position=block.position,
        trays=len(block.trays),
        works=sum(spans.works(state.trays.get(name)) for name in block.trays),
        gpus=sum(len(fabric.trays[name]["gpu_uuids"]) for name in block.trays),
        health={word: health[word] for word in HEALTH if health[word]},
        slurm_nodes=_nodes(fabric, block, "slurm"),
        kubernetes_nodes=_nodes(fabric, block, "kubernetes"),
        parts=tuple(part for part in fabric.parts(block) if part.trays and "split_blocks" in entry),
    )


def _nodes(fabric: model.Fabric, block: model.BlockView, system: str) -> str:
    """The trays of a clique by their names in Slurm or Kubernetes, without those that are in no cluster there."""
    names: dict[str, list[str]] = {}
    for tray in block.trays:
        row: Any = fabric.trays[tray]
        cluster = row.get(f"{system}_cluster")
        if cluster or not fabric.clusters.get(system):
            names.setdefault(cluster or "", []).append(row[f"{system}_node"])
    return "; ".join(f"{cluster}: {hostlist.fold(of)}".removeprefix(": ") for cluster, of in names.items())


def _blocks(fabric: model.Fabric, block: model.BlockView) -> str:
    """A clique's block by its name; in several Slurm clusters, each of its blocks there."""
    if not fabric.slurm_clusters:
        return block.name
    rows = ((name, fabric.clusters["slurm"][name]["blocks"].get(block.clique)) for name in fabric.slurm_clusters)
    return ", ".join(_in_slurm(cluster, there) for cluster, there in rows if there) or "-"


def _domain(
    fabric: model.Fabric,
    name: str,
    cliques: Mapping[str, Clique],
    names: Iterable[str],
    base: int,
    tray_of: Callable[[str], Tray],
) -> Domain:
    """A domain with its trays in their slots."""
    domain = fabric.domains[name]
    names = natural_sorted(names)
    index_of = {tray: fabric.trays[tray]["tray_index"] for tray in names}
    known = [at for at in index_of.values() if at is not None]
    if known and max(known) - base >= domain["expected_trays"]:
        # A domain that has the upper half of a rack has no empty slots below.
        base = min(known)
    slot_of = {name: at - base for name, at in index_of.items() if at is not None and 0 <= at - base < MAX_SLOTS}
    size = max([domain["expected_trays"], len(names), *(slot + 1 for slot in slot_of.values())])
    slots: list[Tray | None] = [None] * size
    # Without an index of its own, or with one that another tray has too, a tray still needs a slot.
    without_slot = []
    for tray in names:
        slot = slot_of.get(tray)
        if slot is None or slots[slot] is not None:
            without_slot.append(tray)
        else:
            slots[slot] = tray_of(tray)
    for tray in without_slot:
        free = slots.index(None)
        slots[free] = tray_of(tray)
    below, switches = products.switch_trays(size) if len(domain["chassis_serials"]) <= 1 else (0, 0)
    return Domain(
        name=name,
        cluster_uuid=domain["cluster_uuid"],
        chassis=summarize(domain["chassis_serials"]),
        cliques=tuple(clique for clique in cliques.values() if clique.domain == name),
        slots=tuple(slots),
        below=below,
        switches=switches,
    )


def _findings(fabric: model.Fabric, state: model.State) -> list[Finding]:
    found: list[Finding] = [{**NO_SUBJECT, **finding} for finding in state.findings]
    for name, entry in state.trays.items():
        found += [{**NO_SUBJECT, "tray": name, **finding} for finding in entry["findings"]]
    for finding in found:
        tray = fabric.trays.get(finding["tray"] or "")
        if tray and not finding["clique"]:
            finding["clique"] = tray["clique"]

    def key(finding: Finding) -> tuple[Any, ...]:
        gpu = finding.get("gpu")
        return (
            rank(finding.get("severity")),
            natural_key(str(finding.get("clique") or "")),
            natural_key(str(finding.get("tray") or "")),
            gpu if isinstance(gpu, int) else -1,
            str(finding.get("code")),
            str(finding.get("message")),
        )

    # Equal messages of one subject are shown once.
    unique = {repr(key(finding)): finding for finding in found}
    return sorted(unique.values(), key=key)
