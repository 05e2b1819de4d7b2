# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Slurm cluster of a fabric file that a task is for."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown


def choose(fabric: Fabric, name: object, path: str) -> str | None:
    """Return the cluster that the option ``cluster`` names, or the only one of the fabric file.

    None: the file has no clusters, or it has several and ``name`` is empty. FabricFileError where the file does not
    have the named one.
    """
    names = fabric.slurm_clusters
    if name in (None, ""):
        return names[0] if len(names) == 1 else None
    if not names:
        raise FabricFileError(f"{path}: has no Slurm clusters; leave slurm_topology_cluster (and the like) out")
    if name not in names:
        raise FabricFileError(f"{path}: has no Slurm cluster {shown(name)}{nearest(name, names)}")
    return str(name)


def require(fabric: Fabric, name: object, path: str) -> str | None:
    """As ``choose()``, but FabricFileError where the file has several clusters and ``name`` is empty."""
    cluster = choose(fabric, name, path)
    if cluster is None and fabric.slurm_clusters:
        names = ", ".join(fabric.slurm_clusters)
        raise FabricFileError(f"{path}: has several Slurm clusters ({names}); set slurm_topology_cluster (or the like)")
    return cluster


def each(fabric: Fabric, name: object, path: str) -> dict[str, str | None]:
    """ClusterName -> cluster of the fabric file, as ``choose()`` gives it; "" for whichever runs.

    Which of several it is, only slurmctld's host knows.
    """
    cluster = choose(fabric, name, path)
    several = fabric.slurm_clusters if cluster is None else []
    return {known: known for known in several} or {"": cluster}
