# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits that leave out what the playbook needs."""

from __future__ import annotations

from . import Mistake

MISTAKES = [
    Mistake(
        f"rackscale.nvlink.{playbook} --limit r01t01",
        "This playbook runs on localhost too: use --limit r01t01,localhost.",
    )
    for playbook in ("discover", "verify", "site", "rollout")
]
