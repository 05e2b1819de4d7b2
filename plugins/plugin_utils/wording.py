# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""External values in messages: one line, printable, no template; and the closest known word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import one_line

# A page has megabytes of the other characters.
_UNUSUAL = re.compile(r"[^\n\t -~]")


def sentence(message: Any, limit: int = 200) -> str:
    """Clean an external text for a message: one line, printable, no template, at most `limit` characters."""
    if not isinstance(message, str):
        return ""
    line = " ".join(one_line(message[:1000]).split())
    line = line.replace("{{", "{ {").replace("{%", "{ %").replace("{#", "{ #")
    return (line if len(line) <= limit else f"{line[: limit - 3]}...").rstrip(".")


def ended(message: str) -> str:
    """A sentence with its end."""
    return message if message.endswith((".", "?")) else f"{message}."


def missing_library(name: str | None) -> str:
    """The end of a message about a library of the controller."""
    return f"the Python library {name} is missing on the controller; install the collection's requirements.txt"


def like_group(where: str, tray: str) -> str:
    """The sentence on a tray that Ansible would mix up with a group; where: what names the tray."""
    return f"{where}: tray {tray} has the name of a group of the inventory; rename it there"


def printable(text: str) -> str:
    """A text of several lines without control characters, which move a terminal's cursor and which XML excludes."""
    return _UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() else " ", text)


def nearest(word: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the closest known word, else all known words."""
    words = list(known)
    return similar(word, words) or f"; use one of {', '.join(words)}"


def similar(word: object, known: Iterable[str], otherwise: str = "") -> str:
    """The end of a message about an unknown word: the closest known word; `otherwise` where none is close.

    Where thousands of words are known, since a list of them would not help.
    """
    import difflib  # only needed when the run has failed

    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else otherwise


def shown(value: object) -> str:
    """Format a value for a message: one line, at most 60 characters."""
    # str() first: it removes the tags of Ansible's own strings.
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
