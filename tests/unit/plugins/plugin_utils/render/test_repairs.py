# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Incidents and spares on report and in the metrics."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import split
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import metrics, report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.repairs import repairs, spares
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from hypothesis import given
from hypothesis import strategies as st

ALL = ("drain", "evidence", "spare", "ticket", "action", "return", "resume", "close")


def incident(day: int, tray: str, last: str, **subject: Any) -> list[Line]:
    """The lines of an incident that was opened at 04:00; each step up to the last one takes 15 minutes."""
    id_ = f"{tray}-202611{day:02}T040000Z"
    detail = json.dumps({"action": "reboot", "reason": "GPU lost", **subject})
    line = Line(
        incident=id_,
        at=f"2026-11-{day:02}T04:00:00Z",
        step="open",
        state="done",
        subject=tray,
        code="gpu_lost",
        detail=detail,
    )
    done = ALL[: ALL.index(last) + 1]
    times = (f"2026-11-{day:02}T{4 + number // 4:02}:{number % 4 * 15:02}:00Z" for number in range(1, 9))
    return [line, *({**line, "at": at, "step": step, "detail": ""} for at, step in zip(times, done))]


# r01t01 was drained from 04:15 to 05:45 of the 10th, and is since 04:15 of the 12th.
LEDGER = tuple(incident(10, "r01t01", "close", gpu=2, link=14) + incident(12, "r01t01", "evidence", gpu=2))
CONTEXT = RenderContext(repairs=LEDGER)


def prom(context: RenderContext, **changes: dict[str, Any]) -> str:
    fabric = fabrics.fabric(racks=1, trays=4, split=())
    state = node_states.applied(fabrics.state(fabric, **changes), fabric, context.nodes or {})
    return metrics.render(fabric, state, context)["metrics/nvlink_fabric.prom"]


def test_metrics_count_incidents_offenders_and_lost_time() -> None:
    lines = prom(CONTEXT).splitlines()
    assert 'nvlink_repair_incidents{state="open"} 1' in lines
    assert 'nvlink_repair_incidents{state="closed"} 1' in lines
    assert "nvlink_repair_oldest_incident_timestamp_seconds 1794456000" in lines
    counted = dict(re.findall(r'repeat_offenders\{kind="(\w+)"\} (\d)', "\n".join(lines)))
    assert counted == {"tray": "1", "gpu": "1", "link": "0", "switch_port": "0"}
    # The open one lasts until the last line, a quarter of an hour.
    assert f'nvlink_repair_lost_seconds{{domain="r01"}} {int(1.75 * 3600)}' in lines
    assert "nvlink_repair_stopped 0" in lines


def test_an_open_incident_lasts_until_the_verdict_where_that_is_later() -> None:
    later = RenderContext(repairs=LEDGER, verdict=verdict(fabrics.verdict(), "verdict.json"))
    found = repairs(later)
    assert found is not None
    # Until 05:00 of the 21st.
    assert found.hours == {"r01t01": pytest.approx(1.5 + 9 * 24 + 0.75)}


def test_without_a_ledger_nothing_is_shown() -> None:
    fabric = fabrics.fabric(racks=1)
    assert repairs(RenderContext()) is None
    assert "nvlink_repair" not in prom(RenderContext())
    assert "h-repair" not in report.render(fabric, fabrics.state(fabric), RenderContext())[report.PAGE]


def test_the_report_lists_open_incidents_and_repeat_offenders() -> None:
    fabric = fabrics.fabric(racks=1)
    page = report.render(fabric, fabrics.state(fabric), CONTEXT)[report.PAGE]
    assert "1 open incident of 2 incidents of the last 30 days." in page
    text = re.sub(r"<[^>]+>", "|", page[page.index("h-repair") : page.index("h-racks")])
    found = [part for part in text.split("|") if part.strip()]
    at = found.index("r01t01-20261112T040000Z")
    assert found[at + 1 : at + 6] == ["r01t01", "gpu_lost", "reboot", "2026-11-12T04:00:00Z", "evidence done"]
    assert found[found.index("r01t01 GPU 2") :][:4] == ["r01t01 GPU 2", "gpu", "2", "1.8"]


def test_hostile_lines_are_escaped_and_add_no_metric() -> None:
    evil = '<script>"} 1\nnvlink_evil 1'
    context = RenderContext(repairs=tuple({**line, "subject": evil, "code": evil} for line in LEDGER))
    fabric = fabrics.fabric(racks=1)
    assert "<script>&#34;" not in report.render(fabric, fabrics.state(fabric), context)[report.PAGE]
    assert not re.search(r"(?m)^nvlink_evil", prom(context))


