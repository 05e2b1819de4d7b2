# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the callback progress reads of single results; runs of it are in tests/integration/test_progress.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.callback import progress


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"msg": "No.", "stderr": "more"}, "No."),
        ({"msg": ["a", "b"]}, "a; b"),
        (
            {"msg": "non-zero return code", "rc": 1, "stdout": "some", "stderr": "first\nNo space left on device\n"},
            "non-zero return code: No space left on device",
        ),
        (
            {"msg": "MODULE FAILURE: No start of json", "module_stderr": "Traceback\nSyntaxError: bad\n"},
            "MODULE FAILURE: No start of json: SyntaxError: bad",
        ),
        ({"censored": "the output has been hidden", "failed": True}, "the output has been hidden"),
        ({"failed": True}, "no reason was given"),
    ],
)
def test_a_failure_has_its_cause(result: dict[str, Any], reason: str) -> None:
    assert progress._failure_reason(result) == reason


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the callback prints."""
    lines: list[str] = []
    monkeypatch.setattr(progress.CallbackModule, "_print", lambda _self, text, *_more: lines.append(text))
    return lines


def task(name: str, action: str = "command", **more: Any) -> Any:
    shown = {"action": action, "run_once": False, "loop": None, "ignore_unreachable": False, **more}
    return SimpleNamespace(get_name=lambda: name, _uuid=name, **shown)


def result(host: str, of: Any, **values: Any) -> Any:
    named = SimpleNamespace(get_name=lambda: host)
    more = {"warnings": [], "deprecations": [], "is_changed": lambda: bool(values.get("changed"))}
    return SimpleNamespace(host=named, task=of, result=values, **more)


def callback() -> progress.CallbackModule:
    made = progress.CallbackModule()
    made._display = SimpleNamespace(verbosity=0)
    made._interval = 0
    return made


def test_unreachable_hosts_with_one_cause_share_a_line(printed: list[str]) -> None:
    plugin, asked = callback(), task("Ask")
    plugin.v2_playbook_on_task_start(asked, False)
    for number in range(1, 19):
        refused = f"ssh: connect to host 10.0.0.{number} port 22: Connection refused"
        text = f"Task failed: Failed to connect to the host via ssh: {refused}"
        plugin.v2_runner_on_unreachable(result(f"r01t{number:02}", asked, msg=text, unreachable=True))
    plugin._end_task()
    assert printed == ["  unreachable  Ask: r01t[01-18]: port 22: Connection refused"]


def test_a_terminal_shows_the_running_task_in_its_last_line() -> None:
    plugin, asked, written = callback(), task("Ask"), []

    def display(text: str, newline: bool = True, **_more: Any) -> None:
        written.append(text + "\n" * newline)

    plugin._display = SimpleNamespace(verbosity=0, columns=20, display=display)
    plugin._play, plugin._interval, plugin._is_terminal = "Trays", 10, True
    plugin.v2_playbook_on_task_start(asked, False)
    plugin.v2_runner_on_ok(result("r01t01", asked))
    plugin.v2_runner_on_failed(result("r01t02", asked, msg="No."), ignore_errors=True)
    plugin._end_task()
    assert "".join(written) == (
        "\033[K  Trays: Ask\r\033[K  Trays: Ask: 1 host\r\033[K  Trays: Ask: 2 host\r"
        "\033[K  rescued      Ask: r01t02: No.\n"
    )


def test_a_result_is_that_of_its_own_task(printed: list[str]) -> None:
    """With the strategy free a task begins before the one before has ended on all hosts."""
    plugin, first, second = callback(), task("First"), task("Second", "debug")
    plugin.v2_playbook_on_task_start(first, False)
    plugin.v2_runner_item_on_failed(result("b", first, msg="item"))
    plugin.v2_playbook_on_task_start(second, False)
    plugin.v2_runner_on_failed(result("b", first, msg="One or more items failed"), ignore_errors=True)
    plugin.v2_runner_on_ok(result("a", second, msg="two"))
    difference = {"before": "", "after": "new\n"}
    plugin.v2_on_file_diff(result("b", first, changed=True, diff=difference))
    plugin._end_task()
    assert sorted(printed[1:]) == ["  a: two", "  rescued      First: b: item"]
    assert printed[0].startswith("  First: b\n    --- before\n")


def test_equal_differences_are_printed_once_cleaned_and_bounded(
    printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "MAX_DIFFERENCE", 6)
    plugin, copied = callback(), task("Copy")
    plugin.v2_playbook_on_task_start(copied, False)
    text = "\t1\033[2J\u202e\r\n" + "2\n" * 10
    difference = {"before": "", "after": text, "before_header": "a\033[31m", "after_header": "b"}
    for host in ("r01t01", "r01t02"):
        plugin.v2_on_file_diff(result(host, copied, changed=True, diff=difference))
    plugin._end_task()
    (whole,) = printed
    assert whole.splitlines() == [
        *("  Copy: r01t[01-02]", "    --- before: a [31m", "    +++ after: b", "    @@ -0,0 +1,11 @@"),
        *("    +\t1 [2J", "    +2", "    +2", "    and 8 more lines"),
    ]
