# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts ``nvlink_links`` of a tray: state, speed and counters of each NVLink, and the Xids of the kernel log.

Fields, states and units after nvml.h of CUDA 13.5. NVML alone has the counters: those that nvidia-smi prints have no
published format. ``query`` runs in a child process like nvml.query(), ``gather`` reads it and the kernel log; the rest
is pure.
"""

from __future__ import annotations

import collections
import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants, kernel_log, nvml
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import MAX_GPUS, Checker, DriverError, Raw
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, Value, gpu_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, rfc3339

# NVML_NVLINK_MAX_LINKS.
MAX_LINKS = 36
# NVML_FI_DEV_NVLINK_*, each read with the link's number as scope, LINK_COUNT without.
LINK_COUNT, SPEED, STATE = 91, 164, 165
STATES = {0: "inactive", 1: "active", 2: "sleep", 3: "active_traffic_disabled"}
# NVML_ERROR_INVALID_ARGUMENT and NVML_ERROR_NOT_SUPPORTED.
_NO_LINK = (2, 3)
# A link in its low-power state wakes up with traffic.
_USABLE = ("active", "sleep")
COUNTERS = {
    "malformed_packets": 206,
    "buffer_overruns": 207,
    "receive_errors": 208,
    "receive_remote_errors": 209,
    "receive_general_errors": 210,
    "integrity_errors": 211,
    "transmit_discards": 212,
    "recoveries_successful": 213,
    "recoveries_failed": 214,
    "recoveries": 215,
    "effective_errors": 219,
    "symbol_errors": 221,
}
# Bit error rates: the exponent in bits 0 to 7, the mantissa in bits 8 to 11.
RATES = {"effective_ber": 220, "symbol_ber": 222}
# The bits of a value by its type: nvmlValueType_t without the double and the signed ones, which no counter has.
_BITS = {1: 32, 2: 64, 3: 64, 6: 16}
_MAX_COUNT = 2**63 - 1

# --- In the child.


def query(library: Any = None) -> Raw:
    """``{"gpus": [...]}`` as numbers and raw text, or ``{"error": ...}``; ``library`` as for nvml.query()."""
    library, found, error = nvml.opened(library)
    if error is not None:
        return {"error": error}
    return {"gpus": [_query_gpu(library, index) for index in range(min(found, MAX_GPUS))]}


def _query_gpu(library: Any, index: int) -> Raw:
    gpu, call = nvml.device(library, index)
    codes = gpu.pop("codes")
    if call is None:
        return {**gpu, "code": codes[0]}
    gpu["code"] = nvml.SUCCESS

    def fields(ids: Sequence[int], scope: int) -> dict[int, list[int]]:
        """Field -> its value's type and bits, of those that this driver and GPU have."""
        values = (nvml.FieldValue * len(ids))(*(nvml.FieldValue(fieldId=field, scopeId=scope) for field in ids))
        if not call("nvmlDeviceGetFieldValues", ctypes.c_int(len(ids)), ctypes.byref(values)):
            # A driver may count more slots than the GPU has links, and refuse those without one.
            if ids[0] == LINK_COUNT or codes[-1] not in _NO_LINK:
                gpu["code"] = codes[-1]
            return {}
        return {row.fieldId: [row.valueType, row.value] for row in values if row.nvmlReturn == nvml.SUCCESS}

    gpu["count"] = fields([LINK_COUNT], 0).get(LINK_COUNT)
    gpu["links"] = []
    if gpu["count"] is not None:
        known = _number(gpu["count"])
        wanted = [SPEED, STATE, *COUNTERS.values(), *RATES.values()]
        for link in range(min(known or 0, MAX_LINKS)):
            values = fields(wanted, link)
            if STATE not in values:
                active = ctypes.c_int()
                if call("nvmlDeviceGetNvLinkState", ctypes.c_uint(link), ctypes.byref(active)):
                    values[STATE] = [1, active.value]
            gpu["links"].append(values)
    return gpu


# --- In the caller.


class Links(TypedDict):
    """The links of a GPU with one state and speed (MB/s). None is unknown; an inactive link has no speed."""

    state: str | None
    speed: int | None
    links: list[int]


class Gpu(TypedDict):
    index: int
    uuid: str | None
    pci_bus_id: str | None
    link_count: int | None
    links: list[Links]
    counters: list[dict[str, int | float | None]]
    """Of each link with any error: link, and the names of COUNTERS and RATES."""
    unknown_counters: list[str]


def gather(timeout: float, why_not: str | None = None) -> dict[str, Any]:
    """The facts of this tray's links, read within ``timeout`` seconds, and of its Xids within kernel_log.TIMEOUT.

    ``why_not``: why NVML is not to be read, None where it is. Problems are findings, nothing is raised.
    """
    gpus: list[Gpu] | None = None
    notes: list[HostFinding] = []
    if why_not is None:
        try:
            gpus = interpret(nvml.answer(nvml.ask([query], timeout)[0], timeout), notes)
        except DriverError as failure:
            notes += [failure.finding, *failure.others]
    else:
        notes.append(gpu_finding("nvlink_links_unknown", "not_read", why=why_not))
    notes += evaluate(gpus or [])
    xids, complete = kernel_log.gather(gpus or [], notes)
    return {
        "observed_at": rfc3339(),
        "gpus": gpus,
        "xids": xids,
        "xids_complete": complete,
        "findings": notes,
    }


def interpret(raw: Raw, notes: list[HostFinding]) -> list[Gpu]:
    """The GPUs of a result of query() in the shape of the facts; adds findings to ``notes``."""
    return [_gpu(row, notes) for row in raw["gpus"]]


