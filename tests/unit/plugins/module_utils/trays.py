# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trays for tests: the NVML stand-in as the library that NVML's reader finds, and fixtures of nvidia-smi's XML."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import ZERO_UUID
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets, local_trays

TESTS = Path(__file__).resolve().parents[3]
FIXTURES = TESTS / "unit" / "fixtures" / "nvidia_smi"
_NO_PLACE = dict.fromkeys(("chassis_serial_number", "slot_number", "tray_index", "host_id", "gpu_fabric_guid"), "N/A")
_ROWS = ("summary", "bandwidth", "route_recovery_in_progress", "route_unhealthy", "access_timeout_recovery")
_NO_HEALTH = dict.fromkeys(_ROWS, "N/A")
_NO_FABRIC = {**dict.fromkeys(("status", "cliqueId", "clusterUuid"), "N/A"), **_NO_HEALTH}
_ZERO = {"cliqueId": "0", "clusterUuid": ZERO_UUID}
_R580 = {"incorrect_configuration": "None", "partition_assigned": None}
_BROKEN = {**_R580, **dict.fromkeys(_ROWS[2:], "True"), "summary": "Unhealthy", "bandwidth": "Degraded"}
CHANGES: dict[str, dict[str, str | None]] = {
    "hgx_h100": {"product_name": "NVIDIA H100 80GB HBM3", **_NO_PLACE, **_ZERO, **_NO_HEALTH, "attached_gpus": "8"},
    "hgx_b200": {
        "chassis_serial_number": "",
        "slot_number": "1",
        "tray_index": "0",
        **_ZERO,
        "bandwidth": "N/A",
        **_R580,
    },
    "l40s": {**_NO_PLACE, "module_id": "1", "current_mig": "N/A", "state": "N/A", **_NO_FABRIC},
    "r570": {"driver_version": "570.148.08", **dict.fromkeys(("summary", *_R580))},
    "degraded": {**_BROKEN, "incorrect_configuration": "Insufficient Nvlink Resources"},
    "drained": {**_R580, "gpu_recovery_action": "Drain and Reset"},
    "refused": {"status": "Insufficient Resources", **_ZERO, **_NO_HEALTH},
    "in_progress": {"product_name": "NVIDIA GB300", "state": "In Progress", **_NO_FABRIC},
}
"""Product or state -> the elements that differ from those of a healthy GB200; None: nvidia-smi has no such element."""


def smi(name: str = "gb200", gpus: int = 2, lost: int | None = None) -> str:
    """What nvidia-smi -q -x prints: a file, or that of a GB200 with CHANGES; ``lost`` is a GPU off the bus."""
    text = (FIXTURES / f"{'gb200' if name in CHANGES else name}.xml").read_text()
    text = text.replace("<attached_gpus>1<", f"<attached_gpus>{gpus}<")
    for element, value in CHANGES.get(name, {}).items():
        written = "" if value is None else rf"\g<1>{value}\g<2>"
        text = re.sub(rf"(\t+<{element}>).*(</{element}>\n)", written, text)
    head, gpu, end = re.split(r"(?=\t<gpu )|(?=</nvidia_smi_log>)", text)
    for number in range(gpus):
        own = gpu.replace(":29:", f":{0x29 + number:X}:").replace("11e0", f"11e{number}")
        own = own.replace("3d100", f"3d10{number}")
        head += re.sub(r">[^<>\n]+</", ">GPU is lost</", own) if number == lost else own
    return head + end


def tray(**changes: Any) -> dict[str, Any]:
    """The facts of one simulated, healthy tray."""
    return next(iter(fleets.fleet(trays_per_rack=1, **changes).values()))


def script(path: Path, text: str) -> str:
    """Write a program that is a shell script; its path."""
    return str(local_trays.program(path, f"#!/bin/sh\n{text}\n"))


def codes(facts: Mapping[str, Any]) -> list[str]:
    return [found["code"] for found in facts["findings"]]


@functools.lru_cache(maxsize=1)
def library() -> Path:
    """The NVML stand-in, from the cache that the lab uses too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TESTS / "lab")
        from nvlab import nvml
    return nvml.library()
