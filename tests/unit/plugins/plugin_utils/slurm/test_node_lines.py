# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes of a new Slurm cluster: every node of the fabric file, also of trays that did not answer."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster, hardware
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_step import ARGUMENTS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import measured, node_lines
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.measured import Trays
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.node_lines import Rendered
from hypothesis import given
from hypothesis import strategies as st

from ..fabrics import GRACE, fabric

OTHER = {**GRACE, "RealMemory": 1024000}
SITE = {key: specification.get("default") for key, specification in ARGUMENTS.items()}


def rendered(
    of: Fabric,
    hardware_of: dict[str, Any],
    before: Rendered | None = None,
    site: dict[str, Any] = SITE,
) -> Rendered:
    return node_lines.render(site, node_lines.nodes_of(of, None, Trays()), Trays(hardware_of), files(before))


def files(made: Rendered | None) -> dict[str, str]:
    """The files of slurmctld with what they have of the trays."""
    if made is None:
        return {}
    conf = f"DefMemPerCPU={made.memory_per_cpu}\nSwitchParameters=imex_channel_count={made.channels}\n"
    return {cluster.NODES: made.lines, cluster.CONF: conf}


def lines(made: Rendered) -> list[str]:
    return made.lines.splitlines()[1:]


def test_trays_of_one_kind_are_one_line_a_clique() -> None:
    of = fabric(racks=2, split=())
    made = rendered(of, dict.fromkeys(of.trays, GRACE))
    assert lines(made) == [
        f"NodeName={rack}t[01-18] CPUs=144 Boards=1 SocketsPerBoard=2 CoresPerSocket=72 ThreadsPerCore=1"
        " RealMemory=877568 Gres=gpu:4"
        for rack in ("r01", "r02")
    ]
    assert made.gpus == {"r01t[01-18]": 4, "r02t[01-18]": 4}
    assert made.findings == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "Features={}"),
        ({"Weight": 2}, "Weight=2 Features={}"),
        ({"Feature": "gb200, fast"}, "Feature=gb200,fast,{}"),
        # Each once.
        ({"FEATURES": "r01,r02a,r02", "Weight": 2}, "FEATURES=r01,r02a,r02{} Weight=2"),
    ],
)
def test_features_of_rack_and_clique_follow_the_sites(given: dict[str, Any], expected: str) -> None:
    of = fabric(racks=2, split=(2,))
    site = {**SITE, "node": given}
    nodes = node_lines.nodes_of(of, None, Trays(), features=True)
    made = node_lines.render(site, nodes, Trays(dict.fromkeys(of.trays, GRACE)), {})
    words = ("", "", ",r02b") if "FEATURES" in given else ("r01", "r02,r02a", "r02,r02b")
    for line, place in zip(lines(made), words, strict=True):
        assert line.endswith(f" {expected.format(place)}")
    assert "r02a" not in "".join(lines(rendered(of, dict.fromkeys(of.trays, GRACE)))).lower()


def test_a_run_of_one_tray_changes_the_line_of_that_tray_alone() -> None:
    of = fabric(racks=1)
    before = rendered(of, dict.fromkeys(of.trays, GRACE))
    assert rendered(of, {}, before) == before
    made = rendered(of, {"r01t03": OTHER}, before)
    records = hardware.parse_nodes(made.lines)
    assert records.pop("r01t03") == OTHER
    assert set(records) == {*of.trays} - {"r01t03"}
    assert all(record == GRACE for record in records.values())


def test_a_tray_that_never_answered_gets_the_hardware_of_its_clique() -> None:
    of = fabric(racks=2)
    answered = {**dict.fromkeys(of.cliques and of.members["r01"], GRACE), "r02t01": OTHER, "r02t03": OTHER}
    records = hardware.parse_nodes(rendered(of, answered).lines)
    assert set(records) == set(of.trays)
    assert records["r02t02"] == OTHER, "its clique's, not the most common one"
    assert records["r02t18"] == GRACE, "no tray of its clique answered"
    found = rendered(of, answered).findings
    assert {row["code"] for row in found} == {"slurm_hardware_assumed"}
    assert len(found) == 16


def test_without_any_measurement_nothing_is_invented() -> None:
    with pytest.raises(SlurmError, match="The hardware of no tray is known"):
        rendered(fabric(racks=1), {})


CHANNELS = "SwitchParameters=imex_channel_count="


@pytest.mark.parametrize(
    ("driver_counts", "before", "settings", "channels", "few"),
    [
        ((2048, 2048), "", {}, 2047, []),
        ((2048, 512), "", {}, 511, []),
        ((), f"{CHANNELS}64,imex_dev_major=4\n", {}, 64, []),
        ((1, 0), f"{CHANNELS}x\n", {}, 2047, ["r01t01", "r01t02"]),
        ((2048, 64), "", {"imex_channel_count": 64}, 64, ["r01t02"]),
        # Slurm never uses channel 0, and this driver has no other: none of Slurm's numbers exists there.
        ((1,), "", {}, 2047, ["r01t01"]),
        ((0,), "", {"imex": False}, 2047, []),
        ((18,), "", {}, 17, [""]),
        # The one that is left next to channel 0 is one that Slurm before 25.11 does not assign.
        ((2,), "", {}, 1, [""]),
        # A smaller driver changes no other tray, and what an earlier release has made of such a tray does not stay.
        ((2048, 2, *[2048] * 16), "", {}, 2047, ["r01t02"]),
        ((2048, 2, *[2048] * 16), f"{CHANNELS}1\n", {}, 2047, ["r01t02"]),
    ],
)
def test_channels_fit_most_drivers_and_serve_the_cluster_or_are_findings(
    driver_counts: tuple[int, ...], before: str, settings: dict[str, Any], channels: int, few: list[str]
) -> None:
    of = fabric(racks=1)
    trays = Trays(dict.fromkeys(of.trays, GRACE), dict(zip(of.trays, driver_counts, strict=False)))
    nodes = node_lines.nodes_of(of, None, Trays())
    made = node_lines.render({**SITE, **settings}, nodes, trays, {cluster.CONF: before})
    assert made.channels == channels
    assert [(row["code"], row.get("tray") or "") for row in made.findings] == [
        ("slurm_channels_few", tray) for tray in few
    ]


