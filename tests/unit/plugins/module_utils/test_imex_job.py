# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decisions of the prolog by its environment and settings, and the files of IMEX per job."""

from __future__ import annotations

import ast
import json
import marshal
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import own_source
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import (
    files,
    job,
    job_failed,
    job_files,
    job_state,
    job_wait,
    slurm_conf,
)
from ansible_collections.rackscale.nvlink.plugins.modules import imex_job
from hypothesis import given
from hypothesis import strategies as st

TRAYS = tuple((f"r01t{number:02}", f"10.0.0.{number}") for number in range(1, 19))
OPTIONS: dict[str, Any] = {
    "clique": "r01",
    "members": [{"node": node, "address": line} for node, line in TRAYS],
    "policy": "drain",
    "scope": "job",
    "wait": 60,
    "stop_wait": 20,
    "min_trays": 2,
    "max_requeues": 3,
    "channel0": "auto",
    "path": [],
    "proc_devices": "/proc/devices",
    "prolog_dir": "/etc/slurm/prolog.d",
    "epilog_dir": "/etc/slurm/epilog.d",
    "python": "/usr/bin/python3",
}
GOOD = {
    "prologflags": ["Alloc"],
    "prolog": ["/etc/slurm/prolog.d/*"],
    "epilog": ["/etc/slurm/epilog.d/*"],
}


# The environment of a prolog from real slurmds of 24.11.5 and 26.05.5.
@pytest.mark.parametrize(
    ("environ", "shares", "whole_blocks"),
    [
        ({"SLURM_JOB_OVERSUBSCRIBE": "NO"}, None, False),
        ({"SLURM_JOB_OVERSUBSCRIBE": "TOPO"}, None, True),
        ({"SLURM_JOB_OVERSUBSCRIBE": "OK"}, "SLURM_JOB_OVERSUBSCRIBE=OK", False),
        ({"SLURM_JOB_OVERSUBSCRIBE": "USER"}, "SLURM_JOB_OVERSUBSCRIBE=USER", False),
        ({"SLURM_JOB_OVERSUBSCRIBE": "NO", "SLURM_JOB_EXCLUSIVE": "NO"}, "SLURM_JOB_EXCLUSIVE=NO", False),
        ({"SLURM_JOB_OVERSUBSCRIBE": "NO", "SLURM_JOB_EXCLUSIVE": "USER"}, "SLURM_JOB_EXCLUSIVE=USER", False),
        ({"SLURM_JOB_OVERSUBSCRIBE": "NO", "SLURM_JOB_EXCLUSIVE": "NODE"}, None, False),
        ({"SLURM_JOB_OVERSUBSCRIBE": "NO", "SLURM_JOB_EXCLUSIVE": "TOPO"}, None, True),
        ({}, "SLURM_JOB_OVERSUBSCRIBE=", False),
    ],
)
def test_shared_and_exclusive_trays_are_read_from_slurms_environment(
    environ: dict[str, str], shares: str | None, whole_blocks: bool
) -> None:
    assert job_state.shares_its_trays(environ) == shares
    assert job_state.holds_whole_blocks(environ) is whole_blocks


@given(
    st.permutations([node for node, _line in TRAYS]).flatmap(lambda names: st.integers(0, 18).map(lambda n: names[:n]))
)
def test_every_tray_of_a_job_writes_the_same_list(names: list[str]) -> None:
    settings = job_state.Settings("r01", TRAYS)
    members = job_state.members_of(settings, [*names, "r02t01"])
    assert members == tuple(member for member in TRAYS if member[0] in names)


@pytest.mark.parametrize(
    ("nodelist", "called"), [("r01t[01-02,17],r02t01", False), ("r01t[01-02", True), ("r01t[x]", True), ("", True)]
)
def test_scontrol_expands_a_nodelist_that_hostlist_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodelist: str, called: bool
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/called\nprintf "r01t02\\nr01t01\\nr01t17\\n"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    own = _job(SLURM_JOB_NODELIST=nodelist)
    assert job._members(job_state.Settings("r01", TRAYS), own) == (TRAYS[0], TRAYS[1], TRAYS[16])
    assert (tmp_path / "called").exists() is called
    if called:
        assert (tmp_path / "called").read_text() == f"show hostnames {nodelist}\n"


