# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare the partitions of tiers with those that run. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import syntax


@dataclass(frozen=True)
class Partition:
    """One partition: ``settings`` are the key and value pairs of its line in slurm.conf, Nodes= first."""

    name: str
    settings: tuple[tuple[str, str], ...]
    nodes: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()

    def line(self) -> str:
        return " ".join(f"{key}={value}" for key, value in (("PartitionName", self.name), *self.settings))

    def get(self, key: str) -> str:
        return next((value for known, value in self.settings if known.lower() == key.lower()), "")


_LIMITS = ("AllowAccounts", "AllowGroups", "AllowQos", "QOS")
_TIMES = ("defaulttime", "maxtime")
_PLAIN = ("default", "prioritytier", "minnodes", "maxnodes", "topology", "exclusive", "exclusivetopo")
# The others are printed in another form than they are written (memory, lists, defaults by unit). Operators change a
# partition's state from day to day.
_COMPARED = {"nodes", *_TIMES, *_PLAIN, *map(str.lower, _LIMITS)}


def differences(partition: Partition, record: Mapping[str, str]) -> list[str]:
    """The settings in which a running partition (a line of ``scontrol -o show partition``) differs, as ``Key is X``."""
    shown = {key.lower(): value for key, value in record.items() if key.lower() in _COMPARED}
    return [
        f"{key} is {shown[key.lower()]}"
        for key, desired in {**dict.fromkeys(_LIMITS, ""), **dict(partition.settings)}.items()
        if key.lower() in shown and _meaning(key.lower(), desired) != _meaning(key.lower(), shown[key.lower()])
    ]


def _meaning(key: str, text: str) -> Any:
    """A value in a form that is equal for all texts of one meaning."""
    try:
        if key == "nodes":
            return frozenset(expand("" if text == "(null)" else text))
        if key in _TIMES:
            return syntax.parse_minutes(text)
    except (HostlistError, ValueError):
        return text
    return frozenset() if text in ("ALL", "N/A", "(null)") else frozenset(filter(None, text.lower().split(",")))


def problem(partitions: Sequence[Partition], removed: Iterable[str], records: Iterable[Mapping[str, str]]) -> str:
    """The first difference between running and desired partitions in a few words; empty where there is none.

    removed: the partitions that go. records: the running ones, as ``scontrol -o show partitions`` has them.
    """
    running = {record.get("PartitionName", "").lower(): record for record in records}
    for partition in partitions:
        record = running.get(partition.name.lower())
        if record is None:
            return f"partition {partition.name} is missing"
        differs = differences(partition, record)
        if differs:
            return f"of partition {partition.name} {differs[0]}"
    kept = [name for name in removed if name.lower() in running]
    return f"partition {kept[0]} still exists" if kept else ""
