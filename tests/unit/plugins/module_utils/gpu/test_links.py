# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader of NVLinks against the stand-in library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import links, nvml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays
from hypothesis import given
from hypothesis import strategies as st

Tray = Callable[..., None]
FIELD = links.COUNTERS


@pytest.fixture
def links_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standin: Tray) -> Tray:
    """links_of(fault, facts=, lost=, links=): from then on NVML answers for a simulated tray with these faults."""
    journal(tmp_path, monkeypatch, "echo 1795237205.6 r01t01 kernel: usb 1-1: new device")
    return lambda fault=None, facts=None, **options: standin(facts or trays.tray(), fault, **options)


def journal(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """From then on journalctl is this shell script."""
    (folder / "bin").mkdir(exist_ok=True)
    trays.script(folder / "bin" / "journalctl", text)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")


def codes(facts: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(found["code"], found["gpu"]) for found in facts["findings"]]


def test_a_healthy_tray_is_one_row_a_gpu(links_of: Tray) -> None:
    facts = trays.tray()
    links_of(facts=facts)
    found = links.gather(20)
    assert (found["findings"], found["xids"]) == ([], [])
    assert found["gpus"] == [
        {
            "index": gpu["index"],
            "uuid": gpu["uuid"],
            "pci_bus_id": gpu["pci_bus_id"],
            "link_count": 18,
            "links": [{"state": "active", "speed": 53125, "links": list(range(18))}],
            "counters": [],
            "unknown_counters": [],
        }
        for gpu in facts["gpus"]
    ]


def test_counters_that_are_not_zero_are_rows_of_their_links(links_of: Tray) -> None:
    # 15e-9 as nvml.h encodes it: the mantissa in bits 8 to 11, the exponent in bits 0 to 7.
    rate = 15 << 8 | 9
    links_of(links=[(0, 14, FIELD["recoveries"], 505), (0, 14, links.RATES["symbol_ber"], rate)])
    found = links.gather(20)
    [row] = found["gpus"][0]["counters"]
    assert row == {"link": 14, **dict.fromkeys(FIELD, 0), "recoveries": 505, "effective_ber": None, "symbol_ber": 15e-9}
    assert [gpu["counters"] for gpu in found["gpus"][1:]] == [[], [], []]
    assert found["findings"] == []


def test_links_that_are_inactive_or_slow_are_one_finding_a_gpu(links_of: Tray) -> None:
    links_of(
        links=[
            (1, 14, links.STATE, 0),
            (1, 14, links.SPEED, 0),
            (1, 15, links.STATE, 3),
            (2, 0, links.SPEED, 26562),
            (3, 4, links.STATE, 2),  # asleep, it wakes up with traffic
        ]
    )
    found = links.gather(20)
    assert codes(found) == [("nvlink_links_degraded", 1), ("nvlink_links_degraded", 2)]
    first, second = (worded(note)["message"] for note in found["findings"])
    assert first.startswith("GPU 1: 16 of 18 NVLinks are active at 53125 MB/s, links [14-15] are not; ")
    assert second.startswith("GPU 2: 17 of 18 NVLinks are active at 53125 MB/s, link 0 is not; ")
    assert {"state": "inactive", "speed": None, "links": [14]} in found["gpus"][1]["links"]


def test_no_active_link_on_any_gpu_is_one_finding(links_of: Tray) -> None:
    links_of(links=[(gpu, link, field, 0) for gpu in range(4) for link in range(18) for field in (164, 165)])
    assert codes(links.gather(20)) == [("nvlink_links_degraded", None)]


def test_a_lost_gpu_is_a_finding_and_the_others_are_read(links_of: Tray) -> None:
    links_of(lost=(2,))
    found = links.gather(20)
    assert codes(found) == [("nvlink_links_unknown", 2)]
    assert [gpu["link_count"] for gpu in found["gpus"]] == [18, 18, None, 18]
    assert found["gpus"][2]["links"] == []
    links_of("handle_refused")
    assert codes(links.gather(20)) == [("nvlink_links_unknown", gpu) for gpu in range(4)]


def test_gpus_without_nvlink_have_no_finding(links_of: Tray) -> None:
    facts = trays.tray(gpus_per_tray=1)
    facts["gpus"][0]["fabric"]["state"] = "not_supported"
    links_of(facts=facts)
    found = links.gather(20)
    assert (found["gpus"][0]["link_count"], found["findings"]) == (None, [])


def test_a_driver_that_hangs_leaves_the_links_unknown_in_time(links_of: Tray) -> None:
    links_of("hang")
    found = links.gather(0.5)
    assert (found["gpus"], codes(found)) == (None, [("driver_timeout", None)])


@pytest.mark.parametrize("options", [{"backend": "nvidia_smi"}, {"gather_subset": ["gpu", "links"]}])
def test_without_nvml_the_links_are_unknown_with_the_reason(
    links_of: Tray, tmp_path: Path, options: dict[str, Any]
) -> None:
    """NVML is not called again where it has just failed for the subset gpu."""
    links_of("no_driver")
    result = subsets.gather(
        subsets.Options(**{"gather_subset": ["links"], "nvidia_smi": str(tmp_path / "none"), **options})
    )
    [note] = [note for note in result["findings"] if note["part"] == "links"]
    assert (note["code"], worded(note)["severity"]) == ("nvlink_links_unknown", "info")
    assert result["ansible_facts"]["nvlink_links"]["gpus"] is None


# --- The counters' own library: a driver that lacks fields, or has them of other types.


class Library:
    """A library of one GPU, whose fields are given: (link, field) -> (type, value). It lacks all others."""

    def __init__(self, fields: dict[tuple[int, int], tuple[int, int]], count: int) -> None:
        self.fields = {(0, links.LINK_COUNT): (1, count), **fields}

    def nvmlInitWithFlags(self, _flags: Any) -> int:
        return nvml.SUCCESS

    def nvmlDeviceGetCount_v2(self, pointer: Any) -> int:
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint))[0] = 1
        return nvml.SUCCESS

    def nvmlDeviceGetHandleByIndex_v2(self, *_arguments: Any) -> int:
        return nvml.SUCCESS

    def nvmlDeviceGetFieldValues(self, _handle: Any, size: Any, pointer: Any) -> int:
        rows = ctypes.cast(pointer, ctypes.POINTER(nvml.FieldValue))
        for at in range(size.value):
            key = (rows[at].scopeId, rows[at].fieldId)
            rows[at].nvmlReturn = nvml.SUCCESS if key in self.fields else nvml.NOT_SUPPORTED
            if key in self.fields:
                rows[at].valueType, rows[at].value = self.fields[key]
        return nvml.SUCCESS


