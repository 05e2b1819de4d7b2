# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a tray as the file that the NVML stand-in (nvml_standin.c) reads, and as what nvidia-smi prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants

# Of a GB200: NVLinks, and the speed of each in MB/s.
LINKS, LINK_SPEED = 18, 53125
# Faults of the NVML library that the stand-in simulates: those of a faulty tray, then those of old drivers.
_FAULTY = ("hang", "no_driver", "version_mismatch", "no_gpu", "no_permission", "hang_fabric", "crash", "prints", "slow")
_OLD = ("only_v4", "only_v2", "only_v1", "no_fabric", "v3_deprecated", "handle_refused", "fabric_refused")
NVML_FAULTS = (*_FAULTY, *_OLD)


def standin_text(
    facts: Mapping[str, Any],
    nvml_fault: str | None = None,
    lost: Iterable[int] = (),
    links: Iterable[Sequence[int]] = (),
    slots: int = LINKS,
) -> str:
    """The file that the NVML stand-in reads: one ``key value`` a line.

    ``nvml_fault`` is one of NVML_FAULTS or None; ``lost`` as for smi_text(). GPUs with a fabric have
    LINKS links, all active, all counters 0, but for ``links``: index of the GPU, number of the link, field of NVML, its
    value. slots: how many the driver counts; it refuses those without a link.
    """
    if nvml_fault is not None and nvml_fault not in NVML_FAULTS:
        raise ValueError(f"nvml_fault is {nvml_fault!r}, use one of {', '.join(NVML_FAULTS)}")
    lost_gpus = _lost_indices(facts, lost)
    lines = [f"fault {nvml_fault or 'none'}", f"driver {_line(facts['driver_version'])}"]
    platform = "-"
    if _has_platform(facts):
        numbers = " ".join(str(facts[key] or 0) for key in ("slot_number", "tray_index", "host_id"))
        platform = f"{numbers} {facts['chassis_serial'] or ''}".rstrip()
    for gpu in facts["gpus"]:
        lines += [
            f"gpu {gpu['index']}",
            f"lost {int(gpu['index'] in lost_gpus)}",
            f"uuid {_line(gpu['uuid'])}",
            f"name {_line(gpu['name'])}",
            f"pci {_line(gpu['pci_bus_id'])}",
            f"module {_line(gpu['module_id'])}",
            f"pdi {gpu['pdi'] or '0x0'}",
            f"guid {gpu['fabric_guid'] or '0x0'}",
            f"mig {'-' if gpu['mig_enabled'] is None else int(gpu['mig_enabled'])}",
            f"recovery {_line(_number(constants.RECOVERY_ACTIONS, gpu['recovery_action']))}",
            f"platform {platform}",
            f"fabric {_standin_fabric(gpu['fabric'])}",
            f"links {f'{LINKS} {LINK_SPEED} {slots}' if _number(constants.STATES, gpu['fabric']['state']) else '-'}",
        ]
        lines += [f"link {link} {field} {value}" for index, link, field, value in links if index == gpu["index"]]
        if gpu["fabric"]["cliques"]:
            lines.append(f"cliques {_standin_cliques(gpu['fabric']['cliques'])}")
    return "\n".join(lines) + "\n"


def smi_text(facts: Mapping[str, Any], lost: Iterable[int] = ()) -> str:
    """What ``nvidia-smi -q -x`` prints on the tray of these facts.

    Element names and their mixed case as drivers R580 to R595 print them; an unknown value is N/A. A tray may have no
    place in a rack, or a driver of R615. A GPU is lost when ``lost`` or a finding gpu_lost of the facts names its
    index: then every element has that text.
    """
    lost_gpus = _lost_indices(facts, lost)
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
        tree = _gpu_elements(facts, gpu)
        lines.append(f'\t<gpu id="{escape(gpu["pci_bus_id"] or "00000000:00:00.0")}">')
        lines.extend(_elements(_all_lost(tree) if gpu["index"] in lost_gpus else tree, 2))
        lines.append("\t</gpu>")
    lines.append("</nvidia_smi_log>")
    return "\n".join(lines) + "\n"


