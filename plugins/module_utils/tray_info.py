# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that one tray can say of itself, in one visit: its GPUs, its IMEX, its channels and its versions.

Private to this collection; it may change in any release. Python 3.9, standard library only. The readers are those of
fabric_facts and imex_info; what both need (the driver's version, the addresses) is asked for once. Each part has a time
limit of its own, and a part that fails is a finding: the others are told all the same.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, fabric_facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import disk, facts, files, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.readings import quoted

PARAMS = "/proc/driver/nvidia/params"
# What the loaded driver says of channels, by the names of /proc/driver/nvidia/params.
CHANNEL_PARAMETERS = ("ImexChannelCount", "CreateImexChannel0")
_SLURMD = ("/usr/sbin", "/usr/local/sbin", "/opt/slurm/sbin", "/usr/local/slurm/sbin")
_SLURM_VERSION = re.compile(r"slurm\S* ([0-9]{2}\.[0-9]{2}(?:\.[0-9]{1,3})?)")
_VERSION_TIMEOUT = 5.0


class Options(NamedTuple):
    """How a tray is asked, with the names and meanings of fabric_facts and imex_info."""

    backend: str = "auto"
    nvidia_smi: str = "nvidia-smi"
    ip: str | None = None
    timeout: float = 20.0
    imex_config: str = files.CONFIG_FILE
    imex_record: str = files.RECORD_FILE
    imex_ctl: str = "nvidia-imex-ctl"
    imex_timeout: float = 10.0
    prolog_files: tuple[str, ...] = survey.PROLOG_FILES
    proc_devices: str = survey.PROC_DEVICES
    slurmd: str = "slurmd"


def gather(options: Options) -> dict[str, Any]:
    """``nvlink_tray``; raises an NvlinkError for a wrong option only.

    A part that could not be read is null and has a finding ``tray_part_failed``.
    """
    fabric_facts.check_options(options.backend, options.nvidia_smi, options.timeout)
    survey.check_options(options.imex_ctl, options.imex_timeout)
    notes: list[dict[str, Any]] = []
    fabric = _part("fabric", notes, lambda: _fabric(options))
    imex = _part("imex", notes, lambda: _imex(options, fabric or {}))
    channels = _part("channels", notes, lambda: _channels(imex or {}))
    versions = _part("versions", notes, lambda: _versions(options, fabric or {}, imex or {}))
    for name, part in (("fabric", fabric), ("imex", imex)):
        notes += [dict(note, part=name) for note in (part or {}).get("findings", [])]
    return {
        "observed_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "fabric": fabric,
        "imex": imex,
        "channels": channels,
        "versions": versions,
        "findings": notes,
    }


def _part(name: str, notes: list[dict[str, Any]], read: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return read()
    except Exception as error:  # whatever a tray in trouble makes of one part, the others must be told
        message = f"The part {name} of this tray could not be read ({quoted(str(error))}); run its own module there."
        notes.append(finding("tray_part_failed", message, part=name))
        return None


def _fabric(options: Options) -> dict[str, Any]:
    return fabric_facts.gather(options.backend, options.nvidia_smi, options.timeout, options.ip)


def _imex(options: Options, fabric: Mapping[str, Any]) -> dict[str, Any]:
    read = survey.survey(
        options.imex_config,
        options.imex_record,
        options.imex_ctl,
        options.imex_timeout,
        options.prolog_files,
        options.proc_devices,
        addresses=(lambda: [entry["address"] for entry in fabric["addresses"]]) if fabric else None,
        driver_version=(lambda: survey.loaded_driver() or fabric["driver_version"]) if fabric else None,
    )
    return facts.assemble(read)


def _channels(imex: Mapping[str, Any]) -> dict[str, Any]:
    """Major and devices as imex_info has them, and what the loaded driver was told of channels, null if unknown."""
    seen = imex.get("channels") or {"major": None, "devices": []}
    return {**seen, "parameters": _parameters()}


def _parameters() -> dict[str, int | None]:
    """The parameters of CHANNEL_PARAMETERS with which the driver runs."""
    said = dict(line.split(": ", 1) for line in (disk.read_text(PARAMS) or "").splitlines() if ": " in line)
    found = {name: said.get(name, "").strip() for name in CHANNEL_PARAMETERS}
    return {name: int(value) if value.isdecimal() else None for name, value in found.items()}


def _versions(options: Options, fabric: Mapping[str, Any], imex: Mapping[str, Any]) -> dict[str, Any]:
    """Versions as text, null where there is none: of what is loaded or runs, and of what is installed."""
    package = imex.get("package") or {}
    return {
        "driver": survey.loaded_driver() or fabric.get("driver_version"),
        "imex": imex.get("version"),
        "imex_package": package.get("version"),
        "slurmd": _slurmd(options.slurmd),
        "kernel": os.uname().release,
    }


def _slurmd(program: str) -> str | None:
    path = shutil.which(program) or shutil.which(program, path=os.pathsep.join(_SLURMD))
    if path is None:
        return None
    found = _SLURM_VERSION.search(child.run([path, "-V"], _VERSION_TIMEOUT).stdout)
    return found.group(1) if found else None
