# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a run of the playbook site, and what of inventory and controller would stop it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import controller, environment, inventory
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import site
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.targets import Run
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended

_TRAY_GROUPS = ("trays", "nvlink")


def plan(run: Run, tags: Mapping[str, Sequence[str]], task_vars: Variables) -> dict[str, Any]:
    """The phases of the playbook site, with warnings; one error has all that would stop a later phase.

    tags: option (--tags, --skip-tags) -> tags.
    """
    pattern = run.value("site_tray_hosts")
    # Ansible would warn of a group that does not exist.
    tray_hosts = str(pattern or ":".join(row for row in _TRAY_GROUPS if row in run.groups))
    given = {
        "trays": run.match(tray_hosts) if tray_hosts else [],
        "pattern": pattern,
        "controllers": run.matched(["slurm_controller_hosts"]),
        "limit": run.selected if run.limit else None,
    }
    found = inventory.read(given, task_vars)
    if "fabric_file" in found.misplaced:
        raise NvlinkError(site.misplaced("fabric_file"))
    path = absolute(fabric_file.required(fabric_file.path_from(run.value)))
    phases = site.select_by_tags(site.default_phases(found), tags["--tags"], tags["--skip-tags"])
    fabric = fabric_file.load(path) if os.path.exists(path) else None
    checks = list(controller.checks(environment.read(), found, "discover" in phases))
    errors = [f"{row['code']}: {row['message']}" for row in checks if row["severity"] == ERROR]
    problems = [*site.problems(found, phases, fabric), *errors]
    if problems:
        raise NvlinkError(" ".join(map(ended, problems)))
    # ansible.cfg is for doctor: a warning in each run would be noise.
    warned = [row for row in checks if row["severity"] == WARNING and row["code"] != "ansible_cfg"]
    old = [f"{row['code']}: {row['message']}." for row in warned]
    return {
        "phases": phases,
        "playbooks": site.playbooks(found, phases),
        "dra_driver": "kubernetes" in phases and bool(found.variables.get("dra_driver_shape")),
        "warnings": [*site.warnings(found, phases, fabric), *old],
        "msg": f"{count(len(found.trays), 'tray')}; phases: {', '.join(phases) or 'none'}.",
    }
