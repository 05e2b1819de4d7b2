# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of trays that a play on localhost reads from hostvars: each in its documented form, or not at all.

They may come from this run, a fact cache or a module of another collection, so they are checked here again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.modules import fabric_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import VERSION, identity, text
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object

_FACTS = ("nvlink_fabric", "nvlink_imex")
T = TypeVar("T")
_SCHEMA = schemas.of_return(fabric_facts.RETURN)


class Checked:
    """Reads single facts of a tray; each that is neither null nor valid adds a finding."""

    def __init__(self, tray: str, facts: Object) -> None:
        self._tray, self._facts = tray, facts
        self.findings: list[Finding] = []

    def __call__(self, name: str, check: Callable[[Any], T | None]) -> T | None:
        raw = self._facts.get(name)
        value = check(raw)
        if raw is not None and value is None:
            message = f"Tray {self._tray} reports an unusable {name}; check its driver, and run fabric_facts on it."
            self.findings.append(finding("unusable_value", message, tray=self._tray, gpu=None))
        return value


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
        value = Checked(name, fabric)
        clique = value("clique", lambda given: given if identity(given) else None)
        fabric = {**fabric, "clique": clique, "driver_version": value("driver_version", text(VERSION))}
        findings += value.findings
    return TrayFacts(fabric, valid.get("nvlink_imex"), variables, tuple(findings))
