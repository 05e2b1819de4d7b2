# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a tray's GPUs through ``nvidia-smi -q -x``: the fallback where NVML cannot be used.

NVIDIA keeps NVML stable and not this text, so every element is optional here. The names, their mixed case and their
values are those of real captures of drivers R570 to R595. A document with entities of its own is refused; its DOCTYPE
line names an external DTD, which is never read.
"""

from __future__ import annotations

import os
import re
from typing import Any
from xml.parsers import expat

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.nvml import lost_gpu, stuck
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import (
    MAX_GPUS,
    UINT8,
    UINT32,
    Checker,
    Cliques,
    DriverError,
    Fabric,
    Gpu,
    Health,
    Readings,
    clear_unprobed,
    cliques_by_kind,
    quoted,
    unknown_gpu,
    unknown_health,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, gpu_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count

MAX_XML = 8 * 1024 * 1024
_ROOT = "nvidia_smi_log"
_ABSENT = ("", "n/a", "[n/a]", "not supported", "[not supported]")
# Texts of an element whose call failed.
_LOST = "gpu is lost"
_RESET = ("gpu requires reset", "gpu requires restart")
# Not allowed in XML, but nvidia-smi prints some texts as they are. The value checks refuse the replacement.
_ILLEGAL = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\ufffd")
_REFUSED = ("insufficient permissions", "[insufficient permissions]")
_FAILED = ("unknown error", "err!", "[unknown error]", "requested functionality has been deprecated", *_REFUSED)

# Texts that nvidia-smi prints instead of XML -> the code and case of the finding.
TEXTS = {
    "couldn't communicate with the nvidia driver": ("driver_missing", ""),
    "driver/library version mismatch": ("version_mismatch", ""),
    "couldn't find libnvidia-ml": ("driver_missing", "smi_not_linked"),
    "no devices were found": ("no_gpu", ""),
    "gpu is lost": ("gpu_lost", "smi_lost"),
    "gpu requires reset": ("gpu_lost", "smi_reset"),
    "insufficient permissions": ("no_permission", ""),
}

# "Unable to determine the device handle for GPU0000:0F:00.0: GPU requires reset"
# Since R550 "GPU3: 0000:5F:00.0".
_NAMED_GPU = re.compile(
    r"device handle for GPU(?:[0-9]{1,4}:)? ?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])"
)


def read(program: str, timeout: float) -> Readings:
    """Run nvidia-smi for at most ``timeout`` seconds. Raises DriverError with the finding where it fails."""
    result = child.run([program, "-q", "-x"], timeout, env={**os.environ, "LC_ALL": "C"})
    if result.timed_out:
        found = gpu_finding("driver_timeout", "nvidia_smi", seconds=timeout)
        raise DriverError(found, *stuck(result, "nvidia-smi"))
    if result.error is not None:
        error = quoted(result.error)
        raise DriverError(gpu_finding("driver_missing", "smi_not_started", program=quoted(program), error=error))
    text, unread = result.stdout, _unread(result.stderr)
    if not text.lstrip("\ufeff \t\r\n").startswith("<"):
        # A driver may print the line of a GPU without a handle, then describe the others.
        before, mark, document = text.partition("<?xml")
        unread = _unread(before)
        if not (mark and unread):
            raise DriverError(_not_xml(result.stdout + result.stderr, result.rc))
        text = mark + document
    readings = parse_xml(text)
    if unread and readings.complete:
        readings.complete = False
        described = count(len(readings.gpus), "GPU")
        readings.findings.append(gpu_finding("gpu_lost", "smi_unread", described=described, line=quoted(unread)))
    if result.rc != 0:
        readings.findings.append(gpu_finding("unusable_value", "exit", status=result.rc))
    return readings


def _unread(text: str) -> str | None:
    """The line of a GPU that nvidia-smi cannot read, None where there is none."""
    return next((line for line in text.splitlines() if "determine the device handle for gpu" in line.lower()), None)


def parse_xml(text: str) -> Readings:
    """The readings in the output of ``nvidia-smi -q -x``. Raises DriverError and nothing else, whatever the text."""
    if not text.lstrip("\ufeff \t\r\n").startswith("<"):
        raise DriverError(_not_xml(text, 0))
    root = _tree(text)
    readings = Readings()
    notes = readings.findings
    readings.driver_version = _driver_version(root, Checker("nvidia-smi", notes))
    found = root.findall("gpu")
    readings.gpus = [_gpu(index, gpu, notes) for index, gpu in enumerate(found)]
    if any((_first(gpu, "fabric", "state") or "").lower() in _REFUSED for gpu in found):
        notes.append(gpu_finding("no_permission"))
    counted = Checker("nvidia-smi", notes).number("attached_gpus", _first(root, "attached_gpus"), UINT32)
    if counted is not None and counted > len(found):
        readings.complete = False
        notes.append(gpu_finding("gpu_lost", "smi_fewer", counted=count(counted, "GPU"), described=len(found)))
    return readings


def _not_xml(text: str, status: int | None) -> HostFinding:
    lowered = text.lower()
    for part, (code, case) in TEXTS.items():
        if part in lowered:
            named = _NAMED_GPU.search(text)
            return gpu_finding(code, case, which=f"GPU {named[1]}" if named else "one of them")
    line = next((line for line in text.splitlines() if line.strip()), "")
    if not line:
        return gpu_finding("driver_unreadable", "smi_nothing", status=status)
    return gpu_finding("driver_unreadable", "smi_text", line=quoted(line), status=status)


def without_process_names(text: str) -> str:
    """The output of ``nvidia-smi -q -x`` with ``removed`` as the name of each process.

    nvidia-smi prints a name as it is: with characters and markup that XML does not allow (cwltool's pull request 1910).
    """
    first, *others = text.split("<process_name>")
    # One without an end is the first half of a name that has such a tag itself.
    rest = (after for _name, end, after in (part.rpartition("</process_name>") for part in others) if end)
    return first + "".join(f"<process_name>removed</process_name>{after}" for after in rest)


def _tree(text: str) -> Any:
    """The root element of a document within the limits and without entities of its own. Raises DriverError."""
    # Not at the top: the import takes longer than reading NVML.
    from xml.etree import ElementTree

    raw = without_process_names(text).lstrip("\ufeff \t\r\n").translate(_ILLEGAL).encode()
    if len(raw) > MAX_XML:
        raise _refused(f"is longer than {MAX_XML} bytes")
    if b"<!ENTITY" in raw:
        raise _refused("declares entities of its own")
    try:
        root = ElementTree.fromstring(raw, ElementTree.XMLParser(encoding="utf-8"))
    except ElementTree.ParseError as error:
        what = expat.ErrorString(error.code) or "an error"
        found = gpu_finding("driver_unreadable", "smi_malformed", error=what, line=error.position[0])
        raise DriverError(found) from error
    if root.tag != _ROOT:
        raise _refused(f"begins with the element {quoted(root.tag)}, not with {_ROOT}")
    if len(root.findall("gpu")) > MAX_GPUS:
        raise _refused(f"describes more than {MAX_GPUS} GPUs")
    return root


def _refused(why: str) -> DriverError:
    return DriverError(gpu_finding("driver_unreadable", "smi_refused", why=why))


def _first(element: Any, *path: str) -> str | None:
    """The text of the first element at the path, None where there is none or where it has children instead."""
    found = element.find("/".join(path))
    return None if found is None or len(found) else (found.text or "").strip(" \t\r\n")


def _driver_version(root: Any, check: Checker) -> str | None:
    """``kmd_version``, else ``driver_version`` without a note in brackets.

    R610 prints both, and in the text form the note "[Deprecated; will be removed in CUDA 14.0. Use KMD Version
    instead]" behind the older one (nvidia-smi's change log, its text of 610.43 and its XML of 615.23).
    """
    for name in ("kmd_version", "driver_version"):
        text = _first(root, name)
        version = check.version(name, None if text is None else text.partition("[")[0])
        if version is not None:
            return version
    return None


def _gpu(index: int, element: Any, notes: list[HostFinding]) -> Gpu:
    texts = {text.lower() for text in _texts_read(element)}
    if _LOST in texts:
        return lost_gpu(index, notes)
    if texts.intersection(_RESET):
        return lost_gpu(index, notes, is_reset=True)
    check = Checker("nvidia-smi", notes, index)
    gpu = unknown_gpu(index)

    def read_text(*path: str) -> str | None:
        text = _first(element, *path)
        return None if text is None or text.lower() in _FAILED else text

    gpu["uuid"] = check.gpu_uuid("uuid", read_text("uuid"))
    gpu["name"] = check.text("name", read_text("product_name"))
    gpu["pci_bus_id"] = check.pci_bus_id("pci_bus_id", read_text("pci", "pci_bus_id"))
    gpu["module_id"] = check.number("module_id", read_text("platformInfo", "module_id"), UINT8)
    if gpu["module_id"] is None:
        # Documents of nvsmi_device_v12.dtd (driver 535.54, for one) and early ones of v13 have no platformInfo.
        gpu["module_id"] = check.number("gpu_module_id", read_text("gpu_module_id"), UINT8)
    gpu["fabric_guid"] = check.guid("fabric_guid", read_text("platformInfo", "gpu_fabric_guid"))
    gpu["pdi"] = check.guid("pdi", read_text("pdi"))
    gpu["mig_enabled"] = _flag(
        "mig_enabled", read_text("mig_mode", "current_mig"), {"enabled": True, "disabled": False}, check
    )
    gpu["recovery_action"] = _word(
        constants.RECOVERY_ACTIONS, "recovery_action", read_text("gpu_recovery_action"), check
    )
    gpu["platform"] = {
        "chassis_serial": check.serial("chassis_serial", read_text("platformInfo", "chassis_serial_number")),
        **{
            key: check.number(key, read_text("platformInfo", key), UINT8)
            for key in ("slot_number", "tray_index", "host_id")
        },
    }
    gpu["fabric"] = _fabric(element, check)
    return gpu


def _texts_read(element: Any) -> list[str]:
    """The texts that show whether a GPU still responds; not its whole tree, where a process can have any name."""
    paths = (("uuid",), ("product_name",), ("pci", "pci_bus_id"), ("fabric", "state"), ("mig_mode", "current_mig"))
    return [text for text in (_first(element, *path) for path in paths) if text is not None]


def _fabric(element: Any, check: Checker) -> Fabric:
    fabric = unknown_gpu(0)["fabric"]
    state = _first(element, "fabric", "state")
    if state is None:
        return fabric  # a driver from before the fabric section
    if state.lower() in _ABSENT:
        fabric["state"] = "not_supported"
        return fabric
    if state.lower() in _REFUSED:
        return fabric  # parse_xml() reports it once for all GPUs
    fabric["state"] = _word(constants.STATES, "fabric state", state, check)
    if fabric["state"] == "completed":
        # Only here are the texts of failed calls values: "Unknown Error" and "Not Supported" are statuses.
        status = _first(element, "fabric", "status")
        if status is not None and status.lower() not in ("", "n/a"):
            fabric["status"] = _status(status, check)
    fabric["clique_id"] = check.number("clique_id", _first(element, "fabric", "cliqueId"), UINT32)
    fabric["cluster_uuid"] = check.uuid("cluster_uuid", _first(element, "fabric", "clusterUuid"))
    fabric["cliques"] = _cliques(element, check)
    fabric["health"] = _health(element, check)
    return clear_unprobed(fabric)


def _status(text: str, check: Checker) -> str | None:
    """The word of a status; one that no release had so far is in its own words, because it is no success either."""
    known = constants.word_of_text(constants.STATUSES, text)
    if known is None and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _/.-]{0,79}", text):
        return re.sub("[^a-z0-9]+", "_", text.lower()).strip("_")
    if known is None:
        check.refuse("fabric status", text)
    return known


def _cliques(element: Any, check: Checker) -> Cliques | None:
    """The rows clique_entry of R615, None where there are none."""
    found = []
    for row in element.findall("fabric/cliques/clique_entry")[: constants.MAX_CLIQUES]:
        kind = constants.word_of_text(constants.CLIQUE_TYPES, _first(row, "clique_type") or "")
        found.append((kind, check.number("clique_id", _first(row, "clique_id"), UINT32)))
    return cliques_by_kind(found)


_TRUTH = {"true": True, "false": False}
_BANDWIDTH = {"degraded": True, "full": False}
_CONNECTION = {"connected": True, "disconnected": False}


def _health(element: Any, check: Checker) -> Health:
    """Every row is optional: R570 has no summary, partition_assigned was added during R580, gfm_state in R615."""
    rows = unknown_health()

    def read_row(row: str) -> str | None:
        return _first(element, "fabric", "health", row)

    rows["summary"] = _word(constants.SUMMARIES, "health summary", read_row("summary"), check)
    rows["degraded_bandwidth"] = _flag("bandwidth", read_row("bandwidth"), _BANDWIDTH, check)
    rows["route_recovery"] = _flag("route_recovery", read_row("route_recovery_in_progress"), _TRUTH, check)
    rows["incorrect_configuration"] = _word(
        constants.INCORRECT_CONFIGURATIONS, "incorrect_configuration", read_row("incorrect_configuration"), check
    )
    for row in ("route_unhealthy", "access_timeout_recovery", "partition_assigned"):
        rows[row] = _flag(row, read_row(row), _TRUTH, check)
    rows["fabric_manager_connected"] = _flag("gfm_state", read_row("gfm_state"), _CONNECTION, check)
    return rows


def _word(table: dict[int, tuple[str, str]], field: str, text: str | None, check: Checker) -> str | None:
    if text is None or text.lower() in _ABSENT:
        return None
    word = constants.word_of_text(table, text) if re.fullmatch(r"[A-Za-z0-9 _/.-]{1,80}", text) else None
    if word is None:
        check.refuse(field, text)
    return word


def _flag(field: str, text: str | None, meanings: dict[str, bool], check: Checker) -> bool | None:
    if text is None or text.lower() in _ABSENT:
        return None
    if text.lower() in meanings:
        return meanings[text.lower()]
    check.refuse(field, text)
    return None
