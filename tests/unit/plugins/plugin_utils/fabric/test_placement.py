# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule of placement by example; test_placement_rules.py has those that hold in every run of a history."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, review
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import (
    Placement,
    mark_accepted,
    mark_pending,
    place,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.ansible_facts import from_facts
from ansible_collections.rackscale.nvlink.tests.lab.nvml.fleets import fleet
from hypothesis import assume, given
from hypothesis import strategies as st

NOW = "2026-11-21T05:00:00Z"
LATER = "2026-12-24T18:00:00Z"
ZERO = "00000000-0000-0000-0000-000000000000"

Facts = dict[str, Any]


class Site:
    """A site under discovery: simulated trays that a test bends, and what the last runs left."""

    def __init__(self, policy: Policy | None = None, **simulation: Any) -> None:
        self.facts: dict[str, Facts] = fleet(**{"racks": 2, "trays_per_rack": 4, **simulation})
        self.down: set[str] = set()
        self.site: dict[str, dict[str, Any]] = {}
        self.policy = policy or Policy()
        self.fabric: Fabric | None = None
        self.state: State | None = None

    def observations(self) -> list[Observation]:
        return [self._observe(name) for name in self.facts]

    def _observe(self, name: str) -> Observation:
        reported = self.site.get(name, {})
        if name in self.down:
            return Observation(name, "ansible_facts", reachable=False, problem="no route to host", **reported)
        observed = from_facts(name, self.facts[name])
        return Observation(
            **{**{field: getattr(observed, field) for field in observed.__dataclass_fields__}, **reported}
        )

    def discover(self, targets: Collection[str] | None = None, now: str = NOW) -> Placement:
        """Place and accept."""
        targets = self.facts if targets is None else targets
        observed = [row for row in self.observations() if row.tray in targets]
        placement = place(self.fabric, self.state, observed, now, self.policy)
        fabric_file.check(placement.fabric.as_dict(), "fabric.json")
        self.fabric, self.state = placement.fabric, placement.state
        return placement

    def gpus(self, *names: str) -> list[Facts]:
        return [gpu for name in names for gpu in self.facts[name]["gpus"]]

    def attach(self, name: str, uuid: str | None = None, clique_id: int | None = None) -> None:
        """Give all GPUs of a tray another domain or clique."""
        for gpu in self.gpus(name):
            fabric = gpu["fabric"]
            fabric["cluster_uuid"] = uuid or fabric["cluster_uuid"]
            fabric["clique_id"] = fabric["clique_id"] if clique_id is None else clique_id

    def state_of(self, name: str) -> str:
        assert self.state
        return self.state.trays[name]["state"]

    def clique_of(self, name: str) -> str:
        assert self.fabric
        return self.fabric.trays[name]["clique"]

    def uuid_of(self, name: str) -> str:
        return self.gpus(name)[0]["fabric"]["cluster_uuid"]


def kinds(placement: Placement) -> dict[str, str]:
    return {change["tray"]: change["kind"] for change in placement.changes}


def codes(placement: Placement, tray: str | None = None) -> set[str]:
    return {row["code"] for row in placement.findings if tray is None or row.get("tray") == tray}


# --- what is one domain, what is one clique (test_shapes.py has the systems that exist) ---


def test_the_fields_of_a_tray_in_the_file() -> None:
    site = Site(racks=1, trays_per_rack=1)
    site.discover()
    facts = site.facts["r01t01"]
    assert site.fabric.trays["r01t01"] == {
        "clique": "r01",
        "tray_index": facts["tray_index"],
        "gpu_uuids": [gpu["uuid"] for gpu in facts["gpus"]],
        "imex_address": "10.0.1.1",
        "slurm_node": "r01t01",
        "kubernetes_node": "r01t01",
        "why": f"placed 2026-11-21: attached in clique {facts['clique']}",
    }


# --- who keeps a place ---


def fabric_of(**values: Any) -> Callable[[Site], object]:
    return lambda site: [gpu["fabric"].update(values) for gpu in site.gpus("r01t02")]


@pytest.mark.parametrize(
    "fault",
    [
        lambda site: site.down.add("r01t02"),
        fabric_of(state=None, status=None, cluster_uuid=None, clique_id=None),
        fabric_of(state="in_progress"),
        fabric_of(status="insufficient_resources", cluster_uuid=None, clique_id=0),
        fabric_of(cluster_uuid=ZERO),
        lambda site: site.gpus("r01t02")[1]["fabric"].update(state="in_progress"),
        lambda site: site.facts["r01t02"].update(gpus=[], gpu_count=0),
        lambda site: site.facts["r01t02"].update(observed_at=None),
    ],
)
def test_a_tray_that_is_not_attached_keeps_its_place_and_is_stale(fault: Callable[[Site], object]) -> None:
    site = Site()
    before = fabric_file.serialise(site.discover().fabric)
    fault(site)
    placement = site.discover(now=LATER)
    assert (fabric_file.serialise(placement.fabric), placement.changes) == (before, [])
    assert {name: site.state_of(name) for name in ("r01t01", "r01t02")} == {"r01t01": "present", "r01t02": "stale"}
    new = Site()
    fault(new)
    assert new.discover().fabric.trays.keys() == site.facts.keys() - {"r01t02"}, "a new tray gets no place"


def test_a_tray_without_a_fabric_is_unhealthy_where_its_rack_attaches_another_one() -> None:
    site = Site()
    for name in ("r01t01", *site.facts)[: len(site.facts) // 2 + 1]:
        for gpu in site.gpus(name):
            gpu["fabric"].update(state="not_supported", status=None, cluster_uuid=None, clique_id=None, health={})
        site.facts[name]["findings"] = [{"code": "fabric_missing", "message": "no fabric", "gpu": None}]
    del site.facts["r02t02"]
    site.facts["r02t01"] = site.facts["r01t01"] | {"chassis_serial": site.facts["r02t03"]["chassis_serial"]}
    site.discover()
    health = {name: site.state.trays[name]["health"] for name in ("r01t01", "r02t01", "r02t03")}
    assert health == {"r01t01": "unknown", "r02t01": "unhealthy", "r02t03": "healthy"}


def test_the_last_observation_is_kept_while_a_tray_is_down() -> None:
    site = Site()
    site.discover()
    site.down.add("r01t02")
    site.discover(now=LATER)
    tray = site.state.trays["r01t02"]
    assert (tray["observed_at"], tray["health"]) == ("2026-01-01T00:00:00Z", "unknown")
    assert tray["driver_version"] == site.facts["r01t02"]["driver_version"]
    assert [row["message"] for row in tray["findings"]] == [
        "Tray r01t02 keeps its place in r01: no route to host; bring it back and discover again."
    ]


def test_a_host_without_gpus_is_not_a_tray_but_reported() -> None:
    site = Site()
    site.facts["login"] = {**site.facts["r01t01"], "gpus": [], "gpu_count": 0}
    placement = site.discover()
    assert "login" not in placement.state.trays
    assert [row["tray"] for row in placement.state.findings if row["code"] == "not_a_tray"] == ["login"]
    kept = site.discover(targets=["r01t01"])
    assert "not_a_tray" in codes(kept, "login")


def test_more_than_26_cliques_in_a_domain_have_names() -> None:
    site = Site(racks=1, trays_per_rack=30, cliques_per_rack=30)
    names = [block.name for block in site.discover().fabric.blocks()]
    assert names[25:28] == ["r01z", "r01aa", "r01ab"]


def test_a_missing_gpu_is_found_and_another_order_of_gpus_is_no_change() -> None:
    site = Site()
    before = site.discover().fabric
    site.facts["r01t01"]["gpus"].pop()
    site.facts["r01t02"]["gpus"].reverse()
    placement = site.discover()
    assert (placement.fabric.trays, placement.changes) == (before.trays, [])
    assert (codes(placement, "r01t01"), codes(placement, "r01t02")) == ({"gpu_missing"}, set())


@pytest.mark.parametrize(
    ("product", "missing", "expected"),
    [
        ("NVIDIA GB200", {"r01t01": 1, "r02t04": 1}, ["r01t01,r02t04: 3 GPUs, and a tray with NVIDIA GB200 has 4"]),
        # Most trays do not tell here, the product does.
        ("NVIDIA GB200", dict.fromkeys(["r01t01", "r01t02", "r01t03"], 1), ["r01t[01-03]: 3 GPUs, and a tray with"]),
        (
            "NVIDIA GB200",
            {"r01t01": 3, "r01t02": 2, "r01t03": 2, "r01t04": 2},
            ["r01t01: 1 GPU, and a tray with NVIDIA GB200 has 2"],
        ),
        ("NVIDIA X100", {"r01t01": 2, "r01t02": 1}, ["r01t01: 2 GPUs, and a tray", "r01t02: 3 GPUs, and a tray"]),
        ("NVIDIA X100", dict.fromkeys(["r01t01", "r01t02", "r01t03"], 1), []),
    ],
)
def test_a_tray_that_is_discovered_with_fewer_gpus_than_its_product_is_named(
    product: str, missing: dict[str, int], expected: list[str]
) -> None:
    site = Site(racks=2 if "r02t04" in missing else 1)
    for name in site.facts:
        for gpu in site.gpus(name):
            gpu["name"] = product
        del site.facts[name]["gpus"][: missing.get(name, 0)]
        site.facts[name]["gpu_count"] = len(site.facts[name]["gpus"])
    placement = site.discover()
    lines = review.state_lines(placement.fabric, placement.state, list(site.facts))
    assert [line[: len(text)] for line, text in zip(lines, expected, strict=True)] == expected


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "slurm_controller", "tray [1]"])
def test_a_tray_with_the_name_of_the_controller_or_of_a_group_or_no_hostlist_gets_no_place(name: str) -> None:
    site = Site(Policy(groups={"slurm_controller"}))
    site.facts[name] = site.facts.pop("r01t01")
    placement = site.discover()
    assert "illegal_tray_name" in codes(placement, name)
    assert (name in placement.fabric.trays, site.state_of(name)) == (False, "unplaced")


