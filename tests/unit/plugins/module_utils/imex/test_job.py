# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decisions of the prolog by its environment and settings, and the files of IMEX per job."""

from __future__ import annotations

import ast
import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, domain, formats, job_files, job_host
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import daemon, failure, main, state, wait
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import programs
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import probe
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex.imex_fleet import domain_json
from hypothesis import given
from hypothesis import strategies as st

TRAYS = tuple((f"r01t{number:02}", f"10.0.0.{number}") for number in range(1, 19))
OPTIONS: dict[str, Any] = {
    "imex_job_policy": "drain",
    "imex_job_wait": 60,
    "imex_job_stop_wait": 20,
    "imex_job_min_trays": 2,
    "imex_job_max_requeues": 3,
    "imex_job_channel0": "auto",
    "imex_job_path": [],
    "imex_job_slurm_conf": "",
    "imex_job_prolog_dir": "/etc/slurm/prolog.d",
    "imex_job_epilog_dir": "/etc/slurm/epilog.d",
    "imex_job_python": sys.executable,
}


def named(options: dict[str, Any]) -> dict[str, Any]:
    return {f"imex_job_{name}": value for name, value in options.items()}


def desire(owner: str = "job", members: Any = TRAYS, **options: Any) -> domain.DesiredState:
    """The desired state of a tray of r01, by members of the clique and options of IMEX per job."""
    nodes, entries = zip(*members)
    job = {**OPTIONS, **named(options)}
    program = base64.b64encode(programs.of_job(job["imex_job_python"])).decode() if owner == "job" else ""
    return domain.DesiredState(owner, "r01", entries, nodes=nodes, job=job, job_program=program)


def findings(desired: domain.DesiredState, allow_jobs: bool = False) -> list[Any]:
    return job_host.findings_of(desired, job_host.read(desired.owner, desired.job, desired.nodes), allow_jobs)


def made(desired: domain.DesiredState, generation: int = 0) -> dict[str, tuple[bytes | None, int]]:
    return job_host.files_of(desired, generation, job_host.read(desired.owner, desired.job, desired.nodes))


