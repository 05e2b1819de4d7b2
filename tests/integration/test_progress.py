# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callback progress, in real runs of ansible-playbook on 36 simulated trays."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.lab.nvml import local_trays
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .commands import LOCAL, ansible, unreachable

PLAYBOOK = Path(__file__).parent / "fixtures" / "progress.yml"
INVENTORY = """\
plugin: rackscale.nvlink.fabric
sources: [fabric_file]
fabric_file: fabric.json
"""
CHOSEN = {"ANSIBLE_STDOUT_CALLBACK": "rackscale.nvlink.progress", "NVLINK_PROGRESS_INTERVAL": "0"}
UNREACHABLE = "r02t18"
# A stand-in tray must see no process of this machine, which may be nvidia-imex of a lab.
ALONE = """\
#!/bin/sh
exec unshare --user --map-root-user --pid --fork --mount-proc "${0%/*}/python" "$@"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An inventory of two racks whose trays are local hosts, except one that is unreachable."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric()))
    (folder / "cluster.nvlink.yml").write_text(INVENTORY)
    group = folder / "group_vars"
    group.mkdir()
    (group / "all.json").write_text(json.dumps(LOCAL))
    (folder / "host_vars").mkdir()
    (folder / "host_vars" / f"{UNREACHABLE}.json").write_text(json.dumps(unreachable(folder)))
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


def verdicts(lines: list[str]) -> list[str]:
    """The lines of the plays, without their duration."""
    found = [re.fullmatch(r"((?:ok|changed|rescued|failed|unreachable) .*) \([0-9.]+ s\)", line) for line in lines]
    return [match[1] for match in found if match]


def test_one_line_for_each_play(whole: list[str]) -> None:
    assert verdicts(whole) == [
        "unreachable  Read the trays: 36 hosts: 28 ok, 2 changed, 1 rescued (r02t07),"
        " 4 failed (r01t[03-04],r02t[05,08]), 1 unreachable (r02t18)",
        "changed      Write: localhost",
    ]
    # With the failures and one diff: far fewer than 36 lines a task.
    assert len(whole) < 24


@pytest.mark.core
def test_a_failure_is_printed_once_with_all_its_hosts(whole: list[str]) -> None:
    assert "  failed       Refuse three: r01t[03-04],r02t05: The GPU is gone: reset it." in whole
    assert "  rescued      Fail inside: r02t07: Not yet." in whole
    assert "  r02t07: Ignored." in whole
    assert "  r02t07: progress_rescued | length: 1" in whole
    assert "  rescued      Fail first: r02t08: First." in whole
    assert "  failed       Fail again: r02t08: Again." in whole
    assert any(line.startswith(f"  unreachable  Change two: {UNREACHABLE}: ") for line in whole)
    start = whole.index("  item 1")
    assert whole[start : start + 4] == ["  item 1", "  item 2", "  one", "  two"]
    start = whole.index("  Write a file: localhost")
    assert whole[start + 3 : start + 6] == ["    @@ -1 +1 @@", "    -old", "    +new"]


def test_the_last_line_has_the_result_and_the_first_cause(whole: list[str]) -> None:
    head, _counts, cause = whole[-1].partition(" unreachable (r02t18): ")
    assert re.sub("[0-9.]+ s", "1 s", head) == (
        "FAILED in 1 s: 37 hosts: 28 ok, 3 changed, 1 rescued (r02t07), 4 failed (r01t[03-04],r02t[05,08]), 1"
    )
    assert cause.startswith("Change two: ")
    assert cause.endswith("(2 more causes above)")


@pytest.mark.long
def test_check_mode_is_printed_and_plays_without_hosts_are_not(site: Path) -> None:
    lines = run(site, "--check", "--limit", "r01t09")
    assert verdicts(lines) == ["ok           Read the trays: r01t09"]
    assert re.fullmatch(r"OK in [0-9.]+ s \(check mode\): r01t09", lines[-1])
    assert len(lines) == 2


@pytest.mark.core
def test_a_run_that_ansible_stops_prints_what_its_last_task_did(tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    tasks = [{"ansible.builtin.debug": {"msg": "Accepted."}}]
    plays = [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}, {"hosts": "{{ nowhere }}"}]
    playbook.write_text(json.dumps(plays))
    done = ansible("ansible-playbook", "-i", "localhost,", str(playbook), check=False, **CHOSEN)
    assert done.returncode != 0
    assert "'nowhere' is undefined" in done.stderr
    first, last = done.stdout.splitlines()
    assert first == "  Accepted."
    assert re.fullmatch(r"FAILED in [0-9.]+ s: Ansible stopped before the end of the run, see its error", last)


@pytest.mark.long
@pytest.mark.parametrize("callback", ["ansible.posix.json", "ansible.posix.jsonl"])
def test_output_of_callbacks_that_print_json_can_be_read(site: Path, callback: str) -> None:
    """Nothing of the collection prints outside callbacks."""
    done = ansible(
        "ansible-playbook",
        *("-i", str(site / "cluster.nvlink.yml"), "rackscale.nvlink.render", "--tags", "report"),
        *("-e", f"fabric_file={site / 'fabric.json'}", "-e", f"render_dir={site / 'page'}"),
        ANSIBLE_STDOUT_CALLBACK=callback,
    )
    rows = [json.loads(text) for text in ([done.stdout] if callback.endswith("json") else done.stdout.splitlines())]
    assert "r01t18" in json.dumps(rows)


def test_a_run_of_site_without_changes_prints_few_lines(tmp_path: Path) -> None:
    """8 trays with the phases discover, imex, verify and report."""
    simulation = {"racks": 2, "trays_per_rack": 4, "seed": 1}
    source = {"plugin": "rackscale.nvlink.fabric", "sources": ["simulation"], "simulation": simulation}
    inventory, trays = tmp_path / "cluster.nvlink.yml", tmp_path / "trays"
    inventory.write_text(json.dumps(source))
    local_trays.write(trays, **simulation)
    for python in trays.glob("*/python"):
        (python.parent / "alone").write_text(ALONE)
        (python.parent / "alone").chmod(0o755)
    given = {
        **dict.fromkeys(("fabric_facts_backend", "verify_backend"), "nvidia_smi"),
        **dict.fromkeys(("fabric_facts_ip", "verify_ip"), "ip"),
        **{"fabric_file": str(tmp_path / "fabric.json"), "imex_owner": "none", "ansible_connection": "local"},
        "ansible_python_interpreter": f"{trays}/{{{{ inventory_hostname }}}}/alone",
    }
    # The first run places the trays.
    for most in (1000, 35):
        command = ("ansible-playbook", "rackscale.nvlink.site", "-i", inventory, "-e", json.dumps(given))
        lines = ansible(*command, **CHOSEN, COLUMNS="120").stdout.splitlines()
        assert len(lines) <= most, "\n".join([f"{len(lines)} lines", *lines])
    assert lines[-2].startswith("  Site: 8 trays; phases: discover, imex, verify, report. Next: ")
