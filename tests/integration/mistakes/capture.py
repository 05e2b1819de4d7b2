# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A support bundle that cannot be made."""

from __future__ import annotations

from . import Mistake

CAPTURE = "rackscale.nvlink.doctor --tags capture"
FILE = "-e capture_file={site}/site.tar.gz"

MISTAKES = [
    Mistake(
        f"{CAPTURE} {FILE} --limit r01t01,localhost",
        "No tray answered, so there is nothing to capture; run the playbook doctor.",
    ),
    Mistake(
        CAPTURE,
        "capture_file: is not set; add -e capture_file=PATH.tar.gz, the bundle to write.",
        long=True,
    ),
    Mistake(
        f"{CAPTURE} -e capture_file=/nowhere/site.tar.gz",
        "capture_file: the folder /nowhere does not exist or is not writable; correct that.",
        long=True,
    ),
]
