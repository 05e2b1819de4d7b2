# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callback progress, in real runs of ansible-playbook on 36 simulated trays."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .commands import ansible

PLAYBOOK = Path(__file__).parent / "fixtures" / "progress.yml"
INVENTORY = """\
plugin: rackscale.nvlink.fabric
sources: [fabric_file]
fabric_file: fabric.json
"""
CHOSEN = {"ANSIBLE_STDOUT_CALLBACK": "rackscale.nvlink.progress", "NVLINK_PROGRESS_INTERVAL": "0"}
UNREACHABLE = "r02t18"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An inventory of two racks whose trays are local hosts, except one that is unreachable."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric()))
    (folder / "cluster.nvlink.yml").write_text(INVENTORY)
    group = folder / "group_vars"
    group.mkdir()
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (group / "all.json").write_text(json.dumps(local))
    (folder / "host_vars").mkdir()
    nowhere = folder / "ssh-to-nowhere"
    nowhere.write_text("#!/bin/sh\nexit 255\n")
    nowhere.chmod(0o755)
    unreachable = {"ansible_connection": "ssh", "ansible_ssh_executable": str(nowhere)}
    (folder / "host_vars" / f"{UNREACHABLE}.json").write_text(json.dumps(unreachable))
    return folder


def run(site: Path, *arguments: str, **more: str) -> list[str]:
    """The output lines of a run."""
    groups = {
        "progress_changed": ["r01t01", "r01t02", UNREACHABLE],
        "progress_failed": ["r01t03", "r01t04", "r02t05"],
        "progress_rescued": ["r02t07"],
        "progress_lost": ["r02t08"],
        "progress_file": str(site / "written"),
    }
    done = ansible(
        "ansible-playbook",
        *("-i", str(site / "cluster.nvlink.yml"), str(PLAYBOOK), "-e", json.dumps(groups)),
        *arguments,
        check=False,
        **CHOSEN | more,
    )
    assert "[WARNING]" not in done.stderr, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def whole(site: Path) -> list[str]:
    """The lines of a run over both racks, in which a file changes."""
    (site / "written").write_text("old\n")
    return run(site, "--diff", "--forks", "10")


def test_one_line_for_each_phase_and_rack(whole: list[str]) -> None:
    assert [line for line in whole if line.startswith(("PHASE", "  r01 ", "  r02 ", "  (no rack)"))] == [
        "PHASE Read the trays",
        "  r01  18 hosts: 14 ok, 2 changed, 2 failed (r01t[03-04])",
        "  r02  18 hosts: 14 ok, 1 rescued (r02t07), 2 failed (r02t[05,08]), 1 unreachable (r02t18)",
        "PHASE Write",
        "  (no rack)  1 host: 1 changed",
    ]
    # Two plays with header, racks and duration, the failures, one diff: far fewer than 36 lines a task.
    assert len(whole) < 30


def test_a_failure_is_printed_once_with_all_its_hosts(whole: list[str]) -> None:
    assert "  Refuse three: failed: r01t[03-04],r02t05: The GPU is gone: reset it." in whole
    assert "  Fail inside: rescued: r02t07: Not yet." in whole
    assert "  Ignore: r02t07: Ignored." in whole
    assert "  Repair: r02t07: progress_rescued | length: 1" in whole
    assert "  Fail first: rescued: r02t08: First." in whole
    assert "  Fail again: failed: r02t08: Again." in whole
    assert any(line.startswith(f"  Change two: unreachable: {UNREACHABLE}: ") for line in whole)


def test_the_summary_and_differences_are_printed(whole: list[str]) -> None:
    assert whole[-1].startswith("DONE in ")
    assert whole[-1].endswith(
        " 37 hosts: 28 ok, 3 changed, 1 rescued (r02t07), 4 failed (r01t[03-04],r02t[05,08]), 1 unreachable (r02t18)"
    )
    assert {"-old", "+new"} <= set(whole)


def test_check_mode_is_printed(site: Path) -> None:
    lines = run(site, "--check", "--limit", "r01t09")
    assert lines[0] == "PHASE Read the trays (check mode)"
    assert "  no hosts matched" in lines
    assert re.fullmatch(r"DONE in [0-9.]+ s \(check mode\): 1 host: 1 ok", lines[-1])


def test_racks_are_folded_and_grouped_by_option(site: Path) -> None:
    limit = ("--limit", "r01t09:r02t09")
    assert "  r[01-02]  1 host: 1 ok" in run(site, *limit, NVLINK_PROGRESS_FOLD_RACKS="true")
    lines = run(site, *limit, NVLINK_PROGRESS_GROUP_PREFIX="nvlink_clique_")
    assert "  r02a  1 host: 1 ok" in lines


def test_with_v_tasks_have_a_line_and_long_tasks_print_their_progress(site: Path) -> None:
    slow = ("-v", "--limit", "r01t09:r02t09", "--forks", "1", "-e", "progress_pause=2")
    lines = run(site, *slow, NVLINK_PROGRESS_INTERVAL="1")
    assert lines[lines.index("  Take time: 1 host so far") :][1:3] == [
        "  Take time: 2 hosts so far",
        "  Take time: 2 hosts",
    ]
