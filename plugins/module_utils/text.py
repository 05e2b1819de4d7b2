# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Format lists, counts and times in messages.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence


def rfc3339(seconds: float | None = None) -> str:
    """A time in seconds since 1970, now without one, as RFC 3339 in UTC to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def summarize(items: Iterable[object], limit: int = 5) -> str:
    """Join items as ``A, B and N more``: at most ``limit`` of them are named, in the order given."""
    names = [str(item) for item in items]
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"


def bounded(lines: Sequence[str], limit: int, noun: str) -> list[str]:
    """At most ``limit`` of these lines; the number of the others, which are more of this noun, is one below them."""
    more = len(lines) - limit
    return [*lines[:limit], *([f"and {count(more, f'more {noun}')}"] if more > 0 else [])]


def shortened(text: str, limit: int) -> str:
    """A text of at most ``limit`` characters; dots stand for the rest of a longer one."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def one_line(text: str) -> str:
    """A text without control characters and those that turn the direction: a terminal shows it in its line."""
    return "".join(char if char.isprintable() else " " for char in text)


def count(number: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun: ``1 clique``, ``2 cliques``. ``plural``: where it is not the noun with an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
