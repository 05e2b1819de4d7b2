# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenarios in molecule/ and of an example: `make test` runs one, `make test-all` the others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import CHECKOUT

pytestmark = pytest.mark.lab

SCENARIOS = sorted({path.parent.name for path in (CHECKOUT / "molecule").glob("*/molecule.yml")} - {"default"})
SECONDS = 1500.0


def molecule(command: str, scenario: str, folder: Path = CHECKOUT) -> None:
    tools = Path(sys.executable).parent
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(tools / "molecule"), command, "-s", scenario],
        cwd=folder,
        env={
            **os.environ,
            "PATH": path,
            "NO_COLOR": "1",
            "PY_COLORS": "0",
            "NVLINK_LAB": str(CHECKOUT / "tests" / "lab" / "lab"),
            "LAB_NAME": f"test-{os.getpid()}-{scenario}",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, (
        f"molecule {command} -s {scenario} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    )


@pytest.fixture
def default() -> Iterator[str]:
    """The scenario, whose lab goes at the end."""
    yield "default"
    molecule("destroy", "default")


def test_a_scenario_converges_and_is_verified(default: str) -> None:
    molecule("converge", default)
    molecule("verify", default)


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_passes_its_whole_sequence(scenario: str) -> None:
    """With idempotence; it begins and ends with `destroy`."""
    molecule("test", scenario)


@pytest.mark.long
def test_the_role_of_a_site_passes_its_scenario() -> None:
    molecule("test", "default", CHECKOUT / "examples" / "role-with-molecule")
