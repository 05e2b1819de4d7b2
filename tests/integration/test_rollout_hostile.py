# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tray of a rollout whose answers set the rollout's variables: it fails alone, and nothing runs for it elsewhere.

Local hosts as trays, as in test_rollout.py, and Ansible's defaults: facts of a tray are variables of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import hostile
from .test_rollout import FIRST, RACK_2, RACK_3, TRAYS, Fleet, output

EVIL = '#!/bin/sh\necho "$0 $*" >>{marker}\nexit 1\n'


class Attack:
    """A fleet with a hostile tray, and what shows that something ran for it."""

    def __init__(self, folder: Path) -> None:
        self.fleet = Fleet(folder)
        self.folder = folder
        self.marker = folder / "ran"
        programs = folder / "evil"
        programs.mkdir()
        for name in ("scontrol", "sinfo", "squeue", "srun"):
            (programs / name).write_text(EVIL.format(marker=self.marker))
            (programs / name).chmod(0o755)
        task = {"ansible.builtin.file": {"path": str(self.marker), "state": "touch"}, "delegate_to": RACK_3[0]}
        (folder / "evil.yml").write_text(json.dumps([task]))
        # What decides for others in a wave, and the results of its tasks that run once.
        self.facts: dict[str, Any] = {
            "rollout_steps": ["hook", "resume"],
            "rollout_slurm_controller": RACK_3[0],
            "rollout_slurm_bin_dir": str(programs),
            "rollout_hook": str(folder / "evil.yml"),
            "rollout_test": ["sh", "-c", f"echo >>{self.marker}"],
            "rollout_test_user": "root",
            "rollout_progress_file": str(self.marker),
            "rollout_name": "evil",
            "rollout_stop_after": 0,
            "rollout_selected": {"trays": [*TRAYS], "nodes": [*TRAYS]},
            "rollout_resumed": {"failed_tests": dict.fromkeys(TRAYS, "it lied")},
            "rollout_recorded": {"passed": True},
            "rollout_plan": {"settings": {"steps": ["resume"], "slurm_controller": RACK_3[0]}},
            # A program of the controller, by the connection to the tray.
            "ansible_connection": "ssh",
            "ansible_ssh_executable": str(programs / "srun"),
            "ansible_ssh_common_args": f"-oProxyCommand='touch {self.marker}'",
        }

    def run(self, python: dict[str, Path] | None = None, **environment: str) -> Any:
        return self.fleet.run(python=python, settings=environment, facts_rank_above=True)


@pytest.fixture
def attack(tmp_path: Path) -> Attack:
    return Attack(tmp_path)


def failures(done: subprocess.CompletedProcess[str]) -> str:
    return output(done)[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("injected", ["true", pytest.param("false", marks=pytest.mark.long)])
def test_facts_that_a_hook_brings_decide_nothing_for_other_trays(attack: Attack, injected: str) -> None:
    python = hostile.write_python(
        attack.folder / "python", {"ansible_facts": attack.facts}, "lineinfile", sys.executable
    )
    done = attack.run(python={RACK_2[0]: python}, ANSIBLE_INJECT_FACT_VARS=injected)
    assert not attack.marker.exists(), attack.marker.read_text() + failures(done)
    # It is the first tray of its wave. The other tray of its clique passes, and the next wave runs.
    assert (set(attack.fleet.changed), attack.fleet.unfinished) == (set(TRAYS), {"r02": "failed"}), failures(done)
    row = json.loads(attack.fleet.progress_file.read_text())["cliques"]["r02"]["trays"]
    assert list(row) == [RACK_2[0]], (row, failures(done))
    assert "rollout_hook" in row[RACK_2[0]]
    assert done.returncode != 0


@pytest.mark.parametrize("tray", [FIRST[0], pytest.param(RACK_2[0], marks=pytest.mark.long)])
def test_facts_of_an_earlier_run_decide_nothing_for_other_trays(attack: Attack, tray: str) -> None:
    cache = attack.folder / "cache"
    cache.mkdir()
    (cache / f"s1_{tray}").write_text(json.dumps({"__payload__": json.dumps(attack.facts)}))
    environment = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(cache)}
    done = attack.run(**environment)
    assert not attack.marker.exists(), failures(done)
    canary = tray == FIRST[0]
    assert set(attack.fleet.changed) == (set() if canary else {*TRAYS} - {tray}), failures(done)
    clique = "r01a" if canary else "r02"
    assert attack.fleet.unfinished[clique] == "failed", failures(done)
    assert "which only the site may set" in failures(done)
