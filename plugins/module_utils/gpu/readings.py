# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readings of a tray by one backend, and the checks that every value passes first.

Each backend returns a Readings with the same shape, words and nulls. An invalid value becomes unknown (null) with a
finding; a value that the tool reports as absent (N/A, Not Supported) is null without a finding.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable
from typing import Any, TypedDict, Union

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import CLIQUE_TYPES, HEALTH_BITS, ZERO_UUID
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, gpu_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, shortened, summarize

MAX_GPUS = 1024
UINT8, UINT32 = 0xFF, 0xFFFFFFFF

_ABSENT = {"", "n/a", "[n/a]", "none", "not supported", "[not supported]", "not available"}
# No control characters, templates, or brackets that a host list or a shell would expand; ASCII only.
_PLAIN = "-A-Za-z0-9 ._:+/@#,()"
_TEXT = re.compile(f"[{_PLAIN}]{{1,256}}")
_UNSAFE = re.compile(f"[^{_PLAIN}'=]+")
_SERIAL = re.compile(r"[A-Za-z0-9._-]{1,64}")
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9A-Za-z]{1,16}){0,5}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_GPU_UUID = re.compile(f"[Gg][Pp][Uu]-{_UUID.pattern}")
_PCI = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")
_GUID = re.compile(r"(0[xX])?[0-9a-fA-F]{1,16}")
_NUMBER = re.compile(r"[0-9]{1,10}")

Health = dict[str, Union[str, bool, None]]
Cliques = dict[str, list[int]]
"""Kind of operation -> IDs of a GPU's cliques."""


Raw = dict[str, Any]
"""What a child has read of the driver, as JSON: numbers and raw text, of which any may be missing."""


class Fabric(TypedDict):
    """A GPU's place in the NVLink fabric; null where the driver does not say it."""

    state: str | None
    status: str | None
    cluster_uuid: str | None
    clique_id: int | None
    cliques: Cliques | None
    health: Health


class Gpu(TypedDict):
    """One GPU of the contract's gpus, plus ``platform``: chassis_serial, slot_number, tray_index and host_id.

    The contract has these on the tray, whose GPUs share them.
    """

    index: int
    uuid: str | None
    name: str | None
    pci_bus_id: str | None
    module_id: int | None
    fabric_guid: str | None
    pdi: str | None
    mig_enabled: bool | None
    recovery_action: str | None
    fabric: Fabric
    platform: dict[str, str | int | None]


class DriverError(NvlinkError):
    """The driver could not be read by one way; ``finding`` is the reason, ``others`` are further findings."""

    def __init__(self, found: HostFinding, *others: HostFinding) -> None:
        super().__init__(found["code"])
        self.finding = found
        self.others = others


class Readings:
    """The readings of one tray by one backend; ``complete`` is False when the backend left GPUs out."""

    # No dataclass: importing that module takes longer than reading the GPUs.
    def __init__(self, driver_version: str | None = None) -> None:
        self.driver_version = driver_version
        self.gpus: list[Gpu] = []
        self.findings: list[HostFinding] = []
        self.complete = True


def unknown_gpu(index: int) -> Gpu:
    """A GPU of which only the index is known: one that is lost or needs a reset."""
    return {
        "index": index,
        "uuid": None,
        "name": None,
        "pci_bus_id": None,
        "module_id": None,
        "fabric_guid": None,
        "pdi": None,
        "mig_enabled": None,
        "recovery_action": None,
        "fabric": {
            "state": None,
            "status": None,
            "cluster_uuid": None,
            "clique_id": None,
            "cliques": None,
            "health": unknown_health(),
        },
        "platform": {"chassis_serial": None, "slot_number": None, "tray_index": None, "host_id": None},
    }


def unknown_health() -> Health:
    """Every health row null: the driver reports no health (older drivers, HGX H100)."""
    return dict.fromkeys(("summary", *HEALTH_BITS))


def cliques_by_kind(entries: Iterable[tuple[str | None, int | None]]) -> Cliques | None:
    """Kind of operation -> IDs of a GPU's cliques, from (kind, ID) in the driver's order; None without any.

    An entry with a kind of a newer driver or an unusable ID, None here, is left out.
    """
    ids: Cliques = {kind: [] for kind, _text in CLIQUE_TYPES.values()}
    for kind, clique_id in entries:
        if kind is not None and clique_id is not None:
            ids[kind].append(clique_id)
    return ids if any(ids.values()) else None


