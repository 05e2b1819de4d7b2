# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a placement as a whole shows: gates that stop it from being accepted unseen, findings about domains and cliques.

A gate or a finding is one function and a row in its table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.model import (
    Change,
    Fabric,
    Finding,
    TrayState,
    natural_sorted,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.policy import Policy

Changes = Sequence[Change]
TrayStates = Mapping[str, TrayState]


def objections(previous: Fabric, changes: Changes, policy: Policy) -> list[Finding]:
    """The findings of the gates that object to these changes of the previous fabric; empty where none does."""
    return [row for gate in _GATES for row in gate(previous, changes, policy)]


def fleet_findings(fabric: Fabric, trays: TrayStates) -> list[Finding]:
    """What only all trays of a domain or clique together show."""
    return [row for look in _LOOKS for row in look(fabric, trays)]


def _moved_too_many(previous: Fabric, changes: Changes, policy: Policy) -> Iterator[Finding]:
    moved = sum(change["kind"] == "moved" for change in changes)
    allowed = int(len(previous.trays) * policy.moved_percent / 100)
    if moved > (max(1, allowed) if policy.moved_percent else 0):
        message = (
            f"{moved} of {len(previous.trays)} placed trays move at once, more than moved_percent "
            f"{policy.moved_percent:g}; look at the proposal and accept it by its sha256 if that is meant."
        )
        yield finding("moved_percent", message)


def _incomplete_domains(fabric: Fabric, trays: TrayStates) -> Iterator[Finding]:
    sizes = Counter(fabric.cliques[tray["clique"]]["domain"] for tray in fabric.trays.values())
    for name in natural_sorted(fabric.domains):
        expected = fabric.domains[name]["expected_trays"]
        # A domain without any tray is retired, not incomplete.
        if 0 < sizes[name] < expected:
            message = f"NVLink domain {name} has {sizes[name]} of {expected} expected trays; discover the others."
            yield finding("domain_incomplete", message, domain=name)


def _differing_drivers(fabric: Fabric, trays: TrayStates) -> Iterator[Finding]:
    versions: dict[str, set[str]] = {clique: set() for clique in fabric.cliques}
    for name, tray in fabric.trays.items():
        version = trays[name]["driver_version"] if name in trays else None
        if version:
            versions[tray["clique"]].add(version)
    for clique in natural_sorted(clique for clique, several in versions.items() if len(several) > 1):
        told = ", ".join(natural_sorted(versions[clique]))
        message = f"Clique {clique} runs drivers {told}; install one version on all its trays."
        yield finding("drivers_differ", message, clique=clique)


_GATES: tuple[Callable[[Fabric, Changes, Policy], Iterator[Finding]], ...] = (_moved_too_many,)
_LOOKS: tuple[Callable[[Fabric, TrayStates], Iterator[Finding]], ...] = (_incomplete_domains, _differing_drivers)