# --- sizes ---


def test_the_expected_size_is_counted_once_and_only_grows() -> None:
    site = Site()
    site.down.add("r01t04")
    assert site.discover().fabric.domains["r01"]["expected_trays"] == 3
    site.down.clear()
    assert site.discover().fabric.domains["r01"]["expected_trays"] == 4
    site.attach("r01t04", site.uuid_of("r02t01"))
    placement = site.discover()
    assert placement.fabric.domains["r01"]["expected_trays"] == 4
    assert placement.fabric.domains["r02"]["expected_trays"] == 5
    assert [row["message"] for row in placement.findings if row["code"] == "domain_incomplete"] == [
        "NVLink domain r01 has 3 of 4 expected trays; discover the others, or correct expected."
    ]


# --- names of the site ---


@pytest.mark.parametrize(
    ("serial", "names", "blocks", "found"),
    [
        pytest.param("", {"r01": "hall_a", "1800100000002": "hall_b"}, ["hall_a", "hall_b", "r03"], set(), id="both"),
        pytest.param("", {"r01": "hall", "r02": "hall"}, ["hall", "r02", "r03"], {"name_conflict"}, id="twice"),
        pytest.param("", {"r01": "r02"}, ["r02", "r03", "r04"], set(), id="one of ours"),
        # The finding of one name for two domains would ask for a second name of the same chassis.
        pytest.param("1820", {"1820": "hall"}, ["hall", "hall_2", "hall_3"], set(), id="mini-racks"),
        pytest.param(
            "1820", {"1820": "hall", "1899": "hall_2"}, ["hall", "hall_3", "hall_4"], {"name_conflict"}, id="reserved"
        ),
    ],
)
def test_domains_take_the_sites_names_by_uuid_and_by_serial(
    serial: str, names: dict[str, str], blocks: list[str], found: set[str]
) -> None:
    """names: domain of the simulation, or chassis serial -> name; serial: of all chassis."""
    site = Site(racks=3)
    for facts in site.facts.values():
        facts["chassis_serial"] = serial or facts["chassis_serial"]
    uuids = {rack: site.uuid_of(f"{rack}t01") for rack in ("r01", "r02")}
    site.policy = Policy(domain_names={uuids.get(key, key): name for key, name in names.items()})
    placement = site.discover()
    assert [block.name for block in placement.fabric.blocks()] == blocks
    assert {row["expected_trays"] for row in placement.fabric.domains.values()} == {4}
    assert codes(placement) == found


