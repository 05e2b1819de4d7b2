# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened to ten thousand hosts, counted rack by rack as their results come in. Pure: the callback prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import natural_sorted

OK, CHANGED, RESCUED, FAILED, UNREACHABLE = "ok", "changed", "rescued", "failed", "unreachable"
# A host's worst result in a phase is its outcome.
OUTCOMES = (OK, CHANGED, RESCUED, FAILED, UNREACHABLE)
TROUBLE = (RESCUED, FAILED, UNREACHABLE)
NO_RACK = ""
NO_RACK_LABEL = "(no rack)"
# Of one task; the rest is counted.
MAX_MESSAGES = 20
LONGEST_MESSAGE = 400


@dataclass
class Phase:
    """One play: the outcome of each host, by rack."""

    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, rack: str, host: str, outcome: str) -> None:
        """A host's result, which counts where it is worse than those before."""
        hosts = self.outcomes.setdefault(rack, {})
        known = hosts.get(host)
        if known is None or OUTCOMES.index(outcome) > OUTCOMES.index(known):
            hosts[host] = outcome

    def lines(self, fold: bool = False) -> list[str]:
        """A line for each rack, hosts without one last; with fold one for all racks that fared alike."""
        told = {rack: _counted(hosts) for rack, hosts in self.outcomes.items()}
        racks = natural_sorted(rack for rack in told if rack != NO_RACK)
        labels = [[rack] for rack in racks]
        if fold:
            alike: dict[str, list[str]] = {}
            for rack in racks:
                alike.setdefault(told[rack], []).append(rack)
            labels = list(alike.values())
        rows = [(hostlist.fold(names), told[names[0]]) for names in labels]
        if NO_RACK in told:
            rows.append((NO_RACK_LABEL, told[NO_RACK]))
        width = max((len(label) for label, _text in rows), default=0)
        return [f"{label:{width}}  {text}" for label, text in rows]


def _counted(hosts: dict[str, str]) -> str:
    """``18 trays: 16 ok, 2 unreachable (r01t[03,07])``: what went wrong is named."""
    parts = []
    for outcome, number in _counts(hosts.values()):
        who = [host for host, word in hosts.items() if word == outcome]
        parts.append(f"{number} {outcome}" + (f" ({hostlist.fold(natural_sorted(who))})" if outcome in TROUBLE else ""))
    return f"{number_of_hosts(len(hosts))}: {', '.join(parts)}"


def number_of_hosts(number: int) -> str:
    """In words."""
    return f"{number} host{'' if number == 1 else 's'}"


def _counts(outcomes: Iterable[str]) -> list[tuple[str, int]]:
    counted = Counter(outcomes)
    return [(word, counted[word]) for word in OUTCOMES if counted[word]]


@dataclass
class Messages:
    """What hosts said in one task; who said the same is told once."""

    said: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, kind: str, host: str, text: str) -> None:
        """kind: an outcome, or nothing for what a task was to print."""
        line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        line = line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"
        self.said.setdefault((kind, line), []).append(host)

    def lines(self) -> list[str]:
        """A line for each text, the first of them; then how many hosts said more."""
        rows = [
            ": ".join(part for part in (kind, hostlist.fold(natural_sorted(hosts)), text) if part)
            for (kind, text), hosts in self.said.items()
        ]
        more = sum(len(hosts) for hosts in list(self.said.values())[MAX_MESSAGES:])
        return [*rows[:MAX_MESSAGES], *([f"and {more} more hosts"] if more else [])]
