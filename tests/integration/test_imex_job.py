# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IMEX per job on real slurmctld and slurmd, with the stand-in: every job ends in READY or with one clear reason.

Four trays in two cliques, a and b; where two jobs share a clique, all four are in clique a by their settings. What
Slurm 24.11 and 26.05 do in another way runs on both.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, formats, job_files
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import packages as pinned
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import state

from .conftest import CHECKOUT, SCENARIOS, RunningLab, lab_command, running_lab
from .slurm_site import install_explain
from .test_imex_role import Racks, wait_for

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import imex

pytestmark = pytest.mark.lab

RUN = state.RUN
TRAYS = ["r01t01", "r01t02", "r01t03", "r01t04"]
ADDRESSES = dict(zip(TRAYS, ("198.51.100.11", "198.51.100.12", "198.51.100.13", "198.51.100.14")))
FIRST, SECOND = TRAYS[:2], TRAYS[2:]
PROLOG, EPILOG = f"/etc/slurm/prolog.d/{job_files.NAME}", f"/etc/slurm/epilog.d/{job_files.NAME}"
OPTIONS: dict[str, Any] = {"wait": 60, "stop_wait": 3, "policy": "requeue"}
ROLE: dict[str, Any] = {f"imex_job_{name}": value for name, value in OPTIONS.items()}
LATE = "/etc/slurm/prolog.d/90-late"  # Slurm runs them in reverse order of their names
NODES_FILE = "/etc/nvidia-imex/nodes_config.cfg"
NOTHING_LEFT = f"! pgrep -x nvidia-imex && test ! -e {NODES_FILE} && test ! -e {RUN}/state.json"
SHOW = "echo $(paste -sd, /etc/nvidia-imex/nodes_config.cfg) $(nvidia-imex-ctl -q) $(ls /dev/nvidia-caps-imex-channels)"


class Site:
    """A lab whose trays have the stand-in and the program, with its Slurm controller."""

    def __init__(self, racks: RunningLab, folder: Path) -> None:
        self.racks, self.folder, self.roles = racks, folder, Racks(racks, folder)
        self.order = self.roles.order

    def settings(self, trays: list[str] | None = None, clique: list[str] | None = None, **changes: Any) -> None:
        """Change the settings file, faster than by the role. ``clique``: the trays of clique a."""
        base = json.loads(job_files.render_settings(state.Settings("a", ())))
        base.update({**OPTIONS, **changes})
        for tray in trays or TRAYS:
            members = clique or (FIRST if tray in FIRST else SECOND)
            base["clique"] = "a" if tray in (clique or FIRST) else "b"
            base["members"] = changes.get("members") or [[name, ADDRESSES[name]] for name in members]
            self.roles.on([tray], f"printf %s '{json.dumps(base)}' > {state.SETTINGS_FILE}")

    def ctl(self, command: str, timeout: float = 120) -> str:
        """A command on the controller: its standard output and error."""
        process = self.roles.inside("ctl", f"cd /tmp; ({command}) 2>&1")
        return process.communicate(timeout=timeout)[0]

    def on(self, tray: str, command: str) -> str:
        process = self.roles.inside(tray, command)
        printed: str = process.communicate(timeout=120)[0]
        return printed

    def submit(self, options: str, script: str = "srun true") -> str:
        """A batch job's id."""
        printed = self.ctl(f"sbatch --parsable --exclusive {options} --wrap '{script}'").strip()
        assert printed.isdecimal(), printed
        return printed

    def job(self, number: str) -> dict[str, str]:
        fields = self.ctl(f"scontrol show job {number}").split()
        return dict(field.partition("=")[::2] for field in fields)

    def reason(self, number: str) -> str:
        """What the program has reported to the job's user."""
        lines = self.ctl(f"scontrol show job {number}").splitlines()
        return " ".join(line.strip() for line in lines if "AdminComment=" in line)

    def state_is(self, number: str, *states: str) -> None:
        wait_for(lambda: self.job(number).get("JobState") in states, f"job {number} is {states}")

    def is_requeued(self, number: str) -> None:
        # slurmctld may plan a job for the next second again and again (Resources) on trays that are idle, until it
        # pings all nodes: every 20 s here, a third of SlurmdTimeout.
        wait_for(lambda: self.job(number).get("Restarts") == "1", f"job {number} is requeued")

    def is_ready(self, *trays: str) -> None:
        for tray in trays:
            self.logs(tray, "ready in")

    def runs_daemon(self, tray: str) -> None:
        wait_for(lambda: bool(self.on(tray, "pgrep -x nvidia-imex")), f"a daemon runs on {tray}")

    def journal(self, tray: str) -> str:
        # A busy journald may not have read yet what the program has sent.
        return self.on(tray, "journalctl --sync; journalctl --quiet --no-pager --output=cat -t nvlink-imex-job")

    def logs(self, tray: str, text: str) -> None:
        wait_for(lambda: text in self.journal(tray), f"{text!r} in the journal of {tray}")

    def is_clean(self, trays: list[str] | None = None) -> None:
        for tray in trays or TRAYS:
            wait_for(lambda tray=tray: "clean" in self.on(tray, f"{NOTHING_LEFT} && echo clean"), f"{tray} is clean")

    def reset(self) -> None:
        self.ctl("scancel --user=root; scancel --state=PENDING --user=root")
        for tray in TRAYS:
            self.order(tray, imex="ok", imex_block="none", imex_backoff="0", imex_imports="false")
        wait_for(lambda: self.ctl("squeue --noheader") == "", "no job is left")
        self.roles.on(
            TRAYS,
            f"systemctl stop nvidia-imex foreign 2>/dev/null; rm -rf {RUN}/state.json {RUN}/note.* /run/nvidia-imex"
            " /var/log/nvidia-imex.log /etc/nvidia-imex/nodes_config.cfg /tmp/*.out;"
            "journalctl --quiet --rotate; journalctl --quiet --vacuum-time=1s",
        )
        self.settings()
        self.resume()

    def resume(self) -> None:
        """Resume all nodes until they are idle: slurmd repeats the report of a failed prolog, which drains it."""

        def idle() -> bool:
            if set(self.ctl("sinfo --noheader --Node --format=%T").split()) == {"idle"}:
                return True
            self.ctl("for n in $(sinfo -hN -o %N); do scontrol update NodeName=$n State=RESUME; done")
            return False

        wait_for(idle, "all trays are idle", 150.0)