SETTINGS = state.Settings("r01", TRAYS)


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _environ(**more: str) -> dict[str, str]:
    """Of the prolog of an exclusive job of two trays."""
    known = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "r01t01", "SLURM_JOB_NODELIST": "r01t[01-02]"}
    return {**known, "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_OVERSUBSCRIBE": "NO", **more}


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a prolog has done to a daemon; it runs in tmp_path, where a test writes its programs too."""
    done: list[str] = []
    monkeypatch.setattr(state, "RUN", str(tmp_path))
    (tmp_path / "settings").write_text(job_files.render_settings(SETTINGS))
    for module in (state, main):
        monkeypatch.setattr(module, "SETTINGS_FILE", str(tmp_path / "settings"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(failure, "clear", lambda _settings: done.append("clear"))
    for name in ("clear", "stop_daemon", "start_daemon"):
        monkeypatch.setattr(main, name, lambda *_arguments, name=name: done.append(name))
    for name in ("remove", "wait_for_peers", "write_text", "log"):
        monkeypatch.setattr(main, name, lambda *_arguments, **_options: None)
    return done


# From prologs of real slurmds of 24.11.5 and 26.05.5 (four GPUs a tray); SLURM_JOB_GPUS is not set without GPUs.
@pytest.mark.parametrize(
    ("sharing", "exclusive", "gpus", "counted", "expected"),
    [
        ("NO", None, None, False, "domain"),
        ("TOPO", None, None, False, "domain"),
        ("NO", "TOPO", None, False, "domain"),
        ("OK", None, None, False, "SLURM_JOB_OVERSUBSCRIBE=OK"),
        ("", None, None, False, "SLURM_JOB_OVERSUBSCRIBE="),
        ("NO", "NO", None, False, "SLURM_JOB_EXCLUSIVE=NO"),
        ("NO", "USER", None, False, "SLURM_JOB_EXCLUSIVE=USER"),
        # A job that is not exclusive, but has every GPU or none.
        ("OK", None, "0,1,2,3", True, "domain"),
        ("OK", None, None, True, "nothing"),
        ("OK", None, "0,1", True, "SLURM_JOB_OVERSUBSCRIBE=OK"),
        ("OK", None, "0,0,1,2", True, "SLURM_JOB_OVERSUBSCRIBE=OK"),
        ("OK", None, "0,1,2,3", False, "SLURM_JOB_OVERSUBSCRIBE=OK"),
    ],
)
def test_a_job_gets_a_domain_where_every_gpu_is_its_own(
    tmp_path: Path,
    begun: list[str],
    sharing: str,
    exclusive: str | None,
    gpus: str | None,
    counted: bool,
    expected: str,
) -> None:
    for number in range(4):
        (tmp_path / "gpus" / f"0000:0{number}").mkdir(parents=True)
    settings = SETTINGS._replace(gpus_counted=counted, gpus=str(tmp_path / "gpus"))
    environ = _environ(SLURM_JOB_OVERSUBSCRIBE=sharing)
    environ.update({"SLURM_JOB_EXCLUSIVE": exclusive} if exclusive else {})
    environ.update({"SLURM_JOB_GPUS": gpus} if gpus else {})
    refused = re.escape(f"shares its trays ({expected})") + ".*--gpus-per-node"
    with pytest.raises(state.Failure, match=refused) if "=" in expected else contextlib.nullcontext() as found:
        main.prolog(settings, environ)
    assert found is None or found.value.fault == state.JOB
    assert bool(begun) is (expected == "domain")


@pytest.mark.parametrize(
    "step",
    [
        lambda environ: main.prolog(SETTINGS, environ),  # it waited for the lock
        lambda _environ: daemon.start_daemon(time.monotonic() + 60),
    ],
)
def test_a_prolog_starts_no_daemon_after_a_change_of_owner(tmp_path: Path, begun: list[str], step: Any) -> None:
    (tmp_path / "settings").unlink()
    _script(tmp_path / "systemctl", f"touch {tmp_path}/called")
    with pytest.raises(state.Failure, match="IMEX got another owner on this tray") as found:
        step(_environ())
    assert (found.value.fault, begun, state.read_state()) == (state.CLIQUE, [], None)
    assert not (tmp_path / "called").exists()


def test_a_start_that_hangs_is_the_reason(tmp_path: Path, begun: list[str]) -> None:
    _script(tmp_path / "systemctl", "exec sleep 60")
    with pytest.raises(state.Failure, match=r"nvidia-imex\.service did not start within 0 s"):
        daemon.start_daemon(time.monotonic())


@pytest.mark.parametrize(("text", "called"), [(None, "AdminComment"), ("{}", "State=DRAIN")])
def test_settings_that_are_gone_requeue_the_job_and_invalid_ones_drain_the_tray_too(
    tmp_path: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch, text: str | None, called: str
) -> None:
    (tmp_path / "settings").unlink()
    if text:
        (tmp_path / "settings").write_text(text)
    _script(tmp_path / "scontrol", f"echo $* >> {tmp_path}/called")
    _script(tmp_path / "squeue", "echo 77 RUNNING")
    monkeypatch.setattr(main, "SYSTEM_PATH", f"{tmp_path}:{main.SYSTEM_PATH}")
    monkeypatch.setattr(state, "RUN", f"{tmp_path}/run")
    assert main.main(["prolog"], _environ()) == 0
    lines = (tmp_path / "called").read_text().splitlines()
    assert called in lines[0]
    assert lines[-1] == "requeue 77"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("sharing", "trays", "known", "rc", "why"),
    [
        # The daemon of a job whose epilog did not run.
        ("NO", "1", "7", 0, ["clear"]),
        ("OK", "1", "7", 0, []),
        # A suspended job: one that needs a domain too is requeued, without a fault of the tray.
        ("NO", "1", "76", 0, []),
        ("NO", "2", "76", 0, "job 76 has its IMEX domain on this tray and is still there"),
        ("NO", "2", "76", 1, "start slurmctld"),
    ],
)
def test_a_job_that_slurm_still_has_on_the_tray_keeps_its_domain(
    tmp_path: Path, begun: list[str], sharing: str, trays: str, known: str, rc: int, why: str | list[str]
) -> None:
    state.write_state({"job": "76"})
    _script(tmp_path / "squeue", f"echo $* > {tmp_path}/called; echo {known}; exit {rc}")
    with pytest.raises(state.Failure, match=why) if isinstance(why, str) else contextlib.nullcontext() as found:
        main.prolog(SETTINGS, _environ(SLURM_JOB_OVERSUBSCRIBE=sharing, SLURM_JOB_NUM_NODES=trays))
    assert found is None or found.value.fault == state.CLIQUE
    assert begun == ([] if found else why)
    if sharing == "NO":
        called = "--noheader --nodelist=r01t01 --states=running,suspended,stopped --format=%A\n"
        assert (tmp_path / "called").read_text() == called
    assert state.read_state() == {"job": "76"}


@pytest.mark.parametrize(
    ("second", "refused"),
    [
        ("r01t[03-18]", True),
        ("r01t01", False),  # within a tray GPUs need no IMEX
        ("r02t01", False),
        ("", False),  # it waits for its trays
    ],
)
def test_components_of_a_heterogeneous_job_in_one_clique_are_refused(
    tmp_path: Path, begun: list[str], second: str, refused: bool
) -> None:
    """By squeue of the leader, which lists every component; no other job asks slurmctld."""
    rows = f"77+0 r01t01\\n77+1 {second}\\n"
    _script(tmp_path / "squeue", f"printf '{rows}'; echo $* >> {tmp_path}/called")
    main.prolog(SETTINGS, _environ())
    assert not (tmp_path / "called").exists()
    words = r"components \+0, \+1 of heterogeneous job 77 .* clique r01"
    with pytest.raises(state.Failure, match=words) if refused else contextlib.nullcontext() as found:
        main.prolog(SETTINGS, _environ(SLURM_HET_JOB_ID="77"))
    assert found is None or found.value.fault == state.JOB
    assert "--noheader --jobs=77 --states=all --format=%i %N\n" in (tmp_path / "called").read_text()


@pytest.mark.parametrize(
    ("second", "environ", "called"),
    [
        ("GRES=", {}, "requeuehold 77"),
        # A comment of the user decides nothing about the job's state.
        ("GRES=gpu:gb200:4(IDX:0-3)\\n Comment=x JobState=CANCELLED\\n Nodes=--bogus[ GRES=no", {}, "requeue 77"),
        ("GRES=gpu:gb200:4(IDX:0-3)", {}, "requeue 77"),
        ("GRES=gpu:gb200:4(IDX:0-3)", {"SLURM_HET_JOB_ID": "70"}, "requeue 70"),
    ],
)
def test_a_peer_that_does_not_answer_is_the_jobs_fault_only_where_it_has_no_gpu(
    tmp_path: Path, begun: list[str], second: str, environ: dict[str, str], called: str
) -> None:
    """By the job's allocation: the prolog of a tray without GPUs starts no daemon."""
    shown = (
        f"JobId=77 JobState=RUNNING Restarts=0\\n Nodes=r01t01 GRES=gpu:gb200:4(IDX:0-3)\\n Nodes=r01t02 {second}\\n"
    )
    _script(tmp_path / "scontrol", f"case $* in *show*) printf '{shown}';; *) echo $* >> {tmp_path}/called;; esac")
    _script(tmp_path / "squeue", "echo 78 COMPLETED; echo 77 RUNNING")
    settings = SETTINGS._replace(policy="requeue", gpus_counted=True)
    job = _environ(SLURM_JOB_OVERSUBSCRIBE="OK", SLURM_JOB_GPUS="0,1,2,3", **environ)
    assert failure.apply_policy(settings, job, state.Failure("r01t02 gave no answer", state.PEER)) == 0
    done = (tmp_path / "called").read_text()
    assert called in done
    assert ("the job has no GPU on r01t02" in done) is (called == "requeuehold 77")


