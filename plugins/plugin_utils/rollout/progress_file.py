# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress file, from which a later run resumes.

It lists the unfinished cliques, and is removed when the rollout is complete.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import MAX_FLEET_FILE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import RolloutError

SCHEMA_VERSION = 1
# States of a clique in the progress file. Skipped: a tray was unreachable when the wave started, which is no failure.
PENDING, STARTED, FAILED, SKIPPED = "pending", "started", "failed", "skipped"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


class Unfinished(TypedDict):
    """An unfinished clique, as in the progress file: its state, and the reason of each tray that did not pass."""

    state: str
    trays: dict[str, str]


def default_path(path: str, rollout: str) -> str:
    """fabric.json and imex -> fabric.rollout-imex.json in the same folder."""
    return f"{path.removesuffix('.json')}.rollout-{check_name(rollout)}.json"


def marked(path: str, state_dir: str | None) -> str:
    """The path that each rollout of this fabric file marks while it runs (storage.mark, storage.held)."""
    return fabric_file.companion(path, "rollout", state_dir)


def check_name(rollout: str) -> str:
    """The name; RolloutError for one that cannot be part of a file name."""
    if not _NAME.fullmatch(rollout):
        raise RolloutError(f"rollout: {rollout!r} must be one lower-case word; it is part of a file name")
    return rollout


def read(path: str) -> dict[str, Unfinished]:
    """The unfinished cliques of an earlier run; RolloutError for any other file."""
    try:
        document = json.loads(atomic.bounded(path, MAX_FLEET_FILE))
        if document["schema_version"] != SCHEMA_VERSION:
            raise ValueError("schema_version")
        rows: dict[str, Unfinished] = {
            name: {"state": row["state"], "trays": dict(row["trays"])} for name, row in document["cliques"].items()
        }
        if not all(isinstance(text, str) for row in rows.values() for text in (row["state"], *row["trays"].values())):
            raise ValueError("cliques")
        return rows
    except OSError as error:
        raise RolloutError(
            f"rollout_resume: {path} cannot be read ({error.strerror}); a complete rollout removes its progress file"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RolloutError(
            f"rollout_resume: {path} is not the progress file of a rollout; give the path of one"
        ) from None


def write(path: str, rollout: str, unfinished: Mapping[str, Unfinished], now: str) -> None:
    """Write the progress file; remove it when no clique is unfinished."""
    if not unfinished:
        if os.path.exists(path):
            storage.remove(path)
        return
    document = {"schema_version": SCHEMA_VERSION, "rollout": rollout, "written_at": now, "cliques": unfinished}
    storage.write_atomic(path, f"{json.dumps(document, indent=1, sort_keys=True)}\n".encode())


def summary(unfinished: Mapping[str, Unfinished], path: str, rollout: str) -> str:
    """One sentence: the unfinished cliques and how to resume; path: empty in check mode, which writes no file."""
    how = f" with -e rollout_resume={path}" if path else ""
    left = count(len(unfinished), "clique")
    return f"Rollout {rollout}: {left} unfinished: {_cliques(unfinished)}; fix the cause and run it again{how}."


def earlier(unfinished: Mapping[str, Unfinished], path: str, rollout: str) -> str:
    """One sentence of the cliques that an earlier run left unfinished, and this one did not name."""
    how = f" with -e rollout_resume={path}" if path else ""
    those = "this clique" if len(unfinished) == 1 else "these cliques"
    return f"Rollout {rollout}: unfinished since an earlier run: {_cliques(unfinished)}; run it for {those} too{how}."


def _cliques(unfinished: Mapping[str, Unfinished]) -> str:
    # Failed cliques before pending ones.
    rows = sorted(unfinished.items(), key=lambda item: item[1]["state"] == PENDING)
    return summarize(f"{name} ({_clique(row)})" for name, row in rows)


def _clique(row: Unfinished) -> str:
    if not row["trays"]:
        return row["state"]
    tray, reason = next(iter(row["trays"].items()))
    others = f", and {len(row['trays']) - 1} more" if len(row["trays"]) > 1 else ""
    return f"{row['state']}: {tray}, {reason.rstrip('.')}{others}"
