# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup slurmctld: the files that it gets, and that it never starts without the first one's state."""

from __future__ import annotations

import base64
import os
import pwd
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import standby
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError

ME = pwd.getpwuid(os.geteuid()).pw_name


def write_state_id(folder: Path, state_id: str) -> None:
    (folder / standby.ID_FILE).write_text(f"{state_id}\n")


def state_id(folder: Path) -> str:
    return base64.b64encode((folder / standby.ID_FILE).read_bytes()).decode()


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


def test_nothing_is_gathered_where_there_is_no_slurm(tmp_path: Path) -> None:
    assert standby.gather(str(tmp_path)) == {}
    with pytest.raises(SlurmError, match=r"The first controller has no slurm\.conf yet: bring it up first\."):
        standby.bring_up(Host(check=False), {}, str(tmp_path), str(tmp_path / "log"))


def test_only_the_first_controllers_state_folder_is_accepted(tmp_path: Path) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    for folder in (first, other):
        folder.mkdir()
    host = Host(check=False)
    write_state_id(first, "1" * 32)
    standby.check_state(host, str(first), state_id(first), ME)
    refused = "is not the same folder as on the first controller, so a takeover would cancel all jobs"
    for here in (other, tmp_path / "missing"):
        with pytest.raises(SlurmError, match=refused):
            standby.check_state(host, str(here), state_id(first), ME)
    write_state_id(other, "2" * 32)
    with pytest.raises(SlurmError, match=refused):
        standby.check_state(host, str(other), state_id(first), ME)
    with pytest.raises(SlurmError, match=refused):
        standby.check_state(host, str(other), "", ME)
    standby.check_state(Host(check=True), str(other), "", ME)


def test_slurm_user_must_be_the_same_on_all_controllers(tmp_path: Path) -> None:
    host = Host(check=False)
    write_state_id(tmp_path, "1" * 32)
    other = next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid != os.geteuid())
    with pytest.raises(SlurmError, match=f"belongs to UID {os.geteuid()} and {other} has UID"):
        standby.check_state(host, str(tmp_path), state_id(tmp_path), other)


def test_check_mode_lists_written_changed_and_removed_files(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    (tmp_path / "topology.conf").write_text("BlockName=a Nodes=a\n")
    (tmp_path / "plugstack.conf").write_text("same\n")
    host = Host(check=True)
    given = {"slurm.conf": b"ClusterName=y\n", "topology.yaml": b"[]\n", "plugstack.conf": b"same\n"}
    changed = standby.bring_up(host, given, str(tmp_path), str(tmp_path / "log"))
    assert changed == ["slurm.conf", "topology.conf", "topology.yaml"]
    assert host.changes[:3] == ["change slurm.conf", "remove topology.conf", "write topology.yaml"]
    assert (tmp_path / "slurm.conf").read_text() == "ClusterName=x\n"


def test_files_are_restored_where_its_slurmctld_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    (tmp_path / "topology.conf").write_text("BlockName=a Nodes=a\n")
    host = Host(check=False)

    def refuse(*_arguments: object, **_options: object) -> bool:
        raise SlurmError("slurmctld.service does not start (x): correct that first.")

    # systemd is not under test here, the files are.
    monkeypatch.setattr(host, "run", refuse)
    given = {"slurm.conf": b"ClusterName=y\n", "topology.yaml": b"[]\n"}
    with pytest.raises(SlurmError, match="does not start"):
        standby.bring_up(host, given, str(tmp_path), str(tmp_path / "log"))
    left = {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path) if not name.endswith(".previous")}
    assert left == {"slurm.conf": "ClusterName=x\n", "topology.conf": "BlockName=a Nodes=a\n"}
