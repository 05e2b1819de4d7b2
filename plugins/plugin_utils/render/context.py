# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Optional input of the renderers next to a fabric and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.rehearsal import Rehearsed
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import Verdict


@dataclass(frozen=True)
class RenderContext:
    """Input of the renderers of metrics, report, examples, Slurm's files and the DRA driver's values.

    Each part is optional.

    block_sizes, aggregate_blocks: the site's settings of the role slurm_topology, for Slurm's files and what jobs span.
    verdict: what verify last found; rehearsed: a rehearsal with slurmctld; jobs: Slurm node name -> the IDs of the jobs
    that run there, None where Slurm was not queried; earlier: the content of the report.json of the last report.
    gpus_by_dra: whether the DRA driver allocates GPUs, rather than a device plugin. topology_templates: scheduler ->
    the site's template of its objects. site: the name of the site for the report; version: that of this collection;
    each empty where it is unknown.
    """

    verdict: Verdict | None = None
    rehearsed: Rehearsed | None = None
    jobs: Mapping[str, tuple[str, ...]] | None = None
    earlier: Mapping[str, Any] | None = field(default=None)
    block_sizes: tuple[int, ...] = ()
    aggregate_blocks: bool = False
    gpus_by_dra: bool = False
    topology_templates: Mapping[str, str] = field(default_factory=dict)
    site: str = ""
    version: str = ""


DEFAULT = RenderContext()
"""Without any of them."""
