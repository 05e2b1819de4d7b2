# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect one observation for each tray from an external list, also where the list contradicts itself."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation, SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import NODE_NAME, text
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError

MAX_TRAYS = 500_000

tray_name = text(NODE_NAME)
"""A check (see values) for names of trays."""


class Collector:
    """Collects the observations of one source. things: what the source lists, such as `nodes`, for messages."""

    def __init__(self, source: str, things: str) -> None:
        self._source, self._things = source, things
        self._trays: dict[str, Observation] = {}
        self._rows = self._unnamed = self._first_unnamed = 0

    def add(self, observation: Observation | None) -> None:
        """Add the observation of the next row; None for a row without a usable tray name."""
        self._rows += 1
        if self._rows > MAX_TRAYS:
            raise SourceError(f"{self._source}: lists more than {MAX_TRAYS} {self._things}; select fewer")
        if observation is None:
            self._unnamed += 1
            self._first_unnamed = self._first_unnamed or self._rows
            return
        earlier = self._trays.setdefault(observation.tray, observation)
        if earlier is not observation:
            self._trays[observation.tray] = self._merged(earlier, observation)

    def result(self, remedy: str) -> SourceResult:
        """The observations in the order of the list; SourceError if no row has a usable name. remedy: its end."""
        observations = list(self._trays.values())
        if self._unnamed and not observations:
            raise SourceError(f"{self._source}: none of {self._rows} {self._things} has a usable tray name; {remedy}")
        findings = []
        if self._unnamed:
            message = (
                f"Source {self._source} lists {self._unnamed} of {self._rows} {self._things} without a usable tray "
                f"name, first at position {self._first_unnamed}; {remedy}."
            )
            findings.append(finding("source_list_invalid", message))
        return SourceResult(observations, findings)

    def _merged(self, first: Observation, second: Observation) -> Observation:
        """The first observation; without a clique if the second reports another one."""
        agree = first.identity == second.identity
        place = "" if agree else " in different cliques, so both are ignored"
        message = f"Source {self._source} lists tray {first.tray} twice{place}"
        findings = (*first.findings, finding("source_list_invalid", message, tray=first.tray))
        return replace(first, identity=first.identity if agree else None, findings=findings)