def _site(suite: str, folder: Path) -> Iterator[Site]:
    """A lab of the suite, with IMEX per job by the role."""
    scenario = yaml.safe_load((SCENARIOS / "jobs.yml").read_text())
    file = folder / "jobs.yml"
    file.write_text(yaml.safe_dump({**scenario, "suite": suite}))
    with running_lab(folder, file) as running:
        lab_command("packages", "--name", running.name, str(imex.packages()))
        site = Site(running, folder)
        site.roles.cliques({"a": FIRST, "b": SECOND})
        play = site.roles.role(imex_owner="job", **ROLE)
        assert play.rc == 0, play.text
        yield site


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from _site("trixie", tmp_path_factory.mktemp("trixie"))


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from _site("forky", tmp_path_factory.mktemp("forky"))


@pytest.fixture
def site(newer: Site) -> Site:
    newer.reset()
    return newer


@pytest.fixture(params=["newer", pytest.param("older", marks=pytest.mark.long)])
def each(request: pytest.FixtureRequest) -> Site:
    """26.05, and 24.11 in `make test-all`."""
    found: Site = request.getfixturevalue(request.param)
    found.reset()
    return found


# --- Success.


def test_a_job_over_two_cliques_gets_two_imex_domains(each: Site) -> None:
    printed = each.ctl(f"srun --label --exclusive -N4 sh -c '{SHOW}'")
    rows = [line.split() for line in sorted(printed.splitlines())]
    first, second = ("198.51.100.11,198.51.100.12", "198.51.100.13,198.51.100.14")
    assert [row[1:3] for row in rows] == [[nodes, "READY"] for nodes in (first, first, second, second)], printed
    # Slurm gives the job one channel, on all its trays.
    assert [len(row) for row in rows] == [4] * 4, printed
    assert len({row[3] for row in rows}) == 1, printed
    each.is_clean()
    assert "IMEX domain of 2 trays of clique a ready in" in each.journal("r01t01")