def test_another_name_of_a_known_domain_is_an_error() -> None:
    site = Site()
    site.discover()
    uuid = site.uuid_of("r01t01")
    site.policy = Policy(domain_names={uuid: "hall"})
    with pytest.raises(PlacementError, match=f"^domain_names: {uuid} is the NVLink domain r01, .* write r01 instead"):
        site.discover()
    site.policy = Policy(domain_names={uuid: "r01"})
    assert "name_conflict" not in codes(site.discover())


def test_a_name_of_no_domain_is_a_finding() -> None:
    site = Site()
    site.discover()
    serial = site.facts["r02t01"]["chassis_serial"]
    site.policy = Policy(domain_names={ZERO: "hall_a", serial: "hall_b"})
    unused = "in fabric_domain_names names no NVLink domain:"
    assert [row["message"] for row in site.discover().findings if row["code"] == "name_conflict"] == [
        f"hall_a {unused} {ZERO} is not known yet; discover it, or correct it.",
        f"hall_b {unused} {serial} is of NVLink domain r02; discover it, or correct it.",
    ]


def test_trays_that_are_expected_in_no_domain_are_an_error() -> None:
    site = Site()
    site.discover()
    site.policy = Policy(expected={"r01": ["r01t01", "r01t02"], "hall": ["r02t01", "r02t02", "r02t09"]})
    with pytest.raises(PlacementError, match=r"^expected: hall is the name of no .*, and its trays are in r02;"):
        site.discover()
    joined = Site()
    for name in ("r02t01", "r02t02", "r02t03", "r02t04"):
        joined.attach(name, joined.uuid_of("r01t01"), 7)
    joined.policy = Policy(expected={"r01": ["r01t01", "r01t02"], "r02": ["r02t01", "r02t02"]})
    with pytest.raises(PlacementError, match=r"^expected: r\w+ is the name of no NVLink domain or clique, "):
        joined.discover()
    # Of a rack that is not powered yet.
    site.policy = Policy(expected={"hall": ["r02t01", "r03t01", "r03t02"]})
    assert "domain_incomplete" in codes(site.discover())


