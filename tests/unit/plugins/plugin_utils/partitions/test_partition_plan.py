# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a change of NVLink partitions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import partition_plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import Objection, is_met
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.places import locate
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.wish import parse
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.partitions.partition_world import Rack
from hypothesis import given
from hypothesis import strategies as st

R01 = expand("r01t[01-18]")


def rack(racks: int = 1, trays: int = 18, split: tuple[int, ...] = (), **seen: Any) -> Rack:
    return Rack(fabrics.fabric(racks, trays, split), **seen)


def gates(objections: list[Objection]) -> list[str]:
    return [row.gate for row in objections]


def test_a_rack_is_split_by_index() -> None:
    plan, objections = rack().plan("2x9")
    assert objections == []
    after = {row["id"]: (row["trays"], row["mode"], row["limit"], row["made"]) for row in plan["after"]}
    assert after == {
        1: (R01[:9], "full_bandwidth", 512, True),
        2: (R01[9:], "full_bandwidth", 512, True),
        32766: ([], "full_bandwidth", 1024, False),
    }
    assert plan["moved"] == plan["affected"] == R01
    assert plan["clique_ids"] == {tray: 1 if tray in R01[:9] else 2 for tray in R01}
    calls = partition_plan.operations(plan)
    assert Counter(call.verb for call in calls) == {nvue.RESTORE: 72, nvue.UPDATE: 72}
    assert [call.verb for call in calls[:72]] == [nvue.RESTORE] * 72
    assert calls[72] == (nvue.UPDATE, 1, "r01t01", "1.1.1.1", "0x0000000000000001")


def test_the_sizes_of_a_shape_are_filled_in_their_order() -> None:
    plan, _objections = rack().plan([4, 4, 10])
    assert [len(row["trays"]) for row in plan["after"]] == [4, 4, 10, 0]
    assert plan["after"][2]["trays"] == R01[8:]
    assert [row["limit"] for row in plan["after"]] == [224, 224, 568, 1024]


def test_cliques_have_their_names_again() -> None:
    site = rack(2)
    first = site.fabric.members
    site.change("2x9")
    split = site.shape()
    assert split == {"r01a": R01[:9], "r01b": R01[9:]}
    back = site.change("default")
    assert site.shape() == {"r01": R01}
    assert [row["id"] for row in back["after"]] == [32766], "what this collection has created is deleted"
    site.change("2x9")
    assert site.shape() == split
    assert [call.verb for call in partition_plan.operations(site.plan("2x9")[0])] == []
    site.change("default")
    assert {name: trays for name, trays in site.fabric.members.items() if trays} == first
    site.change("2x9")
    whole = site.change("1x18")
    assert (site.shape(), whole["moved"]) == ({"r01a": R01}, R01[9:])
    site.change("2x9")
    assert site.shape() == split
    assert sorted(site.partitions) == [1, 2, 32766]


def test_an_id_is_never_reused() -> None:
    site = rack()
    site.used = {1, 3}
    site.partitions[2] = site.partition("empty", 0)
    plan, _objections = site.plan("2x9")
    assert [row["id"] for row in plan["after"] if row["trays"]] == [4, 5]
    assert 2 in [row["id"] for row in plan["after"]], "it is not ours to delete"


def test_a_shape_keeps_partitions_and_prefers_drained_and_idle_trays_to_move() -> None:
    site = rack()
    site.change([14, 4])
    assert [*map(len, site.shape().values())] == [14, 4]
    site.seen["nodes"] = {
        **dict.fromkeys(R01, "ALLOCATED"),
        "r01t03": "DRAIN+IDLE: nvlink: partition",
        "r01t05": "IDLE",
        "r01t07": "IDLE",
    }
    plan, objections = site.plan([12, 6])
    assert plan["moved"] == ["r01t03", "r01t07"]
    assert objections == []
    site.seen["nodes"] = {}
    assert site.plan([4, 12, 2])[0]["moved"] == ["r01t13", "r01t14"]


def test_the_plan_of_what_is_there_moves_nothing() -> None:
    site = rack()
    site.change([4, 14])
    plan, objections = site.plan([14, 4])
    assert (plan["moved"], plan["affected"], plan["staying"], objections) == ([], [], {}, [])
    assert plan["before"] == plan["after"]


