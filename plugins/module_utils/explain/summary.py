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

Health = Mapping[str, Mapping[str, str]]
"""Tray -> state, since, code, reason and remedy, of those that are not healthy."""


Blocks = Mapping[str, Mapping[str, Any]]
"""Block -> its clique, which is that of several blocks where the site splits one, and trays by their names in Slurm."""


def health(folder: str = FOLDER) -> Health:
    """The health of the trays by their names in Slurm; empty without the file, or for another version."""
    return _read(f"{folder}/health.json", "trays")


def blocks(folder: str = FOLDER) -> Blocks:
    """The blocks; empty without the file, or for another version."""
    return _read(f"{folder}/blocks.json", "blocks")


def _read(path: str, part: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError):
        return {}
    known = isinstance(document, dict) and document.get("schema_version") == SCHEMA_VERSION
    return dict(document[part]) if known else {}