def test_of_two_jobs_in_two_cliques_one_fails(site: Site) -> None:
    """It is requeued with one reason; the other keeps its domain, which no removal of IMEX per job ends."""
    site.settings(SECOND, wait=8)
    site.order("r01t04", imex="in_use")
    holder = site.submit(f"-N2 -w {','.join(FIRST)}", "srun sleep 600")
    site.is_ready(*FIRST)
    daemon = site.on("r01t01", "pgrep -x nvidia-imex")
    number = site.submit(f"-N2 -w {','.join(SECOND)}")
    site.is_requeued(number)
    site.logs("r01t04", "NV_ERR_IN_USE")
    wait_for(lambda: f"IMEX on r01t04 for job {number}" in site.reason(number), "the job has the reason")
    assert "drain" not in site.ctl("sinfo -hN -o %T")
    site.is_clean(SECOND)

    blocked = site.roles.role(trays=["r01t01"], imex_owner="none", **ROLE)
    assert blocked.rc != 0
    assert f"Job {holder} has its IMEX domain on this tray" in blocked.text
    assert site.on("r01t01", "pgrep -x nvidia-imex") == daemon
    assert site.job(holder)["JobState"] == "RUNNING"
    site.ctl(f"scancel {holder} {number}")
    site.is_clean()


def test_two_jobs_on_one_clique_have_separate_domains_and_channels(site: Site) -> None:
    site.settings(clique=TRAYS)
    script = f"{SHOW}; sleep 3; nvidia-imex-ctl -N -j"
    parts = [
        f"srun --exclusive -N2 -w {','.join(trays)} sh -c '{script}' > {trays[0]}.out &" for trays in (FIRST, SECOND)
    ]
    site.ctl(f"{' '.join(parts)} wait")
    channels = set()
    for trays in (FIRST, SECOND):
        lines = site.ctl(f"cat {trays[0]}.out; rm {trays[0]}.out").splitlines()
        shown = [line for line in lines if "READY channel" in line]
        nodes = ",".join(ADDRESSES[tray] for tray in trays)
        assert {line.split()[0] for line in shown} == {nodes}
        assert len({line.split()[2] for line in shown}) == 1
        channels.add(shown[0].split()[2])
        for answer in (json.loads(line) for line in lines if line.startswith("{")):
            assert answer["status"] == "UP"
            assert {node["host"] for node in answer["nodes"].values()} == {ADDRESSES[tray] for tray in trays}
    assert len(channels) == 2
    site.is_clean()


@pytest.mark.long
def test_a_job_of_one_tray_gets_a_daemon_only_with_min_trays_1(site: Site) -> None:
    script = f"sh -c 'pgrep -x nvidia-imex || echo none; {SHOW}'"
    assert "none" in site.ctl(f"srun -N1 -w r01t01 {script}")
    assert "none" in site.ctl(f"srun --exclusive -N2 -w r01t01,r01t03 {script}")
    site.settings(min_trays=1)
    assert "198.51.100.11 READY" in site.ctl(f"srun --exclusive -N1 -w r01t01 {script}")
    site.is_clean()
    # A tray without a clique runs its jobs.
    site.on("r01t01", f"""sed -i 's/"members": .*\\]\\]/"members": []/' {state.SETTINGS_FILE}""")
    assert "none" in site.ctl(f"srun --exclusive -N1 -w r01t01 {script}")


# --- Late members and leftovers, with which the job still gets READY.


@pytest.mark.long
@pytest.mark.parametrize("leftover", [False, True])
def test_a_late_member_is_connected(site: Site, leftover: bool) -> None:
    """Also where it still has the daemon of a job whose epilog did not run: the two match after both restarted."""
    if leftover:
        site.on("r01t02", f"mkdir -p {RUN}; echo '{{}}' > {RUN}/state.json")
        site.on("r01t02", f"printf '198.51.100.12\\n198.51.100.11\\n' > {NODES_FILE}; systemctl start nvidia-imex")
        assert site.on("r01t02", "pgrep -x nvidia-imex")
    else:
        for tray in FIRST:
            site.order(tray, imex_backoff="60")  # longer than the prolog waits: it signals the daemon
    site.settings(wait=40)
    site.on("r01t02", f"printf '#!/bin/sh\\nexec /bin/sleep 2\\n' > {LATE}; chmod 755 {LATE}")
    try:
        printed = site.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{SHOW}'")
        assert printed.count("198.51.100.11,198.51.100.12 READY") == 2, printed
    finally:
        site.on("r01t02", f"rm {LATE}")
    site.is_clean()