def test_named_partitions_leave_the_other_trays_where_they_are() -> None:
    site = rack()
    wish = {"r01a": {"trays": "r01t[03-04]", "resiliency": "adaptive_bandwidth", "multicast_limit": 16}}
    plan, objections = site.plan(wish)
    assert objections == []
    assert plan["moved"] == ["r01t03", "r01t04"]
    assert plan["affected"] == R01, "the trays that stay have another IMEX list"
    assert [row["trays"] for row in plan["after"]] == [R01[2:4], R01[:2] + R01[4:]]
    assert (plan["after"][0]["mode"], plan["after"][0]["limit"]) == ("adaptive_bandwidth", 16)
    named, wrong = partition_plan.named(plan, parse({"r01": wish}, site.fabric)["r01"], site.planned(plan))
    assert (named, wrong) == (plan, [])
    site.change(wish)
    back, objections = site.plan({"r01": {"trays": "r01t[01-18]"}})
    assert (back["moved"], objections) == (["r01t03", "r01t04"], [])


def test_a_new_name_is_the_one_that_the_fabric_file_gives() -> None:
    site = rack()
    wish = {"fast": {"trays": "r01t[03-04]"}}
    plan, objections = site.plan(wish)
    assert objections == []
    named, objections = partition_plan.named(plan, parse({"r01": wish}, site.fabric)["r01"], site.planned(plan))
    assert named["after"][0]["name"] == "r01a"
    assert objections == [
        Objection(
            "clique_name",
            "nvlink_partitions.r01.fast: the fabric file gives this clique the name r01a; use that name",
        )
    ]
    shaped, objections = partition_plan.named(site.plan("2x9")[0], (), site.planned(site.plan("2x9")[0]))
    assert [row["name"] for row in shaped["after"]] == ["r01a", "r01b", "Default Partition"]


def test_a_silent_tray_moves_where_the_switch_lists_it() -> None:
    site = rack()
    site.down = {"r01t02", "r01t12"}
    site.forgotten = {"r01t12"}
    plan, objections = site.plan("2x9")
    assert objections == []
    assert plan["staying"] == {"r01t12": "no answer, and no switch lists its GPUs as it last reported them"}
    assert {row["id"]: len(row["trays"]) for row in plan["after"]} == {1: 9, 2: 8, 32766: 1}
    assert "r01t02" in plan["moved"]
    assert "r01t02" not in plan["clique_ids"]
    text = partition_plan.text(plan, site.fabric, site.planned(plan), site.read())
    assert any("without an answer: 1 tray (r01t02)" in line for line in text)
    assert any("not moved: 1 tray (r01t12): no answer" in line for line in text)
    site.change("2x9")
    assert site.shape() == {"r01": ["r01t02", "r01t12"], "r01a": [R01[0], *R01[2:9]], "r01b": R01[9:11] + R01[12:]}
    site.down, site.forgotten = set(), set()
    site.partitions[32766]["gpus"].sort()


def test_a_tray_that_moved_while_it_was_silent_is_where_the_switch_has_it() -> None:
    site = rack()
    site.down = {"r01t02"}
    site.change("2x9")
    assert "r01t02" in site.shape()["r01"], "the fabric file follows when it answers"
    assert gates(site.plan("2x9")[1]) == ["fabric_differs"], "nothing says who has moved it"
    site.seen["put"] = {tray: site.partition_of(tray) for tray in R01}
    plan, objections = site.plan("2x9")
    assert (plan["moved"], plan["affected"], objections) == ([], [], [])
    plan, objections = site.plan({"r01b": {"trays": "r01t02"}})
    assert (plan["gpus"]["r01t02"], objections) == ([[*gpu] for gpu in site.gpus("r01t02")], [])
    assert [row["trays"] for row in plan["before"]] == [R01[:9], R01[9:], []]
    site.down = set()
    assert gates(site.plan("2x9")[1]) == ["fabric_differs", "fabric_differs"], "discover helps now"
    site.down, site.seen["put"] = {"r01t02"}, {"r01t02": 2}
    assert gates(site.plan("2x9")[1]) == ["fabric_differs"]


def test_a_tray_that_stayed_moves_later() -> None:
    site = rack()
    site.down = site.forgotten = {"r01t12"}
    site.change("2x9")
    site.down = site.forgotten = set()
    plan, objections = site.plan("2x9")
    assert (plan["moved"], objections) == (["r01t12"], [])
    assert [row["trays"] for row in plan["after"]] == [R01[:9], R01[9:], []]


