# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check undocumented behavior of Slurm that the rules rely on, with real daemons of both versions.

Each test is one sentence of docs/slurm.md, section "What real daemons do". The first half needs no slurmd: a job on
CLOUD nodes holds its nodes and its channel while they start up, which they never do here.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import conf as slurm_conf

from .conftest import RunningLab, running_lab
from .slurm_site import FILE, wait_for
from .slurmctld import SUITES, Slurmctld, sandbox

pytestmark = [pytest.mark.lab, pytest.mark.long]

# Racks of four, and two more whose trays have weights.
BASE = 4
BLOCKS = {name: f"{name}t[1-4]" for name in ("r01", "r02", "r03", "w01", "w02")}
TRAYS = "r01t[1-4],r02t[1-4],r03t[1-4]"
SCHEDULER = "SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,default_queue_depth=3000,bf_interval=1"
CHANNELS = "/dev/nvidia-caps-imex-channels"
each_suite = pytest.mark.parametrize("suite", sorted(SUITES))


class Cluster:
    """A sandbox of slurmctld with the blocks; every method is a user's command."""

    def __init__(self, slurmctld: Slurmctld, *lines: str, blocks: dict[str, str] | None = None) -> None:
        self.slurmctld = slurmctld
        self.new = slurmctld.suite == "forky"
        nodes = [
            slurmctld.nodes(names, f"Port=[2{rack}001-2{rack}004]", f"Weight={10 if name == 'w01' else 1}")
            for rack, (name, names) in enumerate(BLOCKS.items(), 1)
        ]
        nodes.append(f"{slurmctld.nodes('cpu[1-8]', 'Port=[26001-26008]')}".replace("CPUs=4", "CPUs=2000"))
        slurmctld.configure(
            *nodes,
            f"PartitionName=gpu Nodes={TRAYS} Default=YES",
            "PartitionName=weighted Nodes=w01t[1-4],w02t[1-4]",
            "PartitionName=cpu Nodes=cpu[1-8]",
            f"PartitionName=mixed Nodes={TRAYS},cpu[1-8]",
            "ResumeTimeout=600",
            "SelectTypeParameters=CR_Core",
            *lines,
            plugin="" if self.new else "topology/block",
            select="select/cons_tres",
        )
        self.write(blocks or BLOCKS)
        slurmctld.start()

    def write(self, blocks: dict[str, str]) -> None:
        made = Topology(
            "nvlink" if self.new else "default",
            blocks=tuple(Block(name, tuple(expand(nodes) if nodes else ())) for name, nodes in blocks.items()),
            block_sizes=(BASE,),
        )
        style = "yaml" if self.new else "conf"
        (self.slurmctld.conf_dir / FILE[self.slurmctld.suite]).write_text(files.render([made], style))

    def run(self, *command: str) -> str:
        return self.slurmctld.run(*command).stdout.strip()

    def placed(self, *options: str) -> list[str] | None:
        """The nodes of a job with --test-only; None where it never starts."""
        output = self.slurmctld.run("sbatch", "--test-only", *options, "--wrap", "true").stderr
        assert "start at" in output or "not available" in output or "not fit" in output, output
        return expand(output.partition(" on nodes ")[2].split(" ")[0]) if "start at" in output else None

    def submit(self, *options: str) -> str:
        done = self.slurmctld.run("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", "true")
        assert done.stdout.strip(), done.stderr
        return done.stdout.strip()

    def job(self, job: str) -> tuple[str, str, str]:
        """State, nodes, reason."""
        state, nodes, reason = self.run("squeue", "-h", "-j", job, "-o", "%t|%N|%r").split("|")
        return state, nodes, reason

    def nodes(self, job: str) -> list[str]:
        """Of a job that starts."""
        wait_for(lambda: self.job(job)[0] == "CF")
        return expand(self.job(job)[1])

    def waits(self, job: str) -> str:
        """The reason of a pending job, after slurmctld has evaluated it."""
        wait_for(lambda: self.job(job)[2] not in ("None", "Priority"))
        state, _nodes, reason = self.job(job)
        assert state == "PD"
        return reason

    def cancel(self, *jobs: str) -> None:
        self.run("scancel", *(jobs or ("-u", "root")))
        wait_for(lambda: not self.run("squeue", "-h", *(("-j", ",".join(jobs)) if jobs else ())))

    def handed_out(self) -> list[int]:
        """The channels in the order in which slurmctld gave them to jobs."""
        return [int(number) for number in re.findall(r"allocating channel (\d+) to ", self.slurmctld.log.read_text())]


@contextlib.contextmanager
def cluster(suite: str, directory: Path, *lines: str, blocks: dict[str, str] | None = None) -> Iterator[Cluster]:
    with sandbox(suite, directory / "slurm") as slurmctld:
        yield Cluster(slurmctld, SCHEDULER, *lines, blocks=blocks)


