# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of Kubernetes clusters: the topology objects of their schedulers."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import cliques, objects
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import DEFAULT, RenderContext

HEAD = "# Rendered from the fabric file. For the purpose of each object see docs/k8s-topology.md\n"

Maker = Callable[[cliques.Topology, RenderContext], dict[str, str]]
"""File name -> YAML documents of one cluster."""


def of_each_cluster(make: Maker) -> Callable[..., dict[str, str]]:
    """The renderer of ``kubernetes/<file>.yaml``; below ``kubernetes/<cluster>/`` where several share the fabric."""

    def render(fabric: model.Fabric, state: model.State, context: RenderContext = DEFAULT) -> dict[str, str]:
        texts = {}
        for cluster in fabric.clusters_with_trays("kubernetes"):
            folder = f"kubernetes/{cluster}" if cluster else "kubernetes"
            for name, text in make(cliques.describe(fabric, cluster, context.topology), context).items():
                texts[f"{folder}/{name}.yaml"] = HEAD + text
        return texts

    return render


@of_each_cluster
def render(topology: cliques.Topology, context: RenderContext) -> dict[str, str]:
    """``topology-<scheduler>``, of the schedulers that have objects."""
    texts = {f"topology-{name}": objects.text(name, topology) for name in objects.SCHEDULERS}
    return {name: text for name, text in texts.items() if "\n---\n" in text}


def findings(fabric: model.Fabric, state: model.State, context: RenderContext = DEFAULT) -> list[model.Finding]:
    """Findings on what is missing in the files, for all clusters."""
    return [
        row
        for cluster in fabric.clusters_with_trays("kubernetes")
        for row in cliques.problems(fabric, cluster, context.topology)
    ]
