# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which domains have a change of partitions that has not ended, at each line of their journals."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line, append
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import open_changes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import Journal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import Plan

AT = "2026-11-29T23:00:00Z"
CHANGE = [("plan", "done"), ("drain", "begin"), ("drain", "done"), ("switch", "failed"), ("end", "begin")]


def add(folder: Path, domain: str, *steps: tuple[str, str], name: str = "fabric") -> Path:
    """Append lines to the journal of a domain."""
    path = folder / f"{name}.partition-{domain}.jsonl"
    rest = {"incident": "0123456789ab", "at": AT, "subject": domain, "code": "", "detail": "{}"}
    append(str(path), [Line(step=step, state=state, **rest) for step, state in steps])
    return path


def found(folder: Path, state_dir: Path | None = None) -> dict[str, str]:
    return open_changes.sentences(str(folder / "fabric.json"), state_dir and str(state_dir))


def test_a_change_is_open_from_its_plan_to_its_end(tmp_path: Path) -> None:
    assert found(tmp_path) == {}
    for change in range(2):
        for step in CHANGE:
            path = add(tmp_path, "r01", step)
            [sentence] = found(tmp_path).values()
            assert sentence == (
                f"the partitions of NVLink domain r01 are being changed since {AT} ({path}); run the playbook partition"
                " again until it ends the change"
            ), change
        # A run that was killed in the middle of a line.
        path.write_bytes(path.read_bytes() + b'{"at": "2026')
        assert [*found(tmp_path)] == ["r01"]
        add(tmp_path, "r01", ("end", "done"))
        assert found(tmp_path) == {}


def test_each_domain_of_this_fabric_file_has_its_own_journal(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    add(tmp_path, "r01", *CHANGE)
    add(tmp_path, "r02", *CHANGE, ("end", "done"))
    add(tmp_path, "r03", *CHANGE, ("rollback", "done"))
    add(tmp_path, "r04", *CHANGE, name="fabric-2")
    add(tmp_path / "state", "r05", *CHANGE)
    assert [*found(tmp_path)] == ["r01", "r03"]
    assert [*found(tmp_path, tmp_path / "state")] == ["r05"]


def test_the_moved_trays_of_open_changes_are_known(tmp_path: Path) -> None:
    assert open_changes.moves(str(tmp_path / "fabric.json"), None) == {}
    for domain, ids in (("r01", {"r01t01": 1}), ("r02", {"r02t01": 1, "r02t02": 2}), ("r03", {"r03t01": 5})):
        made = Journal(str(tmp_path / f"fabric.partition-{domain}.jsonl"), domain, lambda: AT)
        after = [{"id": number, "trays": [tray], "default": False} for tray, number in ids.items()]
        before = [{"id": 7, "trays": [*ids], "default": True}]
        plan = {key: [] for key in Plan.__required_keys__} | {"moved": [*ids], "before": before, "after": after}
        made.open("0" * 64, plan)
        if domain == "r01":
            made.turn_back()
    made.write("end", "done")
    # Those that did not answer at the plan, too.
    assert open_changes.moves(str(tmp_path / "fabric.json"), None) == {"r01t01": 32766, "r02t01": 1, "r02t02": 2}


def test_a_journal_that_cannot_be_read_is_no_journal_without_a_change(tmp_path: Path) -> None:
    add(tmp_path, "r01", *CHANGE).write_text("no line\n")
    with pytest.raises(FabricFileError, match=r"fabric.partition-r01.jsonl: line 1 is no line of a journal"):
        found(tmp_path)
