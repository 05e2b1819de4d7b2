# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Support bundles of `doctor --tags capture`: read, and made into trays that answer as the captured ones did.

A bundle comes from another site: it is read within limits, and no path in it is ever used on this machine.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zlib
from pathlib import Path
from typing import Any

from . import scenario as scenarios
from .errors import LabError
from .scenario import Scenario

MAX_BYTES = 256 * 1024 * 1024
MAX_FILE = 4 * 1024 * 1024
"""Bytes of one file: an answer has at most 2 MiB."""
_PATH = re.compile(r"bundle\.json|(trays|slurm)/([A-Za-z0-9._:-]{1,253})/([a-z][a-z-]{0,30}\.(?:xml|txt|json))")
# nspawn's vb-NAME must fit a network interface's 15 characters.
_HOST = re.compile(r"[a-z][a-z0-9-]{0,11}")
_LOST = 15
_NO_PERMISSION = 4

# What malformed JSON, or JSON of another shape, raises.
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)

Files = dict[str, str]
"""Path in the bundle -> text."""


def load(path: str | Path) -> Files:
    """The files of a bundle, a .tar.gz; LabError where it is none."""
    try:
        files = _unpacked(path)
        if "bundle.json" not in files:
            raise ValueError("it has no bundle.json")
        index = json.loads(files["bundle.json"])
        if index["format"] != 1 or not isinstance(index["trays"], dict) or not index["trays"]:
            raise ValueError("its format is not 1, or it has no tray")
        for tray, texts in trays(files).items():
            _check(tray, texts)
    except (*_MALFORMED, OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise LabError(
            f"{path}: no support bundle of the playbook doctor ({error or type(error).__name__})."
        ) from error
    return files


def _check(tray: str, texts: Files) -> None:
    """ValueError where the stand-ins cannot use the answers of a tray."""
    try:
        standin_text(texts).encode()
        faults(texts)
    except _MALFORMED as error:
        raise ValueError(f"trays/{tray}/nvml.json is malformed: {type(error).__name__} {error}") from error


def _unpacked(path: str | Path) -> Files:
    files: Files = {}
    with gzip.open(path) as packed:
        data = packed.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        for member in tar:
            name = member.name.partition("/")[2]
            content = tar.extractfile(member) if member.isfile() and _PATH.fullmatch(name) else None
            if content is None:
                continue
            if member.size > MAX_FILE:
                raise ValueError(f"{name} has more than {MAX_FILE} bytes")
            files[name] = content.read().decode("utf-8")
    return files


def trays(files: Files) -> dict[str, Files]:
    """Tray -> file -> text, of all trays in the order of their names; one that did not answer has no file."""
    found: dict[str, Files] = {name: {} for name in sorted(json.loads(files["bundle.json"])["trays"])}
    for path, text in files.items():
        match = _PATH.fullmatch(path)
        if match and match[1] == "trays" and match[2] in found:
            found[match[2]][match[3]] = text
    return found


def scenario(files: Files, suite: str) -> Scenario:
    """A lab of the bundle's trays in one rack, with their names where these fit."""
    found = trays(files)
    gpus = [len(_nvml(texts).get("gpus", [])) for texts in found.values()]
    data = {"suite": suite, "racks": [{"trays": len(found), "gpus": max([1, *gpus])}]}
    made = scenarios.parse(data, "bundle")
    named = dict(zip((tray.name for tray in made.trays), _host_names(found)))
    return scenarios.renamed(made, named)


def _host_names(found: dict[str, Files]) -> list[str]:
    names = list(found)
    return names if all(_HOST.fullmatch(name) for name in names) else [f"t{at:03d}" for at in range(1, len(names) + 1)]


def answers(files: Files) -> dict[str, Files]:
    """Name of the tray in the lab -> file -> text."""
    found = trays(files)
    return dict(zip(_host_names(found), found.values()))


def silent(files: Files) -> list[str]:
    """The trays, by their names in the lab, that did not answer."""
    return [name for name, texts in answers(files).items() if not texts]


# ------------------------------------------------------------------------------------------------- one tray's stand-ins


def _nvml(texts: Files) -> dict[str, Any]:
    nvml: dict[str, Any] = json.loads(texts.get("nvml.json", "{}"))
    return nvml


def driver_version(texts: Files) -> str | None:
    version: str | None = _nvml(texts).get("driver_version")
    return version


def faults(texts: Files) -> dict[str, str]:
    """The settings nvml and smi of a tray whose NVML or nvidia-smi did not answer."""
    nvml = _nvml(texts)
    refused = any(gpu.get("code") == _NO_PERMISSION for gpu in nvml.get("gpus", []))
    fault = "no_driver" if nvml.get("problem") or not nvml else "handle_refused" if refused else "ok"
    return {"nvml": fault, "smi": "ok" if texts.get("nvidia-smi.xml") else "missing"}


def imex_answers(texts: Files) -> dict[str, str]:
    """What nvidia-imex-ctl printed, by the options of the stand-in."""
    names = {"q": "imex-state.txt", "Nj": "imex.json"}
    return {mode: texts[name] for mode, name in names.items() if texts.get(name)}


def standin_text(texts: Files, nvml_fault: str | None = None) -> str:
    """The file of the NVML stand-in: the captured values, and the bytes of each version of the fabric struct."""
    nvml = _nvml(texts)
    lines = [f"fault {nvml_fault or 'none'}", f"driver {_line(nvml.get('driver_version'))}"]
    for gpu in nvml.get("gpus", []):
        platform = gpu.get("platform") or {}
        place = [platform.get(key) for key in ("slot_number", "tray_index", "host_id", "chassis_serial")]
        lines += [
            f"gpu {int(gpu['index'])}",
            f"lost {int(gpu.get('code') == _LOST)}",
            f"uuid {_line(gpu.get('uuid'))}",
            f"name {_line(gpu.get('name'))}",
            f"pci {_line(gpu.get('pci_bus_id'))}",
            f"module {_line(gpu.get('module_id'))}",
            f"pdi {_line(gpu.get('pdi') or '0x0')}",
            f"guid {_line(platform.get('fabric_guid') or '0x0')}",
            f"mig {_line(gpu.get('mig'))}",
            f"recovery {_line(gpu.get('recovery_action'))}",
            f"platform {' '.join(_line(one) for one in place if one is not None) or '-'}",
        ]
        for row in gpu.get("structs") or []:
            lines.append(f"struct {int(row['version'])} {int(row['code'])} {bytes.fromhex(row['bytes']).hex()}")
    return "\n".join(lines) + "\n"


def _line(value: Any) -> str:
    return "-" if value is None else " ".join(str(value).split())
