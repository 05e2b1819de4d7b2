# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the progress of a run by rack; plugin_utils/progress.py counts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: progress
type: stdout
short_description: Print one line for each play and rack instead of one for each host
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Prints, at the end of a play, one line for each rack with the number of its hosts that are ok, changed, failed or
    unreachable. Ten thousand trays are 576 lines a play, not ten thousand a task.
  - A rack is a group of hosts whose name starts with O(group_prefix). The inventory plugin
    P(rackscale.nvlink.fabric#inventory) makes one for each NVLink domain. Hosts of no such group share one line.
  - Failures are printed at the end of their task. Hosts with equal messages share a line, folded as a Slurm hostlist.
    The same holds for the output of P(ansible.builtin.debug#module) and for differences with C(--diff). With C(-v) each
    task has a line too.
  - To enable it, set E(ANSIBLE_STDOUT_CALLBACK) to C(rackscale.nvlink.progress), or C(stdout_callback) in the section
    C(defaults) of C(ansible.cfg).
requirements:
  - Enabled as the stdout callback.
options:
  fold_racks:
    description:
      - Whether racks with equal results share a line, such as C(r[001-576]).
    type: bool
    default: false
    env:
      - name: NVLINK_PROGRESS_FOLD_RACKS
    ini:
      - section: callback_nvlink_progress
        key: fold_racks
  group_prefix:
    description:
      - Prefix of the groups that are racks. The rest of the name is the name of the rack.
    type: str
    default: nvlink_domain_
    env:
      - name: NVLINK_PROGRESS_GROUP_PREFIX
    ini:
      - section: callback_nvlink_progress
        key: group_prefix
  interval:
    description:
      - Seconds between lines that print how many hosts have finished a running task. V(0) prints none.
    type: int
    default: 10
    env:
      - name: NVLINK_PROGRESS_INTERVAL
    ini:
      - section: callback_nvlink_progress
        key: interval
"""

import time
from typing import Any

from ansible import constants as C
from ansible import context
from ansible.playbook.block import Block
from ansible.plugins.callback import CallbackBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import progress

# The names of the action debug.
_DEBUG = ("debug", "ansible.builtin.debug", "ansible.legacy.debug")


class CallbackModule(CallbackBase):
    """Prints one line for each play and rack."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "rackscale.nvlink.progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._started = self._phase_started = self._printed_at = time.monotonic()
        self._phase: progress.Phase | None = None
        self._task = ""
        self._messages = progress.Messages()
        self._items: dict[str, str] = {}
        self._results = 0
        self._racks: dict[str, str] = {}

    def set_options(self, *arguments: Any, **more: Any) -> None:
        super().set_options(*arguments, **more)
        self._fold = self.get_option("fold_racks")
        self._prefix = self.get_option("group_prefix")
        self._interval = self.get_option("interval")

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._end_phase()
        self._phase, self._phase_started = progress.Phase(), time.monotonic()
        check = " (check mode)" if play.check_mode else ""
        self._display.display(f"PHASE {play.get_name().strip()}{check}", color=C.COLOR_HIGHLIGHT)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._end_task()
        self._task = task.get_name().strip()
        self._printed_at = time.monotonic()

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._count(result, progress.CHANGED if result.is_changed() else progress.OK)
        # Results of debug tasks alone: reading each of ten thousand results would take seconds.
        if result.task.action in _DEBUG and (text := _printed(result.result)):
            self._messages.add("", result.host.get_name(), text)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._count(result, progress.OK)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        outcome = progress.RESCUED if ignore_errors or _has_rescue(result.task) else progress.FAILED
        self._problem(result, outcome)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        # The result of the host only has that some item failed.
        self._items.setdefault(result.host.get_name(), _failure_reason(result.result))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        ignored = getattr(result.task, "ignore_unreachable", False)
        self._problem(result, progress.RESCUED if ignored else progress.UNREACHABLE)

    def v2_on_file_diff(self, result: Any) -> None:
        rows = result.result["results"] if result.task.loop and "results" in result.result else [result.result]
        for row in rows:
            if row.get("diff") and row.get("changed") and (text := self._get_diff(row["diff"])):
                self._display.display(f"  {self._task}: {result.host.get_name()}\n{text}")

    def v2_playbook_on_no_hosts_matched(self) -> None:
        self._display.display("  no hosts matched", color=C.COLOR_SKIP)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._end_phase()
        whole = progress.Phase()
        for host in stats.processed:
            sums = stats.summarize(host)
            words = {
                progress.UNREACHABLE: sums["unreachable"],
                progress.FAILED: sums["failures"],
                progress.RESCUED: sums["rescued"] + sums["ignored"],
                progress.CHANGED: sums["changed"],
            }
            outcome = next((word for word, number in words.items() if number), progress.OK)
            whole.add(progress.NO_RACK, host, outcome)
        check = " (check mode)" if context.CLIARGS.get("check") else ""
        rows = [line.removeprefix(progress.NO_RACK_LABEL).strip() for line in whole.lines()]
        self._display.display(f"DONE in {_seconds(self._started)}{check}: {''.join(rows) or 'no host'}")

    def _count(self, result: Any, outcome: str) -> None:
        host = result.host
        name = host.get_name()
        rack = self._racks.get(name)
        if rack is None:
            rack = self._racks[name] = self._rack(host)
        if self._phase is not None:
            self._phase.add(rack, name, outcome)
        self._results += 1
        if result.warnings or result.deprecations:
            self._handle_warnings(result.result)
        if self._interval and time.monotonic() - self._printed_at > self._interval:
            self._printed_at = time.monotonic()
            self._display.display(f"  {self._task}: {count(self._results, 'host')} so far", color=C.COLOR_VERBOSE)

    def _rack(self, host: Any) -> str:
        names = (group.name for group in host.get_groups() if group.name.startswith(self._prefix))
        return next((name.removeprefix(self._prefix) for name in names), progress.NO_RACK)

    def _problem(self, result: Any, outcome: str) -> None:
        self._count(result, outcome)
        name = result.host.get_name()
        self._messages.add(outcome, name, self._items.get(name) or _failure_reason(result.result))

    def _end_task(self) -> None:
        """Print the messages of the task once all hosts have finished it."""
        colour = C.COLOR_ERROR if any(kind for kind, _text in self._messages.hosts_of) else None
        for line in self._messages.lines():
            self._display.display(f"  {self._task}: {line}", color=colour)
        if self._task and self._display.verbosity:
            self._display.display(f"  {self._task}: {count(self._results, 'host')}", color=C.COLOR_VERBOSE)
        self._task, self._messages, self._items, self._results = "", progress.Messages(), {}, 0

    def _end_phase(self) -> None:
        self._end_task()
        if self._phase is None:
            return
        for line in self._phase.lines(self._fold):
            self._display.display(f"  {line}")
        self._display.display(f"  took {_seconds(self._phase_started)}", color=C.COLOR_VERBOSE)
        self._phase = None


def _seconds(since: float) -> str:
    return f"{time.monotonic() - since:.1f} s"


def _printed(result: Any) -> str:
    """The output of a debug task; a variable with its name."""
    if "msg" in result:
        return _text(result["msg"])
    return "; ".join(f"{key}: {_text(value)}" for key, value in result.items() if _is_own(key))


def _is_own(key: str) -> bool:
    return not key.startswith("_ansible") and key not in ("changed", "failed", "warnings", "deprecations")


def _failure_reason(result: Any) -> str:
    """The reason of a failure: the first of msg, stderr and reason."""
    return next((_text(result[key]) for key in ("msg", "stderr", "reason") if result.get(key)), "no reason was given")


def _text(value: Any) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def _has_rescue(task: Any) -> bool:
    """Whether the task stands in the main part of a block that has a rescue."""
    child, parent = task, getattr(task, "_parent", None)
    while parent is not None:
        if isinstance(parent, Block) and parent.rescue and child._uuid in {entry._uuid for entry in parent.block}:
            return True
        child, parent = parent, getattr(parent, "_parent", None)
    return False
