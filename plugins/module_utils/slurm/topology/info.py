# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the running topology: the result of slurm_topology_info.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    CONF,
    FILE_NAMES,
    YAML,
    SlurmError,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import settings
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.comparing import difference
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.planning import same_named
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.surveying import from_shown, survey


def report(slurm: Slurm, conf_dir: str, name: str, owner: str | None = None) -> dict[str, Any]:
    """Read the result of slurm_topology_info. SlurmError where slurmctld does not answer.

    owner: `collection` or `other`, which program is meant to write the topology file; None where nobody decided.
    """
    observed = survey(slurm, conf_dir, "auto")
    if not observed.running and observed.style == YAML:
        # 25.05 and later also read a topology.conf.
        data = host.read(os.path.join(conf_dir, FILE_NAMES[CONF]))
        observed = (
            replace(observed, style=CONF, file=data, duplicate=observed.file is not None)
            if data is not None
            else observed
        )
    blocks = [known for known in observed.running if known.kind == "block"]
    found = next((known for known in blocks if known.name == name), blocks[0] if blocks else None)
    topology = found or from_shown(observed.shown)
    others = tuple(known for known in observed.running if known is not found)
    findings: list[HostFinding] = []
    matches: bool | None = False
    try:
        written = observed.written()
    except SlurmError:
        matches = None
    else:
        mine = same_named(written, topology.name) if topology else None
        matches = mine is not None and not difference(mine, observed)
        if topology is not None and mine is not None and matches:
            # `show topology` lacks sizes above all blocks, with which Slurm schedules nevertheless.
            topology = replace(topology, block_sizes=mine.block_sizes)
    sizes: tuple[int, ...] = ()
    if topology is not None:
        candidate = rules.Candidate(
            version=observed.version,
            style=observed.style,
            topology=topology,
            known_nodes=slurm.nodes(),
            partitions=slurm.partitions(),
            others=others,
            node_rank=settings.satisfies("TopologyParam", observed.config.get("topologyparam", "")),
            power_saving=observed.power_saving,
        )
        findings += rules.lint(candidate)
        sizes = rules.enabled_sizes(topology.block_sizes, candidate.base)
    if topology is not None and not matches:
        findings.append(host_finding("slurm_topology_differs", path=observed.path))
    findings += settings.duplicate_findings(observed.style, observed.version, observed.duplicate)
    findings += settings.writer_findings(observed.path, observed.file, owner)
    findings += settings.settings_findings(
        observed.style, observed.config, observed.conf.settings, observed.conf.includes_ours
    )
    shown = topology and {
        "name": topology.name,
        "cluster_default": topology.cluster_default,
        "block_sizes": list(sizes),
        "blocks": [{"name": block.name, "nodes": list(block.nodes)} for block in topology.blocks],
    }
    base = sizes[0] if sizes else 0
    return {
        "version": observed.version_text,
        "cluster": observed.config.get("clustername", "") or None,
        "plugin": observed.plugin,
        "topology": shown,
        "others": [other.name for other in others],
        "file": {"path": observed.path, "exists": observed.file is not None, "running": matches},
        "segment_max": rules.segment_limit(observed.version, base) if base else None,
        "findings": findings,
    }
