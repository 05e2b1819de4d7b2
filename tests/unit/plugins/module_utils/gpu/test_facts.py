# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import child, interfaces
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants, nvidia_smi, nvml
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import facts as fabric_facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import Readings, unknown_gpu
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.tests.lab.nvml import standin_text
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays
from hypothesis import given
from hypothesis import strategies as st

PLACE = ("attached", "cluster_uuid", "clique_id", "clique")
NOWHERE = (False, None, None, None)


def _assemble(readings: Readings | None, **changes: Any) -> dict[str, Any]:
    given_ = {
        "backend": "nvml",
        "observed_at": "2026-01-01T00:00:00Z",
        "hostname": "r01t01",
        "addresses": [],
        **changes,
    }
    return fabric_facts.assemble(readings, **given_)


def _of_xml(facts: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return _assemble(nvidia_smi.parse_xml(standin_text.smi_text(facts)), **changes)


def _place(facts: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(facts[key] for key in PLACE)


# --- The findings of a tray.


def test_a_tray_with_gpus_that_the_backend_left_out_is_not_attached() -> None:
    readings = nvidia_smi.parse_xml(trays.smi())
    readings.complete = False
    assert _place(_assemble(readings)) == NOWHERE


@pytest.mark.parametrize(
    ("tray", "expected"),
    [
        ({"name": "hgx_h100"}, ["gpu_lost", "fabric_not_supported"]),
        ({"name": "hgx_b200"}, ["fabric_not_supported"]),
        ({"name": "l40s"}, ["fabric_not_supported"]),
        ({"lost": 1}, ["gpu_lost"]),
        ({"name": "refused"}, ["fabric_refused"] * 2),
        ({"name": "in_progress"}, ["fabric_in_progress"] * 2),
    ],
)
def test_a_tray_that_is_not_attached_has_a_finding_with_the_reason(tray: dict[str, Any], expected: list[str]) -> None:
    facts = _assemble(nvidia_smi.parse_xml(trays.smi(**tray)))
    assert trays.codes(facts) == expected
    assert _place(facts) == NOWHERE
    assert facts["gpu_count"] == len(facts["gpus"]) > 0


def _change(gpu: int, *path: str, value: Any) -> dict[str, Any]:
    facts = trays.tray()
    target = facts["gpus"][gpu]
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return facts


@pytest.mark.parametrize(
    ("path", "value", "code", "attached"),
    [
        (("fabric", "state"), "not_started", "fabric_not_started", False),
        (("fabric", "state"), "in_progress", "fabric_in_progress", False),
        (("fabric", "status"), "unknown_error", "fabric_refused", False),
        (("fabric", "state"), "not_supported", "gpus_partly_attached", False),
        (("fabric", "clique_id"), 4, "gpus_disagree", False),
        (("fabric", "cluster_uuid"), "11111111-2222-3333-4444-555555555555", "gpus_disagree", False),
        (("fabric", "cluster_uuid"), None, "gpus_disagree", False),
        (("fabric", "health", "summary"), "unhealthy", "fabric_unhealthy", True),
        (("fabric", "health", "summary"), "limited_capacity", "fabric_degraded", True),
        (("fabric", "health", "degraded_bandwidth"), True, "fabric_degraded", True),
        (("fabric", "health", "route_unhealthy"), True, "fabric_unhealthy", True),
        (("fabric", "health", "route_recovery"), True, "fabric_recovering", True),
        (("fabric", "health", "access_timeout_recovery"), True, "fabric_recovering", True),
        (("fabric", "health", "incorrect_configuration"), "no_partition", "fabric_refused", True),
        (("fabric", "health", "partition_assigned"), False, "fabric_no_partition", True),
        (("fabric", "health", "fabric_manager_connected"), False, "fabric_manager_disconnected", True),
        (("mig_enabled",), True, "mig_enabled", True),
        (("recovery_action",), "recover_imex_domain", "recovery_action", True),
    ],
)
def test_one_bad_gpu_is_one_finding(
    standin: Callable[..., Path], path: tuple[str, ...], value: Any, code: str, attached: bool
) -> None:
    changed = _change(2, *path, value=value)
    facts = _of_xml(changed)
    standin(changed)
    assert _assemble(nvml.read(20)) == facts
    assert trays.codes(facts) == [code]
    assert facts["findings"][0]["gpu"] == (None if code.startswith("gpus_") else 2)
    assert facts["attached"] is attached
    if not attached:
        assert _place(facts) == NOWHERE
        assert facts["chassis_serial"] is not None


def _all(**fabric: Any) -> dict[str, Any]:
    facts = trays.tray()
    for gpu in facts["gpus"]:
        gpu["fabric"].update(fabric)
    return facts


@pytest.mark.parametrize(
    ("state", "gpus", "platform", "code"),
    [
        ("not_supported", 4, {}, "fabric_missing"),
        ("not_supported", 1, {}, "fabric_not_supported"),
        ("not_supported", 4, {"chassis_serial": None}, "fabric_not_supported"),
        # With a cluster UUID of zero.
        ("completed", 4, {}, "fabric_uuid_zero"),
        ("completed", 4, {"chassis_serial": None}, "fabric_not_supported"),
    ],
)
def test_gpus_without_a_fabric_are_a_fault_of_a_whole_tray_of_a_rack(
    state: str, gpus: int, platform: dict[str, Any], code: str
) -> None:
    """A virtual machine with one GPU, PCIe cards and HGX baseboards have none."""
    lacks = {"status": None, "clique_id": None} if state == "not_supported" else {}
    tray = _all(state=state, cluster_uuid=None, **lacks)
    found = _of_xml({**tray, "gpus": tray["gpus"][:gpus], "gpu_count": gpus, **platform})
    assert (trays.codes(found), found["attached"]) == ([code], False)


def test_healthy_masks_are_no_finding() -> None:
    """0xaa and 0x1aa are healthy (test_nvml decodes them); no health at all, as older drivers give, is no finding."""
    unknown = unknown_gpu(0)["fabric"]["health"]
    facts = _of_xml(_all(health=unknown))
    assert (facts["attached"], facts["findings"]) == (True, [])
    clear = {**unknown, **dict.fromkeys(("degraded_bandwidth", "route_recovery", "route_unhealthy"), False)}
    assert _of_xml(_all(health=clear))["findings"] == []


def test_gpus_of_one_tray_in_different_chassis_leave_it_unknown() -> None:
    text = trays.smi().replace("1825000000417", "1825000000999", 1).replace(">14<", ">15<", 1)
    facts = _assemble(nvidia_smi.parse_xml(text))
    assert trays.codes(facts) == ["unusable_value", "unusable_value"]
    assert (facts["chassis_serial"], facts["slot_number"], facts["tray_index"]) == (None, None, 4)
    assert facts["attached"]


def test_without_gpus_the_count_is_0_with_a_finding() -> None:
    facts = _assemble(Readings(driver_version="580.1"))
    assert (facts["gpu_count"], trays.codes(facts), _place(facts)) == (0, ["no_gpu"], NOWHERE)


@pytest.mark.parametrize(
    ("kind", "ids", "words"),
    [
        ("unicast_pointer", [[7], [7]], ""),
        # Hopper has no logical endpoints; one clique in common is enough.
        ("multicast_pointer", [[1, 2], [2]], ""),
        ("multicast_pointer", [[1], [2]], "for multicast pointer operations (1 GPU in 1; 1 GPU in 2); check"),
        ("multicast_logical_endpoint", [[1], []], "logical endpoint operations (1 GPU in none; 1 GPU in 1); check"),
    ],
)
def test_gpus_that_share_only_some_operations_are_reported(kind: str, ids: list[list[int]], words: str) -> None:
    readings = nvidia_smi.parse_xml(standin_text.smi_text(trays.tray(gpus_per_tray=2)))
    for gpu, of_gpu in zip(readings.gpus, ids, strict=True):
        gpu["fabric"]["cliques"] = {name: [] for name, _text in constants.CLIQUE_TYPES.values()} | {kind: of_gpu}
    found = _assemble(readings)
    assert found["attached"]
    assert trays.codes(found) == (["fabric_cliques_smaller"] if words else [])
    assert all(words in worded(row)["message"] for row in found["findings"])


@pytest.mark.parametrize("name", ["l40s", "hgx_b200"])
def test_mig_is_no_finding_without_a_multi_node_fabric(name: str) -> None:
    readings = nvidia_smi.parse_xml(trays.smi(name))
    for gpu in readings.gpus:
        gpu["mig_enabled"] = True
    assert "mig_enabled" not in trays.codes(_assemble(readings))


@pytest.mark.parametrize("hostname", ["", "{{ x }}", "a" * 300, None])
def test_a_hostile_hostname_is_null_and_a_finding(hostname: Any) -> None:
    facts = _assemble(nvidia_smi.parse_xml(trays.smi()), hostname=hostname)
    assert facts["hostname"] is None
    assert trays.codes(facts) == ["unusable_value"]


# --- Both backends, one tray.

NO_PLACE = dict.fromkeys(("chassis_serial", "slot_number", "tray_index", "host_id"))


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({}, ()),
        ({}, (0, 2)),
        ({}, (0, 1, 2, 3)),
        ({"driver_version": None, "chassis_serial": None}, ()),
        ({"chassis_serial": "1234567890123456", "slot_number": 255, "tray_index": 255, "host_id": 255}, ()),
        ({"gpus": [], "gpu_count": 0, **NO_PLACE}, ()),
    ],
)
def test_both_backends_give_the_same_facts(
    standin: Callable[..., Path], changes: dict[str, Any], lost: tuple[int, ...]
) -> None:
    facts = {**trays.tray(), **changes}
    standin(facts, lost=lost)
    by_nvml = _assemble(nvml.read(20))
    assert by_nvml == _assemble(nvidia_smi.parse_xml(standin_text.smi_text(facts, lost=lost)))
    nothing = {key: value for key, value in unknown_gpu(0).items() if key != "platform"}
    assert by_nvml["gpus"] == [
        {**nothing, "index": gpu["index"]} if gpu["index"] in lost else gpu for gpu in facts["gpus"]
    ]
    if not lost and facts["gpus"]:
        assert {key: by_nvml[key] for key in (*PLACE, *NO_PLACE)} == {key: facts[key] for key in (*PLACE, *NO_PLACE)}


