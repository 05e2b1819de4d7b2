# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Format failures as lines of text: message, likely cause and remediation."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.failure import Failure

SHOWN = 40


def lines(failures: Sequence[Failure]) -> list[str]:
    """Two lines a failure, the second with its likely cause and remediation; the first SHOWN failures only."""
    formatted = []
    for row in failures[:SHOWN]:
        formatted.append(f"{row['severity']} {row['layer']} {row['code']}: {row['message']}")
        formatted.append(f"    likely cause: {row['cause']}; to fix it: {row['remediation']}")
    if len(failures) > SHOWN:
        formatted.append(f"{count(len(failures) - SHOWN, 'more failure')}.")
    return formatted
