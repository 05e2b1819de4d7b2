# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolve duplicate claims: a GPU belongs to one tray."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import natural_sorted

Gpus = Mapping[str, Collection[str]]
"""Tray name -> its GPUs' UUIDs."""


def double_claims(known: Gpus, claims: Gpus) -> dict[str, str]:
    """Map each tray whose claim is dropped to the tray that keeps the GPU.

    known: GPUs of each tray in the fabric file, where a GPU has one tray. claims: GPUs that attached trays report now.
    A GPU goes to its tray in the fabric, unless that tray now reports others; else to the first tray by name.
    """
    contested = sorted(set(_duplicates(known, claims)))
    return _resolve(known, claims, contested) if contested else {}


def _claimed(known: Gpus, claims: Gpus) -> Iterator[tuple[str, Collection[str]]]:
    """Every tray with the GPUs that it would have if all claims were accepted."""
    yield from claims.items()
    yield from ((name, gpus) for name, gpus in known.items() if name not in claims)


def _duplicates(known: Gpus, claims: Gpus) -> Iterator[str]:
    everything = [gpu for _name, gpus in _claimed(known, claims) for gpu in gpus]
    if len(set(everything)) == len(everything):
        return
    first: dict[str, str] = {}
    for name, gpus in _claimed(known, claims):
        for gpu in gpus:
            if first.setdefault(gpu, name) is not name:
                yield gpu


def _resolve(known: Gpus, claims: Gpus, contested: list[str]) -> dict[str, str]:
    """Drop claims until no GPU is contested.

    A tray whose claim is dropped falls back to its GPUs in the fabric, which another tray may claim in turn.
    """
    claims = dict(claims)
    claimants: dict[str, set[str]] = defaultdict(set)
    for name, gpus in _claimed(known, claims):
        for gpu in gpus:
            claimants[gpu].add(name)
    dropped: dict[str, str] = {}
    while contested:
        gpu_uuid = contested.pop()
        names = natural_sorted(claimants[gpu_uuid])
        owner = next((name for name in names if gpu_uuid in known.get(name, ())), None) or next(iter(names), None)
        for name in names:
            if name == owner or owner is None:
                continue
            for gpu in claims.pop(name):
                claimants[gpu].discard(name)
            for gpu in known.get(name, ()):
                claimants[gpu].add(name)
                contested.append(gpu)
            dropped[name] = owner
    return dropped
