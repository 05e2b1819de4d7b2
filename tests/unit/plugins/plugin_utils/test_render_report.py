# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.beside import Beside
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

VOID = {"meta", "link", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """Collects what the tests ask for and checks that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def of_class(self, word: str) -> list[dict[str, str | None]]:
        return [attrs for _tag, attrs in self.elements if word in (attrs.get("class") or "").split()]


def _page(fabric: Fabric, state: State, beside: Beside | None = None) -> str:
    files = report.render(fabric, state, beside or Beside())
    assert list(files) == ["report/index.html", "report/report.json"]
    return files["report/index.html"]


def test_every_tray_stands_once_in_its_rack() -> None:
    fabric = fabrics.fabric()
    page = Page(_page(fabric, fabrics.state(fabric)))
    assert sorted(str(tray["id"]) for tray in page.of_class("t")) == sorted(f"tray-{name}" for name in fabric.trays)
    assert len(page.of_class("rack")) == 2
    assert len([tag for tag, attrs in page.elements if attrs.get("href") == "#s"]) == 18
    assert {tray["class"].split()[1] for tray in page.of_class("t") if tray["class"]} == {"c0", "c1", "c2"}


def test_trouble_shows_on_the_tray_and_in_the_table() -> None:
    fabric = fabrics.fabric()
    finding = {"code": "gpu_unhealthy", "severity": "error", "message": "GPU 2 is unhealthy: reset it.", "gpu": 2}
    state = fabrics.state(fabric, r01t07={"state": "stale"}, r02t12={"health": "unhealthy", "findings": [finding]})
    text = _page(fabric, state)
    page = Page(text)
    assert any(attrs.get("id") == "tray-r02t12" for attrs in page.of_class("h-unhealthy"))
    assert 'href="#t-stale"' in text
    assert "State: stale, last seen 2026-11-21T04:00:00Z" in text
    assert "Health: unhealthy, GPU 2" in text
    assert "GPU 2 is unhealthy: reset it." in page.texts["td"]
    assert '<a href="#tray-r02t12">r02t12</a> GPU 2' in text


def test_the_page_loads_and_links_nothing() -> None:
    fabric = fabrics.fabric()
    text = _page(fabric, fabrics.state(fabric))
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "embed"} & {tag for tag, _attrs in page.elements}
    assert all("src" not in attrs and "style" not in attrs for _tag, attrs in page.elements)
    assert all(str(attrs["href"]).startswith("#") for _tag, attrs in page.elements if "href" in attrs)
    assert not re.search(r"https?://(?!www\.gnu\.org/licenses)", text)
    assert "@import" not in text


def test_same_input_same_bytes_and_times_of_present_trays_do_not_count() -> None:
    fabric = fabrics.fabric()
    first = _page(fabric, fabrics.state(fabric))
    later = fabrics.state(fabric, **{name: {"observed_at": "2027-01-01T00:00:00Z"} for name in fabric.trays})
    assert _page(fabric, replace(later, written_at="2027-01-01T00:00:00Z")) == first


def test_hostile_texts_stay_texts() -> None:
    fabric = fabrics.fabric(racks=1)
    evil = "</title></td><script>alert(1)</script>{{ 7*7 }}\" onload='x'"
    fabric.trays["r01t01"]["why"] = evil
    fabric.domains["r01"]["cluster_uuid"] = evil
    fabric.cliques["r01"]["block"]["name"] = evil
    finding = {"code": evil, "severity": "warning", "message": evil, "gpu": None}
    state = fabrics.state(fabric, r01t02={"findings": [finding]})
    text = _page(fabric, state)
    page = Page(text)
    assert len([tag for tag, _attrs in page.elements if tag == "script"]) == 1
    assert "alert(1)</script>" not in text
    assert "{{ 7*7 }}" in text
    assert all("onload" not in attrs for _tag, attrs in page.elements)


def test_without_state_and_without_trays() -> None:
    assert "No state file" in _page(fabrics.fabric(), State())
    assert "The fabric file holds no tray yet." in _page(Fabric(), State())


def test_a_large_fabric_stays_small() -> None:
    fabric = fabrics.fabric(racks=56)
    assert len(_page(fabric, fabrics.state(fabric))) < 56 * 14_000 + 30_000


def test_the_report_tells_what_a_job_may_span() -> None:
    fabric = fabrics.fabric(racks=4, split=())
    whole = _page(fabric, fabrics.state(fabric))
    row = '<th scope="row" class="n">72</th><td class="n">4</td><td class="n">4</td><td>starts</td>'
    assert f"{row}<td><code>--segment=18</code></td>" in whole
    away = {f"r0{rack}t01": {"state": "stale"} for rack in range(1, 5)}
    short = _page(fabric, fabrics.state(fabric, **away))
    assert '<th scope="row" class="n">36</th><td class="n">2</td><td class="n">3</td><td>waits</td>' in short
    assert ">72</th>" not in short
    assert "<td>one block holds it</td>" in short


def test_without_a_tray_there_are_no_jobs() -> None:
    assert "Slurm jobs" not in _page(Fabric({}, {}, {}, []), State())
