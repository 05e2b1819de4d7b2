# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML's reader against the stand-in library, which is compiled against NVIDIA's own header."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants, nvml
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import Checker, DriverError, Readings
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays
from hypothesis import given
from hypothesis import strategies as st

Tray = Callable[..., None]


def _failure(timeout: float = 20) -> dict[str, Any]:
    with pytest.raises(DriverError) as caught:
        nvml.read(timeout)
    return worded(caught.value.finding)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("no_driver", "driver_missing"),
        ("version_mismatch", "version_mismatch"),
        ("no_permission", "no_permission"),
        ("crash", "driver_unreadable"),
    ],
)
def test_a_broken_driver_is_a_finding_of_its_own(standin: Tray, fault: str, code: str) -> None:
    standin(trays.tray(), fault)
    found = _failure()
    assert found["code"] == code
    assert found["gpu"] is None


def test_a_hang_ends_at_the_timeout_and_the_call_is_reported(standin: Tray) -> None:
    standin(trays.tray(), "hang_fabric")
    # Long enough that the child has come to the call that hangs.
    found = _failure(5)
    assert found["code"] == "driver_timeout"
    assert '"nvmlDeviceGetGpuFabricInfoV of GPU 0"' in found["message"]


@pytest.mark.parametrize("fault", ["only_v4", "only_v2"])
def test_older_and_newer_versions_of_the_fabric_call_return_the_same_clique(standin: Tray, fault: str) -> None:
    facts = trays.tray()
    standin(facts, fault)
    fabric = nvml.read(20).gpus[0]["fabric"]
    expected = facts["gpus"][0]["fabric"]
    assert {key: fabric[key] for key in ("state", "status", "cluster_uuid", "clique_id")} == {
        key: expected[key] for key in ("state", "status", "cluster_uuid", "clique_id")
    }
    # Version 2 has the rows and no summary.
    summary = "healthy" if fault == "only_v4" else None
    assert fabric["health"] == {**expected["health"], "summary": summary}


def test_version_4_has_the_cliques_of_each_kind_of_operation(standin: Tray) -> None:
    facts = trays.tray()
    kinds = {
        "unicast_pointer": [7, 9],
        "multicast_pointer": [1],
        "unicast_logical_endpoint": [7],
        "multicast_logical_endpoint": [],
    }
    facts["gpus"][2]["fabric"].update(clique_id=7, cliques=kinds)
    file = standin(facts)
    # A kind that CUDA 13.5 does not have, as a newer driver may report it; the clique is the first of unicast pointers.
    text = file.read_text()
    file.write_text(text.replace("cliques 0:7 0:9 1:1 2:7", "cliques 9:5 1:1 0:7 0:9 2:7"))
    readings = nvml.read(20)
    assert readings.findings == []
    assert readings.gpus[2]["fabric"] == facts["gpus"][2]["fabric"]
    assert [gpu["fabric"]["cliques"] for gpu in readings.gpus] == [None, None, kinds, None]
    # More entries than the struct has room for do not leave it.
    file.write_text(text.replace("cliques 0:7 0:9", "cliques" + " 0:7" * 80))
    assert nvml.read(20).gpus[2]["fabric"]["cliques"]["unicast_pointer"] == [7] * 64


@pytest.mark.parametrize("fault", ["handle_refused", "fabric_refused"])
def test_a_driver_that_refuses_the_user_a_gpu_is_one_finding(standin: Tray, fault: str) -> None:
    standin(trays.tray(), fault)
    readings = nvml.read(20)
    assert [(found["code"], found["gpu"]) for found in readings.findings] == [("no_permission", None)]
    assert [gpu["fabric"]["state"] for gpu in readings.gpus] == [None] * 4


def test_a_status_of_a_newer_driver_is_its_number() -> None:
    """nvmlReturn_t had no 31 in CUDA 13.5."""
    fabric = {"state": 3, "status": 31, "cluster_uuid": constants.ZERO_UUID, "clique_id": 0, "mask": 0, "summary": 0}
    fabric["cliques"] = []
    gpu = {"index": 0, "codes": [0], "platform": None, "fabric": fabric}
    readings = nvml.interpret({"driver_version": "630.10.01", "count": 1, "gpus": [gpu]})
    assert (readings.gpus[0]["fabric"]["status"], readings.findings) == ("status_31", [])


@pytest.mark.parametrize(("fault", "noted"), [("only_v1", ["fabric_unknown"]), ("no_fabric", [])])
def test_version_1_of_the_fabric_call_is_never_used(standin: Tray, fault: str, noted: list[str]) -> None:
    standin(trays.tray(), fault)
    readings = nvml.read(20)
    assert [found["code"] for found in readings.findings] == noted
    assert [gpu["fabric"]["state"] for gpu in readings.gpus] == [None] * 4
    # The platform's first version has the same bytes as its second.
    assert readings.gpus[0]["platform"]["chassis_serial"] == trays.tray()["chassis_serial"]