def test_both_backends_have_one_word_for_each_value_of_a_driver(standin: Callable[..., Path]) -> None:
    statuses, actions, reasons = (
        [word for word, _text in table.values()]
        for table in (constants.STATUSES, constants.RECOVERY_ACTIONS, constants.INCORRECT_CONFIGURATIONS)
    )
    flags = [None, True, False]
    facts = trays.tray(gpus_per_tray=max(map(len, (statuses, actions, reasons))))
    for number, gpu in enumerate(facts["gpus"]):
        gpu["fabric"]["status"] = statuses[number % len(statuses)]
        gpu["recovery_action"] = actions[number % len(actions)]
        health = dict.fromkeys(gpu["fabric"]["health"], flags[number % 3])
        health["incorrect_configuration"] = reasons[number % len(reasons)]
        health["summary"] = [None, "healthy", "unhealthy", "limited_capacity"][number % 4]
        gpu["fabric"]["health"] = health
        gpu["mig_enabled"] = flags[number % 3]
        kinds = [kind for kind, _text in constants.CLIQUE_TYPES.values()]
        shared = {kind: [0, 2**32 - 1] for kind in kinds}
        gpu["fabric"].update(clique_id=number, cliques={**shared, "unicast_pointer": [number]})
    standin(facts)
    by_nvml = _assemble(nvml.read(20))
    assert by_nvml == _of_xml(facts)
    assert by_nvml["gpus"] == facts["gpus"]


