# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exit a module, also on an error or an interrupt."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError


def run_and_exit(module: AnsibleModule, run: Callable[[AnsibleModule], Result]) -> None:
    """Exit with what run returns, or fail with its NvlinkError.

    A broken connection raises SystemExit in run, which so does its rollback.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        result = run(module)
    except NvlinkError as error:
        module.fail_json(msg=str(error), findings=[])
    module.exit_json(**result)


def _interrupted(number: int, _frame: Any) -> None:
    raise SystemExit(f"ended by signal {number}")
