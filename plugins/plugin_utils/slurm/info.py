# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The running topology: the result of slurm_topology_info. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import limits
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rules import segment_limit
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    CONF,
    FILE_NAMES,
    YAML,
    SlurmError,
    documents,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.comparing import from_shown
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import linter, settings, topology_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.node_states import text
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.planning import candidate, expected, same_named


def report(observed: Observed, name: str, owner: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The result of slurm_topology_info, and what runs for the step ask, as of live_jobs.report().

    owner: `collection` or `other`, which program is meant to write the topology file; None where nobody decided.
    """
    if not observed.running and observed.style == YAML and FILE_NAMES[CONF] in observed.texts:
        # 25.05 and later also read a topology.conf.
        observed = replace(observed, style=CONF)
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
        matches = mine is not None and not expected(observed, mine).differs(observed.runs)
        if topology is not None and mine is not None and matches:
            # `show topology` lacks sizes above all blocks, with which Slurm schedules nevertheless.
            topology = replace(topology, block_sizes=mine.block_sizes)
    sizes: tuple[int, ...] = ()
    if topology is not None:
        checked = candidate(observed, topology, others)
        findings += linter.lint(checked)
        sizes = linter.enabled_sizes(topology.block_sizes, checked.base)
    if topology is not None and not matches:
        findings.append(host_finding("slurm_topology_differs", path=observed.path))
    findings += observed.duplicate
    findings += settings.writer_findings(observed.path, observed.file, owner)
    findings += settings.settings_findings(observed.style, observed.config, observed.settings, observed.includes_ours)
    # Doctor alone names this one: the users' own jobs decide whether it matters, so each run of verify would repeat it.
    lasting = (case for case in observed.limits if case != limits.PARTITIONS)
    findings += limits.findings(lasting, observed.version_text)
    shown = topology and {
        "name": topology.name,
        "cluster_default": topology.cluster_default,
        "block_sizes": list(sizes),
        "blocks": [{"name": block.name, "nodes": list(block.nodes)} for block in topology.blocks],
        "left_out": topology_files.left_out(observed.file or ""),
    }
    base = sizes[0] if sizes else 0
    running = documents([replace(topology, block_sizes=sizes)] if topology else [])
    result = {
        "version": observed.version_text,
        "cluster": observed.config.get("clustername", "") or None,
        "plugin": observed.plugin,
        "topology": shown,
        "others": [other.name for other in others],
        "nodes": {name: text(flags, observed.reasons.get(name, "")) for name, flags in observed.states.items()},
        "file": {"path": observed.path, "exists": observed.file is not None, "running": matches},
        "segment_max": segment_limit(observed.version, base) if base else None,
        "findings": findings,
    }
    return result, {"topology": running, "style": observed.style, "version": observed.version_text}
