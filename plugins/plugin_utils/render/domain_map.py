# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The domain map: the NVLink domains in columns as text for a terminal, one row per tray, the highest slot on top.

Pure: the caller decides how wide the terminal is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import bounded, count, one_line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.differences import structure_diff
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import (
    alike,
    grouped,
    joined,
    natural_sorted,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import view

GAP = 3
EMPTY = "empty"
NOTHING = "none"
MAX_FINDINGS = 12
# Of more domains, those that need attention are drawn, the worst first and no more than these; the others are named.
MAX_DOMAINS = 24
# Of a tray with many small jobs, the first are shown.
WIDEST_JOBS = 16
WIDEST_STATE = 24
MARKS = {model.HEALTHY: "●", model.DEGRADED: "▲", model.UNHEALTHY: "✗", model.UNKNOWN: "?"}

Column = tuple[str, Callable[[view.Tray], str]]
Layout = tuple[tuple[Column, ...], int]
"""The columns of a domain, and how wide a domain may be with them."""


INDEX: Column = ("index", lambda tray: f"{'-' if tray.tray_index is None else tray.tray_index:>5}")
NAME: Column = ("tray ", lambda tray: tray.name)  # as wide as "empty"
CLIQUE: Column = ("clique", lambda tray: tray.clique.name if tray.clique else "-")
HEALTH: Column = ("health", lambda tray: f"{MARKS[tray.health]} {tray.health}")
STATE: Column = ("state", lambda tray: _cut(tray.why_state, WIDEST_STATE))
SLURM: Column = ("Slurm", lambda tray: tray.slurm)
JOBS: Column = ("jobs", lambda tray: _cut(" ".join(tray.jobs), WIDEST_JOBS))
# From the widest to the narrowest. The first is taken in which two domains fit next to each other, else the first in
# which one fits. An index counts from 0, so it stands apart from the number in the name.
LAYOUTS: tuple[tuple[Column, ...], ...] = (
    (NAME, CLIQUE, HEALTH, STATE, SLURM, INDEX),
    (NAME, CLIQUE, HEALTH, STATE),
)


def domain_map(
    fabric: model.Fabric, state: model.State, jobs: Mapping[str, tuple[str, ...]] | None = None, *, width: int = 120
) -> list[str]:
    """The lines of the map: as many domains in a row as fit ``width``, then unplaced trays, sums and findings.

    jobs: Slurm node name -> job IDs; they have a column where Slurm was queried.
    """
    shown = view.figure(fabric, state, jobs)
    half = (width - GAP) // 2 if len(shown.domains) > 1 else width
    jobs_column = (JOBS,) if shown.has_jobs else ()
    layouts = [((*columns, *jobs_column), widest) for widest in (half, width) for columns in LAYOUTS]
    drawn = shown.domains
    if len(drawn) > MAX_DOMAINS:
        bad = (domain for domain in drawn if domain.word in view.TROUBLE)
        drawn = tuple(sorted(bad, key=lambda domain: domain.rank)[:MAX_DOMAINS])
    lines = _in_rows(_domains(drawn, layouts), width)
    others = ((domain.name, domain.word) for domain in shown.domains if domain not in drawn)
    lines += grouped(others, "NVLink domain")
    if shown.unplaced:
        lines += ["", "Unplaced: " + ", ".join(tray.name for tray in shown.unplaced)]
    return [*map(one_line, [*lines, "", *_sums(shown), *_findings(shown)])]


def change_map(before: model.Fabric, after: model.Fabric, state: model.State, *, width: int = 120) -> list[str]:
    """The lines of the map of a proposal: the domains in which trays change, each tray with its clique from -> to.

    before: the accepted fabric, after: the proposed one. Where no tray changes, domains, cliques and blocks that do.
    """
    changed = {name for name in {*before.trays, *after.trays} if before.trays.get(name) != after.trays.get(name)}

    def place(tray: view.Tray) -> str:
        clique = tray.clique.name if tray.clique else NOTHING
        if tray.name not in changed:
            return clique
        row = before.trays.get(tray.name)
        old = row["clique"] if row else NOTHING
        return f"{old} -> {clique}" if old != clique else f"{clique} (changed)"

    domains = [
        domain for domain in view.figure(after, state).domains if any(tray.name in changed for tray in domain.trays)
    ]
    column: Column = ("from -> to", place)
    layouts = (((NAME, column, SLURM), width), ((NAME, column), width))
    lines = _in_rows(_domains(domains, layouts), width)
    gone = natural_sorted(changed.difference(after.trays))
    if gone:
        lines += ["", "Removed: " + ", ".join(f"{name} (from {before.trays[name]['clique']})" for name in gone)]
    structure = structure_diff(before, after)
    if structure and not changed:
        lines += bounded(structure, MAX_FINDINGS, "change")
    trays = count(len({*before.trays, *after.trays}), "tray")
    changes = f"The proposal changes {len(changed)} of {trays}, in {count(len(domains), 'NVLink domain')}."
    return [*map(one_line, [*lines, "", changes])]


Block = list[str]
"""The lines of a domain, all of one width."""


def _in_rows(blocks: Sequence[Block], width: int) -> list[str]:
    """As many domains in a row as fit the width."""
    cell = max((len(block[0]) for block in blocks), default=0)
    across = max(1, (width + GAP) // (cell + GAP))
    lines: list[str] = []
    for start in range(0, len(blocks), across):
        if lines:
            lines.append("")
        for row in zip_longest(*blocks[start : start + across], fillvalue=""):
            lines.append((" " * GAP).join(text.ljust(cell) for text in row).rstrip())
    return lines


def _domains(domains: Sequence[view.Domain], layouts: Sequence[Layout]) -> list[Block]:
    blocks: list[Block] = []
    trays = [tray for domain in domains for tray in domain.trays]
    for layout, widest in layouts:
        every = [layout[i][1](tray) for tray in trays for i in range(len(layout))]
        # All domains share their column widths, so that rows align across domains.
        widths = [max([len(title), *map(len, every[i :: len(layout)])]) for i, (title, _cell) in enumerate(layout)]
        blocks = [_domain(domain, layout, widths) for domain in domains]
        if all(len(block[0]) <= widest for block in blocks):
            break
    return blocks


def _domain(domain: view.Domain, layout: tuple[Column, ...], widths: list[int]) -> Block:
    total = sum(widths) + 2 * (len(widths) - 1)

    def row(cells: Iterable[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))

    title = _cut(f"{domain.name}  {domain.sums}  {domain.cluster_uuid[:8]}", total)
    block = [title.ljust(total), row(title for title, _cell in layout)]
    for slot in reversed(range(len(domain.slots))):
        tray = domain.slots[slot]
        if tray is None:
            block.append(row(EMPTY if title == NAME[0] else "" for title, _cell in layout))
        else:
            block.append(row(cell(tray) for _title, cell in layout))
        if domain.switches and slot == domain.below:
            label = f" {domain.switches} switch trays "
            block.append(_cut(label.center(total, "─"), total).ljust(total))
    return block


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _sums(shown: view.Figure) -> list[str]:
    trays = list(shown.trays)

    def by_word(words: Iterable[str], order: Sequence[str]) -> str:
        return ", ".join(f"{number} {word}" for word, number in view.counts(words, order))

    cliques = sum(clique.trays > 0 for clique in shown.cliques)
    numbers = [
        f"{count(len(trays), 'tray')} in {count(cliques, 'clique')} of {count(len(shown.domains), 'NVLink domain')}",
        by_word((tray.health for tray in trays), view.HEALTH),
        by_word((tray.state for tray in trays), (*view.STATES, "unknown")) if shown.has_state else "no state file",
    ]
    return ["; ".join(part for part in numbers if part)]


def _findings(shown: view.Figure) -> list[str]:
    lines = []
    findings = alike(shown.findings, ("severity", "code", "gpu"))
    for row in map(joined, findings[:MAX_FINDINGS]):
        text = ": ".join(part for part in (view.subject(row), row["message"]) if part)
        lines.append(f"{row['severity']:7}  {text}")
    more = sum(map(len, findings[MAX_FINDINGS:]))
    return [*lines, *([f"and {count(more, 'more finding')}, all of them in the report"] if more else [])]