# --- Faults: one reason each, and the policy applied to job and tray.


@pytest.mark.long
def test_a_prolog_that_is_killed(site: Site) -> None:
    site.settings(wait=12)
    site.order("r01t02", imex_block="peer")
    number = site.submit(f"-N2 -w {','.join(FIRST)}")
    site.runs_daemon("r01t01")
    site.on("r01t01", "pkill -KILL -f '^/usr/bin/python3 -IS .*nvlink-imex-job prolog'")
    # To Slurm that is a failed prolog: the tray is drained, the job requeued, and the epilog cleans up.
    wait_for(lambda: "drain" in site.ctl("sinfo -h -n r01t01 -o %T"), "the tray is drained")
    site.is_clean(["r01t01"])
    site.order("r01t02", imex_block="none")
    site.ctl(f"scancel {number}")
    site.is_clean()
    site.resume()
    assert "READY" in site.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{SHOW}'")


@pytest.mark.long
def test_a_job_that_is_cancelled_meanwhile_stays_cancelled(site: Site) -> None:
    """The prolog that still waits must not requeue it, nor drain its peers because their daemons ended."""
    site.settings(policy="drain", wait=10)
    site.order("r01t02", imex_block="peer")
    number = site.submit(f"-N2 -w {','.join(FIRST)}")
    site.runs_daemon("r01t01")
    site.ctl(f"scancel {number}")
    site.logs("r01t01", "already")
    site.is_clean()
    wait_for(lambda: site.job(number)["JobState"] != "COMPLETING", "slurmctld received the end of the epilogs")
    assert site.job(number)["JobState"] == "CANCELLED"
    assert "drain" not in site.ctl("sinfo -hN -o %T")


@pytest.mark.long
def test_the_policy_drain(each: Site) -> None:
    each.settings(policy="drain", wait=8)
    each.order("r01t02", imex="in_use")
    number = each.submit(f"-N2 -w {','.join(FIRST)}")
    wait_for(lambda: "drain" in each.ctl("sinfo -h -n r01t02 -o %T"), "the tray is drained")
    shown = each.ctl("scontrol show node r01t02")
    assert re.search("Reason=nvlink: IMEX: .*NV_ERR_IN_USE", shown), shown
    each.state_is(number, "PENDING")
    wait_for(lambda: "held" in each.ctl(f"squeue -h -j {number} -o %r"), "the job is held by Slurm")
    install_explain(each.racks.inventory, each.folder)
    answer = each.ctl(f"nvlink-explain {number}")
    assert answer.startswith(
        f"Job {number} waits for an operator: its launch failed, IMEX on r01t02 for job {number}: "
    )
    remedy = f"scontrol update NodeName=r01t02 State=RESUME, then scontrol release {number}."
    assert answer.splitlines()[0].endswith(f"; after the repair {remedy}"), answer


@pytest.mark.long
def test_the_policy_replace(each: Site) -> None:
    """The tray at fault drains itself, and the job runs on another one; no other tray is drained."""
    each.settings(policy="replace", clique=TRAYS)
    each.order("r01t02", imex="in_use")
    number = each.submit("-N2", "srun sleep 300")
    wait_for(lambda: "drain" in each.ctl("sinfo -h -n r01t02 -o %T"), "the tray is drained")
    assert re.search("Reason=nvlink: IMEX: .*NV_ERR_IN_USE", each.ctl("scontrol show node r01t02"))
    # Without expedited requeue Slurm delays it by two minutes, after the last prolog has ended.
    wait_for(lambda: "BeginTime" in each.ctl(f"squeue -h -j {number} -o %r"), "the job is requeued")
    each.ctl(f"scontrol update JobId={number} StartTime=now")
    each.is_ready("r01t03")
    assert f"IMEX on r01t02 for job {number}: " in each.reason(number)
    assert each.job(number)["Restarts"] == "1"
    assert each.ctl("sinfo -hN -o %T").count("drain") == 1
    # Slurm requeues batch jobs only.
    each.order("r01t03", imex="in_use")
    each.ctl(f"scancel {number}")
    each.is_clean()
    assert "the tray is drained and the job is requeued, or cancelled" in each.ctl(
        "timeout 60 srun --exclusive -N2 hostname"
    )
    assert sorted(each.ctl("sinfo -hN -t drain,drained,draining -o %N").split()) == ["r01t02", "r01t03"]


