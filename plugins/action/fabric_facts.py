# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of fabric_facts: gives the tray a time limit, and keeps only documented facts of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import kernel_log, nvml, serials
from ansible_collections.rackscale.nvlink.plugins.modules.fabric_facts import RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped

SCHEMA = schemas.of_return(RETURN)

_DEFAULTS = subsets.Options()
# Seconds to connect, to copy the module, to start Python and to read addresses and versions.
_REST = 60.0


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        arguments = dict(self._task.args)
        try:
            seconds = _REST + _waits(arguments)
        except (TypeError, ValueError):
            raise AnsibleActionFail("fabric_facts: timeout and imex_timeout are numbers of seconds.") from None
        answer = self.run_module("rackscale.nvlink.fabric_facts", arguments, task_vars, SCHEMA, seconds)
        names = arguments.get("gather_subset", _DEFAULTS.gather_subset)
        return _complete(answer, names.split(",") if isinstance(names, str) else names)


def _complete(answer: Result, names: Sequence[str]) -> Result:
    """The answer, with the finding tray_answer_invalid where a missing subset has no finding yet."""
    facts = mapped(answer.get("ansible_facts"))
    notes = answer.get("findings") or []
    if answer.get("failed") or any(note["code"] in ("tray_subset_failed", "tray_answer_invalid") for note in notes):
        return answer
    missing = [name for name in subsets.selected(names) if facts.get(subsets.FACTS[name]) is None]
    if not missing:
        return answer
    message = f"The answer has no facts of {', '.join(missing)}, which were asked; check the host."
    return {**answer, "findings": [*notes, finding("tray_answer_invalid", message)]}


def _waits(arguments: Arguments) -> float:
    """Seconds that the module may wait: each backend once; with other subsets three queries of IMEX, the links
    and the serial numbers.
    """
    timeout = float(arguments.get("timeout", _DEFAULTS.timeout))
    if list(arguments.get("gather_subset", _DEFAULTS.gather_subset)) == ["gpu"]:
        return (nvml.PATIENCE + 1) * timeout
    return (
        (2 * nvml.PATIENCE + 1) * timeout
        + kernel_log.TIMEOUT
        + serials.TIMEOUT
        + 3 * float(arguments.get("imex_timeout", _DEFAULTS.imex_timeout))
    )
