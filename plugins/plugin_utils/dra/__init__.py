# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of the role dra_driver: chart values, preflight, checks, CRDs. Only snapshot.py and dry_run.py do I/O."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

GROUP = "resource.nvidia.com"
OLD_CHART = "nvidia-dra-driver-gpu"
"""The name of the chart up to 25.12."""


class DraError(NvlinkError):
    """A wrong option for the DRA driver; the message is one sentence with field and remedy."""
