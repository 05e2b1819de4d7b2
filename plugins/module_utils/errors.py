# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root of every error that this collection raises itself."""

from __future__ import annotations


class NvlinkError(Exception):
    """An error in what a person wrote. Its message is one sentence: file, field, remedy."""
