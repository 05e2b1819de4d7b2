# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IMEX per job on real slurmctld and slurmd, with the stand-in: every job ends in READY or with one clear reason.

Four trays in two cliques, a and b; where two jobs share a clique, all four are in clique a by their settings. Where
Slurm 24.11 and 26.05 differ, the test runs on both.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, files, job_files
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import state

from .commands import ansible, unchanged
from .conftest import CHECKOUT, SCENARIOS, RunningLab, running_lab
from .test_imex_facts import inside, install, on, order
from .test_imex_role import Racks
from .test_lab import wait_until

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import imex, packages, paths

pytestmark = pytest.mark.lab

RUN = state.RUN
TRAYS = ["r01t01", "r01t02", "r01t03", "r01t04"]
ADDRESSES = dict(zip(TRAYS, ("198.51.100.11", "198.51.100.12", "198.51.100.13", "198.51.100.14")))
FIRST, SECOND = TRAYS[:2], TRAYS[2:]
PROLOG, EPILOG = f"/etc/slurm/prolog.d/{job_files.NAME}", f"/etc/slurm/epilog.d/{job_files.NAME}"
OPTIONS: dict[str, Any] = {"wait": 20, "stop_wait": 3, "policy": "requeue"}
NODES_FILE = "/etc/nvidia-imex/nodes_config.cfg"
NOTHING_LEFT = f"! pgrep -x nvidia-imex && test ! -e {NODES_FILE} && test ! -e {RUN}/state.json"
SHOW = "echo $(paste -sd, /etc/nvidia-imex/nodes_config.cfg) $(nvidia-imex-ctl -q) $(ls /dev/nvidia-caps-imex-channels)"


