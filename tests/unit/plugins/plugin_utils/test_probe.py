# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import interfaces, simulation
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import facts as fabric_facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import probe
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays
from hypothesis import given
from hypothesis import strategies as st


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", "pass"], capture_output=True, check=False).returncode == 0


OTHERS = filter(
    None, map(shutil.which, ("python3", "python3.9", "python3.10", "python3.11", "python3.12", "python3.14"))
)
PYTHONS = [sys.executable, *filter(_runs, OTHERS)]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    probe.packed.cache_clear()
    yield
    probe.packed.cache_clear()


@pytest.fixture
def nvidia_smi(tmp_path: Path) -> str:
    """A program that prints what the nvidia-smi of a simulated tray prints."""
    facts = next(iter(simulation.fleet().values()))
    (tmp_path / "answer.xml").write_text(simulation.nvidia_smi_xml(facts))
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nexec cat '{tmp_path}/answer.xml'\n")
    program.chmod(0o755)
    return str(program)


def run(sent: bytes, python: str = sys.executable) -> subprocess.CompletedProcess[bytes]:
    command = [python, *probe.FLAGS, "-c", probe.BOOTSTRAP]
    return subprocess.run(command, input=sent, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("backend", fabric_facts.BACKENDS)
@pytest.mark.parametrize("same_version", [True, False])
def test_the_probe_and_the_module_return_the_same(
    backend: str, same_version: bool, nvidia_smi: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its byte code, and with the source that another version of Python compiles."""
    if not same_version:
        monkeypatch.setattr(importlib.util, "MAGIC_NUMBER", b"none")
    printed = probe.facts_in(run(probe.packed(backend, nvidia_smi, 20.0, 60)).stdout)
    assert printed is not None
    gathered = fabric_facts.gather(backend, nvidia_smi, 20.0)
    assert printed.pop("observed_at") <= gathered.pop("observed_at")
    assert printed == gathered
    assert printed["attached"] is (backend != "nvml")


@pytest.mark.parametrize("python", PYTHONS)
def test_the_probe_runs_on_every_python_of_this_machine(python: str, nvidia_smi: str) -> None:
    done = run(probe.packed("nvidia_smi", nvidia_smi, 20.0, 60), python)
    facts = probe.facts_in(done.stdout)
    assert facts, done.stderr
    assert (facts["attached"], done.stderr) == (True, b"")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a tray with a fault of NVML and lost GPUs where a probe and the module find it."""

    def put(fault: str | None, lost: tuple[int, ...] = ()) -> None:
        text = simulation.nvml_standin_text(next(iter(simulation.fleet().values())), fault, lost)
        (tmp_path / "gpus").write_text(text)

    (tmp_path / nvml.LIBRARY).symlink_to(trays.library())
    monkeypatch.setenv("NVLINK_STANDIN_GPUS", str(tmp_path / "gpus"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(nvml, "LIBRARY", str(trays.library()))
    return put


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("fault", [None, "only_v4"])
@pytest.mark.parametrize("python", PYTHONS)
def test_probe_and_module_read_the_same_from_nvml_on_every_python(
    python: str, fault: str | None, guarded: bool, driver: Callable[..., None]
) -> None:
    """The probe brings its own ctypes, so every struct and call of NVML counts, not only that there is an answer."""
    driver(fault, (2,))
    done = run(probe.packed("nvml", "nvidia-smi", 20.0, 60, guarded), python)
    printed = probe.facts_in(done.stdout)
    assert printed, done.stderr
    assert done.stderr == b""
    gathered = fabric_facts.gather("nvml", "nvidia-smi", 20.0)
    assert printed.pop("observed_at") <= gathered.pop("observed_at")
    assert printed == gathered
    assert [found["code"] for found in printed["findings"]] == ["gpu_lost"]


@pytest.mark.parametrize("fault", [*simulation.NVML_FAULTS, None])
def test_a_plain_probe_returns_the_facts_of_the_guarded_one_or_none(
    fault: str | None, driver: Callable[..., None]
) -> None:
    """Without facts the guarded one is run, so no fault may make the plain one return other facts."""
    driver(fault)
    hangs = fault in ("hang", "hang_fabric")
    plain = probe.facts_in(run(probe.packed("auto", "nvidia-smi", 1.0, 1 if hangs else 60, guarded=False)).stdout)
    guarded = probe.facts_in(run(probe.packed("auto", "nvidia-smi", 1.0 if hangs else 20.0, 60)).stdout)
    assert guarded
    # only_v1: nvidia-smi was read before NVML's result was used all the same.
    assert (plain is None) == (guarded["backend"] != "nvml" or fault == "only_v1")
    if plain:
        assert plain.pop("observed_at") <= guarded.pop("observed_at")
        assert plain == guarded


def test_a_python_whose_ctypes_is_another_imports_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_PROGRAM", probe._PROGRAM.replace("_ctypes._SimpleCData,", "_ctypes.Gone,"))
    printed = probe.facts_in(run(probe.packed("nvml", "nvidia-smi", 20.0, 60)).stdout)
    assert printed is not None
    assert printed["addresses"] == interfaces.read()
    assert [found["code"] for found in printed["findings"]] == ["library_missing"]


def test_equal_calls_give_equal_bytes() -> None:
    first = probe.packed("auto", "nvidia-smi", 20.0, 60)
    probe.packed.cache_clear()
    probe.parts.cache_clear()
    assert probe.packed("auto", "nvidia-smi", 20.0, 60) == first
    assert len(probe.packed("auto", "nvidia-smi", 20.0, 60, guarded=False)) < len(first) < 100_000


def test_the_probe_packs_exactly_the_imports_of_fabric_facts() -> None:
    files = {"constants", "errors", "fabric_facts", "findings", "interfaces", "nvml", "readings", "text"}
    for guarded, names in ((True, files | set(probe.GUARD)), (False, files)):
        assert {name.rpartition(".")[2] for name, _code in probe.parts(guarded)} == names


def test_the_bootstrap_needs_no_further_quoting() -> None:
    assert not set(probe.BOOTSTRAP) & set("'\\!$`\n")


def test_a_probe_that_takes_too_long_ends_itself(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 30\n")
    program.chmod(0o755)
    done = run(probe.packed("nvidia_smi", str(program), 20.0, 1))
    assert (done.returncode, done.stdout) == (-14, b"")


def test_facts_are_found_in_other_output() -> None:
    noise = b"Last login: today\n\xff\x00 nvlink-facts-1: is not this\n"
    facts = f"{probe.BEGIN}{json.dumps({'attached': True})}{probe.END}".encode()
    assert probe.facts_in(noise + facts + b"\nlogout\n") == {"attached": True}


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


@given(st.binary())
def test_whatever_a_tray_prints_raises_nothing(output: bytes) -> None:
    assert probe.facts_in(output) is None
    assert probe.facts_in(probe.BEGIN.encode() + output + probe.END.encode()) is None or output
