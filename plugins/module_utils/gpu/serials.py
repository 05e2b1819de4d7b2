# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts ``nvlink_serials`` of a tray: what DMI and the vital product data of network adapters name, by sysfs.

Layouts after the SMBIOS specification (type 4, processor) and the PCI local bus specification (VPD).
"""

from __future__ import annotations

import glob
import os
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, child
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import Checker, Raw
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding

# A faulty adapter answers for its product data late or never.
TIMEOUT = 10.0
_CPU_SERIAL = 0x20
_READ_ONLY_FIELDS = 0x90


def gather() -> dict[str, Any]:
    """The facts; null where sysfs has no serial number, or shows it to root only. NvlinkError where it does not end."""
    reply = child.call(query, TIMEOUT)
    if reply.value is None:
        raise NvlinkError(f"reading serial numbers from /sys: {reply.result.reason}")
    raw: Raw = reply.value
    notes: list[HostFinding] = []
    check = Checker("sysfs", notes)

    def serial(text: str | None) -> str | None:
        # The text of a part without one, such as Not Specified, has no digit.
        return check.text("serial", text) if text and any(map(str.isdigit, text)) else None

    return {
        "baseboard": serial(raw["baseboard"]),
        "cpus": list(filter(None, map(serial, raw["cpus"]))) or None,
        "nics": [{"interface": check.text("interface", name), "serial": serial(text)} for name, text in raw["nics"]],
        "findings": notes,
    }


def query(root: str = "/sys") -> Raw:
    """The texts; runs in a child."""
    folders = sorted(glob.glob(f"{root}/class/net/*/device"))
    cpus = sorted(glob.glob(f"{root}/firmware/dmi/entries/4-*/raw"))
    return {
        "baseboard": (atomic.read_regular(f"{root}/class/dmi/id/board_serial") or b"").decode("ascii", "replace"),
        "cpus": [_cpu_serial(atomic.read_regular(path) or b"") for path in cpus],
        "nics": [
            (os.path.basename(os.path.dirname(folder)), _adapter_serial(atomic.read_regular(f"{folder}/vpd") or b""))
            for folder in folders
        ],
    }


def _cpu_serial(entry: bytes) -> str:
    """Of an entry's fields, whose second byte is their length, and its texts, which the fields name from 1."""
    length = entry[1] if len(entry) > 1 else 0
    texts = entry[length:].split(b"\0")
    number = entry[_CPU_SERIAL] if _CPU_SERIAL < length < len(entry) else 0
    return texts[number - 1].decode("ascii", "replace") if 0 < number <= len(texts) else ""


def _adapter_serial(data: bytes) -> str:
    """The field SN: product data are items of tag and size, and the read-only one fields of key and size."""
    at = 0
    while at + 3 <= len(data):
        end = at + 3 + int.from_bytes(data[at + 1 : at + 3], "little")
        field = at + 3
        while data[at] == _READ_ONLY_FIELDS and field + 3 <= min(end, len(data)):
            text = data[field + 3 : field + 3 + data[field + 2]]
            if data[field : field + 2] == b"SN":
                return text.decode("ascii", "replace").strip("\0")
            field += 3 + data[field + 2]
        at = end
    return ""