def test_node_names_come_from_the_site_and_stay_without_a_setting() -> None:
    site = Site()
    site.site["r01t01"] = {"slurm_node": "gpu-001", "kubernetes_node": "gpu-001.example", "ansible_host": "203.0.113.9"}
    site.site["r01t02"] = {"ansible_host": "r01t02"}
    trays = site.discover().fabric.trays
    assert [trays[name]["slurm_node"] for name in ("r01t01", "r01t02")] == ["gpu-001", "r01t02"]
    assert (trays["r01t01"]["ansible_host"], "ansible_host" in trays["r01t02"]) == ("203.0.113.9", False)
    site.site.clear()
    assert site.discover().changes == []
    site.site["r01t01"] = {"slurm_node": "gpu-1"}
    assert [change["why"] for change in site.discover().changes] == ["slurm_node gpu-001 -> gpu-1"]
    site.site["r01t02"] = {"slurm_node": "gpu-1"}
    with pytest.raises(NvlinkError, match=r"^fabric_slurm_node: trays r01t01 and r01t02 would both be node gpu-1; "):
        site.discover()


# --- IMEX addresses ---


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Around the ranges that mean something on one link only.
EDGES = """
    0.0.0.0 0.0.0.1 126.255.255.255 127.0.0.0 127.255.255.255 128.0.0.0 169.253.255.255 169.254.0.0 169.254.255.255
    169.255.0.0 223.255.255.255 224.0.0.0 239.255.255.255 240.0.0.0 :: ::1 ::2 fe7f:ffff:: fe80:: febf:ffff:: fec0::
    feff:ffff:: ff00:: ffff::
"""


def addresses(*texts: str) -> list[dict[str, Any]]:
    return [{"interface": f"eth{number}", "address": text, "prefix": 24} for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("networks", "ansible_host", "shown", "chosen"),
    [
        ((), None, ["fe80::1", "2001:db8::1", "198.51.100.7", "203.0.113.7"], "198.51.100.7"),
        ((), "203.0.113.7", ["198.51.100.7", "203.0.113.7"], "203.0.113.7"),
        ((), "elsewhere", ["198.51.100.7"], "198.51.100.7"),
        ((), None, ["127.0.0.1", "169.254.3.4", "2001:db8::1"], "2001:db8::1"),
        ((), None, ["127.0.0.1"], None),
        (("203.0.113.0/24",), "198.51.100.7", ["198.51.100.7", "203.0.113.7"], "203.0.113.7"),
        (("2001:db8::/32", "198.51.100.0/24"), None, ["198.51.100.7", "2001:db8::1"], "2001:db8::1"),
        (("192.0.2.0/24",), None, ["198.51.100.7"], None),
        ((), None, ["no address", "198.51.100.7"], "198.51.100.7"),
    ],
)
def test_which_address_imex_gets(
    networks: tuple[str, ...], ansible_host: str | None, shown: list[str], chosen: str | None
) -> None:
    site = Site(policy=Policy(imex_networks=networks), racks=1, trays_per_rack=1)
    site.facts["r01t01"]["addresses"] = addresses(*shown)
    site.site["r01t01"] = {"ansible_host": ansible_host}
    placement = site.discover()
    assert placement.fabric.trays["r01t01"]["imex_address"] == chosen
    assert ("imex_address_invalid" in codes(placement)) is (chosen is None)


