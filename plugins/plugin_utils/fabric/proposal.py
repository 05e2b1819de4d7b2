# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proposal: the next fabric file, what it was made from and why it differs. Accepting it takes its very bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import (
    FabricFileError,
    check_version,
    decode,
    digest,
    encode,
    parse,
    read,
    serialise,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    SCHEMA_VERSION,
    Change,
    Fabric,
    Finding,
    State,
    natural_sorted,
)

_DATE_OF_WHY = re.compile(rb'("why": "[a-z]+ |"when": ")[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:]+Z)?')
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "proposed_at": str,
    "base_sha256": (str, type(None)),
    "sha256": str,
    "changes": list,
    "objections": list,
    "fabric": dict,
}


@dataclass(frozen=True)
class Proposal:
    """data are the exact bytes of the next fabric file; base_sha256 is the present one's, None where there is none.

    mixed and old are what the gates know only of trays that a run has seen (see gates.Step), for a run that goes on.
    """

    proposed_at: str
    base_sha256: str | None
    data: bytes
    changes: list[Change]
    objections: list[Finding]
    mixed: tuple[str, ...] = ()
    old: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """The name of this proposal: what a person accepts."""
        return digest(self.data)

    def encode(self) -> bytes:
        """The bytes of the proposal file."""
        seen = {"mixed": list(self.mixed), "old": list(self.old)}
        return encode(
            {
                **{key: names for key, names in seen.items() if names},
                "schema_version": SCHEMA_VERSION,
                "proposed_at": self.proposed_at,
                "base_sha256": self.base_sha256,
                "sha256": self.sha256,
                "changes": self.changes,
                "objections": self.objections,
                "fabric": decode(self.data, "the proposal"),
            }
        )

    def repeats(self, other: Proposal) -> bool:
        """Whether it proposes what the other did, on whatever day."""
        same_base = self.base_sha256 == other.base_sha256 and self.objections == other.objections
        same_base = same_base and (self.mixed, self.old) == (other.mixed, other.old)
        return same_base and _DATE_OF_WHY.sub(rb"\1", self.data) == _DATE_OF_WHY.sub(rb"\1", other.data)


def proposal_path(path: str) -> str:
    """fabric.json -> fabric.proposed.json."""
    return f"{path.removesuffix('.json')}.proposed.json"


def propose(
    base: bytes | None,
    fabric: Fabric,
    changes: list[Change],
    objections: list[Finding],
    now: str,
    mixed: Collection[str] = (),
    old: Collection[str] = (),
) -> Proposal:
    """The proposal that this fabric follows the one whose bytes are base."""
    names = (tuple(natural_sorted(mixed)), tuple(natural_sorted(old)))
    return Proposal(now, None if base is None else digest(base), serialise(fabric), changes, objections, *names)


def load_proposal(path: str) -> Proposal | None:
    """The proposal that belongs to the fabric file at path, None where there is none.

    FabricFileError if it is not what discover wrote: its fabric must still have the sha256 that was announced.
    """
    beside = proposal_path(path)
    if not os.path.exists(beside):
        return None
    document = decode(read(beside), beside)
    check_version(document, beside)
    for key, kind in _FIELDS.items():
        if not isinstance(document.get(key), kind):
            raise FabricFileError(f"{beside}: {key} is missing or of a wrong type; discover again to write a sound one")
    if not all(isinstance(row, dict) and row.keys() == Change.__annotations__.keys() for row in document["changes"]):
        raise FabricFileError(f"{beside}: changes holds something else than changes; discover again")
    seen = [document.get(key, []) for key in ("mixed", "old")]
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in seen):
        raise FabricFileError(f"{beside}: mixed or old holds something else than trays; discover again")
    data = encode(document["fabric"])
    if digest(data) != document["sha256"]:
        raise FabricFileError(f"{beside}: fabric was changed after it was proposed (sha256 differs); discover again")
    return Proposal(
        document["proposed_at"],
        document["base_sha256"],
        data,
        cast(list[Change], document["changes"]),
        document["objections"],
        *map(tuple, seen),
    )


def accept(path: str, sha256: str, base: bytes | None) -> Proposal:
    """The proposal of that sha256 for the fabric file at path, whose present bytes are base.

    sha256 may be the one of the proposed fabric file, as discover announces it, or of the proposal file itself.
    FabricFileError if there is no such proposal, or if the fabric file has changed since it was made.
    """
    beside = proposal_path(path)
    if not _SHA256.fullmatch(sha256):
        raise FabricFileError(f"proposal: {sha256[:80]!r} is no sha256; give the 64 hex digits that discover printed")
    proposal = load_proposal(path)
    if proposal is None:
        raise FabricFileError(f"{beside}: there is no proposal to accept; run discover first")
    if sha256 not in (proposal.sha256, digest(read(beside))):
        raise FabricFileError(
            f"{beside}: sha256 is {proposal.sha256}, not the {sha256} that is to be accepted; look at it anew"
        )
    if proposal.base_sha256 != (None if base is None else digest(base)):
        raise FabricFileError(f"{path}: has changed since the proposal was made; discover again and accept that one")
    parse(proposal.data, beside)
    return proposal


def diff_text(before: Fabric | None, after: Fabric, changes: list[Change]) -> list[str]:
    """What differs, for a person: a line a tray that changes and why, then what is new of domains, cliques, blocks."""
    before = before or Fabric()
    lines = [_tray_line(change) for change in changes]
    lines.extend(_rows("domain", before.domains, after.domains))
    lines.extend(_rows("clique", before.cliques, after.cliques))
    lines.extend(_rows("reserved block", _positions(before, None), _positions(after, None)))
    known = before.clusters.get("slurm", {})
    for name in after.slurm_clusters:
        blocks = known[name]["blocks"] if name in known else {}
        lines.extend(_rows(f"Slurm cluster {name}, block of", blocks, after.clusters["slurm"][name]["blocks"]))
        kept = f"Slurm cluster {name}, reserved block"
        lines.extend(_rows(kept, _positions(before, name), _positions(after, name)))
    return lines


def _positions(fabric: Fabric, cluster: str | None) -> dict[str, dict[str, int]]:
    return {name: {"position": position} for name, position in fabric.reserved(cluster).items()}


def state_diff_text(before: State | None, after: State) -> list[str]:
    """Which trays' state or health differ, a line each."""
    old_trays = before.trays if before else {}
    lines = []
    for name in natural_sorted(after.trays):
        old, new = old_trays.get(name), after.trays[name]
        steps = [
            f"{key} {old[key] if old else 'none'} -> {new[key]}"
            for key in ("state", "health")
            if old is None or old[key] != new[key]
        ]
        if steps:
            lines.append(f"{name}: {', '.join(steps)}")
    return lines


def _tray_line(change: Change) -> str:
    if change["from"] == change["to"]:
        return f"{change['tray']}: {change['to']} ({change['why']})"
    return f"{change['tray']}: {change['from'] or 'none'} -> {change['to'] or 'none'} ({change['why']})"


def _rows(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in natural_sorted(after):
        old, new = before.get(name), after[name]
        if old is None:
            yield f"{kind} {name}: new, {', '.join(f'{key} {_shown(new[key])}' for key in sorted(new))}"
        elif old != new:
            keys = [key for key in sorted(new) if old[key] != new[key]]
            yield f"{kind} {name}: {', '.join(f'{key} {_shown(old[key])} -> {_shown(new[key])}' for key in keys)}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {value[key]}" for key in sorted(value))
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
