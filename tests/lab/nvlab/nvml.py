# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML stand-in of tests/lab/nvml, compiled once for each content of its sources."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

from . import cached, paths
from .errors import LabError

SOURCES = [paths.LAB / "nvml" / name for name in ("nvml_standin.c", "Makefile")]
LIBRARY = "libnvidia-ml.so.1"


@functools.cache
def library() -> Path:
    """The path of libnvidia-ml.so.1."""

    def make(into: Path, _lock: int) -> None:
        # NVIDIA's header is of the PyPI package nvidia-nvml-dev in the checkout's environment, whichever Python runs.
        places = [*map(Path, sys.path), *sorted(paths.REPOSITORY.glob(".venv*/lib/python*/site-packages"))]
        headers = [header.parent for place in places for header in sorted(place.glob("nvidia/*/include/nvml.h"))]
        if not headers:
            raise FileNotFoundError("nvml.h: install nvidia-nvml-dev, or make the environment with make venv")
        command = ["make", "-s", "-C", str(SOURCES[0].parent), f"NVML_INCLUDE={headers[0]}", f"OUT={into / LIBRARY}"]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    try:
        return cached.folder("nvml", [source.read_bytes() for source in SOURCES], make) / LIBRARY
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise LabError(f"the NVML stand-in cannot be built: {error}.") from error
