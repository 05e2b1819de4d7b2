# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rehearsal in the report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.rehearse import Outcome, Rehearsal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import rehearsal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.errors import RenderError


def document_of(*outcomes: Outcome, **more: Any) -> dict[str, Any]:
    """A rehearsal as the module returns it."""
    made = Rehearsal(**{"ran": True, "loaded": True, "version": "26.05.5", "outcomes": list(outcomes), **more})
    document: dict[str, Any] = json.loads(json.dumps(made.result()))
    return document


BLOCKS = [Outcome("block", size, "p", 0, "r01", "placed", "x", ["r01"]) for size in (1, 9, 18)]


def test_the_summary_counts_all_jobs_and_rows_show_the_notable_ones() -> None:
    refused = Outcome("partition", 19, "gold", 0, "", "refused", reason="too many nodes")
    shown = rehearsal.rehearsed(document_of(*BLOCKS, refused), "f")
    assert shown.good
    assert "Jobs were placed in 1 of 1 block, and 3 of 4 test jobs would run" in shown.summary
    assert [job["partition"] for job in shown.jobs] == ["gold"]
    bad = rehearsal.rehearsed(document_of(Outcome("block", 18, "p", 0, "r02", "refused"), *BLOCKS), "f")
    assert not bad.good
    assert [job["block"] for job in bad.jobs] == ["r02"]
    assert rehearsal.rehearsed(document_of(*[refused] * 300), "f").more == 100


@pytest.mark.parametrize(
    ("more", "summary"),
    [
        ({"ran": False, "why": "it needs root"}, "The rehearsal was not possible: it needs root."),
        ({"loaded": False, "fatal": "no"}, "slurmctld 26.05.5 refuses the files: no."),
    ],
)
def test_the_summary_of_a_missing_or_refused_rehearsal(more: dict[str, Any], summary: str) -> None:
    shown = rehearsal.rehearsed(document_of(**more), "f")
    assert shown.summary == summary
    assert not shown.good


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"outcomes": 1},
        document_of() | {"outcomes": [1]},
        document_of() | {"outcomes": [{"nodes": "x", "segment": 0}]},
    ],
)
def test_another_document_is_refused_in_one_sentence(document: Any) -> None:
    with pytest.raises(RenderError, match=r"^/x/f.json: .*rehears"):
        rehearsal.rehearsed(document, "/x/f.json")
