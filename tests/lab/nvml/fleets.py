# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of whole simulated fleets."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils import simulation


def fleet(
    racks: int = 1, observed_at: str = "2026-01-01T00:00:00Z", seed: int = 1, **shape: Any
) -> dict[str, dict[str, Any]]:
    """Tray name -> the facts of that tray, all up and healthy; options as for simulation.places().

    No two trays, and no two GPUs, share a dict: a caller may change one without touching another.
    """
    return {
        place.name: simulation.facts(place, seed, observed_at) for place in simulation.places(racks, seed=seed, **shape)
    }
