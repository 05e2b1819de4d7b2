# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source ansible_facts: the results of a fabric_facts task, as discover registers them."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.subsets import FACTS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Observation,
    worst_health,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import TrayReport

SOURCE = "ansible_facts"


def from_report(report: TrayReport, source: str = SOURCE) -> Observation:
    """What a tray reported of its GPUs, for a placement; without them the reason is in `problem`."""
    gpu = report.gpu
    if gpu is None or gpu.observed_at is None:
        problem = report.missing["gpu"] if gpu is None else "its facts have no valid observed_at"
        return Observation(report.tray, source, reachable=False, problem=problem, findings=report.refused)
    return Observation(
        tray=report.tray,
        source=source,
        observed_at=gpu.observed_at,
        identity=gpu.identity,
        inconsistent=gpu.inconsistent,
        node_local=gpu.node_local,
        cliques=gpu.cliques,
        chassis_serial=gpu.chassis_serial,
        tray_index=gpu.tray_index,
        host_id=gpu.host_id,
        gpu_uuids=gpu.gpu_uuids,
        gpu_count=gpu.gpu_count,
        product=gpu.gpus[0].name if gpu.gpus else "",
        addresses=gpu.addresses,
        driver_version=gpu.driver_version,
        health=worst_health(row.health for row in gpu.gpus),
        findings=(*gpu.findings, *report.refused),
    )


def from_facts(tray: str, facts: Object, source: str = SOURCE) -> Observation:
    """The observation in one tray's `nvlink_fabric` facts (contract of fabric_facts), from whichever source."""
    return from_report(tray_report.read(tray, {"ansible_facts": {FACTS["gpu"]: facts}}), source)
