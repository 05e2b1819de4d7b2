# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the results of many hosts by NVLink domain as they arrive. Pure functions; the callback prints the lines.

A line begins with the worst result of its hosts: ``failed  Read the trays: r01: 18 hosts: 17 ok, 1 failed (r01t03)``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import natural_key, natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import printable

OK, CHANGED, RESCUED, FAILED, UNREACHABLE = "ok", "changed", "rescued", "failed", "unreachable"
# A host's worst result in a phase is its outcome.
OUTCOMES = (OK, CHANGED, RESCUED, FAILED, UNREACHABLE)
PROBLEMS = (RESCUED, FAILED, UNREACHABLE)
# What ends a run with an error.
ERRORS = (FAILED, UNREACHABLE)
NO_DOMAIN = ""
NO_DOMAIN_LABEL = "(no domain)"
# Different messages of one task; the hosts of further ones are counted.
MAX_MESSAGES = 20
MAX_MESSAGE_LENGTH = 1000
# Hosts of a line without problems are named where their hostlist is not longer.
MAX_HOSTS_LENGTH = 30
_WIDTH = max(map(len, OUTCOMES))
# Words of the domain map, of a verdict and of a list of findings, and the SGR codes that they are painted with. Red and
# yellow are reserved for problems.
_WORDS = {
    "error": "1;31",
    "✗ unhealthy": "1;31",
    "conflict": "1;31",
    "warning": "33",
    "▲ degraded": "33",
    "stale": "33",
    "unplaced": "33",
    "? unknown": "2",
}
# The callback indents each line by two.
_PAINTED = re.compile(rf"(?:^|(?<=^  ))(?:error|warning)\b|(?<= )(?:{'|'.join(map(re.escape, _WORDS))})(?=  |$)")


class Line(NamedTuple):
    """A line with the outcome that it is coloured by, and the hosts that it counts."""

    outcome: str
    text: str
    hosts: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.outcome:{_WIDTH}}  {self.text}" if self.outcome else self.text


@dataclass
class Phase:
    """One play: the outcome of each host, by domain."""

    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, domain: str, host: str, outcome: str) -> None:
        """Add a host's result; the worst one counts."""
        hosts = self.outcomes.setdefault(domain, {})
        known = hosts.get(host)
        if known is None or OUTCOMES.index(outcome) > OUTCOMES.index(known):
            hosts[host] = outcome

    def lines(self) -> list[Line]:
        """One line, or a line for each domain with a problem and one for all other hosts; none without a host."""
        if not self.outcomes:
            return []
        problems = {
            domain: hosts for domain, hosts in self.outcomes.items() if any(word in ERRORS for word in hosts.values())
        }
        # Domains that failed as a whole share a line.
        failed = [domain for domain, hosts in problems.items() if len(set(hosts.values())) == 1]
        whole: dict[str, str] = {}
        if len(failed) > 1:
            for domain in failed:
                whole.update(problems.pop(domain))
        rest: dict[str, str] = {}
        for domain, hosts in self.outcomes.items():
            if domain not in problems and not whole.keys() >= hosts.keys():
                rest.update(hosts)
        rows = [
            _line("", {host: word for host, word in whole.items() if word == one})
            for one in sorted(set(whole.values()))
        ]
        for domain in sorted(problems, key=lambda name: (name == NO_DOMAIN, natural_key(name))):
            label = domain or (NO_DOMAIN_LABEL if len(self.outcomes) > 1 else "")
            rows.append(_line(label, problems[domain]))
        if rest:
            rows.append(_line("all others" if problems or whole else "", rest))
        return rows


def _line(label: str, hosts: dict[str, str]) -> Line:
    text = counted(hosts)
    return Line(_worst(hosts), f"{label}: {text}" if label else text, frozenset(hosts))


