# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source fabric_file: the path of the accepted fabric, and the folder of its state file."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import FABRIC_FILE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown


def path_of(option: Any, directory: str, name: str = FABRIC_FILE) -> str:
    """Resolve the option of this name to an absolute path; a relative path starts at directory."""
    if not isinstance(option, str) or not option.strip():
        what = "a fabric file" if name == FABRIC_FILE else "a folder"
        raise SourceError(f"{name}: must be the path of {what}, not {shown(option)}")
    return os.path.normpath(os.path.join(os.path.abspath(directory), os.path.expanduser(str(option))))
