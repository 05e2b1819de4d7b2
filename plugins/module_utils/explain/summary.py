# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The summary on a login node: what Slurm does not know of blocks and trays, for every user of it.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Two world-readable files without addresses, serials or secrets, each written whole by one role. slurm_topology writes
blocks.json, which matters where Slurm shows no blocks; verify writes health.json, with the trays that have a failure:

    {"schema_version": 1, "blocks": {"r01": {"clique": "r01", "trays": ["r01t01", "r01t02"]}}}
    {"schema_version": 1, "at": "2026-11-21T15:10:00Z",
     "trays": {"r03t07": {"state": "unhealthy", "since": "2026-11-21T15:10:00Z", "code": "gpu_lost",
                          "reason": "GPU 2 is lost.", "remedy": "..."}}}

Slurm's live state wins over it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FOLDER = "/var/lib/nvlink-explain"
SCHEMA_VERSION = 1
# Of a cluster of 65,536 trays that are all unhealthy.
MAX_BYTES = 64 * 1024 * 1024

Health = Mapping[str, Mapping[str, str]]
"""Tray -> state, since, code, reason and remedy, of those that are not healthy."""


def health(folder: str = FOLDER) -> Health:
    """The health of the trays by their names in Slurm; empty without the file, or for another version."""
    rows = _read(f"{folder}/health.json", "trays").items()
    return {name: {key: str(value) for key, value in row.items()} for name, row in rows if isinstance(row, dict)}


def blocks(folder: str = FOLDER) -> dict[str, tuple[str, ...]]:
    """Block -> its trays by their names in Slurm."""
    rows = _read(f"{folder}/blocks.json", "blocks")
    return {name: tuple(map(str, row.get("trays", ()))) for name, row in rows.items() if isinstance(row, dict)}


def clique_of(folder: str = FOLDER) -> dict[str, str]:
    """Block -> its clique; that of several blocks where the site splits a clique."""
    rows = _read(f"{folder}/blocks.json", "blocks")
    return {name: str(row.get("clique")) for name, row in rows.items() if isinstance(row, dict)}


def _read(path: str, part: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            document = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError):
        return {}
    known = isinstance(document, dict) and document.get("schema_version") == SCHEMA_VERSION
    rows = document.get(part) if known else None
    return rows if isinstance(rows, dict) else {}
