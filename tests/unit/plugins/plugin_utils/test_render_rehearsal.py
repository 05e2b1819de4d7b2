# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report shows of a rehearsal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal import Outcome, Rehearsal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import rehearsal


def held(*outcomes: Outcome, **more: Any) -> dict[str, Any]:
    """As the module returns it."""
    made = Rehearsal(**{"ran": True, "loaded": True, "version": "26.05.5", "outcomes": list(outcomes), **more})
    document: dict[str, Any] = json.loads(json.dumps(made.result()))
    return document


BLOCKS = [Outcome("block", size, "p", 0, "r01", "placed", "x", ["r01"]) for size in (1, 9, 18)]


def test_the_sum_counts_all_and_rows_are_for_what_matters() -> None:
    refused = Outcome("partition", 19, "gold", 0, "", "refused", reason="too many nodes")
    shown = rehearsal.rehearsed(held(*BLOCKS, refused), "f")
    assert shown.good
    assert "1 of 1 blocks hold their jobs, and 3 of 4 test jobs would run" in shown.summary
    assert [job["partition"] for job in shown.jobs] == ["gold"]
    bad = rehearsal.rehearsed(held(Outcome("block", 18, "p", 0, "r02", "refused"), *BLOCKS), "f")
    assert not bad.good
    assert [job["block"] for job in bad.jobs] == ["r02"]
    assert rehearsal.rehearsed(held(*[refused] * 300), "f").more == 100


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"ran": False, "why": "it needs root"}, "It was not held: it needs root."),
        ({"loaded": False, "fatal": "no"}, "slurmctld 26.05.5 refuses the files: no."),
    ],
)
def test_none_or_a_refused_one_says_so(more: dict[str, Any], told: str) -> None:
    shown = rehearsal.rehearsed(held(**more), "f")
    assert shown.summary == told
    assert not shown.good


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"outcomes": 1}, held() | {"outcomes": [1]}, held() | {"outcomes": [{"nodes": "x", "segment": 0}]}],
)
def test_what_is_no_rehearsal_is_one_sentence(document: Any) -> None:
    with pytest.raises(rehearsal.RehearsalError, match=r"^/x/f.json: .*rehears"):
        rehearsal.rehearsed(document, "/x/f.json")
