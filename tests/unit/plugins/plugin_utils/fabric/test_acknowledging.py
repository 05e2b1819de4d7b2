# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entry of a tray in repair: its date, and that it outlives discoveries and edits."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import acknowledging, editing, fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy

NOW = datetime.datetime(2026, 11, 28, 12, tzinfo=datetime.UTC)
ENTRY = {"reason": "RMA 4711", "who": "op", "until": "2026-12-24T00:00:00Z"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-24", "2026-12-24T00:00:00Z"),
        ("2026-12-24T18:00+02:00", "2026-12-24T16:00:00Z"),
        ("2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z"),
        ("2026-11-28", "drain_until: '2026-11-28' is past; write a later date, or leave it out"),
        ("0999-01-01", "drain_until: '0999-01-01' is past"),
        ("soon", "drain_until: 'soon' is no date; write one such as 2026-12-24"),
        ("", "drain_until: '' is no date"),
        ("2026-13-01", "drain_until: '2026-13-01' is no date"),
        ("0001-01-01T00:00+23:00", "drain_until: '0001-01-01T00:00+23:00' is no date"),
    ],
)
def test_a_wrong_or_past_date_is_one_sentence(text: str, expected: str) -> None:
    if expected.endswith("Z"):
        assert acknowledging.until(text, NOW) == expected
    else:
        with pytest.raises(FabricFileError) as error:
            acknowledging.until(text, NOW)
        assert str(error.value).startswith(expected)


def test_an_entry_is_set_once_and_cleared_for_its_tray_alone(tmp_path: Path) -> None:
    path, now = str(tmp_path / "fabric.json"), "2026-11-28T12:00:00Z"

    def change(*trays: str, entry: dict[str, str] | None = ENTRY, dry: bool = False) -> list[str]:
        return acknowledging.change(path, None, trays, entry, now, dry)

    assert change("t1", "t2", dry=True) == ["t1", "t2"]
    assert list(tmp_path.iterdir()) == []
    assert [change("t1", "t2"), change("t1", "t2"), change("t3", entry=None)] == [["t1", "t2"], [], []]
    assert acknowledging.current(path, None, now) == {"t1": ENTRY, "t2": ENTRY}
    assert acknowledging.current(path, None, "2026-12-24T00:00:00Z") == {}
    assert change("t1", entry=None) == ["t1"]
    state = fabric_file.load_state(path)
    assert state is not None
    assert state.acknowledged == {"t2": ENTRY}
    change("t2", entry=None)
    assert b"acknowledged" not in (tmp_path / "fabric.state.json").read_bytes()


def test_a_discovery_and_an_edit_keep_it() -> None:
    before = State(acknowledged={"t1": ENTRY, "t2": ENTRY})
    assert place(None, before, [], "2026-11-28T12:00:00Z", Policy()).state.acknowledged == before.acknowledged
    assert editing.of_state(before, {"t1": "t9"}, ["t2"]).acknowledged == {"t9": ENTRY}
