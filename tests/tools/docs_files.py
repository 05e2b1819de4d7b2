# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the documentation's files: SVG is XML, tables are whole, links lead somewhere, docs/report.png is current.

Prints one line per problem, `file:line: sentence with the remedy`, and exits with 1 if there is any.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "roles/*/README.md", "tests/lab/README.md")
PICTURE = "docs/report.png"
# In the format of sha256sum; `make screenshot` writes it next to the figure.
HASHES = f"{PICTURE}.sha256"
# What the picture shows: the page's text, style and script, and the racks of the demo with their faults.
SHOWN = (
    "playbooks/demo.yml",
    "playbooks/files/demo.nvlink.yml",
    "plugins/plugin_utils/render/report.css",
    "plugins/plugin_utils/render/report.html.j2",
    "plugins/plugin_utils/render/report.js",
)
Problems = Iterator[tuple[int, str]]
"""Line, from 1, and sentence."""

_FENCE_OR_COMMENT = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[`~]*[ \t]*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n[ \t]*\n).)+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^ {0,3}\[[^\]]+\]:\s*(\S+)|\b(?:src|href)=\"([^\"]+)\"", re.M
)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|/")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$", re.MULTILINE)
_ID = re.compile(r"<a\s[^>]*\b(?:id|name)=\"([^\"]+)\"")
_SEPARATOR = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*")
# GitHub ends a table at a blank line and where another block begins, not at other text.
_END_OF_TABLE = re.compile(r"\s*$| {0,3}(#{1,6} |```|~~~|>|<|[-*+] |\d+[.)] )")


def svg_problems(text: str) -> Problems:
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        yield error.position[0], f"the picture is not XML ({error}); close or escape what stands there or above."


def without_code(text: str) -> str:
    """The text with empty lines in place of fenced code and comments."""
    return _FENCE_OR_COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)


def cells(row: str) -> list[str]:
    """The cells of a row: a pipe separates them in a code span too, unless a backslash precedes it."""
    return re.split(r"(?<!\\)\|", re.sub(r"(?<!\\)\|$", "", row.strip().removeprefix("|")))


def table_problems(text: str) -> Problems:
    lines = without_code(text).split("\n")
    at = 0
    while at < len(lines):
        if not re.match(r" {0,3}\|", lines[at]):
            at += 1
            continue
        columns = len(cells(lines[at]))
        if not _SEPARATOR.fullmatch("".join(lines[at + 1 : at + 2])):
            yield at + 1, "this row is in no table; remove the blank line above it, or write |---| below a header."
            columns = 0
        elif len(cells(lines[at + 1])) != columns:
            yield at + 2, f"the separator has other columns than the header's {columns}; write one |---| for each."
            at, columns = at + 1, 0
        at += 1
        while at < len(lines) and not _END_OF_TABLE.match(lines[at]):
            found = len(cells(lines[at]))
            if columns and found != columns:
                remedy = r"write \| for a pipe in a cell, and a blank line below the table"
                yield at + 1, f"this row has {found} of the header's {columns} cells; {remedy}."
            at += 1


def anchors(text: str) -> set[str]:
    """The anchors of a page: those that GitHub makes of headings, and ids of <a>."""
    found: set[str] = set(_ID.findall(text))
    times: dict[str, int] = {}
    for heading in _HEADING.findall(without_code(text)):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(f"{slug}-{times[slug]}" if slug in times else slug)
        times[slug] = times.get(slug, 0) + 1
    return found


def links(text: str) -> Problems:
    """Line and target of each link and image that leads to no other site."""
    shown = _CODE_SPAN.sub(lambda found: "\n" * found[0].count("\n"), without_code(text))
    for found in _LINK.finditer(shown):
        target = next(group for group in found.groups() if group)
        if not _ELSEWHERE.match(target):
            yield shown.count("\n", 0, found.start()) + 1, unquote(target)


def link_problems(page: str, text: str, files: Set[str], anchors_of: Mapping[str, Set[str]]) -> Problems:
    """files: paths of all files and folders; anchors_of: page -> its anchors, those of other files are not checked."""
    for line, link in links(text):
        path, _sign, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if target not in files:
            yield line, f"the link to {link} leads to no file of the repository; correct or remove it."
        elif anchor and target in anchors_of and anchor not in anchors_of[target]:
            yield line, f"the link to {link} names no heading of {target}; write the heading as its anchor."


def hashes(folder: Path = CHECKOUT) -> str:
    """The text of the file HASHES for the files as they are."""
    return "".join(f"{hashlib.sha256((folder / path).read_bytes()).hexdigest()}  {path}\n" for path in SHOWN)


def picture_problems(stored: str, current: str) -> Problems:
    if changed := set(current.splitlines()) - set(stored.splitlines()):
        names = ", ".join(sorted(line.split()[1] for line in changed))
        yield 1, f"the picture was taken before the last change of {names}; run `make screenshot`."


def problems(checkout: Path) -> Iterator[str]:
    """All problems of a checkout."""

    def listed(*patterns: str) -> list[str]:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
        return [name for name in done.stdout.splitlines() if (checkout / name).exists()]

    files = {".", *listed()}
    files |= {str(folder) for name in files for folder in Path(name).parents}
    texts = {page: (checkout / page).read_text(encoding="utf-8") for page in listed(*PAGES)}
    anchors_of = {page: anchors(text) for page, text in texts.items()}
    stored = (checkout / HASHES).read_text(encoding="utf-8") if (checkout / HASHES).is_file() else ""
    found = [(PICTURE, *problem) for problem in picture_problems(stored, hashes(checkout))]
    for name in listed("*.svg"):
        found += [(name, *problem) for problem in svg_problems((checkout / name).read_text(encoding="utf-8"))]
    for page, text in texts.items():
        found += [(page, *problem) for problem in table_problems(text)]
        found += [(page, *problem) for problem in link_problems(page, text, files, anchors_of)]
    return (f"{name}:{line}: {sentence}" for name, line, sentence in sorted(found))


def main() -> int:
    found = list(problems(CHECKOUT))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