@given(st.ip_addresses() | st.sampled_from([ipaddress.ip_address(text) for text in EDGES.split()]))
def test_imex_gets_no_address_that_is_valid_on_its_link_only(address: Address) -> None:
    assume(getattr(address, "ipv4_mapped", None) is None)
    site = Site(racks=1, trays_per_rack=1)
    site.facts["r01t01"]["addresses"] = addresses(str(address))
    chosen = site.discover().fabric.trays["r01t01"]["imex_address"]
    on_link_only = (address.is_unspecified, address.is_loopback, address.is_link_local, address.is_multicast)
    assert chosen == (None if any(on_link_only) else str(address))


@pytest.mark.parametrize(
    ("networks", "shown", "why"),
    [
        pytest.param((), ["203.0.113.7", "10.0.1.1"], [], id="the tray still has it"),
        pytest.param((), ["203.0.113.7"], ["imex_address 10.0.1.1 -> 203.0.113.7"], id="another one"),
        # It is not lost with its interface.
        pytest.param((), [], [], id="none"),
        pytest.param((), ["127.0.0.1"], [], id="none that IMEX may have"),
        pytest.param(
            ("203.0.113.0/24",),
            ["10.0.1.1", "203.0.113.7"],
            ["imex_address 10.0.1.1 -> 203.0.113.7"],
            id="outside the networks now",
        ),
    ],
)
def test_an_address_stays_until_the_tray_has_another_one(
    networks: tuple[str, ...], shown: list[str], why: list[str]
) -> None:
    site = Site(racks=1, trays_per_rack=1)
    site.discover()
    site.policy = Policy(imex_networks=networks)
    site.facts["r01t01"]["addresses"] = addresses(*shown)
    assert [change["why"] for change in site.discover().changes] == why


def test_an_address_that_several_trays_report_is_not_used() -> None:
    site = Site(racks=1)
    for number, facts in enumerate(site.facts.values()):
        facts["addresses"] = addresses("172.17.0.1", f"198.51.100.{number + 1}")
    fabric = site.discover().fabric
    assert [tray["imex_address"] for tray in fabric.trays.values()] == [f"198.51.100.{n}" for n in range(1, 5)]


# --- gates ---