# A daemon of the site's own, on r01t01.
FOREIGN = (
    "echo 198.51.100.11 > /root/nodes; sed 's#^IMEX_NODE.*#IMEX_NODE_CONFIG_FILE=/root/nodes#'"
    " /etc/nvidia-imex/config.cfg > /root/foreign.cfg;"
    " systemd-run --quiet --unit=foreign --property=Type=forking nvidia-imex -c /root/foreign.cfg"
)
ALONE = {"policy": "drain", "members": [["r01t02", ADDRESSES["r01t02"]]], "sha256": "0"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "of_second", "script", "reason"),
    [
        ({"max_requeues": 0}, {}, "", "NV_ERR_IN_USE"),
        ({"channel0": True, "proc_devices": "/dev/null"}, {}, "", "the driver has no IMEX channels"),
        ({}, {}, FOREIGN, "that neither a job nor nvidia-imex.service started"),
        # Its own prolog finds no other member and succeeds; that of the other reads its settings.
        ({"policy": "drain", "clique": TRAYS}, ALONE, "", "r01t02 and this tray have different members of clique a"),
    ],
)
def test_a_job_is_requeued_or_held_for_one_reason_and_no_tray_drained(
    site: Site, changes: dict[str, Any], of_second: dict[str, Any], script: str, reason: str
) -> None:
    site.settings(wait=8, **changes)
    if of_second:
        site.settings(["r01t02"], wait=8, **of_second)
    site.order("r01t01", imex="in_use" if "max_requeues" in changes else "ok")
    site.on("r01t01", script)
    number = site.submit(f"-N2 -w {','.join(FIRST)}")
    site.logs("r01t01", reason)
    if "max_requeues" in changes:
        wait_for(lambda: "held" in site.ctl(f"squeue -h -j {number} -o %r"), "it is held")
        install_explain(site.racks.inventory, site.folder)
        assert "waits for an operator: its launch failed, IMEX on r01t01" in site.ctl(f"nvlink-explain {number}")
        # Slurm requeues batch jobs only: another job is cancelled, and srun prints why.
        printed = site.ctl(f"timeout 60 srun --exclusive -N2 -w {','.join(FIRST)} hostname")
        assert reason in printed
        assert "r01t01\n" not in printed
    else:
        site.is_requeued(number)
    assert "drain" not in site.ctl("sinfo -hN -o %T")
    if script:
        assert site.on("r01t01", "systemctl is-active foreign; systemctl stop foreign") == "active\n"
    site.ctl(f"scancel {number}")
    site.is_clean()


@pytest.mark.long
def test_the_policy_run(site: Site) -> None:
    site.settings(policy="run", wait=8)
    site.order("r01t02", imex="in_use")
    number = site.submit(f"-N2 -w {','.join(FIRST)} -o /tmp/%j.out", "srun hostname")
    site.state_is(number, "COMPLETED")
    printed = site.on("r01t01", f"cat /tmp/{number}.out")
    assert {"r01t01", "r01t02"} <= set(printed.splitlines())
    assert "IMEX on r01t02 for job" in printed
    assert "the job runs without IMEX" in printed
    site.is_clean()
    for tray in FIRST:
        assert site.on(tray, f"ls {RUN}/note.* 2>/dev/null") == ""


@pytest.mark.long
def test_a_job_that_shares_its_trays_is_cancelled(each: Site) -> None:
    printed = each.ctl(f"timeout 60 srun -N2 -w {','.join(FIRST)} hostname")
    assert "shares its trays (SLURM_JOB_" in printed
    assert "--exclusive" in printed
    # One tray of each clique needs no IMEX, so it may be shared.
    assert sorted(each.ctl("srun --quiet -N2 -w r01t01,r01t03 hostname").split()) == ["r01t01", "r01t03"]
    assert "drain" not in each.ctl("sinfo -hN -o %T")