def test_jobs_and_other_drains_object_and_can_be_overridden() -> None:
    site = rack(
        jobs={"r01t01": ["4711"]},
        nodes={
            "r01t02": "DRAIN+IDLE: RMA 4711",
            "r01t03": "DRAIN+IDLE: nvlink: partition",
            # It is tested again, and returns.
            "r01t05": "DRAIN+IDLE: nvlink: test failed : Not responding",
        },
        compute_domains={"r01t04": ["ml/train"]},
    )
    site.partitions[32766]["health"] = "degraded"
    _plan, objections = site.plan("2x9")
    assert gates(objections) == list(partition_plan.OVERRIDES)
    assert [row.message.partition(";")[0] for row in objections] == [
        "jobs run on 1 tray (r01t01) of NVLink domain r01",
        "another reason drains 1 tray (r01t02) of NVLink domain r01",
        "ComputeDomains use 1 tray (r01t04) of NVLink domain r01",
        "NVLink partition 32766 is degraded in the mode full_bandwidth (NVLink domain r01)",
    ]
    assert site.plan("default")[1] == []


def test_gpus_do_not_leave_the_partition_of_another() -> None:
    site = rack(split=(1,))
    assert gates(site.plan("default")[1]) == ["foreign_partition"] * 2
    assert gates(site.plan([4, 14])[1]) == ["foreign_partition"]
    wish = {"r01a": {"trays": "r01t[01-10]"}}
    assert gates(site.plan(wish)[1]) == ["foreign_partition"]
    plan, objections = site.plan({**wish, "r01b": {"trays": []}})
    assert (plan["moved"], objections) == (["r01t10"], [])
    site.made = {1, 2}
    assert site.plan("default")[1] == []


def test_nothing_is_guessed_where_fabric_file_gpus_and_switch_differ() -> None:
    site = rack()
    first, second = site.gpus("r01t01")[0], site.gpus("r01t02")[0]
    swapped = [first._replace(uid=second.uid), second._replace(uid=first.uid)]
    gpus = site.partitions[32766]["gpus"]
    site.partitions[32766]["gpus"] = [*swapped, *(gpu for gpu in gpus if gpu not in (first, second))]
    seen = replace(rack().read(), partitions=site.listed(), places=locate(site.known(), site.listed()))
    wish = parse({"r01": "2x9"}, site.fabric)["r01"]
    assert gates(partition_plan.make("r01", wish, site.fabric, seen, (), ())[1]) == ["gpu_mismatch"]

    site = rack()
    site.partitions[7] = site.partition("tenant", 0)
    for gpu in site.gpus("r01t05"):
        site.partitions[32766]["gpus"].remove(gpu)
        site.partitions[7]["gpus"].append(gpu)
    assert gates(site.plan("2x9")[1]) == ["fabric_differs", "fabric_differs"]

    site = rack()
    site.partitions[32766]["gpus"].remove(site.gpus("r01t05")[1])
    assert gates(site.plan("2x9")[1]) == ["gpu_unassigned"]

    site = rack(split=(1,))
    del site.partitions[2]
    site.down = site.forgotten = set(R01[9:])
    assert gates(site.plan("3x6")[1]) == ["fabric_differs", "foreign_partition"]


def test_a_gpu_that_two_trays_report_is_nobodys() -> None:
    site = rack()
    known = site.known()
    known["r01t04"] = [*known["r01t04"][:3], known["r01t09"][3]]
    seen = replace(site.read(), places=locate(known, site.listed()))
    wish = parse({"r01": "2x9"}, site.fabric)["r01"]
    objections = partition_plan.make("r01", wish, site.fabric, seen, (), ())[1]
    assert gates(objections) == ["gpu_shared", "gpu_unknown"]
    assert objections[0].message.startswith("2 trays (r01t[04,09]) of NVLink domain r01 report the same GPU; find out")


def test_no_gpu_of_a_tray_that_moves_is_left_behind() -> None:
    site = rack()
    known = site.known()
    known["r01t03"] = known["r01t03"][:3]
    seen = replace(site.read(), places=locate(known, site.listed()))
    wish = parse({"r01": "2x9"}, site.fabric)["r01"]
    [objection] = partition_plan.make("r01", wish, site.fabric, seen, (), ())[1]
    assert objection.gate == "gpu_unknown"
    assert "lists GPUs that no tray of the plan reports (1.3.1.4 in partition 32766); repair" in objection.message
    # It is no GPU of a tray that moves.
    part = parse({"r01": {"r01a": {"trays": "r01t01"}}}, site.fabric)["r01"]
    assert partition_plan.make("r01", part, site.fabric, seen, (), ())[1] == []


def test_a_partition_with_gpus_of_nobody_is_not_deleted() -> None:
    site = rack()
    site.change("2x9")
    site.partitions[2]["gpus"].append(nvue.Gpu("", "0x00000000000000ff"))
    [objection] = site.plan("default")[1]
    assert (objection.gate, "0x00000000000000ff in partition 2" in objection.message) == ("gpu_unknown", True)
    assert site.plan([8, 10])[1] == []


