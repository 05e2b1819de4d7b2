# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source simulation: simulated racks of any size and shape, with faults by rate or by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
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
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.ansible_facts import from_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown, similar

SOURCE = "simulation"
OPTIONS = ("racks", "trays_per_rack", "gpus_per_tray", "seed", "split", "cliques_per_rack", "faults")
MAX_SEED = 2**63

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
    checked = Options(options, OPTIONS, SOURCE)
    racks = checked.whole("racks", 1, 1, simulation.MAX_RACKS)
    trays = checked.whole("trays_per_rack", 18, 1, simulation.MAX_TRAYS_PER_RACK)
    if racks * trays > simulation.MAX_TRAYS:
        what = f"times trays_per_rack is {racks * trays}, use at most {simulation.MAX_TRAYS} trays"
        raise checked.wrong("racks", what)
    seed = checked.whole("seed", 1, -MAX_SEED, MAX_SEED)
    gpus = checked.whole("gpus_per_tray", 4, 1, simulation.MAX_GPUS)
    cliques = checked.whole("cliques_per_rack", 1, 1, trays)
    places = simulation.places(racks, trays, gpus, seed, _split(checked, racks, trays), cliques)
    fleet = [from_facts(place.name, simulation.facts(place, seed, now), SOURCE) for place in places]
    faults = _faults(checked, seed, {row.tray for row in fleet})
    return SourceResult([_with_fault(row, faults) for row in fleet] if faults else fleet)


def _split(options: Options, racks: int, trays: int) -> dict[int, int]:
    """Rack -> its number of cliques; a rack's number may be a text."""
    cliques = {str(rack): number for rack, number in (options.mapping("split") or {}).items()}
    known = set(map(str, range(1, racks + 1)))
    if unknown := [rack for rack in cliques if rack.lstrip("0") not in known]:
        raise options.wrong("split", f"names rack {shown(unknown[0])}, use rack numbers from 1 to {racks}")
    split = Options(cliques, [*cliques], f"{SOURCE}: split")
    return {int(rack): split.whole(rack, 1, 1, trays) for rack in cliques}


def _with_fault(row: Observation, faults: Mapping[str, Callable[[str], bool]]) -> Observation:
    return next((FAULTS[fault](row) for fault, applies in faults.items() if applies(row.tray)), row)


def _faults(options: Options, seed: int, trays: set[str]) -> dict[str, Callable[[str], bool]]:
    """Fault -> whether a tray has it, in the order of FAULTS."""
    faults = Options(options.mapping("faults"), tuple(FAULTS), f"{SOURCE}: faults")
    return {fault: _selector(faults, fault, seed, trays) for fault in FAULTS if fault in faults}


def _selector(faults: Options, fault: str, seed: int, trays: set[str]) -> Callable[[str], bool]:
    named = faults.given(fault)
    if isinstance(named, (int, float)):
        rate = faults.number(fault, 0, 0, 1)
        return lambda tray: _chance(f"{seed}/{fault}/{tray}") < rate
    if not isinstance(named, list):
        raise faults.wrong(fault, f"is {shown(named)}, use a rate from 0 to 1 or a list of tray names")
    for name in named:
        if not isinstance(name, str) or name not in trays:
            known = similar(name, sorted(trays), "; use names of trays of this inventory")
            raise faults.wrong(fault, f"names {shown(name)}, which is not a tray of this fleet{known}")
    return set(named).__contains__


def _chance(key: str) -> float:
    """A number from 0 to 1 that depends on the key alone, so a larger fleet keeps the faults of a smaller one."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") / 2**64
