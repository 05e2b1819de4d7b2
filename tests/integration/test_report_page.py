# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report in Chromium for 2 and 576 racks: its size, its accessibility by axe-core, links and search."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import verdict
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from . import browser
from .browser import ENTER, Browser
from .test_lab import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.long]

FINDING = {"code": "fabric_unhealthy", "severity": "error", "message": "GPU 2 is unhealthy: drain it.", "gpu": 2}
EVIL = "</script><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"
WARNING = {"code": "state_stale", "severity": "warning", "message": f"It did not answer: {EVIL}", "gpu": None}
SICK = {"health": "unhealthy", "findings": [FINDING]}
FAILURE = {
    **fabrics.FAILURE,
    "tray": "r01t07",
    "message": "r01t07 is in block r02a of the running slurmctld.",
    "cause": "topology.yaml was edited by hand",
    "remediation": "ansible-playbook rackscale.nvlink.slurm",
}


def page(racks: int = 2, **trays: dict[str, Any]) -> str:
    """A report with a verdict, jobs, findings and a conflict."""
    fabric = fabrics.fabric(racks=racks)
    for tray in fabric.trays.values():
        tray["why"] = f"placed 2026-11-21: attached in clique {fabric.clique_text(tray['clique'])}"
    result = verdict(fabrics.verdict(FAILURE), "verdict.json")
    context = RenderContext(verdict=result, jobs={"r01t01": ("4711",)}, repairs=fabrics.REPAIRS)
    faulty = {"r02t12": SICK, "r01t07": {"state": "stale", "findings": [WARNING]}, "r01t02": {"state": "conflict"}}
    return report.render(fabric, fabrics.state(fabric, **{**faulty, **trays}), context)[report.PAGE]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.browser(tmp_path_factory.mktemp("pages")) as opened:
        yield opened


@pytest.fixture
def two_racks(window: Browser) -> Iterator[Browser]:
    """The newly opened page of two racks; the test fails if a script reports an error, or a text of a tray ran."""
    window.emulate()
    window.open(page())
    yield window
    assert window.console_errors() == []
    assert window.script("return window.evil === undefined")


def focused(window: Browser) -> Any:
    """The ID of the focused element, else of the tray that it opens."""
    return window.script("const at = document.activeElement; return at.id || at.parentElement.id")


def shown(window: Browser, kind: str) -> list[str]:
    """The first words of the problems or domains that the search shows."""
    found = f"[...document.querySelectorAll('{kind}')].filter((item) => item.offsetParent)"
    return list(window.script(f"return {found}.map((item) => item.querySelector('a, b:not(.severity)').textContent)"))


def search(window: Browser, text: str) -> str:
    """Type into the search; its status."""
    window.script("document.querySelector('#search').value = ''; document.querySelector('#search').focus()")
    window.press(*text)
    return str(window.script("return document.querySelector('#status').textContent"))


@pytest.fixture(scope="module")
def pages() -> dict[int, str]:
    """Racks -> page; of many, every seventh has an unhealthy tray."""
    return {racks: page(racks, **{f"r{rack:02d}t03": SICK for rack in range(3, racks, 7)}) for racks in (2, 576)}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1920])
@pytest.mark.parametrize("racks", [2, 576])
def test_every_screen_is_accessible_and_short(
    window: Browser, pages: dict[int, str], racks: int, width: int, scheme: str
) -> None:
    assert len(pages[racks].encode()) <= 5_000_000
    window.emulate(width, scheme)
    window.open(pages[racks])
    across, tall = window.script(
        "const {scrollWidth, scrollHeight} = document.documentElement; return [scrollWidth, scrollHeight]"
    )
    assert across == width
    assert tall <= 8_000
    # Axe leaves out what is closed.
    window.script(
        "document.querySelectorAll('.rack:first-child, #more, .table').forEach((item) => { item.open = true })"
    )
    window.script("document.querySelectorAll('.tray').forEach((item) => { item.open = true })")
    assert window.violations() == []
    assert window.console_errors() == []
    assert window.script("return performance.getEntriesByType('resource').length") == 0


def test_a_tile_opens_in_its_place_with_its_trays(window: Browser, pages: dict[int, str]) -> None:
    window.emulate(390)
    window.open(pages[576])
    assert window.script("return document.querySelectorAll('.tray').length") == 0
    window.script("document.querySelector('.rack summary').focus()")
    window.press(ENTER)
    trays = "return document.querySelector('.rack[open]').querySelectorAll('.tray').length"
    wait_until(lambda: window.script(trays) == 18, "the domain shows its trays", 60)
    assert window.script("return document.documentElement.scrollWidth") == 390
    assert search(window, "r347t05") == "1 of 576 domains, 0 of 3 findings"
    window.script("location.hash = 'tray-r347t05'")
    wait_until(lambda: focused(window) == "tray-r347t05", "the tray r347t05 has the focus", 60)


def test_the_search_accepts_words_and_severities(two_racks: Browser) -> None:
    assert shown(two_racks, ".problem") == ["r01t07", "r02t12 GPU 2", "r01t07"]
    assert EVIL in two_racks.script("return document.querySelector('#findings').textContent")
    assert search(two_racks, "gpu r02") == "1 of 2 domains, 1 of 3 findings"
    assert shown(two_racks, ".problem") == ["r02t12 GPU 2"]
    assert shown(two_racks, ".rack") == ["r02"]
    search(two_racks, "warning")
    assert shown(two_racks, ".problem") == ["r01t07"]


def test_a_findings_link_opens_its_tray(two_racks: Browser) -> None:
    two_racks.script("document.querySelector('a[href=\"#tray-r01t07\"]').click()")
    wait_until(lambda: focused(two_racks) == "tray-r01t07", "the tray r01t07 has the focus", 60)
    text = two_racks.script("return document.querySelector('#tray-r01t07').innerText")
    assert "last seen" in text
    assert "none" in text


def test_without_scripts_the_page_shows_all_findings_and_no_search(window: Browser) -> None:
    window.emulate()
    window.cdp("Emulation.setScriptExecutionDisabled", value=True)
    try:
        window.open(page(), drawn=False)
        found = "[document.querySelectorAll('.problem').length, document.querySelector('#filter').offsetParent]"
        answer = window.cdp("Runtime.evaluate", expression=f"JSON.stringify({found})")
    finally:
        window.cdp("Emulation.setScriptExecutionDisabled", value=False)
    assert json.loads(answer["result"]["value"]) == [3, None]
