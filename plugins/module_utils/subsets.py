# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The subsets of fabric_facts: the GPUs, the IMEX daemon, the channel devices, the versions, the links and the
serial numbers of one tray.

Private to this collection; it may change in any release. Python 3.9, standard library only. What several subsets need
(driver version, addresses, state of IMEX) is read once. Each subset has its own time limit; one that cannot be read is
null with a finding, and the others are returned. The IMEX modules are imported only for a subset that needs them.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, driver
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import facts as fabric_facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import quoted
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import slurmd

# Subset -> the name of its facts, in the order in which they are read.
FACTS = {
    "gpu": "nvlink_fabric",
    "imex": "nvlink_imex",
    "channels": "nvlink_channels",
    "versions": "nvlink_versions",
    "links": "nvlink_links",
    "serials": "nvlink_serials",
}
Part = Mapping[str, Any]
"""The facts of a subset, as fabric_facts documents them, with their findings."""
CHOICES = ("all", *FACTS, *(f"!{name}" for name in FACTS))
MAX_IMEX_TIMEOUT = 600
SLURMD_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/slurm/sbin", "/usr/local/slurm/sbin")
_SLURM_VERSION = re.compile(r"slurm\S* ([0-9]{2}\.[0-9]{2}(?:\.[0-9]{1,3})?)")
_VERSION_TIMEOUT = 5.0


class Options(NamedTuple):
    """The options of fabric_facts; the defaults of IMEX are those of module_utils/imex/."""

    gather_subset: Sequence[str] = ("gpu",)
    backend: str = "auto"
    nvidia_smi: str = "nvidia-smi"
    ip: str | None = None
    timeout: float = 20.0
    imex_config_file: str = "/etc/nvidia-imex/config.cfg"
    imex_record_file: str = "/etc/nvidia-imex/nvlink.json"
    imex_ctl: str = "nvidia-imex-ctl"
    imex_timeout: float = 10.0
    prolog_files: Sequence[str] = slurmd.PROLOG_FILES
    proc_devices: str = "/proc/devices"
    slurmd: str = "slurmd"


class OptionError(NvlinkError):
    """An option of fabric_facts is wrong."""


def selected(names: Sequence[str]) -> list[str]:
    """The subsets to read, in the order of FACTS; raises OptionError where none is left.

    ``!x`` excludes x, whatever else names it. Without a name that includes, all subsets are included.
    """
    excluded = {name[1:] for name in names if name.startswith("!")}
    included = {name for name in names if not name.startswith("!")}
    everything = not included or "all" in included
    chosen = [name for name in FACTS if (everything or name in included) and name not in excluded]
    if not chosen:
        raise OptionError(f"gather_subset excludes every subset, include one of {', '.join(FACTS)}.")
    return chosen


def check_options(options: Options) -> None:
    """Raise an NvlinkError for a wrong option, also for one that no selected subset uses."""
    fabric_facts.check_options(options.backend, options.nvidia_smi, options.timeout)
    ctl, timeout = options.imex_ctl, options.imex_timeout
    if not isinstance(ctl, str) or not ctl or "\0" in ctl:
        raise OptionError(f"imex_ctl is {ctl!r}, name the program nvidia-imex-ctl.")
    if not isinstance(timeout, (int, float)) or not math.isfinite(timeout) or not 0 < timeout <= MAX_IMEX_TIMEOUT:
        raise OptionError(f"imex_timeout is {timeout!r}, use a number of seconds above 0 and up to {MAX_IMEX_TIMEOUT}.")


def gather(options: Options) -> Result:
    """The module's result: ``ansible_facts`` by the names of FACTS, ``findings`` of all subsets, each with ``part``.

    Raises an NvlinkError for a wrong option only.
    """
    subsets = selected(options.gather_subset)
    check_options(options)
    tray = _Tray(options, subsets)
    facts = {FACTS[name]: tray.part(name) for name in subsets}
    findings = [dict(note, part=name) for name in subsets for note in tray.findings(name)]
    return {"changed": False, "changes": [], "findings": findings, "ansible_facts": facts}


