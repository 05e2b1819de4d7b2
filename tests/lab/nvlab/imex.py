# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The IMEX stand-in as packages: built once from tests/lab/imex, cached under the hash of its sources."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

from . import paths
from .errors import LabError


@functools.cache
def _build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nvlab_imex_build", paths.LAB / "imex" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    return build


@functools.cache
def packages() -> Path:
    """A folder of .deb files: nvidia-imex and nvidia-imex-BRANCH of every version in versions()."""
    try:
        target: Path = _build().build(paths.cache())
    except (OSError, subprocess.CalledProcessError) as error:
        raise LabError(f"the IMEX stand-in cannot be packed: {error}.") from error
    return target


def versions() -> tuple[str, ...]:
    """The versions that the packages have, the lab's driver's first."""
    found: tuple[str, ...] = _build().VERSIONS
    return found
