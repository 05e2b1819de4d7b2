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
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

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


class Answer(NamedTuple):
    status: int
    output: str
    changed: list[str]


class Mistakes:
    """Runs rows in copies of one site, as many at a time as the machine has processors."""

    def __init__(self, folder: Path, rows: list[Mistake]) -> None:
        self._folder = folder
        self._template = folder / "template"
        self._template.mkdir()
        self._make()
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1)
        self._answers: dict[Mistake, Future[Answer]] = {
            row: self._pool.submit(self._run, row, folder / str(number)) for number, row in enumerate(rows)
        }

    def answer(self, row: Mistake) -> Answer:
        return self._answers[row].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _make(self) -> None:
        local_trays.write(self._folder / "trays", **SIMULATION)
        (self._template / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=2, trays=2, split=())))
        (self._template / "cluster.nvlink.yml").write_text(CLUSTER)
        (self._template / "hosts.yml").write_text("slurm_controller: {hosts: {ctl: {}}}\n")
        (self._template / "ansible.cfg").touch()
        (self._template / "group_vars").mkdir()

    def _copy(self, row: Mistake, site: Path) -> None:
        shutil.copytree(self._template, site)
        nowhere = {"ansible_ssh_executable": str(self._folder / "trays" / "ssh-to-nowhere")}
        site_wide = {"fabric_file": str(site / "fabric.json"), **nowhere}
        (site / "group_vars" / "all.json").write_text(json.dumps(site_wide))
        if row.answering:
            assert row.playbook.rpartition(".")[2] in READ_ONLY, f"{row.playbook} would change this machine"
            tray = f"{self._folder}/trays/{{{{ inventory_hostname }}}}/python"
            local = {"ansible_connection": "local", "ansible_python_interpreter": tray}
            given = {"fabric_facts_backend": "nvidia_smi", "fabric_facts_ip": "ip"}
            verify = {"verify_backend": "nvidia_smi", "verify_ip": "ip"}
            (site / "group_vars" / "nvlink.json").write_text(json.dumps(local))
            (site / "group_vars" / "all.json").write_text(json.dumps({**site_wide, **given, **verify}))
        if row.prepare:
            row.prepare(site)

    def _run(self, row: Mistake, site: Path) -> Answer:
        self._copy(row, site)
        before = digests(site)
        sources = [word for name in row.inventory for word in ("-i", name)]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "ansible",
                "playbook",
                *sources,
                *shlex.split(row.line.replace("{site}", str(site))),
            ],
            cwd=site,
            env=users_environment(self._folder) | (PROGRESS if row.progress else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        after = digests(site)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return Answer(done.returncode, done.stdout, changed)


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


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mistakes]:
    """Only the rows that this run of pytest selected."""
    rows = [item.callspec.params["row"] for item in request.session.items if _has_row(item)]
    given = Mistakes(tmp_path_factory.mktemp("mistakes"), rows)
    try:
        yield given
    finally:
        given.close()


def _has_row(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and item.originalname == "test_a_mistake_is_answered"


def _rows() -> Iterator[object]:
    for row in TABLE:
        marks = [mark for mark, wanted in ((pytest.mark.long, row.long), (pytest.mark.core, row.core)) if wanted]
        yield pytest.param(row, id=str(row), marks=marks)


@pytest.mark.parametrize("row", list(_rows()))
def test_a_mistake_is_answered(runs: Mistakes, row: Mistake) -> None:
    answer = runs.answer(row)
    lines = answer.output.splitlines()
    assert answer.status == row.status, answer.output
    last = one_space("\n".join(lines[-LAST_LINES:] if not row.progress else lines[-2:]))
    # Ansible prints a message in JSON, too.
    assert one_space(row.sentence) in last.replace('\\"', '"').replace("\\n", " "), answer.output
    assert "Traceback" not in answer.output
    # Ansible's own report has a failure twice: its error and the task's result, which has the findings too.
    results = [one_space(line.replace('\\"', '"')) for line in lines if line.startswith("fatal: ")]
    others = one_space("\n".join(line for line in lines if not line.startswith("fatal: ")).replace('\\"', '"'))
    reports = others.count(one_space(row.sentence)) + sum(one_space(row.sentence) in line for line in results)
    assert reports <= 2, answer.output
    assert len(lines) <= row.lines, answer.output
    unexpected = [name for name in answer.changed if not any(fnmatch.fnmatch(name, one) for one in row.writes)]
    assert not unexpected, f"files changed: {unexpected}"