@pytest.mark.long
def test_a_heterogeneous_job_has_one_domain_in_a_clique_or_is_held(site: Site) -> None:
    """The whole job, not a component; components in cliques of their own, or on one tray, run."""
    for second, states in (("r01t02", ("PENDING",)), ("r01t03", ("COMPLETED",))):
        number = site.ctl(
            f"sbatch --parsable -o /tmp/%j.out --exclusive -N1 -w r01t01 : --exclusive -N1 -w {second}"
            " --wrap 'srun --het-group=0,1 hostname'"
        ).strip()
        if second == "r01t02":
            site.logs("r01t01", "components +0, +1 of heterogeneous job")
            site.logs("r01t01", "have trays in clique a")
        for component in (number, str(int(number) + 1)):
            site.state_is(component, *states)
        if second == "r01t02":
            assert "held" in site.ctl(f"squeue -h -j {number} -o %r")
            assert "components +0, +1 of heterogeneous job" in site.reason(number)
            site.ctl(f"scancel {number}")
    assert "drain" not in site.ctl("sinfo -hN -o %T")
    site.is_clean()


@pytest.mark.long
def test_a_job_that_shrinks_keeps_one_domain_on_the_trays_that_stay(site: Site) -> None:
    """Those that leave are clean, and the next job there has a domain of its own while the smaller job runs."""
    site.settings(clique=TRAYS)
    number = site.submit("-N4", "sleep 300")
    site.is_ready(*TRAYS)
    site.ctl(f"scontrol update JobId={number} NodeList={','.join(FIRST)}")
    assert site.job(number)["NumNodes"] == "2"
    site.is_clean(SECOND)
    assert site.ctl(f"srun --exclusive -N2 -w {','.join(SECOND)} sh -c '{SHOW}'").count("READY") == 2
    peers = json.loads(site.on("r01t01", "nvidia-imex-ctl -N -j"))["nodes"]
    rows = {row["host"]: row["connections"].values() for row in peers.values()}
    for first in FIRST:
        states = {link["host"]: link["status"] for link in rows[ADDRESSES[first]]}
        assert {states[ADDRESSES[second]] for second in FIRST} == {"CONNECTED"}
        assert "CONNECTED" not in {states[ADDRESSES[other]] for other in SECOND}
    assert site.job(number)["JobState"] == "RUNNING"
    site.ctl(f"scancel {number}")
    site.is_clean()


@pytest.mark.long
def test_channel0_is_of_the_job(site: Site) -> None:
    for tray in FIRST:
        site.on(tray, "printf 'Character devices:\\n  4 nvidia-caps-imex-channels\\n' > /root/devices")
    site.settings(channel0=True, proc_devices="/root/devices")
    number = site.submit(f"-N2 -w {','.join(FIRST)}", "srun sleep 300")
    site.is_ready("r01t01")
    device = "stat -c '%a %Hr %Lr' /dev/nvidia-caps-imex-channels/channel0"
    assert site.on("r01t01", device) == "666 4 0\n"
    site.ctl(f"scancel {number}")
    site.is_clean(FIRST)
    assert site.on("r01t01", f"{device} 2>&1") != "666 4 0\n"


@pytest.mark.long
def test_a_suspended_job_keeps_its_domain(site: Site) -> None:
    """A job that starts on its trays meanwhile is requeued, and no tray is drained."""
    site.settings(policy="drain", wait=20)
    first = site.submit(f"-N2 -w {','.join(FIRST)}", "srun sleep 600")
    site.is_ready(*FIRST)
    daemon = site.on("r01t01", "pgrep -x nvidia-imex")
    site.ctl(f"scontrol suspend {first}")
    second = site.submit(f"-N2 -w {','.join(FIRST)}")
    site.is_requeued(second)
    site.logs("r01t01", f"job {first} has its IMEX domain on this tray and is still there")
    assert "suspended job" in site.reason(second)
    assert "drain" not in site.ctl("sinfo -hN -o %T")
    site.ctl(f"scancel {second}; scontrol resume {first}")
    site.state_is(first, "RUNNING")
    assert site.on("r01t01", "pgrep -x nvidia-imex") == daemon
    site.ctl(f"scancel {first}")
    site.is_clean()


@pytest.mark.long
def test_a_daemon_that_ignores_sigterm(site: Site) -> None:
    for tray in FIRST:
        site.on(tray, f"sed -i s/^TimeoutStopSec=.*/TimeoutStopSec=2/ {domain.DROP_IN}; systemctl daemon-reload")
    site.order("r01t01", imex="deaf", imex_imports="true")
    assert "READY" in site.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{SHOW}; sleep 3'")
    site.is_clean()
    site.logs("r01t01", "did not end by SIGTERM")
    assert "did not end" not in site.journal("r01t02")
    # Its unclean stop does not delay the next job.
    assert site.on("r01t01", f"ls {formats.PERSIST_FILE} 2>/dev/null") == ""
    site.order("r01t01", imex="ok", imex_imports="false")
    assert "READY" in site.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{SHOW}'")
    assert site.roles.role(imex_owner="job", **ROLE).rc == 0


