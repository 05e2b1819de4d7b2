# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import disk
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.files import ImexError


def test_a_file_is_replaced_atomically_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key.pem"
    disk.write_text(str(path), "secret\n", 0o600, 0o700)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    disk.write_text(str(path), "other\n", 0o600)
    assert (path.read_text(), os.listdir(path.parent)) == ("other\n", ["key.pem"])
    with pytest.raises(ImexError, match="cannot be written"):
        disk.write_text(str(path / "below" / "it"), "x", 0o644)


def test_invalid_utf_8_is_written_back_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_bytes(b"a\xff\r\n")
    text = disk.read_text(str(path))
    assert text is not None
    disk.write_text(str(path), text, 0o644)
    assert path.read_bytes() == b"a\xff\r\n"


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, tmp_path / "nothing", Path("/dev/tty0")):
        # In a child, for a reader of a pipe waits until somebody writes.
        done = child.call(disk.read_text, 5.0, str(path))
        assert (done.value, done.result.rc) == (None, 0), path
    assert disk.read_text("/proc/self/comm")
