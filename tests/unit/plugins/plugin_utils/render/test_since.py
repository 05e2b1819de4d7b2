# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changed since an earlier verdict, on report and domain map."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import RenderError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import report, since
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import verdict
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from hypothesis import given
from hypothesis import strategies as st

FABRIC = fabrics.fabric(racks=2, trays=4, split=())
LAYERS = {"hardware": "checked", "slurm": "checked"}
TITLE = "Since 2026-11-20T05:00:00Z, in the layers hardware, slurm"


def lost(tray: str, code: str = "gpu_lost", severity: str = "error") -> dict[str, Any]:
    return {**failure(code, "hardware", "Something is wrong.", tray, "r01", severity=severity)}


def written(*failures: dict[str, Any], day: int = 21, **more: Any) -> dict[str, Any]:
    """A verdict.json of a run of the whole cluster."""
    whole = {"layers": LAYERS, "fabric_file": "/srv/fabric.json", "queried": 8, "placed": FABRIC.members, **more}
    return fabrics.verdict(*failures, **{"checked_at": f"2026-11-{day}T05:00:00Z", **whole})


def lines(then: Any, now: dict[str, Any], repairs: tuple[Line, ...] = ()) -> list[str]:
    found = verdict(now, "verdict.json")
    old = since.earlier(then, "old.json", found)
    return since.lines(FABRIC, RenderContext(verdict=found, since=old, repairs=repairs))


def test_the_default_compares_nothing() -> None:
    context = RenderContext(verdict=verdict(written(), "verdict.json"))
    assert since.lines(FABRIC, context) == []
    assert "h-changes" not in report.render(FABRIC, fabrics.state(FABRIC), context)[report.PAGE]


def test_trays_that_became_unhealthy_healthy_and_stale_are_folded() -> None:
    then = written(lost("r01t01"), lost("r01t02", "tray_unreachable"), day=20)
    now = written(lost("r02t01"), lost("r02t02"), lost("r01t03", "tray_unreachable"), lost("r01t04", severity="info"))
    assert lines(then, now) == [
        f"{TITLE}:",
        "2 trays (r01t[01-02]): unhealthy -> healthy",
        "3 trays (r01t03,r02t[01-02]): healthy -> unhealthy",
        "new error gpu_lost (hardware): r02t[01-02]",
        "new error tray_unreachable (hardware): r01t03",
        "no longer error gpu_lost (hardware): r01t01",
        "no longer error tray_unreachable (hardware): r01t02",
    ]
    assert lines(then, {**then, "checked_at": "2026-11-21T05:00:00Z"}) == [f"{TITLE}, nothing changed"]


def test_drained_trays_and_spares_are_compared_where_both_runs_read_slurm() -> None:
    nodes = {**dict.fromkeys(FABRIC.trays, "IDLE"), "r01t04": "IDLE+RESERVED"}
    then = written(day=20, slurm_nodes=nodes)
    now = written(slurm_nodes={**nodes, "r01t02": "DRAIN+IDLE: nvlink: broken", "r01t04": "MIXED"})
    assert lines(then, now)[1:] == [
        "1 tray (r01t02): healthy -> healthy, drained",
        "1 tray (r01t04): healthy, reserved -> healthy",
    ]
    assert lines(then, written()) == [f"{TITLE}, nothing changed"]


def test_moved_new_and_removed_trays_have_their_cliques() -> None:
    before = {"r01": ["r01t01", "r01t02", "r01t03"], "r02": FABRIC.members["r02"], "old": ["r01t04", "r09t01"]}
    assert lines(written(day=20, placed={**before, "r02": before["r02"][1:]}), written())[1:] == [
        "1 tray (r01t04): clique old -> clique r01",
        "1 tray (r02t01): none -> clique r02",
        "1 tray (r09t01): clique old -> none",
    ]
    # An earlier release wrote none.
    assert lines(written(day=20, placed=None), written()) == [f"{TITLE}, nothing changed"]


