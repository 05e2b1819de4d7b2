# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proposal: the exact bytes of the next fabric file, the file that it was made from, and the changes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import (
    FabricFileError,
    check,
    check_version,
    decode,
    digest,
    encode,
    read,
    serialise,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    SCHEMA_VERSION,
    Change,
    Fabric,
    State,
    natural_sorted,
)

_DATE_OF_WHY = re.compile(rb'("why": "[a-z]+ |"when": ")[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:]+Z)?')
# The key of the proposal file with the sha256 of all others.
_DIGEST = "contents_sha256"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "proposed_at": str,
    "base_sha256": (str, type(None)),
    "changes": list,
    "objections": list,
    "fabric": dict,
}


@dataclass(frozen=True)
class Proposal:
    """A proposed fabric file, and what it changes; base_sha256: of the current file, None where there is none."""

    proposed_at: str
    base_sha256: str | None
    fabric: Fabric
    changes: list[Change]
    objections: list[Finding]

    @cached_property
    def data(self) -> bytes:
        """The bytes of the next fabric file."""
        return serialise(self.fabric)

    @property
    def sha256(self) -> str:
        """The sha256 by which the proposal is accepted."""
        return digest(self.data)

    def encode(self) -> bytes:
        """The bytes of the proposal file."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "proposed_at": self.proposed_at,
            "base_sha256": self.base_sha256,
            "sha256": self.sha256,
            "changes": self.changes,
            "objections": self.objections,
            "fabric": self.fabric.as_dict(),
        }
        return encode({**document, _DIGEST: digest(encode(document))})

    def repeats(self, other: Proposal) -> bool:
        """Whether it proposes the same as the other, apart from dates."""
        own, others = ((row.base_sha256, row.objections) for row in (self, other))
        return own == others and _DATE_OF_WHY.sub(rb"\1", self.data) == _DATE_OF_WHY.sub(rb"\1", other.data)


def propose(base: bytes | None, fabric: Fabric, changes: list[Change], objections: list[Finding], now: str) -> Proposal:
    """Make a proposal of a fabric; base: the bytes of the current fabric file."""
    return Proposal(now, None if base is None else digest(base), fabric, changes, objections)


def load_proposal(file: str) -> Proposal:
    """Load a proposal; FabricFileError if there is none, or if it was changed since discover wrote it.

    Its sha256 proves no shape: whoever can write the file can write that too.
    """
    if not os.path.exists(file):
        raise FabricFileError(f"{file}: there is no proposal; run discover first")
    document = decode(read(file), file)
    check_version(document, file)
    if document.pop(_DIGEST, None) != digest(encode(document)) or not (
        all(isinstance(document.get(key, 0), kind) for key, kind in _FIELDS.items())
        and all(map(_is_change, document["changes"]))
        and all(map(_is_finding, document["objections"]))
    ):
        raise FabricFileError(f"{file}: is not as discover wrote it; discover again")
    check(document["fabric"], file)
    return Proposal(
        document["proposed_at"],
        document["base_sha256"],
        Fabric.from_dict(document["fabric"]),
        document["changes"],
        document["objections"],
    )


def _is_change(row: Any) -> bool:
    if not isinstance(row, dict) or row.keys() != Change.__annotations__.keys():
        return False
    return all(isinstance(value, str) or (value is None and key in ("from", "to")) for key, value in row.items())


def _is_finding(row: Any) -> bool:
    return isinstance(row, dict) and {"code", "message"} <= row.keys()


def accept(path: str, sha256: str | None, base: bytes | None, file: str) -> Proposal:
    """The proposal in a file, with this sha256, for the fabric file at path; base: the current bytes of that file.

    sha256 is that of the proposed fabric file, as discover prints it, or that of the proposal file itself; None for
    any proposal.
    FabricFileError if there is no such proposal, or if the fabric file has changed since it was made.
    """
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise FabricFileError(
            f"proposal: {sha256[:80]!r} is not a sha256; give the 64 hex digits that discover printed"
        )
    proposal = load_proposal(file)
    if sha256 is not None and sha256 not in (proposal.sha256, digest(read(file))):
        raise FabricFileError(
            f"{file}: sha256 is {proposal.sha256}, not the {sha256} to accept; review the proposal again"
        )
    if proposal.base_sha256 != (None if base is None else digest(base)):
        raise FabricFileError(
            f"{path}: has changed since the proposal was made; discover again and accept the new proposal"
        )
    return proposal


def diff_text(before: Fabric, after: Fabric, changes: list[Change]) -> list[str]:
    """The differences as lines: each changed tray and why, then new and changed domains, cliques and blocks."""
    return [*map(_tray_line, changes), *structure_diff(before, after)]


def structure_diff(before: Fabric, after: Fabric) -> list[str]:
    """The new and changed domains, cliques and blocks as lines."""
    lines = list(_rows("domain", before.domains, after.domains))
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
    """One line for each tray whose state or health differs."""
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
            keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
            steps = (f"{key} {_shown(old.get(key))} -> {_shown(new.get(key))}" for key in keys)
            yield f"{kind} {name}: {', '.join(steps)}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {value[key]}" for key in sorted(value))
    if value is None:
        return "none"
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
