# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every mistake of the table (package mistakes) ends with its exit status and its sentence."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib
import json
import os
import pkgutil
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.lab.nvml import local_trays
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from . import mistakes
from .mistakes import READ_ONLY, Mistake

LAST_LINES = 24
TABLE = [
    row
    for module in pkgutil.iter_modules(mistakes.__path__)
    for row in importlib.import_module(f"{mistakes.__name__}.{module.name}").MISTAKES
]
CLUSTER = "plugin: rackscale.nvlink.fabric\nsources: [fabric_file]\nfabric_file: fabric.json\n"
PROGRESS = {"ANSIBLE_STDOUT_CALLBACK": "rackscale.nvlink.progress"}
SIMULATION = {"racks": 2, "trays_per_rack": 2, "seed": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-in trays, and the site that each row has a copy of."""
    folder = tmp_path_factory.mktemp("mistakes")
    local_trays.write(folder / "trays", **SIMULATION)
    site = folder / "site"
    (site / "group_vars").mkdir(parents=True)
    (site / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=2, trays=2, split=())))
    (site / "cluster.nvlink.yml").write_text(CLUSTER)
    (site / "hosts.yml").write_text("slurm_controller: {hosts: {ctl: {}}}\n")
    (site / "ansible.cfg").touch()
    return folder


def prepared(folder: Path, row: Mistake, site: Path) -> None:
    """A copy of the site for one row."""
    shutil.copytree(folder / "site", site)
    nowhere = {"ansible_ssh_executable": str(folder / "trays" / "ssh-to-nowhere")}
    variables = {"fabric_file": str(site / "fabric.json"), **nowhere}
    if row.answering:
        assert row.playbook.rpartition(".")[2] in READ_ONLY, f"{row.playbook} would change this machine"
        tray = f"{folder}/trays/{{{{ inventory_hostname }}}}/python"
        local = {"ansible_connection": "local", "ansible_python_interpreter": tray}
        (site / "group_vars" / "nvlink.json").write_text(json.dumps(local))
        variables.update(dict.fromkeys(("fabric_facts_backend", "verify_backend"), "nvidia_smi"))
        variables.update(dict.fromkeys(("fabric_facts_ip", "verify_ip"), "ip"))
    (site / "group_vars" / "all.json").write_text(json.dumps(variables))
    if row.prepare:
        row.prepare(site)


def users_environment(home: Path) -> dict[str, str]:
    """Ansible's own defaults, as a new user has them; only the collection's place and the home folder are given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "_ANSIBLE"))}
    collections = os.environ.get("ANSIBLE_COLLECTIONS_PATH") or sysconfig.get_path("purelib")
    return {**kept, "ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_HOME": str(home / "home"), "COLUMNS": "160"}


def digests(site: Path) -> dict[str, str]:
    return {
        str(file.relative_to(site)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in site.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def one_space(text: str) -> str:
    return " ".join(text.split())


def _rows() -> Iterator[object]:
    for row in TABLE:
        marks = [mark for mark, wanted in ((pytest.mark.long, row.long), (pytest.mark.core, row.core)) if wanted]
        yield pytest.param(row, id=str(row), marks=marks)


@pytest.mark.parametrize("row", list(_rows()))
def test_a_mistake_is_answered(folder: Path, tmp_path: Path, row: Mistake) -> None:
    site = tmp_path / "site"
    prepared(folder, row, site)
    before = digests(site)
    sources = [word for name in row.inventory for word in ("-i", name)]
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", *sources, *shlex.split(row.line.replace("{site}", str(site)))],
        cwd=site,
        env=users_environment(tmp_path) | (PROGRESS if row.progress else {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == row.status, done.stdout
    last = one_space("\n".join(lines[-LAST_LINES:] if not row.progress else lines[-2:]))
    # Ansible prints a message in JSON, too.
    assert one_space(row.sentence) in last.replace('\\"', '"').replace("\\n", " "), done.stdout
    assert "Traceback" not in done.stdout
    # Ansible's own report has a failure twice: its error and the task's result, which has the findings too.
    results = [one_space(line.replace('\\"', '"')) for line in lines if line.startswith("fatal: ")]
    others = one_space("\n".join(line for line in lines if not line.startswith("fatal: ")).replace('\\"', '"'))
    reports = others.count(one_space(row.sentence)) + sum(one_space(row.sentence) in line for line in results)
    assert reports <= 2, done.stdout
    assert len(lines) <= row.lines, done.stdout
    after = digests(site)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    assert [name for name in changed if not any(fnmatch.fnmatch(name, one) for one in row.writes)] == []
