# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renames and removes trays of the fabric file on the controller; the module of the same name documents it."""

from __future__ import annotations

import datetime
import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.modules.fabric_edit import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import editing, fabric_file, proposal, storage


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        self._task.args = {option: value for option, value in self._task.args.items() if value is not None}
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        path, rename = options["fabric_file"], {str(old): str(new) for old, new in options["rename"].items()}
        remove = list(options["remove"])
        try:
            if not os.path.isabs(path):
                raise fabric_file.FabricFileError(
                    f"fabric_file: {path!r} is no absolute path; give one, such as /srv/site/fabric.json"
                )
            return self._edit(path, rename, remove)
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None

    def _edit(self, path: str, rename: dict[str, str], remove: list[str]) -> dict[str, Any]:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        base = fabric_file.read(path)
        before = fabric_file.parse(base, path)
        after, renamed = editing.rename(before, rename, now[:10])
        after, removed = editing.remove(after, remove, now[:10])
        changes = [*renamed, *removed]
        if changes:
            fabric_file.check(after.as_dict(), path, before)
        result: dict[str, Any] = {"changed": bool(changes), "changes": changes, "msg": f"{path} is as it should be"}
        if self._task.diff and changes:
            lines = [f"{change['tray']}: {change['why']}" for change in changes]
            result["diff"] = {"prepared": "".join(f"{line}\n" for line in lines)}
        if changes:
            result["msg"] = f"{len(changes)} trays changed in {path}; its proposal, if there was one, is void"
        if changes and not self._task.check_mode:
            with storage.locked(path, now):
                if fabric_file.read(path) != base:
                    raise fabric_file.FabricFileError(f"{path}: was changed by another run meanwhile; run this again")
                storage.write_atomic(f"{path}.previous", base)
                storage.write_atomic(path, fabric_file.serialise(after))
                state = fabric_file.load_state(path)
                if state:
                    edited = editing.of_state(state, rename, remove)
                    storage.write_atomic(fabric_file.state_path(path), fabric_file.serialise(edited))
                if os.path.exists(proposal.proposal_path(path)):
                    storage.remove(proposal.proposal_path(path))
        return result
