# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check of the documentation's files finds each kind of problem, and accepts what GitHub renders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import docs_files


def test_a_link_leads_to_a_file_and_to_a_heading_of_it() -> None:
    text = (
        "[a](b.md) [`x`](b.md#install-imex-2x) ![p](../r.png)\n[a](b.md#install-1) [h](#one) [d](../roles)\n"
        "[w](https://x.y/z.md) `[code](none.md)`\n\n```\n[code](none.md)\n```\n\n# One\n\n"
        '[gone](c.md)\n[gone](b.md#imex)\n[gone](#two)\n<img src="d.png">\n\n[ref]: e.md "title"\n'
    )
    other = "# Install [IMEX](x.md) (`2x`)\n\n## Install\n\n## Install\n\n```\n# IMEX\n```\n"
    anchors = {"docs/a.md": docs_files.anchors(text), "docs/b.md": docs_files.anchors(other)}
    files = {"docs/a.md", "docs/b.md", "r.png", "roles"}
    found = docs_files.link_problems("docs/a.md", text, files, anchors)
    assert [(line, sentence.split()[3]) for line, sentence in found] == [
        (11, "c.md"),
        (12, "b.md#imex"),
        (13, "#two"),
        (14, "d.png"),
        (16, "e.md"),
    ]


def test_a_checkout_has_its_problems_by_file_and_line(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    for name in docs_files.SHOWN:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "docs").mkdir()
    (tmp_path / docs_files.HASHES).write_text(docs_files.hashes(tmp_path))
    table = "| a | b |\n|---|:-:|\n"
    (tmp_path / "README.md").write_text(f"[d](docs)\n\n{table}| `x\\|y` | \\| |\n\n```text\n| 1 |\n```\n")
    assert not [*docs_files.problems(tmp_path)]
    (tmp_path / "README.md").write_text(f"\n[d](doc)\n\n{table}| 1 | `x|y` |\n\n| 3 | 4 |\n")
    (tmp_path / "docs" / "x.svg").write_text("<svg>")
    (tmp_path / docs_files.SHOWN[0]).write_text("changed")
    found = [*docs_files.problems(tmp_path)]
    of_readme = ["README.md:2:", "README.md:6:", "README.md:8:"]
    assert [problem.split()[0] for problem in found] == [*of_readme, "docs/report.png:1:", "docs/x.svg:1:"]
    assert "3 of the header's 2 cells" in found[1]
    assert "is in no table" in found[2]
    assert docs_files.SHOWN[0] in found[3]
    assert "make screenshot" in found[3]
