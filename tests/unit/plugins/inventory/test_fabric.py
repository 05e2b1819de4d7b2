# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.template import is_trusted_as_template
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.inventory.fabric import InventoryModule, plain
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Answer
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import RESERVED
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.site_variables import PATTERNS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.ansible_facts import from_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

Parse = Callable[..., InventoryData]

PLUGIN = "plugin: rackscale.nvlink.fabric\n"
FROM_FILE = PLUGIN + "sources: [fabric_file]\nfabric_file: fabric.json\n"
SIMULATED = PLUGIN + "sources: [simulation]\nsimulation: {racks: 1, trays_per_rack: 3}\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with the fabric file of two racks, the second one split, and its state."""
    fabric = fabrics.fabric(racks=2, trays=4)
    unplaced = {"state": "unplaced", "health": "degraded", "tray_index": 3, "gpu_count": 2}
    state = fabrics.state(fabric, r01t02={"health": "unhealthy"}, r02t04={"state": "stale"}, spare01=unplaced)
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(fabric))
    (tmp_path / "fabric.state.json").write_bytes(fabric_file.serialise(state))
    return tmp_path


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings of a run."""
    found: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, msg, **_more: found.append(msg))
    return found


def hosts(inventory: InventoryData, group: str) -> list[str]:
    return [host.name for host in inventory.groups[group].get_hosts()]


def variables(inventory: InventoryData, host: str) -> dict[str, Any]:
    """What a play would see of the inventory's variables, without Ansible's own."""
    observed: dict[str, Any] = {}
    for group in sorted(inventory.hosts[host].get_groups(), key=lambda group: group.depth):
        observed.update(group.vars)
    observed.update(inventory.hosts[host].vars)
    return {name: value for name, value in observed.items() if not name.startswith("inventory_")}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("site.nvlink.yml", "", True),
        ("site.nvlink.yaml", "", True),
        ("site.yml", "", False),
        ("site.nvlink.yml.bak", "", False),
        ("cluster.yml", SIMULATED, True),
        ("cluster.yml", f"---\n# A comment\nsources: [simulation]\n{PLUGIN.strip()}  # ours\n", True),
        ("cluster.yml", "plugin: rackscale.nvlink.fabrics\n", False),
        ("cluster.yml", f"all:\n  vars:\n    {PLUGIN}", False),
    ],
)
def test_files_are_selected_by_their_name_or_the_plugin_that_they_name(
    tmp_path: Path, new_plugin: Callable[[], InventoryModule], name: str, text: str, expected: bool
) -> None:
    path = tmp_path / name
    assert not new_plugin().verify_file(str(path))
    path.write_text(text)
    assert new_plugin().verify_file(str(path)) is expected


@pytest.mark.parametrize("option", ["fabric.json", "../{name}/fabric.json", "{folder}/fabric.json"])
def test_a_relative_path_starts_at_the_inventory_files_directory(site: Path, parse: Parse, option: str) -> None:
    path = option.format(name=site.name, folder=site)
    found = parse(FROM_FILE.replace("fabric.json", path))
    assert found.groups["all"].vars["nvlink_fabric_file"] == str(site / "fabric.json")


def test_the_state_may_lie_in_a_folder_of_its_own(site: Path, parse: Parse, tmp_path: Path) -> None:
    (site / "fabric.state.json").rename((tmp_path / "state").mkdir() or tmp_path / "state" / "fabric.state.json")
    assert hosts(parse(FROM_FILE), "nvlink_unhealthy") == []
    found = parse(FROM_FILE + "state_dir: state\n")
    assert hosts(found, "nvlink_unhealthy") == ["r01t02"]
    assert found.groups["all"].vars["nvlink_fabric_state_dir"] == str(tmp_path / "state")
    with pytest.raises(AnsibleParserError, match=r"^state_dir: .*/lost is not a directory; create it"):
        parse(FROM_FILE + "state_dir: lost\n")


def test_a_tray_has_its_variables(site: Path, parse: Parse) -> None:
    document = json.loads((site / "fabric.json").read_text())
    document["trays"]["r02t04"]["ansible_host"] = "192.0.2.7"
    (site / "fabric.json").write_text(json.dumps(document))
    found = variables(parse(FROM_FILE), "r02t04")
    assert found == {
        "ansible_host": "192.0.2.7",
        "nvlink_cluster_uuid": "00000002-1111-4222-8333-444444444444",
        "nvlink_clique_id": 2,
        "nvlink_clique": "00000002-1111-4222-8333-444444444444.2",
        "nvlink_domain_name": "r02",
        "nvlink_clique_name": "r02b",
        "nvlink_block": "r02b",
        "nvlink_tray_index": 3,
        "nvlink_gpu_count": 4,
        "nvlink_health": "healthy",
        "nvlink_state": "stale",
        "nvlink_imex_address": "10.0.2.4",
        "nvlink_slurm_node": "r02t04",
        "nvlink_kubernetes_node": "r02t04",
        "nvlink_fabric_file": str(site / "fabric.json"),
    }
    (site / "fabric.state.json").unlink()
    inventory = parse(FROM_FILE)
    assert variables(inventory, "r02t04") == {**found, "nvlink_health": "unknown", "nvlink_state": "present"}
    assert "ansible_host" not in variables(inventory, "r01t02")
    # A play on it prints no warning while no rollout has filled it.
    assert hosts(inventory, "nvlink_rollout") == []


@pytest.mark.parametrize("where", ["absolute", "home", "template"])
def test_the_option_fabric_file_accepts_all_forms_of_a_path(
    site: Path, parse: Parse, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("HOME", str(site))
    names = {
        "absolute": str(site / "fabric.json"),
        "home": "~/fabric.json",
        "template": '\'{{ lookup("env", "HOME") }}/fabric.json\'',
    }
    inventory = parse(f"{PLUGIN}sources: [fabric_file]\nfabric_file: {names[where]}\n")
    assert variables(inventory, "r01t01")["nvlink_fabric_file"] == str(site / "fabric.json")


def test_a_live_source_on_top_changes_health_but_no_place(site: Path, parse: Parse) -> None:
    inventory = parse(
        PLUGIN + "sources: [fabric_file, simulation]\nfabric_file: fabric.json\n"
        "simulation: {racks: 1, trays_per_rack: 5, faults: {down: [r01t01], degraded: [r01t03]}}\n"
    )
    assert hosts(inventory, "nvlink_clique_r01") == [f"r01t0{tray}" for tray in (1, 2, 3, 4)]
    assert hosts(inventory, "nvlink_stale") == ["r01t01", "r02t04"]
    # Observed in another clique than the accepted one, so it is unplaced only if the file does not contain it.
    assert hosts(inventory, "nvlink_unplaced") == ["r01t05", "spare01"]
    # Nobody has reviewed their names.
    assert not {"r01t05", "spare01"} & {*hosts(inventory, "nvlink"), *hosts(inventory, "nvlink_degraded")}
    assert variables(inventory, "r01t03")["nvlink_health"] == "degraded"


DEAD = "rest: {url: 'http://127.0.0.1:9/', trays: '@', fields: {name: name}, timeout: 1, deadline: 2}\n"


@pytest.mark.parametrize(
    ("live", "sentence"),
    [
        ("rest]\n" + DEAD, "rest: http://127.0.0.1:9/"),
        ("simulation]\nsimulation: {racks: 1, trays_per_rack: 4, faults: {down: 1}}\n", "answers for 0 of 8 trays"),
    ],
)
def test_an_outage_of_a_live_source_keeps_the_places_of_the_fabric_file(
    site: Path, parse: Parse, warnings: list[str], live: str, sentence: str
) -> None:
    inventory = parse(f"{PLUGIN}fabric_file: fabric.json\nsources: [fabric_file, {live}")
    assert hosts(inventory, "nvlink") == hosts(parse(FROM_FILE), "nvlink")
    assert [sentence in warning for warning in warnings] == [True]
    with pytest.raises(AnsibleParserError, match=sentence.replace("8 trays", "4 trays")):
        parse(f"{PLUGIN}sources: [{live}")
    with pytest.raises(AnsibleParserError, match="answers for 2 of 3 trays, min_answer is 80 percent; "):
        parse(SIMULATED.replace("racks: 1", "racks: 1, faults: {down: [r01t01]}") + "min_answer: 80\n")


HOSTILE = [
    "{{ 1 + 1 }}",
    "{% raw %}",
    "#jinja2:variable_start_string:'[['\n[[ 1 ]]",
    "a\nb",
    "x" * 10_000,
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_only_text_that_cannot_be_a_template_is_trusted(text: str) -> None:
    assert not is_trusted_as_template(plain(text)) or not set("{}#\n") & set(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_in_the_state_file_are_left_out(site: Path, parse: Parse, warnings: list[str], text: str) -> None:
    state = json.loads((site / "fabric.state.json").read_text())
    state["trays"][text] = state["trays"]["spare01"]
    reported = {"code": "x", "severity": "error", "message": "{{ lookup('pipe', 'id') }}"}
    state["trays"]["r01t01"]["findings"] = state["findings"] = [reported]
    (site / "fabric.state.json").write_text(json.dumps(state))
    inventory = parse(FROM_FILE)
    assert text not in inventory.hosts
    assert not [
        value for host in inventory.hosts for value in variables(inventory, host).values() if "{{" in str(value)
    ]
    assert [warning[:200] for warning in warnings] == [
        f"{site / 'fabric.json'}: its state holds {shown(text)}, which is not a valid tray name; left out"[:200]
    ]


def test_values_and_names_are_printed_as_plain_text(site: Path, parse: Parse) -> None:
    observed = variables(parse(FROM_FILE), "r01t01")
    observed.pop("nvlink_fabric_file")
    assert all(is_trusted_as_template(value) for value in observed.values() if isinstance(value, str))


@pytest.mark.parametrize(
    "broken", ["compose: {x: no_such + 1}", "groups: {x: no_such == 1}", "keyed_groups: [{key: nope}]"]
)
def test_invalid_expressions_fail_only_if_strict(site: Path, parse: Parse, broken: str) -> None:
    assert "x" not in variables(parse(f"{FROM_FILE}{broken}\n"), "r01t01")
    with pytest.raises(AnsibleError, match=r"no_such|'nope'"):
        parse(f"{FROM_FILE}{broken}\nstrict: true\n")


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that were queried, since the cache had no answer."""
    found, real = [], sources.query

    def query(name: str, *arguments: Any) -> Any:
        found.append(name)
        return real(name, *arguments)

    monkeypatch.setattr(sources, "query", query)
    return found