NODES = {"r01t01": "IDLE", "r01t02": "IDLE", "r01t03": "IDLE", "r01t04": "IDLE+RESERVED"}
UNHEALTHY = {"health": "unhealthy"}


@pytest.mark.parametrize(
    ("nodes", "trays", "expected"),
    [
        ({}, {}, (1, 1, 0, 0)),
        # A spare that took over for a broken tray leaves none.
        ({"r01t02": "DRAIN+IDLE: nvlink: broken", "r01t04": "IDLE"}, {}, (0, 0, 1, 0)),
        ({"r01t02": "DRAIN+IDLE: nvlink: broken"}, {}, (1, 1, 0, 0)),
        ({}, {"r01t04": UNHEALTHY}, (1, 0, 0, 0)),
        ({"r01t04": "DOWN"}, {}, (0, 0, 1, 0)),
        # A job of spares_user.
        ({"r01t04": "MIXED+RESERVED"}, {}, (1, 0, 0, 0)),
        # The reservation was never made, and one of somebody else.
        ({"r01t04": "IDLE"}, {}, (0, 0, 0, 1)),
        ({"r01t03": "IDLE+RESERVED"}, {}, (2, 2, 0, 0)),
        (dict.fromkeys(NODES, "DOWN"), {}, (0, 0, 1, 0)),
    ],
)
def test_spares_are_reserved_free_promoted_or_missing(
    nodes: dict[str, str], trays: dict[str, Any], expected: tuple[int, ...]
) -> None:
    fabric = fabrics.fabric(racks=1, trays=4, split=())
    context = RenderContext(nodes={**NODES, **nodes}, spares_active=3)
    state = node_states.applied(fabrics.state(fabric, **trays), fabric, context.nodes or {})
    (row,) = spares(fabric, state, context)
    assert (row.wanted, row.reserved, row.free, row.promoted, row.missing) == (1, *expected)
    values = re.findall(r'spare_trays\{.*block="r01".*,state="\w+"\} (\d)', prom(context, **trays))
    assert tuple(map(int, values)) == expected
    assert spares(fabric, state, RenderContext(nodes=context.nodes)) == []
    assert spares(fabric, state, RenderContext(spares_active=3)) == []


@given(
    st.lists(st.sampled_from(("IDLE", "MIXED", "IDLE+RESERVED", "MIXED+RESERVED", "DOWN", "DRAIN+IDLE")), min_size=18),
    st.integers(1, 17),
)
def test_the_spares_of_a_block_add_up_to_those_that_are_wanted(words: list[str], active: int) -> None:
    fabric = fabrics.fabric(racks=1, split=())
    context = RenderContext(nodes=dict(zip(fabric.trays, words)), spares_active=active)
    state = node_states.applied(fabrics.state(fabric), fabric, context.nodes or {})
    (row,) = spares(fabric, state, context)
    assert row.wanted == 18 - active
    assert row.free <= row.reserved
    assert row.promoted + row.missing == max(0, row.wanted - row.reserved)
    # As many trays run jobs as are to, where none is missing and enough work.
    assert row.missing == 0 or sum(word in ("IDLE", "MIXED") for word in words[:18]) > active


def test_a_split_clique_has_the_spares_of_each_of_its_blocks() -> None:
    fabric = split.applied(fabrics.fabric(racks=1, trays=4, split=()), {"r01": [2, 2]})
    nodes = {**NODES, "r01t02": "IDLE+RESERVED"}
    state = node_states.applied(fabrics.state(fabric), fabric, nodes)
    found = spares(fabric, state, RenderContext(nodes=nodes, spares_active=1))
    assert [(row.block.clique, row.wanted, row.free) for row in found] == [("r01", 1, 1), ("r01", 1, 1)]


def test_the_report_has_the_spares_of_all_blocks_and_folds_equal_ones() -> None:
    fabric = fabrics.fabric(racks=3, trays=4, split=())
    nodes = {tray: "IDLE+RESERVED" if tray.endswith("t04") and tray != "r03t04" else "IDLE" for tray in fabric.trays}
    state = node_states.applied(fabrics.state(fabric), fabric, nodes)
    page = report.render(fabric, state, RenderContext(nodes=nodes, spares_active=3))[report.PAGE]
    text = re.sub(r"(<[^>]+>\s*)+", "|", page[page.index("Spare trays of each block") : page.index("h-racks")])
    assert "|all blocks|3|2|2|0|1|r[01-02]|1|1|1|0|0|r03|1|0|0|0|1|" in text
