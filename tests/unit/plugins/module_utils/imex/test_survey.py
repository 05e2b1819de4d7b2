# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What survey() reads of a host, against programs, files and a process of the test's own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import formats, processes, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import daemon as daemon_of_prolog
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import slurmd

Program = Callable[[str, str], Path]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Programs of the test's own, first in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def write(name: str, script: str) -> Path:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
        return folder / name

    return write


def read(tmp_path: Path, **options: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "config_path": str(tmp_path / "config.cfg"),
        "record_path": str(tmp_path / "record"),
        "ctl": str(tmp_path / "bin" / "nvidia-imex-ctl"),
        "timeout": 60.0,
        "prolog_files": [],
        "proc_devices": str(tmp_path / "devices"),
        "addresses": lambda: ["198.51.100.11"],
    }
    return survey.survey(**{**nothing, **options})


CALLED = "open('/proc/self/comm', 'w').write('nvidia-imex'); print(flush=True); import time; time.sleep(60)"


@contextlib.contextmanager
def called_imex(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is called nvidia-imex."""
    with subprocess.Popen([sys.executable, "-c", CALLED, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("manager", "line", "expected"),
    [
        ("dpkg-query", "ii  nvidia-imex 580.173.02-1", {"name": "nvidia-imex", "version": "580.173.02-1"}),
        ("dpkg-query", "hi  nvidia-imex-580 580.173.02-1", {"name": "nvidia-imex-580", "version": "580.173.02-1"}),
        ("dpkg-query", "rc  nvidia-imex 570.1-1", None),
        ("rpm", "ii  nvidia-imex 580.95.05-1", {"name": "nvidia-imex", "version": "580.95.05-1"}),
    ],
)
def test_the_package_is_read_from_dpkg_or_rpm(
    program: Program, tmp_path: Path, manager: str, line: str, expected: dict[str, str] | None
) -> None:
    for name in ("dpkg-query", "rpm"):
        program(name, f"echo '{line}'" if name == manager else "exit 1")
    assert read(tmp_path)["package"] == expected


def test_the_paths_of_list_and_log_are_read_from_the_configuration(program: Program, tmp_path: Path) -> None:
    (tmp_path / "config.cfg").write_text(f"IMEX_NODE_CONFIG_FILE={tmp_path}/list\nLOG_FILE_NAME={tmp_path}/log\n")
    (tmp_path / "list").write_text("198.51.100.11\n")
    (tmp_path / "log").write_text("old\n" * 100_000 + "last\n")
    found = read(tmp_path)
    assert found["nodes"]["text"] == "198.51.100.11\n"
    assert abs(found["nodes"]["changed_at"] - time.time()) < 60
    assert found["log"].endswith("old\nlast\n")
    assert len(found["log"]) < 100_000
    (tmp_path / "config.cfg").unlink()
    assert read(tmp_path)["nodes"]["path"] == formats.NODES_FILE


def test_the_version_query_of_another_run_is_no_daemon(program: Program, tmp_path: Path) -> None:
    """Two runs at one time: each has a process that is called as the daemon and prints the version."""
    with called_imex("--version") as query, called_imex("-c", "x.cfg") as other:
        found = {entry["pid"] for entry in read(tmp_path)["processes"]}
        pids = {pid for pid, _own in daemon_of_prolog.daemons()}
    assert found & {query.pid, other.pid} == pids & {query.pid, other.pid} == {other.pid}


@pytest.mark.parametrize(
    ("arguments", "state", "expected"),
    [
        ("nvidia-imex\0-c\0x.cfg\0", "S", [(812, True)]),
        # The kernel takes the arguments of a process away before its files: one that the driver holds stays then.
        ("", "D", [(812, True)]),
        ("", "Z", []),
    ],
)
def test_a_daemon_of_the_unit_is_known_until_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, state: str, expected: list[tuple[int, bool]]
) -> None:
    """On a hybrid cgroup systemd names the unit in the hierarchy of its own alone."""
    folder = tmp_path / "812"
    folder.mkdir()
    (folder / "comm").write_text("nvidia-imex\n")
    (folder / "cmdline").write_text(arguments)
    (folder / "stat").write_text(f"812 (nvidia-imex) {state} {'1 ' * 20}")
    (folder / "cgroup").write_text("2:cpuset:/\n1:name=systemd:/system.slice/nvidia-imex.service\n0::/\n")
    found = processes.processes(proc=str(tmp_path))
    monkeypatch.setattr(daemon_of_prolog, "processes", lambda: found)
    assert daemon_of_prolog.daemons() == expected
    assert processes.is_version_query("812", str(tmp_path)) is not bool(expected)


def test_a_call_that_hangs_is_not_followed_by_another(program: Program, tmp_path: Path) -> None:
    program("nvidia-imex-ctl", "exec sleep 60")
    with called_imex("-c", "x.cfg"):
        found = read(tmp_path, timeout=0.5)
    assert (set(found["answers"]), found["answers"]["state"].timed_out) == ({"state"}, True)
    assert found["control_tool"] is False


@pytest.mark.parametrize(("script", "expected"), [('test "$*" = --version', True), ("exit 1", False), (None, False)])
def test_whether_the_control_tool_can_be_run_is_known_without_a_daemon(
    program: Program, tmp_path: Path, script: str | None, expected: bool
) -> None:
    if script:
        program("nvidia-imex-ctl", script)
    assert read(tmp_path)["control_tool"] is expected


def test_the_channel_major_and_prologs_that_mention_imex_are_read(tmp_path: Path, program: Program) -> None:
    (tmp_path / "devices").write_text("Character devices:\n  1 mem\n234 nvidia-caps-imex-channels\n")
    for name, text in (("a.sh", "exec nvidia-imex -c x"), ("b.sh", "true")):
        (tmp_path / name).write_text(text)
    found = read(tmp_path, prolog_files=[f"{tmp_path}/*.sh", f"{tmp_path}/a*"])
    assert found["channels"]["major"] == 234
    assert found["prolog_files"] == [f"{tmp_path}/a.sh"]


@pytest.mark.parametrize(
    ("conf", "mention", "expected"),
    [
        # CycleCloud's, whose slurm.conf links to the same folder.
        ("Prolog={here}/sched/prolog.d/*\n", "imex", (["sched/prolog.d/90-imex.sh"], False)),
        ("Include site.conf\n", "imex", (["sched/prolog.d/90-imex.sh"], False)),
        ("Prolog=/usr/bin/true,prolog.d/9?-imex.sh\n", "imex", (["sched/prolog.d/90-imex.sh"], False)),
        ("Prolog=/usr/bin/true\nProlog=prolog.d/*\n", "caps-imex-channels", ([], True)),
        ("Epilog={here}/sched/prolog.d/*\n", "imex", (["sched/prolog.d/90-imex.sh"], False)),
        ("Prolog=/usr/bin/true\n", "imex", ([], False)),
    ],
)
def test_the_prologs_are_those_of_the_slurmd_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conf: str, mention: str, expected: tuple[list[str], bool]
) -> None:
    folder = tmp_path / "sched"
    (folder / "prolog.d").mkdir(parents=True)
    (folder / "slurm.conf").write_text(conf.format(here=tmp_path))
    (folder / "site.conf").write_text("Prolog=prolog.d/*.sh\n")
    (folder / "prolog.d" / "90-imex.sh").write_text(f"systemctl restart nvidia-{mention}\n")
    monkeypatch.setattr(slurmd, "find", lambda: slurmd.Slurmd(str(folder / "slurm.conf"), ""))
    found = read(tmp_path)
    assert found["prolog_files"] == [str(tmp_path / name) for name in expected[0]]
    assert found["prolog_gives_channels"] is expected[1]


def test_slurmctld_is_asked_for_the_prologs_of_a_slurmd_whose_slurm_conf_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    (tmp_path / "90-imex.sh").write_text("systemctl restart nvidia-imex\n")
    program("scontrol", f'test "$*" = "show config" && echo "Prolog[0]               = {tmp_path}/90*"')
    monkeypatch.setattr(slurmd, "find", lambda: slurmd.Slurmd(None, str(tmp_path)))
    assert read(tmp_path)["prolog_files"] == [str(tmp_path / "90-imex.sh")]
    monkeypatch.setattr(slurmd, "find", lambda: slurmd.Slurmd(None, ""))
    assert read(tmp_path)["prolog_files"] == []


@pytest.mark.parametrize(
    ("parameters", "devices", "given"),
    [("", "234 nvidia-caps-imex-channels", True), ("", "1 mem", False), ("imex_dev_major=4", "1 mem", True)],
)
def test_slurms_plugin_gives_no_channel_without_their_major(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: str, devices: str, given: bool
) -> None:
    """_find_major() of Slurm's imex_device.c disables it then."""
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"SwitchType=switch/nvidia_imex\nSwitchParameters=imex_channel_count=9,{parameters}\n")
    (tmp_path / "devices").write_text(f"Character devices:\n{devices}\n")
    monkeypatch.setattr(slurmd, "find", lambda: slurmd.Slurmd(str(conf), ""))
    assert read(tmp_path)["slurm_gives_channels"] is given
