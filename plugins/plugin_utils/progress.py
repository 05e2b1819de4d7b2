# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the results of many hosts by rack as they arrive. Pure functions; the callback prints the lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import natural_sorted

OK, CHANGED, RESCUED, FAILED, UNREACHABLE = "ok", "changed", "rescued", "failed", "unreachable"
# A host's worst result in a phase is its outcome.
OUTCOMES = (OK, CHANGED, RESCUED, FAILED, UNREACHABLE)
PROBLEMS = (RESCUED, FAILED, UNREACHABLE)
NO_RACK = ""
NO_RACK_LABEL = "(no rack)"
# Lines of one task; the rest is counted.
MAX_MESSAGES = 20
MAX_MESSAGE_LENGTH = 400


@dataclass
class Phase:
    """One play: the outcome of each host, by rack."""

    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, rack: str, host: str, outcome: str) -> None:
        """Add a host's result; the worst one counts."""
        hosts = self.outcomes.setdefault(rack, {})
        known = hosts.get(host)
        if known is None or OUTCOMES.index(outcome) > OUTCOMES.index(known):
            hosts[host] = outcome

    def lines(self, fold: bool = False) -> list[str]:
        """A line for each rack, hosts without one last; with fold one line for racks with equal results."""
        texts = {rack: _counted(hosts) for rack, hosts in self.outcomes.items()}
        racks = natural_sorted(rack for rack in texts if rack != NO_RACK)
        labels = [[rack] for rack in racks]
        if fold:
            equal: dict[str, list[str]] = {}
            for rack in racks:
                equal.setdefault(texts[rack], []).append(rack)
            labels = list(equal.values())
        rows = [(hostlist.fold(names), texts[names[0]]) for names in labels]
        if NO_RACK in texts:
            rows.append((NO_RACK_LABEL, texts[NO_RACK]))
        width = max((len(label) for label, _text in rows), default=0)
        return [f"{label:{width}}  {text}" for label, text in rows]


def _counted(hosts: dict[str, str]) -> str:
    """``18 hosts: 16 ok, 2 unreachable (r01t[03,07])``: hosts with problems are named."""
    parts = []
    for outcome, number in _counts(hosts.values()):
        affected = [host for host, word in hosts.items() if word == outcome]
        parts.append(
            f"{number} {outcome}" + (f" ({hostlist.fold(natural_sorted(affected))})" if outcome in PROBLEMS else "")
        )
    return f"{count(len(hosts), 'host')}: {', '.join(parts)}"


def _counts(outcomes: Iterable[str]) -> list[tuple[str, int]]:
    counted = Counter(outcomes)
    return [(word, counted[word]) for word in OUTCOMES if counted[word]]


@dataclass
class Messages:
    """Messages of the hosts in one task; equal messages are one line."""

    hosts_of: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, kind: str, host: str, text: str) -> None:
        """kind: an outcome; empty for the output of a debug task."""
        line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        line = line if len(line) <= MAX_MESSAGE_LENGTH else line[: MAX_MESSAGE_LENGTH - 1] + "…"
        self.hosts_of.setdefault((kind, line), []).append(host)

    def lines(self) -> list[str]:
        """The first lines, then the number of hosts with further messages."""
        rows = [
            ": ".join(part for part in (kind, hostlist.fold(natural_sorted(hosts)), text) if part)
            for (kind, text), hosts in self.hosts_of.items()
        ]
        more = sum(len(hosts) for hosts in list(self.hosts_of.values())[MAX_MESSAGES:])
        return [*rows[:MAX_MESSAGES], *([f"and {count(more, 'more host')}"] if more else [])]