@pytest.mark.parametrize(
    ("percent", "moving", "objects"), [(10, 1, False), (10, 2, True), (50, 4, False), (50, 5, True), (0, 1, True)]
)
def test_too_many_trays_that_move_at_once(percent: float, moving: int, objects: bool) -> None:
    site = Site(policy=Policy(moved_percent=percent))
    site.discover()
    for number, name in enumerate(list(site.facts)[:moving]):
        site.attach(name, clique_id=9 + number // 2)
    assert [row["code"] for row in site.discover().objections] == ["moved_percent"] * objects


def test_different_drivers_in_a_clique_are_found() -> None:
    site = Site()
    site.facts["r01t01"]["driver_version"] = "570.1"
    messages = [row["message"] for row in site.discover().findings if row["code"] == "drivers_differ"]
    assert messages == ["Clique r01 runs drivers 570.1, 580.173.02; install one version on all its trays."]


# --- until a person accepts ---


def test_trays_are_unplaced_until_the_proposal_is_accepted() -> None:
    site = Site()
    placement = site.discover()
    waiting = mark_pending(placement.state, placement.fabric, None)
    assert {tray["state"] for tray in waiting.trays.values()} == {"unplaced"}
    assert waiting.trays["r01t02"]["tray_index"] == placement.fabric.trays["r01t02"]["tray_index"] == 1
    assert waiting.trays["r01t02"]["gpu_count"] == 4
    assert mark_accepted(waiting, placement.fabric).fingerprint() == placement.state.fingerprint()


def test_a_pending_move_keeps_the_old_place() -> None:
    site = Site()
    before = site.discover().fabric
    site.attach("r01t01", clique_id=9)
    placement = site.discover()
    waiting = mark_pending(placement.state, placement.fabric, before)
    assert waiting.trays["r01t01"]["state"] == "present"
    assert [row["code"] for row in waiting.trays["r01t01"]["findings"]] == ["acceptance_pending"]


def test_trays_that_a_person_places_or_removes_are_stale_or_dropped_until_they_are_observed() -> None:
    site = Site()
    site.down.add("r01t01")
    site.discover()
    assert site.fabric
    own = {"gpu_uuids": ["GPU-x"], "imex_address": None, "slurm_node": "x", "kubernetes_node": "x"}
    placed: Any = {**site.fabric.trays, "r01t01": {**site.fabric.trays["r01t02"], **own}}
    del placed["r01t03"]
    site.fabric = replace(site.fabric, trays=placed)
    again = place(site.fabric, site.state, site.observations()[1:2], NOW, Policy()).state.trays
    assert (again["r01t01"]["state"], "r01t03" in again) == ("stale", False)


# --- sources that see no GPU: node labels, a topology service ---


def labelled(name: str, uuid: str, clique_id: int = 1) -> Observation:
    return Observation(name, "kubernetes", identity=(uuid, clique_id), observed_at=NOW, gpu_count=4)


def test_a_source_without_gpus_places_a_tray_and_the_gpus_are_added_later() -> None:
    site = Site(racks=1)
    uuid = site.uuid_of("r01t01")
    clique_id = site.gpus("r01t01")[0]["fabric"]["clique_id"]

    def label(clique_id: int) -> Placement:
        reported = [labelled("r01t01", uuid, clique_id)]
        placement = place(site.fabric, site.state, reported, LATER, Policy())
        fabric_file.check(placement.fabric.as_dict(), "fabric.json")
        assert placement.state.trays["r01t01"]["state"] == "present"
        return placement

    first = label(clique_id)
    assert first.fabric.trays["r01t01"]["gpu_uuids"] == []
    site.fabric, site.state = first.fabric, first.state
    later = site.discover(now=LATER)
    assert kinds(later)["r01t01"] == "gpus"
    # It confirms the place, and the GPUs stay, also when the tray moves.
    again, moved = label(clique_id), label(7)
    assert (again.changes, again.fabric, kinds(moved)) == ([], later.fabric, {"r01t01": "moved"})
    assert len(moved.fabric.trays["r01t01"]["gpu_uuids"]) == 4


def test_a_tray_whose_gpus_have_no_uuid_is_not_placed() -> None:
    site = Site(racks=1)
    for gpu in site.gpus("r01t01"):
        gpu["uuid"] = None
    placement = site.discover()
    assert "r01t01" not in placement.fabric.trays
    assert site.state_of("r01t01") == "unplaced"
    assert "unusable_value" in codes(placement, "r01t01")


@pytest.mark.parametrize(
    ("code", "severity", "state"),
    [("driver_timeout", "error", "unplaced"), ("driver_missing", "error", None)],
)
def test_a_new_tray_that_hangs_is_shown_and_a_host_without_a_driver_is_no_tray(
    code: str, severity: str, state: str | None
) -> None:
    result = {"code": code, "severity": severity, "message": "m.", "tray": "new", "gpu": None}
    observed = Observation("new", "ssh", observed_at=NOW, findings=(result,))
    placement = place(None, None, [observed], NOW, Policy())
    found = placement.state.trays.get("new")
    assert (found and found["state"]) == state
    assert ("not_a_tray" in codes(placement, "new")) is (state is None)


@pytest.mark.parametrize("later", ["2026-11-20T05:00:00Z", "1970-01-01T00:00:00Z", "2106-02-07T06:28:15Z"])
def test_a_clock_that_jumps_changes_no_place(later: str) -> None:
    site = Site()
    site.policy = Policy(max_age=60)
    before = site.discover().fabric
    jumped = site.discover(now=later)
    assert (jumped.fabric, jumped.changes, jumped.objections, jumped.state.written_at) == (before, [], [], later)
    assert {tray["state"] for tray in jumped.state.trays.values()} == {"present"}
    assert site.discover().fabric == before
