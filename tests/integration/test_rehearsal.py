# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rehearsal with real slurmctlds, 24.11 and 26.05: its results, its isolation and its cleanup."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import sandbox as isolation
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import steps, topology_files
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_corpus
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import programs

from .slurm_site import wait_for
from .slurmctld import EACH_SUITE, Slurmctld, sandbox
from .stage import Stage

pytestmark = pytest.mark.lab

ALL = "r[01-02]t[01-18]"
WHOLE = slurm_corpus.RACKS
SPLIT = (("r01", "r01t[01-18]"), ("r02a", "r02t[01-09]"), ("r02b", "r02t[10-18]"))


def nodes(hostlist: str = ALL, *more: str) -> str:
    return f"NodeName={hostlist} CPUs=4 {' '.join(more)}"


@pytest.fixture(params=EACH_SUITE, scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A slurmctld of either version that runs the two whole racks."""
    with sandbox(request.param, tmp_path_factory.mktemp("stage") / "slurm") as made:
        plugin = "topology/block" if request.param == "trixie" else ""
        made.configure(made.nodes(ALL), f"PartitionName=gpu Nodes={ALL} Default=YES", plugin=plugin)
        style = "conf" if plugin else "yaml"
        blocks = tuple(Block(name, tuple(expand(hostlist)), hostlist) for name, hostlist in WHOLE)
        topology = Topology(name="default" if plugin else "nvlink", blocks=blocks, block_sizes=(18,))
        (made.conf_dir / scontrol.FILE_NAMES[style]).write_text(
            topology_files.render([topology, *([] if plugin else [slurm_corpus.flat()])], style)
        )
        made.start()
        yield Stage(made)


@pytest.fixture
def folder(stage: Stage) -> Path:
    """A plain site of two racks."""
    return stage.site(
        "plain",
        "ClusterName=plain",
        "SlurmctldHost=elsewhere",
        nodes(),
        "PartitionName=DEFAULT MaxNodes=30 State=DOWN",
        f"PartitionName=gpu Nodes={ALL} Default=YES MaxNodes=36",
        "PartitionName=small Nodes=r02t[01-18] MaxNodes=4",
    )


def start_afresh(slurmctld: Slurmctld) -> None:
    """Restart without the jobs and the states of nodes that it has saved."""
    slurmctld.kill_slurmctld()
    slurmctld.run("sh", "-c", "rm -rf /var/spool/slurmctld/*")
    slurmctld.launch()


def codes(findings: list[dict[str, Any]]) -> list[str]:
    return [found["code"] for found in findings]


# ---------------------------------------------------------------------------------------------------------- results


@pytest.mark.long
def test_test_jobs_get_the_nodes_that_real_jobs_get(stage: Stage) -> None:
    slurmctld = stage.slurmctld
    jobs = [{"nodes": 1}, {"nodes": 9}, {"nodes": 18}, {"nodes": 20}, {"nodes": 36}, {"nodes": 37}]
    jobs += [{"nodes": 32, "segment": 16}, {"nodes": 36, "segment": 9}, {"nodes": 32, "segment": 20}]
    rehearsal, _findings = stage.rehearse(stage.request(slurmctld.conf_dir, WHOLE, [18], jobs=jobs))
    assert rehearsal["complete"], rehearsal
    outcomes = [outcome for outcome in rehearsal["outcomes"] if outcome["kind"] == "site"]
    assert len(outcomes) == len(jobs)
    for job, outcome in zip(jobs, outcomes, strict=True):
        # The same job for real, in a cluster that is as empty as it was in the rehearsal.
        start_afresh(slurmctld)
        segment = [f"--segment={job['segment']}"] if "segment" in job else []
        arguments = [f"--nodes={job['nodes']}", *segment, "--exclusive", "--chdir=/", "--output=/dev/null"]
        slurmctld.run("sh", "-c", 'cd / && exec "$@"', "sh", "sbatch", *arguments, "--wrap", "true")
        # Nodes, or the reason why slurmctld has considered it and not started it; none where sbatch refuses it.
        shown: list[str] = []

        def considered(shown: list[str] = shown, starts: bool = outcome["outcome"] == "placed") -> bool:
            shown[:] = slurmctld.run("squeue", "--noheader", "--format=%N|%r").stdout.strip().split("|")
            return bool(shown[0]) if starts else shown != ["", "None"]

        wait_for(considered)
        placed = shown[0]
        assert sorted(expand(placed)) == sorted(expand(outcome["on"])), (job, outcome, placed)
        assert (outcome["outcome"] == "refused") == (not placed)
        assert bool(outcome["reason"]) == (not placed)


def test_every_block_and_partition_is_tested(stage: Stage, folder: Path) -> None:
    rehearsal, findings = stage.rehearse(
        stage.request(folder, SPLIT, [9], jobs=[{"nodes": 18, "segment": 9, "partition": "gpu"}])
    )
    outcomes = {
        (outcome["kind"], outcome["block"] or outcome["partition"], outcome["nodes"], outcome["segment"]): outcome
        for outcome in rehearsal["outcomes"]
    }
    for block, full in (("r01", 18), ("r02a", 9), ("r02b", 9)):
        outcome = outcomes["block", block, full, 0]
        assert (outcome["outcome"], outcome["blocks"]) == ("placed", [block])
    # The partition's own limits count; that it is down for now does not.
    assert outcomes["partition", "small", 1, 0]["outcome"] == "placed"
    assert outcomes["partition", "small", 9, 0]["outcome"] == "refused"
    assert "max nodes" in outcomes["partition", "small", 9, 0]["reason"]
    assert len(outcomes["partition", "gpu", 19, 0]["blocks"]) > 1
    assert outcomes["site", "gpu", 18, 9]["outcome"] == "placed"
    # A base size below a clique's: its job may be spread, on both versions. A finding, no objection.
    assert outcomes["spread", "nvlink_rehearsal", 18, 0]["outcome"] == "placed"
    assert outcomes["spread", "nvlink_rehearsal", 9, 0]["outcome"] == "refused"
    assert codes(findings) == ["slurm_clique_above_base"]
    loads = f"a private slurmctld {rehearsal['version']} loads the new files and places jobs on 3 of 3 blocks."
    assert steps.summary(rehearsal) == f"Rehearsal: {loads}"


def test_a_refusal_is_attributed_to_the_new_files_or_to_the_present_ones(stage: Stage, folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    rehearsal, findings = stage.rehearse(stage.request(folder, WHOLE, [18, 20]))
    assert codes(findings) == ["slurm_rehearsal_refused"]
    assert rehearsal["fatal"] in findings[0]["message"]
    assert "BlockSizes" in rehearsal["fatal"]
    assert steps.summary(rehearsal).endswith(f" refuses the new files: {rehearsal['fatal']}.")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    # A partition to write belongs to the new files.
    partition = "PartitionName=x Nodes=nowhere[1-2]\n"
    include = {str(folder / "slurm.conf"): (folder / "slurm.conf").read_text() + partition}
    rehearsal, findings = stage.rehearse(stage.request(folder, WHOLE, [18], writes=include))
    assert codes(findings) == ["slurm_rehearsal_refused"]
    # One that is there already does not: then it is not the topology that is refused.
    wrong = stage.site("wrong", "ClusterName=wrong", nodes(), partition)
    rehearsal, findings = stage.rehearse(stage.request(wrong, WHOLE, [18]))
    assert codes(findings) == ["slurm_rehearsal_job"]
    assert not rehearsal["ran"]
    assert rehearsal["fatal"] == "Invalid node names in partition x"


def test_settings_that_need_services_or_programs_are_left_out(stage: Stage) -> None:
    mark = stage.code / "mark"
    programs(stage.code, marks=f"touch {mark}")
    marks = stage.code / "marks"
    folder = stage.site(
        "hostile",
        "ClusterName=hostile",
        "SlurmctldHost=ctl(192.0.2.77)",
        "SlurmctldHost=standby(192.0.2.78)",
        "SlurmUser=nobody",
        "AuthType=auth/munge",
        "AuthInfo=socket=/nowhere",
        "CredType=cred/munge",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=192.0.2.79",
        "AccountingStorageEnforce=limits,qos",
        "AccountingStoragePass=secret-of-the-site",
        "AccountingStorageTRES=gres/gpu",
        "PriorityType=priority/multifactor",
        "PreemptType=preempt/qos",
        "PreemptMode=REQUEUE",
        "JobSubmitPlugins=lua",
        "CliFilterPlugins=lua",
        f"PlugStackConfig={stage.slurmctld.conf_dir}/hostile/plugstack.conf",
        *(
            f"{key}={marks}"
            for key in ("Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld", "TaskProlog", "HealthCheckProgram")
        ),
        *(f"{key}={marks}" for key in ("SuspendProgram", "ResumeProgram", "RebootProgram", "MailProg")),
        "SuspendTime=1",
        "HealthCheckInterval=1",
        "StateSaveLocation=/nowhere/state",
        "SlurmctldLogFile=/nowhere/log",
        "SwitchType=switch/nvidia_imex",
        "GresTypes=gpu",
        "NodeFeaturesPlugins=node_features/helpers",
        "Licenses=matlab:1",
        "NodeName=DEFAULT CPUs=4 State=UNKNOWN Gres=gpu:4",
        f"NodeName={ALL} NodeHostname={ALL} Feature=gb200",
        "NodeSet=all Feature=gb200",
        f"PartitionName=gold Nodes={ALL} QOS=gold AllowQos=gold,silver AllowAccounts=physics Default=YES",
        "PartitionName=fun Nodes=all DenyAccounts=x AllowGroups=staff AllocNodes=login TRESBillingWeights=gres/gpu=1",
        "Include more_%c.conf",
        "Include missing.conf",
    )
    (folder / "more_hostile.conf").write_text("PartitionName=inc Nodes=r01t[01-18] QOS=\\\n  gold ReqResv=YES\n")
    (folder / "plugstack.conf").write_text("required /nowhere/spank.so\n")
    (folder / "job_submit.lua").write_text(f"os.execute('touch {mark}')\n")
    shutil.copy(folder / "job_submit.lua", folder / "cli_filter.lua")
    rehearsal, findings = stage.rehearse(stage.request(folder, WHOLE, [18]))
    assert rehearsal["loaded"], rehearsal
    assert findings == []
    assert {outcome["partition"] for outcome in rehearsal["outcomes"]} == {"nvlink_rehearsal", "gold", "fun", "inc"}
    assert not mark.exists()
    assert "secret-of-the-site" not in json.dumps(rehearsal)


# ------------------------------------------------------------------------------------- the running slurmctld's answers


def wrong(answers: dict[str, Any]) -> list[tuple[Any, ...]]:
    assert (answers["why"], answers["asked"]) == ("", answers["planned"])
    return [(row["kind"], row["block"], row["outcome"], row["trays"], row["rehearsed"]) for row in answers["rows"]]


def test_the_running_slurmctld_keeps_what_its_blocks_promise(stage: Stage) -> None:
    slurmctld = stage.slurmctld
    before = stage.traces()
    answers = stage.ask()
    assert wrong(answers) == []
    # Two blocks, segments of both, all trays, and whether the partition takes a job at all.
    assert (answers["asked"], answers["left_out"], answers["counts"]) == (5, 0, [18, 18])
    slurmctld.run("scontrol", "update", "nodename=r02t05", "state=drain", "reason=test")
    answers = stage.ask()
    assert wrong(answers) == []
    assert (answers["left_out"], answers["counts"]) == (1, [18, 17])
    assert slurmctld.run("squeue", "-h").stdout == ""
    leaves_nothing(stage, before)
    start_afresh(slurmctld)


# --------------------------------------------------------------------------------------------- isolation and cleanup


def test_a_rehearsal_changes_nothing_and_leaves_nothing(stage: Stage) -> None:
    slurmctld = stage.slurmctld
    folder = stage.site(
        "quiet", "ClusterName=quiet", "SlurmctldPort=6817", nodes(), f"PartitionName=gpu Nodes={ALL} Default=YES"
    )

    def state() -> tuple[Any, ...]:
        running = slurmctld.run("pgrep", "-x", "slurmctld").stdout, slurmctld.run("scontrol", "show", "topo").stdout
        return stage.traces(), *running

    before = state()
    with socket.socket() as taken, contextlib.suppress(OSError):
        taken.bind(("0.0.0.0", 6817))  # the port of the rehearsal's slurmctld; may be taken already
        taken.listen()
        both = [stage.start(stage.request(folder, WHOLE, [18], jobs=[{"nodes": 18}] * 50)) for _both in range(2)]
        answers = [json.loads(process.communicate(timeout=240)[0]) for process in both]
        for answer in answers:
            assert answer["findings"] == []
            assert answer["rehearsal"]["complete"]
            assert answer["rehearsal"]["placed"] > 50
    wait_for(lambda: state() == before)
    assert slurmctld.answers(60)


def test_a_kill_in_the_middle_leaves_nothing(stage: Stage) -> None:
    folder = stage.site("killed", "ClusterName=killed", nodes(), f"PartitionName=gpu Nodes={ALL}")
    before = stage.traces()
    process = stage.start(stage.request(folder, WHOLE, [18], jobs=[{"nodes": 18}] * 20000))
    wait_for(lambda: stage.rehearsing() or process.poll() is not None)
    assert process.poll() is None
    # nsenter forks into the process namespace: the module's process is its child.
    child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    os.kill(child, signal.SIGKILL)
    process.communicate(timeout=60)
    leaves_nothing(stage, before)


def leaves_nothing(stage: Stage, before: object) -> None:
    """All is as it was. The kernel ends the processes of a rehearsal one after the other."""
    deadline = time.monotonic() + 60
    while (now := stage.traces()) != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert now == before


def replaced(stage: Stage, name: str, script: str) -> str:
    """A folder of Slurm's programs with a script in place of one."""
    folder = stage.code / f"other-{name}"
    folder.mkdir()
    for other, place in {"scontrol": "bin", "sbatch": "bin", "slurmctld": "sbin"}.items():
        if other != name:
            (folder / other).symlink_to(f"/usr/{place}/{other}")
    programs(folder, **{name: script})
    return str(folder)


@pytest.mark.long
@pytest.mark.parametrize("stage", ["forky"], indirect=True, scope="module")
def test_the_time_is_bounded_and_results_until_then_are_returned(stage: Stage) -> None:
    """The limit leaves slurmctld a minute to start on a busy machine; jobs that leave out trays have no answer."""
    folder = stage.site("slow", "ClusterName=slow", nodes(), f"PartitionName=gpu Nodes={ALL} Default=YES")
    hang = 'case "$*" in *--exclude=*) exec sleep 600;; esac\nexec /usr/bin/sbatch "$@"'
    bin_dir = replaced(stage, "sbatch", hang)
    before = stage.traces()
    request = stage.request(folder, WHOLE, [18], timeout=60, bin_dir=bin_dir)
    rehearsal, findings = stage.rehearse(request)
    assert codes(findings) == ["slurm_rehearsal_job"]
    assert rehearsal["placed"] > 0
    assert not rehearsal["complete"]
    assert rehearsal["seconds"] < 100
    leaves_nothing(stage, before)
    rehearsal, findings = stage.rehearse(stage.request(folder, WHOLE, [18], timeout=0.001))
    assert codes(findings) == ["slurm_rehearsal_job"]
    assert not rehearsal["ran"]
    assert "in time" in rehearsal["why"]
    leaves_nothing(stage, before)


@pytest.mark.parametrize(
    ("wrapper", "why"),
    [
        (("setpriv", "--reuid=65534", "--clear-groups"), "needs root"),
        (("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"), "namespaces"),
        (("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"), "not permitted"),
    ],
)
def test_a_host_that_does_not_permit_a_sandbox_is_a_finding(
    stage: Stage, folder: Path, wrapper: tuple[str, ...], why: str
) -> None:
    before = stage.traces()
    rehearsal, findings = stage.rehearse(stage.request(folder, WHOLE, [18]), *wrapper)
    assert codes(findings) == ["slurm_rehearsal_skipped"]
    assert why in rehearsal["why"].lower()
    assert steps.summary(rehearsal) == f"No rehearsal: {rehearsal['why']}."
    leaves_nothing(stage, before)


PROBE = """
import glob, json, os, signal, socket, sys
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import sandbox


def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.strerror
    return "done"


def work(box):
    folders = ["/etc", "/usr/bin", "/var/lib", "/var/spool/slurmctld", "/tmp", *sys.argv[1:]]
    return {
        "writes": {folder: attempt(open, os.path.join(folder, "mark"), "w") for folder in folders},
        "status": box.run("cat", "/proc/self/status").stdout,
        "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
        "interfaces": box.run("cat", "/proc/net/dev").stdout.count(":"),
        "outside": attempt(socket.create_connection, ("198.51.100.1", 80), 1),
        "run": os.listdir("/run"),
        "host": os.uname().nodename,
        "remount": box.run("mount", "-o", "remount,rw", "/").returncode,
        "memory": box.run("python3", "-c", "bytearray(6 << 30)").stderr.strip(),
    }


programs = {name: "/usr/bin/" + name for name in ("cat", "mount", "python3")}
print(json.dumps(sandbox.run_inside(work, programs, 120)))
"""


def test_the_sandbox_is_isolated(stage: Stage) -> None:
    before = stage.traces()
    folder = str(stage.slurmctld.conf_dir)
    command = [*stage.command()[:-2], "-c", PROBE, folder]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=240, check=False)
    assert done.stdout, done.stderr
    inside = json.loads(done.stdout)
    assert set(inside["writes"].values()) == {"Read-only file system"}, inside["writes"]
    status = dict(line.split(":\t", 1) for line in inside["status"].splitlines() if ":\t" in line)
    assert set(status["Uid"].split()) == {str(isolation.USER)}
    assert {int(status[key], 16) for key in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"
    assert status["Groups"].strip() == ""
    assert inside["processes"] == 1
    assert inside["interfaces"] == 1
    assert inside["outside"] == "Network is unreachable"
    assert inside["run"] == [isolation.FOLDER.rpartition("/")[2]]
    assert inside["host"] == isolation.HOST
    assert inside["remount"] != 0
    assert inside["memory"].endswith("MemoryError")
    leaves_nothing(stage, before)


def test_a_slurmctld_that_hangs_is_ended(stage: Stage, folder: Path) -> None:
    bin_dir = replaced(stage, "slurmctld", "sleep 1000 & sleep 1000")
    before = stage.traces()
    rehearsal, findings = stage.rehearse(stage.request(folder, WHOLE, [18], bin_dir=bin_dir, timeout=1))
    assert codes(findings) == ["slurm_rehearsal_job"]
    assert "in time" in rehearsal["why"]
    leaves_nothing(stage, before)
