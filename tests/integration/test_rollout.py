# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waves in real runs of the playbook, with local hosts as trays: no root, no lab.

The change of a tray is a line in a file; the trays of `broken` fail before it, those of `away` are unreachable.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabrics import fabric

from .commands import LOCAL, ansible, unchanged, unreachable
from .conftest import CHECKOUT
from .slurmctld import Slurmctld, sandbox

HOOK = """\
- name: Break
  ansible.builtin.fail:
    msg: it is broken
  when: inventory_hostname in broken | default([])

- name: Change
  ansible.builtin.lineinfile:
    path: "{{ changed_trays }}"
    line: "{{ inventory_hostname }}"
    create: true
    mode: "0600"
  throttle: 1
"""
# The first rack has two cliques of one tray, the others one clique of two.
FIRST, SECOND = ["r01t01"], ["r01t02"]
RACK_2, RACK_3 = ["r02t01", "r02t02"], ["r03t01", "r03t02"]
TRAYS = (*FIRST, *SECOND, *RACK_2, *RACK_3)


class Fleet:
    """Three racks of an inventory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "fabric.json"
        self.file.write_text(json.dumps(fabric(racks=3, trays=2, split=(1,)).as_dict()))
        self.progress_file = folder / "fabric.rollout-hook.json"
        (folder / "hook.yml").write_text(HOOK)

    def run(
        self,
        *options: str,
        away: str = "",
        book: str | Path = "rackscale.nvlink.rollout",
        settings: dict[str, str] | None = None,
        python: dict[str, Path] | None = None,
        facts_rank_above: bool = False,
        **variables: Any,
    ) -> subprocess.CompletedProcess[str]:
        """facts_rank_above: the rollout's variables are not given with -e, which no fact overrides."""
        hosts: dict[str, Any] = {name: dict(LOCAL) for name in TRAYS}
        for tray, path in (python or {}).items():
            hosts[tray]["ansible_python_interpreter"] = str(path)
        if away:
            hosts[away] = unreachable(self.folder)
        given = {"rollout_hook": str(self.folder / "hook.yml"), "rollout_steps": ["hook"]}
        given.update(rollout_name="hook", changed_trays=str(self.folder / "changed"))
        # Variables of group_vars apply to the waves too.
        values = {"fabric_file": str(self.file), **variables, **(given if facts_rank_above else {})}
        inventory = self.folder / "hosts.json"
        inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": values}}))
        extra = () if facts_rank_above else ("-e", json.dumps(given))
        return ansible("ansible-playbook", "-i", inventory, book, *extra, *options, check=False, **(settings or {}))

    @property
    def changed(self) -> list[str]:
        """The changed trays, in order."""
        path = self.folder / "changed"
        return path.read_text().split() if path.exists() else []

    @property
    def unfinished(self) -> dict[str, str]:
        if not self.progress_file.exists():
            return {}
        return {name: row["state"] for name, row in json.loads(self.progress_file.read_text())["cliques"].items()}


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def output(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stdout + done.stderr).split())


def test_the_canary_goes_alone_and_each_wave_finishes_before_the_next(fleet: Fleet) -> None:
    done = fleet.run(rollout_canary="r02", rollout_domains=[1, 2])
    assert done.returncode == 0, output(done)
    recap = output(done).partition("TASK [Show the finished cliques]")[2]
    assert "Rollout hook: 4 cliques changed." in recap
    assert '"r02: 2 trays: r02t[01-02]"' in recap
    order = fleet.changed
    assert (set(order[:2]), set(order[2:4]), set(order[4:])) == (set(RACK_2), {*FIRST, *SECOND}, set(RACK_3))
    assert fleet.unfinished == {}
    assert unchanged(fleet.run().stdout)


