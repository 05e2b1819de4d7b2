# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each writer of a file under SIGKILL at each system call, power loss, I/O errors and a read-only file system."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import Files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import faults

Write = Callable[[str, bytes], object]


def _owner() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


WRITERS: dict[str, Write] = {
    "controller": storage.write_atomic,
    "slurm transaction": lambda path, data: Files(path).put(path, data),
    "host": lambda path, data: host.write(path, data, _owner(), 0o644),
}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Write:
    return WRITERS[request.param]


def test_the_file_is_on_the_disk_before_its_rename_and_the_folder_after_it(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    calls = faults.run(lambda: write(str(path), b"new"), only={"write", "fsync", "rename", "renameat"}).calls
    order = [call.removesuffix("at") for call in calls]
    written, renamed = order.index("write"), len(order) - 1 - order[::-1].index("rename")
    assert "fsync" in order[written:renamed]
    assert order[renamed + 1 :] == ["fsync"]
    assert path.read_bytes() == b"new"


def test_a_line_of_the_audit_log_is_on_the_disk_when_the_call_ends(tmp_path: Path) -> None:
    path = str(tmp_path / "fabric.audit.jsonl")
    calls = faults.run(lambda: storage.append_line(path, b"line"), only={"write", "fsync", "rename"}).calls
    assert calls == ["write", "fsync", "fsync"]


@pytest.mark.parametrize("call", ["fsync", "write", "rename", "fchmod"])
def test_an_io_error_is_one_sentence_and_the_old_file_stays(tmp_path: Path, write: Write, call: str) -> None:
    if call not in faults.NUMBER:
        call = f"{call}at"
    path, said = tmp_path / "file.json", tmp_path / "said"
    path.write_bytes(b"old")
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT)

    def work() -> None:
        faults.fail(call, errno.EIO)
        try:
            write(str(path), b"new")
        except Exception as error:
            os.pwrite(descriptor, f"{type(error).__name__}: {error}".encode(), 0)

    faults.run(work)
    os.close(descriptor)
    assert path.read_bytes() == b"old"
    assert "Input/output error" in said.read_text()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    if write is WRITERS["controller"]:
        assert said.read_text() == (
            f"FabricFileError: {path}: cannot be written (Input/output error); check its disk and the kernel's log"
        )


def test_a_read_only_file_system_is_one_sentence(tmp_path: Path) -> None:
    code = """
import sys
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
for work in (lambda: storage.write_atomic(path, b"new"), lambda: storage.append_line(path, b"new"),
             lambda: storage.locked(path, "now").__enter__(), lambda: storage.remove(path)):
    path = sys.argv[1] + "/fabric.json"
    try:
        work()
    except NvlinkError as error:
        print(error)
print(open(path).read())
"""
    script = (
        'mount -t tmpfs tmpfs "$1" && echo old > "$1/fabric.json" && mount -o remount,ro "$1" && exec "$2" -c "$3" "$1"'
    )
    done = subprocess.run(
        [*faults.MOUNTS, "sh", "-c", script, "sh", tmp_path, sys.executable, code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    refused = "(Read-only file system); mount its file system writable"
    assert done.stdout.splitlines() == [
        f"{tmp_path}/fabric.json: cannot be written {refused}",
        f"{tmp_path}/fabric.json: cannot be written {refused}",
        f"{tmp_path}/fabric.json.lock: cannot be locked {refused}",
        f"{tmp_path}/fabric.json: cannot be removed {refused}",
        "old",
        "",
    ]
