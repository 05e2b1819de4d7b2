# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/report.png: the report of build/demo in headless Chromium (`make screenshot`, root).

The file next to it has the hashes of what it shows; docs_files.py compares them.

Chromium is Debian's, from the tree that the lab's tests use.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs_files import CHECKOUT, HASHES, PICTURE, hashes

REPORT = CHECKOUT / "build" / "demo" / "report" / "index.html"
WIDTH, HEIGHT = 1200, 1160
MAX_BYTES = 200_000

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab.trees import SHARED, VIEWERS  # noqa: E402  (the lab is found through the path above)


def main() -> None:
    if not REPORT.is_file():
        sys.exit(f"{REPORT}: is missing; run `make demo` first.")
    with tempfile.TemporaryDirectory(prefix="rackscale-nvlink-") as folder:
        shared = Path(folder)
        shutil.copy(REPORT, shared)
        chromium = [
            *("chromium", "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"),
            *("--force-color-profile=srgb", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"),
            *(f"--screenshot={SHARED}/report.png", f"file://{SHARED}/index.html"),
        ]
        done = subprocess.run(
            VIEWERS.command(chromium, shared), capture_output=True, text=True, timeout=300, check=False
        )
        picture = shared / "report.png"
        if not picture.is_file():
            sys.exit(f"chromium wrote no picture (exit status {done.returncode}): {done.stderr[-2000:]}")
        size = picture.stat().st_size
        if size > MAX_BYTES:
            sys.exit(f"report.png: has {size} bytes, more than {MAX_BYTES}; reduce WIDTH or HEIGHT.")
        shutil.copyfile(picture, CHECKOUT / PICTURE)
        (CHECKOUT / HASHES).write_text(hashes(), encoding="utf-8")
    print(f"{PICTURE}: {size} bytes")


if __name__ == "__main__":
    main()
