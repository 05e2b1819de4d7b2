# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report shows of a rehearsal: the result of slurm_topology as its role keeps it in a file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

# A large site's jobs in partitions are many; the summary counts them all.
MAX_JOBS = 200
_TEXTS = ("kind", "partition", "block", "outcome", "on", "reason")


class RehearsalError(NvlinkError):
    """A file that is no rehearsal; the message is one sentence with the file and the remedy."""


@dataclass(frozen=True)
class Rehearsed:
    """A rehearsal for people.

    summary: what came of it, a sentence. jobs: those worth a row, as plain maps of text and numbers: all but the blocks
    that hold what they should. more: how many are not among them for want of room. left_out: setting, where, why.
    """

    summary: str
    good: bool
    jobs: tuple[Mapping[str, Any], ...]
    more: int
    left_out: tuple[Mapping[str, str], ...]
    added: tuple[str, ...]


def rehearsed(document: Any, path: str) -> Rehearsed:
    """Check and sum up a rehearsal that was read from ``path``; RehearsalError where it is none."""
    if not isinstance(document, dict) or not all(
        isinstance(document.get(key), list) for key in ("outcomes", "left_out", "added")
    ):
        raise RehearsalError(f"{path}: is no rehearsal of slurm_topology; give the file that its role has written.")
    outcomes = [_outcome(row, path) for row in document["outcomes"]]
    blocks = [row for row in outcomes if row["kind"] == "block"]
    shown = [row for row in outcomes if row["kind"] != "block" or row["outcome"] != "placed"]
    version, seconds = str(document.get("version", "")), document.get("seconds", 0)
    good = False
    if not document.get("ran"):
        summary = f"It was not held: {document.get('why') or 'unknown'}."
    elif not document.get("loaded"):
        summary = f"slurmctld {version} refuses the files: {document.get('fatal') or 'unknown'}."
    else:
        held = len({row["block"] for row in blocks if row["outcome"] == "placed"})
        asked = len({row["block"] for row in blocks})
        placed = sum(row["outcome"] == "placed" for row in outcomes)
        summary = (
            f"slurmctld {version} loads the files. {held} of {asked} blocks hold their jobs, and {placed} of"
            f" {len(outcomes)} test jobs would run ({seconds} s)."
        )
        good = held == asked and bool(document.get("complete"))
    return Rehearsed(
        summary=summary,
        good=good,
        jobs=tuple(shown[:MAX_JOBS]),
        more=max(len(shown) - MAX_JOBS, 0),
        left_out=tuple(
            {key: str(row.get(key, "")) for key in ("setting", "where", "why")}
            for row in document["left_out"]
            if isinstance(row, dict)
        ),
        added=tuple(str(row) for row in document["added"]),
    )


def _outcome(row: Any, path: str) -> dict[str, Any]:
    if not isinstance(row, dict) or not isinstance(row.get("nodes"), int) or not isinstance(row.get("segment"), int):
        raise RehearsalError(f"{path}: outcomes holds something else than test jobs; rehearse again.")
    blocks = row.get("blocks")
    return {
        **{key: str(row.get(key) or "") for key in _TEXTS},
        "nodes": row["nodes"],
        "segment": row["segment"],
        "blocks": [str(block) for block in blocks] if isinstance(blocks, list) else [],
    }
