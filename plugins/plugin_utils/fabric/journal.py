# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An append-only file of JSON lines, one before and one after each step of what may be killed in between.

The ledger of repair has this form, and so may the journal of another change that takes hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

BEGIN, DONE, FAILED, REFUSED = "begin", "done", "failed", "refused"


class Line(TypedDict):
    """One line. at: RFC 3339, in UTC. state: begin, done, failed or refused."""

    incident: str
    at: str
    step: str
    state: str
    subject: str
    code: str
    detail: str


def read(path: str) -> list[Line]:
    """All lines of a file; none without one. A torn last line is ignored, FabricFileError for any other bad line."""
    raise NotImplementedError


def append(path: str, lines: Sequence[Line]) -> None:
    """Append lines, each of them durably."""
    raise NotImplementedError
