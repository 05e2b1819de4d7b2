# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a host connects to: bounded, whatever the size of the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_PEERS = 17
"""All others of an NVL72's 18 trays; of a larger clique the next ones, so that each tray is tried by as many."""
MAX_SAMPLE = 128
"""Trays to which a Slurm controller connects."""


def next_to(name: str, names: Sequence[str], most: int = MAX_PEERS) -> list[str]:
    """The names that follow one in the list, which begins again at its end; without itself."""
    if name not in names:
        return []
    start = list(names).index(name) + 1
    return [*names[start:], *names[: start - 1]][:most]


def sample(names: Sequence[str], most: int = MAX_SAMPLE) -> list[str]:
    """At most so many of the names, spread evenly."""
    step = max(1, -(-len(names) // most))
    return list(names[::step])


def address(name: str, variables: Mapping[str, Any], hostvars: Any) -> str:
    """ansible_host of a host, or its name; variables: its own, not templated, since its facts may set any."""
    value = variables.get("ansible_host") or name
    return str(hostvars[name]["ansible_host"] if "{" in str(value) else value)