@pytest.mark.parametrize(
    ("policy", "fault", "restarts", "batch", "expected"),
    [
        ("drain", state.TRAY, "0", True, (1, "update NodeName=r01t01 State=DRAIN")),
        ("drain", state.CLIQUE, "0", True, (0, "requeue 77")),
        ("drain", state.JOB, "0", True, (0, "requeuehold 77")),
        ("drain", state.JOB, "0", False, (0, "cancel 77")),
        ("requeue", state.TRAY, "0", True, (0, "requeue 77")),
        ("requeue", state.TRAY, "3", True, (0, "requeuehold 77")),
    ],
)
def test_the_policy_decides_about_job_and_tray(
    tmp_path: Path, begun: list[str], policy: str, fault: str, restarts: str, batch: bool, expected: tuple[int, str]
) -> None:
    """The reason is in the job's AdminComment; Slurm requeues batch jobs only. Another job's daemon stays."""
    state.write_state({"job": "76" if batch else "77"})
    refuses = "" if batch else "case $1 in requeue*) exit 1;; esac"
    _script(tmp_path / "scontrol", f"{refuses}\necho $* >> {tmp_path}/called")
    _script(tmp_path / "scancel", f"echo cancel $* >> {tmp_path}/called")
    _script(tmp_path / "squeue", "echo 77 RUNNING")
    environ, settings = _environ(SLURM_JOB_RESTART_COUNT=restarts), SETTINGS._replace(policy=policy)
    assert failure.apply_policy(settings, environ, state.Failure("why", fault)) == expected[0]
    comment, notice, action = (tmp_path / "called").read_text().splitlines()
    assert comment.startswith("update JobId=77 AdminComment=IMEX on r01t01 for job 77: why; the ")
    assert notice.startswith("notify 77 IMEX on r01t01 for job 77: why; the ")
    assert action.startswith(expected[1])
    assert begun == ([] if batch else ["clear"])


@pytest.mark.parametrize(
    ("fault", "restarts", "refused", "expected"),
    [
        (state.TRAY, "0", "none", (0, ["drain", "comment", "notify", "requeue 77"])),
        # No job drains tray after tray.
        (state.TRAY, "3", "none", (0, ["drain", "comment", "notify", "requeuehold 77"])),
        # An interactive job.
        (state.TRAY, "0", "requeue*", (0, ["drain", "comment", "notify", "requeue 77", "cancel 77"])),
        # slurmd drains it after exit 1.
        (state.TRAY, "0", "update", (1, ["drain", "comment", "notify", "drain"])),
        (state.PEER, "0", "none", (0, ["comment", "notify", "requeue 77"])),
        (state.PEER, "3", "none", (0, ["comment", "notify", "requeuehold 77"])),
        (state.CLIQUE, "0", "none", (0, ["comment", "notify", "requeue 77"])),
        (state.JOB, "0", "none", (0, ["comment", "notify", "requeuehold 77"])),
        (state.JOB, "0", "requeue*", (0, ["comment", "notify", "requeuehold 77", "cancel 77"])),
    ],
)
def test_the_policy_replace_drains_the_tray_at_fault_alone(
    tmp_path: Path, begun: list[str], fault: str, restarts: str, refused: str, expected: tuple[int, list[str]]
) -> None:
    """With a reason of the collection, before anything else is done."""
    _script(tmp_path / "scontrol", f"echo $* >> {tmp_path}/called; case $1 in {refused}) exit 1;; esac")
    _script(tmp_path / "scancel", f"echo cancel $* >> {tmp_path}/called")
    _script(tmp_path / "squeue", "echo 77 RUNNING")
    environ, settings = _environ(SLURM_JOB_RESTART_COUNT=restarts), SETTINGS._replace(policy="replace")
    assert failure.apply_policy(settings, environ, state.Failure("why", fault)) == expected[0]
    words = {
        "update NodeName=r01t01 State=DRAIN Reason=nvlink: IMEX: why": "drain",
        "update JobId=77 AdminComment=IMEX on r01t01 for job 77: why; the ": "comment",
        "notify 77 IMEX on r01t01 for job 77: why; the ": "notify",
    }
    called = (tmp_path / "called").read_text().splitlines()
    assert [next((word for start, word in words.items() if line.startswith(start)), line) for line in called] == (
        expected[1]
    )