def test_platform_information_without_a_place_is_none(standin: Tray) -> None:
    """An H200 with driver 580.159.04: success, host 1 and otherwise zeros, and a PDI; nvidia-smi prints N/A."""
    facts = trays.tray(gpus_per_tray=1)
    facts.update(chassis_serial=None, slot_number=0, tray_index=0, host_id=1)
    facts["gpus"][0]["fabric_guid"] = None
    standin(facts)
    gpu = nvml.read(20).gpus[0]
    assert set(gpu["platform"].values()) == {None}
    assert (gpu["fabric_guid"], gpu["pdi"]) == (None, facts["gpus"][0]["pdi"])


def test_hostile_text_is_null_and_a_finding(standin: Tray) -> None:
    facts = trays.tray(gpus_per_tray=1)
    facts["gpus"][0]["name"] = "{{ lookup('pipe', 'id') }}"
    facts["gpus"][0]["uuid"] = "GPU-[1-9]"
    standin(facts)
    readings = nvml.read(20)
    assert (readings.gpus[0]["name"], readings.gpus[0]["uuid"]) == (None, None)
    assert {found["code"] for found in readings.findings} == {"unusable_value"}
    assert all(
        "{" not in worded(found)["message"] and "[" not in worded(found)["message"] for found in readings.findings
    )


def test_readings_with_and_without_pynvml_are_the_same(standin: Tray, tmp_path: Path) -> None:
    standin(trays.tray())
    script = (
        "import json, sys; from {} import nvml; sys.stdout.write(json.dumps([nvml.query(), 'pynvml' in sys.modules]))"
    )
    script = script.format(nvml.__name__.rpartition(".")[0])
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "pynvml.py").write_text("raise ImportError('none on this tray')\n")
    answers = []
    for first in ([], [str(tmp_path / "without")]):
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(trays.library().parent),
            "PYTHONPATH": os.pathsep.join([*first, *filter(None, sys.path)]),
        }
        run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
        answers.append(json.loads(run.stdout))
    assert [answer.pop("seconds") > 0 for answer, _through in answers] == [True, True]
    assert answers[0][0] == answers[1][0]
    assert "error" not in answers[0][0]
    assert [through for _answer, through in answers] == [True, False]


@pytest.mark.parametrize(
    ("mask", "summary", "expected"),
    [
        (0, 0, {}),
        # The masks of a healthy real GB200 and GB300; 0xaa is not "4 of 8 paths down".
        (0xAA, 1, {"summary": "healthy", **dict.fromkeys(("degraded_bandwidth", "route_unhealthy"), False)}),
        (0x1AA, 1, {"summary": "healthy", "incorrect_configuration": "none"}),
        (0x1, 0, {"degraded_bandwidth": True}),
        (0x1000, 3, {"partition_assigned": True, "summary": "limited_capacity"}),
        (0x2000, 2, {"partition_assigned": False, "summary": "unhealthy"}),
        (0x800, 0, {"incorrect_configuration": "gpu_state_invalid"}),
        (0x4000, 0, {"fabric_manager_connected": True}),
        (0x81AA, 1, {"fabric_manager_connected": False, "summary": "healthy"}),
    ],
)
def test_the_health_mask_is_decoded_after_the_header(mask: int, summary: int, expected: dict[str, Any]) -> None:
    notes: list[dict[str, Any]] = []
    rows = nvml.health(mask, summary, Checker("NVML", notes))
    assert notes == []
    assert {key: rows[key] for key in expected} == expected
    if mask == 0:
        assert set(rows.values()) == {None}


U8, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 32, 64))
CODE, TEXT = st.integers(0, 1000), st.text(max_size=300)
PLATFORM = st.fixed_dictionaries(
    {
        "fabric_guid": U64.map("0x{:016x}".format),
        "chassis_serial": st.text(max_size=16),
        **dict.fromkeys(("slot_number", "tray_index", "host_id"), U8),
    }
)
CLIQUES = {"clique_id": st.none() | U32, "cliques": st.lists(st.tuples(U8, U32), max_size=9)}
FABRIC = st.fixed_dictionaries(
    {"state": U8, "status": U32, "cluster_uuid": st.uuids().map(str), "mask": U32, "summary": U8, **CLIQUES}
)
GPU = st.fixed_dictionaries(
    {
        "index": st.integers(0, 1023),
        "codes": st.lists(CODE, min_size=1, max_size=9),
        "platform": st.none() | PLATFORM,
        "fabric": st.fixed_dictionaries({"code": CODE}) | FABRIC,
    },
    optional={
        **dict.fromkeys(("uuid", "name", "pci_bus_id"), TEXT),
        **dict.fromkeys(("module_id", "mig", "recovery_action"), U32),
        "pdi": U64,
    },
)


@given(st.fixed_dictionaries({"driver_version": st.none() | TEXT, "count": U32, "gpus": st.lists(GPU, max_size=3)}))
def test_any_result_of_nvml_becomes_readings(raw: dict[str, Any]) -> None:
    readings = nvml.interpret(raw)
    assert isinstance(readings, Readings)
    # Whatever a newer driver asks for is an action.
    actions = {gpu["index"] for gpu in raw["gpus"] if gpu.get("recovery_action", 0) > 7 and "fabric" in gpu}
    named = {note["gpu"] for note in readings.findings if note["code"] in ("recovery_action", "gpu_lost")}
    assert actions <= named
