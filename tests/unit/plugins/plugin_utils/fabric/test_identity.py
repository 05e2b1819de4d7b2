# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios of identity: what becomes of names and places, which gates object, and what an operator reads.

Two racks of six trays, where a scenario has no other site. NEW and NEWER are cluster UUIDs that no domain has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import mark_accepted, mark_pending
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import Site

NEW, NEWER = (f"{digit * 8}-1234-4234-8234-123456789abc" for digit in "12")
R01, R02, R03 = (f"r0{rack}t[01-06]" for rack in (1, 2, 3))


Event = Callable[["Scene"], object]


def uuid(trays: str, of: str) -> Event:
    """The trays report this cluster UUID, or that of the simulated tray of this name."""
    return lambda site: [site.attach(name, of if "-" in of else site.planned[of]) for name in expand(trays)]


def clique(trays: str, clique_id: int) -> Event:
    return lambda site: [site.attach(name, clique_id=clique_id) for name in expand(trays)]


def facts(trays: str, **values: Any) -> Event:
    """The trays report these facts, such as chassis_serial and tray_index."""
    return lambda site: [site.facts[name].update(values) for name in expand(trays)]


def fabric(trays: str, **values: Any) -> Event:
    """The GPUs of the trays report these values of their fabric."""
    return lambda site: [gpu["fabric"].update(values) for gpu in site.gpus(*expand(trays))]


def new_gpus(trays: str) -> Event:
    """All GPUs of each tray are replaced."""
    return lambda site: [gpu.update(uuid=f"GPU-ffffffff{gpu['uuid'][12:]}") for gpu in site.gpus(*expand(trays))]


def take_gpus(tray: str, of: str) -> Event:
    """A tray gets all GPUs of another one."""
    return lambda site: [
        gpu.update(uuid=taken["uuid"]) for gpu, taken in zip(site.gpus(tray), site.gpus(of), strict=True)
    ]


def exchange(one: str, other: str) -> Event:
    """Two hosts exchange their names."""
    return lambda site: site.facts.update({one: site.facts[other], other: site.facts[one]})


def shift(site: Scene) -> None:
    """Each host of a rack has the name of the next one."""
    names = expand(R01)
    site.facts.update({name: site.facts[before] for before, name in itertools.pairwise(names)})


def down(trays: str) -> Event:
    return lambda site: site.down.update(expand(trays))


def up(site: Scene) -> None:
    site.down.clear()


def install(site: Scene) -> None:
    site.facts.update(site.later)


def apart(trays: str, first: int) -> Event:
    """Each of the trays gets a partition of its own."""
    return lambda site: [site.attach(name, clique_id=number) for number, name in enumerate(expand(trays), first)]


def declared(**trays: str) -> dict[str, Any]:
    """The policy of a site that expects these trays below each name."""
    return {"expected": {name: expand(text) for name, text in trays.items()}}


class Scene(Site):
    """The site of a scenario. later: trays that are not installed at first. chassis_serial: of all its racks."""

    def __init__(self, later: str = "", chassis_serial: str = "", **simulation: Any) -> None:
        super().__init__(Policy(moved_percent=100), **{"trays_per_rack": 6, **simulation})
        self.planned = {name: self.uuid_of(name) for name in self.facts}
        for row in self.facts.values():
            row["chassis_serial"] = chassis_serial or row["chassis_serial"]
        self.later = {name: self.facts.pop(name) for name in expand(later)}


@dataclass(frozen=True)
class Run:
    """A discovery, which is accepted: what happens before it, and its result.

    gates: codes of the objections. words: a part of an objection, of the reason of a change or of a finding. moved:
    hostlist -> clique, of trays with another clique than before. site: options of a Scene, in the first run. rows: gate
    -> the trays in whose rows of the proposal's table it stands, of gates for which that matters.
    """

    events: Sequence[Event]
    gates: Sequence[str] = ()
    words: str = ""
    moved: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    site: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, str] = field(default_factory=dict)


ROTATED = "with the same GPUs, as after its fabric was built again"
REST = "its names stay until the others report it too"
DECIDE = "ask your provider, or set fabric_tray_partitions to own_block, leave_out or keep_block."
BOTH: dict[str, Any] = {"cliques_per_rack": 2}
changed, renumbered, rotating = ["domain_uuid_changed"], ["clique_id_changed"], ["rotation_in_progress"]
chassis, split = ["chassis_changed"], ["domain_split"]
IN_SIX = {name: f"r02{letter}" for name, letter in zip(expand(R02), "abcdef", strict=True)}
shrank, unknown = ["clique_shrank"], ["unknown_trays"]
BOTH_RACKS = declared(r01=R01, r02=R02)

