# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenarios in molecule/ and of an example: `make test` runs one, `make test-all` the others."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_a_scenario_converges_and_is_verified() -> None:
    try:
        molecule("converge", "default")
        molecule("verify", "default")
    finally:
        molecule("destroy", "default")


@pytest.mark.long
@pytest.mark.parametrize(
    ("scenario", "folder"),
    [*((name, CHECKOUT) for name in SCENARIOS), ("default", CHECKOUT / "examples" / "role-with-molecule")],
)
def test_a_scenario_passes_its_whole_sequence(scenario: str, folder: Path) -> None:
    """With idempotence; it begins and ends with `destroy`."""
    molecule("test", scenario, folder)
