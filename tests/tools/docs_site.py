# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the documentation site into build/docs/html; any warning fails.

The pages are those of docs/. antsibull-docs adds a page for each plugin and role, from their documentation and their
argument_specs. Its index leaves out the modules that are internal.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from reference import internal_modules

CHECKOUT = Path(__file__).resolve().parents[2]
SITE = CHECKOUT / "build" / "docs"
REFERENCE = "antsibull-docs collection --use-current --squash-hierarchy --fail-on-error rackscale.nvlink --dest-dir"
HTML = "sphinx-build -b html -W --keep-going --quiet"


def without(index: str, modules: set[str]) -> str:
    """The index of all plugins without the lines of these modules; their pages stay as targets of links."""
    names = "|".join(sorted(modules)) or "$^"
    return re.sub(rf"^(?:    (?:{names})_module|\* :ansplugin:`(?:{names}) module .*)\n", "", index, flags=re.MULTILINE)


def main() -> int:
    pages = SITE / "pages"
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(CHECKOUT / "docs", pages)
    shutil.copy(CHECKOUT / "galaxy.yml", pages)
    reference = pages / "reference"
    reference.mkdir(mode=0o755)
    status = subprocess.run([*REFERENCE.split(), str(reference)], cwd=CHECKOUT, check=False).returncode
    if status:
        return status
    index = reference / "index.rst"
    index.write_text(without(index.read_text(), internal_modules()))
    status = subprocess.run([*HTML.split(), str(pages), str(SITE / "html")], cwd=CHECKOUT, check=False).returncode
    if status:
        return status
    print(f"{(SITE / 'html' / 'index.html').relative_to(CHECKOUT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
