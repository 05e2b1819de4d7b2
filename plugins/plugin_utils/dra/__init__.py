# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role dra_driver decides: values and their linter, the preflight, the CRDs. No I/O but in snapshot.py."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

GROUP = "resource.nvidia.com"
CHART = "dra-driver-nvidia-gpu"
"""The chart's name from 0.4.0 on."""
OLD_CHART = "nvidia-dra-driver-gpu"
"""Its name up to 25.12."""


class DraError(NvlinkError):
    """What a person wrote for the DRA driver is wrong: one sentence with field and remedy."""
