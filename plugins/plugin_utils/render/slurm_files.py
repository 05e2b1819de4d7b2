# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render Slurm's block topology: the text of topology.yaml (25.05 and later) and topology.conf (before).

Pure. plugin_utils/slurm/linter.py decides what a version of Slurm can load.
"""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import DEFAULT, RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import topology_files
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
            checked, found = candidate(made, style, context.block_sizes)
            if all(finding["severity"] != "error" for finding in found):
                texts[f"{folder}/{scontrol.FILE_NAMES[style]}"] = topology_files.render([checked.topology], style)
    return texts


def findings(fabric: model.Fabric, state: model.State, context: RenderContext = DEFAULT) -> list[model.Finding]:
    """The linter's findings about the files, once where both formats have them."""
    found: list[model.Finding] = []
    for cluster in fabric.clusters_with_trays("slurm"):
        of_one: list[model.Finding] = []
        made = blocks(fabric, cluster)
        for style in RENDERED_FOR:
            _checked, rows = candidate(made, style, context.block_sizes)
            of_one.extend(finding for finding in rows if finding not in of_one)
        # Blocks of two clusters may have the same name.
        where = f"Slurm cluster {cluster}: " if cluster else ""
        found.extend({**row, "message": where + row["message"]} for row in of_one)
    return found
