# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a tray as the file that the NVML stand-in (nvml_standin.c) reads, and as what nvidia-smi prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import simulation

# Of a GB200: NVLinks, and the speed of each in MB/s.
LINKS, LINK_SPEED = 18, 53125
# Faults of the NVML library that the stand-in simulates: those of a faulty tray, then those of old drivers.
NVML_FAULTS = (
    "hang",
    "no_driver",
    "version_mismatch",
    "no_gpu",
    "no_permission",
    "hang_fabric",
    "crash",
    "only_v4",
    "only_v2",
    "only_v1",
    "no_fabric",
    "v3_deprecated",
    "handle_refused",
    "fabric_refused",
    "prints",
)


def standin_text(
    facts: Mapping[str, Any],
    nvml_fault: str | None = None,
    lost: Iterable[int] = (),
    links: Iterable[Sequence[int]] = (),
) -> str:
    """The file that the NVML stand-in reads: one ``key value`` a line.

    ``nvml_fault`` is one of NVML_FAULTS or None; ``lost`` as for smi_text(). GPUs with a fabric have
    LINKS links, all active, all counters 0, but for ``links``: index of the GPU, number of the link, field of NVML, its
    value.
    """
    if nvml_fault is not None and nvml_fault not in NVML_FAULTS:
        raise simulation.SimulationError(
            f"simulation: nvml_fault is {nvml_fault!r}, use one of {', '.join(NVML_FAULTS)}."
        )
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
            f"links {f'{LINKS} {LINK_SPEED}' if _number(constants.STATES, gpu['fabric']['state']) else '-'}",
        ]
        lines += [f"link {link} {field} {value}" for index, link, field, value in links if index == gpu["index"]]
        if gpu["fabric"]["cliques"]:
            lines.append(f"cliques {_standin_cliques(gpu['fabric']['cliques'])}")
    return "\n".join(lines) + "\n"


def smi_text(facts: Mapping[str, Any], lost: Iterable[int] = ()) -> str:
    """What nvidia-smi prints on a tray of any facts: without a place in a rack, and with a driver of R615, too.

    A GPU is lost when ``lost`` or a finding gpu_lost of the facts names its index: then every element has that text.
    """
    lost_gpus = _lost_indices(facts, lost)

    def elements(facts: Mapping[str, Any], gpu: Mapping[str, Any]) -> dict[str, Any]:
        tree, fabric = simulation.gpu_elements(facts, gpu), gpu["fabric"]
        if not _has_platform(facts):
            tree["platformInfo"].update(dict.fromkeys(("chassis_serial_number", "peer_type", "gpu_fabric_guid")))
        connected = fabric["health"]["fabric_manager_connected"]
        if connected is not None:
            tree["fabric"]["health"]["gfm_state"] = "Connected" if connected else "Disconnected"
        if fabric["cliques"] is not None and fabric["state"] == "completed":
            kinds = constants.CLIQUE_TYPES.values()
            rows = [
                {"clique_type": text, "clique_id": each} for kind, text in kinds for each in fabric["cliques"][kind]
            ]
            tree["fabric"]["cliques"] = {"clique_entry": rows}
        return _all_lost(tree) if gpu["index"] in lost_gpus else tree

    return simulation.nvidia_smi_xml(facts, elements)


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
