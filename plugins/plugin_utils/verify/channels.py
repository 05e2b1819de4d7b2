# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX channel devices: those that a tray should have, and whether they are of this boot's driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped, sentence, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.failure import CHANNELS, Failure, failure

FINDINGS = ("imex_channel_beside_slurm", "imex_channel_stale", "imex_channels_off")
"""Findings of the subset imex that are judged here."""


def check(seen: Evidence) -> Iterator[Failure]:
    """The layer channels."""
    for clique in seen.fabric.cliques:
        there = {tray: _devices(seen, tray) for tray in seen.answered(clique) if seen.part(tray, "channels")}
        offered = [tray for tray in there if (seen.part(tray, "channels") or {}).get("major") is not None]
        usual = set(seen.channels) or _usual([there[tray] for tray in offered])
        for tray, minors in there.items():
            missing = sorted(usual - minors)
            if missing:
                names = ", ".join(f"channel{minor}" for minor in missing[:5])
                whom = "the site wants on every tray" if seen.channels else "the other trays of its clique have"
                message = f"{tray} lacks {names}, which {whom}."
                yield failure("imex_channel_missing", CHANNELS, message, tray, clique, severity=ERROR)
            for note in as_list((seen.imex.get(tray) or {}).get("findings")):
                if mapped(note).get("code") in FINDINGS:
                    message = f"{tray}: {sentence(mapped(note).get('message'))}"
                    yield failure(note["code"], CHANNELS, message, tray, clique)


def _devices(seen: Evidence, tray: str) -> set[int]:
    rows = (seen.part(tray, "channels") or {}).get("devices")
    return {minor for row in as_list(rows) if (minor := whole(mapped(row).get("minor"))) is not None}


def _usual(there: list[set[int]]) -> set[int]:
    """The channels that more than half of these trays have; those that jobs make come and go on single trays."""
    counted = Counter(minor for minors in there for minor in minors)
    return {minor for minor, count in counted.items() if 2 * count > len(there)}
