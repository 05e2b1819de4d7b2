# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way to make one line of equal findings, causes or messages of many hosts, and to name those hosts. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.host_errors import MAX_LENGTH, cause
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, only
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

Key = TypeVar("Key")
Item = TypeVar("Item")
Row = TypeVar("Row", bound=Mapping[str, Any])

# Hosts with further causes are counted: each host that answers something else would add a line.
MAX_CAUSES = 6
SUBJECTS = ("tray", "node", "block", "clique", "domain")
"""The first that a finding has is its subject."""

SHOWN = 40
"""Failures that are not alike; the others are counted."""
_EQUAL = ("severity", "layer", "code", "cause", "action", "clique")

_NUMBER = re.compile(r"([0-9]+)")
# Of a longer word, such as the name of another tray, what is equal may not be the tray.
_PART_OF_WORD = re.compile(r"[\w.-]\0|\0[\w-]")


def natural_key(name: str) -> tuple[list[str | int], str]:
    """Sort key that puts r2 before r10; the text itself orders r1 and r01."""
    parts: list[Any] = _NUMBER.split(name)
    parts[1::2] = map(int, parts[1::2])
    return parts, name


def natural_sorted(names: Iterable[str]) -> list[str]:
    """The names in natural order."""
    return sorted(names, key=natural_key)


def names(hosts: Iterable[str], limit: int = MAX_LENGTH) -> str:
    """Hosts as a hostlist; the first ones where that has more characters than ``limit``."""
    ordered = natural_sorted(hosts)
    text = hostlist.fold(ordered)
    return text if len(text) <= limit else summarize(ordered)


def folded(hosts: Iterable[str], noun: str = "tray") -> str:
    """Hosts with their number and names: `18 trays (r01t[01-18])`."""
    hosts = list(hosts)
    return f"{count(len(hosts), noun)} ({names(hosts)})"


def equal(rows: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """What is equal, such as a message -> all that has it, such as its hosts; in the order of the first of each."""
    found: dict[Key, list[Item]] = {}
    for key, item in rows:
        found.setdefault(key, []).append(item)
    return found


def limited(groups: Mapping[Key, list[Item]], limit: int) -> tuple[list[tuple[Key, list[Item]]], int]:
    """(the first groups, how many items the others have)."""
    ordered = list(groups.items())
    return ordered[:limit], sum(len(items) for _key, items in ordered[limit:])


def grouped(problems: Iterable[tuple[str, str]], noun: str = "tray") -> list[str]:
    """A text for each cause, that of most hosts first; problems: host, message."""
    hosts_of = equal((cause(problem), host) for host, problem in problems)
    shown, more = limited(dict(sorted(hosts_of.items(), key=lambda row: -len(row[1]))), MAX_CAUSES)
    texts = [f"{folded(hosts, noun)}: {text}" for text, hosts in shown]
    return [*texts, *([f"{count(more, noun)} with other causes"] if more else [])]


def alike(rows: Iterable[Row], keys: Sequence[str], texts: Sequence[str] = ("message",)) -> list[list[Row]]:
    """Findings with equal ``keys``, and equal ``texts`` but for their subject, in the order of the first of each."""

    def what(at: int, row: Row) -> tuple[Any, ...]:
        name = row.get(_subject(row)) or ""
        parts = [row[key].replace(name, "\0") if name else row[key] for key in texts]
        alone = at if any(map(_PART_OF_WORD.search, parts)) else None
        return (alone, *parts, *(row[key] for key in keys))

    return [*equal((what(at, row), row) for at, row in enumerate(rows)).values()]


def _subject(row: Mapping[str, Any]) -> str:
    return next((key for key in SUBJECTS if row.get(key)), SUBJECTS[0])


def joined(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first of findings that are alike, with all subjects in place of its own."""
    first, key = rows[0], _subject(rows[0])
    subjects = list(dict.fromkeys(str(row.get(key)) for row in rows))
    if len(subjects) == 1:
        return {**first}
    return {
        **first,
        "clique": only(row.get("clique") for row in rows),
        key: names(subjects),
        "message": first["message"].replace(first[key], names(subjects)),
        # A command may have no hostlist.
        "remediation": first.get("remediation", "").replace(first[key], ",".join(subjects)),
    }


def shown(failures: Sequence[Finding], remedy: Callable[[Finding, Sequence[str]], str] | None = None) -> list[str]:
    """Two lines for failures that are alike, the second with likely cause, if one is known, and next step; SHOWN only.

    remedy: the next step of a failure for these trays; None where that of no code names trays.
    """
    groups = alike(failures, _EQUAL)
    found = []
    for rows in groups[:SHOWN]:
        first = rows[0]
        step = remedy(first, [tray for row in rows for tray in row["trays"]]) if remedy else first["remediation"]
        found.append(f"{first['severity']} {first['layer']} {first['code']}: {_message(rows)}")
        likely = f"likely cause: {first['cause']}; " if first["cause"] else ""
        found.append(f"    {likely}next step: {step}")
    if len(groups) > SHOWN:
        found.append(f"{count(sum(map(len, groups[SHOWN:])), 'more failure')}.")
    return found


def first_error(failures: Iterable[Finding]) -> str:
    """The message of the first error, with all trays that have it; empty without an error."""
    return next((_message(rows) for rows in alike(failures, _EQUAL) if rows[0]["severity"] == ERROR), "")


def _message(rows: Sequence[Finding]) -> str:
    """The message of failures that are alike: ``r01t[01-17]: The driver has no IMEX channels.``"""
    one = joined(rows)
    text, trays = str(one["message"]), one["tray"]
    return text if len(rows) == 1 or not trays or trays in text else f"{trays}: {text}"


def of_gpus(findings: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """(code, text) of one tray's findings, worst first: those of its GPUs with one code are one, with the first remedy.

    `each of GPUs [0-2] needs ... and GPU 3 needs ...; drain the tray`. A finding has code and message, and gpu where it
    is about one.
    """
    for (code, _what), parts in equal(map(_of_gpu, findings)).items():
        texts = []
        for about, gpus in equal((about, gpu) for about, gpu, _remedy in parts).items():
            name = f"GPU {gpus[0]}" if len(gpus) == 1 else f"each of GPUs {hostlist.fold(gpus)}"
            texts.append(about.replace("\0", name))
        yield code, " and ".join(texts) + parts[0][2]


def _of_gpu(row: Object) -> tuple[tuple[str, str], tuple[str, str, str]]:
    """What is one text with others of its tray: code, and sentence of one without GPU; its parts without the GPU."""
    gpu = str(row.get("gpu"))
    what, mark, remedy = sentence(row.get("message"), 500).partition("; ")
    about = re.sub(rf"\bGPU {re.escape(gpu)}\b", "\0", what)
    return (str(row.get("code")), what if row.get("gpu") is None else ""), (about, gpu, mark + remedy)
