# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error of what a person gives to be rendered, and of the folder that is written."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError


class RenderError(NvlinkError):
    """A file or a line to render is none, or the tree cannot be written; the message has the remedy."""