@pytest.mark.parametrize(("fault", "waits"), [(state.PEER, True), (state.CLIQUE, True), (state.TRAY, False)])
def test_a_tray_that_is_not_at_fault_gives_the_one_at_fault_time_to_requeue_the_job(
    tmp_path: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch, fault: str, waits: bool
) -> None:
    """Where that requeues it, nothing is left to do; else the job is requeued at the deadline, not before."""
    monkeypatch.setattr(failure, "_PAUSE", 0.02)
    settings = SETTINGS._replace(policy="replace")
    _script(tmp_path / "scontrol", f"echo $* >> {tmp_path}/called")
    _script(tmp_path / "squeue", f"echo 77 $(cat {tmp_path}/state)")
    for word, called in (("RUNNING", True), ("COMPLETING", fault == state.TRAY)):
        (tmp_path / "state").write_text(word)
        (tmp_path / "called").write_text("")
        began, is_awaited = time.monotonic(), waits and word == "RUNNING"
        limit = 0.5 if is_awaited else 60.0
        assert failure.apply_policy(settings, _environ(), state.Failure("why", fault), began + limit) == 0
        assert (time.monotonic() - began >= limit) is is_awaited
        assert bool((tmp_path / "called").read_text()) is called


@pytest.mark.parametrize(
    ("error", "fault"),
    [(RuntimeError("x"), state.CLIQUE), (OSError(28, "No space left on device"), state.TRAY)],
)
def test_a_bug_drains_no_tray_and_a_full_disk_does(
    begun: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception, fault: str
) -> None:
    found: list[str] = []

    def fails(*_arguments: Any) -> None:
        raise error

    monkeypatch.setattr(main, "prolog", fails)
    monkeypatch.setattr(main, "apply_policy", lambda _settings, _environ, why, _deadline: found.append(why.fault) or 0)
    assert main.main(["prolog"], _environ()) == 0
    assert found == [fault]


@pytest.mark.parametrize(
    ("error", "settings", "rc"),
    [
        (None, "{}", 0),
        (state.DaemonLeft("process 8 is left"), None, 1),
        (state.Failure("another prolog or epilog of IMEX still runs on this tray"), None, 0),
        (RuntimeError("a bug"), None, 0),
        (OSError(28, "No space left on device"), None, 0),
    ],
)
def test_an_epilog_fails_only_where_its_daemon_does_not_stop(
    tmp_path: Path,
    begun: list[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    settings: str | None,
    rc: int,
) -> None:
    """To Slurm a failed epilog is broken hardware: with --requeue=expedite a job whose script fails drained each tray.

    Without readable settings it stops the daemon all the same.
    """
    if settings:
        (tmp_path / "settings").write_text(settings)

    def clear(_settings: state.Settings) -> None:
        begun.append("clear")
        if error:
            raise error

    monkeypatch.setattr(main, "clear", clear)
    state.write_state({"job": "77"})
    assert main.main(["epilog"], _environ()) == rc
    assert begun == ["clear"]


def test_an_epilog_without_the_environment_of_slurm_drains_nothing(begun: list[str]) -> None:
    assert main.main(["epilog"], {}) == 0


@pytest.mark.parametrize(
    ("left", "rc", "expected"),
    [
        ([(8, True)], 0, state.DaemonLeft),
        ([(8, True)], 1, state.DaemonLeft),
        ([], 1, state.Failure),  # systemctl itself failed
    ],
)
def test_a_daemon_that_is_left_is_another_failure_than_one_of_systemctl(
    tmp_path: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch, left: Any, rc: int, expected: type
) -> None:
    answers = iter([[(8, True)], left])
    monkeypatch.setattr(daemon, "daemons", lambda: next(answers))
    _script(tmp_path / "systemctl", f"exit {rc}")
    with pytest.raises(state.Failure, match="could not be stopped") as found:
        daemon.stop_daemon(SETTINGS)
    assert type(found.value) is expected


@pytest.mark.parametrize(
    ("lines", "options", "codes"),
    [
        ("", {}, []),
        ("PrologFlags=", {}, ["slurm_conf_inconsistent"]),
        ("PrologFlags=NoSuch", {}, ["slurm_conf_inconsistent"]),
        ("PrologFlags=contain,serial", {}, []),
        ("PrologEpilogTimeout=119", {}, ["slurm_conf_inconsistent"]),
        ("PrologEpilogTimeout=120", {}, []),
        ("PrologTimeout=90", {}, ["slurm_conf_inconsistent"]),
        ("EpilogTimeout=49", {}, ["slurm_conf_inconsistent"]),
        ("", {"policy": "run"}, ["slurm_conf_note"]),
        ("TaskProlog=/x", {"policy": "run"}, []),
        # A partition whose jobs of several trays are all held.
        ("PartitionName=a Nodes=r01t[01-18]", {}, ["slurm_conf_advice"]),
        ("no setting\nPartitionName=a Nodes=cpu[1-9] PrologFlags=NoSuch", {}, []),
        ("PartitionName=a Nodes=ALL Exclusive=NODE", {}, []),
        ("PartitionName=a Nodes=ALL OverSubscribe=EXCLUSIVE", {}, []),
        ("PartitionName=a Nodes=ALL\nGresTypes=gpu", {}, []),
        ("PartitionName=a Nodes=ALL\nGresTypes=gpu,shard", {}, ["slurm_conf_advice"]),
        ("PartitionName=DEFAULT Nodes=ALL Exclusive=NODE\nPartitionName=a Exclusive=NO", {}, ["slurm_conf_advice"]),
        ("PartitionName=a Nodes=ALL\nPartitionName=DEFAULT Exclusive=NODE", {}, ["slurm_conf_advice"]),
    ],
)
def test_settings_of_slurm_conf_that_imex_per_job_needs_are_findings(
    tray: Path, lines: str, options: dict[str, Any], codes: list[str]
) -> None:
    (tray / "more.conf").write_text(lines)
    with (tray / "slurm.conf").open("a") as conf:
        conf.write("Include more.conf\n")
    found = findings(desire(**_folders(tray), **options))
    assert [entry["code"] for entry in found] == codes


@given(st.permutations([*dict(TRAYS), "r02t01"]))
def test_every_tray_of_a_job_writes_the_same_list(names: list[str]) -> None:
    assert state.members_of(SETTINGS, names[:9]) == tuple(member for member in TRAYS if member[0] in names[:9])


@pytest.mark.parametrize("nodelist", ["r01t[01-02", "r01t[x]"])
def test_a_hostlist_that_cannot_be_expanded_is_no_fault_of_the_tray(nodelist: str) -> None:
    """Nothing that a user wrote reaches a program as an option."""
    with pytest.raises(state.Failure) as found:
        state.expand(nodelist)
    assert found.value.fault == state.JOB


@given(
    st.builds(
        state.Settings,
        clique=st.text(max_size=9),
        members=st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=5).map(tuple),
        policy=st.sampled_from(state.POLICIES),
        wait=st.floats(1, 3600),
        stop_wait=st.floats(1, 3600),
        channel0=st.booleans(),
        path=st.text(max_size=9),
    )
)
def test_settings_are_parsed_as_they_were_written(settings: state.Settings) -> None:
    assert state.settings_of(job_files.render_settings(settings)) == settings


