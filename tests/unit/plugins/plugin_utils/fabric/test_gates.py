# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gates, overrides and declared trays; test_identity.py has those of domains and cliques."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import editing, gates
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import gates as slurm_gates
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import (
    NOW,
    Site,
)

NEW_UUID = "12345678-1234-4234-8234-123456789abc"
R01, R02 = (tuple(f"r0{rack}t0{tray}" for tray in range(1, 5)) for rack in (1, 2))
DECLARED = {"r01": R01, "r02": R02}


def objecting(site: Site, **policy: Any) -> dict[str, str]:
    """The gates that object to what the site shows now, with their messages; moved_percent is out of the way."""
    site.policy = Policy(**{"moved_percent": 100, **policy})
    return {row["code"]: row["message"] for row in site.discover().objections}


def placed(**simulation: Any) -> Site:
    site = Site(**simulation)
    site.discover()
    return site


def test_every_gate_is_in_the_catalogue_as_one() -> None:
    """Those of discovery and those of a running slurmctld's blocks."""
    assert {code for code, row in CATALOGUE.items() if row.sentence[:6] == "gate: "} == {*GATES, *slurm_gates.GATES}


def concerned(site: Site, gate: str, **policy: Any) -> set[str]:
    """The trays that the table of a proposal shows with this gate."""
    site.policy = Policy(**{"moved_percent": 100, **policy})
    return {tray for tray, names in site.discover().gates.items() if gate in names}


@pytest.mark.parametrize(
    ("gate", "policy", "trays"),
    [
        ("moved_percent", {"moved_percent": 0}, {"r02t01", "r02t02"}),
        ("rotation_in_progress", {}, {"r02t03"}),
        ("clique_shrank", {"expected_trays": 4}, {"r02t01", "r02t02"}),
        ("clique_shrank", {"expected": {"r02": R02, "r03": ["r03t01"]}}, {"r02t01", "r02t02"}),
        ("unknown_trays", {"expected": DECLARED}, {"r03t01"}),
        ("source_too_old", {"max_age": 600}, {"r03t01"}),
        ("chassis_changed", {}, {"r01t04"}),
    ],
)
def test_a_gate_stands_with_the_changes_that_it_objects_to(gate: str, policy: dict[str, Any], trays: set[str]) -> None:
    """Half of r02 joins r03 and one tray reports a new UUID, r01t04 has new GPUs and r01 a second chassis.

    r03t01 is new, by an old observation.
    """
    site = Site(racks=3)
    late = site.facts.pop("r03t01")
    for name in ("r03t03", "r03t04"):
        site.facts.pop(name)
    site.discover()
    for facts in site.facts.values():
        facts["observed_at"] = NOW
    site.facts["r03t01"] = {**late, "observed_at": "2026-11-21T04:00:00Z"}
    for name in R02[:2]:
        site.attach(name, site.uuid_of("r03t02"))
    site.attach("r02t03", NEW_UUID)
    for name in R01[:2]:
        site.facts[name]["chassis_serial"] = "1899999999999"
    for number, gpu in enumerate(site.gpus("r01t04")):
        gpu["uuid"] = f"GPU-0000000{number}-1111-4222-8333-444444444444"
    assert concerned(site, gate, **policy) == trays


def test_a_network_without_addresses_of_trays_is_refused() -> None:
    site = placed()
    lost = objecting(site, imex_networks=("203.0.113.0/24",))
    assert list(lost) == ["imex_addresses_lost"]
    assert lost["imex_addresses_lost"].startswith("8 trays would lose imex_address (r01t01, r01t02,")
    site.policy = Policy(override=("imex_addresses_lost",), imex_networks=("203.0.113.0/24",))
    assert not site.discover().objections


def test_gates_about_a_whole_domain_stand_with_its_trays() -> None:
    merged, rebuilt, split = placed(), placed(), placed()
    for name in R02:
        merged.attach(name, merged.uuid_of("r01t01"))
    assert concerned(merged, "domain_merged") == {*R02}
    for number, name in enumerate(R02):
        for gpu in rebuilt.gpus(name):
            gpu["uuid"] = f"GPU-1111111{number}-{gpu['uuid'][-10:]}"
        rebuilt.attach(name, NEW_UUID)
        split.attach(name, clique_id=number)
    assert concerned(rebuilt, "domain_uuid_changed") == {*R02}
    assert concerned(split, "tray_partitions") == {*R02}


# --- groups of cliques ---


def test_cliques_that_slurm_cannot_aggregate_for_want_of_a_group_are_named() -> None:
    """In each Slurm cluster by itself, as its blocks are written; cliques without trays need no group."""
    of, _lines = editing.group(fabrics.fabric(racks=4, trays=2, split=()), {"east": ["r01", "r02"]})
    own = {name: clique["block"] for name, clique in of.cliques.items()}
    where = {"r01": "alps", "r02": "jura", "r03": "jura"}
    trays: Any = {name: row for name, row in of.trays.items() if row["clique"] in where}
    clustered: Any = {name: {**row, "slurm_cluster": where[row["clique"]]} for name, row in trays.items()}
    clusters: Any = {"slurm": {"alps": {"blocks": own}, "jura": {"blocks": own}}}
    for found in (replace(of, trays=trays), replace(of, trays=clustered, clusters=clusters)):
        rows = gates.check(gates.Step(found, found, [], NOW), Policy()).findings
        messages = [row["message"].partition(";")[0] for row in rows if row["code"] == "slurm_blocks_limited"]
        assert messages == ["Cliques in no group while others have one: r03"]


# --- expected ---