# --- The role. Nothing follows its tests, so they leave the trays without IMEX per job.


@pytest.mark.long
def test_the_role_changes_the_owner_to_job_and_back(site: Site) -> None:
    """To IMEX per job with TLS, then to none."""
    racks = site.roles
    racks.cliques({"a": FIRST, "b": SECOND})
    options: dict[str, Any] = {"imex_manage_package": False, **ROLE}
    # With TLS between the members of a job too.
    options.update(imex_tls="ca", imex_tls_ca_dir=str(site.folder / "ca"))
    play = racks.role(imex_owner="job", **options)
    assert play.rc == 0, play.text
    settings = json.loads(site.on("r01t03", f"cat {state.SETTINGS_FILE}"))
    assert settings["clique"] == "b"
    assert settings["members"] == [[tray, ADDRESSES[tray]] for tray in SECOND]
    assert settings["channel0"] is False
    site.is_clean()
    number = site.submit("-N4", "srun sleep 300")
    site.is_ready("r01t03")
    assert "IMEX_ENABLE_AUTH_ENCRYPTION=1\n" in site.on("r01t03", f"cat {formats.CONFIG_FILE}")
    shown = f"import ssl; print(ssl.get_server_certificate(('{ADDRESSES['r01t03']}', 50000), timeout=60).strip())"
    certificate = site.on("r01t03", f"cat {domain.TLS_FILES['certificate']}")
    assert certificate.strip() == site.on("r01t04", f'python3 -c "{shown}"').strip() != ""
    site.ctl(f"scancel {number}")
    site.is_clean()
    play = racks.role(imex_owner="none", **options)
    assert play.rc == 0, play.text
    # The lock stays until the tray boots.
    left = site.on("r01t01", f"ls {state.SETTINGS_FILE} {domain.DROP_IN} {RUN} 2>/dev/null")
    assert left == f"{RUN}:\nlock\n"
    # The lab's slurm.conf names them as Prolog, Epilog and TaskProlog; those that remain do nothing.
    assert site.on("r01t01", f"cat {PROLOG} {EPILOG} {job_files.PROGRAM}") == 3 * job_files.NOOP
    assert site.on("r01t01", "systemctl show -p TimeoutStartUSec --value nvidia-imex") == "infinity\n"
    assert site.ctl("srun --quiet -N1 -w r01t01 --exclusive hostname") == "r01t01\n"
    assert site.on("r01t01", f"ls -d {domain.TLS_FOLDER} 2>/dev/null") == ""


# --- Owners.

# Each tray is a clique of its own here; the four together change every owner to every other one.
WALKS = {
    "r01t01": ["domain", "job", "domain", "none", "domain", "driver_managed"],
    "r01t02": ["driver_managed", "domain", "host_managed", "job", "none", "job"],
    "r01t03": ["job", "driver_managed", "job", "host_managed", "none", "driver_managed"],
    "r01t04": ["driver_managed", "none", "host_managed", "driver_managed", "host_managed", "domain"],
}
WANTED = f"/etc/systemd/system/sockets.target.wants/{domain.LIST_SOCKET}"
OFFERED = {domain.DROP_IN, domain.SOCKET_UNIT, domain.SERVICE_UNIT, WANTED}
OF_SERVICE = {*OFFERED, domain.PROGRAM, domain.START_APPROVAL, formats.RECORD_FILE, formats.NODES_FILE}
# The files of each owner. Under driver_managed the node list is not changed.
OWNED = {
    "domain": {*OF_SERVICE, domain.MODPROBE, pinned.APT_PIN},
    "host_managed": {*OF_SERVICE, domain.MODPROBE, pinned.APT_PIN, domain.HOST_SOCKET},
    "job": {*OFFERED, domain.MODPROBE, pinned.APT_PIN},
    "driver_managed": {domain.MODPROBE},
    "none": set(),
}
# Other files with the collection's name: none under every owner but `job`, apart from the files that the owner `job`
# leaves for a slurm.conf that still names them.
PRUNED = " ".join(f"-path {path} -prune -o" for path in ("/run/systemd", "/var/lib/apt", "/etc/slurm"))
OTHERS = f"find /etc /usr/local /run /var/lib {PRUNED} -name '*nvlink*' -not -path '*/nvlink-lab*' -print"
# Of the test alone, with the major of terminals, whose devices containers may create.
DEVICES = "/root/devices"
INITRAMFS = "/usr/local/sbin/update-initramfs"


