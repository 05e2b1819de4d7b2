# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs on the nodes of trays whose NVLink partition is to change: their pods and their ComputeDomains."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import device_plugins, stranded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import name_of
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import cliques
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import Cluster
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.pods import is_of_a_job
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_answers import Occupants
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

SOURCE = "partition"


def of_trays(options: Arguments, fabric: Fabric, path: str, trays: Iterable[str]) -> dict[str, Occupants]:
    """Tray -> its occupants, of these trays whose nodes the cluster has; read by GET.

    options: kubeconfig (without it there is no cluster), context, timeout, kubernetes_cluster (of a fabric file with
    several; may be empty). path: of the fabric file. NvlinkError where pods or ComputeDomains cannot be read.
    """
    if not options["kubeconfig"]:
        return {}
    chosen = cliques.choose(fabric, options["kubernetes_cluster"], path)
    access = login.of_kubeconfig(options, SOURCE)
    snapshot = Reader(access).snapshot()
    if missing := stranded.unreadable(snapshot):
        raise NvlinkError(missing[0])
    owners, client = stranded.owners(snapshot), Cluster(SOURCE, access)
    existing = {name_of(row) for row in snapshot["nodes"]}
    found = {}
    for tray in trays:
        row = fabric.trays[tray]
        node = row["kubernetes_node"]
        if node in existing and row.get("kubernetes_cluster") == chosen:
            query = {"fieldSelector": f"spec.nodeName={node}"}
            pods = [row for row in client.listed("/api/v1/pods", query) if is_of_a_job(row) and _has_gpus(row)]
            names = sorted(f"pod {name_of(pod)}" for pod in pods)
            found[tray] = Occupants(node, [f"ComputeDomain {name}" for name in owners.get(node, ())], names)
    return found


def _has_gpus(pod: Object) -> bool:
    """Whether a pod has devices, by a claim or of a device plugin; others go on while a partition changes."""
    return bool(as_list(mapped(pod.get("spec")).get("resourceClaims")) or device_plugins.requested(pod))