@pytest.fixture
def cached(tmp_path: Path) -> str:
    return f"cache: true\ncache_plugin: jsonfile\ncache_connection: {tmp_path}/cache\n"


@pytest.mark.parametrize(
    ("runs", "count"),
    [
        pytest.param([(SIMULATED, True)] * 2, 1, id="answered from the cache"),
        pytest.param([(SIMULATED, True), (SIMULATED, False), (SIMULATED, True)], 2, id="a flushed cache is written"),
        pytest.param([(SIMULATED, True), (SIMULATED.replace("rack: 3", "rack: 4"), True)], 2, id="other options"),
    ],
)
def test_the_cache_answers_for_a_live_source(
    parse: Parse, queries: list[str], cached: str, runs: list[tuple[str, bool]], count: int
) -> None:
    found = [parse(text + cached, cache) for text, cache in runs]
    assert queries == ["simulation"] * count
    for (text, _cache), inventory in zip(runs, found, strict=True):
        assert len(inventory.hosts) == (4 if "rack: 4" in text else 3)
        assert variables(inventory, "r01t01") == variables(found[0], "r01t01")


def test_a_finding_about_a_source_is_reported_from_the_cache_too(
    tmp_path: Path, parse: Parse, queries: list[str], cached: str, warnings: list[str]
) -> None:
    listed = tmp_path / "cmdb.json"
    listed.write_text(json.dumps([{"name": "r01t01", "gpus": 4}, {"name": "{{ evil }}"}]))
    rest = f"{{file: {listed}, trays: '@', fields: {{name: name, gpu_count: gpus}}}}"
    text = f"{PLUGIN}sources: [rest]\nrest: {rest}\n{cached}"
    assert [list(parse(text).hosts) for _run in range(2)] == [["r01t01"]] * 2
    assert queries == ["rest"]
    assert ["1 of 2 items without a usable tray name" in warning for warning in warnings] == [True, True]


