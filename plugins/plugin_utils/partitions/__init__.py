# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink partitions as a reviewed change: what is wanted, the plan, its journal, and the calls of the switch."""

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError


class PartitionError(NvlinkError):
    """The wanted partitions, a plan or a journal cannot be used."""
