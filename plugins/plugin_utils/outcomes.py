# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the results of many hosts as they arrive. Pure functions; the callback prints the lines.

A line begins with the worst result of its hosts: ``failed  Read the trays: 18 hosts: 17 ok, 1 failed (r01t03)``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, shortened
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import limited, names, natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import printable

OK, CHANGED, RESCUED, FAILED, UNREACHABLE = "ok", "changed", "rescued", "failed", "unreachable"
# A host's worst result in a phase is its outcome.
OUTCOMES = (OK, CHANGED, RESCUED, FAILED, UNREACHABLE)
PROBLEMS = (RESCUED, FAILED, UNREACHABLE)
# What ends a run with an error.
ERRORS = (FAILED, UNREACHABLE)
# Different messages of one task; the hosts of further ones are counted.
MAX_MESSAGES = 20
MAX_MESSAGE_LENGTH = 1000
# Hosts of a line without problems are named where their hostlist is not longer.
MAX_HOSTS_LENGTH = 30
# Of a longer hostlist of hosts with a problem, the first ones are named.
MAX_NAMES_LENGTH = 1000
_WIDTH = max(map(len, OUTCOMES))


class Line(NamedTuple):
    """A line with the outcome that it is coloured by."""

    outcome: str
    text: str

    def __str__(self) -> str:
        return f"{self.outcome:{_WIDTH}}  {self.text}" if self.outcome else self.text


def add(hosts: dict[str, str], host: str, outcome: str) -> None:
    """Add a host's result to the outcomes of a play; the worst one counts."""
    hosts[host] = max(outcome, hosts.get(host, OK), key=OUTCOMES.index)


def counted(hosts: dict[str, str]) -> str:
    """``18 hosts: 16 ok, 2 unreachable (r01t[03,07])``: hosts with problems are named, others where they are few."""
    numbers = Counter(hosts.values())
    every = hostlist.fold(natural_sorted(hosts))
    label = every if len(every) <= MAX_HOSTS_LENGTH else count(len(hosts), "host")
    if set(numbers) <= {OK} or len(hosts) == 1:
        return label
    parts = []
    for outcome in (word for word in OUTCOMES if numbers[word]):
        found = [host for host, word in hosts.items() if word == outcome]
        parts.append(f"{len(found)} {outcome}{f' ({names(found, MAX_NAMES_LENGTH)})' if outcome in PROBLEMS else ''}")
    return f"{count(len(hosts), 'host')}: {', '.join(parts)}"


def verdict(hosts: dict[str, str], causes: Sequence[str], seconds: float, check_mode: bool) -> tuple[str, str]:
    """Outcome and text of the last line: whether the run failed, the results of all hosts, the first cause."""
    mode = " (check mode)" if check_mode else ""
    most = worst(hosts) if hosts else OK
    outcome = FAILED if most in ERRORS else CHANGED if CHANGED in hosts.values() else OK
    head = f"{outcome.upper()} in {seconds:.1f} s{mode}: {counted(hosts) if hosts else 'no play matched a host'}"
    more = f" ({count(len(causes) - 1, 'more cause')} above)" if len(causes) > 1 else ""
    return outcome, head + "".join(f": {cause}{more}" for cause in causes[:1])


def worst(hosts: dict[str, str]) -> str:
    """The worst outcome of hosts."""
    return max(hosts.values(), key=OUTCOMES.index)


class Message(NamedTuple):
    """What a task prints for some hosts: an outcome, empty for the output of a debug task, and its lines."""

    outcome: str
    lines: tuple[str, ...]


def message(outcome: str, *texts: str) -> Message:
    """What a host prints: a failure is one line, the output of a debug task has as many as its texts have."""
    if outcome:
        return Message(outcome, (shortened(" ".join(printable("; ".join(texts)).split()), MAX_MESSAGE_LENGTH),))
    return Message("", tuple(printable(line).rstrip() for text in texts for line in text.splitlines() or [""]))


def lines(task: str, hosts_of: Mapping[Message, list[str]], controller: Collection[str] = ()) -> list[Line]:
    """The messages of a task, then the number of hosts with further ones; controller: hosts that need no name."""
    rows: list[Line] = []
    shown, more = limited(hosts_of, MAX_MESSAGES)
    for (outcome, texts), hosts in shown:
        who = hostlist.fold(natural_sorted(hosts))
        if outcome:
            rows.append(Line(outcome, f"{task}: {who}: {texts[0]}".removesuffix(": ")))
        elif set(hosts) <= set(controller):
            rows += [Line("", text) for text in texts]
        elif len(texts) == 1:
            rows.append(Line("", f"{who}: {texts[0]}"))
        elif texts:
            rows += [Line("", f"{who}:"), *(Line("", f"  {text}") for text in texts)]
    return [*rows, *([Line("", f"{task}: and {count(more, 'more host')}")] if more else [])]
