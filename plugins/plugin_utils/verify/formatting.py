# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures as lines for a person: what, why, and the command; of many the first ones."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.failure import Failure

SHOWN = 40


def lines(failures: Sequence[Failure]) -> list[str]:
    """Two lines a failure, the second with the likely cause and the command that mends it."""
    told = []
    for row in failures[:SHOWN]:
        told.append(f"{row['severity']} {row['layer']} {row['code']}: {row['message']}")
        told.append(f"    likely cause: {row['cause']}; to mend it: {row['mend']}")
    if len(failures) > SHOWN:
        told.append(f"{len(failures) - SHOWN} more failures.")
    return told
