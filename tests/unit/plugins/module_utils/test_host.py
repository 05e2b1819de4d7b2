# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes of a host: files with owner and mode, programs, units."""

from __future__ import annotations

import os
import pwd
import re
import stat
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, HostError, ids, write

ME = pwd.getpwuid(os.geteuid()).pw_name


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_once_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "made" / "file"
    host = Host(check=False)
    assert host.file(str(path), b"one", ME, 0o400)
    assert (path.read_bytes(), mode(path)) == (b"one", 0o400)
    assert not host.file(str(path), b"one", ME, 0o400)
    assert host.changes == [f"write {path}"]
    path.chmod(0o644)
    assert not host.file(str(path), b"one", ME, 0o400)
    assert mode(path) == 0o400
    assert host.changes[1:] == [f"set owner {ME} and mode 0400 of {path}"]
    assert host.file(str(path), b"two\xff", ME, 0o400)
    assert host.changes[2:] == [f"change {path}"]
    assert host.file(str(path), None)
    assert not host.file(str(path), None)
    assert host.changes[3:] == [f"remove {path}"]
    assert os.listdir(path.parent) == []
    assert host.diff() == [{"before_header": str(path), "after_header": str(path), "before": "", "after": ""}]


def test_what_fails_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    host = Host(check=False)
    for fails in (
        lambda: host.file(str(tmp_path / "file" / "x"), b"one", ME),
        lambda: host.folder(str(tmp_path / "file" / "x"), ME, 0o755),
        lambda: host.change("make a mess", "false"),
    ):
        with pytest.raises(HostError):
            fails()
    assert (host.changes, host.diff()) == ([], [])


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_missing_folders_have_fixed_modes(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        Host(check=False).file(str(tmp_path / "a" / "b" / "file"), b"", ME)
        Host(check=False).folder(str(tmp_path / "c" / "d"), ME, 0o700)
        write(str(tmp_path / "e" / "f" / "secret"), b"", ME, 0o600, folder_mode=0o700)
    finally:
        os.umask(before)
    assert {name: oct(mode(tmp_path / name)) for name in ("a", "a/b", "c", "c/d", "e", "e/f")} == {
        **dict.fromkeys(("a", "a/b", "c", "e"), "0o755"),
        **dict.fromkeys(("c/d", "e/f"), "0o700"),
    }


def test_a_change_is_shown_with_its_texts_unless_it_is_secret_or_quiet(tmp_path: Path) -> None:
    for secret, expected in ((False, ("old", "new")), (True, ("(a secret)\n", "(another secret)\n"))):
        path = tmp_path / str(secret) / "file"
        Host(check=False).file(str(path), b"old", ME, secret=secret)
        assert mode(path.parent) == (0o700 if secret else 0o755)
        host = Host(check=True)
        host.file(str(path), b"new", ME, secret=secret)
        assert (host.before[str(path)], host.after[str(path)]) == expected
        host.file(str(path), None, secret=secret)
        assert (host.before[str(path)], host.after[str(path)]) == (expected[0], "")
    host = Host(check=False)
    assert host.file(str(path), b"newer", ME, quiet=True)
    assert (path.read_bytes(), host.changes, host.diff()) == (b"newer", [], [])


def test_a_long_program_is_one_line_of_a_diff(tmp_path: Path) -> None:
    path, host = tmp_path / "program", Host(check=False)
    program = b"#!/usr/bin/python3\n" + b"pass\n" * 200
    for data, word in ((program, "new"), (program + b"pass\n", "changed"), (None, "removed")):
        host = Host(check=False)
        host.file(str(path), data, ME)
        (row,) = host.diff()
        assert re.fullmatch(rf"{path}: {word}, a program of 20[12] lines\n", row["prepared"])
    host = Host(check=True)
    host.file(str(path), b"#!/bin/sh\nexit 0\n", ME)
    assert host.diff()[0]["after"] == "#!/bin/sh\nexit 0\n"


def test_a_link_is_replaced_and_what_it_names_is_not_changed(tmp_path: Path) -> None:
    """In a folder of another user it could name any file of the host."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    target.chmod(0o600)
    Host(check=False).file(str(link), b"old", ME, 0o644)
    assert (mode(target), link.is_symlink(), mode(link)) == (0o600, False, 0o644)
    link.unlink()
    link.symlink_to(target)
    Host(check=False).file(str(link), b"new", ME)
    assert (target.read_bytes(), link.read_bytes()) == (b"old", b"new")


def test_a_path_that_is_no_file_is_removed_without_being_read(tmp_path: Path) -> None:
    """Such as a channel device: reading a terminal or a pipe would block."""
    pipe = tmp_path / "channel0"
    os.mkfifo(pipe)
    # In a child process, so that a read that blocks ends by its time limit.
    done = child.call(Host(check=False).file, 5.0, str(pipe), None)
    assert (done.result.rc, done.result.timed_out) == (0, False)
    assert not os.path.lexists(pipe)


def test_check_mode_records_changes_and_makes_none(tmp_path: Path) -> None:
    path = tmp_path / "made" / "file"
    host = Host(check=True)
    host.folder(str(path.parent), ME, 0o700)
    assert host.file(str(path), b"one", "nobody-of-this-name", 0o400)
    assert not host.change("make a mess", "touch", str(path))
    assert host.changes == [f"make {path.parent}", f"write {path}", "make a mess"]
    assert not path.parent.exists()


def test_a_program_that_fails_is_named_with_its_reason(tmp_path: Path) -> None:
    host = Host(check=False, timeout=5)
    assert host.change("make a file", "touch", str(tmp_path / "file"))
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(HostError, match=r"^sh -c echo no; exit 3 failed \(no\): run it by hand on this host\.$"):
        host.change("fail", "sh", "-c", "echo no; exit 3")
    with pytest.raises(HostError, match=r"failed \(no answer in time\)"):
        host.require("sleep", "9", timeout=0.1)
    with pytest.raises(HostError, match=r"failed \(No such file or directory\)"):
        host.require("no-such-program")
    with pytest.raises(HostError, match="timeout is 0: use a number of seconds above 0"):
        Host(check=False, timeout=0)


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    assert ids("root:root") == (0, 0)
    for owner in ("nobody-of-this-name", "root:nobody-of-this-name"):
        with pytest.raises(HostError, match=f"There is no user or group {owner} on this host"):
            write(str(path), b"new", owner, 0o600)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(HostError, match=r"cannot be written \(.*\): make room, or correct the mode of its folder\."):
        write("/proc/nvlink/file", b"new", ME, 0o600)
    with pytest.raises(HostError, match=r"cannot be removed \(Is a directory\)"):
        Host(check=False).file(str(tmp_path), None)