def answer(options: Mapping[str, Any]) -> Result:
    """gather() for the probe; options: those that are not the default."""
    return gather(Options(**options))


class _Tray:
    """The parts of this tray, each read when first needed and once, by the method of its subset's name."""

    def __init__(self, options: Options, subsets: Sequence[str]) -> None:
        self._options, self._subsets = options, subsets
        self._parts: dict[str, Part | None] = {}
        self._failures: dict[str, HostFinding] = {}

    def part(self, name: str) -> Part | None:
        """The facts of a subset; None where reading them failed."""
        if name not in self._parts:
            try:
                self._parts[name] = getattr(self, f"_{name}")()
            except Exception as error:  # whatever one part of a broken tray raises, the others are returned
                self._parts[name] = None
                values = {"subset": name, "error": quoted(str(error))}
                self._failures[name] = host_finding("tray_subset_failed", **values)
        return self._parts[name]

    def findings(self, name: str) -> list[HostFinding]:
        """The findings of a subset that was read, or why it could not be read."""
        part = self.part(name)
        return [self._failures[name]] if part is None else list(part["findings"])

    def _gpu(self) -> Part:
        options = self._options
        return fabric_facts.gather(options.backend, options.nvidia_smi, options.timeout, options.ip)

    def _imex(self) -> Part:
        from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import assembly, survey

        options = self._options
        fabric = self._selected_gpu()
        return assembly.assemble(
            survey.survey(
                options.imex_config_file,
                options.imex_record_file,
                options.imex_ctl,
                options.imex_timeout,
                options.prolog_files,
                options.proc_devices,
                addresses=(lambda: [entry["address"] for entry in fabric["addresses"]]) if fabric else None,
                driver_version=(lambda: survey.loaded_driver() or fabric["driver_version"]) if fabric else None,
            )
        )

    def _channels(self) -> Part:
        """Major number and devices, the same as under IMEX where both are read, and the driver's parameters."""
        from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import survey

        imex = self.part("imex") if "imex" in self._subsets else None
        found = imex["channels"] if imex else survey.channels(self._options.proc_devices)
        return {**found, "parameters": driver.channel_parameters(), "findings": []}

    def _versions(self) -> Part:
        """Versions as text, null where there is none: of what is loaded or runs, and of what is installed.

        The version of a running IMEX daemon is known to its nvidia-imex-ctl alone, so IMEX is read here in any case.
        """
        from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import survey

        imex: Part = self.part("imex") or {}
        gpu = self._selected_gpu() or {}
        failure = self._failures.get("imex")
        return {
            "driver": imex.get("driver_version") or survey.loaded_driver() or gpu.get("driver_version"),
            "imex": imex.get("version"),
            "imex_package": (imex.get("package") or {}).get("version"),
            "slurmd": slurmd_version(self._options.slurmd),
            "kernel": os.uname().release,
            "findings": [failure] if failure and "imex" not in self._subsets else [],
        }

    def _links(self) -> Part:
        """Not read where NVML has just failed or hung for the subset gpu: it would again."""
        from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import links

        fabric = self._selected_gpu()
        why_not = None
        if self._options.backend == "nvidia_smi":
            why_not = "the backend is nvidia_smi"
        elif fabric is not None and fabric["backend"] != "nvml":
            why_not = "NVML could not be read for the subset gpu"
        elif fabric is not None and any(note["code"] == "driver_slow" for note in fabric["findings"]):
            why_not = "NVML is slow"
        return links.gather(self._options.timeout, why_not)

    def _serials(self) -> Part:
        from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import serials

        return serials.gather()

    def _selected_gpu(self) -> Part | None:
        return self.part("gpu") if "gpu" in self._subsets else None


def slurmd_version(program: str) -> str | None:
    """The version of the installed slurmd; None where there is none or it does not report one in time."""
    folders = (f"{slurmd.find().prefix}/sbin", *SLURMD_FOLDERS)
    path = shutil.which(program) or shutil.which(program, path=os.pathsep.join(folders))
    if path is None:
        return None
    found = _SLURM_VERSION.search(child.run([path, "-V"], _VERSION_TIMEOUT).stdout)
    return found.group(1) if found else None
