# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The viewers' own tree: Chromium and its driver, and Prometheus' promtool.

The tree is cached under the hash of this file, as the base trees of the lab are; nothing of it is installed on the
machine. A program in it sees its own files, one folder of the caller and the machine's network, and changes nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from . import paths, tools

SUITE = "trixie"
PACKAGES = ("chromium", "chromium-driver", "fonts-dejavu-core", "prometheus")
# Nothing reads there.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
UNUSED_SECONDS = 7 * 24 * 3600
# Where a program finds the caller's folder.
SHARED = "/mnt"


def tree() -> Path:
    """The tree with the programs, built when it is not there; a second caller waits for the first one's build."""
    key = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    built = paths.cache() / f"viewers-{key}"
    built.parent.mkdir(parents=True, exist_ok=True)
    tools.ensure_tools()
    with open(built.parent / f".{built.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.is_dir():
            _build(built, lock.fileno())
        os.utime(built)
    return built


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


def _build(built: Path, lock: int) -> None:
    for older in (*built.parent.glob("viewers-*"), *built.parent.glob(".viewers-*.tree")):
        if time.time() - older.stat().st_mtime > UNUSED_SECONDS or older.name.startswith(f".{built.name}."):
            shutil.rmtree(older, ignore_errors=True)
    building = Path(tempfile.mkdtemp(prefix=f".{built.name}.", suffix=".tree", dir=built.parent))
    building.chmod(0o755)
    make = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    make += [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
    try:
        tools.call([*make, SUITE, str(building)], "building the tree of Chromium and promtool", keep=[lock])
        os.rename(building, built)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
