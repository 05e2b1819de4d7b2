# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where slurmd has its slurm.conf, by what /proc shows of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import slurmd

ROOT, USER = "Name:\tslurmd\nUid:\t0\t0\t0\t0\n", "Name:\tslurmd\nUid:\t1000\t1000\t1000\t1000\n"
FILES = ("sched/alps/slurm.conf", "run/slurm.conf", "opt/slurm/etc/slurm.conf", "etc/slurm.conf")


def process(
    proc: Path, arguments: str, environment: str = "", status: str = ROOT, namespace: str = "mnt:[1]", pid: str = "812"
) -> None:
    folder = proc / pid
    (folder / "ns").mkdir(parents=True)
    (folder / "ns/mnt").symlink_to(namespace)
    (folder / "exe").symlink_to(proc / "opt/slurm/sbin/slurmd")
    (folder / "cwd").symlink_to(proc / "sched")
    texts = {"comm": "slurmd\n", "status": status, "cmdline": arguments, "environ": environment}
    for name, text in texts.items():
        (folder / name).write_text(text.format(here=proc).replace(" ", "\0") + "\0" * (name in ("cmdline", "environ")))
    for other in ("self", "99"):
        (proc / other / "ns").mkdir(parents=True, exist_ok=True)
    (proc / "self/ns/mnt").symlink_to("mnt:[1]")


@pytest.mark.parametrize(
    ("arguments", "environment", "more", "found"),
    [
        ("slurmd -D -f {here}/sched/alps/slurm.conf -N x", "", {}, FILES[0]),
        ("slurmd -Df{here}/sched/alps/slurm.conf", "SLURM_CONF={here}/etc/slurm.conf", {}, FILES[0]),
        ("slurmd -f alps/slurm.conf", "", {}, "812/cwd/alps/slurm.conf"),
        ("slurmd -D --systemd", "LANG=C SLURM_CONF={here}/sched/alps/slurm.conf", {}, FILES[0]),
        # A file of before in the usual place is not read by a configless slurmd.
        ("slurmd --systemd --conf-server ctl:6817", "", {}, FILES[1]),
        ("slurmd --conf-server=ctl -f {here}/etc/slurm.conf", "", {}, FILES[1]),
        ("slurmd --systemd", "SLURMD_RECONF_CONF_CACHE=/var/spool/slurmd/conf-cache", {}, FILES[1]),
        # By default, the folder with which it was built.
        ("slurmd --conf Gres=gpu:4", "", {}, FILES[2]),
        ("slurmd -f {here}/gone/slurm.conf", "", {}, None),
        # A user, who may run squeue by a file of their own, and a container.
        ("slurmd -f {here}/sched/alps/slurm.conf", "", {"status": USER}, FILES[3]),
        ("slurmd -f {here}/sched/alps/slurm.conf", "", {"namespace": "mnt:[2]"}, FILES[3]),
    ],
)
def test_the_slurm_conf_is_that_of_the_slurmd_that_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    environment: str,
    more: dict[str, str],
    found: str | None,
) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(slurmd, "FETCHED", str(tmp_path / FILES[1]))
    monkeypatch.setattr(slurmd, "PLACES", (str(tmp_path / FILES[3]), str(tmp_path / FILES[1])))
    process(tmp_path, arguments, environment, **more)
    assert slurmd.find(str(tmp_path)).conf == (found and str(tmp_path / found))
