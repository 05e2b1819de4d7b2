# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report/index.html: the trays of each NVLink domain in their slots, cliques, capacity and findings.

One file that loads nothing.

The same fabric and state give the same bytes: the page has no time of writing. report/report.json next to it has the
numbers of this report, from which the next one lists changes. Jinja2's autoescape escapes every value; as a second
barrier the page's Content-Security-Policy allows only its own style and script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import changes, view
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import capacity
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import printable
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

# The number of clique colours in report.css.
HUES = 8
# Pixels: a domain's width, its inner margin, a tray's width, where in a tray its GPUs start, the height of the rows.
BOX = {"width": 250, "pad": 8, "tray": 234, "gpus": 176}
TRAY_STEP = 25
SWITCH_STEP = 10
LONGEST_NAME = 12
# GPUs drawn per tray; more have no room in its box.
MAX_GPUS = 8

PAGE = "report/index.html"


def render(fabric: model.Fabric, state: model.State, context: RenderContext) -> dict[str, str]:
    """Render the page and report.json from a fabric, its state and the optional input."""
    shown = view.figure(fabric, state, context.jobs)
    capacities = capacity.capacities(fabric, state, context.block_sizes, context.aggregate_blocks)
    kept, changed = changes.text_and_changes(shown, capacities, state.written_at, context.earlier)
    style, script = (_asset(name) for name in ("report.css", "report.js"))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["short"] = _short
    environment.filters["fold"] = hostlist.fold
    page = environment.from_string(_asset("report.html.j2")).render(
        figure=shown,
        domains=[_drawn(domain, shown) for domain in shown.domains],
        sums=_sums(shown),
        severities=_severities(shown, context),
        capacities=capacities,
        changed=changed,
        placed=set(fabric.trays),
        box=BOX,
        hues=HUES,
        health_words=view.HEALTH,
        verdict=context.verdict,
        rehearsed=context.rehearsed,
        digest=fabric_file.digest(fabric_file.serialise(fabric)),
        # Files of this collection, not text of trays: unescaped, and allowed by their hashes.
        style=Markup(style),
        script=Markup(script),
        style_hash=_source_hash(style),
        script_hash=_source_hash(script),
    )
    return {PAGE: printable(page) + "\n", changes.PATH: kept}


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _short(name: str) -> str:
    # The end of a host name distinguishes trays, not its start.
    return name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]


def _drawn(domain: view.Domain, shown: view.Figure) -> dict[str, Any]:
    """A domain with the y coordinate of all its parts, from the top slot down."""
    y = BOX["pad"]
    trays, empty, switches = [], [], []
    for slot in reversed(range(len(domain.slots))):
        tray = domain.slots[slot]
        if tray is None:
            empty.append(y)
        else:
            trays.append((tray, y))
        y += TRAY_STEP
        if domain.switches and slot == domain.below:
            switches = [y + SWITCH_STEP * row for row in range(domain.switches)]
            y += SWITCH_STEP * domain.switches
    right, marks = BOX["pad"] + BOX["gpus"], BOX["pad"] + BOX["tray"] - 12
    quiet = all(tray.health == model.HEALTHY and tray.state == model.PRESENT for tray in domain.trays)
    return {
        "name": domain.name,
        "cluster_uuid": domain.cluster_uuid,
        "chassis": domain.chassis,
        "trays": len(domain.trays),
        "size": len(domain.slots),
        "drawn": trays,
        "empty": empty,
        "switches": switches,
        # One path per domain for all its trays: one element per tray would take a browser seconds.
        "gpus": "".join(f"M{right} {y + 11}h{7 * min(tray.gpus, MAX_GPUS) - 2}" for tray, y in trays if tray.gpus),
        "bad_gpus": "".join(
            f"M{right + 7 * gpu} {y + 11}h5" for tray, y in trays for gpu in tray.bad_gpus if gpu < MAX_GPUS
        ),
        "healthy": "".join(f"M{marks} {y + 11}h0" for tray, y in trays if tray.health == model.HEALTHY),
        "height": y - (TRAY_STEP - 22) + BOX["pad"],
        "quiet": quiet and not any(finding.get("domain") == domain.name for finding in shown.findings),
    }


def _severities(shown: view.Figure, context: RenderContext) -> list[str]:
    """The severities that get a check box in the page's filter."""
    failures = context.verdict.failures if context.verdict else ()
    found = {row.get("severity") for row in (*shown.findings, *failures)}
    return [word for word in view.SEVERITIES if word in found]


def _sums(shown: view.Figure) -> dict[str, Any]:
    trays = list(shown.trays)
    health = _counts((tray.health for tray in trays), view.HEALTH)
    starts = [sum(number for _word, number in health[:at]) for at in range(len(health))]
    findings = _counts((finding["severity"] for finding in shown.findings), view.SEVERITIES)
    states = _counts((tray.state for tray in trays), (*view.STATES, model.UNKNOWN))
    if shown.unplaced:
        states.append((model.UNPLACED, len(shown.unplaced)))
    return {
        "domains": len(shown.domains),
        "cliques": sum(clique.trays > 0 for clique in shown.cliques),
        "trays": len(trays),
        "gpus": sum(tray.gpus for tray in trays),
        "health": health,
        "bar": [(word, number, start) for (word, number), start in zip(health, starts, strict=True)],
        "states": states,
        "findings": findings,
        "errors": dict(findings).get("error", 0),
    }


def _counts(words: Iterable[str], order: Sequence[str]) -> list[tuple[str, int]]:
    of = Counter(words)
    return [(word, of[word]) for word in order if of[word]]
