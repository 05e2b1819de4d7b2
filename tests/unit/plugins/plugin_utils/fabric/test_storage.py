# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the controller under many writers, on a full disk and through symbolic links: real processes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import faults

PREAMBLE = """
import json, os, sys, time
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import tree
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file
"""


# --- a full disk: a tmpfs of 64 KiB in a mount namespace, filled by the test ---

# The file that a call writes -> the call.
FULL = {
    # And state, proposal, verdict and JUnit.
    "fabric.json": "storage.write_atomic('fabric.json', data)",
    "audit.jsonl": "storage.append_line('audit.jsonl', data)",
    "progress.json": (
        "progress_file.write('progress.json', 'imex', {data.decode(): {'state': 'failed', 'trays': {}}}, 'now')"
    ),
    "tree.json": "tree.plan('.', {'part': {'tree.json': data.decode()}}).apply()",
    "nvlink-imex/play-play/phase/r01t01.json": (
        "run_store.write_row('.', 'play', 'phase', 'r01t01', {'row': data.decode()})"
    ),
}


def test_on_a_full_disk_each_writer_fails_with_one_sentence_and_keeps_the_old_file(tmp_path: Path) -> None:
    code = f"""
        os.chdir(sys.argv[1])
        for path, call in {FULL!r}.items():
            data = b"old"
            exec(call)
            with open(path, "rb") as file:
                before = file.read()
            data = b"new" * 100_000
            try:
                exec(call)
            except NvlinkError as error:
                print(error)
            with open(path, "rb") as file:
                assert file.read() == before, path
    """
    done = in_tmpfs(tmp_path, code)
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout.splitlines()
    assert len(printed) == len(FULL)
    for sentence in printed:
        assert "cannot be written (No space left on device)" in sentence
        assert "free space on its file system" in sentence


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


# --- a run of many tasks ---


def test_a_mark_names_another_run_until_its_process_has_ended(tmp_path: Path) -> None:
    path, me = str(tmp_path / "fabric.rollout"), os.getpid()
    assert storage.held(path) == ""
    storage.mark(path, "2026-11-29T19:00:00Z", me)
    assert storage.held(path) == (
        f"pid {me} on {socket.gethostname()} since 2026-11-29T19:00:00Z ({path}.lock.{socket.gethostname()}.{me})"
    )
    assert storage.held(path, me) == "", "not by itself"
    with subprocess.Popen(["sleep", "60"]) as other:
        storage.mark(path, "now", other.pid)
        assert storage.held(path, me).startswith(f"pid {other.pid} on ")
        storage.unmark(path, me)
        storage.unmark(path, me)
        other.kill()
    assert storage.held(path) == "", "its process is gone"
    # So is one for which nobody has waited yet.
    with subprocess.Popen(["sleep", "60"]) as other:
        storage.mark(path, "now", other.pid)
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert storage.held(path) == ""
    assert len(list(tmp_path.iterdir())) == 1, "the question changes nothing"
    storage.mark(path, "now", me)
    assert [file.name for file in tmp_path.iterdir()] == [f"fabric.rollout.lock.{socket.gethostname()}.{me}"]


@pytest.mark.parametrize(
    ("content", "holder"),
    [
        # A later process has its PID.
        ({"pid": os.getpid(), "host": socket.gethostname(), "since": "now", "started": "1"}, ""),
        ({"pid": 1, "host": "other", "since": "now", "started": "1"}, "pid 1 on other since now"),
        ("{", "unknown process"),
        ([], "unknown process"),
    ],
)
def test_a_mark_of_another_host_or_without_a_meaning_counts(tmp_path: Path, content: object, holder: str) -> None:
    file = tmp_path / "fabric.rollout.lock.other.1"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    assert storage.held(str(tmp_path / "fabric.rollout")) == (f"{holder} ({file})" if holder else "")


def test_the_lock_of_one_task_is_held_for_that_task(tmp_path: Path) -> None:
    path = str(tmp_path / "fabric.json")
    with storage.locked(path, "now"):
        assert storage.held(path) == f"pid {os.getpid()} on {socket.gethostname()} since now ({path}.lock)"
    assert storage.held(path) == ""
