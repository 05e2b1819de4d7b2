# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of trays that a play on localhost reads from hostvars: each in its documented form, or not at all.

They may come from this run, a fact cache or a module of another collection, so they are checked here again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.modules import fabric_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import VERSION, Object, identity, text

_FACTS = ("nvlink_fabric", "nvlink_imex")
_SCHEMA = schemas.of_return(fabric_facts.RETURN)


@dataclass(frozen=True)
class TrayFacts:
    """What is known of one tray.

    fabric, imex: its facts nvlink_fabric and nvlink_imex; None where there are none. clique and driver_version in
    fabric are valid or None. variables: its variables, not templated; empty for a tray whose facts set a variable of
    this collection, of which nothing is used. findings: why something is missing.
    """

    fabric: Object | None = None
    imex: Object | None = None
    variables: Variables = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def read(hostvars: Any, names: Iterable[str]) -> dict[str, TrayFacts]:
    """The facts of the trays, by name; a name that is not in the inventory has none."""
    return {name: _of(name, hostvars.raw_get(name) if name in hostvars else {}) for name in map(str, names)}


def _of(name: str, variables: Variables) -> TrayFacts:
    facts = variables.get("ansible_facts")
    foreign = trust.foreign_variables(facts)
    if foreign:
        return TrayFacts(findings=tuple(trust.refusal(name, foreign)["findings"]))
    gathered = facts if isinstance(facts, Mapping) else {}
    # A site without fact gathering may set them in its inventory.
    known = {fact: gathered.get(fact) or variables.get(fact) for fact in _FACTS}
    kept = trust.accepted(name, {"ansible_facts": {fact: value for fact, value in known.items() if value}}, _SCHEMA)
    valid, findings = kept.get("ansible_facts", {}), list(kept.get("findings", []))
    fabric = valid.get("nvlink_fabric")
    if fabric is not None:
        forms = {"clique": lambda value: value if identity(value) else None, "driver_version": text(VERSION)}
        checked = {key: form(fabric.get(key)) for key, form in forms.items()}
        for key in checked:
            if fabric.get(key) is not None and checked[key] is None:
                message = f"Tray {name} reports an unusable {key}; check its driver, and run fabric_facts on it."
                findings.append(finding("unusable_value", message, tray=name))
        fabric = {**fabric, **checked}
    return TrayFacts(fabric, valid.get("nvlink_imex"), variables, tuple(findings))
