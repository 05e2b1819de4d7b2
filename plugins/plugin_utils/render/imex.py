# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render the IMEX node lists: one nodes_config.cfg per clique.

A node's id in the IMEX domain is its line number, and peers with different lists do not connect, so the order comes
from the fabric file alone: the trays' names in natural order (r1t2 before r1t10).
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.formats import nodes_text
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import DEFAULT, RenderContext


def render(fabric: model.Fabric, state: model.State, context: RenderContext = DEFAULT) -> dict[str, str]:
    """``imex/<clique>/nodes_config.cfg`` of every clique that has trays, each with an address.

    A list that lacks a tray would start a domain which that tray can never join, so such a clique gets no list.
    """
    wrong = {problem["clique"] for problem in findings(fabric, state)}
    return {
        f"imex/{clique}/nodes_config.cfg": nodes_text(str(fabric.trays[name]["imex_address"]) for name in names)
        for clique, names in fabric.members.items()
        if names and clique not in wrong
    }


def findings(fabric: model.Fabric, state: model.State, context: RenderContext = DEFAULT) -> Iterator[model.Finding]:
    """The error that prevents writing a clique's list. No two trays of a clique in a fabric file have one address."""
    for clique, names in fabric.members.items():
        missing = [name for name in names if not fabric.trays[name]["imex_address"]]
        if missing:
            yield finding(
                "imex_address_invalid",
                f"The IMEX node list of clique {clique} is not written, because imex_address is missing for"
                f" {summarize(missing)}",
                tray=missing[0],
                clique=clique,
            )
