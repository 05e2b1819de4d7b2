# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one writer of files: modes, owners, links, second names, leftovers, many writers, a full disk, SIGKILL."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, child
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import faults

PREAMBLE = """
import json, os, sys
from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
"""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PREAMBLE + textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def names(folder: Path) -> list[str]:
    return sorted(child.name for child in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


WRITER = """
    for number in range(200):
        text = json.dumps({"writer": sys.argv[2], "number": number, "rows": [number] * (number % 5000)})
        atomic.write(sys.argv[1], text.encode())
"""
READER = """
    for _number in range(1000):
        json.loads(atomic.read(sys.argv[1]))
"""


def test_many_writers_and_readers_need_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    path.write_text("{}")
    started = [python(WRITER, str(path), str(number)) for number in range(3)]
    started += [python(READER, str(path)) for _reader in range(2)]
    ended = [process.communicate(timeout=60) for process in started]
    assert [errors for _output, errors in ended] == [""] * 5
    assert "rows" in json.loads(path.read_text())
    assert names(tmp_path) == ["verdict.json"]


def test_a_leftover_of_a_killed_write_is_removed_an_hour_later_and_a_younger_one_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    leftovers = [tmp_path / f".verdict.json.{number}.new" for number in range(2)]
    foreign = tmp_path / ".other.json.1.new"
    for file in (*leftovers, foreign):
        file.write_text("half")
    for file in (leftovers[0], foreign):
        os.utime(file, (time.time() - 3700,) * 2)
    atomic.write(str(path), b"{}")
    assert names(tmp_path) == [".other.json.1.new", ".verdict.json.1.new", "verdict.json"]


@pytest.mark.parametrize(("umask", "expected"), [(0o027, 0o640), (0o002, 0o664), (0, 0o664)])
def test_a_new_file_has_the_mode_of_the_umask_and_is_never_for_all_to_write(
    tmp_path: Path, umask: int, expected: int
) -> None:
    code = f"""
        os.umask({umask})
        atomic.write(sys.argv[1] + "/plain", b"new")
    """
    assert python(code, str(tmp_path)).wait(30) == 0
    assert mode(tmp_path / "plain") == expected


def test_a_file_keeps_its_mode_unless_one_is_given(tmp_path: Path) -> None:
    path, model = tmp_path / "topology.yaml", tmp_path / "slurm.conf"
    model.touch()
    model.chmod(0o604)
    atomic.write(str(path), b"1", model=str(model))
    assert mode(path) == 0o604
    path.chmod(0o640)
    atomic.write(str(path), b"2", model=str(model))
    assert mode(path) == 0o640
    atomic.write(str(path), b"4", mode=0o600)
    assert (mode(path), path.read_bytes()) == (0o600, b"4")
    with pytest.raises(FileNotFoundError):
        atomic.write(str(tmp_path / "other"), b"", model=str(tmp_path / "missing"))
    assert names(tmp_path) == ["slurm.conf", "topology.yaml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_keeps_its_owner_unless_one_is_given(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.touch(0o4755)
    os.chown(path, 1, 2)
    path.chmod(0o4755)
    atomic.write(str(path), b"new")
    status = path.stat()
    assert (status.st_uid, status.st_gid, mode(path)) == (1, 2, 0o4755)
    atomic.write(str(path), b"newer", owner=(3, 4))
    assert (path.stat().st_uid, path.stat().st_gid) == (3, 4)


def test_a_link_stays_a_link_and_is_replaced_where_it_must_not_be_followed(tmp_path: Path) -> None:
    target, link, dangling = tmp_path / "folder" / "target", tmp_path / "link", tmp_path / "dangling"
    target.parent.mkdir()
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to("folder/target")
    dangling.symlink_to("folder/new")
    atomic.write(str(link), b"new")
    atomic.write(str(dangling), b"new")
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert (target.read_bytes(), mode(target), names(target.parent)) == (b"new", 0o640, ["new", "target"])
    atomic.write(str(link), b"newer", follow=False)
    assert not link.is_symlink()
    assert (link.read_bytes(), target.read_bytes()) == (b"newer", b"new")


@pytest.mark.parametrize("has_links", [True, False])
def test_the_old_file_stays_under_its_second_name(tmp_path: Path, has_links: bool) -> None:
    path, previous = str(tmp_path / "slurm.conf"), str(tmp_path / "slurm.conf.previous")

    def work() -> None:
        if not has_links:
            faults.fail("linkat", errno.EPERM)
        for number in range(3):
            atomic.write(path, b"%d" % number, mode=0o640, previous=previous)
            assert atomic.read(previous) == (b"%d" % (number - 1) if number else None)
        # One file under both names, which a rename would leave as it is.
        if has_links:
            os.unlink(previous)
            os.link(path, previous)
            atomic.write(path, b"3", previous=previous)

    assert not faults.run(work).killed
    assert atomic.read(path) == (b"3" if has_links else b"2")
    assert names(tmp_path) == ["slurm.conf", "slurm.conf.previous"]
    assert mode(Path(previous)) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_old_file_keeps_its_owner_under_its_second_name(tmp_path: Path) -> None:
    """A change that slurmctld refuses is undone by a rename of it, after which slurmctld must be able to read it."""
    path, previous = tmp_path / "topology.yaml", tmp_path / "topology.yaml.previous"
    for file, owner in ((path, 1), (previous, 3)):
        file.touch(0o600)
        os.chown(file, owner, owner)
    atomic.write(str(path), b"new", previous=str(previous))
    assert (previous.stat().st_uid, previous.stat().st_gid, mode(previous)) == (1, 1, 0o600)


def test_a_kill_before_any_system_call_leaves_the_old_or_the_new_file_and_the_next_write_succeeds(
    tmp_path: Path,
) -> None:
    path, previous = tmp_path / "file", tmp_path / "file.previous"
    for step in range(200):
        for file in tmp_path.iterdir():
            file.unlink()
        path.write_bytes(b"old" * 10_000)
        killed = faults.run(
            lambda: atomic.write(str(path), b"new" * 10_000, previous=str(previous)), kill_at=step
        ).killed
        assert path.read_bytes() in (b"old" * 10_000, b"new" * 10_000)
        assert atomic.read(str(previous)) in (None, b"old" * 10_000)
        if not killed:
            assert names(tmp_path) == ["file", "file.previous"]
            assert step > 10
            return
        atomic.write(str(path), b"newer", previous=str(previous))
        assert path.read_bytes() == b"newer"
    pytest.fail("the write never ends")


def test_the_file_is_on_the_disk_before_its_rename_and_the_folder_after_it_if_durable(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    for durable, expected in ((True, ["write", "fsync", "rename", "fsync"]), (False, ["write", "rename"])):
        only = {"write", "fsync", "rename", "renameat"}
        calls = faults.run(lambda durable=durable: atomic.write(str(path), b"new", durable=durable), only=only).calls
        assert [call.removesuffix("at") for call in calls] == expected


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, tmp_path / "nothing", Path("/dev/tty0")):
        # In a child, for a reader of a pipe waits until somebody writes.
        done = child.call(atomic.read_text, 5.0, str(path))
        assert (done.value, done.result.rc) == (None, 0), path
    assert atomic.read_text("/proc/self/comm")


def test_a_reader_refuses_what_is_no_regular_file_or_too_large_and_names_the_limit(tmp_path: Path) -> None:
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(10 << 30)
    for name in ("zero", "pipe", "sparse"):
        with pytest.raises(OSError, match=r"it is larger than 1024 bytes|it is not a regular file"):
            atomic.bounded(str(tmp_path / name), 1024)
        assert atomic.read_regular(str(tmp_path / name)) is None
    assert atomic.bounded(str(tmp_path / "link"), 5) == b"12345"
    with pytest.raises(OSError, match="it is larger than 4 bytes"):
        atomic.bounded(str(tmp_path / "link"), 4)
