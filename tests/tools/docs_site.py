# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the documentation's site into build/docs/html; any warning fails.

The pages are those of docs/; what plugins and roles say of themselves is written beside them by antsibull-docs, from
the documentation in the plugins and from the roles' argument_specs, so that no table of options is kept by hand.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SITE = CHECKOUT / "build" / "docs"
REFERENCE = "antsibull-docs collection --use-current --squash-hierarchy --fail-on-error rackscale.nvlink --dest-dir"
HTML = "sphinx-build -b html -W --keep-going --quiet"


def main() -> int:
    pages = SITE / "pages"
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(CHECKOUT / "docs", pages)
    shutil.copy(CHECKOUT / "galaxy.yml", pages)
    reference = pages / "reference"
    reference.mkdir(mode=0o755)
    for command in ([*REFERENCE.split(), str(reference)], [*HTML.split(), str(pages), str(SITE / "html")]):
        status = subprocess.run(command, cwd=CHECKOUT, check=False).returncode
        if status:
            return status
    print(f"{(SITE / 'html' / 'index.html').relative_to(CHECKOUT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
