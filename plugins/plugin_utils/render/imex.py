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
    """``imex/<clique>/nodes_config.cfg`` of every clique that has trays, each with an address of its own.

    A list that lacks a tray would start a domain which that tray can never join, so such a clique gets no list.
    """
    wrong = {problem["clique"] for problem in findings(fabric, state)}
    return {
        f"imex/{clique}/nodes_config.cfg": nodes_text(str(fabric.trays[name]["imex_address"]) for name in names)
        for clique, names in fabric.members.items()
        if names and clique not in wrong
    }


def findings(fabric: model.Fabric, state: model.State, context: RenderContext = DEFAULT) -> Iterator[model.Finding]:
    """The errors that prevent writing a clique's list.

    At most one finding per code and clique: with a wrong network, every tray has the same error.
    """
    for clique, names in fabric.members.items():
        owner: dict[str, str] = {}
        missing, doubles = [], []
        for name in names:
            address = fabric.trays[name]["imex_address"]
            if not address:
                missing.append(name)
            elif owner.setdefault(address, name) != name:
                doubles.append(name)
        why = {missing[0]: f"imex_address is missing for {summarize(missing)}"} if missing else {}
        for name in doubles[:1]:
            address = str(fabric.trays[name]["imex_address"])
            why[name] = f"{owner[address]} and {name} both have imex_address {address}"
        for name, cause in why.items():
            message = f"The IMEX node list of clique {clique} is not written, because {cause}"
            yield finding("imex_address_invalid", message, tray=name, clique=clique)
