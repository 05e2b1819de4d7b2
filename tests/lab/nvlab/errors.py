# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one exception of the lab; its text is one sentence for the person at the terminal."""

from __future__ import annotations


class LabError(Exception):
    """One sentence: what failed and the remedy."""