def state_of(racks: Racks, tray: str) -> tuple[list[str], set[str]]:
    """The state of units, daemons and channels, and the files of any owner, on a tray."""
    state = racks.read(
        tray,
        "systemctl is-enabled nvidia-imex; systemctl is-active nvidia-imex nvlink-imex-list.socket;"
        "pgrep -xc nvidia-imex; ls /dev/nvidia-caps-imex-channels 2>/dev/null",
    )
    every = set().union(*OWNED.values(), domain.TLS_FILES.values(), [formats.PERSIST_FILE])
    return state.split(), set(racks.read(tray, f"ls -d {' '.join(every)} 2>/dev/null; {OTHERS}").split())


def expected(owner: str) -> list[str]:
    if owner in domain.SERVICE_OWNERS:
        return ["enabled", "active", "active", "1", "channel0", "channel2"]
    offers = "active" if owner == domain.JOB else "inactive"
    return ["masked" if owner == domain.DRIVER else "disabled", "inactive", offers, "0"]


def walk(racks: Racks, owners: dict[str, str]) -> dict[str, Any]:
    """Give each tray its owner and compare what is there then; the arguments of that run of the role."""
    trays = list(owners)
    chosen: dict[str, Any] = {
        "imex_owner": "{{ imex_walk[inventory_hostname] }}",
        "imex_walk": owners,
        "imex_channels": [0, 2],
        "imex_proc_devices": DEVICES,
        "imex_channel_count": 1024,
        "imex_job_slurm_conf": "/run/slurm/conf/slurm.conf",
    }
    play = racks.role(trays=trays, **chosen)
    assert play.rc == 0, play.text
    # This lab's Slurm gives each job a channel.
    assert ("imex_channel_slurm_conflict" in play.text) == any(
        owner in domain.SERVICE_OWNERS for owner in owners.values()
    )
    for tray, owner in owners.items():
        observed, there = state_of(racks, tray)
        assert observed == expected(owner), (tray, owner, play.text)
        if owner == domain.JOB:
            assert job_files.PROGRAM in there
            there &= set().union(*OWNED.values())
        left = {job_files.PROGRAM, str(Path(domain.START_APPROVAL).parent), RUN}
        left |= {formats.NODES_FILE} if owner == domain.DRIVER else set()
        assert there - left == OWNED[owner] - left, (tray, owner, play.text)
    return {"trays": trays, **chosen}


@pytest.mark.long
def test_every_change_of_owner_removes_the_files_of_the_former_one(newer: Site) -> None:
    pairs = [pair for walk in WALKS.values() for pair in zip(walk, walk[1:])]
    assert sorted(pairs) == sorted((a, b) for a in domain.OWNERS for b in domain.OWNERS if a != b)
    racks = newer.roles
    racks.on(TRAYS, f"printf 'Character devices:\\n  1 mem\\n  4 nvidia-caps-imex-channels\\n' > {DEVICES}")
    # An initramfs is larger than the file size limit of a module's other children.
    script = "#!/bin/sh\\nexec truncate --size=20M /root/initrd.img\\n"
    racks.on(TRAYS, f"printf '{script}' > {INITRAMFS}; chmod 755 {INITRAMFS}")
    racks.cliques({f"c{number}": [tray] for number, tray in enumerate(TRAYS)})
    for step in range(6):
        given = walk(racks, {tray: owners[step] for tray, owners in WALKS.items()})
    assert racks.facts("r01t04", proc_devices=DEVICES)["channels"]["devices"] == [
        {"name": f"channel{minor}", "major": 4, "minor": minor, "mode": "0666"} for minor in (0, 2)
    ]
    again = racks.role("--check", **given)
    assert (again.rc, again.changed) == (0, 0), again.text
    assert racks.on(TRAYS, "stat -c %s /root/initrd.img") == ["20971520\n"] * 4
