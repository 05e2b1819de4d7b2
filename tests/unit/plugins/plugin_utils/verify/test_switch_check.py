# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layer switch: each fault of a switch is one failure. The lab's switches answer over HTTPS."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import gpu_finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import wish
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import switch_check
from hypothesis import given
from hypothesis import strategies as st

from ..clients.switch_domain import ONE, TWO, Switches
from .verify_world import World

A = ["r01t01", "r01t02", "r01t03", "r01t04"]
HOME = World()
Row = dict[str, Any]


class Rack:
    """Racks whose layers agree, and the switches of the first one."""

    def __init__(self, folder: Path) -> None:
        self.world = copy.deepcopy(HOME)
        self.switches = Switches(folder / "r01", {tray: self.world.trays[tray]["gpu"] for tray in A})
        self.kept: Row = {}

    def fault(self, name: str = ONE, /, **settings: str) -> None:
        self.switches.fault(name, **settings)

    def location(self, tray: str, number: int = 0) -> str:
        gpu = self.world.gpus(tray)[number]
        facts = self.world.trays[tray]["gpu"]
        return f"1.{facts['slot_number']}.{facts['host_id']}.{gpu['module_id']}"

    def verdict(self, **changes: Any) -> Row:
        reports = [self.switches.report(ONE), self.switches.report(TWO)]
        evidence = self.world.evidence(**{"switches": {"r01": reports}, "switch_before": self.kept, **changes})
        self.kept = switch_check.memory(evidence)
        return self.world.verdict(**{"switches": {"r01": reports}, "switch_before": self.kept, **changes})

    def in_progress(self, tray: str, number: int) -> None:
        """What a GPU reports that is in no partition."""
        note = worded(gpu_finding("fabric_in_progress", "", number, host=""))
        self.world.trays[tray]["findings"].append({**note, "part": "gpu"})
        facts = self.world.trays[tray]["gpu"]
        self.world.gpus(tray)[number]["fabric"].update(state="in_progress", cluster_uuid=None, clique_id=None)
        facts.update(attached=False, cluster_uuid=None, clique_id=None, clique=None)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PAUSE", 0.01)


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    made = Rack(tmp_path)
    yield made
    made.switches.stop()


def rows(verdict: Row) -> list[tuple[str, str, str]]:
    return [(row["layer"], row["code"], row["severity"]) for row in verdict["failures"]]


def test_switches_and_fabric_file_agree(rack: Rack) -> None:
    verdict = rack.verdict()
    assert (rows(verdict), verdict["layers"]["switch"]) == ([], "checked")


def test_a_site_without_switches_skips_the_layer_with_a_reason(rack: Rack) -> None:
    verdict = rack.verdict(switches=None)
    assert verdict["layers"]["switch"] == "skipped: the inventory has no NVLink switch"
    assert rows(verdict) == []


