# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a tray's GPUs through NVML.

The fabric structs are declared here: pynvml's own are wrong in most of its releases (the first version of the struct in
all before 13.615, the second in 12.550 and 12.560, widths of the health mask in 12.570 to 13.580), and its platform
struct cuts raw bytes at their first NUL. Where nvidia-ml-py is installed its pynvml finds and loads the library; where
it is not (a site without package access) the library is loaded by its name, which is all that pynvml does.

``read`` calls NVML in a child process (see child.py), because a call into a faulty driver may never return. Layouts
after nvml.h of CUDA 13.5.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Sequence
from ctypes import c_char, c_int, c_longlong, c_uint, c_uint8, c_ulonglong
from typing import Any, Callable

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import (
    MAX_GPUS,
    UINT8,
    UINT32,
    Checker,
    DriverError,
    Fabric,
    Gpu,
    Health,
    Raw,
    Readings,
    clear_unprobed,
    cliques_by_kind,
    quoted,
    unknown_gpu,
    unknown_health,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, gpu_finding

LIBRARY = "libnvidia-ml.so.1"
INIT_FLAG_NO_GPUS = 1
FIELD_RECOVERY_ACTION = 230
# How many times the time limit, after which a call counts as hung, NVML has in all.
PATIENCE = 3
TYPE_UNICAST_POINTER = 0

SUCCESS = 0
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
# A driver without a function or a version of a struct, or one that has dropped it, returns one of these.
_WITHOUT = (FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED, 2)
# No other version of a call can have an answer then.
_FINAL = (NO_PERMISSION, GPU_IS_LOST, RESET_REQUIRED)


class FabricInfoV2(ctypes.Structure):
    _fields_ = (
        ("version", c_uint),
        ("clusterUuid", c_uint8 * 16),
        ("status", c_uint),
        ("cliqueId", c_uint),
        ("state", c_uint8),
        ("healthMask", c_uint),
    )


class FabricInfoV3(ctypes.Structure):
    _fields_ = (*FabricInfoV2._fields_, ("healthSummary", c_uint8))


class Clique(ctypes.Structure):
    _fields_ = (("type", c_uint8), ("id", c_uint))


class FabricInfoV4(ctypes.Structure):
    _fields_ = (
        ("clusterUuid", c_uint8 * 16),
        ("status", c_uint),
        ("cliques", Clique * 64),
        ("numCliques", c_uint),
        ("state", c_uint8),
        ("healthMask", c_uint),
        ("healthSummary", c_uint8),
    )


class PlatformInfo(ctypes.Structure):
    """Versions 1 and 2: the same bytes under other names."""

    _fields_ = (
        ("version", c_uint),
        ("ibGuid", c_uint8 * 16),
        ("chassisSerialNumber", c_uint8 * 16),
        ("slotNumber", c_uint8),
        ("trayIndex", c_uint8),
        ("hostId", c_uint8),
        ("peerType", c_uint8),
        ("moduleId", c_uint8),
    )


class PciInfo(ctypes.Structure):
    _fields_ = (
        ("busIdLegacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    )


class FieldValue(ctypes.Structure):
    _fields_ = (
        ("fieldId", c_uint),
        ("scopeId", c_uint),
        ("timestamp", c_longlong),
        ("latencyUsec", c_longlong),
        ("valueType", c_int),
        ("nvmlReturn", c_uint),
        ("value", c_ulonglong),
    )


class Pdi(ctypes.Structure):
    _fields_ = (("version", c_uint), ("value", c_ulonglong))


def version_word(struct: type[ctypes.Structure], version: int) -> int:
    return ctypes.sizeof(struct) | (version << 24)


# --- In the child: call NVML, decide nothing, return numbers and raw text.


def query(library: Any = None) -> Raw:
    """All values read from NVML, as JSON: ``{"driver_version", "gpus": [...]}`` or ``{"error": ...}``.

    Runs in the child. ``library`` is an opened one; without it the library is loaded. ``seconds``: how long it took.
    """
    began = time.monotonic()
    library, count, error = opened(library)
    if error is not None:
        return {"error": error}
    # No nvmlShutdown at the end: the process ends anyway, and every call can hang.
    return {
        "driver_version": _text(lambda *call: library_call(library, *call) == SUCCESS, "nvmlSystemGetDriverVersion"),
        "count": count,
        "gpus": [_query_gpu(library, index) for index in range(min(count, MAX_GPUS))],
        "seconds": time.monotonic() - began,
    }


def opened(library: Any = None) -> tuple[Any, int, Raw | None]:
    """(the initialized library, the number of its GPUs, None); where that fails, the last is why: call, code, text.

    Runs in the child. ``library`` is an opened one; without it the library is loaded.
    """
    if library is None:
        library, why = _load()
        if library is None:
            return None, 0, {"call": "load", "code": None, "text": why}
    # Not nvmlInit: it fails where no GPU is usable, and then does not report which one is lost.
    code = library_call(library, "nvmlInitWithFlags", c_uint(INIT_FLAG_NO_GPUS))
    if code != SUCCESS:
        return None, 0, {"call": "nvmlInitWithFlags", "code": code, "text": None}
    count = c_uint()
    code = library_call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    if code != SUCCESS:
        return None, 0, {"call": "nvmlDeviceGetCount_v2", "code": code, "text": None}
    return library, count.value, None


def _load() -> tuple[Any, str]:
    try:
        import pynvml

        os.write(2, b"nvmlInitWithFlags\n")
        with contextlib.suppress(pynvml.NVMLError):
            # pynvml loads the library where it is first called; query() repeats the call, and reports its code.
            pynvml.nvmlInitWithFlags(INIT_FLAG_NO_GPUS)
        if pynvml.nvmlLib is not None:
            return pynvml.nvmlLib, ""
    except Exception:  # a broken pynvml: the library itself may still load
        pass
    try:
        return ctypes.CDLL(LIBRARY), ""
    except OSError as error:
        return None, str(error)


def library_call(library: Any, name: str, *arguments: Any, about: str = "") -> int:
    """One NVML call and its return code; its name is written to descriptor 2 before, so that a hang can be reported."""
    try:
        function = getattr(library, name)
    except AttributeError:
        return FUNCTION_NOT_FOUND
    os.write(2, f"{name}{about}\n".encode())
    return int(function(*arguments))


def _text(call: Callable[..., bool], name: str) -> str | None:
    buffer = ctypes.create_string_buffer(256)
    return buffer.value.decode("utf-8", "replace") if call(name, buffer, c_uint(len(buffer))) else None


def device(library: Any, index: int) -> tuple[Raw, Callable[..., bool] | None]:
    """(index, UUID and PCI address of a GPU; the function that calls NVML with its handle, None without a handle).

    ``codes`` of the GPU are those of the calls, the first one that of the handle where there is none.
    """
    about = f" of GPU {index}"
    codes: list[int] = []

    def call(name: str, *arguments: Any) -> bool:
        codes.append(library_call(library, name, handle, *arguments, about=about))
        return codes[-1] == SUCCESS

    handle = ctypes.c_void_p()
    code = library_call(library, "nvmlDeviceGetHandleByIndex_v2", c_uint(index), ctypes.byref(handle), about=about)
    if code != SUCCESS:
        return {"index": index, "codes": [code]}, None
    gpu: Raw = {"index": index, "codes": codes, "uuid": _text(call, "nvmlDeviceGetUUID")}
    pci = PciInfo()
    if call("nvmlDeviceGetPciInfo_v3", ctypes.byref(pci)):
        gpu["pci_bus_id"] = pci.busId.decode("ascii", "replace")
    return gpu, call


def _query_gpu(library: Any, index: int) -> Raw:
    gpu, call = device(library, index)
    if call is None:
        return gpu
    gpu["name"] = _text(call, "nvmlDeviceGetName")
    module = c_uint()
    if call("nvmlDeviceGetModuleId", ctypes.byref(module)):
        gpu["module_id"] = module.value
    current, pending = c_uint(), c_uint()
    if call("nvmlDeviceGetMigMode", ctypes.byref(current), ctypes.byref(pending)):
        gpu["mig"] = current.value
    value = FieldValue(fieldId=FIELD_RECOVERY_ACTION)
    if call("nvmlDeviceGetFieldValues", c_int(1), ctypes.byref(value)) and value.nvmlReturn == SUCCESS:
        gpu["recovery_action"] = value.value & UINT32  # an unsigned int in a union of eight bytes
    pdi = Pdi(version=version_word(Pdi, 1))
    if call("nvmlDeviceGetPdi", ctypes.byref(pdi)):
        gpu["pdi"] = pdi.value
    gpu["platform"] = _query_platform(call)
    gpu["fabric"] = _query_fabric(call, gpu["codes"])
    return gpu


def _query_platform(call: Callable[..., bool]) -> Raw | None:
    for version in (2, 1):
        info = PlatformInfo(version=version_word(PlatformInfo, version))
        if call("nvmlDeviceGetPlatformInfo", ctypes.byref(info)):
            # The serial fills 13 of its 16 bytes on Blackwell; a full one need not end in a NUL.
            serial = bytes(info.chassisSerialNumber).split(b"\0", 1)[0]
            return {
                # The GUID fills 8 of its 16 bytes, the first one most significant.
                "fabric_guid": f"0x{bytes(info.ibGuid[:8]).hex()}",
                "chassis_serial": serial.decode("ascii", "replace"),
                "slot_number": info.slotNumber,
                "tray_index": info.trayIndex,
                "host_id": info.hostId,
            }
    return None


def _query_fabric(call: Callable[..., bool], codes: list[int]) -> Raw:
    """Version 4 (R615 and newer), 3 (health summary) or 2 (R550); ``{"code": n}`` where none of them succeeds.

    nvml.h deprecates 2 and 3, so a driver may answer one of them with DEPRECATED and another with the fabric. The
    clique id of 2 and 3 is the first of type unicast pointer in 4 (nvml.h of CUDA 13.5, nvmlGpuFabricInfo_v4_t).
    """
    newest = FabricInfoV4()
    if call("nvmlDeviceGetGpuFabricInfo_v4", ctypes.byref(newest)):
        cliques = [[entry.type, entry.id] for entry in newest.cliques[: min(newest.numCliques, len(newest.cliques))]]
        first = next((clique_id for kind, clique_id in cliques if kind == TYPE_UNICAST_POINTER), None)
        return {**_raw_fabric(newest, first, newest.healthSummary), "cliques": cliques}
    failed = [codes[-1]]
    for version, struct in ((3, FabricInfoV3), (2, FabricInfoV2)):
        if failed[-1] in _FINAL:
            break
        info = struct(version=version_word(struct, version))
        if call("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info)):
            return _raw_fabric(info, info.cliqueId, getattr(info, "healthSummary", 0))
        failed.append(codes[-1])
    code = next((code for code in failed if code in _FINAL or code not in _WITHOUT), None)
    if code is not None:
        return {"code": code}
    # Of the unversioned first call only its existence counts, never its result.
    space = ctypes.create_string_buffer(256)
    return {"code": failed[-1], "only_v1": call("nvmlDeviceGetGpuFabricInfo", space)}


def _raw_fabric(info: Any, clique_id: int | None, summary: int) -> Raw:
    return {
        "state": info.state,
        "status": info.status,
        "cluster_uuid": _uuid_text(bytes(info.clusterUuid)),
        "clique_id": clique_id,
        "cliques": [],
        "mask": info.healthMask,
        "summary": summary,
    }


def _uuid_text(raw: bytes) -> str:
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


# --- In the caller: interpret the numbers.


def read(timeout: float) -> Readings:
    """Read NVML, of which no call may take ``timeout`` seconds. Raises DriverError with the finding where it fails."""
    return from_reply(ask([query], timeout)[0], timeout)


def ask(functions: Sequence[Callable[[], Any]], timeout: float) -> list[child.Reply]:
    """The replies of a child that calls these functions, of which no call of NVML may take ``timeout`` seconds."""
    return child.calls(functions, timeout, PATIENCE * timeout)


def from_reply(reply: child.Reply, timeout: float) -> Readings:
    """The reply of a child that ran query() with this time limit, as Readings. Raises DriverError like read()."""
    raw = answer(reply, timeout)
    readings = interpret(raw)
    if raw["seconds"] > timeout:
        readings.findings.append(gpu_finding("driver_slow", seconds=round(raw["seconds"]), timeout=timeout))
    return readings


def answer(reply: child.Reply, timeout: float) -> Raw:
    """What a child returned that called NVML for ``timeout`` seconds. Raises DriverError where it did not."""
    result = reply.result
    if result.is_busy:
        raise DriverError(gpu_finding("driver_unreadable", "slow", seconds=PATIENCE * timeout))
    if result.timed_out:
        where = result.stderr.rstrip("\n").rpartition("\n")[2]
        call = quoted(where) if where else "loading its library"
        found = gpu_finding("driver_timeout", "nvml", call=call, seconds=timeout)
        raise DriverError(found, *stuck(result, "NVML"))
    if not isinstance(reply.value, dict):
        if result.rc is not None and result.rc < 0:
            raise DriverError(gpu_finding("driver_unreadable", "nvml_killed", signal=-result.rc))
        error = quoted(result.error or f"exit status {result.rc}")
        raise DriverError(gpu_finding("driver_unreadable", "nvml_not_called", error=error))
    if reply.value.get("error"):
        raise DriverError(_failure(reply.value["error"]))
    return reply.value


def stuck(result: child.Result, program: str) -> list[HostFinding]:
    """The finding for a child that survived SIGKILL, or none."""
    if result.survivor_pid is None:
        return []
    return [gpu_finding("driver_timeout", "survived", pid=result.survivor_pid, program=program)]


def interpret(raw: Raw) -> Readings:
    """The result of query() as Readings."""
    readings = Readings()
    notes = readings.findings
    readings.driver_version = Checker("NVML", notes).version("driver_version", raw.get("driver_version"))
    readings.gpus = [_gpu(gpu, notes) for gpu in raw["gpus"]]
    if raw["count"] > len(readings.gpus):
        readings.complete = False
        Checker("NVML", notes).refuse("device count", raw["count"])
    if any((gpu["fabric"].get("code") if "fabric" in gpu else gpu["codes"][0]) == NO_PERMISSION for gpu in raw["gpus"]):
        notes.append(gpu_finding("no_permission"))
    old = [gpu["index"] for gpu in raw["gpus"] if (gpu.get("fabric") or {}).get("only_v1")]
    if old:
        notes.append(gpu_finding("fabric_unknown", "old_driver", driver=readings.driver_version or "of this tray"))
    return readings


def _failure(error: Raw) -> HostFinding:
    code, call = error["code"], error["call"]
    if call == "load":
        return gpu_finding("driver_missing", "nvml_not_found", error=quoted(error["text"]))
    if code == DRIVER_NOT_LOADED:
        return gpu_finding("driver_missing")
    if code == LIB_RM_VERSION_MISMATCH:
        return gpu_finding("version_mismatch")
    if code == NO_PERMISSION:
        return gpu_finding("no_permission")
    return gpu_finding("driver_unreadable", "nvml_status", call=call, status=_status(code), number=code)


def _status(code: int) -> str:
    return constants.STATUSES.get(code, ("an unknown code",))[0]


def lost_gpu(index: int, notes: list[HostFinding], *, is_reset: bool = False) -> Gpu:
    """Add the finding of a GPU that no longer responds (gpu_lost); all its values are unknown."""
    notes.append(gpu_finding("gpu_lost", "reset" if is_reset else "lost", index))
    return unknown_gpu(index)


def _gpu(raw: Raw, notes: list[HostFinding]) -> Gpu:
    index, codes = raw["index"], raw["codes"]
    if GPU_IS_LOST in codes:
        return lost_gpu(index, notes)
    if RESET_REQUIRED in codes:
        return lost_gpu(index, notes, is_reset=True)
    gpu = unknown_gpu(index)
    check = Checker("NVML", notes, index)
    if "fabric" not in raw:
        # No handle: NVML counts this GPU, but cannot read it.
        if codes[0] == NO_PERMISSION:
            return gpu
        status = _status(codes[0])
        notes.append(gpu_finding("driver_unreadable", "nvml_handle", index, status=status, number=codes[0]))
        return gpu
    gpu["uuid"] = check.gpu_uuid("uuid", raw.get("uuid"))
    gpu["name"] = check.text("name", raw.get("name"))
    gpu["pci_bus_id"] = check.pci_bus_id("pci_bus_id", raw.get("pci_bus_id"))
    gpu["module_id"] = check.number("module_id", raw.get("module_id"), UINT8)
    gpu["mig_enabled"] = _word({0: (False,), 1: (True,)}, "mig_enabled", raw.get("mig"), check)
    gpu["recovery_action"] = _word(constants.RECOVERY_ACTIONS, "recovery_action", raw.get("recovery_action"), check)
    if gpu["recovery_action"] is None and raw.get("recovery_action"):
        # One that a newer driver has added is an action all the same.
        notes.append(gpu_finding("recovery_action", "", index, action=f"number {raw['recovery_action']}"))
    gpu["pdi"] = check.guid("pdi", f"0x{raw['pdi']:x}" if raw.get("pdi") else None)
    platform = raw["platform"]
    if platform is not None and _has_place(platform):
        gpu["platform"] = {
            "chassis_serial": check.serial("chassis_serial", platform["chassis_serial"]),
            **{key: check.number(key, platform[key], UINT8) for key in ("slot_number", "tray_index", "host_id")},
        }
        gpu["fabric_guid"] = check.guid("fabric_guid", platform["fabric_guid"])
    gpu["fabric"] = _fabric(raw["fabric"], check)
    return gpu


def _has_place(platform: Raw) -> bool:
    """Whether the platform information names a place.

    For a GPU before Blackwell the driver returns success, host 1 and otherwise zeros, where nvidia-smi prints N/A
    (observed on an H200, driver 580.159.04).
    """
    return bool(
        int(platform["fabric_guid"], 16)
        or platform["chassis_serial"]
        or platform["slot_number"]
        or platform["tray_index"]
    )


def _fabric(raw: Raw, check: Checker) -> Fabric:
    fabric = unknown_gpu(0)["fabric"]
    if "code" in raw:
        if raw["code"] == NOT_SUPPORTED:
            fabric["state"] = "not_supported"
        elif raw["code"] not in (*_WITHOUT, NO_PERMISSION):
            check.refuse("fabric state (NVML's return code)", raw["code"])
        return fabric
    fabric["state"] = _word(constants.STATES, "fabric state", raw["state"], check)
    if fabric["state"] == "completed":
        # One that a newer driver has added is no success either.
        fabric["status"] = constants.STATUSES.get(raw["status"], (f"status_{raw['status']}",))[0]
    fabric["clique_id"] = check.number("clique_id", raw["clique_id"], UINT32)
    fabric["cluster_uuid"] = check.uuid("cluster_uuid", raw["cluster_uuid"])
    kinds = ((constants.CLIQUE_TYPES.get(kind, (None,))[0], clique_id) for kind, clique_id in raw["cliques"])
    fabric["cliques"] = cliques_by_kind(kinds)
    fabric["health"] = health(raw["mask"], raw["summary"], check)
    return clear_unprobed(fabric)


def health(mask: int, summary: int, check: Checker) -> Health:
    """The health rows of a mask and a summary; 0 in either means that the driver does not report it."""
    rows = unknown_health()
    if summary:
        rows["summary"] = _word(constants.SUMMARIES, "health summary", summary, check)
    for name, (shift, width) in constants.HEALTH_BITS.items():
        bits = (mask >> shift) & width
        if not bits:
            continue
        if name == "incorrect_configuration":
            rows[name] = _word(constants.INCORRECT_CONFIGURATIONS, name, bits, check)
        else:
            rows[name] = _word({1: (True,), 2: (False,)}, name, bits, check)
    return rows


def _word(table: Any, field_name: str, number: int | None, check: Checker) -> Any:
    if number is None:
        return None
    if number not in table:
        check.refuse(field_name, number)
        return None
    return table[number][0]
