# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVML stand-in: compiled once from tests/lab/nvml, cached under the hash of its source."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path

from . import paths
from .errors import LabError

BUILD = paths.LAB / "nvml" / "build.py"


@functools.cache
def library() -> Path:
    """The path of libnvidia-ml.so.1, built when its source has changed."""
    spec = importlib.util.spec_from_file_location("nvlab_nvml_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    # NVIDIA's header comes with the checkout's environment, whichever Python runs the lab.
    before = list(sys.path)
    sys.path += [str(path) for path in sorted(paths.REPOSITORY.glob(".venv*/lib/python*/site-packages"))]
    try:
        target: Path = build.build(paths.cache())
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise LabError(f"the NVML stand-in cannot be built: {error}.") from error
    finally:
        sys.path[:] = before
    return target
