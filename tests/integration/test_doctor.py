# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook doctor on trays that are directories, each broken in another way, in one run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.tests.lab.nvml import local_trays

from .commands import ansible
from .test_discover import Site

# A clock of its own: Python imports the file at its start.
CLOCK = "import time\nreal = time.time\ntime.time = lambda: real() + 400\n"
SSH = '#!/bin/sh\necho "root@tray: Permission denied (publickey)." >&2\nexit 255\n'
SUDO = '#!/bin/sh\necho "sudo: a password is required" >&2\nexit 1\n'


class Broken(Site):
    """Eight trays of two racks, of which six have a fault."""

    def doctor(self, *arguments: str, **variables: Any) -> tuple[int, str, dict[str, Any]]:
        inventory = self.directory / "hosts.yml"
        groups = {"trays": {"hosts": self.hosts, "vars": self.variables}, "login": {"hosts": {"front": {}}}}
        inventory.write_text(yaml.safe_dump(groups))
        report = self.directory / "doctor.json"
        # A relative path starts at the working folder, not at the playbook.
        given = json.dumps({"doctor_file": os.path.relpath(report), **variables})
        done = ansible(
            "ansible-playbook", "-i", inventory, "rackscale.nvlink.doctor", "-e", given, *arguments, check=False
        )
        return done.returncode, done.stdout + done.stderr, json.loads(report.read_text())


def test_each_fault_is_named_with_its_trays_and_nothing_is_written_on_them(tmp_path: Path) -> None:
    site = Broken(tmp_path)
    site.cut_off("r01t01")

    def program(name: str, text: str) -> str:
        return str(local_trays.program(tmp_path / name, text))

    site.hosts["r01t01"]["ansible_ssh_executable"] = program("ssh-denied", SSH)
    # The same fault of another tray is the same line.
    site.hosts["r01t03"] = dict(site.hosts["r01t01"])
    site.hosts["r01t02"]["ansible_python_interpreter"] = "/nowhere/python3"
    sudo = program("sudo", SUDO)
    site.hosts["r02t01"].update(ansible_become=True, ansible_become_user="nobody", ansible_become_exe=sudo)
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    late = f'#!/bin/sh\nPYTHONPATH={tmp_path}/clock PATH="{tmp_path}/r02t02:$PATH" exec {sys.executable} "$@"\n'
    site.hosts["r02t02"]["ansible_python_interpreter"] = program("late", late)
    before = {path: path.stat().st_mtime_ns for name in site.facts for path in (tmp_path / name).iterdir()}

    status, output, verdict = site.doctor(fabric_file=str(site.path))
    rows = {(row["name"], row["status"]): row for row in verdict["checks"]}
    assert (status, verdict["ok"]) == (2, False), output
    assert rows["ssh", "error"]["hosts"] == "r01t[01,03]"
    assert rows["ssh", "error"]["message"].startswith("Permission denied (publickey): install the public key")
    assert rows["python", "error"]["hosts"] == "r01t02"
    assert rows["become", "error"]["hosts"] == "r02t01"
    assert rows["become", "error"]["message"].startswith("a password is required: allow sudo")
    assert rows["clock", "error"]["hosts"] == "r02t02"
    assert "differs from that of the controller by about 400 s; munge" in rows["clock", "error"]["message"]
    assert rows["nvml", "ok"]["hosts"] == "r02t02"
    assert rows["fabric_file", "info"]["message"].endswith("does not exist yet; run discover and accept first")
    assert rows["slurm", "skipped"]
    assert rows["kubernetes", "skipped"]
    assert verdict["summary"] in output
    assert "1 of 5 trays answered, 4 errors (ssh, python, become, clock)" in verdict["summary"]
    # No report of Ansible's own for each tray, and none of the login host.
    assert output.count("[ERROR]") == 1
    assert "[front]" not in output.partition("PLAY [Inspect the trays]")[2].partition("PLAY RECAP")[0]
    after = {path: path.stat().st_mtime_ns for name in site.facts for path in (tmp_path / name).iterdir()}
    assert before == after