@pytest.fixture(scope="module", params=sorted(SUITES))
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(request.param, tmp_path_factory.mktemp("facts")) as made:
        yield made


@pytest.fixture
def racks(shared: Cluster) -> Iterator[Cluster]:
    """Idle at the start of each test."""
    yield shared
    shared.cancel()


# ---------------------------------------------------------------------------------------------------- placement


def test_exclusive_topo_closes_every_block_that_the_job_uses(racks: Cluster) -> None:
    used = racks.nodes(racks.submit("-N5", "--exclusive=topo"))
    closed = {name[:3] for name in used}
    assert len(closed) == 2
    free = [name for name in expand(TRAYS) if name not in used]
    inside = [racks.submit("-N1", "-n1", "-w", name) for name in free if name[:3] in closed]
    outside = [racks.submit("-N1", "-n1", "-w", name) for name in free if name[:3] not in closed]
    for job in outside:
        racks.nodes(job)
    assert len(inside) == 3
    assert {racks.job(job)[0] for job in inside} == {"PD"}
    assert racks.waits(inside[0]) == "Resources"


def busy(racks: Cluster) -> None:
    """Three of four trays are free in each rack."""
    for rack in ("r01", "r02", "r03"):
        racks.nodes(racks.submit("-N1", "-n1", "--exclusive", "-w", f"{rack}t4"))


def test_a_range_of_nodes_is_its_least_number(racks: Cluster) -> None:
    flat = racks.submit("-p", "cpu", "-N3-6", "--exclusive")
    assert len(racks.nodes(flat)) == 6, "without blocks a job gets as many as there are"
    blocks = racks.submit("-N3-6", "--exclusive")
    assert len(racks.nodes(blocks)) == 3
    racks.cancel(flat, blocks)
    busy(racks)
    # Four may touch one rack, where three are free. Five may touch two, which would do.
    waits = racks.submit("-N4-12", "--exclusive")
    racks.waits(waits)
    assert len(racks.nodes(racks.submit("-N5-12", "--exclusive"))) == 5
    assert racks.job(waits)[0] == "PD"


def test_nodes_in_no_block_serve_a_job_only_where_no_tray_could(racks: Cluster) -> None:
    """A partition with both kinds, of which `slurm_node_uncovered` warns."""
    assert racks.placed("-p", "mixed", "-N12") is not None
    assert racks.placed("-p", "mixed", "-N13") is None, "never both kinds in one job"
    assert racks.placed("-p", "mixed", "-N13", "-x", "r01t1") is None
    assert racks.placed("-p", "mixed", "-N2", "-w", "cpu1,r01t1") is None
    assert set(racks.placed("-p", "mixed", "-N2", "-c8") or ()) <= set(expand("cpu[1-8]"))
    racks.nodes(racks.submit("-N8", "--exclusive", "-w", "r01t[1-4],r02t[1-4]"))
    racks.nodes(racks.submit("-N3", "--exclusive", "-w", "r03t[2-4]"))
    # One tray is free, and so are all eight of the others; the job waits for two trays.
    job = racks.submit("-p", "mixed", "-N2", "--exclusive")
    assert racks.waits(job) == ("No suitable topology unit found" if racks.new else "Resources")
    racks.nodes(racks.submit("-N1", "--exclusive", "-w", "r03t1"))
    # No tray is free: now they serve it.
    assert set(racks.nodes(job)) <= set(expand("cpu[1-8]"))


@each_suite
def test_a_block_is_created_by_the_file_and_not_live(suite: str, tmp_path: Path) -> None:
    def move(block: str) -> bool:
        return made.slurmctld.run("scontrol", "update", "nodename=r03t4", f"topology=nvlink:{block}").returncode == 0

    with cluster(suite, tmp_path, "PartitionName=one Nodes=block{r01}", "PartitionName=gone Nodes=block{r09}") as made:
        # A block as a hostlist function; one that is missing leaves a partition without nodes, without a message.
        assert " Nodes=r01t[1-4] " in made.run("scontrol", "-o", "show", "partition", "one")
        assert " TotalNodes=0 " in made.run("scontrol", "-o", "show", "partition", "gone")
        assert not move("spare")
        if made.new:
            made.write({**BLOCKS, "spare": ""})
            assert made.slurmctld.run("scontrol", "reconfigure").returncode == 0
            assert move("spare")
            assert "BlockName=spare BlockIndex=5 Nodes=r03t4 " in made.run("scontrol", "show", "topology")
        else:
            assert not move("r01"), "24.11 has no live moves"


# ----------------------------------------------------------------------------------- the pool of IMEX channels


