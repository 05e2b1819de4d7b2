# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs of the fuzz targets: noise, and valid documents with a few values, words or lines changed."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

DEEP: Any = []
for _level in range(200):
    DEEP = [DEEP]

# Values that no reader may take for granted. A lone surrogate is valid JSON and no valid text.
NUMBERS = [None, True, False, 0, -1, 2, 10**9, 2**63, 10**300, 0.5, float("inf"), float("nan")]
NUMERALS = ["0", "-1", "1e400", "NaN", "2026-11-21T05:00:00Z", "9999999-99-99T99:99:99Z", "::1", "198.51.100.1"]
LETTERS = ["", " ", "\n", "\x00", "\ud800", "\u202e", "é" * 3, "a" * 5000, "00000000-0000-0000-0000-000000000000"]
HOSTILE = ["../../etc/passwd", "{{ 7 * 7 }}", "-oProxyCommand=id", "r[01-18]", "a[1-65536][1]"]
CONTAINERS = [[], [[]], [None], ["", ""], {}, {"": ""}, {"a": {"a": 1}}, DEEP]
ODD: list[Any] = [*NUMBERS, *NUMERALS, *LETTERS, *HOSTILE, *CONTAINERS]


def values() -> st.SearchStrategy[Any]:
    """Any plain data, odd values most of the time."""
    leaves = st.one_of(st.sampled_from(ODD), st.integers(), st.floats(), st.text(max_size=20))
    short = st.one_of(st.text(max_size=8), st.sampled_from(["name", "nodes", "state", "generation", "findings"]))
    return st.one_of(
        st.sampled_from(ODD), st.recursive(leaves, lambda s: st.lists(s) | st.dictionaries(short, s), max_leaves=8)
    )


def _places(document: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Each (container, key or index) in a document."""
    rows = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in rows:
        found.append((document, key))
        _places(value, found)
    return found


@st.composite
def changed(draw: st.DrawFn, *documents: Any) -> Any:
    """One of the valid documents with up to four values replaced, removed, renamed or doubled."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _change in range(draw(st.integers(0, 4))):
        places = _places(document, [])
        if not places:
            break
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        how = draw(st.integers(0, 5))
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[draw(st.text(max_size=8))] = holder.pop(key)
        elif how == 2 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif how == 3:
            other, name = places[draw(st.integers(0, len(places) - 1))]
            if not isinstance(other[name], (dict, list)):
                holder[key] = other[name]
        else:
            holder[key] = copy.deepcopy(draw(values()))
    return document


def data(*documents: Any) -> st.SearchStrategy[Any]:
    """Plain data: valid documents with changes, or anything."""
    return st.one_of(changed(*documents), changed(*documents), values())


@st.composite
def edited(draw: st.DrawFn, words: tuple[str, ...], *texts: str) -> str:
    """One of the texts with up to six pieces cut, doubled, or replaced by a word or by noise."""
    text = draw(st.sampled_from(texts))
    for _change in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        how = draw(st.integers(0, 3))
        if how == 0:
            piece = ""
        elif how == 1:
            piece = text[start:end] * draw(st.integers(2, 30))
        elif how == 2:
            piece = draw(st.sampled_from(words))
        else:
            piece = draw(st.text(max_size=10))
        text = text[:start] + piece + text[end:]
    return text


SIGNS = ("=", ",", " ", "\n", "\\\n", "[", "]", "{", "}", "-", ":", "#", '"', "'", "\x00", "é", "\t", "*", "<", ">")
COMMON = (*SIGNS, "0", "9" * 20, "[1-65536]", "[01-18]", "&a", "&lt;", "N/A", "(null)", "nan", "inf", "1e999")


def texts(*samples: str, words: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    """Texts: samples with edits, rows of words, or noise."""
    vocabulary = (*COMMON, *words)
    rows = st.lists(st.sampled_from(vocabulary), max_size=40).map("".join)
    return st.one_of(edited(vocabulary, *samples), edited(vocabulary, *samples), rows, st.text(max_size=200))


def encoded(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """JSON of plain data; sometimes cut, or with bytes changed."""
    whole = strategy.map(lambda value: json.dumps(value).encode())
    return st.one_of(whole, whole, whole, st.builds(_cut, whole, st.integers(0, 5000), st.binary(max_size=8)))


def _cut(content: bytes, at: int, noise: bytes) -> bytes:
    at %= len(content) + 1
    return content[:at] + noise + content[at + len(noise) :]
