# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Optional input of the renderers next to a fabric and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import TopologySettings


@dataclass(frozen=True)
class RenderContext:
    """Input of the renderers of metrics, report, examples, Slurm's files and the DRA driver's values.

    Each part is optional.

    block_sizes: the site's setting of the role slurm_topology, for Slurm's files and what jobs span.
    verdict: what verify last found; since: what an earlier run found, to compare with; jobs: Slurm node name -> the IDs
    of the jobs that run there, None where Slurm was not queried. nodes: tray -> its state in Slurm, None where these
    are not known, nodes_at: when they were read. without: trays that the report counts as drained. The state that
    renderers get has both. repairs: the lines of repair's ledger. spares_active: how many trays of each block run jobs,
    0 without spares. gpus_by_dra: whether the DRA driver allocates GPUs, rather than a device plugin. topology: the
    settings of the role k8s_topology. site: the name of the site for the report; version: that of this collection; each
    empty where it is unknown.
    """

    verdict: Verdict | None = None
    jobs: Mapping[str, tuple[str, ...]] | None = None
    nodes: Mapping[str, str] | None = None
    nodes_at: str = ""
    since: Verdict | None = None
    without: tuple[str, ...] = ()
    repairs: tuple[Line, ...] = ()
    spares_active: int = 0
    block_sizes: tuple[int, ...] = ()
    gpus_by_dra: bool = False
    topology: TopologySettings = field(default_factory=TopologySettings)
    site: str = ""
    version: str = ""


DEFAULT = RenderContext()
"""Without any of them."""
