# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reported state of a tray's GPUs: the files of its NVML library and its nvidia-smi, written from one description.

Everything stands in one directory of the machine that the tray sees read-only at /opt/nvlink-lab. A fault of a tool
is a change of these files, so it takes effect while the tray runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets, standin_text

from . import bundle, nvml, state
from .addresses import PREFIX
from .errors import LabError
from .scenario import Scenario, Tray
from .settings import IMEX_DEFAULTS, apply_setting, new_hardware

LIBRARY = "libnvidia-ml.so.1"
# Real texts and exit codes of nvidia-smi; `cat` is the only program it starts.
SMI = """\
#!/bin/sh
here=/opt/nvlink-lab
read -r mode < "$here/smi"
case "$mode" in
no_driver)
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver." \\
        "Make sure that the latest NVIDIA driver is installed and running."
    exit 9 ;;
esac
case "$*" in
"-q -x" | "-x -q" | "--query --xml-format") exec cat "$here/nvidia-smi.xml" ;;
esac
echo "nvidia-smi: not implemented by the stand-in: $*" >&2
exit 1
"""


def hardware_of(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """Tray name -> its simulated hardware (see settings.py) as the scenario starts it."""
    racks = max(tray.rack for tray in scenario.trays)
    width = max(tray.number for tray in scenario.trays)
    gpus = max(tray.gpus for tray in scenario.trays)
    fleet = list(fleets.fleet(racks=racks, trays_per_rack=width, gpus_per_tray=max(gpus, 1)).values())
    result = {}
    for tray in scenario.trays:
        hardware = new_hardware(_facts(tray, fleet[(tray.rack - 1) * width + tray.number - 1]))
        if tray.gpus:
            hardware = apply_setting(hardware, "clique", str(tray.clique_id))
        for key, value in tray.settings.items():
            hardware = apply_setting(hardware, key, value)
        result[tray.name] = hardware
    return result


def captured(hardware: dict[str, Any], answers: dict[str, str]) -> dict[str, Any]:
    """The hardware of a tray that answers with the texts of a support bundle (file -> text)."""
    faults = bundle.faults(answers)
    return {**hardware, "captured": answers, "nvml": faults["nvml"], "smi": faults["smi"]}


def _facts(tray: Tray, facts: dict[str, Any]) -> dict[str, Any]:
    facts = {**facts, "hostname": tray.name, "gpus": facts["gpus"][: tray.gpus], "gpu_count": tray.gpus}
    facts["addresses"] = [{"interface": "host0", "address": tray.address, "prefix": PREFIX}]
    return facts


def write(host: Path, hardware: dict[str, Any]) -> None:
    """Write a tray's files from its hardware; `host` is its directory in the lab's state."""
    state.write_atomically(host / "hardware.json", json.dumps(hardware, indent=1, sort_keys=True) + "\n")
    directory = host / "gpu"
    directory.mkdir(exist_ok=True)
    nvml_fault = None if hardware["nvml"] in ("ok", "no_library") else hardware["nvml"]
    answers = hardware.get("captured")
    if answers is None:
        text = standin_text.standin_text(hardware["facts"], nvml_fault, hardware["lost"], hardware["links"])
        xml = standin_text.smi_text(hardware["facts"], hardware["lost"])
    else:
        text, xml = bundle.standin_text(answers, nvml_fault), answers.get("nvidia-smi.xml", "")
        state.write_atomically(directory / "imex-captured.json", json.dumps(bundle.imex_answers(answers)) + "\n")
    state.write_atomically(directory / "gpus", text)
    state.write_atomically(directory / "nvidia-smi.xml", xml)
    state.write_atomically(directory / "smi", hardware["smi"] + "\n")
    state.write_atomically(directory / "imex", json.dumps(_imex_hooks(hardware)) + "\n")
    if hardware["smi"] == "missing":
        (directory / "nvidia-smi").unlink(missing_ok=True)
    else:
        state.write_atomically(directory / "nvidia-smi", SMI, 0o755)
    if hardware["nvml"] == "no_library":
        (directory / LIBRARY).unlink(missing_ok=True)
    elif not (directory / LIBRARY).exists():
        _copy_library(directory)


def _imex_hooks(hardware: dict[str, Any]) -> dict[str, Any]:
    """What the IMEX stand-in reads; without a driver it does not start."""
    hooks = hardware["imex"]
    return {
        **hooks,
        "imex_imports": hooks["imex_imports"] == "true",
        "imex_backoff": int(hooks["imex_backoff"]),
        "driver_version": None if hardware["nvml"] == "no_driver" else _driver_version(hardware),
    }


def _driver_version(hardware: dict[str, Any]) -> str | None:
    if "captured" in hardware:
        return bundle.driver_version(hardware["captured"])
    version: str | None = hardware["facts"]["driver_version"]
    return version


def _copy_library(directory: Path) -> None:
    temporary = directory / f".{LIBRARY}"
    shutil.copyfile(nvml.library(), temporary)
    with contextlib.suppress(OSError):
        os.chmod(temporary, 0o755)
    os.rename(temporary, directory / LIBRARY)


def change(host: Path, settings: list[tuple[str, str]]) -> None:
    """Apply KEY=VALUE settings, all or none."""
    with state.locked(host):
        hardware = json.loads((host / "hardware.json").read_text())
        wrong = [key for key, _value in settings if key not in ("nvml", "smi", *IMEX_DEFAULTS)]
        if "captured" in hardware and wrong:
            raise LabError(f"{wrong[0]}: this tray answers from a bundle, only nvml, smi and imex can be set.")
        for key, value in settings:
            hardware = apply_setting(hardware, key, value)
        write(host, hardware)
