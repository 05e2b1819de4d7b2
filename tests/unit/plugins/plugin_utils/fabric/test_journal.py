# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The append-only file of lines: what a killed run leaves of it is read, and nothing that is not a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import journal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(max_size=20) | st.sampled_from(['{"action": "reboot"}', '"}', ', "subject": "'])
LINES = st.lists(st.fixed_dictionaries(dict.fromkeys(Line.__annotations__, TEXTS)), max_size=5)


def line(step: str = "drain", state: str = "done", **more: str) -> Line:
    fixed = {"incident": "r01t04-1", "at": "2026-11-29T19:00:00Z", "step": step, "state": state}
    return {**fixed, "subject": "r01t04", "code": "gpu_lost", "detail": "", **more}  # type: ignore[typeddict-item]


@given(first=LINES, second=LINES, cut=st.integers(0, 400))
def test_a_file_torn_at_any_byte_is_read_and_appended_to(
    tmp_path_factory: pytest.TempPathFactory, first: list[Line], second: list[Line], cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "fabric.repairs.jsonl"
    journal.append(str(path), first)
    assert journal.read(str(path)) == first
    if first:
        path.write_bytes(path.read_bytes()[:cut])
    kept = journal.read(str(path))
    assert kept == first[: len(kept)]
    journal.append(str(path), second)
    assert journal.read(str(path)) == kept + second, "a torn line spoils no line after it"


def test_without_a_file_there_are_no_lines_and_nothing_is_written_for_none(tmp_path: Path) -> None:
    path = tmp_path / "fabric.repairs.jsonl"
    journal.append(str(path), [])
    assert journal.read(str(path)) == []
    assert not path.exists()


@pytest.mark.parametrize("bad", ["rm -rf /", "{}", '{"at": "x", "subject": "r01t04"}', "[1]", '{"at": 1}'])
def test_a_line_that_is_none_is_named_with_its_number(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "fabric.repairs.jsonl"
    journal.append(str(path), [line()])
    with path.open("a") as file:
        file.write(f"{bad}\n")
    journal.append(str(path), [line("close")])
    with pytest.raises(FabricFileError, match=r"fabric\.repairs\.jsonl: line 2 is no line of a journal; correct it"):
        journal.read(str(path))


def test_a_folder_in_its_place_fails_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FabricFileError, match=r"cannot be read \(it is not a regular file\)"):
        journal.read(str(tmp_path))
