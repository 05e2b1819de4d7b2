# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the trays' names in Slurm and Kubernetes with the nodes there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.node_names import NodeNames, renamed, short
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.checks import ERROR, INFO, OK, Check


class Layer(NamedTuple):
    """Slurm or Kubernetes: the check, the variable of a tray that names its node, and whether nodes are added later."""

    check: str
    title: str
    variable: str
    adds_nodes: bool = False


SLURM = Layer("slurm_names", "Slurm", "fabric_slurm_node")
KUBERNETES = Layer("kubernetes_names", "Kubernetes", "fabric_kubernetes_node")


def checks(
    layer: Layer, wanted: Mapping[str, str], hostnames: Mapping[str, Sequence[str]], nodes: Sequence[NodeNames]
) -> Iterator[Check]:
    """wanted: tray -> its node by the fabric file or inventory. hostnames: tray -> what the tray itself reports."""
    known = {node.name for node in nodes}
    # By the names of site and inventory, else by what a tray reports of itself.
    found = renamed(wanted.values(), nodes)
    for tray, name in wanted.items():
        if name not in known and name not in found:
            own = set(renamed(hostnames.get(tray, ()), nodes).values()) | known.intersection(hostnames.get(tray, ()))
            if len(own) == 1:
                found[name] = own.pop()
    for tray, name in wanted.items():
        if name in known:
            yield Check(layer.check, OK, "", tray)
        elif name in found:
            yield Check(layer.check, ERROR, _other_name(layer, name, found[name]), tray)
        elif layer.adds_nodes:
            yield Check(layer.check, INFO, f"{layer.title} has no such node yet; site adds it", tray)
        else:
            remedy = f"add the node there, or set {layer.variable} of the tray to its name and run discover"
            yield Check(layer.check, ERROR, f"{layer.title} has no node of this name: {remedy}", tray)


def _other_name(layer: Layer, name: str, node: str) -> str:
    if node == short(name):
        return (
            f"{layer.title} has these nodes by their names without the domain: set {layer.variable} to"
            " inventory_hostname_short for the trays and run discover"
        )
    return f"the node in {layer.title} is {node}, not {name}: set {layer.variable} of the tray to it and run discover"