def test_trays_do_not_go_to_a_default_partition_that_is_not_there() -> None:
    site = rack()
    site.change("2x9")
    del site.partitions[32766]
    assert gates(site.plan("default")[1]) == ["no_default"]
    assert site.plan([10, 8])[1] == []


def test_settings_of_a_partition_do_not_change() -> None:
    site = rack()
    site.change({"r01a": {"trays": "r01t[01-09]", "multicast_limit": 16}})
    wish = {"trays": "r01t[01-10]", "resiliency": "adaptive_bandwidth", "multicast_limit": 20}
    _plan, objections = site.plan({"r01a": wish})
    assert gates(objections) == ["partition_settings"] * 2
    assert "the partition has full_bandwidth, which a switch cannot change" in objections[0].message
    assert site.plan({"r01a": {**wish, "resiliency": "full_bandwidth", "multicast_limit": 16}})[1] == []


def test_multicast_limits_are_bounded_in_all() -> None:
    wish = {"r01a": {"trays": "r01t[01-09]", "multicast_limit": 1024}, "r01b": {"trays": "r01t[10-18]"}}
    assert gates(rack().plan(wish)[1]) == ["multicast_limits"]
    wish["r01b"]["multicast_limit"] = 0
    site = rack()
    plan, objections = site.plan(wish)
    assert objections == []
    text = "\n".join(partition_plan.text(plan, site.fabric, site.planned(plan), site.read()))
    assert "partition 2 (r01b) is created: 9 trays (r01t[10-18]), full_bandwidth, no multicast" in text
    site = rack()
    site.change([14, 4])
    plan, objections = site.plan([12, 4, 2])
    assert ([row["limit"] for row in plan["after"]], objections) == ([796, 224, 4, 1024], [])
    site = rack()
    site.change([18])
    assert gates(site.plan("2x9")[1]) == ["multicast_limits"], "the first one keeps all groups"
    site = rack(split=(1,))
    site.made = {1, 2}
    for number in (1, 2):
        site.partitions[number] |= {"name": "", "limit": 516}
    assert gates(site.plan([10, 8])[1]) == ["multicast_limits"], "both count, although they have one name"


def test_an_older_release_has_another_number_of_the_default_partition() -> None:
    site = rack()
    site.partitions[1] = site.partitions.pop(32766)
    seen = site.read()
    uuid = site.fabric.domains["r01"]["cluster_uuid"]
    seen = replace(seen, observed=dict.fromkeys(R01, (uuid, 32766)))
    wish = parse({"r01": "2x9"}, site.fabric)["r01"]
    plan, objections = partition_plan.make("r01", wish, site.fabric, seen, (), ())
    assert objections == []
    assert [(row["id"], row["default"]) for row in plan["after"]] == [(1, True), (2, False), (3, False)]
    assert partition_plan.turned(plan)["clique_ids"] == dict.fromkeys(R01, 32766), "its GPUs report the usual one"


def test_by_hand_the_fabric_file_alone_is_read() -> None:
    site = rack()
    plan, objections = site.plan("2x9", "hand")
    assert (plan["by"], objections, partition_plan.operations(plan)) == ("hand", [], [])
    assert plan["clique_ids"] == {tray: 1 if tray in R01[:9] else 2 for tray in R01}
    plan, _objections = partition_plan.named(plan, (), site.planned(plan))
    text = "\n".join(partition_plan.text(plan, site.fabric, site.planned(plan), site.read("hand")))
    assert "partition 1 (r01a) is created: 9 trays (r01t[01-09]), multicast limit 512" in text
    assert "switch: " not in text
    assert "by hand: you set the partitions on the switch" in text


def test_the_text_of_a_plan() -> None:
    site = rack(trays=4, jobs={"r01t02": ["4711", "4712"]})
    plan, _objections = site.plan("2x2")
    planned = site.planned(plan)
    plan, _objections = partition_plan.named(plan, (), planned)
    assert partition_plan.text(plan, site.fabric, planned, site.read()) == [
        "NVLink domain r01: 4 trays (r01t[01-04]) move",
        "partition 1 (r01a) is created: 2 trays (r01t[01-02]), full_bandwidth, multicast limit 512",
        "partition 2 (r01b) is created: 2 trays (r01t[03-04]), full_bandwidth, multicast limit 512",
        "clique r01: no tray in its IMEX list and block r01 at position 0",
        "clique r01a: 2 trays (r01t[01-02]) in its IMEX list and block r01a at position 1",
        "clique r01b: 2 trays (r01t[03-04]) in its IMEX list and block r01b at position 2",
        "affected: 4 trays (r01t[01-04]), since members of their cliques change",
        "jobs on r01t02: 4711, 4712",
        "switch: 32 calls, one GPU each (16 GPUs removed, 16 added), about 6 min",
    ]