def imex(count: int | None) -> tuple[str, ...]:
    lines = ["SwitchType=switch/nvidia_imex", "SlurmctldDebug=debug", "DebugFlags=Switch", "MaxArraySize=4000"]
    return (*lines, *([f"SwitchParameters=imex_channel_count={count}"] if count else []))


@each_suite
def test_every_job_takes_a_channel_of_the_driver(suite: str, tmp_path: Path) -> None:
    """Jobs on CPU nodes too, without a GPU. What happens where there is none left depends on the version."""
    driver = 5
    count = slurm_conf._channel_count([driver], 1, {})
    assert count == 4
    with cluster(suite, tmp_path, *imex(count)) as made:
        jobs = [made.submit("-p", "cpu", "-n1") for _job in range(count)]
        for job in jobs:
            made.nodes(job)
        on_trays = made.submit("-N1", "-n1")
        if made.new:
            wait_for(lambda: made.job(on_trays)[2] == "NvidiaImexChannels")
            assert made.handed_out() == [1, 2, 3, 4]
        else:
            made.nodes(on_trays)
            assert made.handed_out() == [1, 2, 3], "one less than the count"
            assert made.slurmctld.log.read_text().count("no channel available") == 2
        assert max(made.handed_out()) < driver
        # The lowest free one is given again.
        made.cancel(jobs[1])
        made.nodes(on_trays if made.new else made.submit("-N1", "-n1"))
        assert made.handed_out()[-1] == 2


@each_suite
def test_a_driver_with_two_channels_has_none_for_jobs_before_25_11(suite: str, tmp_path: Path) -> None:
    count = slurm_conf._channel_count([2], 1, {})
    nodes = [slurm_conf.Node("r01t01", "r01t01", "r01", 4)]
    findings = slurm_conf._channel_findings(count, {"r01t01": 2}, nodes)
    assert [row["code"] for row in findings] == ["slurm_channels_none"]
    with cluster(suite, tmp_path, *imex(count)) as made:
        made.nodes(made.submit("-p", "cpu", "-n1"))
        assert made.handed_out() == ([1] if made.new else [])
        assert ("no channel available" in log(made)) is not made.new


@each_suite
def test_channels_of_running_jobs_outlive_slurmctld(suite: str, tmp_path: Path) -> None:
    with cluster(suite, tmp_path, *imex(8)) as made:
        made.nodes(made.submit("-p", "cpu", "-n1"))
        assert made.slurmctld.run("scontrol", "reconfigure").returncode == 0
        made.nodes(made.submit("-p", "cpu", "-n1"))
        made.run("scontrol", "shutdown")
        wait_for(lambda: not made.run("pgrep", "-r", "R,S,D", "^slurmctld"))
        made.slurmctld.launch()
        made.nodes(made.submit("-p", "cpu", "-n1"))
        assert made.handed_out() == [1, 2, 3]


@each_suite
def test_slurms_default_count_is_one_too_many_for_the_driver_from_25_11(suite: str, tmp_path: Path) -> None:
    """A driver has the channels 0 to 2047 by default; Slurm does not query it."""
    last = 2048 if suite == "forky" else 2047
    with cluster(suite, tmp_path, *imex(None)) as made:
        job = made.submit("-p", "cpu", "--array=1-2050", "-n1")
        wait_for(lambda: made.job(f"{job}_2049")[2] == "NvidiaImexChannels" if made.new else "no channel" in log(made))
        assert made.handed_out() == list(range(1, last + 1))
    assert slurm_conf._channel_count([], 1, {}) == 2047


def log(made: Cluster) -> str:
    return made.slurmctld.log.read_text()


# -------------------------------------------------------------------------------- channels on trays, with real jobs

LAST = 3  # imex_channel_count: 24.11 has two of them


class Lab:
    """Four trays in two blocks of two, each job with a channel of its own."""

    def __init__(self, lab: RunningLab, suite: str) -> None:
        self.lab, self.new = lab, suite == "forky"
        wait_for(lambda: len(expand(self.ctl("sinfo -h -t idle -o %N"))) == 4, 60)

    def ctl(self, script: str) -> str:
        return self.lab.exec("ctl", "sh", "-c", script).stdout.strip()

    def submit(self, options: str, script: str = "sleep 300", output: str = "/dev/null") -> str:
        job = self.ctl(f"sbatch --parsable -o {output} {options} --wrap '{script}'")
        wait_for(lambda: self.ctl(f"squeue -h -j {job} -o %t") == "R")
        return job

    def step(self, job: str) -> set[str]:
        """The channels of a job step on all its trays."""
        return set(self.ctl(f"srun --overlap --jobid={job} ls {CHANNELS}").split())

    def on_tray(self, tray: str, script: str = f"ls {CHANNELS}") -> str:
        return self.lab.exec(tray, "sh", "-c", script).stdout.strip()

    def restart_slurmd(self, tray: str) -> None:
        self.on_tray(tray, "systemctl restart slurmd")
        wait_for(lambda: self.ctl(f"sinfo -h -n {tray} -o %t") in ("idle", "mix", "alloc"), 30)


