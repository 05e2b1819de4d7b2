# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render Slurm's block topology: the text of topology.yaml (25.05 and later) and topology.conf (before).

Pure. plugin_utils/slurm/linter.py decides what a version of Slurm can load.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import DEFAULT, RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import linter, topology_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.blocks import RENDERED_FOR, blocks, candidate


def render(fabric: model.Fabric, state: model.State, context: RenderContext = DEFAULT) -> dict[str, str]:
    """``slurm/topology.yaml`` and ``slurm/topology.conf``, each only where Slurm would load it.

    Where several Slurm clusters share the fabric, ``slurm/<cluster>/`` has those of each.
    """
    texts = {}
    for cluster in fabric.clusters_with_trays("slurm"):
        folder = f"slurm/{cluster}" if cluster else "slurm"
        made = blocks(fabric, cluster)
        for style in RENDERED_FOR:
            if written := text(made, style, context):
                texts[f"{folder}/{scontrol.FILE_NAMES[style]}"] = written
    return texts


def text(made: Sequence[Block], style: str, context: RenderContext = DEFAULT) -> str:
    """The text of one file; empty where Slurm would not load it."""
    checked, found = _checked(made, style, context)
    if any(finding["severity"] == "error" for finding in found):
        return ""
    return topology_files.render([checked.topology], style)


def findings(fabric: model.Fabric, state: model.State, context: RenderContext = DEFAULT) -> list[model.Finding]:
    """The linter's findings about the files, once where both formats have them."""
    found: list[model.Finding] = []
    for cluster in fabric.clusters_with_trays("slurm"):
        of_one: list[model.Finding] = []
        made = blocks(fabric, cluster)
        for style in RENDERED_FOR:
            of_one.extend(finding for finding in _checked(made, style, context)[1] if finding not in of_one)
        # Blocks of two clusters may have the same name.
        where = f"Slurm cluster {cluster}: " if cluster else ""
        found.extend({**row, "message": where + row["message"]} for row in of_one)
    return found


def _checked(made: Sequence[Block], style: str, context: RenderContext) -> tuple[linter.Candidate, list[model.Finding]]:
    return candidate(made, style, context.block_sizes)