# --- The choice of the backend.


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standin: Callable[..., Path]) -> Callable[..., str]:
    """tools(nvml_fault, smi_script): a tray with these two tools; returns the path of nvidia-smi."""
    facts = trays.tray()
    (tmp_path / "smi.xml").write_text(standin_text.smi_text(facts))

    def install(nvml_fault: str | None = None, smi: str | None = "works") -> str:
        if nvml_fault == "no_library":
            monkeypatch.setattr(nvml, "LIBRARY", "/nowhere/libnvidia-ml.so.1")
        else:
            standin(facts, nvml_fault)
        program = tmp_path / "nvidia-smi"
        script = f"cat {tmp_path}/smi.xml" if smi == "works" else smi
        return str(program) if script is None else trays.script(program, script)

    return install


def test_auto_reads_nvml_and_the_addresses_in_one_child(
    tools: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forks: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: forks.append(0) or fork())
    facts = fabric_facts.gather("auto", tools(smi="touch called; exit 1"), 20)
    assert (facts["addresses"], len(forks)) == (interfaces.read(), 1)
    assert (facts["backend"], facts["attached"], facts["findings"]) == ("nvml", True, [])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", facts["observed_at"])
    json.dumps(facts)


NO_DRIVER = "echo NVIDIA-SMI has failed because it couldn\\'t communicate with the NVIDIA driver.; exit 9"


