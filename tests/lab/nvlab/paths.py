# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the lab keeps things: state of running labs, cached trees, the names made from a lab's name."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .errors import LabError

LAB = Path(__file__).resolve().parent.parent
REPOSITORY = LAB.parent.parent
STATE = Path("/run/nvlink-lab")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise LabError(f"lab name {name!r}: use up to 32 lower-case letters, digits and dashes.")
    return name


def state_of(name: str) -> Path:
    return STATE / check_name(name)


def netns_of(name: str) -> str:
    return f"nvlab-{check_name(name)}"


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "rackscale.nvlink" / "lab"
