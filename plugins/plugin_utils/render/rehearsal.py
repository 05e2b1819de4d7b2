# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report's view of a rehearsal, read from the file that slurm_topology or slurm_tiers has stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.errors import RenderError

# Rows in the report; the summary counts all jobs.
MAX_JOBS = 200
_TEXTS = ("kind", "partition", "block", "outcome", "on", "reason")


@dataclass(frozen=True)
class Rehearsed:
    """A rehearsal for the report.

    summary: the outcome in a sentence. jobs: the rows, as maps of text and numbers: all test jobs but those that were
    placed in their block. more: the number of rows beyond MAX_JOBS. left_out: a clause each.
    """

    summary: str
    good: bool
    jobs: tuple[Mapping[str, Any], ...]
    more: int
    left_out: tuple[str, ...]


def rehearsed(document: Any, path: str) -> Rehearsed:
    """Validate and summarize a rehearsal that was read from ``path``; RenderError where it is none."""
    if not isinstance(document, dict) or not all(
        isinstance(document.get(key), list) for key in ("outcomes", "left_out")
    ):
        raise RenderError(
            f"{path}: is no rehearsal; name the file of the option rehearsal_file of slurm_topology or slurm_tiers."
        )
    outcomes = [_outcome(row, path) for row in document["outcomes"]]
    blocks = [row for row in outcomes if row["kind"] == "block"]
    shown = [row for row in outcomes if row["kind"] != "block" or row["outcome"] != "placed"]
    version, seconds = str(document.get("version", "")), document.get("seconds", 0)
    good = False
    if not document.get("ran"):
        summary = f"The rehearsal was not possible: {document.get('why') or 'unknown'}."
    elif not document.get("loaded"):
        summary = f"slurmctld {version} refuses the files: {document.get('fatal') or 'unknown'}."
    else:
        passed = len({row["block"] for row in blocks if row["outcome"] == "placed"})
        tested = len({row["block"] for row in blocks})
        placed = sum(row["outcome"] == "placed" for row in outcomes)
        summary = (
            f"slurmctld {version} loads the files. Jobs were placed in {passed} of {count(tested, 'block')}, and"
            f" {placed} of {count(len(outcomes), 'test job')} would run ({seconds} s)."
        )
        good = passed == tested and bool(document.get("complete"))
    return Rehearsed(
        summary=summary,
        good=good,
        jobs=tuple(shown[:MAX_JOBS]),
        more=max(len(shown) - MAX_JOBS, 0),
        left_out=tuple(map(str, document["left_out"])),
    )


def _outcome(row: Any, path: str) -> dict[str, Any]:
    if not isinstance(row, dict) or not isinstance(row.get("nodes"), int) or not isinstance(row.get("segment"), int):
        raise RenderError(f"{path}: outcomes has an entry that is no test job; rehearse again.")
    blocks = row.get("blocks")
    return {
        **{key: str(row.get(key) or "") for key in _TEXTS},
        "nodes": row["nodes"],
        "segment": row["segment"],
        "blocks": [str(block) for block in blocks] if isinstance(blocks, list) else [],
    }
