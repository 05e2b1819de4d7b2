# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a module that looks, plans and applies ends: with its findings told, whatever ended it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

Findings = list[dict[str, Any]]
WARNINGS = 20
"""More than so many warnings are read by nobody; all of them are in the result's findings."""


def run_and_exit(module: AnsibleModule, run: Callable[[AnsibleModule, Findings], dict[str, Any]]) -> None:
    """Exit with what run returns, or fail with the first of its findings that are errors, or with its NvlinkError.

    run fills the list of findings on its way, so that they are told even where an error ends it. A connection that
    breaks ends it by SystemExit, and so through the rollback of what it was about to change.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    findings: Findings = []
    try:
        result = run(module, findings)
    except NvlinkError as error:
        module.fail_json(msg=str(error), findings=findings)
    for found in [found for found in findings if found["severity"] == "warning"][:WARNINGS]:
        module.warn(found["message"])
    errors = [found["message"] for found in findings if found["severity"] == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more, see findings)" if len(errors) > 1 else ""
        module.fail_json(msg=errors[0] + more, **result)
    module.exit_json(**result)


def _interrupted(number: int, _frame: Any) -> None:
    raise SystemExit(f"ended by signal {number}")
