# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify on the lab: no failure where all layers agree, and five planted faults are five failures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from .verify_site import (
    CHANNEL,
    RELOAD,
    RESTART,
    TRAYS,
    Site,
    assert_exactly_these_failures,
    gpus,
    in_slurm,
    on_tray,
    running_site,
)

pytestmark = pytest.mark.lab

FAULTS = [
    gpus("a lost GPU", "hardware", "gpu_lost", "r01t01", "gpu1.lost=true", "gpu1.lost=false"),
    on_tray(
        "a missing channel", "channels", "imex_channel_missing", "r01t02", f"rm {CHANNEL}", f"mknod {CHANNEL} c 4 0"
    ),
    on_tray("a stopped daemon", "imex", "imex_unit_down", "r01t05", "systemctl stop nvidia-imex", RESTART),
    in_slurm(
        "a tray in the wrong block",
        "slurm_blocks_differ",
        ("r01t03", "r01t06"),
        f"sed -i 's/r01t.01-03./r01t[01-02,06]/; s/r01t.04-06./r01t[03-05]/' /etc/slurm/topology.yaml && {RELOAD}",
    ),
    in_slurm(
        "a QoS edited by hand",
        "slurm_tier_differs",
        (),
        "sacctmgr -i modify qos gold set Priority=5",
        "sacctmgr -i modify qos gold set Priority=1000",
        "tiers",
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("verify"), "forky") as made:
        yield made


def test_no_failure_when_all_layers_agree(site: Site) -> None:
    verdict = site.verify()
    assert (verdict["ok"], verdict["failures"]) == (True, [])
    assert (verdict["trays"], verdict["queried"], verdict["cliques"]) == (6, 6, 2)
    skipped = {layer for layer, state in verdict["layers"].items() if state != "checked"}
    assert skipped == {"kubernetes"}
    suites = ElementTree.parse(site.junit_file).getroot()
    assert (suites.get("failures"), suites.get("skipped")) == ("0", "1")
    assert sorted(suite.get("name", "") for suite in suites) == sorted(verdict["layers"])
    # One task on a tray for all layers. On the controller: the names of the run, validation of the arguments, check of
    # the fabric file, Slurm's blocks, its tiers, the verdict, its text; the task fail is skipped.
    tasks = re.findall(r"(?m)^(\S+) +: ok=(\d+) .* skipped=(\d+)", site.output)
    assert tasks == [("localhost", "7", "1"), *((tray, "1", "0") for tray in TRAYS)]


def test_five_faults_at_once_are_five_failures(site: Site) -> None:
    verdict = assert_exactly_these_failures(site, FAULTS)
    cases = {(row["layer"], row["clique"]) for row in verdict["failures"]}
    assert ElementTree.parse(site.junit_file).getroot().get("failures") == str(len(cases))