def tally_cliques(noun: str, cliques: Iterable[Iterable[int]]) -> str:
    """Format how many are in which cliques: ``3 trays in 1; 1 tray in 2, 5``, at most five of these."""
    numbers = collections.Counter(tuple(sorted(ids)) for ids in cliques)
    rows = [f"{count(numbers[ids], noun)} in {summarize(ids) or 'none'}" for ids in sorted(numbers)]
    return "; ".join(rows[:5] + ([f"{len(rows) - 5} more"] if len(rows) > 5 else []))


def quoted(value: Any) -> str:
    """A tool's value for a finding's message: short, printable, without anything that a template would evaluate."""
    text = value if isinstance(value, str) else repr(value)
    return f'"{shortened(_UNSAFE.sub("?", text[:400]).strip(), 160)}"'


class Checker:
    """Checks the values of one tray or GPU, and adds to ``findings`` those that cannot be used."""

    def __init__(self, source: str, findings: list[HostFinding], gpu: int | None = None) -> None:
        self._source = source
        self._findings = findings
        self._gpu = gpu

    def refuse(self, field_name: str, value: Any) -> None:
        """Add the finding of an unusable value of a field; the value itself becomes null."""
        subject = "the tray" if self._gpu is None else f"GPU {self._gpu}"
        values = {"source": self._source, "field": field_name, "value": quoted(value), "subject": subject}
        self._findings.append(gpu_finding("unusable_value", "value", self._gpu, **values))

    def _matching(self, field_name: str, value: Any, form: re.Pattern[str]) -> str | None:
        if value is None:
            return None
        if isinstance(value, str):
            # Not strip(): a control character at an end is as wrong there as in the middle.
            text = value.strip(" \t\n")
            if text.lower() in _ABSENT:
                return None
            if form.fullmatch(text):
                return text
        self.refuse(field_name, value)
        return None

    def text(self, field_name: str, value: Any) -> str | None:
        return self._matching(field_name, value, _TEXT)

    def serial(self, field_name: str, value: Any) -> str | None:
        return self._matching(field_name, value, _SERIAL)

    def version(self, field_name: str, value: Any) -> str | None:
        return self._matching(field_name, value, _VERSION)

    def uuid(self, field_name: str, value: Any) -> str | None:
        """A UUID in lower case; None for the all-zero one."""
        text = self._matching(field_name, value, _UUID)
        return None if text is None or text == ZERO_UUID else text.lower()

    def gpu_uuid(self, field_name: str, value: Any) -> str | None:
        """``GPU-`` and a UUID in lower case; None for the all-zero one."""
        text = self._matching(field_name, value, _GPU_UUID)
        return None if text is None or text[4:] == ZERO_UUID else f"GPU-{text[4:].lower()}"

    def pci_bus_id(self, field_name: str, value: Any) -> str | None:
        """``DDDDDDDD:BB:DD.F`` in upper case, as NVML and nvidia-smi print it, with the long domain."""
        text = self._matching(field_name, value, _PCI)
        return None if text is None else text.upper().rjust(len("00000000:00:00.0"), "0")

    def guid(self, field_name: str, value: Any) -> str | None:
        """A 64-bit GUID as 0x and 16 hexadecimal digits; None for zero."""
        text = self._matching(field_name, value, _GUID)
        number = 0 if text is None else int(text, 16)
        return f"0x{number:016x}" if number else None

    def number(self, field_name: str, value: Any, maximum: int) -> int | None:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        text = value if is_number else self._matching(field_name, value, _NUMBER)
        if text is None:
            return None
        if 0 <= int(text) <= maximum:
            return int(text)
        self.refuse(field_name, value)
        return None


def clear_unprobed(fabric: Fabric) -> Fabric:
    """Clear status, domain and cliques of a fabric whose probe is not completed: nvml.h defines them as not valid."""
    if fabric["state"] != "completed":
        fabric["status"] = fabric["cluster_uuid"] = fabric["clique_id"] = fabric["cliques"] = None
    return fabric
