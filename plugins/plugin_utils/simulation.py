# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated NVLink hardware: racks of trays as the facts that fabric_facts would return for them.

Pure and seeded: the same options give the same facts on every machine. ``places`` yields only what an inventory needs,
lazily; ``fleet`` returns the whole facts. ``nvidia_smi_xml`` renders facts as the output of nvidia-smi, from which its
backend reads the same facts again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Union
from xml.sax.saxutils import escape

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants

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
Split = Mapping[Union[str, int], int]
Facts = Mapping[str, Any]
Elements = Callable[[Facts, Mapping[str, Any]], dict[str, Any]]


class SimulationError(NvlinkError):
    """An option of the simulation is wrong."""


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
    split: Split | None = None,
    cliques_per_rack: int = 1,
) -> Iterator[Place]:
    """The places of all trays, in the order of racks and trays.

    ``split`` maps a rack's number (an integer or its text) to its number of cliques, of sizes as equal as possible;
    other racks have ``cliques_per_rack``. One clique in a rack is the default partition, more count
    from 1. Raises SimulationError at once for a wrong option, not at the first tray.
    """
    _within("racks", racks, 1, MAX_RACKS)
    _within("trays_per_rack", trays_per_rack, 1, MAX_TRAYS_PER_RACK)
    _within("gpus_per_tray", gpus_per_tray, 1, MAX_GPUS)
    _within("cliques_per_rack", cliques_per_rack, 1, trays_per_rack)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise SimulationError(f"simulation: seed is {_shown(seed)}, use an integer.")
    if racks * trays_per_rack > MAX_TRAYS:
        raise SimulationError(
            f"simulation: racks times trays_per_rack is {racks * trays_per_rack}, use at most {MAX_TRAYS} trays."
        )
    return _places(racks, trays_per_rack, gpus_per_tray, seed, _split(split, racks, trays_per_rack), cliques_per_rack)


def _places(
    racks: int, trays_per_rack: int, gpus_per_tray: int, seed: int, split: dict[int, int], cliques_per_rack: int
) -> Iterator[Place]:
    rack_width = max(2, len(str(racks)))
    tray_width = max(2, len(str(trays_per_rack)))
    tails = [f"t{tray:0{tray_width}d}" for tray in range(1, trays_per_rack + 1)]
    for rack in range(1, racks + 1):
        cluster_uuid = _uuid(_digest(seed, rack, 0)[:16])
        cliques = split.get(rack, cliques_per_rack)
        head = f"r{rack:0{rack_width}d}"
        for index, tail in enumerate(tails):
            clique_id = DEFAULT_PARTITION if cliques == 1 else 1 + index * cliques // trays_per_rack
            yield Place(head + tail, cluster_uuid, clique_id, index, gpus_per_tray, rack, index + 1)


def fleet(
    racks: int = 1,
    trays_per_rack: int = 18,
    gpus_per_tray: int = 4,
    seed: int = 1,
    split: Split | None = None,
    cliques_per_rack: int = 1,
    observed_at: str = "2026-01-01T00:00:00Z",
) -> dict[str, dict[str, Any]]:
    """Tray name -> the facts of that tray, all up and healthy; options as for places().

    No two trays, and no two GPUs, share a dict: a caller may change one without touching another.
    """
    return {
        place.name: facts(place, seed, observed_at)
        for place in places(racks, trays_per_rack, gpus_per_tray, seed, split, cliques_per_rack)
    }


def _gpu_uuids(random: bytes, count: int) -> list[str]:
    return [f"GPU-{_uuid(random[index * 16 : index * 16 + 16])}" for index in range(count)]


def _random(place: Place, seed: int) -> bytes:
    """16 bytes for each of the tray's GPUs."""
    return b"".join(_digest(seed, place.rack, place.tray, part) for part in range((place.gpu_count + 3) // 4))


def facts(place: Place, seed: int, observed_at: str) -> dict[str, Any]:
    """The facts of a tray that is up and healthy."""
    name, cluster_uuid, clique_id, tray_index, gpu_count, rack, tray = place
    random = _random(place, seed)
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
                "uuid": uuid,
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
                        "degraded_bandwidth": False,
                        "route_recovery": False,
                        "route_unhealthy": False,
                        "access_timeout_recovery": False,
                        "incorrect_configuration": "none",
                        "partition_assigned": True,
                        "fabric_manager_connected": None,
                    },
                },
            }
            for index, uuid in enumerate(_gpu_uuids(random, gpu_count))
        ],
        "findings": [],
    }


