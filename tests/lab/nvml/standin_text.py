# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a tray as the file that the NVML stand-in (nvml_standin.c) reads, for the backend of NVML."""

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

    ``nvml_fault`` is one of NVML_FAULTS or None; ``lost`` as for simulation.nvidia_smi_xml(). GPUs with a fabric have
    LINKS links, all active, all counters 0, but for ``links``: index of the GPU, number of the link, field of NVML, its
    value.
    """
    if nvml_fault is not None and nvml_fault not in NVML_FAULTS:
        raise simulation.SimulationError(
            f"simulation: nvml_fault is {nvml_fault!r}, use one of {', '.join(NVML_FAULTS)}."
        )
    lost_gpus = simulation.lost_indices(facts, lost)
    lines = [f"fault {nvml_fault or 'none'}", f"driver {_line(facts['driver_version'])}"]
    platform = "-"
    if simulation.has_platform(facts):
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