@pytest.mark.parametrize(
    ("backend", "fault", "smi", "used", "codes", "why"),
    [
        ("auto", "no_library", "works", "nvidia_smi", ["backend_fallback"], "cannot be loaded"),
        ("auto", "no_driver", "works", "nvidia_smi", ["backend_fallback"], "not loaded"),
        ("auto", "version_mismatch", "works", "nvidia_smi", ["backend_fallback"], "different versions"),
        ("auto", "crash", "works", "nvidia_smi", ["backend_fallback"], "signal"),
        ("auto", "only_v1", "works", "nvidia_smi", ["backend_fallback"], "version 1"),
        # One reason of both is reported once.
        ("auto", "no_driver", NO_DRIVER, None, ["driver_missing", "backend_fallback"], ""),
        # An old driver without nvidia-smi keeps the readings of NVML.
        ("auto", "only_v1", None, "nvml", ["backend_fallback", "driver_missing", "fabric_unknown"], ""),
        # A chosen backend is the only one that is read.
        ("nvml", "no_driver", "works", None, ["driver_missing"], ""),
        ("nvidia_smi", "no_driver", "works", "nvidia_smi", [], ""),
        ("nvidia_smi", None, "exit 3", None, ["driver_unreadable"], ""),
        ("nvml", None, "exit 3", "nvml", [], ""),
    ],
)
def test_the_backend_that_is_used(
    tools: Callable[..., str], backend: str, fault: str, smi: str, used: str | None, codes: list[str], why: str
) -> None:
    facts = fabric_facts.gather(backend, tools(fault, smi), 20)
    assert (facts["backend"], trays.codes(facts)) == (used, codes)
    assert facts["attached"] is (used is not None and "fabric_unknown" not in codes)
    found = [worded(row) for row in facts["findings"] if row["code"] == "backend_fallback"]
    assert {row["severity"] for row in found} <= {"info"}
    assert all(why in row["message"] for row in found)
    assert facts["gpu_count"] == (4 if used else None)


def test_auto_reports_a_hang_of_nvml_where_nvidia_smi_responds(
    tools: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float] = []
    read = nvidia_smi.read
    monkeypatch.setattr(nvidia_smi, "read", lambda program, timeout: timeouts.append(timeout) or read(program, 60))
    facts = fabric_facts.gather("auto", tools("hang"), 4.8)
    assert timeouts == [pytest.approx(1.2)], "a quarter of the time, since both use the driver that hangs"
    assert (facts["backend"], facts["attached"]) == ("nvidia_smi", True)
    assert trays.codes(facts) == ["driver_timeout", "backend_fallback"]


def test_reading_ends_where_both_backends_hang(tools: Callable[..., str]) -> None:
    facts = fabric_facts.gather("auto", tools("hang", "exec sleep 600"), 0.6)
    assert (facts["backend"], facts["gpu_count"]) == (None, None)
    assert trays.codes(facts) == ["driver_timeout", "backend_fallback"]