def test_fields_that_a_driver_lacks_are_unknown_not_zero() -> None:
    raw = links.query(
        Library({(0, links.STATE): (1, 1), (0, FIELD["recoveries"]): (3, 7), (2, links.STATE): (1, 1)}, 3)
    )
    notes: list[dict[str, Any]] = []
    [gpu] = links.interpret(raw, notes)
    assert gpu["links"] == [
        {"state": "active", "speed": None, "links": [0, 2]},
        {"state": None, "speed": None, "links": [1]},
    ]
    assert gpu["unknown_counters"] == list(FIELD)
    [row] = gpu["counters"]
    assert (row["recoveries"], row["recoveries_failed"]) == (7, None)
    assert links.evaluate([gpu]) == [], "an unknown state is no fault"


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(160, 225)), st.tuples(st.integers(-1, 9), st.integers(0, 2**64 - 1))
    )
)
def test_any_values_of_a_driver_are_facts_in_the_schema(fields: dict[tuple[int, int], Any]) -> None:
    notes: list[dict[str, Any]] = []
    raw = links.query(Library(fields, 4))
    gpus = links.interpret(raw, notes)
    assert {note["code"] for note in notes} <= {"unusable_value"}
    for note in links.evaluate(gpus):
        assert note["code"] in ("nvlink_links_degraded", "nvlink_links_down")
    [gpu] = gpus
    read = [link for link, values in enumerate(raw["gpus"][0]["links"], 1) if values]
    assert gpu["link_count"] == max(read, default=4)
    assert sorted(link for row in gpu["links"] for link in row["links"]) == list(range(gpu["link_count"]))
    numbers = [value for row in gpu["counters"] for value in row.values() if value is not None]
    assert all(0 <= value < 2**63 for value in numbers)


class Refusing(Library):
    """A driver that refuses the whole call for a slot without a link, with this code."""

    def __init__(self, real: int, code: int) -> None:
        fields = {(link, links.STATE): (1, 1) for link in range(real)}
        super().__init__({**fields, **{(link, links.SPEED): (1, 53125) for link in range(real)}}, 36)
        self.real, self.code = real, code

    def nvmlDeviceGetFieldValues(self, handle: Any, size: Any, pointer: Any) -> int:
        first = ctypes.cast(pointer, ctypes.POINTER(nvml.FieldValue))[0]
        refused = first.scopeId >= self.real
        return self.code if refused else super().nvmlDeviceGetFieldValues(handle, size, pointer)


@pytest.mark.parametrize(
    ("code", "count", "notes"),
    [(2, 18, []), (nvml.NOT_SUPPORTED, 18, []), (15, None, ["nvlink_links_unknown"])],
    ids=["invalid_argument", "not_supported", "gpu_is_lost"],
)
def test_slots_without_a_link_that_the_driver_refuses_are_none(code: int, count: int | None, notes: list[str]) -> None:
    found: list[dict[str, Any]] = []
    [gpu] = links.interpret(links.query(Refusing(18, code)), found)
    assert (gpu["link_count"], [note["code"] for note in found]) == (count, notes)
    assert links.evaluate([gpu]) == []
