# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came of each wave: judged from what its trays said, and kept in a file for the run that goes on.

The file is a list of what is left: it is there as long as a clique is, and gone after a whole rollout.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import RolloutError

SCHEMA_VERSION = 1
# Words for a clique in the file. Absent: a tray was not there when the wave began, which is no fault of the rollout.
WAITING, BEGUN, FAILED, ABSENT = "waiting", "begun", "failed", "absent"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


@dataclass(frozen=True)
class Left:
    """A clique that is not done: how far it came, and what was wrong with which of its trays."""

    state: str
    trays: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """passed: the trays that came through every step. left: the cliques that did not, as the file holds them."""

    passed: tuple[str, ...]
    left: Mapping[str, Left]


def judge(cliques: Mapping[str, Sequence[str]], rows: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """One wave. rows: what each tray said last; one that died in the middle said nothing after it was looked at.

    A clique is done only when every tray of it said that it passed.
    """
    left = {}
    for name, trays in cliques.items():
        wrong = {tray: _complaint(rows.get(tray)) for tray in trays if (rows.get(tray) or {}).get("state") != "passed"}
        if wrong:
            states = {(rows.get(tray) or {"state": ABSENT})["state"] for tray in wrong}
            left[name] = Left(ABSENT if states == {ABSENT} else FAILED, wrong)
    passed = [tray for trays in cliques.values() for tray in trays if (rows.get(tray) or {}).get("state") == "passed"]
    return Verdict(tuple(passed), left)


def _complaint(row: Mapping[str, Any] | None) -> str:
    if row is None or row["state"] == ABSENT:
        return "it did not answer when the wave began"
    return str(row.get("why") or "it stopped answering in the middle of the wave")


def stops(failed: int, canary_failed: bool, stop_after: int) -> bool:
    """Whether no further wave may begin. A canary that fails stops at once: that is what it is for."""
    return canary_failed or failed >= stop_after


def default_path(fabric_file: str, rollout: str) -> str:
    """fabric.json and imex -> fabric.rollout-imex.json, beside it."""
    return f"{fabric_file.removesuffix('.json')}.rollout-{check_name(rollout)}.json"


def check_name(rollout: str) -> str:
    if not _NAME.fullmatch(rollout):
        raise RolloutError(f"rollout: {rollout!r} must be one lower-case word, as it is part of a file's name")
    return rollout


def read(path: str) -> dict[str, Left]:
    """What an earlier run has left; RolloutError for a file that is none of ours."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document["schema_version"] != SCHEMA_VERSION:
            raise ValueError("schema_version")
        return {name: Left(row["state"], row["trays"]) for name, row in document["left"].items()}
    except OSError as error:
        raise RolloutError(
            f"rollout_resume: {path} cannot be read ({error.strerror}); a rollout that ended well leaves no file"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RolloutError(f"rollout_resume: {path} is not what a rollout has left; name such a file") from None


def write(path: str, rollout: str, left: Mapping[str, Left], now: str) -> None:
    """Keep what is left; nothing left removes the file."""
    if not left:
        if os.path.exists(path):
            storage.remove(path)
        return
    rows = {name: {"state": row.state, "trays": dict(row.trays)} for name, row in left.items()}
    document = {"schema_version": SCHEMA_VERSION, "rollout": rollout, "written_at": now, "left": rows}
    storage.write_atomic(path, f"{json.dumps(document, indent=1, sort_keys=True)}\n".encode())


def told(left: Mapping[str, Left], path: str, rollout: str) -> str:
    """One sentence of what is left and how to go on."""
    # What failed before what only waits.
    rows = sorted(left.items(), key=lambda item: item[1].state == WAITING)
    parts = summarize(f"{name} ({_why(row)})" for name, row in rows)
    return (
        f"The rollout {rollout} has left {_counted(left)}: {parts}; mend what is wrong and run it"
        f" again with -e rollout_resume={path}."
    )


def _why(row: Left) -> str:
    if not row.trays:
        return row.state
    tray, why = next(iter(row.trays.items()))
    others = f", and {len(row.trays) - 1} more" if len(row.trays) > 1 else ""
    return f"{row.state}: {tray}, {why.rstrip('.')}{others}"


def _counted(cliques: Iterable[str]) -> str:
    number = len(list(cliques))
    return "one clique" if number == 1 else f"{number} cliques"
