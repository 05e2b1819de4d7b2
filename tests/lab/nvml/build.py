# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the NVML stand-in (nvml_standin.c), once for each content of its sources."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = ("nvml_standin.c", "Makefile")


def header_directory() -> Path:
    """Where the environment's nvml.h is (PyPI package nvidia-nvml-dev)."""
    for entry in map(Path, sys.path):
        for header in sorted(entry.glob("nvidia/*/include/nvml.h")):
            return header.parent
    raise FileNotFoundError("nvml.h: install nvidia-nvml-dev, or make the environment with make venv")


def build(dest: Path) -> Path:
    """The path of libnvidia-ml.so.1, built when missing, in a directory of dest named after the sources' hash.

    Safe when several processes build at once: each writes a file of its own, the last rename wins.
    """
    text = b"\0".join((HERE / name).read_bytes() for name in SOURCES)
    target = dest / f"nvml-{hashlib.sha256(text).hexdigest()[:16]}" / "libnvidia-ml.so.1"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as directory:
            unfinished = Path(directory) / target.name
            subprocess.run(
                ["make", "-s", "-C", str(HERE), f"NVML_INCLUDE={header_directory()}", f"OUT={unfinished}"],
                check=True,
                stdin=subprocess.DEVNULL,
            )
            os.rename(unfinished, target)
    return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
