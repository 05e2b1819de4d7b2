# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The private key of IMEX in the output of Ansible at its highest verbosity."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .commands import ansible


def test_a_failed_phase_prints_its_arguments_without_the_private_key(tmp_path: Path) -> None:
    plan = {"clique": "r01", "nodes": ["198.51.100.1"], "tls": {"key": "THE SECRET", "certificate": "THE CERT"}}
    arguments = {"phase": "inspect", "options": {"owner": "domain"}, "plan": plan}
    task = {"name": "Run a phase", "rackscale.nvlink.imex_domain_phase": arguments}
    play = tmp_path / "play.yml"
    variables = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": [task]}]))
    done = ansible("ansible-playbook", "-i", "localhost,", "-vvvv", play, check=False, ANSIBLE_INJECT_INVOCATION="true")
    assert done.returncode == 2
    assert "authority is missing" in done.stdout + done.stderr
    assert "THE CERT" in done.stdout, "the arguments are printed"
    assert "THE SECRET" not in done.stdout + done.stderr
