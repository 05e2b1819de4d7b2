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
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.files import ImexError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust

ROLE = "rackscale.nvlink.imex"

_FILE = Path(__file__).resolve().parents[3] / "roles" / "imex" / "meta" / "argument_specs.yml"
# When the plugin is loaded, once for all forks.
_SPEC: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]


def problems(variables: Variables, template: Callable[[Any], Any]) -> list[str]:
    """What is wrong with the role's variables of a host, as Ansible says it; none outside the role."""
    if variables.get("ansible_role_name") != ROLE:
        return []
    given = template({name: variables[name] for name in _SPEC if name in variables})
    return list(ArgumentSpecValidator(_SPEC).validate(given, validate_role_argument_spec=True).error_messages)


def of_localhost(variables: Variables, names: Iterable[str]) -> list[Any]:
    """Variables of the role as localhost has them, or their defaults, of their types. Raises ImexError."""
    spec = {name: _SPEC[name] for name in names}
    given = {name: value for name in spec if (value := trust.controller_value(variables, name)) is not None}
    checked = ArgumentSpecValidator(spec).validate(given, validate_role_argument_spec=True)
    if checked.error_messages:
        raise ImexError(f"Variables of localhost: {'; '.join(checked.error_messages)}.")
    return [checked.validated_parameters[name] for name in spec]
