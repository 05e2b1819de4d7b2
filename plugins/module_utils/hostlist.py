# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Slurm's hostlist expressions, expanded as ``scontrol show hostnames`` expands them (24.11.5 and 26.05.5).

Private to this collection; it may change in any release. Python 3.9, standard library only: it runs on the Slurm
controller, where ClusterShell need not be installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

# Slurm rejects a range of more hosts ("Too many hosts in range"); the same limit bounds the whole product here, so
# that a hostile expression cannot exhaust the controller's memory.
MAX_HOSTS = 65536
# The number of names alone bounds neither time nor memory: each bracket copies all names, with all that is around it.
MAX_BRACKETS = 8
MAX_NAME = 255
MAX_TEXT = 64 * MAX_HOSTS
# Slurm accepts longer numbers too; no tray has one, and a range of them exceeds a machine word.
MAX_DIGITS = 9


class HostlistError(NvlinkError):
    """A hostlist expression that Slurm rejects."""


def expand(text: str) -> list[str]:
    """Expand ``r[01-02]t[01-18],cpu1`` to its names; of several brackets in one member the last runs fastest.

    Slurm returns the same names; with several brackets and several ranges in another order.

    Commas and white space separate the members, an empty text has no host, a name may occur twice. Zero padding follows
    the lower bound of each range. Raises HostlistError for what Slurm reports as an invalid hostlist.
    """
    if len(text) > MAX_TEXT:
        raise HostlistError(f"The hostlist {_short(text)} has more than {MAX_TEXT} characters: shorten it.")
    names: list[str] = []
    for member in split(text):
        names.extend(_expand_member(member, text))
        if len(names) > MAX_HOSTS:
            raise HostlistError(f"The hostlist {_short(text)} has more than {MAX_HOSTS} names: shorten it.")
    return names


def fold(names: Iterable[str]) -> str:
    """Fold names into a hostlist with the numbers at their ends as ranges; expand() restores them, each group sorted.

    Names with the same stem and number of digits share a bracket: ``r01t[01-02],r02t[01-02],head``.
    """
    groups: dict[tuple[str, int], list[int]] = {}
    members = []
    for name in names:
        stem = stem_of(name)
        width = len(name) - len(stem)
        if 0 < width <= MAX_DIGITS:
            groups.setdefault((stem, width), []).append(int(name[len(stem) :]))
        else:
            members.append(name)
    members += [_folded(stem, width, sorted(numbers)) for (stem, width), numbers in groups.items()]
    return ",".join(members)


def stem_of(name: str) -> str:
    """A name without the digits at its end."""
    return name.rstrip("0123456789")


def _folded(stem: str, width: int, numbers: list[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    parts = [f"{low:0{width}d}" + (f"-{high:0{width}d}" if high > low else "") for low, high in ranges]
    return stem + (f"[{','.join(parts)}]" if len(numbers) > 1 else parts[0])


def split(text: str) -> list[str]:
    """The members of a hostlist, split at commas and white space outside brackets."""
    members: list[str] = []
    inside = False
    start = 0
    for position, character in enumerate(text):
        if character == "[":
            if inside:
                raise HostlistError(f"The hostlist {_short(text)} opens a bracket inside a bracket: write flat ranges.")
            inside = True
        elif character == "]":
            inside = False
        elif not inside and (character == "," or character.isspace()):
            members.append(text[start:position])
            start = position + 1
    if inside:
        raise HostlistError(f"The hostlist {_short(text)} has a bracket that is not closed: close it.")
    members.append(text[start:])
    return [member for member in members if member]


def _expand_member(member: str, whole: str) -> list[str]:
    if member.count("[") > MAX_BRACKETS:
        raise HostlistError(f"The hostlist {_short(whole)} has more than {MAX_BRACKETS} brackets in a name: use fewer.")
    names = [""]
    rest = member
    while "[" in rest:
        prefix, _bracket, rest = rest.partition("[")
        ranges, _bracket, rest = rest.partition("]")
        numbers = list(_numbers(ranges, whole))
        if len(names) * len(numbers) > MAX_HOSTS:
            raise HostlistError(f"The hostlist {_short(whole)} has more than {MAX_HOSTS} names: shorten it.")
        if len(names[0]) + len(prefix) + len(numbers[0]) + len(rest.rpartition("]")[2]) > MAX_NAME:
            raise _too_long(whole)
        names = [name + prefix + number for name in names for number in numbers]
    if len(names[0]) + len(rest) > MAX_NAME:
        raise _too_long(whole)
    return [name + rest for name in names]


def _too_long(text: str) -> HostlistError:
    return HostlistError(f"The hostlist {_short(text)} has a name of more than {MAX_NAME} characters: shorten it.")


def _numbers(ranges: str, whole: str) -> Iterator[str]:
    count = 0
    for part in ranges.split(","):
        low_text, dash, high_text = part.partition("-")
        numbers = (low_text, high_text) if dash else (low_text,)
        if not all(number.isdecimal() and number.isascii() for number in numbers) or len(part) > 32:
            raise HostlistError(
                f"The hostlist {_short(whole)} has the range {_short(part)}: write numbers, as [01-18]."
            )
        low, high = int(numbers[0]), int(numbers[-1])
        count += high - low + 1
        if high < low:
            raise HostlistError(
                f"The hostlist {_short(whole)} has the range {part}, which is descending: swap its bounds."
            )
        if count > MAX_HOSTS:
            raise HostlistError(f"The hostlist {_short(whole)} has more than {MAX_HOSTS} names: shorten it.")
        width = len(low_text)
        for number in range(low, high + 1):
            yield f"{number:0{width}d}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
