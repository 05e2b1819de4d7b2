# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of the role's variables, those of a tray within the role's first task on it.

Ansible's own is a task on every tray, whose result holds the whole specification: 0.3 MB a tray until the last tray has
ended it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.formats import ImexError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust

ROLE = "rackscale.nvlink.imex"

_FILE = Path(__file__).resolve().parents[3] / "roles" / "imex" / "meta" / "argument_specs.yml"
# When the plugin is loaded, once for all forks.
_SPEC: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]


_OF_ROLE = ("imex_config_owned", "imex_tls_used")
# Role variable -> its lowest and highest value.
RANGES = {
    "imex_boot_wait": (3, 3600),
    "imex_channel_count": (0, (1 << 20) - 1),
    "imex_ctl_timeout": (1, 600),
    "imex_job_max_requeues": (0, 1000),
    "imex_job_min_trays": (1, 65536),
    "imex_job_stop_wait": (1, 600),
    "imex_job_wait": (5, 3600),
    "imex_list_port": (1, 65535),
    "imex_ready_wait": (1, 3600),
    "imex_start_wait": (1, 3600),
    "imex_tls_days": (1, 36500),
}


def values(variables: Variables, template: Callable[[Any], Any]) -> dict[str, Any]:
    """The role's variables of a host, of their types, with what vars/main.yml makes of them. Raises ImexError."""
    if variables.get("ansible_role_name") != ROLE:
        raise ImexError(f"imex_domain is a part of the role {ROLE} alone; use the role.")
    given = template({name: variables[name] for name in (*_SPEC, *_OF_ROLE) if name in variables})
    known = {name: given.pop(name) for name in _OF_ROLE}
    checked, wrong = _validate(_SPEC, given)
    if wrong:
        raise ImexError(f"Validation of arguments failed: {'; '.join(wrong)}")
    return {**checked, **known}


def _validate(spec: dict[str, Any], given: Variables) -> tuple[Variables, list[str]]:
    """(the values in their types, what is wrong), by Ansible's rules and by RANGES."""
    checked = ArgumentSpecValidator(spec).validate(given, validate_role_argument_spec=True)
    values, wrong = checked.validated_parameters, list(checked.error_messages)
    for name, (low, high) in () if wrong else RANGES.items():
        if values.get(name) is not None and not low <= values[name] <= high:
            wrong.append(f"{name} is {values[name]}; use a number from {low} to {high}.")
    return values, wrong


def of_localhost(variables: Variables, names: Iterable[str]) -> list[Any]:
    """Variables of the role as localhost has them, or their defaults, of their types. Raises ImexError."""
    spec = {name: _SPEC[name] for name in names}
    given = {name: value for name in spec if (value := trust.controller_value(variables, name)) is not None}
    values, wrong = _validate(spec, given)
    if wrong:
        raise ImexError(f"Variables of localhost: {'; '.join(wrong).rstrip('.')}.")
    return [values[name] for name in spec]