@pytest.mark.usefixtures("site", "warnings")
def test_an_outage_is_not_cached(parse: Parse, queries: list[str], cached: str) -> None:
    for _run in range(2):
        parse(f"{PLUGIN}fabric_file: fabric.json\nsources: [fabric_file, rest]\n{DEAD}{cached}")
    assert queries == ["rest", "rest"]


def test_the_fabric_file_is_never_cached(site: Path, parse: Parse, cached: str) -> None:
    parse(FROM_FILE + cached)
    (site / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=1)))
    assert list(parse(FROM_FILE + cached).hosts) == ["r01t01", "spare01"]


IN_CONFIG = [
    ("", "is empty; write plugin:"),
    ("plugin: other.thing\nsources: [simulation]\n", "plugin: is 'other.thing'; use one of rackscale.nvlink.fabric"),
    (PLUGIN, "sources: is missing; list one or more of fabric_file, "),
    (PLUGIN + "sources: {a: b}\n", "sources: is a dictionary, write "),
    (PLUGIN + "sources: [fabric_fiel]\n", r"'fabric_fiel' is not a known source; did you mean fabric_file\?"),
    (SIMULATED + "keyed_group: []\n", r"'keyed_group' is not a known option; did you mean keyed_groups\?"),
    (SIMULATED + "strict: maybe\n", "strict: is 'maybe', write true or false"),
    (SIMULATED + "compose: 3\n", "compose: is not a dictionary, write "),
    (SIMULATED + "cache_timeout: [1]\n", r"cache_timeout: is a list, write an integer"),
    (PLUGIN + "sources: [fabric_file]\n", "fabric_file: is missing; set the path of the fabric file"),
    (PLUGIN + "sources: [fabric_file]\nfabric_file: ''\n", "fabric_file: is missing; set the path of the fabric file"),
    (PLUGIN + "sources: [fabric_file]\nfabric_file: ' '\n", "fabric_file: is ' ', write a path"),
    (PLUGIN + "sources: [fabric_file]\nfabric_file: \"{{ ['a'] }}\"\n", r"fabric_file: is \['a'\], write a path"),
    (SIMULATED + "state_dir: \"{{ ['a'] }}\"\n", r"state_dir: is \['a'\], write a path"),
    (
        PLUGIN + "sources: [fabric_file]\nfabric_file: '{{ no }}'\n",
        "fabric_file: cannot be templated .*'no' is undefined",
    ),
    (SIMULATED.replace("racks: 1", "rack: 1"), r"simulation: 'rack' is not a known option; did you mean racks\?"),
    (SIMULATED.replace("racks: 1", "racks: 0"), "simulation: racks is 0, use an integer from 1"),
    (SIMULATED.replace("racks: 1", "faults: {dwn: 1}"), r"simulation: faults: 'dwn' is not .*; did you mean down\?"),
    (SIMULATED.replace("racks: 1", "faults: {down: 2}"), "simulation: faults: down is 2, use a number from 0 to 1"),
    (SIMULATED.replace("racks: 1", "faults: {down: r01t01}"), "down is 'r01t01', use a rate from 0 to 1 or a list of"),
    (SIMULATED.replace("racks: 1", "faults: {down: [r01t04]}"), "faults: down names 'r01t04', which is not a tray"),
]


