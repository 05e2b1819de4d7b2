# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of this collection that stay on a tray: the check at boot, and that of IMEX per job."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, reporting
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import probe


def check_at_boot() -> str:
    """The text of the check at boot, by the system's Python: that of Ansible may be removed later."""
    return f"#!{reporting.PYTHON} -I\n{Path(boot.__file__).read_text(encoding='utf-8')}"


def of_job(python: str) -> bytes:
    """The content of the program of IMEX per job."""
    return probe.program(python, "imex/prolog/main")
