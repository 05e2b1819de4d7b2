# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package repositories in the lab, which reaches no mirror: flat folders of .deb files with an index each.

Every host has two of them as its only apt sources. `debian` is part of the base tree of empty hosts and holds the
distribution's own packages of Slurm, munge and MariaDB with all that they depend on. `site` belongs to the running lab
and is filled by `lab packages`.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from . import state, tools
from .errors import LabError

PLACE = "/opt/nvlink-lab-packages"
DEBIAN, SITE = "debian", "site"
INDEX = "Packages"


def sources(empty: bool) -> str:
    """sources.list of a host; packages are not signed here, the folder itself is what is trusted."""
    names = (DEBIAN, SITE) if empty else (SITE,)
    return "".join(f"deb [trusted=yes] file:{PLACE}/{name} ./\n" for name in names)


def index(folder: Path) -> None:
    """Write the index of the .deb files that stand in a folder."""
    entries = []
    for package in sorted(folder.glob("*.deb")):
        control = tools.call(["dpkg-deb", "--field", str(package)], f"reading {package.name}").strip()
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        entries.append(f"{control}\nFilename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n")
    state.write_atomically(folder / INDEX, "\n".join(entries))


def add(lab: Path, folder: Path) -> list[str]:
    """Copy a folder's .deb files into a running lab's site repository; the names of the files.

    `lab` is the lab's directory of state. A host sees them after `apt-get update`.
    """
    found = sorted(folder.glob("*.deb"))
    if not found:
        raise LabError(f"{folder}: holds no .deb file.")
    target = lab / SITE
    for package in found:
        shutil.copyfile(package, target / package.name)
    index(target)
    return [package.name for package in found]
