# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run mypy on all plugins, as the package that Ansible imports it as.

mypy must see ansible_collections.rackscale.nvlink once, under that name, in a folder that holds only the link to it.
What it knows of a file depends on the file's content alone, so all checkouts share one cache.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from make_venv import CACHE, CHECKOUT


def main() -> int:
    root = CHECKOUT / "build" / "types" / "ansible_collections" / "rackscale"
    root.mkdir(parents=True, exist_ok=True)
    link = root / "nvlink"
    if not link.is_symlink():
        link.symlink_to(CHECKOUT)
    packages = ["-p", "ansible_collections.rackscale.nvlink.plugins"]
    config = ["--config-file", str(CHECKOUT / "pyproject.toml"), "--cache-dir", str(CACHE / "mypy")]
    mypy = [str(Path(sys.executable).parent / "mypy"), *config, *packages]
    return subprocess.run(mypy, cwd=root.parents[1], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
