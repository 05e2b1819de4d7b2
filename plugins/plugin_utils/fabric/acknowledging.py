# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Acknowledge that trays are in repair, in the state file: until a time, verify has their failures as notes."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown


def until(text: str, now: datetime.datetime) -> str:
    """The end of an acknowledgement, from a date (its start) or a time, in UTC; FabricFileError for a past one."""
    try:
        given = datetime.datetime.fromisoformat(text)
        end = (given if given.tzinfo else given.replace(tzinfo=datetime.UTC)).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        what = f"drain_until: {shown(text)} is no date; write one such as 2026-12-24 or 2026-12-24T18:00Z"
        raise fabric_file.FabricFileError(what) from None
    if end <= now:
        raise fabric_file.FabricFileError(f"drain_until: {shown(text)} is past; write a later date, or leave it out")
    return end.strftime("%Y-%m-%dT%H:%M:%SZ")


def change(
    path: str, state_dir: str | None, trays: Iterable[str], entry: Mapping[str, str] | None, now: str, dry: bool
) -> list[str]:
    """Set the entry of these trays, or without one remove theirs; the trays that change. path: of the fabric file."""
    before = _read(path, state_dir).acknowledged
    changed = [tray for tray in trays if before.get(tray) != entry]
    if changed and not dry:
        with storage.locked(fabric_file.companion(path, "json", state_dir), now):
            state = _read(path, state_dir)
            rows = {**state.acknowledged, **dict.fromkeys(changed, entry)}
            kept = replace(state, acknowledged={tray: row for tray, row in rows.items() if row})
            storage.write_atomic(fabric_file.state_path(path, state_dir), fabric_file.serialise(kept))
    return changed


def current(path: str, state_dir: str | None, now: str) -> dict[str, Mapping[str, str]]:
    """Tray -> its entry, of those whose end is not past."""
    return {tray: row for tray, row in _read(path, state_dir).acknowledged.items() if row["until"] > now}


def _read(path: str, state_dir: str | None) -> State:
    return fabric_file.load_state(path, state_dir) or State()