@pytest.mark.parametrize(("text", "message"), IN_CONFIG)
def test_an_error_of_an_option_has_file_and_key(tmp_path: Path, parse: Parse, text: str, message: str) -> None:
    with pytest.raises(AnsibleParserError, match=message) as error:
        parse(text)
    assert str(error.value).startswith(f"{tmp_path / 'test.nvlink.yml'}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "key", "value", "field"),
    [
        ("fabric.json", "schema_version", 2, "schema_version is 2"),
        ("fabric.state.json", "written_at", 7, "written_at must be "),
    ],
)
def test_an_error_of_a_file_has_file_and_field(
    site: Path, parse: Parse, new_plugin: Callable[[], InventoryModule], name: str, key: str, value: Any, field: str
) -> None:
    """Nothing is added after it."""
    path, inventory = site / name, InventoryData()
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    (site / "test.nvlink.yml").write_text(FROM_FILE)
    with pytest.raises(AnsibleParserError, match=field) as error:
        new_plugin().parse(inventory, DataLoader(), str(site / "test.nvlink.yml"))
    assert str(error.value).startswith(f"{path}: ")
    assert set(inventory.groups) == {"all", "ungrouped"}
    (site / "fabric.json").unlink()
    with pytest.raises(AnsibleParserError, match=r"fabric\.json: does not exist; run discover and accept first"):
        parse(FROM_FILE)


