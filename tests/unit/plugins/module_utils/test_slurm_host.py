# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files with owner and mode on a host."""

from __future__ import annotations

import os
import pwd
import stat
import time
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import host as host_module
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import keys
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.host import Host, ids, write

ME = pwd.getpwuid(os.geteuid()).pw_name


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_once_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "made" / "secret"
    host = Host(check=False)
    assert host.file(str(path), b"one", ME, 0o400)
    assert path.read_bytes() == b"one"
    assert mode(path) == 0o400
    assert not host.file(str(path), b"one", ME, 0o400)
    assert host.changes == [f"{path} written"]
    path.chmod(0o644)
    host.file(str(path), b"one", ME, 0o400)
    assert mode(path) == 0o400
    assert len(host.changes) == 2
    assert os.listdir(path.parent) == ["secret"], "no temporary file stays"


def test_check_mode_records_changes_and_makes_none(tmp_path: Path) -> None:
    path = tmp_path / "made" / "file"
    host = Host(check=True)
    host.folder(str(path.parent), ME, 0o700)
    assert host.file(str(path), b"one", "nobody-of-this-name", 0o400)
    assert host.changes == [f"{path.parent} made", f"{path} written"]
    assert not path.parent.exists()


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(SlurmError, match="There is no user or group nobody-of-this-name on this host"):
        write(str(path), b"new", "nobody-of-this-name", 0o600)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(SlurmError, match=r"could not be written \(.*\): make room or correct the folder's mode\."):
        write("/proc/nvlink/file", b"new", ME, 0o600)


@pytest.mark.parametrize("length", [0, 31, 1025])
def test_a_key_of_another_length_is_refused_and_not_shown(length: int) -> None:
    with pytest.raises(SlurmError, match=f"has {length} bytes, not 32 to 1024: check /etc/munge/munge.key"):
        keys.install(Host(check=True), "munge", b"k" * length)


def test_a_group_may_be_given_with_its_owner() -> None:
    assert ids("root:root") == (0, 0)
    with pytest.raises(SlurmError, match="no user or group root:nobody-of-this-name"):
        ids("root:nobody-of-this-name")


def test_all_calls_of_the_package_manager_share_one_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the end that the controller gives a tray lies above it."""
    for name, script in (
        ("dpkg-query", "exit 1"),
        ("systemctl", "exit 0"),
        ("apt-get", f"echo $$ >> {tmp_path}/calls; exec sleep 60"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(host_module, "INSTALL_SECONDS", 2.0)
    began = time.monotonic()
    with pytest.raises(SlurmError, match="apt-get could not install slurmd"):
        Host(check=False).install(["slurmd"])
    assert len((tmp_path / "calls").read_text().split()) == 3, "the lists are refreshed in between"
    assert time.monotonic() - began < 6
