# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible gives to a module or an action and takes from it: mappings whose keys each of them documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Arguments = Mapping[str, Any]
"""The arguments of a task by option, or by suboption those of one option, of the types that the specification says."""

Specification = Mapping[str, Any]
"""As in an argument specification: type, elements, choices, options, required and no_log."""

Result = dict[str, Any]
"""The result of a task: changed, changes and findings, and what the RETURN of its module says."""

Variables = Mapping[str, Any]
"""The variables of a host, or those of a task (task_vars), by their names."""
