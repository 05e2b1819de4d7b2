# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove the topology's and the tiers' files next to slurm.conf, and restore all of them on failure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf_folder, daemon, files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import (
    SCRIPT_HEADER,
    SCRIPTS,
    TIERS_HEADER,
    TIERS_NAME,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import surveying, transact
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import changes, planning, topology_files

TOPOLOGY, TIERS = "topology", "tiers"
SITE = "ClusterName=lab\nNodeName=r01t[01-02]\n"
BLOCKS = Topology("nvlink", blocks=(Block("r01", ("r01t01", "r01t02")),), block_sizes=(2,))
OF_TIERS = {"nvlink_partitions.conf", "job_submit.lua", "nvlink_segments.lua", "nvlink_partitions.conf.previous"}


class Slurmctld:
    """A stand-in whose reconfigure fails ``failures`` times; ``shows`` is what it runs whatever its files are."""

    timeout = 1.0

    def __init__(self, failures: int = 0, shows: tuple[str, ...] = ()) -> None:
        self.failures, self.reconfigured, self.shows = failures, 0, shows

    def reconfigure(self) -> Any:
        self.reconfigured += 1
        failed = self.reconfigured <= self.failures
        return child.Result(int(failed), "", "fatal: no topology")

    def config(self) -> dict[str, str]:
        return {}

    def version(self) -> tuple[int, int, int]:
        return (26, 5, 5)

    def topologies(self, _version: object) -> list[Topology]:
        return [Topology(name) for name in self.shows]

    def shown(self) -> list[object]:
        return []

    def answers(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "CALM", 0.01)
    monkeypatch.setattr(daemon, "RUNNING_SECONDS", 0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of slurm.conf with everything that slurm_topology and slurm_tiers write."""
    texts = {
        "slurm.conf": f"{SITE}Include nvlink_topology.conf\nInclude nvlink_partitions.conf\n",
        "slurm.conf.previous": SITE,
        "topology.yaml": topology_files.render([BLOCKS], files.YAML),
        "topology.yaml.previous": "older\n",
        "nvlink_topology.conf": f"{files.HEADER}\nTopologyPlugin=topology/block\n",
        "nvlink_partitions.conf": f"{TIERS_HEADER}\n",
        "nvlink_partitions.conf.previous": "older\n",
        "job_submit.lua": f"{SCRIPT_HEADER}\n",
        "nvlink_segments.lua": f"{SCRIPT_HEADER}\n",
        "gres.conf": "site\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "job_submit.lua").chmod(0o640)
    return tmp_path


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    return {path.name: (path.read_text(), path.stat().st_mode) for path in folder.iterdir()}


def change(folder: Path, part: str) -> dict[str, Any]:
    survey = {"texts": surveying.texts(str(folder), (*planning.FILES, TIERS_NAME, *SCRIPTS)), "checksums": {}}
    made = planning.plan_removal(survey, "topology.yaml", "nvlink")
    if part == TIERS:
        made.update(changes.removed_files(survey["texts"], (TIERS_NAME, *SCRIPTS)))
    return {**made, "override": ""}


def remove(folder: Path, part: str, slurm: Any = None) -> None:
    made = change(folder, part)
    files = transact.writes(str(folder), made)
    transact.apply(slurm or Slurmctld(), str(folder), made, files, conf_folder.checksums(str(folder)))


def left(folder: Path, part: str) -> list[str]:
    return list(transact.writes(str(folder), change(folder, part)))


def test_each_part_is_removed_alone_and_only_once(folder: Path) -> None:
    everything = set(os.listdir(folder))
    remove(folder, TIERS)
    assert set(os.listdir(folder)) == everything - OF_TIERS - {"slurm.conf.previous"}
    assert (folder / "slurm.conf").read_text() == f"{SITE}Include nvlink_topology.conf\n"
    assert left(folder, TIERS) == []
    remove(folder, TOPOLOGY)
    assert set(os.listdir(folder)) == {"slurm.conf", "gres.conf"}
    assert (folder / "slurm.conf").read_text() == SITE
    for part in (TOPOLOGY, TIERS):
        assert left(folder, part) == []


def test_all_files_are_restored_where_the_topology_still_runs(folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(
        SlurmError, match="still runs the removed topology; the old files were restored, and slurmctld r"
    ):
        remove(folder, TOPOLOGY, Slurmctld(shows=("nvlink",)))
    assert contents(folder) == before
    remove(folder, TOPOLOGY, Slurmctld(shows=("site",)))
    assert not (folder / "topology.yaml").exists()


def test_topologies_of_the_site_stay_and_lose_the_header(folder: Path) -> None:
    tree = Topology("site", "tree", False, body={"switches": [{"switch": "s1", "nodes": "r01t[01-02]"}]})
    (folder / "topology.yaml").write_text(topology_files.render([BLOCKS, tree], files.YAML))
    remove(folder, TOPOLOGY)
    text = (folder / "topology.yaml").read_text()
    assert ([known.name for known in topology_files.parse_yaml(text)], files.HEADER in text) == (["site"], False)
    assert left(folder, TOPOLOGY) == []


def test_files_of_the_site_are_never_removed(folder: Path) -> None:
    (folder / "topology.yaml").write_text("- topology: nvlink\n  flat: true\n")
    (folder / "job_submit.lua").write_text('dofile("/etc/slurm/nvlink_segments.lua").submit(job_desc, part_list)\n')
    for part in (TOPOLOGY, TIERS):
        remove(folder, part, Slurmctld(shows=("nvlink",)))
    left = {"slurm.conf", "gres.conf", "topology.yaml", "job_submit.lua", "nvlink_segments.lua"}
    assert set(os.listdir(folder)) == left, "the site's script still calls the policy"


def test_a_link_to_slurm_conf_stays_a_link(folder: Path) -> None:
    real = folder / "shared"
    real.mkdir()
    (folder / "slurm.conf").rename(real / "slurm.conf")
    (folder / "slurm.conf").symlink_to("shared/slurm.conf")
    text = (real / "slurm.conf").read_text()
    with pytest.raises(SlurmError):
        remove(folder, TIERS, Slurmctld(failures=1))
    assert (real / "slurm.conf").read_text() == text
    remove(folder, TIERS)
    assert ((folder / "slurm.conf").is_symlink(), os.listdir(real)) == (True, ["slurm.conf"])
    assert (real / "slurm.conf").read_text() == f"{SITE}Include nvlink_topology.conf\n"