def test_a_failed_canary_stops_the_rollout_and_the_next_run_resumes(fleet: Fleet) -> None:
    printed = output(fleet.run(broken=FIRST))
    assert re.search(r"r01a \(failed: r01t01, Break: [^)]*it is broken\), r01b \(pending\)", printed), printed
    pending = dict.fromkeys(("r01b", "r02", "r03"), "pending")
    assert (fleet.changed, fleet.unfinished) == ([], {"r01a": "failed", **pending})
    # Repaired and limited to one tray: the other cliques stay in the progress file, and the run fails.
    assert fleet.run("--limit", "r01t01,localhost", "-e", f"rollout_resume={fleet.progress_file}").returncode != 0
    assert (fleet.changed, fleet.unfinished) == (FIRST, pending)
    assert fleet.run("-e", f"rollout_resume={fleet.progress_file}").returncode == 0
    assert (len(fleet.changed), fleet.unfinished) == (6, {})


@pytest.mark.long
def test_it_stops_after_the_limit_of_failed_cliques_without_counting_unreachable_ones(fleet: Fleet) -> None:
    assert fleet.run(broken=["r02t02"], away="r01t02", rollout_stop_after=1).returncode != 0
    assert fleet.unfinished == {"r01b": "skipped", "r02": "failed", "r03": "pending"}
    assert set(fleet.changed) == {*FIRST, "r02t01"}


@pytest.mark.long
def test_check_mode_changes_nothing_and_a_tray_stands_for_its_clique(fleet: Fleet) -> None:
    assert fleet.run("--check").returncode == 0
    lost = fleet.run("--check", away="r01t02")
    assert (lost.returncode != 0, "unfinished: r01b (" in output(lost)) == (True, True), output(lost)
    assert "rollout_resume=" not in output(lost), "a file that a dry run does not write"
    assert (fleet.changed, fleet.progress_file.exists()) == ([], False)
    some = fleet.run("-e", "rollout_trays=r01b,r03t01")
    assert (some.returncode, set(fleet.changed)) == (0, {*SECOND, *RACK_3}), "the whole clique of a tray"


@pytest.mark.long
def test_a_wave_that_loses_all_of_its_trays_is_finished_by_the_next(fleet: Fleet) -> None:
    lost = {
        "name": "Lose the first tray",
        "ansible.builtin.command": "true",
        "when": f"inventory_hostname == {RACK_2[0]!r}",
        "vars": unreachable(fleet.folder),
    }
    (fleet.folder / "hook.yml").write_text(HOOK + f"\n- {json.dumps(lost)}\n")
    done = fleet.run(broken=[RACK_2[1]])
    assert (done.returncode != 0, fleet.unfinished) == (True, {"r02": "failed"}), output(done)
    rows = json.loads(fleet.progress_file.read_text())["cliques"]["r02"]["trays"]
    assert rows[RACK_2[0]] == "it became unreachable during the wave"
    assert "it is broken" in rows[RACK_2[1]]
    assert set(fleet.changed) == {*FIRST, *SECOND, RACK_2[0], *RACK_3}


def test_no_tray_drains_the_others(fleet: Fleet) -> None:
    done = fleet.run("-e", '{"rollout_steps": ["drain", "hook"], "rollout_slurm_controller": "r03t01"}')
    assert "slurm_controller: 'r03t01' is a tray of the fabric, and no tray may run commands for others" in output(done)
    assert (done.returncode != 0, fleet.changed) == (True, [])


