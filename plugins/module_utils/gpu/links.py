# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts ``nvlink_links`` of a tray: state, speed and counters of each NVLink, and the kernel's NVLink Xids.

Fields, states and units after nvml.h of CUDA 13.5. NVML alone has the counters: those that nvidia-smi prints have no
published format. ``query`` runs in a child process like nvml.query(), ``gather`` reads it and the kernel log; the rest
is pure.
"""

from __future__ import annotations

import collections
import ctypes
import os
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants, nvml
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import MAX_GPUS, Checker, Raw, quoted
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, Value, gpu_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count

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

# Xids of NVLink 5 and later, in NVIDIA's Xid catalogue.
XIDS = range(144, 151)
LOG_DAYS = 7
LOG_TIMEOUT = 10.0
# The newest lines, whatever their age in LOG_DAYS.
LOG_LINES = 20_000
MAX_XIDS = 100
# ``NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 14 (0x026001c6 ...)``
_XID = re.compile(
    r"([0-9]{1,12}(?:\.[0-9]+)?) .*?"
    r"NVRM: Xid \(PCI:([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[0-9a-fA-F.]*\): ([0-9]{1,4}), (.*)"
)
_LINK = re.compile(r"\bLink (-?[0-9]{1,3})\b")
_FATAL = re.compile(r"\bFatal\b")

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


class Xid(TypedDict):
    """What the kernel logged of one GPU and link: how often, and when first and last, in seconds since the epoch."""

    xid: int
    gpu: int | None
    pci_bus_id: str
    link: int | None
    fatal: bool
    count: int
    first_at: float
    last_at: float


def gather(timeout: float, why_not: str | None = None) -> dict[str, Any]:
    """The facts of this tray's links, read within ``timeout`` seconds, and of its Xids within LOG_TIMEOUT.

    ``why_not``: why NVML is not to be read, None where it is. Problems are findings, nothing is raised.
    """
    gpus: list[Gpu] | None = None
    notes: list[HostFinding] = []
    if why_not is None:
        try:
            gpus = interpret(nvml.answer(child.call(query, timeout), timeout), notes)
        except nvml.NvmlError as failure:
            notes += [failure.finding, *failure.others]
    else:
        notes.append(gpu_finding("nvlink_links_unknown", "not_read", why=why_not))
    notes += evaluate(gpus or [])
    xids = _kernel_xids(gpus or [], notes)
    return {
        "observed_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "gpus": gpus,
        "xids": xids,
        "findings": [*notes, *(xid_finding(row) for row in xids or [])],
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


# --- The kernel log.


def _kernel_xids(gpus: Sequence[Gpu], notes: list[HostFinding]) -> list[Xid] | None:
    command = ["journalctl", "--no-pager", "--quiet", "--output=short-unix", f"--since=-{LOG_DAYS}d"]
    command += [f"--lines={LOG_LINES}", "_TRANSPORT=kernel"]
    result = child.run(command, LOG_TIMEOUT, env={**os.environ, "LC_ALL": "C"})
    # Without the rights journalctl shows this user's own lines alone, which are none of the kernel.
    hidden = os.geteuid() != 0 and not result.stdout
    if result.rc != 0 or hidden:
        why = "this user may not read it" if hidden else quoted(result.reason)
        notes.append(gpu_finding("nvlink_links_unknown", "log", why=why))
        return None
    return xids(result.stdout.splitlines(), gpus)


def xids(lines: Iterable[str], gpus: Iterable[Gpu] = ()) -> list[Xid]:
    """The NVLink Xids in lines of ``journalctl -o short-unix``: one row a GPU, Xid and link, the newest first.

    ``gpus``: the facts' GPUs, which give a PCI address its index. At most MAX_XIDS rows.
    """
    index_of = {address(gpu["pci_bus_id"]): gpu["index"] for gpu in gpus if gpu["pci_bus_id"]}
    found: dict[tuple[str, int, int | None], Xid] = {}
    for line in lines:
        match = _XID.match(line)
        # An Xid 45 "caused by previous Xid 149" is number 45.
        if match is None or int(match[3]) not in XIDS:
            continue
        stamp, where, xid, text = float(match[1]), address(match[2]), int(match[3]), match[4]
        link = _LINK.search(text)
        # Link -1 is no single one.
        number = int(link[1]) if link and 0 <= int(link[1]) < MAX_LINKS else None
        row = found.setdefault(
            (where, xid, number),
            {
                "xid": xid,
                "gpu": index_of.get(where),
                "pci_bus_id": f"{where}.0",
                "link": number,
                "fatal": False,
                "count": 0,
                "first_at": stamp,
                "last_at": stamp,
            },
        )
        row["count"] += 1
        row["fatal"] = row["fatal"] or _FATAL.search(text) is not None
        row["first_at"], row["last_at"] = min(row["first_at"], stamp), max(row["last_at"], stamp)
    return sorted(found.values(), key=lambda row: -float(row["last_at"]))[:MAX_XIDS]


def address(pci_bus_id: str) -> str:
    """A PCI address without its function, with the long domain, in upper case: how the kernel and NVML compare."""
    return pci_bus_id.partition(".")[0].upper().rjust(len("00000000:00:00"), "0")


def xid_finding(row: Xid) -> HostFinding:
    """The finding nvlink_xid of a row of xids()."""
    gpu = f"GPU {row['gpu']}" if row["gpu"] is not None else f"The GPU at {row['pci_bus_id']}"
    values: dict[str, Value] = {
        "where": gpu if row["link"] is None else f"{gpu} link {row['link']}",
        "xid": row["xid"],
        "times": count(row["count"], "time") + (", fatal" if row["fatal"] else ""),
        "last": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row["last_at"])),
    }
    return gpu_finding("nvlink_xid", "", row["gpu"], **values)
