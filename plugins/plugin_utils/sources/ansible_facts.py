# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source ansible_facts: the results of a fabric_facts task, as discover registers them."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.subsets import FACTS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Observation,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object

SOURCE = "ansible_facts"


def from_facts(tray: str, facts: Object, source: str = SOURCE) -> Observation:
    """The observation in one tray's `nvlink_fabric` facts (contract of fabric_facts), from whichever source."""
    return tray_report.read(tray, {"ansible_facts": {FACTS["gpu"]: facts}}).observation(source)
