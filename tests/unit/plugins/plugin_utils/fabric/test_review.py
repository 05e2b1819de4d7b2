# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import proposal, review
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Change, Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding

from .. import fabrics

BEFORE = fabrics.fabric(racks=3, trays=2, split=())


def change(tray: str, before: str | None, after: str | None, kind: str) -> Change:
    return {"tray": tray, "from": before, "to": after, "kind": kind, "why": f"{kind} 2026-11-21: a | b"}


MOVED = change("r01t01", "r01", "r02", "moved")
PLACED = change("r03t02", None, "r03", "placed")


def test_the_table_has_columns_and_a_bound() -> None:
    lines = review.table([MOVED, PLACED], {}, "x.md")
    assert [line.split()[:3] for line in lines] == [
        ["tray", "from", "to"],
        ["r01t01", "r01", "r02"],
        ["r03t02", "none", "r03"],
    ]
    assert lines[1].index("moved 2026") == lines[2].index("placed 2026") == lines[0].index("why")
    many = [change(f"r{n // 18:03}t{n % 18:02}", None, f"r{n // 18:03}", "placed") for n in range(10368)]
    lines = review.table(many, {}, "/srv/fabric.proposed.md")
    assert len(lines) == 1 + review.MAX_ROWS + 1
    assert lines[1].split()[:3] == ["r000t[00-17]", "none", "r000"]
    assert lines[-1] == "and 9648 more changes, all of them in /srv/fabric.proposed.md"
    assert review.table([], {}, "x.md") == []


def nodes(name: str) -> Any:
    return {"slurm_node": name, "kubernetes_node": name}


def test_the_markdown_has_every_change_the_objections_and_the_new_blocks() -> None:
    objection = finding("moved_percent", "1 of 6 placed trays would move.")
    after = fabrics.fabric(racks=3, trays=2, split=())
    after.trays["r01t01"].update(clique="r02", why="moved 2026-11-21: a | b")
    before = fabrics.fabric(racks=3, trays=2, split=())
    del before.trays["r03t02"], before.cliques["r02"]
    proposed = proposal.propose(b"{}", after, [objection], "2026-11-21T05:00:00Z")
    gates = {"r01t01": ["moved_percent"]}
    text = review.markdown(proposed, before, gates, "ansible-playbook accept")
    assert f" -> {proposed.sha256}, proposed at 2026-11-21T05:00:00Z\n" in text
    assert "    stopped by gate moved_percent: 1 of 6 placed trays would move.\n" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.startswith("    r0")}
    assert rows["r01t01"] == ["r01t01", "r01", "r02", "moved", "2026-11-21:", "a", "|", "b", "moved_percent"]
    assert rows["r03t02"][:4] == ["r03t02", "none", "r03", "placed"]
    assert "    clique r02: new, " in text
    assert "    ansible-playbook accept\n" in text
    assert text == review.markdown(proposed, before, gates, "ansible-playbook accept")
    many = [f"r{n:05}t{n * 7:05}" for n in range(1000)]
    after = replace(BEFORE, trays={name: {**BEFORE.trays["r03t02"], **nodes(name)} for name in many})
    text = review.markdown(proposal.propose(b"{}", after, [], "2026-11-21T05:00:00Z"), Fabric(), {}, "accept")
    row = next(line for line in text.splitlines() if "  none  r03 " in line)
    assert expand(row.split()[0]) == many


def test_all_text_of_a_tray_is_code() -> None:
    after = fabrics.fabric(racks=3, trays=2, split=())
    after.trays["r01t01"].update(clique="r02", why="x\n\n<b> https://evil.example/ [a](b) \u202e| #1 @ops")
    proposed = proposal.propose(b"{}", after, [], "2026-11-21T05:00:00Z")
    text = review.markdown(proposed, BEFORE, {}, "accept")
    assert "    r01t01  r01   r02  x  <b> https://evil.example/ [a](b)  | #1 @ops  -\n" in text
    assert all(line.startswith(("    ", "# ")) for line in text.splitlines() if line)


def tray(state: str, *messages: str) -> Any:
    rows = [finding("tray_unreachable", message, tray="") for message in messages]
    return {
        "state": state,
        "health": "unknown",
        "observed_at": None,
        "source": None,
        "driver_version": None,
        "findings": rows,
    }


def test_trays_to_look_at_are_named_by_state_and_cause() -> None:
    down = "Tray {} keeps its place in {}: root@{}: Permission denied (publickey); bring it back and discover again."
    state = State(
        {
            "r01t01": tray("stale", down.format("r01t01", "r01", "a")),
            "r02t01": tray("stale", down.format("r02t01", "r02", "b")),
            "r02t02": tray("conflict", "Tray r02t02 reports the GPUs of r01t01; give each tray a single name."),
            "r03t01": tray("unplaced"),
            "new": tray("unplaced", "Tray new gets no place: not all its GPUs are attached to one clique; wait."),
            "r01t02": tray("present", "Tray r01t02 is well; really."),
        },
        [finding("not_a_tray", "No GPU.", tray=name) for name in ("login1", "login2", "elsewhere")],
    )
    targets = [*(name for name in state.trays), "login1", "login2"]
    assert review.state_lines(BEFORE, state, targets) == [
        "stale: 2 trays (r[01-02]t01): Permission denied (publickey)",
        "conflict: 1 tray (r02t02): reports the GPUs of r01t01",
        "unplaced: 1 tray (new): not all its GPUs are attached to one clique",
        "not a tray: 2 hosts (login[1-2]): no GPU found; leave them out of fabric_hosts",
    ]
    # A run with a limit has not asked the others, and does not repeat what an earlier one found.
    assert review.state_lines(BEFORE, state, ["r01t01", "r01t02", "r02t02"]) == [
        "stale: 1 tray (r01t01): Permission denied (publickey)",
        "stale: 1 tray (r02t01), not in this run",
        "conflict: 1 tray (r02t02): reports the GPUs of r01t01",
        "unplaced: 1 tray (new), not in this run",
    ]