def counted(hosts: dict[str, str]) -> str:
    """``18 hosts: 16 ok, 2 unreachable (r01t[03,07])``: hosts with problems are named, others where they are few."""
    numbers = Counter(hosts.values())
    every = hostlist.fold(natural_sorted(hosts))
    label = every if len(every) <= MAX_HOSTS_LENGTH else count(len(hosts), "host")
    if set(numbers) <= {OK} or len(hosts) == 1:
        return label
    parts = []
    for outcome in (word for word in OUTCOMES if numbers[word]):
        affected = [host for host, word in hosts.items() if word == outcome]
        named = f" ({hostlist.fold(natural_sorted(affected))})" if outcome in PROBLEMS else ""
        parts.append(f"{numbers[outcome]} {outcome}{named}")
    return f"{count(len(hosts), 'host')}: {', '.join(parts)}"


def verdict(hosts: dict[str, str], causes: Sequence[str], seconds: float, check_mode: bool) -> tuple[str, str]:
    """Outcome and text of the last line: whether the run failed, the results of all hosts, the first cause."""
    mode = " (check mode)" if check_mode else ""
    worst = _worst(hosts) if hosts else OK
    outcome = FAILED if worst in ERRORS else CHANGED if CHANGED in hosts.values() else OK
    head = f"{outcome.upper()} in {seconds:.1f} s{mode}: {counted(hosts) if hosts else 'no play had a host'}"
    more = f" ({count(len(causes) - 1, 'more cause')} above)" if len(causes) > 1 else ""
    return outcome, head + "".join(f": {cause}{more}" for cause in causes[:1])


def painted(line: str) -> str:
    """A line for a terminal with colours."""
    return _PAINTED.sub(lambda found: f"\033[{_WORDS[found[0]]}m{found[0]}\033[0m", line)


def _worst(hosts: dict[str, str]) -> str:
    return max(hosts.values(), key=OUTCOMES.index)


class Message(NamedTuple):
    """What a task prints for some hosts: an outcome, empty for the output of a debug task, and its lines."""

    outcome: str
    lines: tuple[str, ...]


@dataclass
class Messages:
    """Messages of the hosts in one task; equal messages are printed once."""

    hosts_of: dict[Message, list[str]] = field(default_factory=dict)

    def add(self, outcome: str, host: str, *texts: str) -> None:
        """Add what a host prints: a failure is one line, the output of a debug task has as many as its texts have."""
        if outcome:
            line = " ".join(printable("; ".join(texts)).split())
            lines = [line if len(line) <= MAX_MESSAGE_LENGTH else f"{line[: MAX_MESSAGE_LENGTH - 1]}…"]
        else:
            lines = [printable(line).rstrip() for text in texts for line in text.splitlines() or [""]]
        if lines:
            self.hosts_of.setdefault(Message(outcome, tuple(lines)), []).append(host)

    def errors(self) -> list[str]:
        """The different causes that end a run with an error."""
        return [message.lines[0] for message in self.hosts_of if message.outcome in ERRORS]

    def lines(self, task: str, controller: Iterable[str] = ()) -> list[Line]:
        """The messages, then the number of hosts with further ones; controller: hosts that need no name."""
        rows: list[Line] = []
        for message, hosts in list(self.hosts_of.items())[:MAX_MESSAGES]:
            names = hostlist.fold(natural_sorted(hosts))
            if message.outcome:
                rows.append(Line(message.outcome, f"{task}: {names}: {message.lines[0]}".removesuffix(": ")))
            elif set(hosts) <= set(controller):
                rows += [Line("", line) for line in message.lines]
            elif len(message.lines) == 1:
                rows.append(Line("", f"{names}: {message.lines[0]}"))
            else:
                rows += [Line("", f"{names}:"), *(Line("", f"  {line}") for line in message.lines)]
        more = sum(len(hosts) for hosts in list(self.hosts_of.values())[MAX_MESSAGES:])
        return [*rows, *([Line("", f"{task}: and {count(more, 'more host')}")] if more else [])]
