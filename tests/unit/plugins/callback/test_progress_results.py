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
        ({"msg": "non-zero return code", "stderr": " ", "stdout": "failed"}, "non-zero return code: failed"),
        ({"msg": "non-zero return code"}, "non-zero return code"),
        (
            {"msg": "The command exited with a non-zero return code.", "stderr": "why"},
            "The command exited with a non-zero return code: why",
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


def test_colours_within_a_line_are_for_the_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[tuple[str, dict[str, Any]]] = []
    callback = progress.CallbackModule()
    monkeypatch.setattr(
        callback, "_display", SimpleNamespace(display=lambda text, **more: printed.append((text, more)))
    )
    callback._print("stale", None, "painted")
    callback._print("plain", None)
    assert printed == [
        ("painted", {"color": None, "screen_only": True}),
        ("stale", {"log_only": True}),
        ("plain", {"color": None}),
    ]


def test_each_item_of_a_loop_is_printed() -> None:
    item = {"ansible_loop_var": "name", "changed": False, "failed": False, "_ansible_item_label": 1}
    looped = {
        "msg": "All items completed",
        "results": [
            {**item, "name": 1, "msg": "one"},
            {**item, "name": 2, "x": [2, 3]},
            {**item, "name": 4},
            {**item, "name": 3, "skipped": True, "msg": "skipped"},
        ],
    }
    rows = progress._rows(SimpleNamespace(result=looped, task=SimpleNamespace(loop=[1, 2, 3])))
    assert [text for row in rows for text in progress._printed(row)] == ["one", "x: 2, 3", "name: 4"]
    once = {"results": [1], "changed": False}
    assert progress._rows(SimpleNamespace(result=once, task=SimpleNamespace(loop=None))) == [once]
    assert progress._printed(once) == ["results: 1"]
