# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The day-two pages on two racks of 18 trays; the second rack has a dead tray and a tray whose NVML hangs.

The commands are those of the pages, with other names. The tests run in sequence on one lab, and each can run alone. The
driver test repairs the second rack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .test_day_two import ENTRY, PAUSE, Site, changed, driver, killed, running_site, texts

pytestmark = [pytest.mark.lab, pytest.mark.two_racks]

NEW, HANGING, DEAD = "r01t18", "r02t01", "r02t18"
RACK_1 = [f"r01t{tray:02d}" for tray in range(1, 19)]
RACK_2 = [f"r02t{tray:02d}" for tray in range(1, 19)]


def commands(page: str) -> list[str]:
    """The commands of a page, applied to a tray of the first rack or to the whole rack."""
    return [text.replace("trays=r01b", "trays=r01").replace("r01t04", NEW) for text in texts(page)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory, "two-racks.yml", NEW, ANSIBLE_FORKS="20", ANSIBLE_TIMEOUT="5") as running:
        # The lab has nine times the trays of the other labs, on the same machine.
        running.seconds = 3600
        running.type(texts(ENTRY)[0])
        running.type("git add -A && git commit -qm 'The fabric'")
        running.racks.stop(DEAD)
        running.racks.set(HANGING, "nvml=hang", "smi=hang")
        yield running


@pytest.fixture
def whole(site: Site) -> Site:
    """The site with all trays of the first rack; the first test that runs adds the last tray."""
    if NEW not in site.fabric["trays"]:
        site.start(NEW)
        site.type(commands("docs/day-two/tray.md")[1])
    return site


def test_a_faulty_rack_does_not_block_the_other(site: Site) -> None:
    site.racks.exec("r01t01", "systemctl", "stop", "nvidia-imex")
    output = site.fails(texts(ENTRY)[2])
    assert site.imex("r01t01") == "active"
    assert site.unfinished("imex") == {"r02a": "failed", "r02b": "skipped"}
    assert re.search(rf"r02a \(failed: {HANGING}, .*r02b \(skipped: {DEAD}, it was unreachable", output)


def test_a_limit_to_one_rack_queries_and_changes_no_other(site: Site) -> None:
    site.racks.exec("r02t02", "systemctl", "stop", "nvidia-imex")
    before = {host: shown for host, shown in site.snapshot().items() if host in RACK_2}
    output = site.fails(f"{texts(ENTRY)[2]} --limit nvlink_clique_r01,slurm_controller,localhost")
    # The unfinished cliques of an earlier run are still reported.
    assert "Rollout imex: 2 cliques unfinished: r02a" in output
    hosts = dict(re.findall(r"(\S+) : ok=\d+ changed=(\d+)", output.partition("PLAY RECAP")[2]))
    assert hosts.keys() == {*RACK_1[:17], "ctl", "localhost"}
    assert set(hosts.values()) == {"0"}
    assert {host: shown for host, shown in site.snapshot().items() if host in RACK_2} == before
    site.racks.exec("r02t02", "systemctl", "start", "nvidia-imex")


def test_a_tray_is_added_and_replaced(site: Site) -> None:
    _check, resume, drain, resume_again, _show = commands("docs/day-two/tray.md")
    site.start(NEW)
    site.type(resume)
    assert (site.clique(NEW), site.imex(NEW), NEW in site.drained()) == ("r01", "active", False)
    assert {site.imex(tray) for tray in RACK_1} == {"active"}
    assert changed(site.type(resume)) == 0
    site.type(drain)
    assert site.drained()[NEW] == "nvlink: replaced"
    site.replace(NEW)
    assert "replaced" in site.type(resume_again).stdout
    assert (site.clique(NEW), site.imex(NEW), NEW in site.drained()) == ("r01", "active", False)


def test_a_rack_is_removed_and_returned(whole: Site) -> None:
    site = whole
    drain, discover, resume = commands("docs/day-two/rack.md")
    site.type(drain)
    before = (site.folder / "fabric.json").read_bytes()
    for tray in RACK_1:
        site.racks.stop(tray)
    site.type(discover)
    assert (site.folder / "fabric.json").read_bytes() == before
    assert "ran" in site.racks.exec("ctl", "srun", "-N2", "-w", "r02t[02-03]", "echo", "ran").stdout
    site.start(*RACK_1)
    site.type(resume)
    assert not set(RACK_1) & site.drained().keys()
    assert {site.imex(tray) for tray in RACK_1} == {"active"}
    assert site.unfinished("resume") == {}


def test_a_driver_rollout_skips_faulty_cliques_survives_a_kill_and_ends_after_the_repair(whole: Site) -> None:
    site = whole
    rollout, resume = (f"{command} -e rollout_fabric_wait=10" for command in commands("docs/day-two/driver.md"))
    site.hook(PAUSE)
    killed(site, rollout, until=lambda: driver(site, "r01t17") == "595.58.03", seconds=1800)
    assert site.unfinished("driver") == {"r01": "started", "r02a": "pending", "r02b": "pending"}
    site.hook()
    output = site.fails(resume)
    assert site.unfinished("driver") == {"r02a": "failed", "r02b": "skipped"}
    assert f"r02a (failed: {HANGING}, " in output
    assert set(site.drained()) - {DEAD} == {HANGING}
    assert {driver(site, tray) for tray in (*RACK_1, *RACK_2[1:17])} == {"595.58.03"}
    site.start(DEAD)
    site.racks.set(HANGING, "nvml=ok", "smi=ok")
    site.type(resume)
    assert (site.unfinished("driver"), site.drained()) == ({}, {})
    assert {driver(site, tray) for tray in (HANGING, DEAD)} == {"595.58.03"}
    assert changed(site.type(rollout)) == 0
    site.type(texts(ENTRY)[2])
    assert changed(site.type(texts(ENTRY)[2])) == 0


def test_a_rack_is_split_in_two_and_joined_again(whole: Site) -> None:
    site = whole
    drain, discover, accept, commit, resume = commands("docs/day-two/partition.md")
    for number, cliques in ((2, {"r01", "r01a"}), (32766, {"r01"})):
        site.type(drain)
        for tray in RACK_1[9:]:
            site.racks.set(tray, f"clique={number}")
        site.reported = ""
        for command in (discover, accept, commit, resume):
            site.type(command)
        assert not set(RACK_1) & site.drained().keys()
        assert {site.clique(tray) for tray in RACK_1} == cliques
        assert {site.imex(tray) for tray in RACK_1} == {"active"}
