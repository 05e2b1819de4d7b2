# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a run of the playbook site and check its inventory; the module of the same name documents it."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.modules.site_plan import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import controller, environment
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import inventory as doctor_inventory
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.checks import ERROR, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import site


class ActionModule(GuardedAction):
    TRANSFERS_FILES = False
    _requires_connection = False

    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        path = options["fabric_file"]
        run, skip = (task_vars.get(f"ansible_{which}_tags") or () for which in ("run", "skip"))
        inventory = doctor_inventory.read(options, task_vars)
        if not os.path.isabs(path):
            raise AnsibleActionFail(site.wrong_path(path, inventory.misplaced))
        phases = site.select_by_tags(options["phases"] or site.default_phases(inventory), run, skip)
        try:
            fabric = fabric_file.load(path) if os.path.exists(path) else None
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
        trays = inventory.trays
        left_out = set() if "discover" in phases else {"fabric_sources", "imex_network"}
        read = {name: inventory.variables.get(name) for name in {*controller.READ} - left_out}
        checks = list(controller.checks(environment.read(), read, len(trays), os.cpu_count() or 1))
        problems = [
            *site.problems(inventory, phases, fabric),
            *(f"{check.name}: {check.message}" for check in checks if check.status == ERROR),
        ]
        if problems:
            # One string alone: Ansible prints every value of a failed result.
            ended = (text if text.endswith("?") else f"{text}." for text in problems)
            raise AnsibleActionFail(" ".join(ended))
        return {
            "changed": False,
            "changes": [],
            "findings": [],
            "phases": phases,
            "slurm": inventory.slurm,
            "dra_driver": "kubernetes" in phases and site.installs_dra_driver(inventory),
            "warnings": [
                *site.warnings(inventory, phases, fabric),
                # ansible.cfg is for doctor: a warning in each run would be noise.
                *(
                    f"{row.name}: {row.message}."
                    for row in checks
                    if row.status == WARNING and row.name != "ansible_cfg"
                ),
            ],
            "msg": f"{count(len(trays), 'tray')}; phases: {', '.join(phases) or 'none'}.",
        }
