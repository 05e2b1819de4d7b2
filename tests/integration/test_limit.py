# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A limit without localhost, by which Ansible would drop the plays that decide, stops each playbook before any task."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .commands import ansible

FOLDER = Path(__file__).resolve().parents[2] / "playbooks"
# Each with its phase, where it has one.
PLAYBOOKS = {
    path.stem: "".join(file.read_text() for file in (path, FOLDER / "phases" / path.name) if file.exists())
    for path in sorted(FOLDER.glob("*.yml"))
}
GUARDED = [name for name, text in PLAYBOOKS.items() if "localhost: false" not in text]


def test_each_playbook_with_a_play_on_localhost_requires_it() -> None:
    # Neither the play that checks the run, nor a variable that localhost has.
    with_localhost = [
        name
        for name, text in PLAYBOOKS.items()
        if re.search(r"^  hosts:.*(?<!\[')localhost(?!:all)", text, re.MULTILINE)
    ]
    assert with_localhost == GUARDED


@pytest.mark.parametrize(
    "playbook",
    [pytest.param(name, marks=() if name == "discover" else pytest.mark.long) for name in GUARDED],
)
def test_a_limit_without_localhost_is_one_sentence(playbook: str, tmp_path: Path) -> None:
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=2, first_index=1)))
    hosts = tmp_path / "hosts.ini"
    hosts.write_text("[nvlink]\nr01t01\nr01t02\n[slurm_controller]\nctl\n[all:vars]\nansible_connection=local\n")
    (tmp_path / "limit").write_text("r01t01\n")
    # Ansible passes a limit from a file on as it passes one of hosts.
    for limit in ("r01t01", f"@{tmp_path / 'limit'}")[: 2 if playbook == "discover" else 1]:
        done = ansible(
            *("ansible-playbook", "-i", hosts, f"rackscale.nvlink.{playbook}", "--limit", limit),
            *("-e", f"fabric_file={tmp_path / 'fabric.json'}", "-e", "drain_trays=r01t01", "-e", "resume_trays=r01t01"),
            *("-e", "edit_remove=r01t01", "-e", f"demo_dir={tmp_path}", "-e", f"render_dir={tmp_path}"),
            check=False,
        )
        assert done.returncode == 2
        assert f"This playbook runs on localhost too: use --limit {limit},localhost." in done.stdout
        assert done.stdout.count("TASK [") == 1, done.stdout
        assert "r01t02" not in done.stdout, "the sentence is reported for one host"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fabric.json", "hosts.ini", "limit"]
