# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The row that a tray returns in a phase of imex_domain: its shape.

Every member of a clique decides from the rows of all, so a row with another shape than this is none: its tray fails,
and counts as failed for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Report, Row
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.schemas import Check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import MAX_MEMBERS


class Stored(Row, total=False):
    """A row with what the controller adds. refused: it found an error itself. unreached: the tray has not answered.

    unchanged: the phase had nothing to do. generation: of its plan. changes: what the phase has changed. offer: the
    name and version of the package to have. placed: the fabric file, whatever the owner needs; fabric_file: None where
    the owner needs none. allowed: imex_allow_outdated.
    """

    failed: bool
    refused: bool
    unreached: bool
    blocked: bool
    unchanged: bool
    msg: str
    host: str
    owner: str
    fabric_file: str | None
    generation: int
    changes: list[str]
    offer: list[str] | None
    placed: str
    allowed: list[str]


# The same as in the check at boot; a generation is one more with each change of a list.
MAX_GENERATION = 2**31 - 1

_BOOL = {"type": "boolean"}
_NAME = {"type": "string", "maxLength": 255, "pattern": r"\A[^\x00-\x1f\x7f]*\Z"}
_COUNT = {"type": "integer", "minimum": 0, "maximum": MAX_GENERATION}
_DIGEST = {"type": ["string", "null"], "pattern": r"\A[0-9a-f]{64}\Z"}
_TEXTS = {"type": "array", "maxItems": 1000, "items": {"type": "string", "maxLength": 4096}}
_RECORD = {
    "type": "object",
    "required": ["clique", "generation", "sha256"],
    "properties": {
        "clique": _NAME,
        "generation": _COUNT,
        "sha256": _NAME,
        "owner": _NAME,
        "nodes": _NAME,
        "channels": {"type": "array", "maxItems": 1000, "items": _COUNT},
        "since": {"type": "number"},
    },
}
# What decides for other trays too. The rest decides what is due on this tray alone, which fails by another shape.
_REPORT = {
    "type": "object",
    "required": [*Report.__annotations__],
    "additionalProperties": False,
    "properties": {
        **{key: {} for key in Report.__annotations__},
        "facts": {"type": "object"},
        "approved": _BOOL,
        "record": {"anyOf": [{"type": "null"}, _RECORD]},
        "peers": {"type": "object", "maxProperties": MAX_MEMBERS, "additionalProperties": _RECORD},
    },
}
_ROW = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "report": _REPORT,
        "facts": {"type": ["object", "null"]},
        "findings": schemas.FINDINGS,
        # stop_and_write
        "running": _BOOL,
        "sha256": _DIGEST,
        "reload": _BOOL,
        # start
        "started": _BOOL,
    },
}
# The fields without which a row of the phase decides nothing; the controller makes those of a report. The row of a
# failed tray may lack any.
_REQUIRED = {
    "inspect": ("pending",),
    "prepare": ("pending",),
    "stop_and_write": ("running", "sha256", "reload"),
    "start": ("started",),
    "wait": ("facts",),
}

_check_row = schemas.compiled(_ROW)


def _check(row: Any) -> Any:
    _check_row(row)
    for facts in (row.get("facts"), row.get("report", {}).get("facts")):
        if facts is not None:
            tray_report.check_imex(facts)
    return row


SCHEMA: dict[str, Check] = {
    "row": _check,
    "changes": schemas.compiled(_TEXTS),
    "findings": schemas.compiled(schemas.FINDINGS),
}
"""The checks of a tray's answer in a phase of imex_domain."""


def is_complete(phase: str, row: Mapping[str, Any] | None) -> bool:
    """Whether a row that matches SCHEMA has what decisions for the clique need after this phase."""
    if row is None or any(field not in row for field in _REQUIRED[phase]):
        return False
    return "facts" not in _REQUIRED[phase] or row["facts"] is not None
