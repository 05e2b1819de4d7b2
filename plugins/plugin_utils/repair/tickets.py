# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of a ticket: what a site's ticket system receives of an incident. Pure functions.

Its fields are those of an event in NVIDIA's requirements for AI clouds (BFX02). What only the site knows, the
provider's account and when the node was handed over, is null: the site's ticket system adds it.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import Incident
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.plan import Row


def document(incident: Incident, row: Row | None, state: str, now: str) -> dict[str, Any]:
    """The document of one state (open, update, close); its ticket_id is the incident's, in all of them.

    row: the incident's in this run's plan, which has the words; None where it has none.
    """
    known = CATALOGUE.get(incident.code)
    return {
        "ticket_id": incident.id,
        "state": state,
        "opened_at": incident.opened_at,
        "updated_at": now,
        "closed_at": now if state == "close" else incident.closed_at,
        "hardware_id": incident.subject,
        "hardware_category": _category(incident),
        "description": known.sentence if known else incident.code,
        "action": row["action"] if row else incident.action,
        "provider_account_id": None,
        "node_handover_date": None,
        "code": incident.code,
        "gpu": incident.gpu,
        "link": incident.link,
        "switch_port": incident.port,
        "evidence": row["evidence"] if row else "",
        "reason": row["brake"] or row["reason"] if row else "",
        "steps": dict(incident.steps),
    }


def _category(one: Incident) -> str:
    if one.event:
        return "rack"
    if one.link is not None or one.port:
        return "interconnect"
    return "gpu" if one.gpu is not None else "node"