@given(
    st.builds(
        job_state.Settings,
        clique=st.text(max_size=9),
        members=st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=5).map(tuple),
        policy=st.sampled_from(job_state.POLICIES),
        scope=st.sampled_from(job_state.SCOPES),
        wait=st.floats(1, 3600),
        stop_wait=st.floats(1, 3600),
        channel0=st.booleans(),
        path=st.text(max_size=9),
    )
)
def test_settings_are_parsed_as_they_were_written(settings: job_state.Settings) -> None:
    assert job_state.settings_of(job_files.render_settings(settings)) == settings


@given(st.text(max_size=99) | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists).map(json.dumps))
def test_invalid_settings_fail_with_one_sentence(text: str) -> None:
    with pytest.raises(job_state.Failure, match="run the role on this tray"):
        job_state.settings_of(text)


@pytest.mark.parametrize("change", [{"policy": "hold"}, {"scope": "rack"}, {"wait": 0}, {"more": 1}, {"wait": "x"}])
def test_settings_with_invalid_values_fail(change: dict[str, Any]) -> None:
    data = {**json.loads(job_files.render_settings(job_state.Settings("r01", TRAYS))), **change}
    with pytest.raises(job_state.Failure):
        job_state.settings_of(json.dumps(data))


FIELDS = {"WorkDir": "/home/u", "JobName": "train", "BatchHost": "r01t01"}


def _job(**environ: str) -> job_state.Job:
    known = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "r01t01", "SLURM_JOB_NODELIST": "r01t[01-02]"}
    return job_state.job_of({**known, "SLURM_JOB_USER": "u", **environ})


@pytest.mark.parametrize(
    ("pattern", "fields", "expected"),
    [
        ("/home/u/slurm-%j.out", {}, "/home/u/slurm-77.out"),
        ("slurm-%j.out", {}, "/home/u/slurm-77.out"),
        ("/logs/%x-%5j-%N-%u.out", {}, "/logs/train-00077-r01t01-u.out"),
        ("/logs/%A_%a", {"ArrayJobId": "70", "ArrayTaskId": "3"}, "/logs/70_3"),
        ("/logs/%%j", {}, "/logs/%j"),
        ("/logs/%q", {}, None),
        ("/logs/%", {}, None),
        ("/dev/null", {}, None),
    ],
)
def test_the_output_file_pattern_of_a_batch_job_is_expanded(
    pattern: str, fields: dict[str, str], expected: str | None
) -> None:
    assert job_failed._expanded(pattern, _job(), {**FIELDS, **fields}) == expected


def test_a_line_is_written_with_the_rights_of_the_jobs_user(tmp_path: Path) -> None:
    """Also through a link of the user: root's files do not change."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))  # other users cannot enter pytest's own
    folder.chmod(0o777)
    try:
        _append_through_a_link(folder)
    finally:
        shutil.rmtree(folder)


def _append_through_a_link(folder: Path) -> None:
    assert job_failed.child.call(job_failed._append, 5.0, str(folder / "own"), "new\n", "65534").value is True
    assert (folder / "own").read_text() == "new\n"
    assert (folder / "own").stat().st_uid == 65534
    secret = folder / "root's"
    secret.write_text("old\n")
    link = folder / "link"
    link.symlink_to(secret)
    reply = job_failed.child.call(job_failed._append, 5.0, str(link), "new\n", "65534")
    assert reply.value is None
    assert secret.read_text() == "old\n"


def test_only_listening_addresses_are_found() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert job._listening(["127.0.0.1", "127.0.0.2", "::1", "not an address"], port) == {"127.0.0.1"}


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_is_listed_on_the_side_that_made_it(family: socket.AddressFamily) -> None:
    """Also with an IPv6 socket, as gRPC uses; the side that accepted lists none."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(family) as link:
        port = server.getsockname()[1]
        assert job_wait._connected_to(port) == set()
        link.connect(("127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1", port))
        assert job_wait._connected_to(port) == {b"\x7f\x00\x00\x01"}
        assert job_wait._connected_to(link.getsockname()[1]) == {b"\x7f\x00\x00\x01"}  # that of the server's own end
        before = time.monotonic()
        job_wait._until_connected(["192.0.2.1"], before + 0.2)
        assert time.monotonic() - before >= 0.2


