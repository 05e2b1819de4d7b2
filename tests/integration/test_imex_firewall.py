# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real firewalls on trays: ufw on one, firewalld on the other, and IMEX between the two."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import firewall

from .conftest import CHECKOUT, lab_command, running_lab
from .test_imex_role import Racks, wait_for

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import firewalls, imex

# Their packages come from Debian, so not in every run.
pytestmark = [pytest.mark.lab, pytest.mark.long]

UFW, FIREWALLD = TRAYS = ["r01t01", "r01t02"]
INSTALL = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && apt-get -qq -y install"
ALLOWED = "ufw status | grep -o '^[0-9]*/tcp *ALLOW' | cut -d/ -f1 | tr '\\n' ' '"


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    """Two trays whose firewalls allow ssh alone."""
    folder = tmp_path_factory.mktemp("walled")
    scenario = {"suite": "forky", "controller": False, "slurm": False, "racks": [{"trays": 2}]}
    (folder / "two.yml").write_text(yaml.safe_dump(scenario))
    with running_lab(folder, folder / "two.yml") as running:
        for packed in (imex.packages(), firewalls.ensure(scenario["suite"])):
            lab_command("packages", "--name", running.name, str(packed))
        racks = Racks(running, folder)
        racks.cliques({"r01": TRAYS})
        racks.on([UFW], f"{INSTALL} ufw && ufw allow 22/tcp && ufw --force enable")
        racks.on([FIREWALLD], f"{INSTALL} firewalld && firewall-cmd --state")
        yield racks


def test_closed_ports_are_reported_then_opened_then_closed(walled: Racks) -> None:
    alone = walled.role(trays=TRAYS, imex_manage_firewall=False, imex_ready_wait=8)
    assert alone.failed, alone.text
    assert "r01t01-r01t02 are not connected, though all are ready; open port 50000" in " ".join(alone.text.split())

    # A port that the site opened stays open.
    walled.on([UFW], "ufw allow 50005/tcp")
    preview = walled.role("--check", "--diff", trays=TRAYS)
    assert preview.changed, preview.text
    assert walled.read(UFW, ALLOWED) == "22 50005"
    play = walled.role(trays=TRAYS)
    assert play.rc == 0, play.text
    wait_for(lambda: walled.is_up(TRAYS), "they are connected")
    assert walled.read(UFW, f"cat {firewall.OPENED}") == '{"ufw": [50000, 50006]}'
    assert walled.role("--check", trays=TRAYS).changed == 0
    # The ports stay open when the firewalls restart.
    walled.on([UFW], "ufw reload")
    walled.on([FIREWALLD], "firewall-cmd --reload")
    walled.on(TRAYS, "systemctl restart nvidia-imex")
    wait_for(lambda: walled.is_up(TRAYS), "they are connected again")

    # Another port instead of the old one.
    moved = walled.role(trays=TRAYS, imex_config_extra={"SERVER_PORT": 50100})
    assert moved.rc == 0, moved.text
    assert walled.read(UFW, ALLOWED).split() == ["22", "50005", "50006", "50100"]
    assert walled.read(FIREWALLD, "firewall-cmd --list-ports") == "50005/tcp 50006/tcp 50100/tcp"

    off = walled.role(trays=TRAYS, imex_owner="none")
    assert off.rc == 0, off.text
    assert walled.read(UFW, ALLOWED).split() == ["22", "50005"]
    for where in ("", "--permanent"):
        assert walled.read(FIREWALLD, f"firewall-cmd --list-ports {where}") == ""
    assert walled.on(TRAYS, f"ls {firewall.OPENED} 2>/dev/null || true") == ["", ""]