FAULTS: dict[str, tuple[Callable[[Rack], object], str, str, str]] = {
    "silent": (
        lambda rack: rack.fault(answer="none"),
        "switch_unreadable",
        "warning",
        "1 of 2 switches of NVLink domain r01 cannot be read (r01sw1), and no other one runs the controller:",
    ),
    "second_silent": (
        lambda rack: rack.fault(TWO, answer="none"),
        "switch_unreadable",
        "warning",
        "1 of 2 switches of NVLink domain r01 cannot be read (r01sw2): r01sw2: https://",
    ),
    "wrong_password": (lambda rack: rack.fault(login="x"), "switch_unreadable", "warning", "rejects the credentials"),
    "null": (
        lambda rack: rack.fault(answer="null"),
        "switch_unreadable",
        "warning",
        "answers null",
    ),
    "other_release": (
        lambda rack: rack.fault(answer="other"),
        "switch_unreadable",
        "warning",
        "NVOS 25.02.9999-standin",
    ),
    "configuration": (
        lambda rack: rack.fault(answer="configuration"),
        "switch_controller_down",
        "warning",
        "runs on none of its switches",
    ),
    "expired": (
        lambda rack: rack.fault(certificate="expired"),
        "switch_unreadable",
        "warning",
        "certificate has expired",
    ),
    "expires": (
        lambda rack: rack.fault(certificate="soon"),
        "switch_certificate_expires",
        "warning",
        "The certificate of r01sw1 of NVLink domain r01 expires in 9 days.",
    ),
    "unconfigured": (
        lambda rack: rack.fault(controller="ERROR"),
        "switch_controller_down",
        "warning",
        "runs on none of its switches (r01sw1: ERROR, status ok, r01sw2: no controller).",
    ),
    "corrupted": (
        lambda rack: rack.fault(reason="DB_CORRUPTED"),
        "switch_controller_down",
        "warning",
        "reports a fault (r01sw1: CONFIGURED, status not ok, DB_CORRUPTED).",
    ),
    "parked": (
        lambda rack: rack.fault(health="DEGRADED"),
        "switch_partition_degraded",
        "warning",
        "is degraded in the mode full_bandwidth: GPUs without all their NVLinks are parked",
    ),
    "less_bandwidth": (
        lambda rack: rack.fault(health="DEGRADED_BANDWIDTH", mode="adaptive_bandwidth"),
        "switch_partition_degraded",
        "warning",
        "jobs run on all GPUs with less bandwidth",
    ),
    "waits": (
        lambda rack: rack.fault(health="DEGRADED_BANDWIDTH", mode="USER_ACTION"),
        "switch_partition_degraded",
        "warning",
        "the switch waits for a person who decides",
    ),
    "unhealthy": (
        lambda rack: rack.fault(health="UNHEALTHY"),
        "switch_partition_degraded",
        "error",
        "no job may run there",
    ),
    "multicast": (
        lambda rack: rack.fault(mcast_limit="0"),
        "switch_multicast_limit",
        "warning",
        "Switch r01sw1: NVLink partition 32766 of r01 has a multicast limit of 0",
    ),
    "unassigned": (
        lambda rack: rack.fault(out=rack.location(A[1])),
        "switch_gpu_unassigned",
        "error",
        "lists 1 GPU of 1 tray (r01t02) of NVLink domain r01 in no NVLink partition.",
    ),
    "swapped": (
        lambda rack: rack.fault(swap=f"{rack.location(A[0])},{rack.location(A[3], 2)}"),
        "switch_gpu_mismatch",
        "warning",
        "Switch r01sw1 lists GPUs of NVLink domain r01 otherwise: r01t01: 0x",
    ),
    "two_controllers": (
        lambda rack: rack.fault(TWO, controller="CONFIGURED"),
        "switches_disagree",
        "error",
        "r01sw1 and r01sw2 of NVLink domain r01 both run the controller, and list different",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_switch_is_one_failure_of_its_domain(rack: Rack, name: str) -> None:
    change, code, severity, words = FAULTS[name]
    change(rack)
    rack.switches.domain.tick()
    verdict = rack.verdict()
    assert rows(verdict) == [("switch", code, severity)]
    [row] = verdict["failures"]
    assert words in row["message"]
    assert (row["tray"], row["clique"]) == (None, "r01")
    assert row["remediation"]
    assert verdict["ok"] is (severity != "error")


def renumbered(rack: Rack, number: str) -> None:
    """The switch lists the partition of the default clique by another number, and not by its name."""
    rack.fault(renumber=number, name="all")


def test_a_partition_with_another_number_quotes_both_sides(rack: Rack) -> None:
    renumbered(rack, "7")
    verdict = rack.verdict()
    assert rows(verdict) == [("switch", "switch_partition_differs", "error")]
    [row] = verdict["failures"]
    assert row["trays"] == A
    assert row["message"] == (
        "Switch r01sw1 lists r01t[01-04] in NVLink partition 7, the fabric file has clique r01 (32766), and the GPUs"
        " report clique ID 32766. The GPUs decide where a job can run now, the switch what they join after a reset."
    )


def test_the_default_partition_of_an_older_release_has_another_number(rack: Rack) -> None:
    rack.fault(renumber="1")
    assert rows(rack.verdict()) == []


def test_a_change_that_the_gpus_follow_is_the_failure_of_the_fabric_file(rack: Rack) -> None:
    renumbered(rack, "7")
    rack.world.attach(A, rack.world.identity("r01")[0], 7, labelled=True)
    assert [code for _layer, code, _severity in rows(rack.verdict())] == ["clique_id_changed"]


def test_a_switch_explains_the_failures_of_its_trays(rack: Rack) -> None:
    for tray in A[:2]:
        rack.in_progress(tray, 0)
    rack.fault(out=rack.location(A[0]))
    rack.switches.domain.tick()
    rack.fault(out=rack.location(A[1]))
    rack.switches.domain.tick()
    verdict = rack.verdict(slurm=None, kubernetes=None)
    assert rows(verdict) == [("switch", "switch_gpu_unassigned", "error")]
    assert verdict["failures"][0]["trays"] == A[:2]


def test_a_controller_that_is_down_takes_the_severity_of_what_it_explains(rack: Rack) -> None:
    for tray in A:
        rack.in_progress(tray, 0)
    rack.fault(controller="OFFLINE")
    verdict = rack.verdict(slurm=None, kubernetes=None)
    assert rows(verdict) == [("switch", "switch_controller_down", "error")]


def test_links_that_fail_are_a_failure_beside_the_degraded_partition(rack: Rack) -> None:
    rack.fault(health="DEGRADED")
    rack.world.report(A[0], "gpu", "fabric_degraded", "nvlink_links_down")
    found = [code for _layer, code, _severity in rows(rack.verdict())]
    assert found == ["switch_partition_degraded", "nvlink_links_down"]


def test_a_tray_without_power_is_compared_by_what_it_reported_before(rack: Rack) -> None:
    rack.verdict()
    renumbered(rack, "7")
    for tray in A:
        del rack.world.trays[tray]
        rack.world.unreachable[tray] = "No route to host"
    verdict = rack.verdict(slurm=None, kubernetes=None)
    assert ("switch", "switch_partition_differs", "error") in rows(verdict)
    assert "and no tray answers" in verdict["failures"][0]["message"]
    quick = rack.verdict(quick=True, reports={}, slurm=None, kubernetes=None)
    assert "and no tray was asked" in quick["failures"][0]["message"]
    # Without the last verdict nothing is known of its GPUs, and nothing is guessed.
    rack.kept = {}
    assert {layer for layer, _code, _severity in rows(rack.verdict(slurm=None, kubernetes=None))} == {"hardware"}


def report_of(gpus: list[nvue.Gpu]) -> nvue.Report:
    partition = nvue.Partition(32766, "default", "healthy", "full_bandwidth", 16, tuple(gpus))
    return nvue.Report(ONE, controller=nvue.Controller("CONFIGURED", "ok", ""), partitions=(partition,))


def test_gpus_with_numbers_that_no_tray_reports_are_not_called_unassigned(rack: Rack) -> None:
    def failures(gpus: list[nvue.Gpu]) -> list[tuple[str, str]]:
        evidence = rack.world.evidence(switches={"r01": [report_of(gpus)]})
        return [(row["code"], row["message"]) for row in switch_check.check(evidence)]

    strange = [
        nvue.Gpu(f"1.{slot}.1.{module}", f"0x9{slot}{module}") for slot in range(101, 105) for module in range(4)
    ]
    assert failures(strange) == [
        (
            "switch_gpu_mismatch",
            "Switch r01sw1 lists 16 GPUs with numbers and places that no tray of NVLink domain r01 reports, and lacks"
            " 16 GPUs of 4 trays (r01t[01-04]).",
        )
    ]
    # The GPUs of a silent tray, of which nothing was kept, are no strange ones.
    own = [nvue.Gpu("", nvue.uid(gpu["uuid"])) for tray in A[1:] for gpu in rack.world.gpus(tray)]
    del rack.world.trays[A[0]]
    rack.world.unreachable[A[0]] = "No route to host"
    assert failures([*strange[:4], *own]) == []
    [(code, _message)] = failures([*strange[:4], *own[1:]])
    assert code == "switch_gpu_unassigned"


def test_partitions_with_one_fault_are_one_failure(rack: Rack) -> None:
    gpu = (nvue.Gpu("1.10.1.1", ""),)
    rows = [nvue.Partition(number, f"t{number}", "unhealthy", "full_bandwidth", 0, gpu) for number in range(1, 19)]
    report = replace(report_of([]), partitions=tuple(rows))
    found = list(switch_check.check(rack.world.evidence(switches={"r01": [report]})))
    texts = {row["code"]: row["message"] for row in found}
    assert len(found) == len(texts)
    assert (
        "NVLink partitions 1, 2, 3, 4, 5 and 13 more of r01 are unhealthy in the" in texts["switch_partition_degraded"]
    )
    assert "NVLink partitions 1, 2, 3, 4, 5 and 13 more of r01 have a multicast" in texts["switch_multicast_limit"]


def test_named_partitions_are_compared_by_multicast_limit_and_mode(rack: Rack) -> None:
    gpu = (nvue.Gpu("", ""),)
    rows = [
        nvue.Partition(32766, "Default", "healthy", "full_bandwidth", 16, gpu),
        nvue.Partition(1, "r01a", "healthy", "user_action", 16, ()),
        nvue.Partition(2, "r01b", "healthy", "full_bandwidth", None, gpu),
    ]
    report = replace(report_of([]), partitions=tuple(rows))

    def failures(**wanted: Any) -> list[tuple[str, str]]:
        evidence = rack.world.evidence(switches={"r01": [report]}, wishes=wish.parse({"r01": wanted}, HOME.fabric))
        # What the fabric file has of the trays is not of interest here.
        rows = [row for row in switch_check.check(evidence) if row["code"] != "switch_gpu_mismatch"]
        return [(row["code"], row["message"]) for row in rows]

    whole: Row = {"trays": "r01t[01-04]"}
    # A clique that the fabric file does not have yet has no partition.
    assert failures(r01=whole, new={"trays": [], "multicast_limit": 1024, "resiliency": "full_bandwidth"}) == []
    assert failures(r01={**whole, "multicast_limit": 16, "resiliency": "full_bandwidth"}) == []
    assert failures(r01={**whole, "multicast_limit": 20, "resiliency": "adaptive_bandwidth"}) == [
        (
            "switch_partition_mode",
            "Switch r01sw1: NVLink partition 32766 of r01 has the mode full_bandwidth, and nvlink_partitions has"
            " adaptive_bandwidth.",
        ),
        (
            "switch_multicast_limit",
            "Switch r01sw1: NVLink partition 32766 of r01 has a multicast limit of 16, and nvlink_partitions has 20.",
        ),
    ]
    # A limit of 0 is a fault where it is not wanted, and an older release has another word for the mode.
    report = replace(report, partitions=(rows[0]._replace(multicast_limit=0, mode="user_action"), *rows[1:]))
    assert failures(r01={**whole, "multicast_limit": 0, "resiliency": "user_action_required"}) == []
    assert [code for code, _message in failures(r01=whole)] == ["switch_multicast_limit"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(kept=st.dictionaries(st.sampled_from([*A, "gone"]), JSON))
def test_any_content_of_the_last_verdict_is_read(kept: Row) -> None:
    world = copy.deepcopy(HOME)
    del world.trays[A[0]]
    report = nvue.Report("sw1", controller=nvue.Controller("CONFIGURED", "ok", ""))
    list(switch_check.check(world.evidence(switches={"r01": [report]}, switch_before=kept)))
    switch_check.memory(world.evidence(switches={"r01": [report]}, switch_before=kept))


WORDS = st.sampled_from(["healthy", "unhealthy", "degraded", "", "x;y"])
PLACES, UIDS = st.sampled_from(["", "1.10.1.1", "1.10.1.2", "2.10.1.1"]), st.sampled_from(["", "0x1", "0x2"])
GPUS = st.builds(nvue.Gpu, PLACES, UIDS)
PARTITIONS = st.builds(
    nvue.Partition, st.integers(0, 32767), WORDS, WORDS, WORDS, st.none() | st.integers(0, 9), st.lists(GPUS).map(tuple)
)
CONTROLLERS = st.builds(nvue.Controller, st.sampled_from(["CONFIGURED", "DEGRADED", "ERROR", ""]), WORDS, WORDS)
REPORTS = st.builds(
    nvue.Report,
    st.sampled_from([ONE, TWO]),
    st.sampled_from(["", f"{ONE}: it is off"]),
    st.none() | st.floats(-9, 99),
    st.just(nvue.NO_CONTROLLER) | CONTROLLERS,
    st.lists(PARTITIONS, max_size=3).map(tuple),
)


@given(reports=st.lists(REPORTS, min_size=1, max_size=3))
def test_whatever_switches_report_is_about_their_domain_alone(reports: list[nvue.Report]) -> None:
    for row in switch_check.check(HOME.evidence(switches={"r01": reports})):
        assert row["layer"] == "switch"
        assert set(row["trays"]) <= set(A)
        assert row["message"].endswith(".")