@pytest.mark.parametrize(
    ("name", "value"),
    [("_SOCK_DIAG_BY_FAMILY", 9999), ("_NETLINK_SOCK_DIAG", 4000)],
)
def test_no_wait_where_the_kernel_does_not_list_connections(
    monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    """As without its module tcp_diag: it returns an error, or there is no such socket."""
    monkeypatch.setattr(job_wait, name, value)
    assert job_wait._connected_to(50000) is None
    before = time.monotonic()
    job_wait._until_connected(["192.0.2.1"], before + 30)
    assert time.monotonic() - before < 10


@pytest.mark.parametrize(
    ("full", "before", "hangs"),
    [
        (30.0, job_wait._Status("ready", {1: "never_connected"}, ""), False),
        (30.0, job_wait._Status(None, {}, ""), True),
        (0.3, job_wait._Status("ready", {1: "never_connected"}, ""), True),
    ],
)
def test_a_ctl_call_cut_short_by_the_deadline_keeps_the_last_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: float, before: job_wait._Status, hangs: bool
) -> None:
    """The ctl is slow with an unreachable tray; it hangs only if it had its full time, or never answered before."""
    ctl = tmp_path / "nvidia-imex-ctl"
    ctl.write_text("#!/bin/sh\nexec sleep 60\n")
    ctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(job_wait, "_CTL_TIMEOUT", full)
    observed = job_wait._query_ctl(0, 0.3, before)
    assert ("gave no answer" in observed.problem) is hangs
    assert (observed == before) is not hangs


# --- Files.


