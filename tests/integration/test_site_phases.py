# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook site on new hosts: it installs Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import running_lab
from .test_slurm_role import Site, _remove_cgroups, unchanged

pytestmark = [pytest.mark.lab, pytest.mark.long]


def test_it_installs_slurm_on_empty_hosts(tmp_path: Path) -> None:
    with running_lab(tmp_path, "empty.yml") as racks:
        site = Site(racks, tmp_path, "trixie", "munge")
        site.set(site_slurm="managed", imex_owner="none")
        site.prepare("r01t01", "r01t02", "r01t03", "r01t04")
        phases = ("-e", json.dumps({"site_phases": ["discover", "slurm", "verify", "report"]}))
        site.playbook("site", *phases, "--check", "--diff")
        assert not site.fabric_file.exists()
        assert "slurm" not in site.on("r01t01", "dpkg-query -W; ls /etc").stdout

        # The first run writes the fabric file, which the inventory could not read before.
        first = site.playbook("site", *phases, check=False)
        assert "add -i cluster.nvlink.yml, and run this again" in first.stdout
        assert site.fabric_file.exists()
        site.playbook("site", *phases)
        site.wait_for(dict.fromkeys(json.loads(site.fabric_file.read_text())["trays"], "idle"))
        assert "BlockName=r01a" in site.ctl("scontrol show topology")
        assert site.ctl("timeout 60 srun --nodes=2 --time=1 hostname").split()
        assert unchanged(site.playbook("site", *phases))
    _remove_cgroups(racks.name)
