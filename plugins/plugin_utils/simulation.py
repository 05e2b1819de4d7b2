# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated NVLink hardware: racks of trays as the facts that fabric_facts would return for them.

Pure and seeded: the same options give the same facts on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.constants import HEALTH_BITS

DEFAULT_PARTITION = 32766
MAX_TRAYS = 1_000_000
# NVML counts slots in one byte, and the nine switch trays count before the compute trays (real: tray 4 in slot 14).
FIRST_SLOT = 10
# One host in a slot.
HOST_ID = 1
MAX_TRAYS_PER_RACK = 255 - FIRST_SLOT
MAX_RACKS = 65_535
MAX_GPUS = 64
DRIVER_VERSION = "580.173.02"


class Place(NamedTuple):
    """The position of one simulated tray; ``rack`` and ``tray`` count from 1, ``tray_index`` from 0."""

    name: str
    cluster_uuid: str
    clique_id: int
    tray_index: int
    gpu_count: int
    rack: int
    tray: int


def places(
    racks: int = 1,
    trays_per_rack: int = 18,
    gpus_per_tray: int = 4,
    seed: int = 1,
    split: Mapping[int, int] = MappingProxyType({}),
    cliques_per_rack: int = 1,
) -> Iterator[Place]:
    """The places of all trays, in the order of racks and trays.

    ``split`` maps a rack's number to its number of cliques, of sizes as equal as possible; other racks have
    ``cliques_per_rack``. One clique in a rack is the default partition, more count from 1.
    """
    rack_width = max(2, len(str(racks)))
    tray_width = max(2, len(str(trays_per_rack)))
    for rack in range(1, racks + 1):
        cluster_uuid = _uuid(_digest(seed, rack, 0)[:16])
        cliques = split.get(rack, cliques_per_rack)
        for tray in range(1, trays_per_rack + 1):
            name = f"r{rack:0{rack_width}d}t{tray:0{tray_width}d}"
            clique_id = DEFAULT_PARTITION if cliques == 1 else 1 + (tray - 1) * cliques // trays_per_rack
            yield Place(name, cluster_uuid, clique_id, tray - 1, gpus_per_tray, rack, tray)


def facts(place: Place, seed: int, observed_at: str) -> dict[str, Any]:
    """The facts of a tray that is up and healthy."""
    name, cluster_uuid, clique_id, tray_index, gpu_count, rack, tray = place
    # 16 bytes for each of the tray's GPUs.
    random = b"".join(_digest(seed, rack, tray, part) for part in range((gpu_count + 3) // 4))
    return {
        "observed_at": observed_at,
        "hostname": name,
        "addresses": [
            {"interface": "host0", "address": f"10.{rack >> 8}.{rack & 255}.{tray}", "prefix": 24},
        ],
        "backend": "nvml",
        "driver_version": DRIVER_VERSION,
        "attached": True,
        "cluster_uuid": cluster_uuid,
        "clique_id": clique_id,
        "clique": f"{cluster_uuid}.{clique_id}",
        "chassis_serial": f"18{seed % 1000:03d}{rack:08d}",
        "slot_number": tray_index + FIRST_SLOT,
        "tray_index": tray_index,
        "host_id": HOST_ID,
        "gpu_count": gpu_count,
        "gpus": [
            {
                "index": index,
                "uuid": f"GPU-{_uuid(random[index * 16 : index * 16 + 16])}",
                "name": "NVIDIA GB200",
                "pci_bus_id": f"{(index // 2 * 16 + 8 + index % 2):08X}:01:00.0",
                # Real trays enumerate their modules as 2, 1, 4, 3.
                "module_id": (index ^ 1) + 1 if index ^ 1 < gpu_count else index + 1,
                # On a GB200 both numbers are one.
                **dict.fromkeys(("fabric_guid", "pdi"), "0x" + random[index * 16 + 4 : index * 16 + 12].hex()),
                "mig_enabled": False,
                "recovery_action": "none",
                "fabric": {
                    "state": "completed",
                    "status": "success",
                    "cluster_uuid": cluster_uuid,
                    "clique_id": clique_id,
                    "cliques": None,
                    "health": {
                        "summary": "healthy",
                        **dict.fromkeys(HEALTH_BITS, False),
                        "incorrect_configuration": "none",
                        "partition_assigned": True,
                        "fabric_manager_connected": None,
                    },
                },
            }
            for index in range(gpu_count)
        ],
        "findings": [],
    }


def _digest(*key: int) -> bytes:
    return hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=64).digest()


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
