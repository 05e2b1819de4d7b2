# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML stand-in: compiled once from tests/lab/nvml, cached under the hash of its source."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
from pathlib import Path

from . import paths, tools
from .errors import LabError

SOURCES = paths.LAB / "nvml"


def ready() -> bool:
    simulation = paths.REPOSITORY / "plugins/module_utils/simulation.py"
    return simulation.exists() and any(SOURCES.glob("*.c"))


@functools.cache
def library() -> Path:
    """The path of libnvidia-ml.so.1, built when its source has changed."""
    sources = sorted(p for p in SOURCES.glob("*") if p.suffix in (".c", ".h") or p.name == "Makefile")
    if not sources:
        raise LabError(f"{SOURCES}: the source of the NVML stand-in is missing, check out the whole repository.")
    text = b"\0".join(p.name.encode() + b"\0" + p.read_bytes() for p in sources)
    target = paths.cache() / f"nvml-{hashlib.sha256(text).hexdigest()[:16]}" / "libnvidia-ml.so.1"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            unfinished = target.with_name(".building.so")
            tools.call(["make", "-s", "-C", str(SOURCES), f"OUT={unfinished}"], "building the NVML stand-in")
            os.rename(unfinished, target)
    return target
