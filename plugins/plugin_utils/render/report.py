# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report/index.html: a verdict in a sentence, what needs attention, the trays of each NVLink domain, and capacity.

One file that loads nothing.

The same fabric and state give the same bytes: the page has no time of writing. Jinja2's autoescape escapes every value;
as a second barrier the page's Content-Security-Policy allows only its own style and script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import (
    alike,
    equal,
    folded,
    grouped,
    joined,
    names,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Verdict, rank
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import since, view
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.repairs import Spares, reached, repairs, spares
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import layers, stranded_gpus, uses
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import capacity, node_states
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.node_states import WORDS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended, printable
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

PAGE = "report/index.html"
# As many domains are shown open; of more, each is a tile until it is opened.
FEW = 4
# What is equal in the problems of one card.
EQUAL = ("severity", "layer", "code", "cause", "gpu")
# The source whose trays are simulated.
SIMULATION = "simulation"


def render(fabric: model.Fabric, state: model.State, context: RenderContext) -> dict[str, str]:
    """Render the page from a fabric, its state and the optional input."""
    shown = view.figure(fabric, state, context.jobs)
    capacities = capacity.capacities(fabric, state, context.block_sizes, context.nodes)
    problems = _problems(shown, context.verdict)
    style, script = (_asset(name) for name in ("report.css", "report.js"))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters.update(counted=count, fold=hostlist.fold, folded=folded, subject=view.subject, reached=reached)
    page = environment.from_string(_asset("report.html.j2")).render(
        figure=shown,
        layers=layers(context.verdict) if context.verdict else (),
        uses=uses(context.verdict),
        stranded_gpus=stranded_gpus(context.verdict),
        repairs=repairs(context),
        spares=_spares(spares(fabric, state, context)),
        idle=[_idle(found) for found in capacities],
        changes=since.lines(fabric, context),
        state=state,
        context=context,
        sentence=_sentence(shown, capacities, problems, context),
        simulated=any(tray["source"] == SIMULATION for tray in state.trays.values()),
        words=view.counts((tray.word for tray in shown.trays), view.WORST_FIRST),
        few=len(shown.domains) <= FEW,
        problems=[*map(joined, alike(problems, EQUAL, ("message", "remediation")))],
        unavailable=grouped((tray.name, tray.why_state) for tray in shown.trays if tray.state in WORDS),
        placed=fabric.trays,
        unknown=list(fabric.trays.keys() - (context.nodes or {}).keys()),
        capacities=capacities,
        is_split=fabric.is_split,
        base_sizes=[_base_size(fabric, found, context) for found in capacities],
        digest=fabric_file.digest(fabric_file.serialise(fabric)),
        # Files of this collection, not text of trays: unescaped, and allowed by their hashes.
        style=Markup(style),
        script=Markup(script),
        style_hash=_source_hash(style),
        script_hash=_source_hash(script),
    )
    return {PAGE: printable(page) + "\n"}


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _problems(shown: view.Figure, verdict: Verdict | None) -> list[dict[str, Any]]:
    """The failures of verify and the findings that it does not have, worst first, as maps with the keys of both."""
    failures = []
    for failed in verdict["failures"] if verdict else ():
        # The remedy in words stands before its command.
        message, semicolon, words = failed["message"].rpartition("; ")
        step = f"{words.rstrip('.')}: {failed['remediation']}" if failed["remediation"] else words
        parts = {"message": f"{message}.", "remediation": step} if semicolon else {}
        failures.append({**view.NO_SUBJECT, **failed, **parts})
    verified = {(row["code"], row["tray"]) for row in failures}
    findings = []
    for row in shown.findings:
        if (row["code"], row.get("tray")) in verified:
            continue
        # A message is `what is wrong; remedy.`, but for some, whose code has a remedy.
        message, semicolon, remedy = row["message"].rpartition("; ")
        known = CATALOGUE.get(row["code"])
        general = {"remediation": ended(known.remedy) if known else ""}
        parts = {"message": f"{message}.", "remediation": remedy} if semicolon else general
        findings.append({"layer": "", "cause": "", **row, **parts})
    return sorted([*failures, *findings], key=lambda row: rank(row["severity"]))


def _sentence(
    shown: view.Figure, capacities: Iterable[capacity.Capacity], problems: Sequence[Object], context: RenderContext
) -> str:
    """The verdict: which trays need attention, and how many jobs of the best segment can use."""
    usable = []
    for found in capacities:
        trays = sum((tray.place.get("slurm_cluster") or "") == found.cluster for tray in shown.trays)
        owner = f" of cluster {found.cluster}" if found.cluster else ""
        jobs = f"Jobs of {count(found.best.segment, 'tray')}"
        usable.append(f"{jobs} can use {found.best.trays} of {count(trays, 'tray')}{owner}.")
    sentence = " ".join(usable) or "Jobs can use no tray."
    without = f"Without {hostlist.fold(context.without)}: " if context.without else ""
    if not shown.has_state:
        return f"{without}The trays' health is unknown without a state file. {sentence}"
    # Worst first.
    rows = (row for row in problems if row["severity"] != "info")
    named = [tray for row in rows for tray in row.get("trays") or [row["tray"]] if tray]
    bad = (tray.name for tray in shown.trays if tray.word not in (model.HEALTHY, node_states.RESERVED))
    names = [name for name in dict.fromkeys([*named, *bad]) if name not in context.without]
    attention = f"{summarize(names, 3) or 'No tray'} need{'s' * (len(names) < 2)} attention"
    return f"{without}{attention}. {sentence}"


def _by_numbers(rows: Iterable[tuple[tuple[int, ...], str]]) -> list[tuple[str, tuple[int, ...]]]:
    """Blocks with equal numbers as one row, the highest numbers first."""
    return [(names(blocks), numbers) for numbers, blocks in sorted(equal(rows).items(), reverse=True)]


def _idle(found: capacity.Capacity) -> tuple[list[str], list[tuple[str, tuple[int, ...]]]]:
    """A table of the idle trays of each block, and how many segments of each size fit on these: columns and rows."""
    sizes = [row.segment for row in found.reaches]
    rows = (((number, *(number // size for size in sizes)), block.name) for block, number in (found.idle or {}).items())
    return ["Blocks", "Idle trays", *(f"Segments of {size}" for size in sizes)], _by_numbers(rows)


def _spares(found: Sequence[Spares]) -> list[tuple[str, tuple[int, ...]]]:
    """Blocks and the numbers of their spares, after the sums of all blocks."""
    rows = [((row.wanted, row.reserved, row.free, row.promoted, row.missing), row) for row in found]
    sums = tuple(map(sum, zip(*(numbers for numbers, _row in rows), strict=True)))
    of = _by_numbers((numbers, f"{row.cluster} {row.block.name}".strip()) for numbers, row in rows)
    return [("all blocks", sums), *of] if of else []


def _base_size(fabric: model.Fabric, found: capacity.Capacity, context: RenderContext) -> str:
    if context.block_sizes or len(found.block_sizes) > 1:
        return f"Block size{'s' * (len(found.block_sizes) > 1)} {', '.join(map(str, found.block_sizes))}."
    return capacity.base_size(fabric, found.cluster)
