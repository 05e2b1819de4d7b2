# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source simulation: simulated racks of any size and shape, with faults by rate or by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import gpu_finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import simulation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    DEGRADED,
    UNHEALTHY,
    Observation,
    SourceResult,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError, check_options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.ansible_facts import from_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

SOURCE = "simulation"
SHAPE = ("racks", "trays_per_rack", "gpus_per_tray", "seed", "split", "cliques_per_rack")

Fault = Callable[[Observation], Observation]

# As fabric_facts reports them.
UNHEALTHY_GPU: Finding = worded(gpu_finding("fabric_unhealthy", "routes", gpu=0))
DEGRADED_GPU: Finding = worded(gpu_finding("fabric_degraded", "bandwidth", gpu=0))

# In the order of precedence: a tray has one fault at most, the first whose rate or list includes it.
FAULTS: dict[str, Fault] = {
    "down": lambda row: Observation(row.tray, SOURCE, reachable=False, problem="it is down in the simulation"),
    "detached": lambda row: replace(row, identity=None),
    "unhealthy": lambda row: replace(row, health=UNHEALTHY, findings=({**UNHEALTHY_GPU, "tray": row.tray},)),
    "degraded": lambda row: replace(row, health=DEGRADED, findings=({**DEGRADED_GPU, "tray": row.tray},)),
}


def discover(options: Any, now: str) -> SourceResult:
    """Return the observations of a fleet, healthy except for its faults; equal options give an equal fleet."""
    options = check_options(options, (*SHAPE, "faults"), SOURCE)
    shape = {key: options[key] for key in SHAPE if key in options}
    seed = options.get("seed", 1)
    fleet = [from_facts(place.name, simulation.facts(place, seed, now), SOURCE) for place in simulation.places(**shape)]
    faults = _faults(options.get("faults"), seed, {row.tray for row in fleet})
    return SourceResult([_with_fault(row, faults) for row in fleet] if faults else fleet)


def _with_fault(row: Observation, faults: Mapping[str, Callable[[str], bool]]) -> Observation:
    return next((FAULTS[fault](row) for fault, applies in faults.items() if applies(row.tray)), row)


def _faults(option: Any, seed: int, trays: set[str]) -> dict[str, Callable[[str], bool]]:
    """Fault -> whether a tray has it, in the order of FAULTS."""
    chosen = check_options(option, tuple(FAULTS), f"{SOURCE}: faults")
    return {fault: _selector(fault, chosen[fault], seed, trays) for fault in FAULTS if fault in chosen}


def _selector(fault: str, choice: Any, seed: int, trays: set[str]) -> Callable[[str], bool]:
    where = f"{SOURCE}: faults: {fault}"
    if isinstance(choice, list):
        return _named(choice, trays, where).__contains__
    if isinstance(choice, (int, float)) and not isinstance(choice, bool) and 0 <= choice <= 1:
        rate = float(choice)
        return lambda tray: _chance(f"{seed}/{fault}/{tray}") < rate
    raise SourceError(f"{where} is {shown(choice)}, use a rate from 0 to 1 or a list of tray names")


def _named(names: Iterable[Any], trays: set[str], where: str) -> set[str]:
    for name in names:
        if not isinstance(name, str) or name not in trays:
            hint = nearest(name, sorted(trays)) if len(trays) <= 1000 else ""
            known = hint if hint.startswith("; did") else "; use names of trays of this inventory"
            raise SourceError(f"{where} names {shown(name)}, which is not a tray of this fleet{known}")
    return set(names)


def _chance(key: str) -> float:
    """A number from 0 to 1 that depends on the key alone, so a larger fleet keeps the faults of a smaller one."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") / 2**64