class Site:
    """A lab whose trays have the stand-in and the program, with its Slurm controller."""

    def __init__(self, racks: RunningLab, folder: Path) -> None:
        self.racks, self.folder = racks, folder

    def install(self, *flags: str, check: bool = True, **options: Any) -> Any:
        """Run the module imex_job on all trays."""
        arguments: dict[str, Any] = {**OPTIONS, **options}
        if arguments.get("state") != "absent":
            arguments.update(clique="{{ clique }}", members="{{ members }}")
        cliques = (("a", FIRST), ("b", SECOND))
        hosts = {
            tray: {"clique": clique, "members": [{"node": name, "address": ADDRESSES[name]} for name in trays]}
            for clique, trays in cliques
            for tray in trays
        }
        variables = self.folder / "members.yml"
        variables.write_text(yaml.safe_dump({"trays": {"hosts": hosts}}))
        task = {"rackscale.nvlink.imex_job": arguments}
        book = self.folder / "job.yml"
        book.write_text(yaml.safe_dump([{"hosts": "trays", "gather_facts": False, "tasks": [task]}]))
        inventory = ("-i", self.racks.inventory, "-i", variables)
        return ansible("ansible-playbook", *inventory, book, "--forks", "4", *flags, check=check)

    def settings(self, trays: list[str] | None = None, clique: list[str] | None = None, **changes: Any) -> None:
        """Change the settings file, faster than by the role. ``clique``: the trays of clique a."""
        base = json.loads(job_files.render_settings(state.Settings("a", ())))
        base.update({"wait": 20, "stop_wait": 3, "policy": "requeue", **changes})
        for tray in trays or TRAYS:
            members = clique or (FIRST if tray in FIRST else SECOND)
            base["clique"] = "a" if tray in (clique or FIRST) else "b"
            base["members"] = changes.get("members") or [[name, ADDRESSES[name]] for name in members]
            on(self.racks, [tray], f"printf %s '{json.dumps(base)}' > {state.SETTINGS_FILE}")

    def ctl(self, command: str, timeout: float = 90) -> str:
        """A command on the controller: its standard output and error."""
        process = inside(self.racks, "ctl", "sh", "-c", f"cd /tmp; ({command}) 2>&1")
        return process.communicate(timeout=timeout)[0]

    def on(self, tray: str, command: str) -> str:
        process = inside(self.racks, tray, "sh", "-c", command)
        printed: str = process.communicate(timeout=60)[0]
        return printed

    def submit(self, options: str, script: str = "srun true") -> str:
        """A batch job's id."""
        printed = self.ctl(f"sbatch --parsable --exclusive {options} --wrap '{script}'").strip()
        assert printed.isdecimal(), printed
        return printed

    def job(self, number: str) -> dict[str, str]:
        fields = self.ctl(f"scontrol show job {number}").split()
        return dict(field.partition("=")[::2] for field in fields)

    def state_is(self, number: str, *states: str, seconds: float = 40.0) -> None:
        wait_until(lambda: self.job(number).get("JobState") in states, f"job {number} is {states}", seconds)

    def journal(self, tray: str) -> str:
        # A busy journald may not have read yet what the program has sent.
        return self.on(tray, "journalctl --sync; journalctl --quiet --no-pager --output=cat -t nvlink-imex-job")

    def is_clean(self, trays: list[str] | None = None) -> None:
        for tray in trays or TRAYS:
            wait_until(lambda tray=tray: self.on(tray, f"{NOTHING_LEFT} && echo clean").endswith("clean\n"), tray, 40.0)

    def reset(self) -> None:
        self.ctl("scancel --user=root; scancel --state=PENDING --user=root")
        for tray in TRAYS:
            order(self.racks, tray, imex="ok", imex_block="none", imex_backoff="0", imex_imports="false")
        wait_until(lambda: self.ctl("squeue --noheader") == "", "no job is left", 60.0)
        for tray in TRAYS:
            self.on(
                tray,
                f"systemctl stop nvidia-imex; rm -rf {RUN}/state.json {RUN}/note.* /run/nvidia-imex"
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

        wait_until(idle, "all trays are idle", 150.0)


def provide(racks: RunningLab, trays: list[str] | None = None) -> None:
    """Install the stand-in, from the lab's own repository."""
    packages.add(paths.state_of(racks.name), imex.packages())
    on(racks, trays or TRAYS, install())


def _site(suite: str, folder: Path) -> Iterator[Site]:
    scenario = yaml.safe_load((SCENARIOS / "jobs.yml").read_text())
    file = folder / "jobs.yml"
    file.write_text(yaml.safe_dump({**copy.deepcopy(scenario), "suite": suite}))
    with running_lab(folder, file) as racks:
        site = Site(racks, folder)
        provide(racks)
        site.install()
        yield site


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from _site("trixie", tmp_path_factory.mktemp("trixie"))


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from _site("forky", tmp_path_factory.mktemp("forky"))


@pytest.fixture
def site(older: Site) -> Site:
    older.reset()
    return older


@pytest.fixture(params=["older", "newer"])
def each(request: pytest.FixtureRequest) -> Site:
    """24.11, then 26.05."""
    found: Site = request.getfixturevalue(request.param)
    found.reset()
    return found


@pytest.fixture(params=["older", pytest.param("newer", marks=pytest.mark.minutes)])
def each_in_time(request: pytest.FixtureRequest) -> Site:
    """As `each`, for tests that do not depend on Slurm's version: 26.05 only with the mark minutes."""
    found: Site = request.getfixturevalue(request.param)
    found.reset()
    return found


# --- Success.


def test_a_job_over_two_cliques_gets_two_imex_domains(each: Site) -> None:
    printed = each.ctl(f"srun --label --exclusive -N4 sh -c '{SHOW}'")
    first, second = ("198.51.100.11,198.51.100.12", "198.51.100.13,198.51.100.14")
    assert sorted(printed.splitlines()) == [
        f"{number}: {nodes} READY channel1" if "channel1" in printed else f"{number}: {nodes} READY {_channel(printed)}"
        for number, nodes in enumerate((first, first, second, second))
    ]
    each.is_clean()
    assert "IMEX domain of 2 trays of clique a ready in" in each.journal("r01t01")


def _channel(printed: str) -> str:
    """The one channel that all tasks print."""
    found = {line.split()[-1] for line in printed.splitlines()}
    assert len(found) == 1, printed
    return found.pop()


def test_two_jobs_on_one_clique_have_separate_domains_and_channels(each_in_time: Site) -> None:
    each_in_time.settings(clique=TRAYS)
    script = f"{SHOW}; sleep 3; nvidia-imex-ctl -N -j"
    parts = [
        f"srun --exclusive -N2 -w {','.join(trays)} sh -c '{script}' > {trays[0]}.out &" for trays in (FIRST, SECOND)
    ]
    each_in_time.ctl(f"{' '.join(parts)} wait")
    channels = set()
    for trays in (FIRST, SECOND):
        lines = each_in_time.ctl(f"cat {trays[0]}.out; rm {trays[0]}.out").splitlines()
        shown = [line for line in lines if "READY channel" in line]
        nodes = ",".join(ADDRESSES[tray] for tray in trays)
        assert {line.split()[0] for line in shown} == {nodes}
        assert len({line.split()[2] for line in shown}) == 1
        channels.add(shown[0].split()[2])
        for answer in (json.loads(line) for line in lines if line.startswith("{")):
            assert answer["status"] == "UP"
            assert {node["host"] for node in answer["nodes"].values()} == {ADDRESSES[tray] for tray in trays}
    assert len(channels) == 2
    each_in_time.is_clean()


def test_a_prolog_that_succeeds_sends_no_request_to_slurmctld(each: Site) -> None:
    """By slurmctld's own count of requests: with the program and without it they are of the same types."""

    def requests() -> dict[str, int]:
        each.ctl("sdiag --reset")
        printed = each.ctl("for i in 1 2 3; do srun --exclusive -N4 true; done; sleep 1; sdiag")
        table = printed.partition("by message type")[2].partition("by user")[0]
        return {row[0]: int(row[1]) for row in re.findall(r"(\w+) *\( *\d+\) *count:(\d+)", table)}

    with_it = requests()
    try:
        for tray in TRAYS:
            # Not removed: a Prolog pattern that matches no file is a failure to Slurm.
            each.on(tray, f"for f in {PROLOG} {EPILOG}; do echo '#!/bin/sh' > $f; done")
        without = requests()
    finally:
        each.install()
    assert "REQUEST_COMPLETE_PROLOG" in with_it
    polled = {"MESSAGE_NODE_REGISTRATION_STATUS", "REQUEST_PING", "REQUEST_STATS_INFO", "REQUEST_NODE_INFO"}
    assert set(with_it) - polled <= set(without) | polled
    for name in ("REQUEST_JOB_INFO_SINGLE", "REQUEST_JOB_INFO", "REQUEST_UPDATE_JOB", "REQUEST_JOB_REQUEUE"):
        assert with_it.get(name, 0) == without.get(name, 0)


def test_a_job_of_one_tray_gets_a_daemon_only_with_min_trays_1(site: Site) -> None:
    script = f"sh -c 'pgrep -x nvidia-imex || echo none; {SHOW}'"
    assert "none" in site.ctl(f"srun -N1 -w r01t01 {script}")
    assert "none" in site.ctl(f"srun --exclusive -N2 -w r01t01,r01t03 {script}")
    site.settings(min_trays=1)
    assert "198.51.100.11 READY" in site.ctl(f"srun --exclusive -N1 -w r01t01 {script}")
    site.is_clean()


def test_a_tray_without_a_clique_runs_its_jobs(site: Site) -> None:
    site.settings(clique=[])
    site.on("r01t01", f"""sed -i 's/"members": .*\\]\\]/"members": []/' {state.SETTINGS_FILE}""")
    assert site.ctl("srun --exclusive -N2 -w r01t01,r01t03 hostname").split() != []


# --- Late members and leftovers, with which the job still gets READY.


def test_the_daemon_reconnects_to_a_late_member(site: Site) -> None:
    for tray in FIRST:
        order(site.racks, tray, imex_backoff="30")
    site.settings(wait=25)
    late = "/etc/slurm/prolog.d/90-late"  # Slurm runs them in reverse order of their names
    site.on("r01t02", f"printf '#!/bin/sh\\nexec /bin/sleep 2\\n' > {late}; chmod 755 {late}")
    try:
        began = time.monotonic()
        assert "READY" in site.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{SHOW}'")
        assert time.monotonic() - began < 20  # its own next attempt would be after 30 s
    finally:
        site.on("r01t02", f"rm {late}")


def test_the_daemon_of_a_job_whose_epilog_did_not_run(site: Site) -> None:
    site.on("r01t02", f"mkdir -p {RUN}; echo '{{}}' > {RUN}/state.json")
    site.on("r01t02", "printf '198.51.100.12\\n198.51.100.11\\n' > /etc/nvidia-imex/nodes_config.cfg")
    site.on("r01t02", "systemctl start nvidia-imex")
    assert site.on("r01t02", "pgrep -x nvidia-imex")
    late = "/etc/slurm/prolog.d/90-late"
    site.on("r01t02", f"printf '#!/bin/sh\\nexec /bin/sleep 2\\n' > {late}; chmod 755 {late}")
    site.settings(wait=25)
    try:
        # The first tray connects to the old daemon, and the two do not match until both restart.
        printed = site.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{SHOW}'")
        assert printed.count("198.51.100.11,198.51.100.12 READY") == 2, printed
    finally:
        site.on("r01t02", f"rm {late}")
    site.is_clean()


def test_an_unclean_stop_does_not_delay_the_next_job(site: Site) -> None:
    order(site.racks, "r01t01", imex_imports="true")
    script = "sleep 4; test $(hostname) = r01t01 && pkill -KILL -x nvidia-imex; sleep 1"
    site.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{script}'")
    site.is_clean()
    assert "READY" in site.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{SHOW}'")


# --- Faults: one reason each, and the policy applied to job and tray.

FAULTS = {
    "blocked": ({"imex_block": "peer"}, "r01t01", "r01t02 "),
    "hangs": ({"imex": "hang"}, "r01t02", "gave no answer"),
    "garbage": ({"imex": "garbage"}, "r01t02", "printed no table"),
    "in use": ({"imex": "in_use"}, "r01t02", "NV_ERR_IN_USE"),
    "crashes": ({"imex": "crash"}, "r01t02", "nvidia-imex.service"),
    "start hangs": ({"imex": "start_hangs"}, "r01t02", "did not start within"),
    "never ready": ({"imex": "init_gpu"}, "r01t02", "init_gpu"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_in_one_reason_and_the_job_is_requeued(site: Site, fault: str) -> None:
    hooks, witness, text = FAULTS[fault]
    site.settings(wait=8)
    order(site.racks, "r01t02", **hooks)
    number = site.submit(f"-N2 -w {','.join(FIRST)} -o /tmp/%j.out")
    site.state_is(number, "PENDING")
    wait_until(lambda: site.job(number)["Restarts"] == "1", "it was requeued")
    wait_until(lambda: text in site.journal(witness), f"{text} in {site.journal(witness)}")
    # The job's log has it too; the trays of the lab do not share a file system.
    log = f"cat /tmp/{number}.out"
    wait_until(lambda: f"IMEX on {witness} for job" in site.on(witness, log), "the job's log has the reason")
    assert "drain" not in site.ctl("sinfo -hN -o %T")
    site.ctl(f"scancel {number}")
    site.is_clean()


def test_a_version_that_differs(site: Site) -> None:
    try:
        order(site.racks, "r01t02", driver_version=imex.versions()[1])
        on(site.racks, ["r01t02"], install(version=1))
        number = site.submit(f"-N2 -w {','.join(FIRST)}")
        wait_until(lambda: site.job(number).get("Restarts") == "1", "it was requeued")
        assert "another version of IMEX than on this tray (!V!) runs on r01t02" in site.journal("r01t01")
    finally:
        order(site.racks, "r01t02", driver_version=imex.versions()[0])
        on(site.racks, ["r01t02"], install())


def test_lists_that_differ(site: Site) -> None:
    site.settings(["r01t01"], wait=9)
    site.settings(["r01t02"], clique=FIRST[::-1], wait=9)
    number = site.submit(f"-N2 -w {','.join(FIRST)}")
    wait_until(lambda: site.job(number).get("Restarts") == "1", "it was requeued", 60.0)
    assert "started with another node list than this tray (!M!): r01t02" in site.journal("r01t01")
    site.ctl(f"scancel {number}")
    site.is_clean()


def test_a_tray_that_dies_before_the_start(site: Site) -> None:
    site.racks.stop("r01t02")
    try:
        site.settings([tray for tray in TRAYS if tray != "r01t02"], wait=8)
        number = site.submit(f"-N2 -w {','.join(FIRST)}")
        wait_until(lambda: "r01t02 " in site.journal("r01t01"), "the other tray names the missing one")
        wait_until(lambda: site.job(number)["Restarts"] == "1", "it was requeued")
        site.ctl(f"scancel {number}")
        site.is_clean(["r01t01"])
    finally:
        _revive(site)


@pytest.mark.minutes
def test_a_tray_that_dies_during_the_start(site: Site) -> None:
    """Its daemon runs, and ends before the two are connected."""
    order(site.racks, "r01t02", imex_block="peer")
    try:
        site.settings([tray for tray in TRAYS if tray != "r01t02"], wait=15)
        number = site.submit(f"-N2 -w {','.join(FIRST)}")
        wait_until(lambda: bool(site.on("r01t02", "pgrep -x nvidia-imex")), "its daemon runs")
        site.racks.stop("r01t02")
        wait_until(lambda: "r01t02 " in site.journal("r01t01"), "the other tray names the missing one", 60.0)
        wait_until(lambda: site.job(number)["Restarts"] == "1", "it was requeued")
        site.ctl(f"scancel {number}")
        site.is_clean(["r01t01"])
    finally:
        _revive(site)


@pytest.mark.minutes
def test_a_tray_that_reboots_under_a_job(site: Site) -> None:
    """/run is cleared, and the list goes at boot: nothing starts by itself, and the next job gets its domain."""
    number = site.submit(f"-N2 -w {','.join(FIRST)}", "srun sleep 600")
    wait_until(lambda: "ready in" in site.journal("r01t02"), "it runs")
    Racks(site.racks, site.folder).boot("r01t02")
    assert site.on("r01t02", "pgrep -x nvidia-imex; systemctl is-active nvidia-imex") == "inactive\n"
    assert site.on("r01t02", f"test ! -e {NODES_FILE} && echo gone") == "gone\n"
    site.ctl(f"scancel {number}")
    site.is_clean(["r01t01"])
    site.resume()
    printed = site.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{SHOW}'")
    assert printed.count("198.51.100.11,198.51.100.12 READY") == 2, printed
    site.is_clean()


def test_a_tray_that_dies_while_the_job_runs(site: Site) -> None:
    number = site.submit(f"-N2 -w {','.join(FIRST)}", "srun sleep 600")
    wait_until(lambda: "ready in" in site.journal("r01t01"), "it runs")
    try:
        site.racks.stop("r01t02")
        site.ctl("scontrol update NodeName=r01t02 State=DOWN Reason=power")
        site.state_is(number, "PENDING", "NODE_FAIL", "FAILED", "CANCELLED")
        site.ctl(f"scancel {number}")
        site.is_clean(["r01t01"])
    finally:
        _revive(site)


def _revive(site: Site) -> None:
    """Start a stopped tray, which comes back empty."""
    # The lab's start waits for an idle node, and Slurm drains this one: so it is resumed again and again.
    resume = "for i in $(seq 90); do scontrol update NodeName=r01t02 State=RESUME; sleep 1; done"
    again = inside(site.racks, "ctl", "sh", "-c", f"({resume}) >/dev/null 2>&1")
    try:
        site.racks.start("r01t02")
    finally:
        again.kill()
        again.wait(timeout=20)
    on(site.racks, ["r01t02"], install())
    site.install()
    site.resume()


def test_a_prolog_that_is_killed(each_in_time: Site) -> None:
    each_in_time.settings(wait=12)
    order(each_in_time.racks, "r01t02", imex_block="peer")
    number = each_in_time.submit(f"-N2 -w {','.join(FIRST)}")
    wait_until(lambda: bool(each_in_time.on("r01t01", "pgrep -x nvidia-imex")), "the daemon of the first tray runs")
    each_in_time.on("r01t01", "pkill -KILL -f '^/usr/bin/python3 -IS .*nvlink-imex-job prolog'")
    # To Slurm that is a failed prolog: the tray is drained, the job requeued, and the epilog cleans up.
    wait_until(lambda: "drain" in each_in_time.ctl("sinfo -h -n r01t01 -o %T"), "the tray is drained")
    each_in_time.is_clean(["r01t01"])
    order(each_in_time.racks, "r01t02", imex_block="none")
    each_in_time.ctl(f"scancel {number}")
    each_in_time.is_clean()
    each_in_time.resume()
    assert "READY" in each_in_time.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{SHOW}'")


@pytest.mark.parametrize("policy", ["drain", "requeue"])
def test_a_job_that_is_cancelled_meanwhile_stays_cancelled(site: Site, policy: str) -> None:
    """The prolog that still waits must not requeue it, nor drain its peers because their daemons ended."""
    site.settings(policy=policy, wait=10)
    order(site.racks, "r01t02", imex_block="peer")
    number = site.submit(f"-N2 -w {','.join(FIRST)}")
    wait_until(lambda: bool(site.on("r01t01", "pgrep -x nvidia-imex")), "the first tray waits")
    site.ctl(f"scancel {number}")
    wait_until(lambda: "already" in site.on("r01t01", "cat /tmp/slurm-*.out"), "the prolog has ended")
    site.is_clean()
    wait_until(lambda: site.job(number)["JobState"] != "COMPLETING", "slurmctld received the end of the epilogs")
    assert site.job(number)["JobState"] == "CANCELLED"
    assert "drain" not in site.ctl("sinfo -hN -o %T")


def test_the_policy_drain(each: Site) -> None:
    each.settings(policy="drain", wait=8)
    order(each.racks, "r01t02", imex="in_use")
    number = each.submit(f"-N2 -w {','.join(FIRST)}")
    wait_until(lambda: "drain" in each.ctl("sinfo -h -n r01t02 -o %T"), "the tray is drained")
    assert "Reason=IMEX: " in each.ctl("scontrol show node r01t02")
    assert "NV_ERR_IN_USE" in each.ctl("scontrol show node r01t02")
    each.state_is(number, "PENDING")
    wait_until(lambda: "held" in each.ctl(f"squeue -h -j {number} -o %r"), "the job is held by Slurm")


def test_the_policy_requeue_holds_the_job_after_the_last_requeue(site: Site) -> None:
    site.settings(max_requeues=0, wait=8)
    order(site.racks, "r01t02", imex="in_use")
    number = site.submit(f"-N2 -w {','.join(FIRST)}")
    wait_until(lambda: "held" in site.ctl(f"squeue -h -j {number} -o %r"), "it is held")
    assert "drain" not in site.ctl("sinfo -hN -o %T")
    # Slurm requeues batch jobs only: another job is cancelled, and srun prints why.
    printed = site.ctl(f"timeout 60 srun --exclusive -N2 -w {','.join(FIRST)} hostname")
    assert "NV_ERR_IN_USE" in printed
    assert "r01t01\n" not in printed


def test_the_policy_run(each_in_time: Site) -> None:
    each_in_time.settings(policy="run", wait=8)
    order(each_in_time.racks, "r01t02", imex="in_use")
    number = each_in_time.submit(f"-N2 -w {','.join(FIRST)} -o /tmp/%j.out", "srun hostname")
    each_in_time.state_is(number, "COMPLETED")
    printed = each_in_time.on("r01t01", f"cat /tmp/{number}.out")
    assert {"r01t01", "r01t02"} <= set(printed.splitlines())
    assert "IMEX on r01t02 for job" in printed
    assert "the job runs without IMEX" in printed
    each_in_time.is_clean()
    for tray in FIRST:
        assert each_in_time.on(tray, f"ls {RUN}/note.* 2>/dev/null") == ""


def test_a_job_that_shares_its_trays_is_cancelled(each: Site) -> None:
    number = each.ctl(f"sbatch --parsable -N2 -w {','.join(FIRST)} -o /tmp/%j.out --wrap 'srun hostname'").strip()
    each.state_is(number, "CANCELLED")
    printed = each.on("r01t01", f"cat /tmp/{number}.out")
    assert "shares its trays (SLURM_JOB_" in printed
    assert "--exclusive" in printed
    printed = each.ctl(f"timeout 60 srun -N2 -w {','.join(FIRST)} hostname")
    assert "shares its trays" in printed
    # One tray of each clique needs no IMEX, so it may be shared.
    assert sorted(each.ctl("srun --quiet -N2 -w r01t01,r01t03 hostname").split()) == ["r01t01", "r01t03"]
    assert "drain" not in each.ctl("sinfo -hN -o %T")


def test_a_job_that_owns_every_gpu_of_its_trays_gets_a_domain(each: Site) -> None:
    """Without --exclusive, where Slurm allocates GPUs; a job without GPUs runs beside it, with some it is cancelled."""
    for tray in TRAYS:
        each.on(tray, "mkdir -p /srv/gpus; for n in 0 1 2 3; do mknod /srv/gpus/$n c 1 3; done")
    conf = "cd /etc/slurm; cp slurm.conf slurm.conf.kept; sed -i 's/^NodeName=r01t.*/& Gres=gpu:4/' slurm.conf"
    each.ctl(
        f"{conf}; echo GresTypes=gpu >> slurm.conf;"
        "echo 'NodeName=r01t[01-04] Name=gpu File=/srv/gpus/[0-3]' > gres.conf; scontrol reconfigure"
    )
    trays = f"-N2 -w {','.join(FIRST)}"
    try:
        wait_until(lambda: "gpu:4" in each.ctl("sinfo -hN -o %G"), "Slurm has the GPUs")
        each.resume()
        each.settings(gpus_counted=True, gpus="/srv/gpus", wait=8)
        number = each.ctl(f"sbatch --parsable {trays} -n2 --gpus-per-node=4 --wrap 'sleep 300'").strip()
        wait_until(lambda: "ready in" in each.journal("r01t02"), "the job has its domain")
        daemon = each.on("r01t02", "pgrep -x nvidia-imex")
        assert sorted(each.ctl(f"srun --quiet {trays} --overlap hostname").split()) == FIRST
        assert each.on("r01t02", "pgrep -x nvidia-imex") == daemon
        assert each.job(number)["JobState"] == "RUNNING"
        each.ctl(f"scancel {number}")
        each.is_clean()
        printed = each.ctl(f"timeout 60 srun {trays} --gpus-per-node=2 hostname")
        assert "with all GPUs of its trays (--gpus-per-node)" in printed
        assert "drain" not in each.ctl("sinfo -hN -o %T")
        each.is_clean()
    finally:
        each.ctl(
            "scancel --user=root; cd /etc/slurm; mv slurm.conf.kept slurm.conf; rm -f gres.conf; scontrol reconfigure"
        )
        each.resume()


def test_a_heterogeneous_job_has_one_domain_in_a_clique_or_is_cancelled(each: Site) -> None:
    """The whole job ends, not a component; components in cliques of their own, or on one tray, run."""
    for second, states in (("r01t02", ("CANCELLED",)), ("r01t03", ("COMPLETED",))):
        number = each.ctl(
            f"sbatch --parsable -o /tmp/%j.out --exclusive -N1 -w r01t01 : --exclusive -N1 -w {second}"
            " --wrap 'srun --het-group=0,1 hostname'"
        ).strip()
        for component in (number, str(int(number) + 1)):
            each.state_is(component, *states)
    printed = each.on("r01t01", "cat /tmp/*.out")
    assert "components +0, +1 of heterogeneous job" in printed
    assert "have trays in clique a" in printed
    assert "drain" not in each.ctl("sinfo -hN -o %T")
    each.is_clean()


def test_a_requeue_of_a_heterogeneous_job_is_of_all_components(site: Site) -> None:
    """Slurm requeues by the first component only, also where the second one's domain fails."""
    site.settings(wait=8)
    order(site.racks, "r01t04", imex="in_use")
    number = site.ctl(
        f"sbatch --parsable --exclusive -N1 -w r01t01 : --exclusive -N2 -w {','.join(SECOND)} --wrap 'srun true'"
    ).strip()
    wait_until(lambda: site.job(number).get("Restarts") == "1", "it is requeued")
    assert site.job(number)["JobState"] != "CANCELLED"


def test_a_job_that_shrinks_keeps_one_domain_on_the_trays_that_stay(each: Site) -> None:
    """Those that leave are clean, and the next job there has a domain of its own while the smaller job runs."""
    each.settings(clique=TRAYS)
    number = each.submit("-N4", "sleep 300")
    for tray in TRAYS:
        wait_until(lambda tray=tray: "ready in" in each.journal(tray), "the domain of four trays is up")
    each.ctl(f"scontrol update JobId={number} NodeList={','.join(FIRST)}")
    assert each.job(number)["NumNodes"] == "2"
    each.is_clean(SECOND)
    assert each.ctl(f"srun --exclusive -N2 -w {','.join(SECOND)} sh -c '{SHOW}'").count("READY") == 2
    peers = json.loads(each.on("r01t01", "nvidia-imex-ctl -N -j"))["nodes"]
    rows = {row["host"]: row["connections"].values() for row in peers.values()}
    for first in FIRST:
        states = {link["host"]: link["status"] for link in rows[ADDRESSES[first]]}
        assert {states[ADDRESSES[second]] for second in FIRST} == {"CONNECTED"}
        assert "CONNECTED" not in {states[ADDRESSES[other]] for other in SECOND}
    assert each.job(number)["JobState"] == "RUNNING"
    each.ctl(f"scancel {number}")
    each.is_clean()


def test_one_job_at_a_time_in_a_clique(site: Site) -> None:
    site.settings(clique=TRAYS, scope="clique_exclusive")
    holder = site.submit(f"-N2 -w {','.join(FIRST)}", "srun sleep 300")
    wait_until(lambda: "ready in" in site.journal("r01t01"), "the first job has its domain")
    other = site.submit(f"-N2 -w {','.join(SECOND)}")
    wait_until(lambda: site.job(other).get("Restarts") == "1", "the second is requeued")
    assert "another job's IMEX domain runs in clique a (on r01t01, r01t02)" in site.journal("r01t03")
    assert site.job(holder)["JobState"] == "RUNNING"
    # A job of single trays has no domain, so it does not count.
    assert site.ctl("srun --quiet --exclusive -N1 -w r01t04 hostname") == "r01t04\n"
    site.ctl(f"scancel {holder} {other}")
    site.is_clean()
    assert site.ctl(f"srun --exclusive -N2 -w {','.join(SECOND)} sh -c '{SHOW}'").count("READY") == 2


def test_the_driver_without_channels_and_channel0(site: Site) -> None:
    site.settings(channel0=True)
    number = site.submit(f"-N2 -w {','.join(FIRST)}")
    wait_until(lambda: site.job(number).get("Restarts") == "1", "it was requeued")
    assert "the driver has no IMEX channels" in site.journal("r01t01")
    site.ctl(f"scancel {number}")
    for tray in FIRST:
        site.on(tray, "printf 'Character devices:\\n  4 nvidia-caps-imex-channels\\n' > /root/devices")
    site.settings(channel0=True, proc_devices="/root/devices")
    number = site.submit(f"-N2 -w {','.join(FIRST)}", "srun sleep 300")
    wait_until(lambda: "ready in" in site.journal("r01t01"), "it runs")
    device = "stat -c '%a %Hr %Lr' /dev/nvidia-caps-imex-channels/channel0"
    assert site.on("r01t01", device) == "666 4 0\n"
    site.ctl(f"scancel {number}")
    site.is_clean(FIRST)
    assert site.on("r01t01", f"{device} 2>&1") != "666 4 0\n"


# --- The epilog by itself.

ENVIRON = "env -i SLURM_JOB_ID=%s SLURMD_NODENAME=r01t01 SLURM_JOB_NODELIST=r01t01 SLURM_JOB_NUM_NODES=1"


def test_an_epilog_without_a_prolog_and_twice(site: Site) -> None:
    for _time in range(2):
        assert site.on("r01t01", f"{ENVIRON % 999} {EPILOG} && echo fine") == "fine\n"
    number = site.submit(f"-N2 -w {','.join(FIRST)}", "srun sleep 300")
    wait_until(lambda: "ready in" in site.journal("r01t01"), "it runs")
    # The epilog of another job does not stop the daemon.
    assert site.on("r01t01", f"{ENVIRON % 999} {EPILOG} && pgrep -x nvidia-imex") != ""
    for _time in range(2):
        assert site.on("r01t01", f"{ENVIRON % number} {EPILOG} && echo fine") == "fine\n"
    site.is_clean(["r01t01"])
    site.ctl(f"scancel {number}")
    site.is_clean()


def test_a_daemon_that_ignores_sigterm(site: Site) -> None:
    for tray in FIRST:
        site.on(tray, f"sed -i s/^TimeoutStopSec=.*/TimeoutStopSec=2/ {job_files.DROP_IN}; systemctl daemon-reload")
    order(site.racks, "r01t01", imex="deaf", imex_imports="true")
    assert "READY" in site.ctl(f"srun --exclusive -N2 -w {','.join(FIRST)} sh -c '{SHOW}; sleep 3'")
    site.is_clean()
    assert "did not end by SIGTERM" in site.journal("r01t01")
    assert "did not end" not in site.journal("r01t02")
    assert site.on("r01t01", "ls /run/nvidia-imex/persist.dat 2>/dev/null") == ""
    order(site.racks, "r01t01", imex="ok", imex_imports="false")
    site.install()


def test_an_unmanaged_daemon_is_not_stopped(site: Site) -> None:
    site.on(
        "r01t01",
        "echo 198.51.100.11 > /root/nodes; sed 's#^IMEX_NODE.*#IMEX_NODE_CONFIG_FILE=/root/nodes#'"
        " /etc/nvidia-imex/config.cfg > /root/foreign.cfg",
    )
    site.on("r01t01", "systemd-run --quiet --unit=foreign --property=Type=forking nvidia-imex -c /root/foreign.cfg")
    try:
        number = site.submit(f"-N2 -w {','.join(FIRST)}")
        wait_until(lambda: site.job(number).get("Restarts") == "1", "it was requeued")
        assert "that neither a job nor nvidia-imex.service started" in site.journal("r01t01")
        assert site.on("r01t01", "systemctl is-active foreign") == "active\n"
    finally:
        site.on("r01t01", "systemctl stop foreign")


# --- The role.


def test_the_role_changes_the_owner_to_job_and_back(site: Site) -> None:
    """One domain per clique, then per job, then none; a running job is not stopped and blocks the change."""
    racks = Racks(site.racks, site.folder)
    racks.cliques({"a": FIRST, "b": SECOND})
    options: dict[str, Any] = {"imex_manage_package": False, "imex_job_wait": 20, "imex_job_policy": "requeue"}
    site.install(state="absent")
    try:
        play = racks.role(imex_owner="domain", **options)
        assert play.rc == 0, play.text
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
        wait_until(lambda: "ready in" in site.journal("r01t03"), "the job runs")
        daemon = site.on("r01t03", "pgrep -x nvidia-imex")
        assert "IMEX_ENABLE_AUTH_ENCRYPTION=1\n" in site.on("r01t03", f"cat {files.CONFIG_FILE}")
        shown = f"import ssl; print(ssl.get_server_certificate(('{ADDRESSES['r01t03']}', 50000), timeout=5).strip())"
        certificate = site.on("r01t03", f"cat {domain.TLS_FILES['certificate']}")
        assert certificate.strip() == site.on("r01t04", f'python3 -c "{shown}"').strip() != ""
        play = racks.role(imex_owner="job", **options)
        assert (play.rc, {recap["changed"] for recap in play.recap.values()}) == (0, {0}), play.text
        play = racks.role(imex_owner="none", **options)
        assert play.rc != 0
        assert f"Job {number} has its IMEX domain on this tray" in play.text
        assert site.on("r01t03", "pgrep -x nvidia-imex") == daemon
        assert site.job(number)["JobState"] == "RUNNING"
        site.ctl(f"scancel {number}")
        site.is_clean()
        play = racks.role(imex_owner="none", **options)
        assert play.rc == 0, play.text
        left = site.on("r01t01", f"ls {state.SETTINGS_FILE} {job_files.DROP_IN} {RUN} 2>/dev/null")
        assert left == ""
        # The lab's slurm.conf names it as TaskProlog.
        assert site.on("r01t01", f"cat {job_files.PROGRAM}") == job_files.NOOP
        assert site.on("r01t01", f"ls -d {domain.TLS_FOLDER} 2>/dev/null") == ""
    finally:
        site.install()


# --- The module.


def test_the_module_changes_nothing_twice_and_leaves_nothing(site: Site) -> None:
    site.install()  # reset() writes the settings in another format
    assert unchanged(site.install().stdout)
    shown = site.install("--check", "--diff", wait=7).stdout
    assert '"wait": 7' in shown
    assert "changed=1" in shown
    assert unchanged(site.install().stdout)
    number = site.submit(f"-N2 -w {','.join(FIRST)}", "srun sleep 300")
    wait_until(lambda: "ready in" in site.journal("r01t01"), "it runs")
    assert unchanged(site.install().stdout)  # a job's daemon is not stopped
    blocked = site.install(check=False, state="absent")
    assert f"Job {number} has its IMEX domain on this tray" in blocked.stdout + blocked.stderr
    site.ctl(f"scancel {number}")
    site.is_clean()
    try:
        printed = site.install("-v", state="absent").stdout
        assert "imex_job_prolog_empty" in printed
        assert unchanged(site.install(state="absent").stdout)
        # Slurm's Prolog must match a file; the remaining one does nothing.
        site.ctl("srun -Q -N2 --exclusive true")
        wait_until(lambda: site.ctl("sinfo -hN -o %T").split() == ["idle"] * 4, "all trays are idle again")
        assert site.on("r01t01", f"cat {PROLOG} {EPILOG} {job_files.PROGRAM}") == 3 * job_files.NOOP
        on(site.racks, TRAYS, "echo ClusterName=nvlab > /root/slurm.conf")
        site.install(state="absent", slurm_conf="/root/slurm.conf")
        left = site.on("r01t01", f"ls {PROLOG} {EPILOG} {job_files.PROGRAM} {job_files.DROP_IN} {RUN} 2>/dev/null")
        assert left == ""
        assert site.on("r01t01", "systemctl show -p TimeoutStartUSec --value nvidia-imex") == "infinity\n"
    finally:
        site.install()


def test_the_module_disables_and_unmasks_the_unit(site: Site) -> None:
    site.install()
    site.on(
        "r01t01", "printf '198.51.100.11\\n' > /etc/nvidia-imex/nodes_config.cfg; systemctl enable -q --now nvidia-imex"
    )
    site.on("r01t02", "systemctl mask -q nvidia-imex")
    printed = site.install().stdout
    assert printed.count("changed=1") == 2
    assert (
        site.on("r01t01", "systemctl is-enabled nvidia-imex; systemctl is-active nvidia-imex") == "disabled\ninactive\n"
    )
    assert site.on("r01t02", "systemctl is-enabled nvidia-imex") == "disabled\n"


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        (
            "Prolog=/etc/slurm/prolog.d/*\nEpilog=/etc/slurm/epilog.d/*\n",
            "PrologFlags in /root/slurm.conf has no Alloc",
        ),
        ("PrologFlags=Alloc\nPrologEpilogTimeout=60\n", "PrologEpilogTimeout=60"),
        ("PrologFlags=Alloc\n", "add Prolog=/etc/slurm/prolog.d/* and Epilog=/etc/slurm/epilog.d/*"),
    ],
)
def test_the_module_rejects_a_slurm_conf_that_would_not_run_it(site: Site, conf: str, text: str) -> None:
    on(site.racks, TRAYS, f"printf '%s' '{conf}' > /root/slurm.conf")
    done = site.install(check=False, slurm_conf="/root/slurm.conf")
    assert done.returncode != 0
    assert text in " ".join((done.stdout + done.stderr).replace("\\n", " ").split())
    site.install()


def test_a_prolog_of_the_sites_own_may_call_the_program(site: Site) -> None:
    for entry in ("prolog", "epilog"):
        on(site.racks, TRAYS, f"printf '#!/bin/sh\n{job_files.PROGRAM} {entry}\n' > /root/site-{entry}")
    conf = "PrologFlags=Alloc\nProlog=/root/site-prolog\nEpilog=/root/site-epilog\n"
    on(site.racks, TRAYS, f"printf '%s' '{conf}' > /root/slurm.conf")
    try:
        site.install(slurm_conf="/root/slurm.conf")
    finally:
        site.install()


def test_a_tray_without_slurm(site: Site) -> None:
    done = site.install(check=False, slurm_conf="/root/none.conf")
    assert "There is no slurm.conf on this tray" in done.stdout + done.stderr


@pytest.mark.two_racks
def test_a_rack_split_in_two_and_a_whole_rack(tmp_path: Path) -> None:
    """36 trays: each clique of one big job gets its own domain of its own size."""
    scenario = yaml.safe_load((SCENARIOS / "two-racks.yml").read_text())
    scenario["slurm"] = yaml.safe_load((SCENARIOS / "jobs.yml").read_text())["slurm"]
    scenario["suite"] = "forky"
    file = tmp_path / "jobs.yml"
    file.write_text(yaml.safe_dump(scenario))
    with running_lab(tmp_path, file) as racks:
        _split_rack(Site(racks, tmp_path))


def _split_rack(site: Site) -> None:
    shown = yaml.safe_load(site.racks.inventory.read_text())["all"]["children"]["trays"]["hosts"]
    trays = sorted(shown)
    address = {tray: shown[tray]["ansible_host"] for tray in trays}
    cliques = {"r01": trays[:18], "r02a": trays[18:27], "r02b": trays[27:]}
    hosts = {
        tray: {"clique": clique, "members": [{"node": name, "address": address[name]} for name in members]}
        for clique, members in cliques.items()
        for tray in members
    }
    variables = site.folder / "members.yml"
    variables.write_text(yaml.safe_dump({"trays": {"hosts": hosts}}))
    options = {**OPTIONS, "wait": 60, "clique": "{{ clique }}", "members": "{{ members }}"}
    provide(site.racks, trays)
    tasks = [{"rackscale.nvlink.imex_job": options}]
    book = site.folder / "job.yml"
    book.write_text(yaml.safe_dump([{"hosts": "trays", "gather_facts": False, "tasks": tasks}]))
    ansible("ansible-playbook", "-i", site.racks.inventory, "-i", variables, book, "--forks", "8")
    printed = site.ctl(
        "srun --exclusive -N36 sh -c 'echo $(hostname) $(paste -sd, /etc/nvidia-imex/nodes_config.cfg)'", 120
    )
    rows = dict(line.split() for line in printed.splitlines())
    assert rows == {
        tray: ",".join(address[name] for name in members) for members in cliques.values() for tray in members
    }
