# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The spare of a block takes over by Slurm's expedited requeue and the policy replace, on slurmctld 26.05.

One block of four trays with a job on three of them, and no other block. The tests run in order in one lab; each prints
its seconds for docs/imex-jobs.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import state

from .conftest import SCENARIOS, lab_command, running_lab
from .test_imex_job import ADDRESSES, TRAYS, Site, imex
from .test_imex_role import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

# The later line of a key counts.
CONF = ["SlurmctldParameters=enable_configless,enable_expedited_requeue", "SlurmdTimeout=20"]
TOPOLOGY = """\
- topology: racks
  cluster_default: true
  block:
    block_sizes: [4]
    blocks:
      - block: r01
        nodes: r01t[01-04]
"""
WAIT = 20
JOB = "-N3 --segment=3 --requeue=expedite"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("takeover")
    scenario = yaml.safe_load((SCENARIOS / "jobs.yml").read_text())
    scenario["suite"] = "forky"
    scenario["slurm"]["conf"] += CONF
    scenario["slurm"]["files"] = {"topology.yaml": TOPOLOGY}
    scenario["racks"] = [{"name": "r01", "trays": len(TRAYS)}]
    (folder / "takeover.yml").write_text(yaml.safe_dump(scenario))
    with running_lab(folder, folder / "takeover.yml") as running:
        lab_command("packages", "--name", running.name, str(imex.packages()))
        made = Site(running, folder)
        made.roles.cliques({"r01": TRAYS})
        # The policy is the default.
        play = made.roles.role(imex_owner="job", imex_job_wait=WAIT, imex_job_stop_wait=3)
        assert play.rc == 0, play.text
        yield made


def out_of_service(site: Site) -> list[str]:
    """Trays that run no job, in order."""
    return sorted(site.ctl("sinfo -hN -t drain,drained,draining,down,fail -o %N").split())


def trays_of(site: Site, number: str) -> list[str]:
    running = site.ctl(f"squeue -h -j {number} -o '%T %N' | grep ^RUNNING")
    return site.ctl(f"scontrol show hostnames {running.split()[1]}").split() if running else []


def is_ready(site: Site, tray: str, trays: list[str]) -> bool:
    """Whether exactly these trays are members of its domain, all READY."""
    printed = site.on(tray, "nvidia-imex-ctl -N -j")
    nodes = json.loads(printed)["nodes"].values() if printed.startswith("{") else ()
    return sorted((row["host"], row["status"]) for row in nodes) == [(ADDRESSES[name], "READY") for name in trays]


def runs_again(site: Site, number: str, without: str, began: float, what: str, restarts: int = 1) -> None:
    """Wait until the job runs on the three other trays, each READY and connected to the others; print the seconds."""
    others = [tray for tray in TRAYS if tray != without]
    wait_for(lambda: without in out_of_service(site), f"{without} is out of service", 150)
    out = time.monotonic() - began
    wait_for(lambda: trays_of(site, number) == others, f"job {number} runs on {others}")
    for tray in others:
        wait_for(lambda tray=tray: is_ready(site, tray, others), f"{tray} is READY")
    again = time.monotonic() - began
    print(f"\n{what}: tray out of service after {out:.0f} s, job on the spare with IMEX READY after {again:.0f} s")
    assert out_of_service(site) == [without]
    assert site.job(number)["Restarts"] == str(restarts)


def returns(site: Site, tray: str) -> None:
    """The repaired tray is the spare."""
    site.order(tray, imex="ok")
    site.ctl(f"scontrol update NodeName={tray} State=RESUME")
    wait_for(lambda: "idle" in site.ctl(f"sinfo -h -n {tray} -o %T"), f"{tray} is idle")


def test_a_daemon_that_does_not_start_drains_its_tray_and_the_job_runs_on_the_spare(site: Site) -> None:
    site.order("r01t02", imex="in_use")
    began = time.monotonic()
    number = site.submit(JOB, "sleep 600")
    runs_again(site, number, "r01t02", began, "daemon that does not start")
    shown = site.ctl("scontrol show node r01t02")
    assert "Reason=nvlink: IMEX: nvidia-imex.service did not start" in shown
    assert f"IMEX on r01t02 for job {number}: " in site.reason(number)
    site.ctl(f"scancel {number}")
    site.is_clean()
    returns(site, "r01t02")


def test_trays_that_wait_for_a_daemon_that_hangs_are_not_drained(site: Site) -> None:
    """It drains itself at its time limit, and the others leave the job to it."""
    site.order("r01t01", imex="start_hangs")
    began = time.monotonic()
    number = site.submit(JOB, "sleep 600")
    runs_again(site, number, "r01t01", began, f"daemon that hangs for {WAIT} s")
    returns(site, "r01t01")
    # A tray of the running job loses its power.
    began = time.monotonic()
    site.racks.stop("r01t03")
    runs_again(site, number, "r01t03", began, "plug pulled, SlurmdTimeout=20", restarts=2)
    site.ctl(f"scancel {number}")
    site.is_clean(["r01t01", "r01t02", "r01t04"])


def test_a_job_whose_script_fails_drains_no_tray(site: Site) -> None:
    """Also where no epilog can read its settings, which stop the daemons all the same."""
    others = ["r01t01", "r01t02", "r01t04"]
    number = site.submit(
        "-N3 --requeue=expedite", "touch /tmp/runs; while test -e /tmp/runs; do sleep 0.2; done; exit 1"
    )
    wait_for(lambda: "runs" in site.on(others[0], "ls /tmp/runs"), "the script runs, after all prologs")
    site.roles.on(others, f"echo '{{}}' > {state.SETTINGS_FILE}")
    site.on(others[0], "rm /tmp/runs")
    site.state_is(number, "PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT", "FAILED")
    site.is_clean(others)
    for tray in others:
        site.logs(tray, "is not a settings file of the role imex")
    wait_for(lambda: "held" in site.ctl(f"squeue -h -j {number} -o %r").lower(), "Slurm holds the job")
    assert out_of_service(site) == ["r01t03"]
