# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exit a module with its findings, also on an error or an interrupt."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import stopping

Findings = list[HostFinding]


def run_and_exit(module: AnsibleModule, run: Callable[[AnsibleModule, Findings], Result]) -> None:
    """Exit with what run returns, or fail with the findings that stop the change, or with its NvlinkError.

    run appends to the list of findings, so that they are returned on an error too. A broken connection raises
    SystemExit in it, and so runs its rollback.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    findings: Findings = []
    try:
        result = run(module, findings)
    except NvlinkError as error:
        module.fail_json(msg=str(error), findings=findings)
    if stopping.stopping(findings):
        module.fail_json(msg=stopping.STOPPED, **result)
    module.exit_json(**result)


def _interrupted(number: int, _frame: Any) -> None:
    raise SystemExit(f"ended by signal {number}")
