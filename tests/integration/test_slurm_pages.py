# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the documented commands of Slurm's bring-up on empty hosts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from . import pages
from .conftest import running_lab
from .test_slurm_role import LAB, UNCONSTRAINED

sys.path.insert(0, str(pages.CHECKOUT / "tests" / "lab"))
from nvlab import imex, packages, paths

pytestmark = [pytest.mark.lab, pytest.mark.long]

ALICE = {"name": "alice", "account": "research"}
TIERS = [
    {"name": "nvl72", "all": True, "default": True, "max_time": "2-00:00:00"},
    {"name": "gold", "blocks": ["r01a"], "qos": {"priority": 1000}, "users": [ALICE]},
]
SITE = {**LAB, **UNCONSTRAINED, "slurm_cluster_name": "nvl", "slurm_tiers": TIERS, "imex_owner": "job"}


def test_the_documented_steps_lead_from_empty_hosts_to_users_jobs(tmp_path: Path) -> None:
    with running_lab(tmp_path, "empty.yml") as racks:
        packages.add(paths.state_of(racks.name), imex.packages())
        (tmp_path / "hosts.yml").write_text(racks.inventory.read_text())
        (tmp_path / "cluster.nvlink.yml").write_text(pages.files("docs/quick-start.md")["cluster.nvlink.yml"])
        (tmp_path / "group_vars").mkdir()
        # The page's own, but with the lab's names and without what its containers cannot do.
        given = {**SITE, "fabric_file": str(tmp_path / "fabric.json")}
        (tmp_path / "group_vars" / "all.yml").write_text(json.dumps(given))
        shell = pages.Shell(tmp_path)
        for page in ("docs/slurm-bringup.md", "roles/slurm/README.md", "docs/slurm-tiers.md"):
            shell.follow(page, keep=pages.files(page))
        shows = "echo $(hostname) $(paste -sd, /etc/nvidia-imex/nodes_config.cfg) $(nvidia-imex-ctl -q)"
        job = ("srun", "--exclusive", "--nodelist=r01t01,r01t02", "sh", "-c", shows)
        ran = racks.exec("ctl", "timeout", "90", *job).stdout.splitlines()
        assert sorted(ran) == [f"{tray} 198.51.100.11,198.51.100.12 READY" for tray in ("r01t01", "r01t02")]
