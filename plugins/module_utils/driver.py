# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parameters with which the kernel modules of the GPU driver, open or proprietary, were loaded.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic

PARAMETERS = "/proc/driver/nvidia/params"
CHANNEL_PARAMETERS = ("ImexChannelCount", "CreateImexChannel0")
"""Those of IMEX channels, by their names in PARAMETERS."""


def channel_parameters() -> dict[str, int | None]:
    """The loaded values of CHANNEL_PARAMETERS; None where the driver reports no such number."""
    values = dict(line.split(": ", 1) for line in (atomic.read_text(PARAMETERS) or "").splitlines() if ": " in line)
    found = {name: values.get(name, "").strip() for name in CHANNEL_PARAMETERS}
    return {name: int(value) if value.isdecimal() else None for name, value in found.items()}