@pytest.mark.parametrize(("policy", "more"), [({"expected": DECLARED}, []), ({"expected_trays": 4}, ["unknown_trays"])])
def test_a_domain_that_falls_below_its_expected_size(policy: dict[str, Any], more: list[str]) -> None:
    """A tray that joins another domain, which then has more than expected where only the number is declared."""
    site = placed()
    site.attach("r02t01", site.uuid_of("r01t01"))
    found = objecting(site, **policy)
    assert list(found) == ["clique_shrank", *more]
    assert "r02 shrinks from 4 to 3 of 4 expected trays; " in found["clique_shrank"]


def test_a_declared_clique_that_is_split_shrinks() -> None:
    site = placed()
    site.attach("r01t01", clique_id=7)
    assert objecting(site, expected=DECLARED)["clique_shrank"].startswith("Clique r01 shrinks from 4 to 3 of 4 ")
    assert objecting(site, expected_trays=4) == {}


def test_new_trays_must_be_declared_where_any_is() -> None:
    site = Site()
    assert list(objecting(site, expected={"r01": R01})) == ["unknown_trays"]
    assert objecting(Site(), expected=DECLARED) == {}
    # Those that the fabric file has are known.
    assert objecting(site, expected={"r01": R01}) == {}


@pytest.mark.parametrize("names", [("r01", "r02"), ("hall_a", "hall_b")])
@pytest.mark.parametrize("ids", ["domain", "clique"])
def test_trays_of_two_declared_racks_in_one_are_stopped(names: tuple[str, str], ids: str) -> None:
    """Two racks that report one cluster UUID and one clique ID would be one block."""
    site = Site()
    for name in R02:
        site.attach(name, site.uuid_of("r01t01"), 7 if ids == "clique" else None)
    if ids == "clique":
        with pytest.raises(NvlinkError, match=r"^expected: \w+ is the name of no NVLink domain or clique, "):
            objecting(site, expected=dict(zip(names, (R01, R02), strict=True)))
        return
    found = objecting(site, expected=dict(zip(names, (R01, R02), strict=True)))
    assert list(found) == ["unknown_trays"]
    assert f"Trays expected in {names[1]} would be placed in clique r01: r02t01, " in found["unknown_trays"]


def test_a_new_tray_in_another_rack_than_declared_is_stopped() -> None:
    site = Site()
    late = site.facts.pop("r02t04")
    site.discover()
    site.facts["r02t04"] = late
    site.attach("r02t04", site.uuid_of("r01t01"))
    assert objecting(site, expected=DECLARED)["unknown_trays"].startswith("Trays expected in r02 would be placed in cl")
    # Once it is accepted, it remains a finding.
    assert objecting(site, expected=DECLARED) == {}
    assert "tray_misplaced" in {row["code"] for row in site.discover().findings}


def test_a_new_domain_takes_the_name_under_which_its_trays_are_declared() -> None:
    site = Site(policy=Policy(expected={"hall_a": (*R01, "r01t05"), "hall_b": R02}))
    placement = site.discover()
    assert {name: site.clique_of(name)[:6] for name in ("r01t01", "r02t04")} == {"r01t01": "hall_a", "r02t04": "hall_b"}
    assert placement.fabric.domains["hall_a"]["expected_trays"] == 5
    assert [row["message"] for row in placement.findings if row["code"] == "domain_incomplete"] == [
        "NVLink domain hall_a has 4 of 5 expected trays; discover the others.",
        "Trays expected in hall_a have no place: r01t05; discover them, or correct expected.",
    ]


def test_a_tray_in_another_rack_than_declared_is_found() -> None:
    site = Site(policy=Policy(expected={"r01": R01[:3], "r02": (*R02, "r01t04")}))
    placement = site.discover()
    assert [row["tray"] for row in placement.findings if row["code"] == "tray_misplaced"] == ["r01t04"]


# --- age ---


@pytest.mark.parametrize(
    ("observed_at", "old"),
    [
        ("2026-11-21T04:50:00Z", False),
        ("2026-11-21T05:50:00+01:00", False),
        ("2026-11-21T04:49:59Z", True),
        ("2026-13-41T04:49:59Z", True),
    ],
)
def test_an_old_observation_is_an_objection(observed_at: str, old: bool) -> None:
    site = Site(racks=1, trays_per_rack=1)
    site.facts["r01t01"]["observed_at"] = observed_at
    assert list(objecting(site, max_age=600)) == ["source_too_old"] * old
    # What changes nothing may be of any age.
    assert objecting(site, max_age=600) == {}


# --- overrides ---


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"override": ("moved_percnt",)}, r"^override: 'moved_percnt' is not a gate; did you mean moved_percent\?$"),
        ({"max_age": 0}, r"^max_age: 0 must be seconds from 1 to "),
        ({"expected": {"hall-a": ()}}, r"^expected: 'hall-a' is not valid in a group name; "),
        ({"expected": {"a": ("t1",), "b": ("t1",)}}, r"^expected: t1 is listed in a and in b; list it once$"),
        ({"imex_networks": ("10.0.0.0/33",)}, r"^imex_network: '10.0.0.0/33' is not a network; "),
        ({"domain_names": {"x": "hall-a"}}, r"^domain_names: 'hall-a' of 'x' is not valid "),
        ({"expected_trays": 0}, r"^expected_trays: 0 must be at least 1"),
        ({"moved_percent": 101}, r"^moved_percent: 101 must be "),
    ],
)
def test_an_invalid_policy_is_rejected(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(NvlinkError, match=message):
        Policy(**policy)
