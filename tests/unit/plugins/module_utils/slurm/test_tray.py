# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The key and the log rotation of a host of Slurm."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import keys, tray
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import programs


@pytest.mark.parametrize("length", [0, 31, 1025])
def test_a_key_of_another_length_is_refused_and_not_shown(length: int) -> None:
    with pytest.raises(SlurmError, match=f"has {length} bytes, not 32 to 1024: check /etc/munge/munge.key"):
        keys.install(Host(check=True), "munge", b"k" * length)


def test_a_log_gets_one_rule_for_its_rotation(tmp_path: Path) -> None:
    """logrotate fails on two rules for one log."""
    host = Host(check=False)
    log = "/var/log/slurm/slurmd.log"
    tray.rotate(host, log, "rule", str(tmp_path / "missing"))
    (tmp_path / "slurmd").write_text(f"{log} {{\n}}\n")
    tray.rotate(host, log, "rule", str(tmp_path))
    assert host.changes == []
    (tmp_path / "slurmd").write_text("/var/log/other.log {\n}\n")
    tray.rotate(host, log, "rule", str(tmp_path))
    tray.rotate(host, log, "rule", str(tmp_path))
    assert host.changes == [f"write {tmp_path}/slurm-nvlink"]
    assert (tmp_path / "slurm-nvlink").read_text() == "rule"


CONF, OPTIONS = "ClusterName=other\n", f"{tray.MARK}: slurmd fetches its configuration\n"
# The package slurm of EPEL has an example.
DIFFERS = (1, "echo 'S.5....T.  c /etc/slurm/cgroup.conf'")


@pytest.mark.parametrize(
    ("conf", "options", "rpm", "refused"),
    [
        (None, None, None, False),
        (CONF, None, None, True),
        (CONF, OPTIONS, None, False),
        (f"{tray.MARK} from the fabric file\n", None, None, False),
        (CONF, None, DIFFERS, False),
        (CONF, None, (1, 'echo "S.5....T.  c $4"'), True),
        (CONF, None, (1, "echo 'error: cannot open Packages database' >&2"), True),
    ],
)
def test_a_slurmd_of_another_slurm_is_left_as_it_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    conf: str | None,
    options: str | None,
    rpm: tuple[int, str] | None,
    refused: bool,
) -> None:
    paths = [tmp_path / "slurm.conf", tmp_path / "slurmd"]
    for path, text in zip(paths, (conf, options), strict=True):
        if text is not None:
            path.write_text(text)
    if rpm is not None:
        programs(tmp_path, rpm=f"{rpm[1]}\nexit {rpm[0]}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    message = f"^{paths[0]} of this tray is of a Slurm that slurm_bringup has not "
    with pytest.raises(SlurmError, match=message) if refused else contextlib.nullcontext():
        tray.check_owner(str(paths[1]), str(paths[0]))
