# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packages and keys of a host of Slurm."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import host as host_module
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import keys
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.host import Host


@pytest.mark.parametrize("length", [0, 31, 1025])
def test_a_key_of_another_length_is_refused_and_not_shown(length: int) -> None:
    with pytest.raises(SlurmError, match=f"has {length} bytes, not 32 to 1024: check /etc/munge/munge.key"):
        keys.install(Host(check=True), "munge", b"k" * length)


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