def _gpu_elements(facts: Mapping[str, Any], gpu: Mapping[str, Any]) -> dict[str, Any]:
    """Element -> its text, or the elements in it."""
    fabric, health = gpu["fabric"], gpu["fabric"]["health"]
    state = fabric["state"]
    completed = state == "completed"
    mig = {True: "Enabled", False: "Disabled", None: None}[gpu["mig_enabled"]]
    no_guid = "0x0000000000000000"
    tree: dict[str, Any] = {
        "product_name": gpu["name"],
        "product_architecture": "Blackwell",
        "mig_mode": {"current_mig": mig, "pending_mig": mig},
        "serial": None,
        "uuid": gpu["uuid"],
        "pdi": gpu["pdi"] or no_guid,
        "platformInfo": {
            "chassis_serial_number": facts["chassis_serial"] or "",
            "slot_number": facts["slot_number"],
            "tray_index": facts["tray_index"],
            "host_id": facts["host_id"],
            "peer_type": "Switch Connected",
            "module_id": gpu["module_id"],
            "gpu_fabric_guid": gpu["fabric_guid"] or no_guid,
        },
        "gpu_recovery_action": _text(constants.RECOVERY_ACTIONS, gpu["recovery_action"]),
        "pci": {"pci_device_id": "294110DE", "pci_bus_id": gpu["pci_bus_id"]},
        "fabric": {
            "state": None if state in (None, "not_supported") else _text(constants.STATES, state),
            "status": _text(constants.STATUSES, fabric["status"]) if completed else None,
            "cliqueId": fabric["clique_id"] if completed else None,
            "clusterUuid": (fabric["cluster_uuid"] or constants.ZERO_UUID) if completed else None,
            "health": {
                "summary": _text(constants.SUMMARIES, health["summary"]),
                "bandwidth": {True: "Degraded", False: "Full", None: None}[health["degraded_bandwidth"]],
                "route_recovery_in_progress": health["route_recovery"],
                "route_unhealthy": health["route_unhealthy"],
                "access_timeout_recovery": health["access_timeout_recovery"],
                "incorrect_configuration": _text(constants.INCORRECT_CONFIGURATIONS, health["incorrect_configuration"]),
                "partition_assigned": health["partition_assigned"],
            },
        },
        "processes": "",
    }
    if not _has_platform(facts):
        tree["platformInfo"].update(dict.fromkeys(("chassis_serial_number", "peer_type", "gpu_fabric_guid")))
    connected = health["fabric_manager_connected"]
    if connected is not None:
        tree["fabric"]["health"]["gfm_state"] = "Connected" if connected else "Disconnected"
    if fabric["cliques"] is not None and completed:
        kinds = constants.CLIQUE_TYPES.values()
        rows = [{"clique_type": text, "clique_id": each} for kind, text in kinds for each in fabric["cliques"][kind]]
        tree["fabric"]["cliques"] = {"clique_entry": rows}
    return tree


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


def _text(table: Mapping[int, tuple[str, str]], word: str | None) -> str | None:
    return None if word is None else dict(table.values())[word]


def _all_lost(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _all_lost(value) if isinstance(value, dict) else "GPU is lost" for name, value in tree.items()}


def _has_platform(facts: Mapping[str, Any]) -> bool:
    """Whether the tray of these facts reports where it is installed."""
    return any(facts[key] is not None for key in ("chassis_serial", "slot_number", "tray_index", "host_id"))


def _lost_indices(facts: Mapping[str, Any], lost: Iterable[int]) -> set[int]:
    return {*lost, *(found["gpu"] for found in facts["findings"] if found["code"] == "gpu_lost")}


def _standin_fabric(fabric: Mapping[str, Any]) -> str:
    """``state status clique uuid mask summary`` in numbers, - where the GPU has no fabric."""
    state = _number(constants.STATES, fabric["state"])
    if not state:
        return "-"
    completed = fabric["state"] == "completed"
    status = (_number(constants.STATUSES, fabric["status"]) or 0) if completed else 0
    clique_id = (fabric["clique_id"] or 0) if completed else 0
    cluster_uuid = (fabric["cluster_uuid"] if completed else None) or constants.ZERO_UUID
    summary = _number(constants.SUMMARIES, fabric["health"]["summary"]) or 0
    mask = health_mask(fabric["health"])
    return f"{state} {status} {clique_id} {cluster_uuid.replace('-', '')} {mask:#x} {summary}"


def _standin_cliques(cliques: Mapping[str, Iterable[int]]) -> str:
    """``TYPE:ID`` of each clique; with this line the stand-in has version 4 of the fabric call."""
    kinds = constants.CLIQUE_TYPES.items()
    return " ".join(f"{number}:{each}" for number, (kind, _text) in kinds for each in cliques[kind])


def health_mask(health: Mapping[str, Any]) -> int:
    """The health rows of a GPU's facts as NVML's bit mask."""
    mask = 0
    for name, (shift, _width) in constants.HEALTH_BITS.items():
        value = health[name]
        if name == "incorrect_configuration":
            mask |= (_number(constants.INCORRECT_CONFIGURATIONS, value) or 0) << shift
        else:
            mask |= {None: 0, True: 1, False: 2}[value] << shift
    return mask


def _line(value: Any) -> str:
    return "-" if value is None else str(value)


def _number(table: Mapping[int, tuple[str, str]], word: str | None) -> int | None:
    return None if word is None else {known: number for number, (known, _text) in table.items()}[word]
