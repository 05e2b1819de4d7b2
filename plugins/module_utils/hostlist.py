# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Slurm's hostlist expressions, folded, and expanded as ``scontrol show hostnames`` does it (24.11.5 and 26.05.5).

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import shortened

# Slurm rejects a range of more hosts ("Too many hosts in range"); the same limit bounds the whole product here, so
# that a hostile expression cannot exhaust the controller's memory.
MAX_HOSTS = 65536
# The number of names alone bounds neither time nor memory: each bracket copies all names, with all that is around it.
MAX_BRACKETS = 8
MAX_NAME = 255
MAX_TEXT = 64 * MAX_HOSTS
# Slurm accepts longer numbers too; no tray has one, and a range of them exceeds a machine word.
MAX_DIGITS = 9
# Characters that have a meaning in hostlists, or that no NodeName has.
_TOO_LONG = f"has a name of more than {MAX_NAME} characters: shorten it."
_TOO_MANY = f"has more than {MAX_HOSTS} names: shorten it."
_ODD = frozenset("[],!&^@%*?:/# \t\n")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_MEMBER = re.compile(r"(?:[^,\s\[]+|\[[^\]]*\])+")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)


class HostlistError(NvlinkError):
    """A hostlist expression that Slurm rejects."""


def expand(text: str) -> list[str]:
    """Expand ``r[01-02]t[01-18],cpu1`` to its names; of several brackets in one member the last runs fastest.

    Slurm returns the same names; with several brackets and several ranges in another order.

    Commas and white space separate the members, an empty text has no host, a name may occur twice. Zero padding follows
    the lower bound of each range. Raises HostlistError for what Slurm reports as an invalid hostlist.
    """
    if len(text) > MAX_TEXT:
        raise _wrong(text, f"has more than {MAX_TEXT} characters: shorten it.")
    names: list[str] = []
    for member in split(text):
        names.extend(_expand_member(member, text))
        if len(names) > MAX_HOSTS:
            raise _wrong(text, _TOO_MANY)
    return names


def fold(names: Iterable[str]) -> str:
    """Fold names into a hostlist with their numbers as ranges; expand() restores them: ``r[01-02]t[01-18],head``.

    Names fold by their last numbers, then what is equal after that by the numbers before. Names of which one is
    given twice or is no host name are listed as they are, so that who checks them sees them.
    """
    names = list(names)
    if len(set(names)) != len(names) or "" in names or not _ODD.isdisjoint("".join(names)):
        return ",".join(names)
    rows = [(name, "") for name in names]
    for _number in range(MAX_BRACKETS):
        rows = _fold_last_numbers(rows)
    return ",".join(head + tail for head, tail in rows)


def _fold_last_numbers(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Fold rows of (text, hostlist of what follows it) by the last number of the text."""
    groups: dict[tuple[str, str], list[str]] = {}
    for head, tail in rows:
        found = _LAST_NUMBER.fullmatch(head)
        before, number, after = found.groups() if found else ("", "", head)
        if len(number) > MAX_DIGITS:
            number, after = "", number + after
        groups.setdefault((before, after + tail), []).append(number)
    return [(before, text + tail) for (before, tail), numbers in groups.items() for text in _ranges(numbers)]


def _ranges(numbers: Iterable[str]) -> Iterator[str]:
    """Numbers as hostlists: one for all without padding, one for each width with it; an empty text for an empty one."""
    numbers = list(numbers)
    padded = {len(number) for number in numbers if number.startswith("0") and number != "0"}
    by_width: dict[int, list[int]] = {}
    for number in numbers:
        if number:
            by_width.setdefault(len(number) if len(number) in padded else 0, []).append(int(number))
        else:
            yield ""
    for width, values in by_width.items():
        # Of successive values, the difference to their place is the same.
        runs = itertools.groupby(enumerate(sorted(values)), key=lambda row: row[1] - row[0])
        spans = [[value for _place, value in run] for _difference, run in runs]
        parts = ["-".join(str(end).zfill(width) for end in dict.fromkeys((span[0], span[-1]))) for span in spans]
        yield f"[{','.join(parts)}]" if len(values) > 1 else parts[0]


def split(text: str) -> list[str]:
    """The members of a hostlist, split at commas and white space outside brackets."""
    if "[" in _BRACKET.sub("", text):
        raise _wrong(text, "has a bracket that is not closed, or one inside another: write flat ranges, as r[01-18].")
    return _MEMBER.findall(text)


def _expand_member(member: str, whole: str) -> list[str]:
    # Text and ranges in turn.
    parts = _BRACKET.split(member)
    if len(parts) > 2 * MAX_BRACKETS + 1:
        raise _wrong(whole, f"has more than {MAX_BRACKETS} brackets in a name: use fewer.")
    choices = [list(_numbers(part, whole)) if at % 2 else [part] for at, part in enumerate(parts)]
    if math.prod(map(len, choices)) > MAX_HOSTS:
        raise _wrong(whole, _TOO_MANY)
    if sum(len(choice[0]) for choice in choices) > MAX_NAME:
        raise _wrong(whole, _TOO_LONG)
    return list(map("".join, itertools.product(*choices)))


def _wrong(text: str, what: str) -> HostlistError:
    return HostlistError(f"The hostlist {shortened(text, 80)!r} {what}")


def _numbers(ranges: str, whole: str) -> Iterator[str]:
    count = 0
    for part in ranges.split(","):
        low_text, dash, high_text = part.partition("-")
        numbers = (low_text, high_text) if dash else (low_text,)
        if not all(number.isdecimal() and number.isascii() for number in numbers) or len(part) > 32:
            raise _wrong(whole, f"has the range {shortened(part, 80)!r}: write numbers, as [01-18].")
        low, high = int(numbers[0]), int(numbers[-1])
        count += high - low + 1
        if high < low:
            raise _wrong(whole, f"has the range {part}, which is descending: swap its bounds.")
        if count > MAX_HOSTS:
            raise _wrong(whole, _TOO_MANY)
        width = len(low_text)
        for number in range(low, high + 1):
            yield f"{number:0{width}d}"
