# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import verdict
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

VOID = {"meta", "link", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """Collects the parts that the tests use, and checks that every element is closed."""

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


def _page(fabric: Fabric, state: State, context: RenderContext | None = None) -> str:
    files = report.render(fabric, state, context or RenderContext())
    assert list(files) == ["report/index.html", "report/report.json"]
    return files["report/index.html"]


def test_every_tray_is_drawn_once_in_its_domain() -> None:
    fabric = fabrics.fabric()
    page = Page(_page(fabric, fabrics.state(fabric)))
    assert sorted(str(tray["id"]) for tray in page.of_class("t")) == sorted(f"tray-{name}" for name in fabric.trays)
    assert len(page.of_class("domain")) == 2
    assert len([tag for tag, attrs in page.elements if attrs.get("href") == "#s"]) == 18
    assert {tray["class"].split()[1] for tray in page.of_class("t") if tray["class"]} == {"c0", "c1", "c2"}


def test_a_problem_is_shown_on_the_tray_and_in_the_table() -> None:
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


def test_hostile_texts_are_escaped() -> None:
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


def test_control_characters_are_removed() -> None:
    fabric = fabrics.fabric()
    finding = {"code": "gpu_lost", "severity": "error", "message": "GPU \x1b[2J\u202e is\nlost.", "gpu": 1}
    text = _page(fabric, fabrics.state(fabric, r01t07={"findings": [finding]}))
    assert "GPU  [2J  is\nlost." in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_the_table_of_jobs_has_the_block_sizes_of_the_site() -> None:
    fabric = fabrics.fabric(racks=5, split=())
    row = '<tr><th scope="row" class="n">90</th><td class="n">{}</td><td class="n">5</td><td>{}</td>'
    own = _page(fabric, fabrics.state(fabric))
    assert "needs (block size 18)</caption>" in own
    assert row.format(5, "starts") in own
    site = _page(fabric, fabrics.state(fabric), RenderContext(block_sizes=(18, 36)))
    assert "needs (block sizes 18, 36)</caption>" in site
    assert row.format(6, "waits") in site
    refused = _page(fabric, fabrics.state(fabric), RenderContext(block_sizes=(18, 20)))
    assert "Slurm jobs" not in refused
    assert "would not load the topology: The block size 20 is not the base size 18 times a power of two" in refused


def test_each_clique_has_its_names_in_slurm_and_kubernetes() -> None:
    fabric = fabrics.fabric()
    for number, name in enumerate(fabric.members["r02b"]):
        fabric.trays[name]["kubernetes_node"] = f"gpu-{number:03d}"
    text = _page(fabric, fabrics.state(fabric, r02t18={"health": "unhealthy"}))
    uuid = fabric.cluster_uuid("r02b")
    row = f"<td>r02t[10-18]</td><td>gpu-[000-008]</td><td><code>{uuid}.2</code></td>"
    assert row in text
    # Nine trays, of which eight work: the largest job inside the clique.
    assert re.search(r'</span> r02b</th>.*<td class="n">9</td><td class="n">36</td><td class="n">8</td>', text)


def test_clusters_that_share_the_fabric_are_named_with_their_nodes() -> None:
    fabric = fabrics.fabric(racks=1, trays=4)
    clusters = {"slurm": {"a": {"blocks": {"r01": {"name": "r01", "position": 0}}}}, "kubernetes": {"k1": {}, "k2": {}}}
    for number, tray in enumerate(fabric.trays.values()):
        tray["kubernetes_cluster"] = "k1" if number < 3 else "k2"
        if number < 2:
            tray["slurm_cluster"] = "a"
    shared = replace(fabric, clusters=clusters)  # type: ignore[arg-type]
    text = _page(shared, fabrics.state(shared))
    assert "<td>a: r01t[01-02]</td><td>k1: r01t[01-03]; k2: r01t04</td>" in text
    assert "<h3>Cluster a</h3>" in text


def test_a_verdict_shows_stranded_gpus_and_the_compute_domains_that_have_the_nodes() -> None:
    fabric = fabrics.fabric()
    used = {"nodes": 18, "free_nodes": 16, "stranded_gpus": 3, "blocked_by": {"jobs/<x>": ["r01t01", "r01t02"]}}
    unused = {"nodes": 9, "free_nodes": 9, "stranded_gpus": 0, "blocked_by": {}}
    document = {
        "ok": True,
        "failures": [],
        "compute_domains": {"unknown": [], "cliques": {"r01": used, "r02a": unused}},
    }
    text = _page(fabric, fabrics.state(fabric), RenderContext(verdict=verdict(document, "verdict.json")))
    assert "<p>3 stranded GPUs.</p>" in text
    assert '<td class="n">16</td><td class="n">3</td><td>jobs/&lt;x&gt; (r01t[01-02])</td>' in text
    assert '<td class="n">9</td><td class="n">0</td><td></td>' in text

    used["stranded_gpus"] = None
    document["compute_domains"]["unknown"] = ["The account may not list pods."]
    text = _page(fabric, fabrics.state(fabric), RenderContext(verdict=verdict(document, "verdict.json")))
    assert "The number of stranded GPUs is unknown. The account may not list pods." in text
    assert '<td class="n">unknown</td>' in text


def test_a_verdict_shows_layers_failures_causes_and_remediations() -> None:
    fabric = fabrics.fabric()
    failure = {
        "code": "slurm_blocks_differ", "severity": "warning", "layer": "slurm", "tray": "r01t07", "clique": "r01",
        "message": "r01t07 is in another block.", "cause": "it was <edited>", "remediation": "ansible-playbook a && b",
    }  # fmt: skip
    layers = {"hardware": "checked", "slurm": "checked", "tiers": "skipped: none are given"}
    parsed = verdict({"ok": True, "checked_at": "t", "layers": layers, "failures": [failure]}, "verdict.json")
    text = _page(fabric, fabrics.state(fabric), RenderContext(verdict=parsed))
    page = Page(text)
    assert "All checked layers agree." in text
    assert "<b>tiers</b> not checked: none are given" in text
    assert "<b>slurm</b> 1 warning" in text
    assert "Likely cause: it was <edited>" in page.texts["span"]
    assert "ansible-playbook a && b" in page.texts["code"]
    # The filter has a box for a severity that only a failure has.
    assert [attrs["value"] for attrs in (dict(a) for _t, a in page.elements) if attrs.get("name") == "severity"] == [
        "warning"
    ]
