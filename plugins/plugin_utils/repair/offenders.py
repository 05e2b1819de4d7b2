# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repeat offenders and hours lost, from the lines of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line


@dataclass(frozen=True)
class Offender:
    """A part that has had several incidents. kind: gpu, link, tray or switch_port."""

    kind: str
    name: str
    count: int
    hours: float


def offenders(lines: Sequence[Line]) -> list[Offender]:
    """All parts with incidents, those with most first."""
    raise NotImplementedError


def hours_lost(lines: Sequence[Line], now: str) -> dict[str, float]:
    """Tray -> the hours between drain and resume, or until now."""
    raise NotImplementedError
