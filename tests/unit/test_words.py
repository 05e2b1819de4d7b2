# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain technical English: words that this project once invented do not come back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
# Invented or personifying word -> the field's term.
INSTEAD = {
    r"told|tells": "reports, prints, receives, is configured with",
    r"mend(?:s|ed|ing)?|cures?": "fix, remediate",
    r"by way of|as far as": "through, where",
    r"in vain": "unused",
    r"knocks?|nudges?": "probe, reconnect",
    r"strangers?": "unmanaged",
    r"side[ _]by[ _]side|lanes?": "concurrently, workers",
    r"essence": "fingerprint",
    r"bless(?:ed|ing)": "approved, start approval",
    r"owes?|owing": "outdated",
    r"contrary": "inconsistent",
    r"kin": "similar systems",
    r"parted|carved": "split",
    r"whose a": "owner",
    r"judge[sd]?|judging": "evaluate, compare",
    r"settled|as desired and up": "unchanged, in the desired state",
    r"twins?|left_over": "duplicate, leftover",
    r"look for garbage|uncollected": "garbage collection",
    r"fabric_audit|slurm_trial|acceptance_(?!pending)[a-z]+": "verify, slurm_benchmark",
}
READ = ("plugins", "roles", "playbooks", "molecule", "inventory", "docs", "README.md", "CONTRIBUTING.md", "tests")


def lines() -> list[tuple[str, str]]:
    """Place and text of each line of what is read."""
    listed = subprocess.run(["git", "ls-files", *READ], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    paths = [CHECKOUT / name for name in listed.stdout.splitlines()]
    return [
        (f"{path.relative_to(CHECKOUT)}:{number}", line)
        for path in paths
        if path != Path(__file__) and path.is_file() and path.suffix in {".py", ".yml", ".md", ".j2", ".js", ""}
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
    ]


def test_no_invented_word_comes_back() -> None:
    word = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(INSTEAD)})(?![A-Za-z])", re.IGNORECASE)
    found = [(place, match[0]) for place, line in lines() if (match := word.search(line))]
    better = {
        place: next(new for old, new in INSTEAD.items() if re.fullmatch(old, text, re.I)) for place, text in found
    }
    assert better == {}, "write these instead"
