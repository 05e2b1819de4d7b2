# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of a ticket: what a site's ticket system receives of an incident."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import Incident
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.plan import Row


def document(incident: Incident, row: Row | None, state: str, now: str) -> dict[str, Any]:
    """The document of one state (open, update, close); its id is the incident's."""
    raise NotImplementedError
