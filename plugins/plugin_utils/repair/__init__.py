# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repair of trays: which action a verdict asks for, the brakes, and the ledger of incidents. Pure functions."""

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError


class RepairError(NvlinkError):
    """The verdict, the settings or the ledger of repair cannot be used."""