@pytest.mark.parametrize("name", ["nvlink_clique_r01", "head_nodes", "all", "slurm_controller", "localhost"])
def test_a_tray_must_not_have_the_name_of_a_group_or_the_controller(site: Path, parse: Parse, name: str) -> None:
    path = site / "fabric.json"
    document = json.loads(path.read_text())
    document["trays"][name] = document["trays"].pop("r01t01")
    path.write_text(json.dumps(document))
    sentence = f"{path}: tray {name} has the name of a group of the inventory; rename it there"
    if name in RESERVED:
        sentence = rf"^{path}: trays\.{name} is the name of the controller or of a group for Ansible; rename the tray"
    with pytest.raises(AnsibleParserError, match=sentence):
        parse(FROM_FILE, groups=["head_nodes"])


def test_a_live_tray_with_the_name_of_the_controller_or_a_group_is_left_out(
    parse: Parse, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    trays = fleets.fleet(racks=1, trays_per_rack=3)
    named = dict(zip(("localhost", "slurm_controller", "r01t03"), trays.values(), strict=True))
    rows = [from_facts(name, facts) for name, facts in named.items()]
    monkeypatch.setattr(sources, "query", lambda *_arguments: Answer("simulation", rows))
    inventory = parse(SIMULATED, groups=["slurm_controller"])
    assert (sorted(inventory.hosts), hosts(inventory, "slurm_controller")) == (["r01t03"], [])
    assert [text.partition(": its state holds ")[2] for text in warnings] == [
        f"'{name}', which is not a valid tray name; left out" for name in ("localhost", "slurm_controller")
    ]


def test_no_default_of_a_pattern_is_the_name_of_a_tray() -> None:
    """A site without the group would connect to the tray instead."""
    assert {word for pattern in PATTERNS.values() for word in pattern.split(":")} < RESERVED


def test_a_missing_library_is_named(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    def query(*arguments: Any) -> Any:
        raise ModuleNotFoundError("No module named 'jmespath'", name="jmespath")

    monkeypatch.setattr(sources, "query", query)
    with pytest.raises(AnsibleError, match="the Python library jmespath is missing on the controller"):
        parse(SIMULATED)
