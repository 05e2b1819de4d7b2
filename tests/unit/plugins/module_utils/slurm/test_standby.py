# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup slurmctld: the files that it gets, and that a failure restores those that it had."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import standby
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError


def started(host: Host, folder: Path, **files: str) -> dict[str, Any]:
    given = {name.replace("_conf", ".conf"): base64.b64encode(text.encode()).decode() for name, text in files.items()}
    return standby.start_backup(host, {"files": given, "conf_dir": str(folder), "log": str(folder / "log")})


def test_it_gets_the_files_that_slurmctld_reads_and_no_secret(tmp_path: Path) -> None:
    texts = {
        "slurm.conf": "Include nvlink_nodes.conf\ninclude site.conf\nInclude /opt/far.conf\nInclude gone.conf\n",
        "site.conf": "Include deeper.conf\nInclude slurm.conf\n",
        "deeper.conf": "A=b\n",
        "nvlink_nodes.conf": "NodeName=a\n",
        "topology.yaml": "[]\n",
        "job_submit.lua": "\xe9\n",
        "slurmdbd.conf": "StoragePass=secret\n",
        "slurm.key": "secret",
        "slurm.conf.previous": "old\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    found = standby.gather(str(tmp_path))
    assert set(found) == set(texts) - {"slurmdbd.conf", "slurm.key", "slurm.conf.previous"}
    assert found["job_submit.lua"] == b"\xe9\n", "byte by byte"


def test_nothing_is_started_where_the_first_controller_has_no_slurm(tmp_path: Path) -> None:
    assert standby.gather(str(tmp_path)) == {}
    with pytest.raises(SlurmError, match=r"The first controller has no slurm\.conf yet: bring it up first\."):
        started(Host(check=False), tmp_path)


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "deeper/escaped", "..", ".", "", "a\0b"])
def test_a_file_of_another_folder_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    with pytest.raises(SlurmError, match=r"^The first controller returned .*, which is no file name: .*written\.$"):
        started(Host(check=False), folder, slurm_conf="ClusterName=x\n", **{name: "x\n"})
    assert [path.name for path in tmp_path.rglob("*")] == ["slurm"]


OLD = {"slurm.conf": "ClusterName=x\n", "topology.conf": "BlockName=a Nodes=a\n", "plugstack.conf": "same\n"}


@pytest.mark.parametrize("check", [True, False])
def test_files_stay_in_check_mode_and_where_its_slurmctld_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    for name, text in OLD.items():
        (tmp_path / name).write_text(text)
    host = Host(check)

    def refuse(*_arguments: object, **_options: object) -> bool:
        raise SlurmError("slurmctld.service does not start (x): correct that first.")

    # systemd is not under test here, the files are.
    monkeypatch.setattr(host, "run", (lambda _unit: False) if check else refuse)
    given = {"slurm_conf": "ClusterName=y\n", "mpi_conf": "new\n", "plugstack_conf": "same\n"}
    if check:
        shown = started(host, tmp_path, **given)["diff"]
        assert [(row["after_header"], row["after"]) for row in shown] == [
            ("mpi.conf", "new\n"),
            ("topology.conf", ""),
            ("slurm.conf", "ClusterName=y\n"),
        ]
    else:
        with pytest.raises(SlurmError, match=r"does not start .* the old files were restored"):
            started(host, tmp_path, **given)
    assert host.changes == ["write mpi.conf", "remove topology.conf", "change slurm.conf"]
    assert {
        name: (tmp_path / name).read_text() for name in os.listdir(tmp_path) if not name.endswith(".previous")
    } == OLD
