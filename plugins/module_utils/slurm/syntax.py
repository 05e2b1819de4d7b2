# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines of Slurm's configuration files: comments, continuations, includes and ``Key=Value`` pairs; pure functions.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Callable

MAX_INCLUDES = 10
_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?\Z", re.ASCII)


def logical_lines(text: str) -> Iterable[str]:
    """Lines without comments and blank ones, continuation lines (a backslash at the end) joined."""
    pending = ""
    for raw in text.splitlines():
        line = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        if line.endswith("\\"):
            pending += line[:-1]
            continue
        line, pending = (pending + line).strip(), ""
        if line:
            yield line
    if pending.strip():
        yield pending.strip()


def conf_lines(path: str, read: Callable[[str], str], skip: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """(file, logical line) of slurm.conf with those of the files that it includes, where it includes them, as in Slurm.

    read: the text of a file. An Include line that is not followed is yielded itself: of a file with a name in ``skip``,
    or nested more than MAX_INCLUDES deep.
    """
    cluster = ""

    def walk(file: str, depth: int) -> Iterator[tuple[str, str]]:
        nonlocal cluster
        for line in logical_lines(read(file)):
            target = include_of(line).replace("%c", cluster.lower())
            if target and "\0" not in target and os.path.basename(target) not in skip and depth < MAX_INCLUDES:
                yield from walk(os.path.join(os.path.dirname(path), target), depth + 1)
                continue
            cluster = next((value for key, value in key_values(line) if key.lower() == "clustername"), cluster)
            yield file, line

    yield from walk(path, 0)


def split(lines: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The single settings of slurm.conf (key in lower case -> value), and its lines of nodes, partitions and sets."""
    settings: dict[str, str] = {}
    others = []
    for line in lines:
        pairs = key_values(line)
        if pairs and pairs[0][0].lower() in ("nodename", "partitionname", "nodeset"):
            others.append(line)
        else:
            settings.update((key.lower(), value) for key, value in pairs)
    return settings, others


def include_of(line: str) -> str:
    """The path of an Include line of slurm.conf; empty for another line."""
    words = line.split(None, 1)
    return words[1].strip().strip("\"'") if len(words) == 2 and words[0].lower() == "include" else ""


def key_values(line: str) -> list[tuple[str, str]]:
    """The ``Key=Value`` pairs of one line of a Slurm configuration file, without quotes.

    In time linear in the length of the line: a key is searched once in each word.
    """
    found = re.findall(r"""(?<!\w)[^\WA-Za-z_]*([A-Za-z_]\w*)\s*=\s*("[^"]*"|'[^']*'|\S*)""", line)
    return [
        (key, value[1:-1] if value[:1] in "\"'" and value[-1:] == value[:1] and len(value) > 1 else value)
        for key, value in found
    ]


def shown_values(line: str) -> list[tuple[str, str]]:
    """The ``Key=Value`` pairs of one line that scontrol prints: no spaces around ``=``, since a value may be empty.

    A value ends at white space.
    """
    return re.findall(r"(?:^|(?<=\s))([A-Za-z_][\w/:]*)=(\S*)", line)


def parse_minutes(text: str) -> int | None:
    """Minutes of a time in one of Slurm's forms (minutes, hours:minutes:seconds, days-hours...), None for no limit.

    ValueError for another text.
    """
    seconds = parse_seconds(text)
    return None if seconds is None else -(-seconds // 60)  # Slurm rounds up


def known_minutes(text: str) -> int | None:
    """As ``parse_minutes()``; None for another text too."""
    try:
        return parse_minutes(text)
    except ValueError:
        return None


def parse_seconds(text: str) -> int | None:
    """As ``parse_minutes()``, in seconds."""
    if text.upper() in ("UNLIMITED", "INFINITE", "NONE", "-1"):
        return None
    match = _TIME.match(text)
    if match is None:
        raise ValueError(text)
    days, first, second, third = (int(part) if part is not None else None for part in match.groups())
    if days is not None:
        return ((days * 24 + (first or 0)) * 60 + (second or 0)) * 60 + (third or 0)
    if third is not None:
        return ((first or 0) * 60 + (second or 0)) * 60 + third
    return (first or 0) * 60 + (second or 0)
