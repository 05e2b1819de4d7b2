# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report in Chromium with mouse, keyboard and printer, for 2 and 576 racks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import changes, report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import verdict
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from . import browser
from .browser import DOWN, END, ENTER, ESCAPE, LEFT, RIGHT, SHIFT, TAB, UP, Browser
from .test_lab import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.long]

FINDING = {"code": "fabric_unhealthy", "severity": "error", "message": "GPU 2 is unhealthy: drain it.", "gpu": 2}
WARNING = {"code": "state_stale", "severity": "warning", "message": "It did not answer: check its power.", "gpu": None}
SICK = {"health": "unhealthy", "findings": [FINDING]}
FAILURE = {
    "code": "slurm_blocks_differ",
    "severity": "error",
    "layer": "slurm",
    "tray": "r01t07",
    "clique": "r01",
    "message": "r01t07 is in block r02a of the running slurmctld.",
    "cause": "topology.yaml was edited by hand",
    "remediation": "ansible-playbook rackscale.nvlink.slurm",
}
LAYERS = {"hardware": "checked", "slurm": "checked", "kubernetes": "skipped: no cluster"}


def page(racks: int = 2, **trays: dict[str, Any]) -> str:
    """A report with a verdict, jobs, findings and a conflict."""
    fabric = fabrics.fabric(racks=racks)
    before = report.render(fabric, fabrics.state(fabric), RenderContext())[changes.PATH]
    result = {"ok": False, "checked_at": "2026-11-21T05:00:00Z", "layers": LAYERS, "failures": [FAILURE]}
    context = RenderContext(
        verdict=verdict(result, "verdict.json"), earlier=json.loads(before), jobs={"r01t01": ("4711",)}
    )
    faulty = {"r02t12": SICK, "r01t07": {"state": "stale", "findings": [WARNING]}, "r01t02": {"state": "conflict"}}
    return report.render(fabric, fabrics.state(fabric, **{**faulty, **trays}), context)[report.PAGE]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.browser(tmp_path_factory.mktemp("pages")) as opened:
        yield opened


@pytest.fixture
def two_racks(window: Browser) -> Iterator[Browser]:
    """The newly opened page of two racks; the test fails if a script reports an error."""
    window.emulate()
    window.open(page())
    yield window
    assert window.console_errors() == []


def focused(window: Browser) -> Any:
    """The focused element: its ID, else its text."""
    return window.script("const at = document.activeElement; return at.id || at.textContent.trim()")


def rows(window: Browser) -> list[str]:
    """The subjects of the findings and failures that the filter shows."""
    found = "[...document.querySelectorAll('.found tbody tr')].filter((row) => row.offsetParent)"
    return list(window.script(f"return {found}.map((row) => row.children[1].textContent)"))


@pytest.mark.parametrize("racks", [2, 576])
def test_it_loads_nothing_and_no_script_fails(window: Browser, racks: int) -> None:
    window.emulate()
    text = page(racks, **{f"r{rack:02d}t03": SICK for rack in range(3, racks, 7)})
    window.open(text)
    assert window.console_errors() == []
    assert window.script("return performance.getEntriesByType('resource').length") == 0
    assert window.script("return document.querySelectorAll('.domain .t').length") == racks * 18
    assert window.script("return document.querySelector('#shown').textContent") == "{0} of {0} shown".format(
        len(rows(window))
    )


def test_arrows_move_between_trays_enter_selects_escape_deselects(two_racks: Browser) -> None:
    two_racks.script("document.querySelector('.t[tabindex=\"0\"]').focus()")
    assert focused(two_racks) == "tray-r01t18"
    two_racks.press(DOWN, DOWN, UP, RIGHT)
    assert focused(two_racks) == "tray-r02t17"
    two_racks.press(LEFT, END)
    assert focused(two_racks) == "tray-r01t01"
    two_racks.press(ENTER)
    panel = "return document.querySelector('#tray').innerText"
    assert two_racks.script(panel).startswith("r01t01")
    assert "4711" in two_racks.script(panel)
    assert two_racks.script("return document.activeElement.getAttribute('aria-pressed')") == "true"
    two_racks.press(ESCAPE)
    assert two_racks.script("return document.querySelector('#tray').hidden")
    two_racks.press(TAB, SHIFT + TAB)
    assert focused(two_racks) == "tray-r01t01"


def test_the_filter_accepts_words_and_severities(two_racks: Browser) -> None:
    assert rows(two_racks) == ["r01t07", "r02t12 GPU 2", "r01t07"]
    two_racks.script("document.querySelector('#words').focus()")
    two_racks.press(*"gpu r02")
    assert rows(two_racks) == ["r02t12 GPU 2"]
    assert two_racks.script("return document.querySelector('#shown').textContent") == "1 of 3 shown"
    two_racks.script("const words = document.querySelector('#words'); words.value = ''; words.form.requestSubmit()")
    two_racks.script("document.querySelector('[name=severity][value=error]').click()")
    assert rows(two_racks) == ["r01t07"]


def test_a_findings_link_shows_its_tray_and_the_tray_its_findings(two_racks: Browser) -> None:
    two_racks.script("document.querySelector('#problems').click()")
    two_racks.script("document.querySelector('a[href=\"#tray-r02t12\"]').click()")
    wait_until(lambda: focused(two_racks) == "tray-r02t12", "the tray r02t12 has the focus", 60)
    two_racks.script("document.querySelector('#its').click()")
    assert rows(two_racks) == ["r02t12 GPU 2"]
    assert focused(two_racks) == "words"


def test_hostile_text_is_never_evaluated(window: Browser) -> None:
    evil = "</script><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"
    finding = {"code": evil, "severity": "error", "message": evil, "gpu": None}
    window.emulate()
    window.open(page(2, r01t03={"findings": [finding]}))
    assert window.script("return window.evil === undefined")
    assert evil in window.script("return document.querySelector('#findings').innerText")
    assert window.console_errors() == []


def test_without_scripts_the_page_shows_all_rows_and_no_filter(window: Browser) -> None:
    window.emulate()
    window.cdp("Emulation.setScriptExecutionDisabled", value=True)
    try:
        window.open(page(), drawn=False)
        shown = "[document.querySelectorAll('.found tbody tr').length, document.querySelector('#filter').offsetParent]"
        answer = window.cdp("Runtime.evaluate", expression=f"JSON.stringify({shown})")
    finally:
        window.cdp("Emulation.setScriptExecutionDisabled", value=False)
    # All rows, and no filter, which needs scripts.
    assert json.loads(answer["result"]["value"]) == [3, None]
