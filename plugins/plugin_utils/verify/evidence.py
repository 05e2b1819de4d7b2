# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each layer reported in one run, unprocessed: the input of every check. Pure data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.subsets import FACTS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.schemas import Schema
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ansible_facts

COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": schemas.MAX_NUMBER}
COUNT_OR_NONE: Schema = {**COUNT, "type": ["integer", "null"]}
TEXT: Schema = {"type": "string"}
TEXT_OR_NONE: Schema = {"type": ["string", "null"]}


def form(**fields: Schema) -> Schema:
    """A mapping that has these keys."""
    return {"type": "object", "required": [*fields], "properties": fields}


def rows(**fields: Schema) -> Schema:
    """A list of such mappings."""
    return {"type": "array", "items": form(**fields)}


def fits(check: schemas.Check, value: Any) -> bool:
    """Whether a part of an answer is well-formed: none of a tray may stop the verdict on the others."""
    try:
        check(value)
    except ValueError:
        return False
    return True


# What verify reads of nvlink_imex.
_IMEX = schemas.compiled(
    form(
        ready={"type": "boolean"},
        running={"type": "boolean"},
        state=TEXT_OR_NONE,
        version=TEXT_OR_NONE,
        nodes=form(entries={"type": "array", "items": TEXT}, sha256=TEXT_OR_NONE, own_id={}),
        peers=rows(host=TEXT, connection=TEXT_OR_NONE),
        findings=rows(code=TEXT, severity=TEXT, message=TEXT),
    )
)


@dataclass(frozen=True)
class Controller:
    """What one Slurm controller reported.

    info: the result of slurm_topology_info. tiers: the result of slurm_tiers in check mode, None where no tiers are
    defined. problem: why it did not answer, empty where it did.
    """

    host: str
    info: Result = field(default_factory=dict)
    tiers: Result | None = None
    problem: str = ""


@dataclass(frozen=True)
class Evidence:
    """The evidence of one run.

    trays: tray -> its parts (tray_parts). unreachable: tray -> why it did not answer. quick: no tray was
    queried. kubernetes_problem: why there is no snapshot of the
    cluster. slurm: None where no controller is configured. channels: minor numbers that every tray must have; empty
    for those that most trays of a clique have. links_before: what the last run kept of the links (links.memory()).
    is_found: whether commands need no -e fabric_file (fabric_file.is_found). acknowledged: tray in repair -> its entry
    of the state file (State.acknowledged).
    """

    fabric: Fabric
    fabric_file: str = "fabric.json"
    quick: bool = False
    trays: Mapping[str, Object] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    slurm: Sequence[Controller] | None = None
    kubernetes: Snapshot | None = None
    kubernetes_problem: str = ""
    kubernetes_cluster: str | None = None
    channels: tuple[int, ...] = ()
    links_before: Object = field(default_factory=dict)
    is_found: bool = False
    acknowledged: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def observations(self) -> dict[str, Observation]:
        """Tray -> its validated observation, of placed trays that answered."""
        return {
            tray: ansible_facts.from_facts(tray, mapped(row.get("gpu")))
            for tray, row in self.trays.items()
            if tray in self.fabric.trays and isinstance(row.get("gpu"), Mapping)
        }

    def clique_of(self, tray: str) -> str | None:
        """The clique of a tray in the fabric file; None for a tray that has no place there."""
        return self.fabric.trays[tray]["clique"] if tray in self.fabric.trays else None

    def answered(self, clique: str) -> list[str]:
        """The trays of a clique that answered, in the clique's order."""
        return [tray for tray in self.fabric.members[clique] if tray in self.trays]

    @cached_property
    def imex(self) -> dict[str, Facts | None]:
        """Tray -> its IMEX facts, None where they could not be read; of trays that answered."""
        parts = {tray: self.part(tray, "imex") for tray in self.trays}
        return {tray: cast(Facts, part) if fits(_IMEX, part) else None for tray, part in parts.items()}

    def part(self, tray: str, name: str) -> Object | None:
        """A part of a tray's facts (gpu, imex, channels, versions, links); None where it could not be read."""
        part = mapped(self.trays.get(tray)).get(name)
        return part if isinstance(part, Mapping) else None


def tray_parts(result: Object) -> Object | None:
    """Parts of a fabric_facts result: subset -> its facts or None, and `findings`; None for one that failed."""
    facts = mapped(result.get("ansible_facts"))
    if result.get("failed") or not any(name in facts for name in FACTS.values()):
        return None
    return {**{subset: facts.get(name) for subset, name in FACTS.items()}, "findings": result.get("findings")}