def test_the_sites_keys_are_on_every_line() -> None:
    of = fabric(racks=1)
    site = {**SITE, "node": {"Weight": 10, "Drain": True}, "gpu_type": "gb200"}
    made = rendered(of, dict.fromkeys(of.trays, GRACE), site=site)
    assert lines(made)[0].endswith("Gres=gpu:gb200:4 Weight=10 Drain=YES")
    assert made.memory_per_cpu == 6094
    made = rendered(of, dict.fromkeys(of.trays, GRACE), site={**SITE, "gres": "none"})
    assert "Gres" not in made.lines


def test_addresses_are_in_the_order_of_their_names() -> None:
    of = fabric(racks=2)
    addresses = {name: f"198.51.100.{number}" for number, name in enumerate(of.trays, 11) if name.startswith("r01")}
    nodes = node_lines.nodes_of(of, None, Trays(addresses=addresses), addresses=True)
    made = node_lines.render(SITE, nodes, Trays(dict.fromkeys(of.trays, GRACE)), {})
    first, *others = lines(made)
    names, given = (
        dict(word.split("=") for word in first.split()[:2])[key].split(",") for key in ("NodeName", "NodeAddr")
    )
    assert dict(zip(names, given, strict=True)) == addresses
    assert all("NodeAddr" not in line for line in others)


ODD = "r01t02"
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
RECORDS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(hardware.KEYS, st.integers(-2, 10_000_000) | st.integers() | VALUES)
)
ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "hardware": RECORDS | VALUES | st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
        "channel_count": st.integers(0, 4096) | VALUES | RECORDS,
    },
)


def slurm(of: Fabric, answers: dict[str, Any], before: Rendered | None) -> Rendered:
    """The files of a run with these answers of trays."""
    trays = Trays()
    for tray, answer in answers.items():
        record, count, _findings = measured.accepted(tray, answer)
        trays.measured.update({tray: record} if record is not None else {})
        trays.channels.update({tray: count} if count is not None else {})
    return node_lines.render(SITE, node_lines.nodes_of(of, None, Trays()), trays, files(before))


HONEST = {"hardware": GRACE, "channel_count": 2048}


@given(ANSWERS, st.booleans(), st.booleans())
def test_any_answer_of_one_tray_changes_nothing_of_the_others(
    answer: dict[str, Any], is_first_run: bool, is_alone: bool
) -> None:
    of = fabric(racks=1, trays=4, split=())
    honest = dict.fromkeys(of.trays, HONEST)
    expected = slurm(of, honest, None)
    others = {ODD: answer} if is_alone and not is_first_run else {**honest, ODD: answer}
    made = slurm(of, others, None if is_first_run else expected)
    assert (files(made)[cluster.CONF], made.gpus) == (files(expected)[cluster.CONF], expected.gpus)
    records = hardware.parse_nodes(made.lines)
    assert set(records) == set(of.trays)
    mine = records.pop(ODD)
    assert all(record == GRACE for record in records.values())
    assert all(0 < value <= measured.MAX_MEMORY for value in mine.values())
    # Healed by the next honest run.
    assert hardware.parse_nodes(slurm(of, honest, made).lines)[ODD] == GRACE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"CPUs": None}, "CPUs is not a number from 1 to 8192"),
        ({"CPUs": 0}, "CPUs is not a number from 1 to 8192"),
        ({"RealMemory": 1}, "1 MiB of memory for 144 CPUs"),
        # Each fits its field of 16 bits, and slurmctld would keep a bit for each of 67 million cores.
        ({"SocketsPerBoard": 8192, "CoresPerSocket": 8192}, "144 CPUs of 67108864 hardware threads"),
        ({"CPUs": 145}, "145 CPUs of 144 hardware threads"),
        ({}, "no possible number of IMEX channels"),
    ],
)
def test_impossible_hardware_is_a_finding_of_its_tray(change: dict[str, Any], words: str) -> None:
    record, count, findings = measured.accepted(ODD, {"hardware": {**GRACE, **change}, "channel_count": -1})
    assert (record, count) == (None, None)
    assert [(row["code"], row["tray"]) for row in findings] == [("slurm_hardware_assumed", ODD)]
    assert words in findings[0]["message"]


def test_real_hardware_is_accepted() -> None:
    without_slurmd = {"hardware": None, "channel_count": None}
    assert measured.accepted(ODD, HONEST) == (GRACE, 2048, [])
    assert measured.accepted(ODD, without_slurmd) == (None, None, [])
    virtual = {**GRACE, "CPUs": 2, "SocketsPerBoard": 1, "CoresPerSocket": 1, "ThreadsPerCore": 2, "RealMemory": 980}
    assert measured.accepted(ODD, {"hardware": virtual})[0] == virtual