def test_the_sha_covers_what_is_reviewed_and_no_more() -> None:
    site = rack()
    plan, _objections = site.plan("2x9")
    planned = site.planned(plan)

    def sha(*overridden: str, slurm: tuple[str, ...] = ()) -> str:
        again, _objections = site.plan("2x9")
        return partition_plan.sha([again], planned, overridden, slurm)

    first = sha("domain_split", "moved_percent")
    site.seen["jobs"] = {"r01t01": ["4711"]}
    site.seen["nodes"] = dict.fromkeys(R01, "ALLOCATED")
    assert sha("moved_percent", "domain_split") == first
    assert sha("moved_percent") != first
    assert sha("moved_percent", "domain_split", slurm=("block sizes: 18 -> 9",)) != first
    site.down = {"r01t01"}
    assert sha("moved_percent", "domain_split") != first
    assert json.loads(json.dumps(plan)) == plan, "the journal keeps it"


@st.composite
def shapes(draw: st.DrawFn, trays: int = 9) -> Any:
    """A wish of a domain of so many trays."""
    cuts = sorted(draw(st.sets(st.integers(1, trays - 1), max_size=4)))
    sizes = [end - start for start, end in zip([0, *cuts], [*cuts, trays], strict=True)]
    return draw(st.sampled_from(["default", sizes]))


@given(st.lists(shapes(), min_size=1, max_size=5), st.data())
def test_shapes_are_reached_with_the_fewest_moves(wishes: list[Any], data: st.DataObject) -> None:
    """Whatever came before: the sizes are right, the default ends empty, no call is refused, and it goes back."""
    site = rack(2, 9)
    for wish in wishes:
        before = {number: sorted(row["gpus"]) for number, row in site.partitions.items()}
        was = {tray: site.partition_of(tray) for tray in site.trays}
        for row in site.partitions.values():
            row["limit"] = 0
        words = st.sampled_from(["ALLOCATED", "IDLE", "DRAIN+IDLE: nvlink: partition"])
        site.seen["nodes"] = {tray: data.draw(words) for tray in site.trays}
        plan, objections = site.plan(wish)
        assert objections == []
        planned = site.planned(plan)
        plan, objections = partition_plan.named(plan, (), planned)
        site.apply(plan)
        now = Counter(site.partition_of(tray) for tray in site.trays)
        assert sorted(now.values()) == sorted([9] if wish == "default" else wish)
        assert (32766 in now) == (wish == "default")
        assert {tray: site.partition_of(tray) for tray in plan["moved"]} == plan["clique_ids"]
        assert {tray for tray in site.trays if site.partition_of(tray) != was[tray]} == set(plan["moved"])
        if wish != "default":
            old = sorted((size for number, size in Counter(was.values()).items() if number != 32766), reverse=True)
            stays = sum(map(min, old, sorted(wish, reverse=True)))
            assert len(plan["moved"]) == 9 - stays
        site.apply(partition_plan.turned(plan))
        assert {number: sorted(row["gpus"]) for number, row in site.partitions.items() if row["gpus"]} == {
            number: gpus for number, gpus in before.items() if gpus
        }
        site.apply(plan)
        site.fabric = planned
        assert is_met(parse({"r01": wish}, planned)["r01"], "r01", planned)
        assert site.plan(wish)[0]["moved"] == []


@pytest.mark.parametrize("by", ["nvue", "hand"])
@given(st.permutations(range(9)), st.sets(st.integers(0, 8)), st.sets(st.integers(0, 8)))
def test_silent_trays_stay_or_move_as_the_switch_lists_them(
    by: str, order: list[int], down: set[int], forgotten: set[int]
) -> None:
    site = rack(trays=9)
    site.down = {site.trays[at] for at in down}
    site.forgotten = {site.trays[at] for at in forgotten & down}
    plan, objections = site.plan([4, 5], by)
    assert objections == []
    assert set(plan["staying"]) == (site.forgotten if by == "nvue" else site.down)
    assert set(plan["moved"]) == set(site.trays) - set(plan["staying"])
    assert set(plan["clique_ids"]) == set(plan["moved"]) - site.down
    assert sorted(tray for row in plan["after"] for tray in row["trays"]) == site.trays
