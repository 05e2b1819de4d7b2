# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

SICK = {"code": "gpu_unhealthy", "severity": "error", "message": "GPU 2 is unhealthy; drain it and reset its GPUs."}
VOID = {"meta", "link", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """A rendered page, the parts of it that the tests use; every element must be closed."""

    def __init__(self, fabric: Fabric, state: State, **context: Any) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.text = report.render(fabric, state, RenderContext(**context))["report/index.html"]
        self.feed(self.text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def of_class(self, word: str) -> list[dict[str, str | None]]:
        return [attrs for _tag, attrs in self.elements if word in (attrs.get("class") or "").split()]


def test_many_domains_are_tiles_the_worst_first() -> None:
    fabric = fabrics.fabric(racks=6, trays=2)
    sick = {"r02t01": {"state": "stale"}, "r03t01": {"health": "degraded"}, "r05t02": {"state": "conflict"}}
    page = Page(fabric, fabrics.state(fabric, **sick))
    racks = page.of_class("rack")
    words = ["conflict", "degraded", "stale", "healthy", "healthy", "healthy"]
    assert [str(rack["class"]).split()[1] for rack in racks] == words
    assert not any("open" in rack for rack in racks)
    assert {"1 conflict", "1 degraded", "1 stale"} <= set(page.texts["span"])


IDLE = {f"r0{rack}t0{tray}": "IDLE" for rack in (1, 2) for tray in range(1, 5)}
RMA = {**IDLE, "r02t04": "DRAIN+IDLE: RMA 4711 <b>\x1b[2J"}


@pytest.mark.parametrize(
    ("nodes", "without", "sentence"),
    [
        (None, (), "No tray needs attention. Jobs of 4 trays can use 8 of 8 trays."),
        (IDLE, (), "No tray needs attention. Jobs of 4 trays can use 8 of 8 trays."),
        (RMA, (), "r02t04 needs attention. Jobs of 1 tray can use 7 of 8 trays."),
        ({**IDLE, "r02t04": "IDLE+RESERVED"}, (), "No tray needs attention. Jobs of 1 tray can use 7 of 8 trays."),
        (
            RMA,
            ("r01t01", "r01t02"),
            "Without r01t[01-02]: r02t04 needs attention. Jobs of 1 tray can use 5 of 8 trays.",
        ),
    ],
    ids=["not-known", "none-drained", "drained", "reserved", "what-if"],
)
def test_the_headline_knows_which_trays_slurm_gives_no_job(
    nodes: dict[str, str] | None, without: tuple[str, ...], sentence: str
) -> None:
    fabric = fabrics.fabric(racks=2, trays=4, split=())
    texts = {**(nodes or {}), **dict.fromkeys(without, "DRAIN: assumed")}
    page = Page(fabric, node_states.applied(fabrics.state(fabric), fabric, texts), nodes=nodes, without=without)
    assert page.texts["h1"] == [sentence]
    assert ("Slurm's node states are not known" in page.text) is (nodes is None)
    if nodes == RMA:
        assert "<dt>State</dt><dd>drained: RMA 4711 &lt;b&gt; [2J</dd>" in page.text
        assert "<p>1 tray (r02t04): drained: RMA 4711 &lt;b&gt; [2J</p>" in page.text
        assert "<dd>4, of which 3 can run jobs</dd>" in page.text


def test_capacity_has_how_many_segments_start_now_in_all_and_in_each_block() -> None:
    fabric = fabrics.fabric(racks=3, trays=4, split=())
    nodes = {**dict.fromkeys(fabric.trays, "IDLE"), "r02t04": "DRAIN+IDLE", "r01t01": "MIXED", "r03t01": "ALLOCATED"}
    state = node_states.applied(fabrics.state(fabric), fabric, nodes)
    page = Page(fabric, state, nodes=nodes, nodes_at="2026-11-21T05:00:00Z")
    row = (
        '<th scope="row">2 trays</th><td data-label="Trays used">10</td><td data-label="Trays unused">1</td>'
        '<td data-label="Blocks that hold one">3</td><td data-label="Start now">{}</td></tr>'
    )
    assert row.format(3) in page.text
    assert (
        '<tr><th scope="row">r[01-03]</th><td data-label="Idle trays">3</td><td data-label="Segments of 1">3</td>'
        '<td data-label="Segments of 2">1</td><td data-label="Segments of 4">0</td></tr>'
    ) in page.text
    assert "2026-11-21T05:00:00Z" in page.texts["time"]
    unknown = Page(fabric, state).text
    assert row.format("unknown") in unknown
    assert "Idle trays of each block" not in unknown


def test_equal_problems_of_several_trays_are_one_card() -> None:
    fabric = fabrics.fabric(racks=2, trays=4, split=())
    down = {"code": "tray_stale", "severity": "warning", "gpu": None}
    trays = {name: {"findings": [{**down, "message": f"Tray {name} is down; look at {name}."}]} for name in IDLE}
    trays["r01t01"]["findings"] = [{**SICK, "gpu": 2}]
    trays["r02t01"]["findings"] = [{**SICK, "gpu": 2}]
    state = fabrics.state(fabric, **trays)
    of_block = {"code": "slurm_clique_above_base", "severity": "warning"}
    rows = [{**of_block, "block": name, "message": f"The block {name} is large; split it."} for name in ("r01", "r02")]
    page = Page(fabric, replace(state, findings=rows))
    assert len(page.of_class("problem")) == 3
    assert "The block r[01-02] is large." in page.texts["p"]
    assert {"r[01-02]t01 GPU 2", "r[01-02]t[02-04]"} <= set(page.texts["b"])
    assert {"Tray r[01-02]t[02-04] is down.", "look at r01t02,r01t03,r01t04,r02t02,r02t03,r02t04."} <= set(
        page.texts["p"]
    )


@pytest.mark.parametrize(
    ("trays", "sentence"),
    [
        ({}, "No tray needs attention. Jobs of 9 trays can use 36 of 36 trays."),
        (
            {"r01t07": {"state": "stale"}, "r02t12": {"health": "unhealthy", "findings": [SICK]}},
            "r02t12, r01t07 need attention. Jobs of 8 trays can use 32 of 36 trays.",
        ),
        (
            {f"r0{rack}t{tray:02d}": {"state": "stale"} for rack in (1, 2) for tray in range(1, 19)},
            "r01t01, r01t02, r01t03 and 33 more need attention. Jobs can use no tray.",
        ),
    ],
    ids=["healthy", "two-sick", "all-away"],
)
def test_the_verdict_is_one_sentence(trays: dict[str, Any], sentence: str) -> None:
    fabric = fabrics.fabric()
    page = Page(
        fabric, fabrics.state(fabric, **trays), site="north", version="1.2.3", nodes=dict.fromkeys(fabric.trays, "IDLE")
    )
    assert page.texts["h1"] == [sentence]
    assert page.texts["title"] == [f"NVLink fabric of north: {sentence}"]
    assert "rackscale.nvlink 1.2.3." in " ".join(page.texts["p"])
    assert page.texts["time"] == ["2026-11-21T04:00:00Z"]
    assert not page.of_class("tag")


def test_trays_of_a_failure_of_their_domain_need_attention() -> None:
    fabric = fabrics.fabric()
    row = {**fabrics.FAILURE, "severity": "error", "tray": None, "trays": ["r01t02", "r01t01"]}
    page = Page(fabric, fabrics.state(fabric), verdict=verdict(fabrics.verdict(row, ok=False), "verdict.json"))
    assert page.texts["h1"][0].startswith("r01t02, r01t01 need attention. ")


def test_without_a_state_the_verdict_is_a_plan_and_simulated_trays_are_named() -> None:
    fabric = fabrics.fabric()
    planned = "The trays' health is unknown without a state file. Jobs of 9 trays can use 36 of 36 trays."
    assert Page(fabric, State(), nodes=dict.fromkeys(fabric.trays, "IDLE")).texts["h1"] == [planned]
    assert Page(fabric, fabrics.state(fabric, r01t01={"source": "simulation"})).of_class("tag")


@pytest.mark.parametrize(
    ("message", "what", "remedy"),
    [
        (SICK["message"], "GPU 2 is unhealthy.", "drain it and reset its GPUs."),
        ("GPU 2 is unhealthy: drain it.", "GPU 2 is unhealthy: drain it.", f"{CATALOGUE['fabric_unhealthy'].remedy}."),
    ],
    ids=["own", "of the code"],
)
def test_a_finding_has_its_remedy_apart(message: str, what: str, remedy: str) -> None:
    fabric = fabrics.fabric()
    finding = {**SICK, "code": "fabric_unhealthy", "message": message}
    page = Page(fabric, fabrics.state(fabric, r02t12={"findings": [finding]}))
    assert what in page.texts["p"]
    assert remedy in page.texts["p"]


def test_a_failure_of_verify_replaces_the_finding_of_the_same_tray_and_code() -> None:
    fabric = fabrics.fabric()
    lost = {**fabrics.FAILURE, "severity": "error", "code": "gpu_lost", "tray": "r02t12", "trays": ["r02t12"]}
    row = {**lost, "message": "r02t12: GPU 1 is lost; drain and reboot.", "remediation": "scontrol reboot r02t12"}
    state = fabrics.state(fabric, r02t12={"findings": [{**SICK, "code": "gpu_lost", "message": "GPU 1 is lost; it."}]})
    page = Page(fabric, state, verdict=verdict(fabrics.verdict(row, ok=False), "verdict.json"))
    assert len(page.of_class("problem")) == 1
    assert {"r02t12: GPU 1 is lost.", "drain and reboot: scontrol reboot r02t12"} <= set(page.texts["p"])


def test_more_findings_than_a_page_holds_are_counted() -> None:
    fabric = fabrics.fabric()
    page = Page(fabric, fabrics.state(fabric, r02t12={"findings": [{**SICK, "message": f"{n}."} for n in range(502)]}))
    assert len(page.of_class("problem")) == 500
    assert "494 more findings" in page.texts["summary"]
    assert "And 2 more findings, in the state file and verdict.json." in page.texts["p"]


def test_hostile_texts_are_escaped_and_control_characters_removed() -> None:
    fabric = fabrics.fabric(racks=1)
    evil = "</title></td><script>alert(1)</script>{{ 7*7 }}\" onload='x'"
    fabric.trays["r01t01"]["why"] = evil
    fabric.domains["r01"]["cluster_uuid"] = evil
    fabric.cliques["r01"]["block"]["name"] = evil
    rows = [
        {"code": evil, "severity": "warning", "message": message, "gpu": None}
        for message in (evil, "GPU \x1b[2J\u202e is\nlost.")
    ]
    page = Page(fabric, fabrics.state(fabric, r01t02={"findings": rows}))
    text = page.text
    assert len([tag for tag, _attrs in page.elements if tag == "script"]) == 1
    assert "alert(1)</script>" not in text
    assert "{{ 7*7 }}" in text
    assert all("onload" not in attrs and "src" not in attrs for _tag, attrs in page.elements)
    assert "default-src 'none'" in text
    assert "GPU  [2J  is\nlost." in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_the_table_of_jobs_has_the_block_sizes_of_the_site() -> None:
    fabric = fabrics.fabric(racks=5, split=())
    row = (
        '<tr><th scope="row">90 trays</th><td data-label="Blocks allowed">{}</td><td data-label="Blocks needed">5</td>'
        '<td data-label="Without a segment">{}</td>'
    )
    own = Page(fabric, fabrics.state(fabric)).text
    assert "Base block size: 18, the size of the largest clique (Slurm 25.05 and later)." in own
    assert own.count("25.05") == 1
    assert row.format(5, "starts") in own
    site = Page(fabric, fabrics.state(fabric), block_sizes=(18, 36)).text
    assert "Block sizes 18, 36." in site
    assert "25.05" not in site
    assert row.format(6, "waits") in site
    # A job that starts needs no other size: 89 has no divisor for a segment.
    prime = Page(fabric, fabrics.state(fabric, r01t01={"state": "stale"})).text
    job = '<tr><th scope="row">89 trays</th>'
    assert '"Without a segment">starts</td><td data-label="Recommended">no segment</td>' in prime.split(job)[1]
    refused = Page(fabric, fabrics.state(fabric), block_sizes=(18, 20)).text
    assert "Slurm jobs" not in refused
    assert "would not load the topology: The block size 20 is not the base size 18 times a power of two" in refused


def test_each_clique_has_its_names_in_slurm_and_kubernetes() -> None:
    fabric = fabrics.fabric()
    for number, name in enumerate(fabric.members["r02b"]):
        fabric.trays[name]["kubernetes_node"] = f"gpu-{number:03d}"
    jobs = {"r02t18": ("7", "8")}
    text = Page(fabric, fabrics.state(fabric, r02t18={"health": "unhealthy"}), jobs=jobs).text
    assert "<dt>Jobs</dt><dd>7 8</dd>" in text
    assert text.count("<dt>Jobs</dt><dd>none</dd>") == 35
    uuid = fabric.cluster_uuid("r02b")
    assert "<dt>Slurm nodes</dt><dd>r02t[10-18]</dd>" in text
    assert "<dt>Kubernetes nodes</dt><dd>gpu-[000-008]</dd>" in text
    assert f"<dt>Label</dt><dd>{uuid}.2</dd>" in text
    # The largest job inside the clique.
    assert "<dd>9, of which 8 can run jobs</dd>" in text
    assert "<dt>GPUs</dt><dd>36</dd>" in text


def test_clusters_that_share_the_fabric_are_named_with_their_nodes() -> None:
    fabric = fabrics.fabric(racks=1, trays=4)
    clusters = {"slurm": {"a": {"blocks": {"r01": {"name": "r01", "position": 0}}}}, "kubernetes": {"k1": {}, "k2": {}}}
    for number, tray in enumerate(fabric.trays.values()):
        tray["kubernetes_cluster"] = "k1" if number < 3 else "k2"
        if number < 2:
            tray["slurm_cluster"] = "a"
    shared = replace(fabric, clusters=clusters)  # type: ignore[arg-type]
    text = Page(shared, fabrics.state(shared)).text
    assert "<dd>a: r01t[01-02]</dd>" in text
    assert "<dd>k1: r01t[01-03]; k2: r01t04</dd>" in text
    assert "<h3>Cluster a</h3>" in text


def test_a_verdict_shows_stranded_gpus_layers_failures_causes_and_remediations() -> None:
    fabric = fabrics.fabric()
    used = {"nodes": 18, "free_nodes": 16, "stranded_gpus": 3, "blocked_by": {"jobs/<x>": ["r01t01", "r01t02"]}}
    unused = {"nodes": 9, "free_nodes": 9, "stranded_gpus": 0, "blocked_by": {}}
    uses: dict[str, Any] = {"unknown": [], "cliques": {"r01": used, "r02a": unused}}
    more = {"message": "r01t02 moved.", "cause": "it was <edited>", "remediation": "ansible-playbook a && b"}
    document = fabrics.verdict({**fabrics.FAILURE, **more, "severity": "warning"}, ok=True, compute_domains=uses)
    page = Page(fabric, fabrics.state(fabric), verdict=verdict(document, "verdict.json"))
    assert "All checked layers agree." in page.text
    assert {"kubernetes", "not checked: no cluster", "slurm", "1 warning"} <= set(page.texts["span"])
    assert {"Likely cause: it was <edited>", "ansible-playbook a && b"} <= set(page.texts["p"])
    assert "slurm, <code>slurm_blocks_differ</code>" in page.text
    assert "<p>3 stranded GPUs.</p>" in page.text
    assert '>16</td><td data-label="Stranded GPUs">3</td>' in page.text
    assert ">jobs/&lt;x&gt; (r01t[01-02])</td>" in page.text

    used["stranded_gpus"] = None
    uses["unknown"] = ["The account may not list pods."]
    page = Page(fabric, fabrics.state(fabric), verdict=verdict(document, "verdict.json"))
    assert "The number of stranded GPUs is unknown. The account may not list pods." in page.text
    assert ">unknown</td>" in page.text