def scenario(suite: str) -> str:
    blocks = tuple(Block(name, tuple(expand(nodes))) for name, nodes in (("a", "r01t[01-02]"), ("b", "r01t[03-04]")))
    name, style = ("nvlink", "yaml") if suite == "forky" else ("default", "conf")
    slurm = {
        "conf": ["SwitchType=switch/nvidia_imex", f"SwitchParameters=imex_channel_count={LAST},imex_dev_major=4"],
        "files": {FILE[suite]: files.render([Topology(name, blocks=blocks, block_sizes=(2,))], style)},
    }
    if suite == "trixie":
        slurm["topology_plugin"] = "topology/block"
    return json.dumps({"suite": suite, "slurm": slurm, "racks": [{"name": "r01", "trays": 4}]})


@pytest.fixture(scope="module", params=sorted(SUITES))
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("lab")
    path = directory / "channels.yml"
    path.write_text(scenario(request.param))
    with running_lab(directory, path) as lab:
        yield Lab(lab, request.param)


@pytest.fixture
def trays(running: Lab) -> Iterator[Lab]:
    yield running
    running.ctl("scancel -u root")
    wait_for(lambda: not running.ctl("squeue -h"))


def test_two_jobs_on_one_tray_see_only_their_own_channel(trays: Lab) -> None:
    jobs = [trays.submit("-n1 -c1 -w r01t01") for _job in range(2)]
    assert [trays.step(job) for job in jobs] == [{"channel1"}, {"channel2"}]
    # A device that every user may open, in a mount of the step alone.
    listed = trays.ctl(f"srun --overlap --jobid={jobs[1]} stat -c '%A %t %T' {CHANNELS}/channel2")
    assert listed == "crw-rw-rw- 4 2"
    assert trays.on_tray("r01t01") == ""
    if trays.new:
        assert trays.ctl(f"scontrol show resources {jobs[1]}").endswith(" Channel=2")


def test_a_job_has_one_channel_on_all_its_trays_or_one_for_each_segment(trays: Lab) -> None:
    command = "srun -N4 --segment=2 {} sh -c 'echo $(hostname) $(ls " + CHANNELS + ")'"
    for option in ("", *(["--network=unique-channel-per-segment"] if trays.new else [])):
        lines = dict(line.split() for line in trays.ctl(command.format(option)).splitlines())
        first, second = ({lines[f"r01t0{tray}"] for tray in pair} for pair in ((1, 2), (3, 4)))
        assert len(first) == len(second) == 1
        assert (first == second) is (option == "")


def test_slurmd_removes_the_channels_of_others_and_steps_keep_theirs(trays: Lab) -> None:
    job = trays.submit("-n1 -c1 -w r01t01")
    make = f"mknod -m 666 {CHANNELS}/channel0 c 4 0"
    trays.on_tray("r01t01", make)
    trays.ctl("scontrol reconfigure")
    wait_for(lambda: trays.on_tray("r01t01") == "", 30)
    trays.on_tray("r01t01", make)
    trays.restart_slurmd("r01t01")
    assert trays.on_tray("r01t01") == ""
    assert trays.step(job) == {"channel1"}


def test_without_a_channel_of_slurm_a_job_has_those_of_the_tray(trays: Lab) -> None:
    """Before 25.11 neither batch scripts nor jobs beyond the count have one: a channel0 left there is open to all."""
    tray = "r01t02"
    trays.on_tray(tray, f"mknod -m 666 {CHANNELS}/channel0 c 4 0")
    trays.submit(f"-n1 -c1 -w {tray}", f"ls {CHANNELS} > /tmp/batch; sleep 300")
    trays.submit(f"-n1 -c1 -w {tray}")
    wait_for(lambda: trays.on_tray(tray, "cat /tmp/batch") != "")
    assert trays.on_tray(tray, "cat /tmp/batch") == ("channel1" if trays.new else "channel0")
    if trays.new:
        third = trays.submit(f"-n1 -c1 -w {tray}")
        assert trays.step(third) == {"channel3"}
        fourth = trays.ctl(f"sbatch --parsable -o /dev/null -n1 -c1 -w {tray} --wrap true")
        wait_for(lambda: trays.ctl(f"squeue -h -j {fourth} -o %r") == "NvidiaImexChannels")
    else:
        beyond = trays.submit(f"-n1 -c1 -w {tray}")
        assert trays.step(beyond) == {"channel0"}
    trays.on_tray(tray, f"rm {CHANNELS}/channel0")
