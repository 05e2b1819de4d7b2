# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cliques of which the trays can do only some operations together. Pure.

A clique of the fabric file is the one of unicast pointer operations. Drivers of R615 and newer report clique IDs for
each kind of operation, and the cliques of multicast may be smaller: a domain has a limited number of multicast groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import CLIQUE_TYPES
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import tally_cliques
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding


def smaller(fabric: Fabric, observed: Mapping[str, Observation]) -> Iterator[Finding]:
    """A finding for each clique and operation whose trays have no clique of that operation in common.

    Only trays that are observed in their clique of the fabric file are compared, and of these only those whose driver
    reports the operations and whose own GPUs agree, since fabric_facts reports the others.
    """
    for clique, members in fabric.members.items():
        identity = (fabric.cluster_uuid(clique), fabric.cliques[clique]["clique_id"])
        trays = [observed[name] for name in members if name in observed]
        reported = [tray.cliques for tray in trays if tray.identity == identity and tray.cliques]
        for operation, _text in CLIQUE_TYPES.values():
            # An empty set: the tray's own GPUs differ.
            shared = [row.get(operation, frozenset()) for row in reported if row.get(operation) != frozenset()]
            if any(shared) and not frozenset.intersection(*shared):
                what = operation.replace("_", " ")
                tally = tally_cliques("tray", shared)
                message = f"The trays of clique {clique} are in different cliques for {what} operations ({tally})"
                yield finding("fabric_cliques_smaller", message, clique=clique)
