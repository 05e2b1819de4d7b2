# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layer channels: which IMEX channel devices a tray must have, and whether they belong to the loaded driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CHANNELS, ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

FINDINGS = ("imex_channel_slurm_conflict", "imex_channel_stale", "imex_channels_off", "imex_channel_missing")
"""Codes of findings on a tray's IMEX that belong to this layer."""


def check(evidence: Evidence) -> Iterator[Finding]:
    """The layer channels."""
    for clique in evidence.fabric.cliques:
        read = {tray: evidence.trays[tray].channels for tray in evidence.answered(clique)}
        present = {tray: channels for tray, channels in read.items() if channels}
        usual = _usual([channels.minors for channels in present.values() if channels.major is not None])
        expected = set(evidence.channels) or usual
        for tray, channels in present.items():
            missing = sorted(expected - channels.minors)
            if missing:
                names = summarize(f"channel{minor}" for minor in missing)
                source = "the option channels requires" if evidence.channels else "most trays of its clique have"
                message = f"{tray} lacks {names}, which {source}."
                yield failure("imex_channel_missing", CHANNELS, message, tray, clique, severity=ERROR)
            imex = evidence.imex.get(tray)
            for row in imex["findings"] if imex else ():
                is_missing = row["code"] == "imex_channel_missing"
                if row["code"] in FINDINGS and not (missing and is_missing):
                    message = f"{tray}: {sentence(row['message'])}"
                    severity = ERROR if is_missing else None
                    yield failure(row["code"], CHANNELS, message, tray, clique, severity=severity)


def _usual(present: list[frozenset[int]]) -> set[int]:
    """The channels that more than half of these trays have: channels of a job exist on single trays for a while."""
    counted = Counter(minor for minors in present for minor in minors)
    return {minor for minor, count in counted.items() if 2 * count > len(present)}