def test_a_layer_that_one_run_has_not_checked_is_not_compared() -> None:
    then = written(lost("r01t01"), day=20)
    now = written(layers={**LAYERS, "hardware": "skipped: no reason"})
    assert lines(then, now) == ["Since 2026-11-20T05:00:00Z, in the layers slurm, nothing changed"]


def test_incidents_that_were_opened_or_closed_since_are_named() -> None:
    old: Line = {**fabrics.REPAIRS[0], "at": "2026-11-19T04:00:00Z", "incident": "r02t03-20261119T040000Z"}
    shut: Line = {**old, "step": "close", "detail": "", "at": "2026-11-20T06:00:00Z"}
    kept: Line = {**old, "incident": "r02t04-20261119T040000Z"}
    assert lines(written(day=20), written(), (old, kept, shut, *fabrics.REPAIRS))[1:] == [
        "incident r02t03-20261119T040000Z closed",
        "incident r02t02-20261121T040000Z opened: gpu_lost",
    ]


@pytest.mark.parametrize(
    ("then", "now", "why"),
    [
        (None, written(), "has no verdict; give the file that the playbook rackscale.nvlink.verify wrote"),
        ({"trays": {}, "written_at": ""}, written(), "has no verdict; give the file that the playbook"),
        (written(), None, "there is no verdict to compare it with; set verdict_file to that of the last verify"),
        (written(day=20, fabric_file="/x"), written(), "is about /x, and verdict_file about /srv/fabric.json; give"),
        (written(day=21), written(), "is of 2026-11-21T05:00:00Z, and verdict_file of 2026-11-21T05:00:00Z; give an"),
        (written(day=22), written(), "is of 2026-11-22T05:00:00Z, and verdict_file of 2026-11-21T05:00:00Z; give an"),
        (written(checked_at=None), written(), "is of no time, and verdict_file of 2026-11-21T05:00:00Z; give an earl"),
        (written(day=20, queried=0), written(), "one of it and verdict_file is of a run with --tags quick; give two"),
    ],
)
def test_a_wrong_file_fails_with_one_sentence(then: Any, now: dict[str, Any] | None, why: str) -> None:
    with pytest.raises(RenderError) as refused:
        since.earlier(then, "/srv/old.json", now and verdict(now, "verdict.json"))
    message = str(refused.value)
    assert "/srv/old.json: " in message
    assert why in message
    assert message.endswith(".")
    assert "\n" not in message


def test_hostile_texts_of_the_earlier_file_are_escaped_and_cut() -> None:
    evil = "<script>alert(1)</script>\x1b[2J"
    rows = [{**lost(f"r01t{number:04}"), "code": f"{evil}{number}"} for number in range(300)]
    then = written(*rows, day=20, placed={evil: ["r01t01", evil]}, slurm_nodes={evil: evil})
    now = verdict(written(slurm_nodes={}), "verdict.json")
    context = RenderContext(verdict=now, since=since.earlier(then, "old.json", now))
    found = since.lines(FABRIC, context)
    assert len(found) == since.MAX_LINES + 2
    assert re.fullmatch(r"and \d+ more changes", found[-1])
    page = report.render(FABRIC, fabrics.state(FABRIC), context)[report.PAGE]
    assert "<script>alert" not in page
    assert all(line.isprintable() for line in found)


FAILURES = st.lists(
    st.builds(lost, st.sampled_from(sorted(FABRIC.trays)), st.sampled_from(("gpu_lost", "gpu_missing"))), max_size=6
)


@given(FAILURES, FAILURES)
def test_what_is_new_from_one_to_the_other_is_gone_on_the_way_back(one: Any, other: Any) -> None:
    there = lines(written(*one, day=20), written(*other))
    back = lines(written(*other, day=20), written(*one))
    assert {line.removeprefix("new ") for line in there if line.startswith("new ")} == {
        line.removeprefix("no longer ") for line in back if line.startswith("no longer ")
    }
    assert len(there) == len(back)