def nvidia_smi_xml(facts: Facts, elements: Elements | None = None) -> str:
    """What ``nvidia-smi -q -x`` prints on the tray of these facts.

    Element names and their mixed case as drivers R580 to R595 print them; an unknown value is N/A. elements: makes
    those of each GPU, by default gpu_elements().
    """
    lines = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">',
        "<nvidia_smi_log>",
        "\t<timestamp>Thu Jan  1 00:00:00 2026</timestamp>",
        f"\t<driver_version>{_element_text(facts['driver_version'])}</driver_version>",
        "\t<cuda_version>13.0</cuda_version>",
        f"\t<attached_gpus>{len(facts['gpus'])}</attached_gpus>",
    ]
    for gpu in facts["gpus"]:
        lines.append(f'\t<gpu id="{escape(gpu["pci_bus_id"] or "00000000:00:00.0")}">')
        lines.extend(_elements((elements or gpu_elements)(facts, gpu), 2))
        lines.append("\t</gpu>")
    lines.append("</nvidia_smi_log>")
    return "\n".join(lines) + "\n"


def gpu_elements(facts: Facts, gpu: Mapping[str, Any]) -> dict[str, Any]:
    """Element -> its text, or the elements in it."""
    fabric, health = gpu["fabric"], gpu["fabric"]["health"]
    state = fabric["state"]
    completed = state == "completed"
    mig = {True: "Enabled", False: "Disabled", None: None}[gpu["mig_enabled"]]
    no_guid = "0x0000000000000000"
    return {
        "product_name": gpu["name"],
        "product_brand": "NVIDIA",
        "product_architecture": "Blackwell",
        "persistence_mode": "Enabled",
        "addressing_mode": "ATS",
        "mig_mode": {"current_mig": mig, "pending_mig": mig},
        "mig_devices": "None",
        "serial": None,
        "uuid": gpu["uuid"],
        "pdi": gpu["pdi"] or no_guid,
        "minor_number": gpu["index"],
        "platformInfo": {
            "chassis_serial_number": facts["chassis_serial"] or "",
            "slot_number": facts["slot_number"],
            "tray_index": facts["tray_index"],
            "host_id": facts["host_id"],
            "peer_type": "Switch Connected",
            "module_id": gpu["module_id"],
            "gpu_fabric_guid": gpu["fabric_guid"] or no_guid,
        },
        "c2c_mode": "Enabled",
        "gpu_recovery_action": _text(constants.RECOVERY_ACTIONS, gpu["recovery_action"], "recovery_action"),
        "pci": {"pci_device_id": "294110DE", "pci_bus_id": gpu["pci_bus_id"]},
        "fabric": {
            "state": None if state in (None, "not_supported") else _text(constants.STATES, state, "state"),
            "status": _text(constants.STATUSES, fabric["status"], "status") if completed else None,
            "cliqueId": fabric["clique_id"] if completed else None,
            "clusterUuid": (fabric["cluster_uuid"] or constants.ZERO_UUID) if completed else None,
            "health": {
                "summary": _text(constants.SUMMARIES, health["summary"], "summary"),
                "bandwidth": {True: "Degraded", False: "Full", None: None}[health["degraded_bandwidth"]],
                "route_recovery_in_progress": health["route_recovery"],
                "route_unhealthy": health["route_unhealthy"],
                "access_timeout_recovery": health["access_timeout_recovery"],
                "incorrect_configuration": _text(
                    constants.INCORRECT_CONFIGURATIONS, health["incorrect_configuration"], "incorrect_configuration"
                ),
                "partition_assigned": health["partition_assigned"],
            },
        },
        "processes": "",
        "capabilities": {"egm": "disabled"},
    }


def _elements(tree: Mapping[str, Any], depth: int) -> Iterator[str]:
    tabs = "\t" * depth
    for name, value in tree.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield f"{tabs}<{name}>"
                yield from _elements(each, depth + 1)
                yield f"{tabs}</{name}>"
            else:
                yield f"{tabs}<{name}>{_element_text(each)}</{name}>"


def _element_text(value: Any) -> str:
    return "N/A" if value is None else escape(str(value))


def _text(table: Mapping[int, tuple[str, str]], word: str | None, field: str) -> str | None:
    if word is None:
        return None
    texts = dict(table.values())
    if word not in texts:
        raise SimulationError(f"simulation: {field} is {_shown(word)}, use one of {', '.join(texts)}.")
    return texts[word]


def _digest(*key: int) -> bytes:
    return hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=64).digest()


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _split(split: Split | None, racks: int, trays_per_rack: int) -> dict[int, int]:
    if split is None:
        return {}
    if not isinstance(split, Mapping):
        raise SimulationError(f"simulation: split is {_shown(split)}, use a mapping of rack to number of cliques.")
    result = {}
    for rack, cliques in split.items():
        text = str(rack)
        if isinstance(rack, bool) or not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= racks:
            raise SimulationError(f"simulation: split names rack {_shown(rack)}, use rack numbers from 1 to {racks}.")
        _within(f"split of rack {text}", cliques, 1, trays_per_rack)
        result[int(text)] = cliques
    return result


def _within(option: str, value: Any, minimum: int, maximum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise SimulationError(f"simulation: {option} is {_shown(value)}, use an integer from {minimum} to {maximum}.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
