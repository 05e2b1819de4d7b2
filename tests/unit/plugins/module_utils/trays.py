# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trays for tests: the NVML stand-in as the library that NVML's reader finds, and fixtures of nvidia-smi's XML."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import simulation
from ansible_collections.rackscale.nvlink.tests.lab.nvml import local_trays

TESTS = Path(__file__).resolve().parents[3]
FIXTURES = TESTS / "unit" / "fixtures" / "nvidia_smi"


def fixture(name: str) -> str:
    return (FIXTURES / f"{name}.xml").read_text()


def tray(**changes: Any) -> dict[str, Any]:
    """The facts of one simulated, healthy tray."""
    return next(iter(simulation.fleet(trays_per_rack=1, **changes).values()))


def script(path: Path, text: str) -> str:
    """Write a program that is a shell script; its path."""
    return str(local_trays.program(path, f"#!/bin/sh\n{text}\n"))


def codes(facts: Mapping[str, Any]) -> list[str]:
    return [found["code"] for found in facts["findings"]]


@functools.lru_cache(maxsize=1)
def library() -> Path:
    """The NVML stand-in, from the cache that the lab uses too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TESTS / "lab")
        from nvlab import nvml
    return nvml.library()
