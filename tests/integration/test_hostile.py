# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hostile tray of the tests does what it is for: without these, a test that shows no harm would show nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import hostile

PIPELINING = pytest.mark.parametrize("pipelining", ["false", pytest.param("true", marks=pytest.mark.long)])
SHOW = "{{ stolen | default('nothing') }} {{ done.stat.exists | default('gone') }} {{ done.extra | default('none') }}"
TASKS = [
    {"ansible.builtin.stat": {"path": "/"}, "register": "done"},
    {"ansible.builtin.debug": {"msg": f"SEEN {SHOW}"}},
]


def defaults(tmp_path: Path, *more: str, tasks: list[dict[str, Any]] | None = None, **environment: str) -> str:
    """The output of a play over all hosts, with Ansible's own defaults whatever the caller's environment says."""
    play = tmp_path / "play.yml"
    play.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks or TASKS}]))
    config = tmp_path / "ansible.cfg"
    config.write_text("")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", *more, str(play)],
        env={**kept, "ANSIBLE_NOCOLOR": "true", "ANSIBLE_CONFIG": str(config), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def local(python: Path) -> tuple[str, ...]:
    return "-i", "tray,", "-c", "local", "-e", f"ansible_python_interpreter={python}"


@pytest.mark.core
@PIPELINING
def test_an_injected_fact_is_a_variable_by_ansible_s_defaults(tmp_path: Path, pipelining: str) -> None:
    python = hostile.write_python(tmp_path / "python", {"ansible_facts": {"stolen": "INJECTED"}, "extra": "more"})
    seen = defaults(tmp_path, *local(python), ANSIBLE_PIPELINING=pipelining)
    assert "SEEN INJECTED True more" in seen
    off = defaults(tmp_path, *local(python), ANSIBLE_PIPELINING=pipelining, ANSIBLE_INJECT_FACT_VARS="false")
    assert "SEEN nothing True more" in off