SCENARIOS: dict[str, Sequence[Run]] = {
    # --- rotation: the fabric manager gives a domain another cluster UUID ---
    "rotation": [Run([uuid(R01, NEW)], changed, ROTATED), Run([])],
    "rotation of the second of 12 racks": [Run([uuid(R02, NEW)], changed, ROTATED, site={"racks": 12})],
    "rotation of both racks": [
        Run([uuid(R01, NEW), uuid(R02, NEWER)], [*changed, *changed], "NVLink domain r02 has the cluster")
    ],
    "rotation of a rack of one tray": [Run([uuid("r01t01", NEW)], changed, ROTATED, site={"trays_per_rack": 1})],
    "rotation of a rack with two cliques": [Run([uuid(R01, NEW)], changed, ROTATED, site=BOTH)],
    "rotation with other clique IDs": [
        Run(
            [uuid(R01, NEW), clique("r01t[01-03]", 5), clique("r01t[04-06]", 6)],
            changed,
            ", and other clique IDs (r01a 1 -> 5, r01b 2 -> 6), with the same GPUs",
            site=BOTH,
        )
    ],
    "rotation of a rack that shares its chassis": [
        Run([uuid(R02, NEW)], changed, ROTATED, site={"chassis_serial": "1820"}),
        Run([]),
    ],
    "rotation by a source without GPUs": [
        Run([uuid(R01, NEW), lambda site: site.site.update({"r01t01": {"gpu_uuids": ()}})], changed, ROTATED)
    ],
    "rotation in a new chassis": [
        Run([uuid(R01, NEW), facts(R01, chassis_serial="1899")], [*chassis, *changed], ROTATED)
    ],
    "1 of 6 rotates": [
        Run(
            [uuid("r01t01", NEW)],
            rotating,
            f"gets the cluster UUID {NEW}, so far on 1 of 6 trays (r01t01): {REST}",
            rows={"rotation_in_progress": "r01t01"},
        )
    ],
    "3 of 6 rotate, then the rest": [
        Run([uuid("r01t[01-03]", NEW)], rotating, REST),
        Run([uuid(R01, NEW)], changed, ROTATED),
    ],
    "5 of 6 rotate, then the straggler": [
        Run([uuid("r01t[02-06]", NEW)], rotating, REST),
        Run([uuid(R01, NEW)], changed, ROTATED),
    ],
    "5 of 6 rotate, the straggler is down": [
        Run([uuid("r01t[02-06]", NEW), down("r01t01")], changed, ROTATED),
        Run([uuid(R01, NEW), up]),
    ],
    "the straggler returns with the old UUID": [
        Run([uuid("r01t[02-06]", NEW), down("r01t01")], changed, ROTATED),
        Run([up], rotating, REST),
        Run([uuid(R01, NEW)]),
    ],
    "1 of 6 is up at a rotation, then all": [
        Run([uuid(R01, NEW), down("r01t[02-06]")], rotating, REST),
        Run([up], changed, ROTATED),
    ],
    "3 of 6 are up at a rotation, then all": [
        Run([uuid(R01, NEW), down("r01t[04-06]")], rotating, "r01t01 keeps its place in r01: not all of NVLink"),
        Run([up], changed, ROTATED),
    ],
    "4 of 6 are up at a rotation": [Run([uuid(R01, NEW), down("r01t[05-06]")], changed, ROTATED), Run([up])],
    "a tray is installed during a rotation": [
        Run(
            [install, uuid("r02t[04-06]", NEW)],
            rotating,
            "r02t06 gets no place: not all of NVLink domain",
            site={"later": "r02t06"},
        ),
        Run([uuid(R02, NEW)], changed, ROTATED, moved={"r02t06": "r02"}),
    ],
    "a tray is replaced during a rotation": [
        Run([uuid("r01t[01-03]", NEW), new_gpus("r01t01")], rotating, REST),
        Run([uuid(R01, NEW)], changed, "all its GPUs are new"),
    ],
    "a tray gets the GPUs of one whose rack rotates": [
        Run(
            [take_gpus("r01t01", "r02t01"), new_gpus("r02t01"), uuid("r02t[01-03]", NEW)],
            rotating,
            "Tray r01t01 reports GPUs of r02t01",
        ),
        Run([uuid(R02, NEW)], changed, "its GPUs are those of r02t01"),
    ],
    "a replaced tray is the straggler": [
        Run([uuid("r01t[02-06]", NEW), new_gpus("r01t01")], rotating, "all its GPUs are new")
    ],
    "a tray rotates alone while a new rack has the UUID": [
        Run(
            [install, uuid(f"r01t06,{R02}", NEW)],
            split,
            "NVLink domain r01 splits into r01, r02",
            moved={f"r01t06,{R02}": "r02"},
            site={"later": R02},
        )
    ],
    "all GPUs are new at a rotation": [
        Run(
            [uuid(R01, NEW), new_gpus(R01)],
            changed,
            "too few of their GPUs are known",
            moved={R01: "r03"},
            rows={"domain_uuid_changed": R01},
        )
    ],
    # --- split ---
    "a domain is divided, and the site names the new one": [
        Run(
            [uuid("r01t[01-03]", NEW)],
            split,
            "NVLink domain r01 splits into hall_a, r01; check the NVLink switches",
            moved={"r01t[01-03]": "hall_a"},
            policy={"domain_names": {NEW: "hall_a"}},
        )
    ],
    "a part of a rack is in a new chassis": [
        Run(
            [uuid("r01t[01-03]", NEW), facts("r01t[01-03]", chassis_serial="1899")],
            split,
            "NVLink domain r01 splits into r01, r03",
            moved={"r01t[01-03]": "r03"},
        )
    ],
    "a tray moves to another slot of a new rack": [
        Run([uuid("r01t01", NEW), facts("r01t01", tray_index=9)], split, moved={"r01t01": "r03"})
    ],
    "a partition of three trays": [Run([clique("r01t[01-03]", 7)], words="moved 2026", moved={"r01t[01-03]": "r01a"})],
    "a part leaves a partition": [Run([clique("r01t[01-05]", 7)], moved={"r01t[01-05]": "r01a"})],
    "a partition is divided into 4 and 2": [
        Run(
            [clique("r01t[01-04]", 5), clique("r01t[05-06]", 6)],
            renumbered,
            "has other clique IDs (r01 32766 -> 5) with the same GPUs, as after its partitions were created again",
            moved={"r01t[05-06]": "r01a"},
        )
    ],
    "a partition is divided under new IDs and joins again": [
        Run([clique("r01t[01-03]", 5), clique("r01t[04-06]", 6)], moved={"r01t[01-03]": "r01a", "r01t[04-06]": "r01b"}),
        Run([clique(R01, 32766)], moved={R01: "r01"}),
    ],
    "halves of a partition join under a third ID": [
        Run([clique("r01t[04-06]", 7)], moved={"r01t[04-06]": "r01a"}),
        Run([clique(R01, 9)], renumbered, "r01 32766 -> 9", moved={"r01t[04-06]": "r01"}),
    ],
    "two partitions join under a third ID": [
        Run([clique(R01, 9)], renumbered, "r01a 1 -> 9", moved={"r01t[04-06]": "r01a"}, site=BOTH)
    ],
    "two partitions join under a third ID, one tray is down": [
        Run([clique(R01, 9), down("r01t01")], renumbered, "r01b 2 -> 9", moved={"r01t[02-03]": "r01b"}, site=BOTH)
    ],
    "a partition joins another": [Run([clique(R01, 1)], moved={"r01t[04-06]": "r01a"}, site=BOTH)],
    "partitions are created again": [
        Run([clique("r01t[01-03]", 3), clique("r01t[04-06]", 4)], renumbered, "r01a 1 -> 3, r01b 2 -> 4", site=BOTH)
    ],
    "partitions exchange their IDs": [
        Run([clique("r01t[01-03]", 2), clique("r01t[04-06]", 1)], renumbered, "r01a 1 -> 2, r01b 2 -> 1", site=BOTH)
    ],
    "one of two partitions is created again": [
        Run([clique("r01t[01-03]", 0)], renumbered, "other clique IDs (r01a 1 -> 0)", site=BOTH),
        Run([]),
    ],
    "a partition of one tray is created again": [
        Run([clique("r01t01", 50)], moved={"r01t01": "r01g"}, site={"cliques_per_rack": 6})
    ],
    "a partition joins another rack": [
        Run([uuid("r02t[01-03]", "r01t01"), clique("r02t[01-03]", 9)], moved={"r02t[01-03]": "r01c"}, site=BOTH)
    ],
    "the GPUs of a tray are in two partitions": [
        Run([lambda site: site.gpus("r01t01")[0]["fabric"].update(clique_id=7)], words="r01t01 keeps")
    ],
    # --- merge and clone ---
    "a rack joins another": [
        Run(
            [uuid(R02, "r01t01")],
            ["domain_merged"],
            "NVLink domain r01 takes all trays of r02",
            moved={R02: "r01"},
            rows={"domain_merged": R02},
        )
    ],
    "a tray joins another rack": [
        Run([uuid("r02t01", "r01t01")], words="from r02: attached in clique ", moved={"r02t01": "r01"})
    ],
    "two racks join under a new UUID": [
        Run([uuid(f"{R01},{R02}", NEW)], ["domain_merged", *changed], "r01 takes all trays of r02", moved={R02: "r01"})
    ],
    "two racks join under a new UUID, a tray is down": [
        Run(
            [uuid(f"{R01},{R02}", NEW), down("r01t01")],
            changed,
            "NVLink domain r02 has the cluster UUID",
            moved={"r01t[02-06]": "r02"},
        )
    ],
    "a rack is a clone of a declared one": [
        Run(
            [uuid(R02, "r01t01")],
            ["domain_merged", "clique_shrank", "unknown_trays"],
            "NVLink domain r01 would have 12 trays, and expected_trays is 6",
            moved={R02: "r01"},
            policy={"expected_trays": 6},
        ),
        Run([], policy={"expected_trays": 6}),
    ],
    "two trays report one slot": [
        Run([facts("r01t[01-02]", tray_index=0)], ["slot_conflict"], "r01 all report tray_index 0")
    ],
    "two hosts of one slot": [
        Run([facts("r01t01", tray_index=0, host_id=1), facts("r01t02", tray_index=0, host_id=2)])
    ],
    # --- swap ---
    "two hosts of a rack exchange their names": [
        Run([exchange("r01t01", "r01t02")], words="its GPUs are those of r01t02"),
        Run([]),
    ],
    "two hosts of two racks exchange their names": [
        Run(
            [exchange("r01t01", "r02t01")],
            words="its GPUs are those of r02t01",
            moved={"r01t01": "r02", "r02t01": "r01"},
        )
    ],
    "a host has the name of one that is down": [
        Run([exchange("r01t01", "r01t02"), down("r01t02")], words="Tray r01t01 reports GPUs of r01t02")
    ],
    "all names shift by one, and the first tray is down": [Run([shift, down("r01t01")], words="r01t06 reports GPUs")],
    "two trays of two racks change places": [
        Run([uuid("r01t01", "r02t01"), uuid("r02t01", "r01t01")], moved={"r01t01": "r02", "r02t01": "r01"})
    ],
    "two racks exchange their UUIDs": [
        Run(
            [uuid(R01, "r02t01"), uuid(R02, "r01t01")],
            changed,
            "of r01, r02 report",
            moved={R01: "r02", R02: "r01"},
            site={"racks": 3},
        )
    ],
    "three racks exchange their UUIDs": [
        Run(
            [uuid(R01, "r02t01"), uuid(R02, "r03t01"), uuid(R03, "r01t01")],
            changed,
            "of r01, r02, r03 report",
            moved={R01: "r02", R02: "r03", R03: "r01"},
            site={"racks": 3},
            rows={"domain_uuid_changed": f"{R01},{R02},{R03}"},
        )
    ],
    # --- replaced hardware ---
    "a tray is replaced": [Run([new_gpus("r01t01")], words="all its GPUs are new"), Run([])],
    "all trays are replaced one after the other, then the rack rotates": [
        *(Run([new_gpus(tray)]) for tray in expand(R01)),
        Run([uuid(R01, NEW)], changed, ROTATED),
    ],
    "a GPU is replaced": [
        Run(
            [lambda site: site.gpus("r01t01")[2].update(uuid="GPU-11111111-2222-3333-4444-555555555555")],
            words="1 of 4",
        )
    ],
    "a tray reports another chassis": [Run([facts("r01t01", chassis_serial="1899")], words="the chassis 1899")],
    "two trays report another chassis, one tray is replaced": [
        Run(
            [facts("r01t[01-02]", chassis_serial="1899"), new_gpus("r01t04")],
            chassis,
            "r01 gets the chassis 1899",
            rows={"chassis_changed": "r01t04"},
        )
    ],
    "no tray reports a chassis any more": [
        Run([facts("r01t[01-02]", chassis_serial="1899")], chassis),
        Run([facts(R01, chassis_serial="1800100000001"), down("r01t06")]),
        Run([up], chassis, "No tray of NVLink domain r01 reports the chassis 1899 any more"),
    ],
    # --- partial power ---
    "half a rack is down": [Run([down("r01t[01-03]")], words="keeps its place in r01: no route"), Run([up])],
    "a rack is down": [Run([down(R01)], words="keeps its place in r01: no route"), Run([up])],
    "a rack has half of its trays at first": [
        Run([install], words="placed 2026", moved={"r02t[04-06]": "r02"}, site={"later": "r02t[04-06]"})
    ],
    "the GPUs of a tray of a rack have no fabric": [
        Run(
            [fabric("r01t01", state="not_supported", status=None, cluster_uuid=None, clique_id=None)], words="keeps its"
        )
    ],
    "the fabric of a rack is not started": [Run([fabric(R01, state="in_progress")], words="not all its GPUs")],
    # --- what the site declares ---
    "a tray leaves a declared rack": [
        Run(
            [uuid("r02t01", "r01t01")],
            shrank,
            "r02 shrinks from 6 to 5 of 6 expected trays; ",
            moved={"r02t01": "r01"},
            policy=BOTH_RACKS,
            rows={"clique_shrank": "r02t01"},
        )
    ],
    "a tray leaves a rack of a declared size": [
        Run(
            [uuid("r02t01", "r01t01")],
            [*shrank, *unknown],
            "r02 shrinks from 6 to 5 of 6 expected trays; ",
            moved={"r02t01": "r01"},
            policy={"expected_trays": 6},
            rows={"clique_shrank": "r02t01"},
        )
    ],
    "a tray leaves a declared clique": [
        Run([clique("r01t01", 7)], shrank, "Clique r01 shrinks from 6 to 5 of 6 ", {"r01t01": "r01a"}, BOTH_RACKS)
    ],
    "a tray leaves a clique of a rack of a declared size": [
        Run([clique("r01t01", 7)], moved={"r01t01": "r01a"}, policy={"expected_trays": 6})
    ],
    "a new rack is not declared, and known then": [
        Run(
            [install],
            unknown,
            "Trays not in expected and not in the fabric file: r02t01, ",
            moved={R02: "r02"},
            policy=declared(r01=R01),
            site={"later": R02},
            rows={"unknown_trays": R02},
        ),
        Run([], policy=declared(r01=R01)),
    ],
    "a new rack is declared": [Run([install], moved={R02: "r02"}, policy=BOTH_RACKS, site={"later": R02})],
    "two declared racks report one clique": [
        Run(
            [install, uuid(R02, "r01t01")],
            unknown,
            "Trays expected in r02 would be placed in clique r01: r02t01, ",
            moved={f"{R01},{R02}": "r01"},
            policy=BOTH_RACKS,
            site={"later": f"{R01},{R02}"},
        )
    ],
    "two racks report one clique, and names that none has are declared": [
        Run(
            [install, uuid(R02, "r01t01")],
            [*unknown, *unknown],
            "Trays expected in hall_b would be placed in clique r01: r02t01, ",
            moved={f"{R01},{R02}": "r01"},
            policy=declared(hall_a=R01, hall_b=R02),
            site={"later": f"{R01},{R02}"},
        )
    ],
    "a new tray is in another rack than declared": [
        Run(
            [install, uuid("r02t06", "r01t01")],
            unknown,
            "Trays expected in r02 would be placed in clique r01: r02t06; ",
            moved={"r02t06": "r01"},
            policy=BOTH_RACKS,
            site={"later": "r02t06"},
        ),
        Run([], words="Tray r02t06 is expected in r02 and placed in r01; check where", policy=BOTH_RACKS),
    ],
    "new racks have the names under which their trays are declared": [
        Run(
            [install],
            words="NVLink domain hall_a has 6 of 7 expected trays; discover the others, or correct expected.",
            moved={R01: "hall_a", R02: "hall_b"},
            policy=declared(hall_a=f"{R01},r01t07", hall_b=R02),
            site={"later": f"{R01},{R02}"},
        ),
        Run(
            [],
            words="Trays expected in hall_a have no place: r01t07; discover the others, or correct expected.",
            policy=declared(hall_a=f"{R01},r01t07", hall_b=R02),
        ),
    ],
    "no address of a tray is in the networks of IMEX": [
        Run(
            [],
            ["imex_addresses_lost"],
            "12 trays would lose imex_address (r01t01, r01t02,",
            policy={"imex_networks": ("203.0.113.0/24",)},
        )
    ],
    "more trays move than the site allows": [
        Run(
            [clique("r02t01", 7)],
            ["moved_percent"],
            moved={"r02t01": "r02a"},
            policy={"moved_percent": 0},
            rows={"moved_percent": "r02t01"},
        )
    ],
    "each tray of a rack is alone in a clique": [
        Run(
            [apart(R02, 0)],
            ["tray_partitions"],
            f"NVLink domain r02 is split per tray: 6 of its 6 trays are each alone in a clique; {DECIDE}",
            moved=IN_SIX,
            rows={"tray_partitions": R02},
        ),
        Run([]),
    ],
    "each tray of a rack is alone in a clique, and gets a block": [
        Run([apart(R02, 0)], moved=IN_SIX, policy={"tray_partitions": "own_block"}),
        Run([clique(R02, 32766)], moved={R02: "r02"}),
    ],
    "each tray of a rack is alone in a clique, and keeps its block": [
        Run([apart(R02, 0)], policy={"tray_partitions": "keep_block"}),
        # Other partitions, as after a restart of the provider's software; the decision is in the fabric file.
        Run([apart(R02, 200)]),
        # A partition of a tenant.
        Run([clique("r02t[01-03]", 500)], moved={"r02t[01-03]": "r02a"}),
    ],
    "another policy replaces a decision": [
        Run([apart(R02, 0)], policy={"tray_partitions": "keep_block"}),
        Run([], moved=IN_SIX, policy={"tray_partitions": "own_block"}),
    ],
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_names_gates_and_words(scenario: str) -> None:
    site = Scene(**SCENARIOS[scenario][0].site)
    site.discover()
    for run in SCENARIOS[scenario]:
        for event in run.events:
            event(site)
        before, site.policy = site.fabric, Policy(**{"moved_percent": 100, **run.policy})
        placement = site.discover()
        places = {name: tray["clique"] for name, tray in placement.fabric.trays.items()}
        kept = {name: tray["clique"] for name, tray in before.trays.items()}
        moved = {tray: clique for names, clique in run.moved.items() for tray in expand(names)}
        assert places == {**kept, **moved}
        assert moved.items().isdisjoint(kept.items())
        assert [row["code"] for row in placement.objections] == [*run.gates]
        for gate, trays in run.rows.items():
            assert {tray for tray, gates in placement.gates.items() if gate in gates} == {*expand(trays)}
        texts = [row["message"] for row in [*placement.objections, *placement.findings]]
        assert any(run.words in text for text in ["", *texts, *(change["why"] for change in placement.changes)])
        assert [row["block"] for row in before.cliques.values()] == [
            placement.fabric.cliques[name]["block"] for name in before.cliques
        ]


def test_the_finding_is_in_the_state_until_it_is_accepted() -> None:
    site = Scene()
    site.discover()
    accepted = site.fabric
    uuid(R01, NEW)(site)
    placement = site.discover()
    pending = mark_pending(placement.state, placement.fabric, accepted)
    assert [(row["code"], row["domain"]) for row in pending.findings] == [("domain_uuid_changed", "r01")]
    assert mark_accepted(pending, placement.fabric).findings == []


def test_an_override_of_a_rotation_is_recorded_with_what_else_changes() -> None:
    site = Scene(later="r02t06")
    site.discover()
    site.policy, before = Policy(override=["rotation_in_progress"]), site.fabric
    uuid("r01t[01-03]", NEW)(site)
    assert (site.discover().fabric, site.state_of("r01t01")) == (before, "stale")
    install(site)
    assert [row["gate"] for row in site.discover().fabric.overrides] == ["rotation_in_progress"]
