# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults that a test sets in the stand-in, its version and its times."""

from __future__ import annotations

import json
import os
import time

HOOKS = "/opt/nvlink-lab/imex"
CAPTURED = "/opt/nvlink-lab/imex-captured.json"
SESSION = "/run/nvidia-imex-standin.session"

# imex: ok; start_hangs, the parent never returns; init_gpu, it never becomes READY; deaf, it ignores SIGTERM; in_use,
# the driver's one session belongs to somebody else.
# imex_imports: true, every connected peer has memory of this node imported. imex_block: peer, a firewall drops what
# comes in from other members. driver_version: the version of the kernel module; null, it is not loaded.
DEFAULTS = {"imex": "ok", "imex_imports": False, "imex_block": "none", "imex_backoff": 0}


def read() -> dict:
    """The current hooks; they have driver_version only where the driver is simulated too."""
    try:
        with open(HOOKS, encoding="utf-8") as file:
            return {**DEFAULTS, **json.load(file)}
    except (OSError, ValueError):
        return dict(DEFAULTS)


def captured(mode: str) -> str | None:
    """What nvidia-imex-ctl prints for -q, -N or -N -j in a lab that was made from a support bundle; None elsewhere."""
    try:
        with open(CAPTURED, encoding="utf-8") as file:
            text = json.load(file).get(mode)
    except (OSError, ValueError):
        return None
    return text if isinstance(text, str) else None


def version() -> str:
    """The version of the package that this is installed from."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "VERSION"), encoding="ascii") as file:
        return file.read().strip()


def stamp() -> str:
    """Now as the real tools print it: M/D/YYYY HH:MM:SS.mmm."""
    now = time.time()
    day = time.localtime(now)
    return f"{day.tm_mon}/{day.tm_mday}/{day.tm_year} {time.strftime('%H:%M:%S', day)}.{int(now % 1 * 1000):03d}"
