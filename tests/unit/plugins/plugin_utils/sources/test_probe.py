# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import interfaces, subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import probe
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets, standin_text
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", "pass"], capture_output=True, check=False).returncode == 0


OTHERS = filter(
    None, map(shutil.which, ("python3", "python3.9", "python3.10", "python3.11", "python3.12", "python3.14"))
)
PYTHONS = [sys.executable, *filter(_runs, OTHERS)]


def run(
    options: subsets.Options, limit: int = 60, python: str = sys.executable, before: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """before: a program that the tray's Python runs first."""
    *flags, bootstrap, module, asked, seconds = probe.arguments("subsets", options._asdict(), limit)
    command = [python, *flags, before + bootstrap, module, asked, seconds]
    return subprocess.run(command, input=probe.archive(module), capture_output=True, timeout=60, check=False)


def both(options: subsets.Options, python: str = sys.executable, before: str = "") -> tuple[Any, Any]:
    """The results of the probe and of the module, without the times.

    Of one state of this machine: a lab that starts beside the test adds addresses.
    """
    addresses = None
    while addresses != (addresses := interfaces.read()):
        done = run(options, python=python, before=before)
        gathered = json.loads(json.dumps(subsets.gather(options)))
    printed = probe.answer_in(done.stdout)
    assert printed, done.stderr
    assert done.stderr == b""
    for before, after in zip(printed["ansible_facts"].values(), gathered["ansible_facts"].values(), strict=True):
        assert before.pop("observed_at", "") <= after.pop("observed_at", "")
    return printed, gathered


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a tray with a fault of NVML and lost GPUs where a probe and the module find it."""

    def put(fault: str | None, lost: tuple[int, ...] = ()) -> None:
        text = standin_text.standin_text(next(iter(fleets.fleet().values())), fault, lost)
        (tmp_path / "gpus").write_text(text)

    (tmp_path / nvml.LIBRARY).symlink_to(trays.library())
    monkeypatch.setenv("NVLINK_STANDIN_GPUS", str(tmp_path / "gpus"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(nvml, "LIBRARY", str(trays.library()))
    return put


@pytest.mark.parametrize(
    ("fault", "lost", "subset"),
    [
        *((fault, (), ["gpu"]) for fault in (None, *standin_text.NVML_FAULTS) if "hang" not in str(fault)),
        *((None, lost, ["gpu", "links"]) for lost in ((0,), (2,), (0, 1, 2, 3))),
        *((None, (), [name]) for name in subsets.FACTS),
        (None, (), ["all"]),
    ],
)
def test_probe_and_module_read_the_same(
    fault: str | None, lost: tuple[int, ...], subset: list[str], driver: Callable[..., None]
) -> None:
    driver(fault, lost)
    options = subsets.Options(subset, "nvml")
    printed, gathered = both(options)
    assert printed == gathered


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_reads_all_subsets(python: str, driver: Callable[..., None]) -> None:
    driver(None, (2,))
    options = subsets.Options(["all"], "nvml")
    printed, gathered = both(options, python)
    assert printed == gathered
    assert "gpu_lost" in [found["code"] for found in printed["findings"]]


def test_equal_calls_give_equal_bytes() -> None:
    first = probe.archive("subsets")
    probe.archive.cache_clear()
    assert probe.archive("subsets") == first
    assert len(first) < 100_000


def test_the_archive_is_what_the_probe_imports_unchanged() -> None:
    directory = Path(subsets.__file__).parent
    with zipfile.ZipFile(io.BytesIO(probe.archive("subsets"))) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("__init__.py")}
    paths = {name.partition("/module_utils/")[2]: text for name, text in files.items()}
    assert {"probe.py", "subsets.py", "gpu/serials.py", "imex/survey.py"} <= paths.keys()
    assert not {"inspection.py", "imex/change.py"} & paths.keys(), "only what fabric_facts needs"
    assert all(text == (directory / path).read_bytes() for path, text in paths.items())


def test_the_probe_opens_no_file_for_writing(driver: Callable[..., None]) -> None:
    """Neither itself nor in the child that calls NVML: Python's audit events end a process that tries."""
    driver(None)
    hook = (
        "import os, sys; changes = ('os.mkdir', 'os.rename', 'os.remove', 'os.truncate', 'tempfile.mkstemp')\n"
        "def hook(event, given):\n"
        " writes = event == 'open' and given[0] != '/dev/null' and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)\n"
        " if event in changes or writes: os._exit(99)\n"
        "sys.addaudithook(hook)\n"
    )
    options = subsets.Options(["all"], "nvml")
    printed, gathered = both(options, before=hook)
    assert printed == gathered
    assert printed["ansible_facts"]["nvlink_fabric"]["attached"]
    assert run(options, before=f"{hook}open('/nowhere/file', 'w')\n").returncode == 99


def test_a_probe_that_takes_too_long_ends_itself(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 30\n")
    program.chmod(0o755)
    done = run(subsets.Options(backend="nvidia_smi", nvidia_smi=str(program)), limit=1)
    assert (done.returncode, done.stdout) == (-14, b"")


def test_facts_are_found_in_other_output() -> None:
    noise = b"Last login: today\n\xff\x00 nvlink-facts-2: is not this\n"
    answer = f"{probe.BEGIN}{json.dumps({'attached': True})}{probe.END}".encode()
    assert probe.answer_in(noise + answer + b"\nlogout\n") == {"attached": True}


@pytest.mark.parametrize(
    "printed",
    [
        "",
        probe.BEGIN,
        probe.END,
        probe.END + probe.BEGIN,
        probe.BEGIN + "{}",
        f"{probe.BEGIN}[]{probe.END}",
        f"{probe.BEGIN}{'[' * 100_000}{probe.END}",
        f"{probe.BEGIN}{{'a': 1}}{probe.END}",
        f'{probe.BEGIN}{{"a": [{"[]," * 20_000}0]}}{probe.END}',
    ],
)
def test_output_without_facts_is_none(printed: str) -> None:
    assert probe.answer_in(printed.encode()) is None
