# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the controller under many writers, on a full disk and through symbolic links: real processes."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import faults

PREAMBLE = """
import json, os, sys, time
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import tree
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import rehearsal_file
"""


def python(code: str, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-c", PREAMBLE + textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_link_and_its_target_have_one_lock(tmp_path: Path) -> None:
    target, link = tmp_path / "repository" / "fabric.json", tmp_path / "fabric.json"
    target.parent.mkdir()
    target.write_text("{}")
    link.symlink_to(target)
    holder = python("with storage.locked(sys.argv[1], 'now'): print('held', flush=True); sys.stdin.read()", str(link))
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    sentence = rf"another run is writing it \(pid {holder.pid} on "
    with pytest.raises(FabricFileError, match=sentence), storage.locked(str(target), "now"):
        pass
    holder.communicate(timeout=30)
    assert holder.returncode == 0
    assert sorted(child.name for child in tmp_path.iterdir()) == ["fabric.json", "repository"]
    assert [child.name for child in target.parent.iterdir()] == ["fabric.json"]


# --- a full disk: a tmpfs of 64 KiB in a mount namespace, filled by the test ---

NO_SPACE = "cannot be written (No space left on device); free space on its file system"
# writer -> call, the file that it writes, its sentence.
FULL = {
    "fabric file, state, proposal, verdict and JUnit": (
        "storage.write_atomic('file.json', data)",
        "file.json",
        NO_SPACE,
    ),
    "audit log": (
        "storage.append_line('file.json', data)",
        "file.json",
        NO_SPACE,
    ),
    "progress": (
        "progress.write('file.json', 'imex', {data.decode(): progress.Unfinished('failed')}, 'now')",
        "file.json",
        NO_SPACE,
    ),
    "render_dir": (
        "tree.plan('.', {'file.json': tree.File(data.decode(), 'part')}, {'part'}, 'manifest').apply()",
        "file.json",
        NO_SPACE.replace(";", ":"),
    ),
    "run store": (
        "run_store.write_row('.', 'play', 'phase', 'r01t01', {'row': data.decode()})",
        "nvlink-imex/play-play/phase/r01t01.json",
        NO_SPACE,
    ),
    "rehearsal": (
        "[print(warning) for warning in rehearsal_file.store('file.json', {'rehearsal': {'row': data.decode()}})]",
        "file.json",
        NO_SPACE,
    ),
}


@pytest.mark.parametrize("writer", FULL)
def test_on_a_full_disk_each_writer_fails_with_one_sentence_and_keeps_the_old_file(tmp_path: Path, writer: str) -> None:
    call, path, sentence = FULL[writer]
    code = f"""
        os.chdir(sys.argv[1])
        data = b"old"
        {call}
        with open({path!r}, "rb") as file:
            before = file.read()
        data = b"new" * 100_000
        try:
            {call}
        except NvlinkError as error:
            print(error)
        with open({path!r}, "rb") as file:
            assert file.read() == before
    """
    done = in_tmpfs(tmp_path, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert sentence in done.stdout


def in_tmpfs(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code with a new tmpfs of 64 KiB at folder."""
    mount = f'mount -t tmpfs -o size=64k tmpfs "{folder}" && exec "$@"'
    command = [sys.executable, "-c", PREAMBLE + textwrap.dedent(code), str(folder)]
    return subprocess.run(
        [*faults.MOUNTS, "sh", "-c", mount, "sh", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_lock_needs_no_space(tmp_path: Path) -> None:
    code = """
        path = sys.argv[1] + "/fabric.json"
        with open(sys.argv[1] + "/filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        with storage.locked(path, "now"):
            try:
                with storage.locked(path, "now"):
                    pass
            except NvlinkError as error:
                print(error)
    """
    done = in_tmpfs(tmp_path, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"another run is writing it \(unknown process\); wait for it to end$", done.stdout)