@pytest.mark.long
@pytest.mark.lab
def test_trays_of_a_slurm_with_another_conf_dir_are_drained_and_resumed(fleet: Fleet) -> None:
    with sandbox("trixie", fleet.folder / "slurm") as slurm:
        slurm.configure(slurm.nodes("r0[1-3]t0[1-2]"), "PartitionName=gpu Nodes=ALL Default=YES")
        slurm.start()
        tree = {"all": {"hosts": dict.fromkeys(TRAYS, LOCAL)}, "slurm_controller": {"hosts": {"ctl": LOCAL}}}
        inventory = fleet.folder / "slurm.json"
        inventory.write_text(json.dumps(tree))
        given = {"fabric_file": str(fleet.file), "rollout_slurm_bin_dir": str(slurm.bin_dir)}
        given["slurm_conf_dir"] = str(slurm.conf_dir)
        command = ("ansible-playbook", "-i", inventory, "-e", json.dumps(given))
        ansible(*command, "rackscale.nvlink.drain", "-e", "drain_trays=r02")
        assert drained(slurm) == dict.fromkeys(RACK_2, "nvlink: drain")
        spares = json.dumps({"spares_active": 1, "spares_promote": "r01t02"})
        ansible(*command, "rackscale.nvlink.drain", "--tags", "spares", "-e", spares)
        assert drained(slurm) == {**dict.fromkeys(RACK_2, "nvlink: drain"), "r01t02": "nvlink: broken"}
        assert "Nodes=r03t02" in slurm.run("scontrol", "-o", "show", "reservation").stdout
        steps = {
            "rollout_name": "resume",
            "rollout_trays": "r02",
            "rollout_steps": ["resume"],
            "rollout_reason": "drain",
            "rollout_test": [],
        }
        ansible(*command, "rackscale.nvlink.rollout", "-e", json.dumps(steps))
        assert drained(slurm) == {"r01t02": "nvlink: broken"}


def drained(slurm: Slurmctld) -> dict[str, str]:
    lines = slurm.run("sinfo", "-hRN", "-o", "%N|%E").stdout.splitlines()
    return {name: why for name, _bar, why in (line.partition("|") for line in lines)}


# Steps, rollout_driver (the trays have driver 2), whether IMEX has pending changes (None: not queried), whether the
# tray is due.
DUE: list[tuple[list[str], str, bool | None, bool]] = [
    (["drain", "hook", "fabric", "verify"], "", None, True),
    (["drain", "hook", "fabric", "verify"], "3", None, True),
    (["drain", "imex_stop", "hook", "fabric", "imex", "verify"], "3", None, True),
    (["drain", "imex_stop", "hook", "fabric", "imex", "verify"], "2", False, False),
    (["drain", "imex_stop", "hook", "fabric", "imex", "verify"], "2", True, True),
    (["drain", "imex", "verify"], "", False, False),
    (["drain", "imex", "verify"], "", True, True),
    # rollout_driver in group_vars does not matter to a rollout without a hook.
    (["drain", "imex", "verify"], "2", True, True),
    (["imex"], "2", None, True),
    # A tray is due if the rollout does not drain it, or if its pending changes cannot be queried.
    (["verify", "resume"], "", None, True),
    (["drain", "imex", "verify", "resume"], "", None, True),
    (["drain", "imex_stop", "imex"], "", None, True),
]


def test_a_tray_is_due_where_a_step_has_changes(tmp_path: Path) -> None:
    role = CHECKOUT / "roles" / "rollout"
    cases = [
        {"steps": steps, "driver": driver, "queries": imex is not None, "due": due, "imex": {"pending": imex}}
        for steps, driver, imex, due in DUE
    ]
    task = {
        "ansible.builtin.assert": {
            "that": ["rollout_due == item.due", "rollout_queries_imex == item.queries"],
            "quiet": True,
        },
        "loop": cases,
        "vars": {
            "rollout_settings": "{{ item | dict2items | selectattr('key', 'in', ['steps', 'driver']) | items2dict }}",
            "rollout_observed": {"ansible_facts": {"nvlink_fabric": {"driver_version": "2"}}},
            "imex_pending": "{{ item.imex }}",
        },
    }
    files = [str(role / folder / "main.yml") for folder in ("defaults", "vars")]
    play = {"hosts": "localhost", "gather_facts": False, "vars_files": files, "tasks": [task]}
    (tmp_path / "due.json").write_text(json.dumps([play]))
    done = ansible("ansible-playbook", "-i", "localhost,", str(tmp_path / "due.json"), check=False)
    assert done.returncode == 0, output(done)