def test_the_program_runs_alone_and_compiles_once(tmp_path: Path) -> None:
    parts = job_files.sources()
    text = job_files.program(sys.executable, parts)
    assert job_files.program(sys.executable, parts) == text
    assert "import subprocess" not in "".join(parts[name] for name in job_files.first(parts))
    text = text.replace(repr(job_state.RUN), repr(str(tmp_path / "run")))
    program = tmp_path / "program"
    program.write_text(text)
    for _time in range(2):
        done = subprocess.run(
            [sys.executable, "-IS", program, "bogus"], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr[:6]) == (2, "usage:"), done.stderr
        assert len(list((tmp_path / "run").iterdir())) == 1
    # By a user without write access, and with a broken cache of an earlier start.
    next((tmp_path / "run").iterdir()).write_bytes(b"\x00broken")
    done = subprocess.run(
        [sys.executable, "-IS", program, "x"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2, done.stderr


def test_no_other_user_can_change_the_code_that_root_runs(tmp_path: Path) -> None:
    """With an umask of 0, and with a cache that others could write or have written (where the test runs as root)."""
    run_folder = tmp_path / "run"
    text = job_files.program(sys.executable, job_files.sources())
    program = tmp_path / "program"
    program.write_text(text.replace(repr(job_state.RUN), repr(str(run_folder))))

    def start() -> os.stat_result:
        done = subprocess.run(
            [sys.executable, "-IS", program, "x"], capture_output=True, text=True, check=False, timeout=60, umask=0
        )
        assert (done.returncode, done.stderr[:6], done.stdout) == (2, "usage:", ""), done.stderr
        (cache,) = run_folder.iterdir()
        return cache.stat()

    assert (start().st_mode & 0o7777, run_folder.stat().st_mode & 0o7777) == (0o600, 0o755)
    (cache,) = run_folder.iterdir()
    hostile = marshal.dumps({name: compile("print('hostile')", name, "exec") for name in job_files.sources()})
    own, nobody = os.geteuid(), 65534
    foreign = [(0o644, nobody), (0o600, nobody)] if own == 0 else []
    for mode, owner in ((0o666, own), (0o620, own), *foreign):
        cache.write_bytes(hostile)
        os.chmod(cache, mode)
        os.chown(cache, owner, -1)
        assert start().st_uid == own
        assert cache.read_bytes() != hostile
    cache.unlink()
    (tmp_path / "planted").write_bytes(hostile)
    cache.symlink_to(tmp_path / "planted")
    start()
    assert not cache.is_symlink()


def test_ansible_sends_every_part_with_the_module() -> None:
    """The program is built on the tray, where only files that the module imports exist."""
    found: set[str] = set()
    waiting = list(job_files._imported(ast.parse(Path(imex_job.__file__).read_text())))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += job_files._imported(ast.parse(own_source.read(name) or ""))
    assert set(job_files.sources()) <= found


def test_every_part_of_the_program_can_be_loaded(tmp_path: Path) -> None:
    """The parts that only explain failures must be loadable after a failure."""
    parts = job_files.sources()
    text = job_files.program(sys.executable, parts).replace(repr(job_state.RUN), repr(str(tmp_path / "run")))
    ending = "status = sys.modules[ENTRY]"
    assert ending in text
    imex = f"{job_files.PACKAGE}.imex"
    assert f"{imex}.job_failed" not in job_files.first(parts)
    loaded = f"sys.modules['{imex}.job_failed'].apply_policy; sys.modules['{imex}.job_daemon']._find_cause()"
    loaded_all = f"{loaded}; print('loaded_all'); sys.exit(0)\n"
    program = tmp_path / "program"
    program.write_text(text.replace(ending, loaded_all + ending))
    done = subprocess.run([sys.executable, "-IS", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "loaded_all\n", done.stderr


_PRINTS = """
import sys
PARTS = "PACKAGE.imex."
job_state, status, files = (sys.modules[PARTS + name] for name in ("job_state", "status", "files"))
sys.modules[PARTS + "job"].main
given, answer, job_state.RUN = sys.argv[1:]
settings = job_state.settings_of(given)
found = [settings._asdict(), settings == job_state.Settings(*settings), settings._replace(policy="run").policy]
found += [status.parse_row(answer, 3), status.parse_row(answer, 9)]
found.append(files.Config("LOG_LEVEL=4\\n SERVER_PORT = 50010\\n").get("SERVER_PORT"))
job_state.write_state({"job": "7", "clique": "r\\u00e4ck", "trays": ["a", "b"]})
job_state.remove("/nonexistent/file")
found.append(job_state.state())
found.append([name for name in ("collections", "enum", "functools", "json", "re", "typing") if name in sys.modules])
for wrong in ('{"clique": "x"}', given.replace("wait", "more"), "[1]", "{", "{} {}", "NaN", ""):
    try:
        job_state.settings_of(wrong)
    except job_state.Failure:
        found.append("rejected")
found.append(sys.modules["PACKAGE.text"].summarize("abcdefg"))
found.append(files.check_settings({"LOG_LEVEL": 3}))
import json
print(json.dumps(found))
sys.exit(0)
"""


def test_the_start_imports_little_and_parses_files_alike(tmp_path: Path) -> None:
    """The program's replacements of typing, json and similar modules return the same, and none of them is imported."""
    settings = job_state.Settings("r01", TRAYS, policy="requeue", wait=7.5)
    row = {"status": "READY", "connections": {str(number): {"status": "CONNECTED"} for number in range(18)}}
    answer = {"nodes": {"3": row, "4": {"status": "INIT_GPU"}}, "status": "UP"}
    text = job_files.program(sys.executable, job_files.sources())
    text = text.replace(repr(job_state.RUN), repr(str(tmp_path / "run")))
    program = tmp_path / "program"
    ending = "status = sys.modules[ENTRY]"
    assert text.count(ending) == 1
    program.write_text(text[: text.index(ending)] + _PRINTS.replace("PACKAGE", job_files.PACKAGE) + _behind(text))
    given = [job_files.render_settings(settings), json.dumps(answer, indent=1), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-IS", program, *given], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    known = {"job": "7", "clique": "r\u00e4ck", "trays": ["a", "b"]}
    assert json.loads(done.stdout) == [
        json.loads(json.dumps(settings._asdict())),
        True,
        "run",
        ["ready", {str(number): "connected" for number in range(18)}],
        None,
        "50010",
        known,
        [],
        *["rejected"] * 7,
        "a, b, c, d, e and 2 more",
        {"LOG_LEVEL": "3"},
    ]
    assert (tmp_path / "state.json").read_text() == json.dumps(known, sort_keys=True) + "\n"


def _behind(program: str) -> str:
    """The sources that follow the program's own lines."""
    return program[program.index("\n#@ ") :]


def test_the_settings_file_has_the_trays_own_clique_only() -> None:
    want = job_files.desired_state(OPTIONS, GOOD)
    made = job_files.files_of(want, {f"{job_files.PACKAGE}.imex.job": ""})
    assert len(made[job_state.SETTINGS_FILE][0]) < 2500
    assert job_state.settings_of(made[job_state.SETTINGS_FILE][0]).members == TRAYS
    assert "nvidia-imex" in made["/etc/slurm/prolog.d/50-nvlink-imex"][0]  # by which fabric_facts finds the owner
    assert made["/etc/slurm/epilog.d/50-nvlink-imex"][1] == 0o755


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
    slurm = {**GOOD, "switchtype": switch}
    assert job_files.desired_state({**OPTIONS, "channel0": option}, slurm).settings.channel0 is expected


@pytest.mark.parametrize(
    "change",
    [
        {"wait": 4},
        {"wait": 3601},
        {"stop_wait": 0},
        {"min_trays": 0},
        {"max_requeues": -1},
        {"clique": None},
        {"members": [{"node": "a", "address": "10.0.0.1"}, {"node": "a", "address": "10.0.0.2"}]},
        {"members": [{"node": "a", "address": "10.0.0.1"}, {"node": "b", "address": "10.0.0.1"}]},
        {"members": [{"node": "a", "address": ""}]},
    ],
)
def test_a_wrong_option_is_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(files.ImexError):
        job_files.desired_state({**OPTIONS, **change}, GOOD)


@pytest.mark.parametrize(
    ("change", "refused", "noted"),
    [
        ({}, [], []),
        ({"prologflags": []}, ["imex_job_prolog_flags"], []),
        ({"prologflags": ["Serial"]}, ["imex_job_prolog_flags"], []),
        ({"prologflags": ["Alloc", "NoSuch"]}, ["imex_job_prolog_flags"], []),
        ({"prologflags": ["contain,serial"]}, [], []),
        ({"prologepilogtimeout": ["65534"]}, [], []),
        ({"prologepilogtimeout": ["119"]}, ["imex_job_wait_too_long"], []),
        ({"prologepilogtimeout": ["120"]}, [], []),
        ({"prologtimeout": ["90"]}, ["imex_job_wait_too_long"], []),
        ({"epilogtimeout": ["49"]}, ["imex_job_wait_too_long"], []),
        ({"epilogtimeout": ["50"]}, [], []),
        ({"prolog": []}, [], ["imex_job_prolog_unset"]),
        ({"prolog": ["/opt/site/prolog.sh"]}, [], ["imex_job_prolog_unset"]),
        ({"prolog": ["/opt/site/prolog.sh", "/etc/slurm/prolog.d/*"]}, [], []),
        ({"epilog": ["/etc/slurm/epilog.d/*.sh"]}, [], ["imex_job_prolog_unset"]),
        ({"prolog": ["/opt/a.sh,/etc/slurm/prolog.d/[0-9]*"]}, [], []),
    ],
)
def test_missing_settings_of_slurm_conf_are_findings(
    change: dict[str, list[str]], refused: list[str], noted: list[str]
) -> None:
    slurm = {**GOOD, **change}
    found = job_files.judge(job_files.desired_state(OPTIONS, slurm), slurm, "/etc/slurm/slurm.conf")
    assert [[note["code"] for note in notes] for notes in found] == [refused, noted]


def test_policy_run_needs_a_task_prolog() -> None:
    want = job_files.desired_state({**OPTIONS, "policy": "run"}, GOOD)
    assert [note["code"] for note in job_files.judge(want, GOOD, "x")[1]] == ["imex_job_task_prolog"]
    assert job_files.judge(want, {**GOOD, "taskprolog": ["/x"]}, "x")[1] == []


def test_slurm_conf_is_read_with_includes_and_without_partitions(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=x\nProlog=/a/*\nPROLOG=/b/* # two\nPrologFlags=Alloc,\\\nContain\nInclude more.conf\n"
        "PartitionName=p Nodes=ALL Prolog=/no\n"
    )
    (tmp_path / "more.conf").write_text("Epilog='/e/*'\nSwitchType=switch/nvidia_imex\nInclude more.conf\n")
    path, settings = slurm_conf.read(str(tmp_path / "slurm.conf"))
    assert path == str(tmp_path / "slurm.conf")
    assert settings["prolog"] == ["/a/*", "/b/*"]
    assert settings["prologflags"] == ["Alloc,Contain"]
    assert set(settings["epilog"]) == {"/e/*"}
    assert set(settings["switchtype"]) == {"switch/nvidia_imex"}
    assert slurm_conf.read(str(tmp_path / "none")) == (None, {})
