# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import (
    domain,
    slurm_jobs,
    starting,
    survey,
    tray,
)


def test_closed_ports_are_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as open_port, socket.create_server(("127.0.0.1", 0)) as other:
        closed = other.getsockname()[1]
        other.close()
        ports = (open_port.getsockname()[1], closed)
        assert starting.closed_ports(["127.0.0.1"], ports) == {"127.0.0.1": [closed]}
        assert starting.closed_ports(["127.0.0.1"], ports[:1]) == {}
        assert starting.closed_ports([], ports) == {}


def squeue(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "squeue"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_squeue_runs_once_for_the_whole_clique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(tmp_path, f'echo "$@" >> {tmp_path}/calls; printf "8 (ann)\\n9 (bob)\\n8 (ann)\\n"', monkeypatch)
    assert slurm_jobs.running_on(["a", "b"]) == (["8 (ann)", "9 (bob)"], None)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 1
    assert "--nodelist=a,b" in calls[0]


def test_jobs_are_unknown_where_slurmctld_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(tmp_path, "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", monkeypatch)
    jobs, why = slurm_jobs.running_on(["a"])
    assert (jobs, why) == ([], "slurm_load_jobs error: Unable to contact slurm controller")
    squeue(tmp_path, "sleep 60", monkeypatch)
    assert slurm_jobs.running_on(["a"], 0.3) == ([], "squeue timed out")


def test_nodes_that_slurm_does_not_have_are_no_reason_to_stop_imex() -> None:
    found = slurm_jobs.blocking_finding([], "squeue: error: Invalid node name r01t01.example.com", ["a new list"])
    assert found["code"] == "imex_jobs_unknown"
    assert "set fabric_slurm_node of these trays to their NodeName, then discover" in found["message"]
    assert "allow_jobs" not in found["message"]
    found = slurm_jobs.blocking_finding([], "squeue timed out", ["a new list"])
    assert found["message"].endswith("; bring slurmctld back, or allow the stop with option allow_jobs.")


def test_a_client_without_a_cluster_has_no_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(tmp_path, "echo 'fatal: Could not establish a configuration source' >&2; exit 1", monkeypatch)
    # This machine may run job steps of a lab.
    monkeypatch.setattr(survey, "processes", lambda _wanted: [])
    assert slurm_jobs.running_on(["a"]) == ([], None)


def test_the_program_of_a_tray_is_the_check_at_boot() -> None:
    text = tray._program()
    assert text.startswith("#!/")
    assert " -I\n# Copyright" in text
    assert "def decide(" in text
    assert domain.PROGRAM == "/usr/local/libexec/nvlink-imex"
