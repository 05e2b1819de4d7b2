# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The trays that are not healthy, in words of the table of findings alone: no address or serial can be in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import json_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import DEGRADED, UNHEALTHY, Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import state_of, worst
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped

Health = dict[str, dict[str, str]]
"""Tray -> state, since (RFC 3339, in UTC), code, reason and remedy."""


def of_failures(failures: Sequence[Finding], at: str, before: Mapping[str, Any]) -> Health:
    """Of the worst failure of each tray. before: the health of the last run, whose times stay for the same code."""
    found: Health = {}
    for tray, row in worst(failures).items():
        known = mapped(before.get(tray))
        since = str(known["since"]) if known.get("code") == row["code"] and known.get("since") else at
        found[tray] = _row(state_of(row), since, row["code"])
    return found


def known(
    fabric: Fabric, path: str, state_dir: str | None, verdict_file: str | None, name: str = "slurm_node"
) -> Health:
    """That of the last verdict, else of the state file of the fabric file at path; name: as in by_node()."""
    verdict = mapped(json_file(verdict_file)) if verdict_file else {}
    if "health" in verdict:
        return by_node(fabric, mapped(verdict["health"]), name)
    state = fabric_file.load_state(path, state_dir)
    sick = {tray: row for tray, row in state.trays.items() if row["health"] in (UNHEALTHY, DEGRADED)} if state else {}
    found = {
        tray: _row(row["health"], row["observed_at"] or "", *(one["code"] for one in row["findings"][:1]))
        for tray, row in sick.items()
    }
    return by_node(fabric, found, name)


def by_node(fabric: Fabric, health: Mapping[str, Any], name: str = "slurm_node") -> Health:
    """Of the trays of the fabric, by their names in Slurm, or as kubernetes_node."""
    rows = {tray: dict(mapped(row)) for tray, row in health.items() if tray in fabric.trays}
    return {str(mapped(fabric.trays[tray])[name]): row for tray, row in rows.items()}


def _row(state: str, since: str, code: str = "") -> dict[str, str]:
    row = CATALOGUE.get(code)
    words = {"reason": row.sentence if row else "", "remedy": row.remedy if row else ""}
    return {"state": state, "since": since, "code": code, **words}
