# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a result lists of commands and writes: in order, on one line each, bounded, without the content of a secret."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions, atomic, child
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import Files

SECRET = "hunter2hunter2"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    actions.begin()
    yield
    actions.begin()


def test_a_write_has_its_mode_and_what_identifies_its_content(tmp_path: Path) -> None:
    atomic.write(str(tmp_path / "a"), b"text\n", 0o644)
    digest = hashlib.sha256(b"text\n").hexdigest()[:12]
    assert actions.done() == [f"write {tmp_path}/a (mode 0644, 5 bytes, sha256 {digest})"]


def test_a_file_that_not_everybody_may_read_is_listed_without_size_and_checksum(tmp_path: Path) -> None:
    atomic.write(str(tmp_path / "key"), SECRET.encode(), 0o640)
    assert actions.done() == [f"write {tmp_path}/key (mode 0640)"]


def test_a_write_that_fails_and_one_that_is_not_listed_leave_nothing(tmp_path: Path) -> None:
    atomic.write(str(tmp_path / "row"), b"", listed=False)
    with pytest.raises(FileNotFoundError):
        atomic.write(str(tmp_path / "none" / "a"), b"")
    assert actions.done() == []


def test_what_is_undone_is_listed_after_what_was_done(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("1")
    old.chmod(0o600)
    files = Files(str(old))
    files.put(str(old), b"2")
    files.put(str(new), b"3")
    files.undo()
    words = [f"write {old} (mode 0600)", f"write {new} (mode 0600)", f"remove {new}", f"restore {old}"]
    assert actions.done() == words


def test_a_command_is_listed_where_it_acts_and_a_failed_one_says_so() -> None:
    child.run(["true"], 10)
    child.run(["sh", "-c", "exit 3"], 10, acts=True)
    child.run(["/nonexistent"], 10, acts=True)
    child.run(["sleep", "60"], 0.2, acts=True)
    assert actions.done() == [
        "run sh -c 'exit 3' (failed, rc 3)",
        "run /nonexistent (failed, rc 127)",
        "run sleep 60 (no answer in time)",
    ]


def test_of_a_program_of_the_site_only_the_name_is_listed() -> None:
    child.run_each([["env", "--", "true", f"--token={SECRET}"]] * 2, 10, 2, acts=True)
    assert actions.done() == ["run env -- true (2 times)"]


def test_a_text_is_one_short_printable_line() -> None:
    actions.record("write a\nb\x1b[31m\u202e" + "x" * 1000)
    (text,) = actions.done()
    assert text.startswith("write a b [31m x")
    assert len(text) == actions.MAX_LENGTH
    assert text.isprintable()


def test_a_list_that_grows_with_the_trays_has_its_ends_and_a_count() -> None:
    actions.record(*map(str, range(10_368)))
    done = actions.done()
    assert (done[0], done[49], done[50], done[51], done[-1]) == ("0", "49", "(10268 more actions)", "10318", "10367")
    assert len(done) == actions.MAX_ACTIONS + 1
