# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which findings stop an apply of topology or tiers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding

# The severity of each other code is error, but for slurm_plugin_missing: a topology.conf that no plugin reads yet is
# harmless, and must exist before the plugin is set.
HARMLESS = frozenset(
    {
        "release_old",
        "slurm_blocks_limited",
        "slurm_clique_above_base",
        "slurm_conf_advice",
        "slurm_conf_note",
        "slurm_gate_overridden",
        "slurm_node_unknown",
        "slurm_plugin_missing",
        "slurm_rehearsal_job",
        "slurm_rehearsal_skipped",
        "tray_unplaced",
    }
)
"""The codes of findings that let an apply of topology or tiers continue; every other one stops it."""


def stopping(findings: Iterable[HostFinding]) -> list[HostFinding]:
    """The findings that stop the apply."""
    return [found for found in findings if found["code"] not in HARMLESS]
