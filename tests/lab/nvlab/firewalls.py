# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ufw and firewalld as Debian packages, for the repository of a lab whose trays get a firewall.

Nothing of them is in the base trees: every host would carry them, and only one test wants them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from . import image, paths, tools

WANTED = ("ufw", "firewalld", "nftables", "iptables")


def ensure(suite: str) -> Path:
    """The folder of their .deb files and of the dependencies that a tray lacks; fetched once."""
    digest = hashlib.sha256("\0".join((suite, *WANTED, *image.PACKAGES)).encode()).hexdigest()[:16]
    folder = paths.cache() / f"firewalls-{suite}-{digest}"
    tools.ensure_tools()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f".{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            fetched = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            try:
                tools.call(_command(suite, fetched), f"fetching {', '.join(WANTED)}", keep=[lock.fileno()])
                os.rename(fetched, folder)
            except BaseException:
                shutil.rmtree(fetched, ignore_errors=True)
                raise
    return folder


def _command(suite: str, into: Path) -> list[str]:
    """Build a tree like the trays', query it for missing packages and remove it."""
    fetch = f'chroot "$1" apt-get --quiet=2 --yes --no-install-recommends --download-only install {" ".join(WANTED)}'
    return [
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--format=null",
        *(f"--aptopt={option}" for option in image.APT_OPTIONS[suite]),
        f"--customize-hook={fetch}",
        f'--customize-hook=mv "$1"/var/cache/apt/archives/*.deb "{into}"/',
        f"--include={','.join(image.PACKAGES)}",
        suite,
    ]
