# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The viewers' own tree: Chromium and its driver, and Prometheus' promtool.

Nothing of it is installed on the machine. A program in it sees its own files, one folder of the caller and the
machine's network, and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from . import cached, tools

SUITE = "trixie"
PACKAGES = ("chromium", "chromium-driver", "fonts-dejavu-core", "prometheus")
# Nothing reads there.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
# Where a program finds the caller's folder.
SHARED = "/mnt"


def tree() -> Path:
    """The tree with the programs, built when it is not there."""
    return cached.folder("viewers", [Path(__file__).read_bytes()], _build)


def command(program: Sequence[str], shared: Path) -> list[str]:
    """The command line that runs a program of the tree, with a folder of the caller at SHARED; it ends by SIGTERM."""
    # nspawn leaves notes in /run; nobody sees those in a /run of its own.
    private = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "viewers"]
    return [
        *private,
        *("env", "SYSTEMD_NSPAWN_LOCK=0", "systemd-nspawn", "--quiet", f"--directory={tree()}", "--volatile=overlay"),
        *("--register=no", "--keep-unit", "--as-pid2", "--pipe", "--timezone=off", "--link-journal=no"),
        *(f"--machine=viewers-{os.getpid()}", f"--bind={shared}:{SHARED}", *program),
    ]


def _build(building: Path, lock: int) -> None:
    tools.ensure_tools()
    make = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    make += [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
    tools.call([*make, SUITE, str(building)], "building the tree of Chromium and promtool", keep=[lock])