def _gpu(raw: Raw, notes: list[HostFinding]) -> Gpu:
    index = raw["index"]
    check = Checker("NVML", notes, index)
    gpu: Gpu = {
        "index": index,
        "uuid": check.gpu_uuid("uuid", raw.get("uuid")),
        "pci_bus_id": check.pci_bus_id("pci_bus_id", raw.get("pci_bus_id")),
        "link_count": None,
        "links": [],
        "counters": [],
        "unknown_counters": [],
    }
    if raw["code"] != nvml.SUCCESS:
        status = constants.STATUSES.get(raw["code"], ("an unknown code",))[0]
        notes.append(gpu_finding("nvlink_links_unknown", "gpu", index, status=status, number=raw["code"]))
        return gpu
    gpu["link_count"] = check.number("NVLink count", _number(raw["count"]), MAX_LINKS)
    # B200 and B300 have 18 links in 36 slots, of which the driver refuses the others (NVIDIA/TensorRT-LLM, pull
    # requests 17060 and 19210).
    slots = [link for link, values in enumerate(raw["links"]) if values]
    if gpu["link_count"] and slots:
        gpu["link_count"] = slots[-1] + 1
    groups: dict[tuple[str | None, int | None], list[int]] = {}
    unknown: set[str] = set()
    for link, values in enumerate(raw["links"][: gpu["link_count"]]):
        state = _number(values.get(STATE))
        if state is not None and state not in STATES:
            check.refuse(f"state of NVLink {link}", state)
        speed = check.number(f"speed of NVLink {link}", _number(values.get(SPEED)), _MAX_COUNT)
        # An inactive link has none.
        groups.setdefault((STATES.get(state) if state is not None else None, speed or None), []).append(link)
        row = {name: check.number(name, _number(values.get(field)), _MAX_COUNT) for name, field in COUNTERS.items()}
        unknown |= {name for name, value in row.items() if value is None}
        if any(row.values()):
            rates = {name: _rate(_number(values.get(field))) for name, field in RATES.items()}
            gpu["counters"].append({"link": link, **row, **rates})
    gpu["links"] = [{"state": state, "speed": speed, "links": links} for (state, speed), links in groups.items()]
    gpu["unknown_counters"] = [name for name in COUNTERS if name in unknown]
    return gpu


def _number(value: Sequence[int] | None) -> int | None:
    """The number of a field value, [type, eight bytes of the union]; None for one of a type that no field has."""
    if value is None or value[0] not in _BITS:
        return None
    return int(value[1]) & ((1 << _BITS[value[0]]) - 1)


def _rate(value: int | None) -> float | None:
    """The bit error rate of NVML's exponent and mantissa; 0 is no rate."""
    return None if not value else float(f"{value >> 8 & 0xF}e-{value & 0xFF}")


def expected(gpus: Iterable[Gpu]) -> tuple[int | None, int | None]:
    """The number of links and their speed that most GPUs of the tray have; the larger of two equally frequent ones.

    No product's numbers are written here: NVIDIA's health validation has 18 links and 53125 MB/s for GB200 and GB300,
    and another product, or a site that runs its links slower, has others.
    """
    counts = collections.Counter(gpu["link_count"] for gpu in gpus if gpu["link_count"])
    speeds: collections.Counter[int] = collections.Counter()
    for gpu in gpus:
        for row in gpu["links"]:
            if row["state"] in _USABLE and row["speed"]:
                speeds[row["speed"]] += len(row["links"])
    return _most(counts), _most(speeds)


def _most(counter: collections.Counter[int]) -> int | None:
    return max(counter, key=lambda value: (counter[value], value)) if counter else None


def evaluate(gpus: Sequence[Gpu], known: int | None = None) -> list[HostFinding]:
    """The findings about GPUs without an active link (nvlink_links_down) and those of which not all are at full speed.

    known: the number of links that each GPU must have; without it, of most GPUs of the tray, of which none may be
    active on a tray of PCIe cards without a bridge.
    """
    links, speed = expected(gpus)
    links = known or links
    if links is None:
        return []
    rows = [(gpu, _degraded(gpu, links, speed)) for gpu in gpus if gpu["link_count"] is not None]
    if known is None and speed is None and rows and all(usable == 0 and bad for _gpu, (bad, usable) in rows):
        return [gpu_finding("nvlink_links_degraded", "all", gpus=count(len(rows), "GPU"), links=links)]
    found = []
    for gpu, (bad, usable) in rows:
        if bad and not any(row["state"] in _USABLE for row in gpu["links"]):
            found.append(gpu_finding("nvlink_links_down", "", gpu["index"], links=links))
        elif bad:
            numbers = fold(map(str, bad))
            values: dict[str, Value] = {
                "usable": usable,
                "links": links,
                "speed": f" at {speed} MB/s" if speed else "",
                "others": f"link {numbers} is" if len(bad) == 1 else f"links {numbers} are",
            }
            found.append(gpu_finding("nvlink_links_degraded", "some", gpu["index"], **values))
    return found


def _degraded(gpu: Gpu, links: int, speed: int | None) -> tuple[list[int], int]:
    """(the links of a GPU that are not active at full speed, the number of usable ones)."""
    usable = {
        link
        for row in gpu["links"]
        if row["state"] in _USABLE and (row["speed"] is None or speed is None or row["speed"] >= speed)
        for link in row["links"]
    }
    unknown = {link for row in gpu["links"] if row["state"] is None for link in row["links"]}
    return [link for link in range(links) if link not in usable | unknown], len(usable)
