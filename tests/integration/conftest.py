# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fixtures of the tests that run real processes: virtual racks that are always removed at the end."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab.kubernetes import plane, programs  # noqa: E402  (the lab is found through the path above)

LAB = CHECKOUT / "tests" / "lab" / "lab"
SCENARIOS = CHECKOUT / "tests" / "lab" / "scenarios"
_numbers = itertools.count(1)
# A worker takes one file after another, so the one that takes longest must not be the last.
SLOWEST_FIRST = (
    "test_slurm_role.py",
    "test_day_two.py",
    "test_imex_job.py",
    "test_slurm_tiers.py",
    "test_dra_driver_imex.py",
    "test_dra_driver_role.py",
    "test_imex_role.py",
    "test_verify.py",
    "test_documented_commands.py",
    "test_proof.py",
    "test_slurm_bringup.py",
    "test_slurm_topology.py",
    "test_slurm_pages.py",
    "test_imex_firewall.py",
    "test_molecule.py",
    "test_mistakes.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(SLOWEST_FIRST)}
    # Stable, so the tests of a file keep their order.
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root: the virtual racks are containers with a network of their own")
    for item in items:
        if item.get_closest_marker("lab"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the daemons' messages to the report of a failure, since the lab is removed with the test."""
    report = yield
    if call.when == "call" and report.failed:
        given = [getattr(value, "racks", value) for value in item.funcargs.values()]
        for racks in {id(value): value for value in given if isinstance(value, RunningLab)}.values():
            report.sections.append((f"logs of lab {racks.name}", racks.logs()))
    return report


def lab_command(*arguments: str, check: bool = True, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
    """Run the lab's command line."""
    done = subprocess.run(
        [sys.executable, str(LAB), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"lab {' '.join(arguments)} ended with {done.returncode}: {done.stderr or done.stdout}")
    return done


class RunningLab:
    """A lab that is up; every method is one command of its command line."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.inventory = directory / f"{name}.yml"
        self.inventory.write_text(lab_command("inventory", "--name", name).stdout)

    def exec(self, host: str, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return lab_command("exec", "--name", self.name, host, "--", *command, check=check)

    def stop(self, host: str, *options: str) -> None:
        """Cut a host's power."""
        lab_command("stop", "--name", self.name, host, *options)

    def start(self, host: str) -> None:
        """Start a stopped host again, fresh but for a disk that was kept."""
        lab_command("start", "--name", self.name, host)

    def set(self, tray: str, *settings: str) -> None:
        lab_command("set", "--name", self.name, tray, *settings)

    def net(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return lab_command("net", "--name", self.name, "--", *command, check=check)

    def logs(self) -> str:
        """The state of Slurm and the last lines of each host's journal; never an error."""
        logs = "tail --quiet --lines=12 /var/log/slurmctld.log /var/log/slurm/slurmctld.log"
        slurm = f"(sinfo --Node --format='%N %T %E'; squeue --format='%i %T %r %N'; {logs}) 2>/dev/null"
        journal = "journalctl --quiet --no-pager --lines=5 --output=short-precise --no-hostname"
        found = []
        with contextlib.suppress(AssertionError, OSError, ValueError, subprocess.SubprocessError):
            for host in self.status()["hosts"]:
                command = f"{slurm}; {journal}" if host == "ctl" else journal
                done = lab_command(
                    "exec", "--name", self.name, host, "--", "sh", "-c", command, check=False, timeout=20.0
                )
                found.append(f"{host}:\n{done.stdout}{done.stderr}")
        return "\n".join(found)

    def status(self) -> dict[str, Any]:
        done = lab_command("status", "--name", self.name, "--json", check=False)
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@contextlib.contextmanager
def running_lab(
    directory: Path, scenario: str | Path = "four-forky.yml", name: str | None = None, option: str = "--scenario"
) -> Iterator[RunningLab]:
    """A lab of a scenario (a file of tests/lab/scenarios by its name, or a path) that goes down at the end.

    option: ``--from`` where the path is that of a support bundle.
    """
    name = name or f"test-{os.getpid()}-{next(_numbers)}"
    file = SCENARIOS / scenario  # an absolute path stays itself
    try:
        # The first one builds its tree and, with Kubernetes, the control plane's programs; others wait for that.
        lab_command("up", "--name", name, option, str(file), timeout=1500.0)
        yield RunningLab(name, directory)
    finally:
        lab_command("down", "--name", name)


LabFactory = Callable[..., AbstractContextManager[RunningLab]]


@pytest.fixture
def lab(tmp_path: Path) -> LabFactory:
    """`with lab("four-forky.yml") as racks:`"""

    def start(scenario: str | Path = "four-forky.yml", name: str | None = None) -> AbstractContextManager[RunningLab]:
        return running_lab(tmp_path, scenario, name)

    return start


@pytest.fixture(scope="session")
def four_trays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Four trays with Slurm 26.05, shared by the tests of a worker that leave its hosts as they found them."""
    with running_lab(tmp_path_factory.mktemp("lab")) as racks:
        yield racks


@pytest.fixture(scope="module")
def own_four_trays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """The same trays for one module, whose tests stop or change hosts."""
    with running_lab(tmp_path_factory.mktemp("lab")) as racks:
        yield racks


# The newest version of the lab runs in `make test-all` alone.
KUBERNETES_VERSIONS = (
    programs.VERSIONS[0],
    pytest.param(programs.VERSIONS[1], marks=pytest.mark.long),
)


# For a test that one version is enough for.
OLDEST_KUBERNETES, NEWEST_KUBERNETES = (
    pytest.mark.parametrize("control_plane", [version], indirect=True, scope="module") for version in programs.VERSIONS
)


@pytest.fixture(scope="module", params=KUBERNETES_VERSIONS)
def control_plane(request: pytest.FixtureRequest) -> Iterator[plane.ControlPlane]:
    """A control plane without nodes, shared by the tests of a module: each removes what it created."""
    with plane.control_plane(request.param) as running:
        yield running
