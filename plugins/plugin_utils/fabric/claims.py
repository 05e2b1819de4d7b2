# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One GPU, one tray: which trays claim a GPU that is another's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import natural_sorted

Gpus = Mapping[str, Collection[str]]
"""Tray name -> its GPUs' UUIDs."""


def double_claims(known: Gpus, claims: Gpus) -> dict[str, str]:
    """The claims to drop, each with the tray that keeps the GPU.

    known is what the fabric says, where each GPU has one tray; claims is what attached trays show now. A GPU goes to
    the tray that has it in the fabric, unless that one now shows others; else to the first by name.
    """
    contested = sorted(set(_shown_twice(known, claims)))
    return _settle(known, claims, contested) if contested else {}


def _held(known: Gpus, claims: Gpus) -> Iterator[tuple[str, Collection[str]]]:
    """Every tray with the GPUs that it would have if all claims held."""
    yield from claims.items()
    yield from ((name, gpus) for name, gpus in known.items() if name not in claims)


def _shown_twice(known: Gpus, claims: Gpus) -> Iterator[str]:
    everything = [gpu for _name, gpus in _held(known, claims) for gpu in gpus]
    if len(set(everything)) == len(everything):
        return
    first: dict[str, str] = {}
    for name, gpus in _held(known, claims):
        for gpu in gpus:
            if first.setdefault(gpu, name) is not name:
                yield gpu


def _settle(known: Gpus, claims: Gpus, contested: list[str]) -> dict[str, str]:
    """Work the contested GPUs off.

    Whose claim is dropped falls back to what the fabric knows of it, which another may claim in turn.
    """
    claims = dict(claims)
    holders: dict[str, set[str]] = defaultdict(set)
    for name, gpus in _held(known, claims):
        for gpu in gpus:
            holders[gpu].add(name)
    dropped: dict[str, str] = {}
    while contested:
        contender = contested.pop()
        names = natural_sorted(holders[contender])
        owner = next((name for name in names if contender in known.get(name, ())), None) or next(iter(names), None)
        for name in names:
            if name == owner or owner is None:
                continue
            for gpu in claims.pop(name):
                holders[gpu].discard(name)
            for gpu in known.get(name, ()):
                holders[gpu].add(name)
                contested.append(gpu)
            dropped[name] = owner
    return dropped
