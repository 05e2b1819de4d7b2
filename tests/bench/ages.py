# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How old the tables of the performance page are: the commit of each, and the commits of its code since then."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "contributing" / "performance.md"
# More commits than these, and a release has to measure again.
MOST_COMMITS = 200
TABLE = re.compile(r"<!-- bench:([\w-]+) -->\n(.*?)<!-- /bench:\1 -->", re.DOTALL)
COMMIT = re.compile(r"measured at ([0-9a-f]{8,40})\b")
UTILS, HOST = "plugins/plugin_utils", "plugins/module_utils"
# What each table measures.
CODE: dict[str, tuple[str, ...]] = {
    "live": (f"{UTILS}/sources", f"{HOST}/gpu", f"{HOST}/subsets.py", f"{HOST}/interfaces.py"),
    "imex": (f"{HOST}/imex",),
    "inventory": ("plugins/inventory", f"{UTILS}/fabric"),
    "placement": (f"{UTILS}/fabric",),
    "partitions": (f"{UTILS}/partitions", f"{UTILS}/fabric"),
    "slurm": (f"{HOST}/slurm", f"{UTILS}/slurm", "plugins/action", "roles/slurm_topology"),
    "explain": (f"{HOST}/explain",),
    "payload": ("plugins/modules", HOST),
    "runs": ("plugins", "roles", "playbooks"),
}


def commit() -> str:
    """The commit that is measured."""
    return _git("rev-parse", "--short=10", "HEAD")


def ages() -> Iterator[tuple[str, str, int]]:
    """Name, commit and commits of its code since, of each table of the page."""
    for name, text in TABLE.findall(PAGE.read_text("utf-8")):
        found = COMMIT.search(text)
        if not found:
            raise SystemExit(f"{PAGE.name}: the table {name} does not say at which commit it was measured.")
        yield name, found[1], int(_git("rev-list", "--count", f"{found[1]}..HEAD", "--", *CODE[name]))


def old(rows: Sequence[tuple[str, str, int]]) -> list[str]:
    """The tables that a release may not show."""
    return [name for name, _, since in rows if since > MOST_COMMITS]


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=CHECKOUT, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"git {arguments[0]} failed with exit status {done.returncode}.")
    return done.stdout.strip()
