# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that is rendered from a fabric: one module per consumer, one row in RENDERERS.

A renderer is a pure function of the fabric and its state that returns texts by their path below the render directory.
A text that it cannot render is left out and reported as a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import (
    dra,
    imex,
    metrics,
    report,
    schedulers,
    slurm_files,
    workloads,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import DEFAULT, RenderContext


class Renderer(NamedTuple):
    """render: fabric, state and context -> {relative path: text}; findings: of the same, what it left out of these."""

    render: Callable[..., dict[str, str]]
    findings: Callable[..., Iterable[model.Finding]] | None = None


# Metrics and report stand last: they show what the others found.
RENDERERS: dict[str, Renderer] = {
    "slurm": Renderer(slurm_files.render, slurm_files.findings),
    "imex": Renderer(imex.render, imex.findings),
    "dra": Renderer(dra.render),
    "schedulers": Renderer(schedulers.render, schedulers.findings),
    "examples": Renderer(workloads.render),
    "metrics": Renderer(metrics.render),
    "report": Renderer(report.render),
}


class Rendered(NamedTuple):
    """files: renderer name -> {relative path: text}; findings: what could not be rendered."""

    files: dict[str, dict[str, str]]
    findings: list[model.Finding]


def render(
    fabric: model.Fabric,
    state: model.State,
    names: Collection[str] = tuple(RENDERERS),
    context: RenderContext = DEFAULT,
) -> Rendered:
    """Run the named renderers for a fabric."""
    findings: list[model.Finding] = []
    files: dict[str, dict[str, str]] = {}
    for name, renderer in RENDERERS.items():
        if name not in names:
            continue
        if renderer.findings is not None:
            findings += renderer.findings(fabric, state, context)
        known = replace(state, findings=[*state.findings, *findings])
        files[name] = renderer.render(fabric, known, context)
    return Rendered(files, findings)
