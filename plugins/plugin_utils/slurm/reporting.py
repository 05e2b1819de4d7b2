# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the findings of slurm_topology and slurm_tiers, and fail for those that are errors. Pure."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import site_variables

MAX_WARNINGS = 20
"""The number of findings that are printed as warnings; all of them are in the result's findings."""


def report(result: Result) -> Result:
    """The result of slurm_topology or slurm_tiers as the task returns it.

    A failure of the host, such as a rollback, has its own message.
    """
    if not result.get("failed"):
        found = result.get("findings", [])
        warnings = [row["message"] for row in found if row["severity"] == WARNING][:MAX_WARNINGS]
        errors = [row["message"] for row in found if row["severity"] == ERROR]
        if errors:
            result.update(failed=True, msg=site_variables.joined(errors))
        if warnings:
            result["warnings"] = [*result.get("warnings", []), *warnings]
    return result