def test_a_driver_of_which_each_call_returns_late_is_slow_and_not_hung(
    tools: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """25 calls of 0.2 s each: more than the time limit in all, far less than it each."""
    monkeypatch.setattr(nvml, "PATIENCE", 60)
    facts = fabric_facts.gather("auto", tools("slow", "exec sleep 600"), 4)
    assert (facts["backend"], facts["attached"], trays.codes(facts)) == ("nvml", True, ["driver_slow"])
    [found] = map(worded, facts["findings"])
    assert (found["severity"], "reboot" in found["message"]) == ("warning", False)


def test_a_slow_driver_that_has_no_end_is_not_read_and_not_hung(
    tools: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "PATIENCE", 1)
    facts = fabric_facts.gather("auto", tools("slow", "exec sleep 600"), 4)
    assert (facts["backend"], facts["gpu_count"], trays.codes(facts)) == (None, None, ["driver_unreadable"])
    [found] = map(worded, facts["findings"])
    assert found["message"].startswith("NVML needs more than 4 s to read the GPUs; ")
    assert "reboot" not in found["message"]


@pytest.mark.parametrize("fault", ["hang", "crash"])
def test_addresses_are_read_although_nvml_kills_the_child(tools: Callable[..., str], fault: str) -> None:
    facts = fabric_facts.gather("nvml", tools(fault), 0.6)
    assert (facts["backend"], facts["addresses"]) == (None, interfaces.read())


@pytest.mark.parametrize(("broken", "timeout"), [(lambda: time.sleep(600), 5), (os.abort, 60)], ids=["hang", "crash"])
def test_unreadable_addresses_leave_the_readings_of_nvml(
    tools: Callable[..., str], monkeypatch: pytest.MonkeyPatch, broken: Callable[[], None], timeout: int
) -> None:
    monkeypatch.setattr(interfaces, "read", broken)
    monkeypatch.setattr(fabric_facts, "_ADDRESSES_TIMEOUT", 0.3)
    facts = fabric_facts.gather("auto", tools(), timeout)
    assert (facts["backend"], facts["attached"], facts["addresses"]) == ("nvml", True, [])
    assert trays.codes(facts) == ["addresses_unknown"]


@pytest.mark.parametrize("backend", ["nvml", "nvidia_smi"])
def test_a_child_stuck_in_the_kernel_is_reported(
    tools: Callable[..., str], monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    stuck = child.Result(None, "", "nvmlInitWithFlags\n", timed_out=True, survivor_pid=4242)
    monkeypatch.setattr(child, "calls", lambda functions, *_limits: [child.Reply(None, stuck)] * len(functions))
    monkeypatch.setattr(child, "run", lambda *_arguments, **_named: stuck)
    facts = fabric_facts.gather(backend, tools(), 20)
    assert "driver_timeout" in trays.codes(facts)
    assert any("4242" in worded(found)["message"] for found in facts["findings"])


# --- Addresses.


@pytest.mark.skipif(shutil.which("ip") is None, reason="iproute2, to compare with, is not installed")
def test_the_option_ip_replaces_the_c_library(tmp_path: Path) -> None:
    assert fabric_facts.addresses("ip") == fabric_facts.addresses()
    own = tmp_path / "own ip"
    link = {
        "ifname": "host0",
        "addr_info": [{"local": "198.51.100.7", "prefixlen": 24}, {"local": "fe80::1", "prefixlen": 64}],
    }
    trays.script(own, f"[ \"$*\" = '-j address show' ] && cat <<'END'\n{json.dumps([link])}\nEND")
    rows, notes = fabric_facts.addresses(str(own))
    assert (rows, notes) == ([{"interface": "host0", "address": "198.51.100.7", "prefix": 24}], [])
    rows, notes = fabric_facts.addresses(str(tmp_path / "none"))
    assert rows == []
    assert [note["code"] for note in notes] == ["addresses_unknown"]


@pytest.mark.parametrize("interface", ["", "e" * 65, "eth{0}"])
def test_an_invalid_interface_name_is_left_out(interface: str) -> None:
    assert interfaces.usable(interface, bytes([198, 51, 100, 7]), 24) == []


@given(
    st.one_of(
        st.binary(min_size=4, max_size=4),
        st.binary(min_size=16, max_size=16),
        st.lists(st.sampled_from([b"\0\0", b"\0\1", b"\x20\1"]), min_size=8, max_size=8).map(b"".join),
        st.sampled_from(["127.9.9.9", "169.254.1.1", "224.0.0.1", "239.9.9.9", "0.0.0.0", "240.0.0.1"]).map(
            lambda text: ipaddress.ip_address(text).packed
        ),
        st.sampled_from(["::", "::1", "fe80::1", "febf::1", "fec0::1", "ff02::1", "::2"]).map(
            lambda text: ipaddress.ip_address(text).packed
        ),
    )
)
def test_loopback_link_local_and_multicast_addresses_are_left_out(raw: bytes) -> None:
    """And are written as the standard library writes them."""
    address = ipaddress.ip_address(raw)
    idle = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    found = interfaces.usable("eth0.7", raw, 20)
    assert [row["prefix"] for row in found] == ([] if idle else [20])
    for row in found:
        assert ipaddress.ip_address(row["address"]) == address
        assert raw[:12] == bytes(10) + b"\xff\xff" or row["address"] == str(address)


def test_a_tray_without_addresses_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "read", list)
    found, notes = fabric_facts.addresses()
    assert (found, [note["code"] for note in notes]) == ([], ["addresses_unknown"])