INVALID = [{"policy": "hold"}, {"wait": 0}, {"more": 1}, {"wait": "x"}]


@given(
    st.text(max_size=99)
    | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists).map(json.dumps)
    | st.sampled_from(INVALID).map(lambda change: json.dumps({**SETTINGS._asdict(), **change}))
)
def test_invalid_settings_fail_with_one_sentence(text: str) -> None:
    with pytest.raises(state.Failure, match="run the role on this tray"):
        state.settings_of(text)


@pytest.mark.parametrize(("started", "stops"), [("77", True), ("78", False), ("", False)])
def test_an_epilog_stops_the_daemon_of_its_own_job_alone(begun: list[str], started: str, stops: bool) -> None:
    if started:
        state.write_state({"job": started})
    for _time in range(2):
        main.epilog(SETTINGS, _environ())
    assert begun == ["clear"] * (2 * stops)


def test_umask_0_makes_nothing_that_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As slurmd may start a prolog."""
    monkeypatch.setattr(state, "RUN", str(tmp_path / "run" / "job"))
    before = os.umask(0)
    try:
        with state.lock(time.monotonic()):
            state.write_text(str(tmp_path / "etc" / "imex" / "nodes"), "text")
    finally:
        os.umask(before)
    assert len(made := list(tmp_path.rglob("*"))) == 6
    assert [path for path in made if path.stat().st_mode & 0o022] == []


def _printed(cells: dict[tuple[int, int], str], state_of_own: str = "READY") -> str:
    """The ctl of r01t01 in a domain of three trays."""
    return f"echo '{domain_json([line for _node, line in TRAYS[:3]], cells, {0: state_of_own})}'"


LATE = _printed({(0, 2): "NEVER_CONNECTED"})


@pytest.mark.parametrize(
    ("ctl", "offered", "fault", "words"),
    [
        ("exec sleep 60", "", state.TRAY, "nvidia-imex-ctl gave no answer within 0.3 s although the daemon runs"),
        ("echo Killed", "", state.TRAY, "printed no JSON (Killed) although the daemon runs; restart the daemon"),
        # What peers answer, or do not, puts no other tray at fault.
        ("[ $1 = -q ] && echo READY", "", state.PEER, "printed no JSON (it ended with 1) although the daemon runs"),
        (_printed({}, "WAITING_FOR_PEERS"), "", state.PEER, "the daemon is waiting_for_peers, not ready, after 60 s"),
        (_printed({}, "WAITING_FOR_RECOVERY"), "", state.PEER, "the daemon is waiting_for_recovery, not ready"),
        (_printed({}, "INIT_GPU"), "", state.TRAY, "the daemon is init_gpu, not ready, after 60 s"),
        (_printed({(0, 1): "NODE_MAP_MISMATCH"}), "", state.PEER, "node list than this tray (!M!): r01t02; run the"),
        (_printed({(0, 1): "VERSION_MISMATCH"}), "", state.PEER, "(!V!) runs on r01t02; install one version"),
        *(
            (LATE, offered, state.PEER, "r01t03 never connected; check there whether the tray is up")
            for offered in ("", '["r01"]', "\0" * 99, job_files.render_settings(SETTINGS._replace(sha256="0", wait=9)))
        ),
        # A tray that missed a run of the role.
        *(
            (LATE, job_files.render_settings(offered), state.CLIQUE, "r01t03 and this tray have different members of")
            for offered in (SETTINGS._replace(sha256="1"), SETTINGS._replace(sha256="0", clique="r02"))
        ),
    ],
)
def test_a_wait_that_ends_without_a_domain_has_one_reason(
    tmp_path: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch, ctl: str, offered: str, fault: str, words: str
) -> None:
    _script(tmp_path / "nvidia-imex-ctl", ctl)
    monkeypatch.setattr(wait, "_CTL_TIMEOUT", 0.3 if "sleep" in ctl else 60)
    monkeypatch.setattr(wait, "daemons", lambda: [(8, True)])
    monkeypatch.setattr(boot, "ask", lambda ends, *_limits: dict.fromkeys(ends, offered.encode()))
    clock = itertools.count()
    monkeypatch.setattr(wait, "time", SimpleNamespace(monotonic=lambda: next(clock) / 10, sleep=lambda _seconds: None))
    with pytest.raises(state.Failure, match=re.escape(words)) as found:
        wait.wait_for_peers(SETTINGS._replace(sha256="0"), state.job_of(_environ()), TRAYS[:3], 0.5)
    assert found.value.fault == fault


@pytest.mark.parametrize(
    ("newer", "of_newer", "fault"),
    [
        (17, {}, state.TRAY),
        (10, {}, state.TRAY),
        # One tray, or half of them, cannot have another drained by what they answer.
        (9, {}, state.CLIQUE),
        (1, {"generation": 1 << 30}, state.CLIQUE),
        (17, {"generation": 0}, state.CLIQUE),
        (17, {"clique": "r02"}, state.CLIQUE),
    ],
)
def test_a_tray_is_outdated_where_most_of_its_clique_have_a_newer_list(
    tmp_path: Path,
    begun: list[str],
    monkeypatch: pytest.MonkeyPatch,
    newer: int,
    of_newer: dict[str, Any],
    fault: str,
) -> None:
    ours = SETTINGS._replace(sha256="0", generation=3)
    theirs = ours._replace(**{"sha256": "1", "generation": 4, **of_newer})
    offers = [theirs] * newer + [ours] * (len(TRAYS) - 1 - newer)
    # The peer that is not connected, the third, has the newer list.
    answers = dict(zip([address for _node, address in TRAYS[2:] + TRAYS[1:2]], offers))
    _script(tmp_path / "nvidia-imex-ctl", LATE)

    def ask(ends: list[tuple[str, int]], *_limits: Any) -> dict[tuple[str, int], bytes]:
        return {end: job_files.render_settings(answers[end[0]]).encode() for end in ends if end[0] in answers}

    monkeypatch.setattr(boot, "ask", ask)
    clock = itertools.count()
    monkeypatch.setattr(wait, "time", SimpleNamespace(monotonic=lambda: next(clock) / 10, sleep=lambda _seconds: None))
    with pytest.raises(state.Failure) as found:
        wait.wait_for_peers(ours, state.job_of(_environ()), TRAYS[:3], 0.5)
    assert found.value.fault == fault


def test_a_wait_ends_when_the_tray_at_fault_has_requeued_the_job(
    tmp_path: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the job completes only at the deadline of the others, and Slurm starts it no earlier."""
    _script(tmp_path / "nvidia-imex-ctl", LATE)
    _script(tmp_path / "squeue", "echo 77 COMPLETING")
    monkeypatch.setattr(wait, "reconnect_peers", lambda: begun.append("reconnect"))
    monkeypatch.setattr(wait, "_FIRST_RECONNECT", 0.0)
    with pytest.raises(state.Failure, match="another of its trays requeued it") as found:
        wait.wait_for_peers(SETTINGS, state.job_of(_environ()), TRAYS[:3], time.monotonic() + 60)
    assert (found.value.fault, begun) == (state.PEER, [])


