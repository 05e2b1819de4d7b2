# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the progress of a run by play; plugin_utils/outcomes.py counts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: progress
type: stdout
short_description: Print one line for each play instead of one for each host and task
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Prints, at the end of a play, one line with the worst result and the number of its hosts that are ok, changed,
    failed or unreachable, and the names of those with a problem. Plays without a host print nothing, nor does a play on
    the controller alone that changed nothing or has printed a text of its own.
  - On a terminal the last line is the running task with the number of hosts that have finished it. Each further line
    replaces it.
  - Failures are printed at the end of their task. Hosts with equal messages share a line, folded as a Slurm hostlist.
    The same holds for the output of P(ansible.builtin.debug#module) and the C(success_msg) of
    P(ansible.builtin.assert#module), one entry of a list a line, and for differences with C(--diff), each of at most
    2000 lines. With C(-v) each task has a line too.
  - The last line has the result of the run, the hosts by their worst result, and the first cause of a failure.
  - To enable it, set E(ANSIBLE_STDOUT_CALLBACK) to C(rackscale.nvlink.progress), or C(stdout_callback) in the section
    C(defaults) of C(ansible.cfg).
requirements:
  - Enabled as the stdout callback.
options:
  interval:
    description:
      - Where the output is no terminal, seconds without a line after which the next task or result has one, with the
        running task and the number of hosts that have finished it. V(0) prints none, on a terminal too.
    type: int
    default: 10
    env:
      - name: NVLINK_PROGRESS_INTERVAL
    ini:
      - section: callback_nvlink_progress
        key: interval
"""

import atexit
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from ansible import constants as C
from ansible import context
from ansible.playbook.block import Block
from ansible.plugins.callback import CallbackBase
from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import bounded, count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import outcomes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.host_errors import cause
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import printable

# The names of the action debug.
_DEBUG = ("debug", "ansible.builtin.debug", "ansible.legacy.debug")
_ASSERT = ("assert", "ansible.builtin.assert", "ansible.legacy.assert")
# Their failures are ignored on trays, and the play that follows reports each with its cause.
_REPORTED = ("rackscale.nvlink.fabric_facts",)
_COLLECTION = "rackscale.nvlink."
# Modules whose changes no task of a playbook prints.
_CHANGES = tuple(f"{_COLLECTION}{name}" for name in ("imex_domain", "k8s_topology"))
# Of one task; the others are counted.
MAX_CHANGES = 6
# Lines of one difference.
MAX_DIFFERENCE = 2000
# Messages of Ansible that hold no cause, and where it is instead.
_NO_REASON = (
    "non-zero return code",
    "The command exited with a non-zero return code",
    "MODULE FAILURE",
    "Module result deserialization failed",
    "The module failed to execute correctly",
)
_OF_ANY_RESULT = frozenset(
    {"changed", "failed", "warnings", "deprecations", "ansible_loop_var", "ansible_index_var", "ansible_loop"}
)
_OUTPUTS = ("stderr", "module_stderr", "stdout", "module_stdout")
# The names of the controller.
_CONTROLLER = frozenset({"localhost", "127.0.0.1", "::1"})
_ERASE = "\033[K"
_COLOURS = {
    outcomes.OK: C.COLOR_OK,
    outcomes.CHANGED: C.COLOR_CHANGED,
    outcomes.RESCUED: C.COLOR_WARN,
    outcomes.FAILED: C.COLOR_ERROR,
    outcomes.UNREACHABLE: C.COLOR_UNREACHABLE,
}


class CallbackModule(CallbackBase):
    """Prints one line for each play, and the messages of its tasks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "rackscale.nvlink.progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._started = self._play_started = self._printed_at = time.monotonic()
        # Host -> its worst outcome in this play.
        self._outcomes: dict[str, str] = {}
        self._play = self._task = ""
        # Whether the terminal shows the running task, and whether this play has printed a text.
        self._is_shown = self._has_text = self._is_terminal = False
        # Task -> its name with the values of its variables. With the strategy free several run at once.
        self._names: dict[str, str] = {}
        self._messages: dict[str, dict[outcomes.Message, list[str]]] = {}
        self._items: dict[str, str] = {}
        # (Task, text of a difference) -> its hosts.
        self._differences: dict[tuple[str, str], list[str]] = {}
        self._causes: list[str] = []
        self._results = 0

    def set_options(self, *arguments: Any, **more: Any) -> None:
        super().set_options(*arguments, **more)
        self._interval = self.get_option("interval")
        self._is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def v2_playbook_on_play_start(self, play: Any) -> None:
        atexit.unregister(self._stop_early)
        atexit.register(self._stop_early)
        self._end_play()
        self._play_started = time.monotonic()
        self._play, self._has_text = play.get_name().strip(), False

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._end_task()
        self._task = self._names[task._uuid] = _short(task.get_name())
        self._show(f"  {self._play}: {self._task}")

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._count(result, outcomes.CHANGED if result.is_changed() else outcomes.OK)
        # Results of few tasks alone: reading each of ten thousand results would take seconds.
        if result.task.action in _DEBUG:
            self._add(result, "", *(text for row in _rows(result) for text in _printed(row)))
        elif result.is_changed() and result.task.action in _CHANGES and not result.result.get("diff"):
            changes = result.result.get("changes")
            if isinstance(changes, list) and changes:
                self._add(result, outcomes.CHANGED, summarize(changes, MAX_CHANGES))
        elif result.task.action in _ASSERT and result.task.args.get("success_msg"):
            name = "localhost" if result.task.run_once else result.host.get_name()
            self._add(result, "", *_texts(result.result.get("msg")), host=name)
        elif result.task.run_once and result.task.action.startswith(_COLLECTION):
            self._add(result, "", *_texts(result.result.get("announcement")), host="localhost")

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._count(result, outcomes.OK)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        outcome = outcomes.RESCUED if ignore_errors or _has_rescue(result.task) else outcomes.FAILED
        self._problem(result, outcome, _failure_reason(result.result))

    def v2_runner_item_on_failed(self, result: Any) -> None:
        # The result of the host only has that some item failed.
        self._items.setdefault(result.host.get_name(), _failure_reason(result.result))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        ignored = getattr(result.task, "ignore_unreachable", False)
        outcome = outcomes.RESCUED if ignored else outcomes.UNREACHABLE
        # The address of each host differs, and the cause does not.
        self._problem(result, outcome, cause(_failure_reason(result.result)))

    def v2_on_file_diff(self, result: Any) -> None:
        for row in _rows(result):
            if row.get("diff") and row.get("changed"):
                for entry in row["diff"] if isinstance(row["diff"], list) else [row["diff"]]:
                    if text := self._get_diff(_cleaned(entry)).strip("\n"):
                        self._differences.setdefault((self._name(result), text), []).append(result.host.get_name())

    def v2_playbook_on_stats(self, stats: Any) -> None:
        atexit.unregister(self._stop_early)
        self._end_play()
        hosts = {}
        for host in stats.processed:
            sums = stats.summarize(host)
            words = {
                outcomes.UNREACHABLE: sums["unreachable"],
                outcomes.FAILED: sums["failures"],
                outcomes.RESCUED: sums["rescued"] + sums["ignored"],
                outcomes.CHANGED: sums["changed"],
            }
            hosts[host] = next((word for word, number in words.items() if number), outcomes.OK)
        check_mode = bool(context.CLIARGS.get("check"))
        outcome, text = outcomes.verdict(hosts, self._causes, time.monotonic() - self._started, check_mode)
        self._print(text, _COLOURS[outcome])

    def _stop_early(self) -> None:
        """Print what is left where Ansible ends without statistics: the hosts of a play have no value, or Ctrl-C."""
        self._end_play()
        seconds = time.monotonic() - self._started
        text = f"{outcomes.FAILED.upper()} in {seconds:.1f} s: Ansible stopped before the end of the run, see its error"
        self._print(text, C.COLOR_ERROR)

    def _print(self, text: str, colour: str | None = None) -> None:
        self._printed_at = time.monotonic()
        if self._is_shown:
            self._display.display(_ERASE, screen_only=True, newline=False)
            self._is_shown = False
        self._display.display(text, color=colour)

    def _show(self, text: str) -> None:
        """Show what runs: on a terminal in its last line, else where nothing was printed for long."""
        if not self._interval:
            return
        if self._is_terminal:
            # The cursor goes back, so that a warning of Ansible begins in the first column too.
            line = f"{_ERASE}{text[: self._display.columns]}\r"
            self._display.display(line, color=C.COLOR_VERBOSE, screen_only=True, newline=False)
            self._is_shown = True
        elif time.monotonic() - self._printed_at > self._interval:
            self._print(text, C.COLOR_VERBOSE)

    def _count(self, result: Any, outcome: str) -> None:
        outcomes.add(self._outcomes, result.host.get_name(), outcome)
        self._results += 1
        if result.warnings or result.deprecations:
            self._handle_warnings(result.result)
        self._show(f"  {self._play}: {self._task}: {count(self._results, 'host')} so far")

    def _name(self, result: Any) -> str:
        return self._names.get(result.task._uuid, self._task)

    def _add(self, result: Any, outcome: str, *texts: str, host: str = "") -> None:
        hosts_of = self._messages.setdefault(self._name(result), {})
        hosts_of.setdefault(outcomes.message(outcome, *texts), []).append(host or result.host.get_name())
        self._has_text = self._has_text or not outcome

    def _problem(self, result: Any, outcome: str, reason: str) -> None:
        self._count(result, outcome)
        reason = self._items.pop(result.host.get_name(), reason)
        is_reported = outcome == outcomes.RESCUED and result.task.action in _REPORTED and not self._display.verbosity
        if not is_reported:
            self._add(result, outcome, reason)

    def _end_task(self) -> None:
        """Print the messages of the task once all hosts have finished it."""
        texts_of = equal(
            (f"{task}: {hostlist.fold(natural_sorted(set(hosts)))}", text)
            for (task, text), hosts in self._differences.items()
        )
        for names, texts in texts_of.items():
            lines = [line for text in texts for line in bounded(text.splitlines(), MAX_DIFFERENCE, "line")]
            self._print("\n".join([f"  {names}", *(f"    {line}".rstrip() for line in lines)]))
        for task, hosts_of in self._messages.items():
            self._causes += [f"{task}: {lines[0]}" for outcome, lines in hosts_of if outcome in outcomes.ERRORS]
            for line in outcomes.lines(task, hosts_of, _CONTROLLER):
                self._print(f"  {line}".rstrip(), _COLOURS.get(line.outcome))
        if self._task and self._display.verbosity:
            self._print(f"  {self._task}: {count(self._results, 'host')}", C.COLOR_VERBOSE)
        self._task, self._messages, self._differences, self._results = "", {}, {}, 0

    def _end_play(self) -> None:
        self._end_task()
        if not self._outcomes:
            return
        hosts, self._outcomes = self._outcomes, {}
        worst = outcomes.worst(hosts)
        says_nothing = worst == outcomes.OK or (worst == outcomes.CHANGED and self._has_text)
        if not says_nothing or not hosts.keys() <= _CONTROLLER or self._display.verbosity:
            seconds = time.monotonic() - self._play_started
            line = outcomes.Line(worst, f"{self._play}: {outcomes.counted(hosts)} ({seconds:.1f} s)")
            self._print(str(line), _COLOURS[worst])


def _short(name: str) -> str:
    """``rackscale.nvlink.imex : Inspect every tray`` without the name of the collection; the validation of a role's
    arguments has a name as long as a sentence."""
    role, _colon, task = name.strip().rpartition(" : ")
    task = "Validate the variables" if role and task.startswith("Validating arguments against arg spec") else task
    return ": ".join(part for part in (role.removeprefix(_COLLECTION), task) if part)


def _rows(result: Any) -> list[Any]:
    """The result, or that of each item of a loop."""
    whole = result.result
    rows = whole.get("results") if result.task.loop else None
    return rows if isinstance(rows, list) else [whole]


def _cleaned(entry: Any) -> Any:
    """A difference without what moves the cursor of the terminal; the colours come later."""
    if not isinstance(entry, Mapping):
        return entry
    return {key: printable(text) if isinstance(text, str) else text for key, text in entry.items()}


def _printed(result: Any) -> list[str]:
    """The output of a debug task, one entry of a list a line; a variable with its name, after the item of a loop."""
    if result.get("skipped"):
        return []
    if "msg" in result:
        return _texts(result["msg"])
    own = (key for key in result if not key.startswith("_ansible") and key not in _OF_ANY_RESULT)
    return [f"{key}: {_text(result[key])}" for key in own]


def _failure_reason(result: Any) -> str:
    """The reason of a failure; where Ansible's is none, with the last line that the program printed."""
    reasons = ("; ".join(_texts(result[key])) for key in ("msg", "stderr", "reason", "censored") if result.get(key))
    reason = next(reasons, "no reason was given")
    if reason.startswith(_NO_REASON):
        printed = (str(result.get(key) or "").strip() for key in _OUTPUTS)
        last = next(filter(None, printed), "").rpartition("\n")[2]
        return f"{reason.rstrip('.')}: {last}" if last else reason
    return reason


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    return [_text(entry) for entry in value] if isinstance(value, list) else [str(value)]


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _has_rescue(task: Any) -> bool:
    """Whether the task stands in the main part of a block that has a rescue."""
    child, parent = task, getattr(task, "_parent", None)
    while parent is not None:
        if isinstance(parent, Block) and parent.rescue and child._uuid in {entry._uuid for entry in parent.block}:
            return True
        child, parent = parent, getattr(parent, "_parent", None)
    return False
