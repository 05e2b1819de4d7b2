# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of `lab set TRAY KEY=VALUE`: their names, their values, and how they change a tray's hardware.

A tray's hardware is a dict in the shape of the fabric_facts contract plus the faults of its tools:
``{"facts": {...}, "nvml": "ok", "smi": "ok", "lost": [gpu indexes], "imex": {...}, "links": [...]}``, where links has
those that differ from a healthy one: GPU, link, field of NVML, value. Pure functions only.
"""

from __future__ import annotations

import copy
import re
import uuid
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import constants
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import links as source
from ansible_collections.rackscale.nvlink.tests.lab.nvml import standin_text

from .errors import LabError

# Faults of the library in addition to the stand-in's own: present or missing.
NVML_BESIDE = ("ok", "no_library")
SMI_FAULTS = ("ok", "missing", "no_driver")
# The hooks of the IMEX stand-in (see tests/lab/imex/standin/hooks.py).
IMEX_HOOKS = {
    "imex": ("ok", "start_hangs", "init_gpu", "deaf", "in_use"),
    "imex_imports": ("true", "false"),
    "imex_block": ("none", "peer"),
}
IMEX_DEFAULTS = {"imex": "ok", "imex_imports": "false", "imex_block": "none", "imex_backoff": "0"}
TRAY_TEXTS = ("driver_version", "chassis_serial")
TRAY_NUMBERS = ("slot_number", "tray_index", "host_id")
BOOLEANS = {"true": True, "false": False}
HEALTH_ROWS = (
    "degraded_bandwidth",
    "route_recovery",
    "route_unhealthy",
    "access_timeout_recovery",
    "partition_assigned",
    "fabric_manager_connected",
)
# Where in a GPU's facts a setting stands, and the table with its words.
WORDS = {
    "state": (("fabric", "state"), constants.STATES),
    "status": (("fabric", "status"), constants.STATUSES),
    "health": (("fabric", "health", "summary"), constants.SUMMARIES),
    "incorrect_configuration": (("fabric", "health", "incorrect_configuration"), constants.INCORRECT_CONFIGURATIONS),
    "recovery_action": (("recovery_action",), constants.RECOVERY_ACTIONS),
}
GPU_TEXTS = {"name": "name", "gpu_uuid": "uuid"}
LINK_KEY = re.compile(r"gpu(\d+)\.link(\d+)\.(\w+)")
GPU_KEY = re.compile(r"gpu(\d+)\.(.+)")


def new_hardware(facts: dict[str, Any]) -> dict[str, Any]:
    same = {"facts": copy.deepcopy(facts), "imex": dict(IMEX_DEFAULTS)}
    return {**same, "nvml": "ok", "smi": "ok", "lost": [], "links": []}


def apply_setting(hardware: dict[str, Any], key: str, value: str) -> dict[str, Any]:
    """The hardware after KEY=VALUE; the argument stays as it was."""
    changed = copy.deepcopy(hardware)
    try:
        _apply(changed, key, value)
    except (LookupError, ValueError) as error:
        raise LabError(f"{key}={value}: use a setting of the table in tests/lab/README.md ({error}).") from error
    return changed


def _apply(changed: dict[str, Any], key: str, value: str) -> None:
    facts, chosen, match = changed["facts"], changed["facts"]["gpus"], GPU_KEY.fullmatch(key)
    if key == "nvml":
        changed[key] = _one_of(value, (*NVML_BESIDE, *standin_text.NVML_FAULTS))
    elif key == "smi":
        changed[key] = _one_of(value, SMI_FAULTS)
    elif key in IMEX_HOOKS:
        changed["imex"][key] = _one_of(value, IMEX_HOOKS[key])
    elif key == "imex_backoff":
        changed["imex"][key] = str(_number(value, 600))
    elif key in TRAY_TEXTS:
        facts[key] = _one_line(value)
    elif key in TRAY_NUMBERS:
        facts[key] = _number(value, 255)
    elif link := LINK_KEY.fullmatch(key):
        row = _link(range(len(chosen))[int(link[1])], int(link[2]), link[3], value)
        changed["links"] = [*(other for other in changed["links"] if other[:3] != row[:3]), row]
    elif match and match[2] == "lost":
        number = range(len(chosen))[int(match[1])]
        changed["lost"] = sorted(({*changed["lost"]} - {number}) | ({number} if BOOLEANS[value] else set()))
    else:
        key = match[2] if match else key
        path, parsed = _gpu_value(key, value)
        for gpu in [chosen[int(match[1])]] if match else chosen:
            target = gpu
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = parsed
        _summarise(facts)


def _link(gpu: int, link: int, name: str, value: str) -> list[int]:
    """GPU, link, field of NVML and value of a setting of a link."""
    at = [gpu, range(standin_text.LINKS)[link]]
    if name == "state":
        return [*at, source.STATE, {word: number for number, word in source.STATES.items()}[value]]
    return [*at, {"speed": source.SPEED, **source.COUNTERS}[name], _number(value, 2**63 - 1)]


def _gpu_value(key: str, value: str) -> tuple[tuple[str, ...], Any]:
    """Where in a GPU's facts a setting stands, and its value."""
    if key in WORDS:
        path, table = WORDS[key]
        return path, _one_of(value, tuple(word for word, _text in table.values()))
    if key == "uuid":
        # The all-zero UUID of a machine without NVSwitch trays is unknown in the facts, and printed as zeroes.
        parsed = uuid.UUID(value)
        return ("fabric", "cluster_uuid"), str(parsed) if parsed.int else None
    if key == "clique":
        return ("fabric", "clique_id"), _number(value, 2**32 - 1)
    if key == "multicast_clique":
        ids = [_number(each, 2**32 - 1) for each in value.split(",")]
        # The unicast kinds follow the clique, see _summarise().
        kinds = [kind for kind, _text in constants.CLIQUE_TYPES.values()]
        return ("fabric", "cliques"), {kind: list(ids) for kind in kinds}
    if key in HEALTH_ROWS:
        return ("fabric", "health", key), BOOLEANS[value]
    if key == "mig_enabled":
        return (key,), BOOLEANS[value]
    return (GPU_TEXTS[key],), _one_line(value)


def _number(value: str, high: int) -> int:
    if not value.isdecimal() or int(value) > high:
        raise ValueError(f"a number from 0 to {high}")
    return int(value)


def _one_line(value: str) -> str:
    if not value.isprintable() or len(value) > 900:
        raise ValueError("one line of at most 900 characters")
    return value


def _one_of(value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"one of {', '.join(allowed)}")
    return value


def _summarise(facts: dict[str, Any]) -> None:
    """Derive the tray's facts from those of its GPUs, and the cliques for unicast from the clique of each."""
    for gpu in facts["gpus"]:
        for kind in gpu["fabric"]["cliques"] or ():
            if kind.startswith("unicast"):
                gpu["fabric"]["cliques"][kind] = [gpu["fabric"]["clique_id"]]
    places = {(gpu["fabric"]["cluster_uuid"], gpu["fabric"]["clique_id"]) for gpu in facts["gpus"]}
    ready = all((gpu["fabric"]["state"], gpu["fabric"]["status"]) == ("completed", "success") for gpu in facts["gpus"])
    attached = ready and len(places) == 1 and None not in next(iter(places))
    cluster_uuid, clique_id = places.pop() if attached else (None, None)
    clique = f"{cluster_uuid}.{clique_id}" if attached else None
    facts.update(attached=attached, cluster_uuid=cluster_uuid, clique_id=clique_id, clique=clique)