# --- Files.


@pytest.fixture
def tray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a tray: paths of the installation are below it, systemctl does nothing, and no daemon runs."""
    monkeypatch.setattr(daemon, "daemons", list)
    monkeypatch.setattr(job_files, "PROGRAM", f"{tmp_path}{job_files.PROGRAM}")
    for name in ("SETTINGS_FILE", "RUN"):
        monkeypatch.setattr(state, name, f"{tmp_path}{getattr(state, name)}")
    (tmp_path / "bin").mkdir()
    _script(tmp_path / "bin" / "systemctl", "true")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    conf = "PrologFlags=\\\nAlloc\nProlog={0}/prolog.d/*\nEpilog={0}/epilog.d/*\n"
    (tmp_path / "slurm.conf").write_text(conf.format(tmp_path))
    return tmp_path


def _folders(tray: Path) -> dict[str, str]:
    return {"slurm_conf": f"{tray}/slurm.conf", "prolog_dir": f"{tray}/prolog.d", "epilog_dir": f"{tray}/epilog.d"}


def _present(tray: Path, check: bool = False, **options: Any) -> list[str]:
    """Install the program; what changed."""
    host, desired = Host(check), desire(**{**_folders(tray), **options})
    assert [*findings(desired), *job_host.uncalled(desired, job_host.read("job", desired.job, desired.nodes))] == []
    job_host.write(made(desired, 1), host)
    return host.changes


def _absent(tray: Path, check: bool = False) -> list[str]:
    (tray / "slurm.conf").unlink(missing_ok=True)
    host, desired = Host(check), desire("none", **_folders(tray))
    assert findings(desired) == []
    job_host.leave(desired, made(desired), host, None, False)
    return host.changes


def _start(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [job_files.PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=60, **how
    )


def test_the_program_is_installed_once_and_starts(tray: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = _present(tray, check=True)
    assert not list(tray.rglob("nvlink-imex-job"))
    assert _present(tray) == changes
    assert _present(tray) == []
    os.chmod(job_files.PROGRAM, 0o777)
    if os.geteuid() == 0:
        os.chown(job_files.PROGRAM, 65534, -1)
    _present(tray)
    found = os.stat(job_files.PROGRAM)
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o755, os.geteuid())
    assert (_start().returncode, _start().stderr[:6]) == (2, "usage:")
    done = _start("prolog")
    # It has read the settings, and gives one sentence without Slurm's environment.
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "'SLURM_JOB_ID' is not set; run this program from Prolog or Epilog of Slurm" in done.stderr
    assert _present(tray) == []
    monkeypatch.setattr(probe, "_MAIN", f"{probe._MAIN}# another version\n")
    probe.program.cache_clear()
    assert _present(tray) == [f"change {job_files.PROGRAM}"]
    probe.program.cache_clear()


def test_a_start_imports_exactly_the_installed_modules_and_the_standard_library(tray: Path) -> None:
    """Nothing is left to import after a failure, when the files may be of another version."""
    _present(tray)
    started = f"import os, {main.__name__}"
    shown = "import json,sys; print(json.dumps([(n, getattr(m, '__file__', None)) for n, m in sys.modules.items()]))"
    done = subprocess.run(
        [sys.executable, "-IS", "-c", f"import sys; sys.path.insert(0, {job_files.PROGRAM!r}); {started}; {shown}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = {name: file for name, file in json.loads(done.stdout) if file}
    ours = {file.removeprefix(f"{job_files.PROGRAM}/") for file in loaded.values() if file.startswith(str(tray))}
    with zipfile.ZipFile(job_files.PROGRAM) as archive:
        assert {*ours, "__main__.py"} == set(archive.namelist())
        sources = {name: archive.read(name).decode() for name in archive.namelist()}
    assert not [file for file in loaded.values() if "site-packages" in file or "dist-packages" in file]
    late = [
        (path, node.lineno)
        for path, text in sources.items()
        for function in ast.walk(ast.parse(text))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ansible_collections")
    ]
    assert late == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_user_of_a_job_can_run_the_task_prolog_and_replaces_none_of_its_modules(tray: Path) -> None:
    """Installed with umask 077, and started with the user's own modules in PYTHONPATH and the current folder."""
    before = os.umask(0o077)
    try:
        _present(tray, python="/usr/bin/python3")
    finally:
        os.umask(before)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # other users cannot enter pytest's own
        Path(folder).chmod(0o755)
        program = shutil.copy(job_files.PROGRAM, folder)
        for name in ("json.py", "signal.py", "sitecustomize.py", "ansible_collections.py"):
            Path(folder, name).write_text("print('hostile')")
        environ = {"PYTHONPATH": folder, "PYTHONHOME": folder, "HOME": folder}
        environ.update(SLURM_SCRIPT_CONTEXT="prolog_task", SLURM_JOB_ID="7")
        done = subprocess.run(
            [program, "task"],
            cwd=folder,
            env=environ,
            user=65534,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_python_that_cannot_run_the_program_is_an_error_and_nothing_is_left(tray: Path) -> None:
    with pytest.raises(formats.ImexError, match=r"^/bin/false cannot run the program .*; set imex_job_python"):
        _present(tray, python="/bin/false")
    assert not list(tray.rglob("50-nvlink-imex"))
    assert not os.path.exists(job_files.PROGRAM)


@pytest.mark.parametrize(
    ("conf", "codes", "lines"),
    [
        (None, ["slurm_conf_inconsistent"], None),
        # A prolog of the site's own calls the program.
        ("PrologFlags=Alloc\nProlog={0}/site-prolog\nEpilog={0}/site-epilog\n", [], None),
        # Of stop_and_write, since Slurm fails every job where its Prolog matches no file yet.
        ("PrologFlags=Alloc\nProlog=/opt/site/prolog.sh\nEpilog={0}/epilog.d/*", [], "Prolog={0}/prolog.d/*"),
        ("PrologFlags=Alloc\nProlog=/opt/p.sh\nProlog={0}/prolog.d/*\nEpilog={0}/epilog.d/*", [], None),
        ("PrologFlags=Alloc\nProlog={0}/prolog.d/*\nEpilog={0}/epilog.d/*.sh", [], "Epilog={0}/epilog.d/*"),
    ],
)
def test_a_slurm_conf_that_would_not_run_the_program_is_a_finding(
    tray: Path, conf: str | None, codes: list[str], lines: str | None
) -> None:
    for entry in ("prolog", "epilog"):
        _script(tray / f"site-{entry}", f"{job_files.PROGRAM} {entry}")
    (tray / "slurm.conf").unlink()
    if conf:
        (tray / "slurm.conf").write_text(conf.format(tray))
    desired = desire(**_folders(tray))
    assert [note["code"] for note in findings(desired)] == codes
    uncalled = job_host.uncalled(desired, job_host.read("job", desired.job, desired.nodes)) if conf else []
    missing = [note["values"]["lines"] for note in uncalled]
    assert missing == ([lines.format(tray)] if lines else [])


@pytest.mark.parametrize("used", [True, False])
def test_absent_leaves_nothing(tray: Path, used: bool) -> None:
    """Slurm runs the wrappers, so they come last and go first."""
    wrappers = [f"{tray}/{entry}.d/{job_files.NAME}" for entry in ("prolog", "epilog")]
    assert _present(tray)[-2:] == [f"write {name}" for name in wrappers]
    if used:
        state.write_state({"job": "7"})
    expected = _absent(tray, check=True)
    assert expected[:2] == [f"remove {name}" for name in wrappers]
    assert (f"remove {state.state_path()}" in expected) is used
    assert _absent(tray) == expected
    # A lock that is removed could be held twice.
    assert [path for path in tray.rglob("*") if "nvlink" in str(path) and path.is_file()] == [Path(state.RUN, "lock")]
    assert _absent(tray) == []


def test_a_file_that_slurm_conf_names_alone_is_emptied(tray: Path) -> None:
    _present(tray)
    desired = desire("none", **_folders(tray))
    host = Host(False)
    job_host.leave(desired, made(desired), host, None, False)
    assert [note["code"] for note in findings(desired)] == ["slurm_conf_advice"] * 2
    assert (tray / "prolog.d" / job_files.NAME).read_text() == job_files.NOOP


def test_a_job_with_its_daemon_blocks_another_owner(tray: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state.write_state({"job": "7"})
    monkeypatch.setattr(daemon, "daemons", lambda: [(8, True)])
    found = [findings(desire("none", **_folders(tray)), allow_jobs) for allow_jobs in (False, True)]
    assert [[note["code"] for note in notes] for notes in found] == [["jobs_running"], []]


@pytest.mark.parametrize(
    ("starts", "waits", "allow_jobs", "expected"),
    [
        (True, False, False, "jobs_running"),
        (True, True, False, "jobs_running"),
        (True, False, True, ""),
        (True, True, True, ""),
        (False, True, True, "the prolog or epilog of a job has not ended on this tray within 0.5 s; run the role"),
    ],
)
def test_a_change_of_owner_waits_for_a_prolog_that_has_no_daemon_yet(
    tray: Path, monkeypatch: pytest.MonkeyPatch, starts: bool, waits: bool, allow_jobs: bool, expected: str
) -> None:
    """But not while that waits for peers. What it writes after its daemon was stopped goes too."""
    _present(tray)
    before = {path: path.read_bytes() for path in tray.rglob("*") if path.is_file()}
    monkeypatch.setattr(job_host, "_TIMEOUT", 60 if starts else 0.5)
    monkeypatch.setattr(formats, "PERSIST_FILE", str(tray / "persist"))
    desired, locked, stopped = desire("none", **_folders(tray)), threading.Event(), threading.Event()

    def prolog() -> None:
        with state.lock(time.monotonic() + 60):
            locked.set()
            time.sleep(0.3)
            if starts:
                state.write_state({"job": "7"})
                monkeypatch.setattr(daemon, "daemons", lambda: [(8, True)])
            if waits:
                stopped.wait(60)
                time.sleep(0.3)
                state.write_state({"job": "8", "list": str(tray / "nodes")})
                state.write_text(str(tray / "nodes"), "10.0.0.1\n")

    def stop(settings: state.Settings, others: bool) -> None:
        assert (settings.stop_wait, others) == (20, False)
        stopped.set()

    monkeypatch.setattr(daemon, "stop_daemon", stop)
    thread = threading.Thread(target=prolog)
    thread.start()
    try:
        locked.wait(60)
        with pytest.raises((job_host.Blocked, formats.ImexError)) if expected else contextlib.nullcontext() as found:
            job_host.leave(desired, made(desired), Host(False), None, allow_jobs)
        assert str(found and found.value).startswith(expected or "None")
        assert stopped.is_set() is not bool(expected)
        assert expected or (state.read_state(), (tray / "nodes").exists()) == (None, False)
        left = {path: path.read_bytes() for path in before if path.exists()}
        assert (left == before) is bool(expected)
    finally:
        stopped.set()
        thread.join()


# The unit tests run on hosts without systemd too; with CI=true a skip counts as a failure.
@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="systemd-tmpfiles is not installed")
def test_the_list_of_a_job_that_died_with_the_tray_goes_at_boot(tray: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd-tmpfiles itself, as at boot and at any other time."""
    nodes = tray / "100% list.cfg"
    conf = tray / "tmpfiles.conf"
    desired = replace(desire(), files={formats.CONFIG_FILE: f"IMEX_NODE_CONFIG_FILE={nodes}\n"})
    conf.write_text(str(domain.files_of(desired, None)[domain.TMPFILES][0]))
    nodes.write_text("10.0.0.1\n")
    for flags, left in (((), True), (("--boot",), False)):
        subprocess.run(["systemd-tmpfiles", *flags, "--remove", str(conf)], check=True, timeout=60)
        assert nodes.exists() is left


@pytest.mark.parametrize(
    ("switch", "option", "expected"),
    [
        ([], "auto", True),
        (["switch/nvidia_imex"], "auto", False),
        (["switch/nvidia_imex"], "always", True),
        ([], "never", False),
    ],
)
def test_channel0_is_created_where_slurm_gives_no_channel(switch: list[str], option: str, expected: bool) -> None:
    slurm = {"switchtype": switch}
    assert job_files.settings_of(desire(channel0=option), 0, slurm).channel0 is expected
