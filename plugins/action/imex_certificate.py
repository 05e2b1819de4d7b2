# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans a tray's certificate from variables of localhost and the fabric file; see the module of the same name."""

from __future__ import annotations

import os
import re

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.files import normal_address
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import absolute

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
# The authority's own files have this name.
_AUTHORITY = "ca"


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec={"tray": {"type": "str"}})
        tray = str(options["tray"] or task_vars["inventory_hostname"])
        if not _FILE_NAME.fullmatch(tray) or tray == _AUTHORITY:
            raise AnsibleActionFail(
                f"imex_tls ca: the tray {tray!r} cannot name a certificate; use letters, digits, '-', '_' and '.', at"
                " most 64, and not 'ca'."
            )
        folder, days, rotate = _folder(task_vars), _days(task_vars), _rotate(task_vars)
        address = self._address(tray, task_vars)
        return {
            "changed": False,
            "folder": folder,
            "files": {
                "key": os.path.join(folder, f"{tray}.key"),
                "certificate": os.path.join(folder, f"{tray}.pem"),
                "authority": os.path.join(folder, f"{_AUTHORITY}.pem"),
            },
            "name": tray,
            "subject_alt_name": [f"IP:{address}", f"DNS:{tray}"],
            "days": days,
            "rotate": rotate,
        }

    def _address(self, tray: str, task_vars: Variables) -> str:
        names = ("imex_fabric_file", "fabric_file", "nvlink_fabric_file")
        path = next((value for name in names if (value := trust.controller_value(task_vars, name))), None)
        if not path:
            raise AnsibleActionFail(
                f"imex_tls ca: localhost has no {names[0]}, {names[1]} or {names[2]}, from which the tray's address is"
                f" read; set {names[0]} in group all or with -e."
            )
        path = absolute(path)
        try:
            clique = run_store.clique_of(str(constants.DEFAULT_LOCAL_TMP), path, tray)
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None
        address = normal_address(clique.entry_of(tray)) if clique else None
        if address is None:
            raise AnsibleActionFail(f"{path}: has no IMEX address of tray {tray}; run discover and accept.")
        return address


def _folder(task_vars: Variables) -> str:
    given = trust.controller_value(task_vars, "imex_tls_ca_dir")
    if not given:
        raise AnsibleActionFail(
            "imex_tls ca needs imex_tls_ca_dir of localhost; set it in group all, for localhost or with -e. A value for"
            " trays alone does not count, because it decides which files of the controller are read and written."
        )
    folder = os.path.expanduser(str(given))
    if not os.path.isabs(folder):
        raise AnsibleActionFail(f"imex_tls_ca_dir is {folder!r}; use an absolute path.")
    return folder


def _days(task_vars: Variables) -> int:
    given = trust.controller_value(task_vars, "imex_tls_days", 365)
    try:
        days = int(given)
    except (TypeError, ValueError):
        days = 0
    if not 1 <= days <= 36500:
        raise AnsibleActionFail(f"imex_tls_days is {given}; use a number from 1 to 36500.")
    return days


def _rotate(task_vars: Variables) -> bool:
    given = trust.controller_value(task_vars, "imex_tls_rotate", False)
    try:
        return bool(boolean(given))
    except TypeError:
        raise AnsibleActionFail(f"imex_tls_rotate is {given!r}; use true or false.") from None
