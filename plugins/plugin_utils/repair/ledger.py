# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of repair: the incidents of trays, read from the lines of its journal."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line

NAME_SUFFIX = ".repairs.jsonl"
STEPS = ("open", "drain", "evidence", "spare", "ticket", "action", "return", "resume", "close")
KEPT = timedelta(days=30)


@dataclass(frozen=True)
class Incident:
    """One fault of a tray, or of a domain. steps: step -> state of its last line."""

    id: str
    subject: str
    code: str
    action: str
    opened_at: str
    closed_at: str | None
    steps: dict[str, str]
    gpu: int | None
    link: int | None


def path(fabric_file: str, state_dir: str | None) -> str:
    """The ledger of a fabric file: fabric.repairs.jsonl beside its state file."""
    raise NotImplementedError


def incidents(lines: Sequence[Line]) -> dict[str, Incident]:
    """ID -> incident, in the order in which they were opened."""
    raise NotImplementedError


def new_id(subject: str, now: str, known: Container[str]) -> str:
    """The ID of a new incident, such as r01t04-20261129T191500Z; unlike all that are known."""
    raise NotImplementedError


def rotated(lines: Sequence[Line], now: str) -> list[Line]:
    """The lines to keep: those of open incidents, and all of the last 30 days."""
    raise NotImplementedError
