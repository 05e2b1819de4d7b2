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
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import facts, nvml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import simulation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import probe
from ansible_collections.rackscale.nvlink.tests.lab.nvml import standin_text
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", "pass"], capture_output=True, check=False).returncode == 0


OTHERS = filter(
    None, map(shutil.which, ("python3", "python3.9", "python3.10", "python3.11", "python3.12", "python3.14"))
)
PYTHONS = [sys.executable, *filter(_runs, OTHERS)]


def run(
    backend: str, nvidia_smi: str = "nvidia-smi", limit: int = 60, python: str = sys.executable
) -> subprocess.CompletedProcess[bytes]:
    command = [python, *probe.arguments(backend, nvidia_smi, 20.0, limit)]
    return subprocess.run(command, input=probe.archive(), capture_output=True, timeout=60, check=False)


def both(done: subprocess.CompletedProcess[bytes], backend: str, nvidia_smi: str) -> tuple[Any, Any]:
    """The facts of the probe and of the module, without the time."""
    printed = probe.facts_in(done.stdout)
    assert printed, done.stderr
    assert done.stderr == b""
    gathered = facts.gather(backend, nvidia_smi, 20.0)
    assert printed.pop("observed_at") <= gathered.pop("observed_at")
    return printed, gathered


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a tray with a fault of NVML and lost GPUs where a probe and the module find it."""

    def put(fault: str | None, lost: tuple[int, ...] = ()) -> None:
        text = standin_text.standin_text(next(iter(simulation.fleet().values())), fault, lost)
        (tmp_path / "gpus").write_text(text)

    (tmp_path / nvml.LIBRARY).symlink_to(trays.library())
    monkeypatch.setenv("NVLINK_STANDIN_GPUS", str(tmp_path / "gpus"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(nvml, "LIBRARY", str(trays.library()))
    return put


@pytest.mark.parametrize("fault", [None, "crash"])
@pytest.mark.parametrize("python", PYTHONS)
def test_probe_and_module_read_the_same_from_nvml_on_every_python(
    python: str, fault: str | None, driver: Callable[..., None]
) -> None:
    driver(fault, (2,))
    printed, gathered = both(run("nvml", python=python), "nvml", "nvidia-smi")
    assert printed == gathered
    assert [found["code"] for found in printed["findings"]] == ["driver_unreadable" if fault == "crash" else "gpu_lost"]


def test_equal_calls_give_equal_bytes() -> None:
    first = probe.archive()
    probe.archive.cache_clear()
    assert probe.archive() == first
    assert len(first) < 100_000


def test_the_archive_holds_the_unchanged_sources_of_all_that_fabric_facts_imports() -> None:
    """Compared with what a Python loads that imports it."""
    program = f"import sys; from {probe.PACKAGE}.gpu import facts; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    wanted = {name for name in loaded if name.startswith(probe.PACKAGE + ".") and not name.endswith(".gpu")}
    wanted.add(f"{probe.PACKAGE}.gpu.probe")
    directory = Path(facts.__file__).parents[1]
    with zipfile.ZipFile(io.BytesIO(probe.archive())) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("__init__.py")}
    paths = {name.replace(".", "/") for name in wanted}
    assert files.keys() == {f"{path}.py" for path in paths}
    for path in paths:
        assert files[f"{path}.py"] == (directory / f"{path.partition('/module_utils/')[2]}.py").read_bytes()


def test_the_probe_opens_no_file_for_writing(driver: Callable[..., None]) -> None:
    """Neither itself nor in the child that calls NVML: Python's audit events end a process that tries."""
    driver(None)
    hook = (
        "import os, sys; changes = ('os.mkdir', 'os.rename', 'os.remove', 'os.truncate', 'tempfile.mkstemp')\n"
        "def hook(event, given):\n"
        " if event in changes or event == 'open' and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT): os._exit(99)\n"
        "sys.addaudithook(hook)\n"
    )
    *flags, bootstrap, backend, program, timeout, limit = probe.arguments("nvml", "nvidia-smi", 20.0, 60)
    command = [sys.executable, *flags, hook + bootstrap, backend, program, timeout, limit]
    done = subprocess.run(command, input=probe.archive(), capture_output=True, timeout=60, check=True)
    printed, gathered = both(done, "nvml", "nvidia-smi")
    assert printed == gathered
    assert printed["attached"]
    command[len(flags) + 1] = f"{hook}open('/dev/null', 'w')"
    assert subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 99


def test_a_probe_that_takes_too_long_ends_itself(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 30\n")
    program.chmod(0o755)
    done = run("nvidia_smi", str(program), limit=1)
    assert (done.returncode, done.stdout) == (-14, b"")


def test_facts_are_found_in_other_output() -> None:
    noise = b"Last login: today\n\xff\x00 nvlink-facts-1: is not this\n"
    answer = f"{probe.BEGIN}{json.dumps({'attached': True})}{probe.END}".encode()
    assert probe.facts_in(noise + answer + b"\nlogout\n") == {"attached": True}


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
    assert probe.facts_in(printed.encode()) is None
