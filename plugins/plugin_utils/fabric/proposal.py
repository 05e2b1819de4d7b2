# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proposal: the exact bytes of the next fabric file, the file that it was made from, and the gates that objected."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import SCHEMA_VERSION, Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding

_DATE_OF_WHY = re.compile(rb'("why": "[a-z]+ |"when": ")[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:]+Z)?')
# The key of the proposal file with the sha256 of all others.
_DIGEST = "contents_sha256"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "proposed_at": str,
    "base_sha256": (str, type(None)),
    "objections": list,
    "fabric": dict,
}


@dataclass(frozen=True)
class Proposal:
    """A proposed fabric file; base_sha256: of the current file, None where there is none.

    It does not say what it changes: that is computed from both files (differences.py), as whoever can write a proposal
    can write anything into it. objections: of discover, since some gates need the observations.
    """

    proposed_at: str
    base_sha256: str | None
    fabric: Fabric
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
            "objections": self.objections,
            "fabric": self.fabric.as_dict(),
        }
        return encode({**document, _DIGEST: digest(encode(document))})

    def repeats(self, other: Proposal) -> bool:
        """Whether it proposes the same as the other, apart from dates."""
        own, others = ((row.base_sha256, row.objections) for row in (self, other))
        return own == others and _DATE_OF_WHY.sub(rb"\1", self.data) == _DATE_OF_WHY.sub(rb"\1", other.data)


def propose(base: bytes | None, fabric: Fabric, objections: list[Finding], now: str) -> Proposal:
    """Make a proposal of a fabric; base: the bytes of the current fabric file."""
    return Proposal(now, None if base is None else digest(base), fabric, objections)


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
        and all(map(_is_finding, document["objections"]))
    ):
        raise FabricFileError(f"{file}: is not as discover wrote it; discover again")
    check(document["fabric"], file)
    return Proposal(
        document["proposed_at"],
        document["base_sha256"],
        Fabric.from_dict(document["fabric"]),
        document["objections"],
    )


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
