# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tray's hardware as Slurm counts it: the output of ``slurmd -C`` and NodeName lines.

Private to this collection; it may change in any release. Python 3.9, standard library only. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol, syntax

Record = dict[str, int]
"""KEYS -> number; RealMemory in MiB."""

KEYS = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")
_BY_LOWER = {key.lower(): key for key in KEYS}


def _record(pairs: Mapping[str, str]) -> Record | None:
    record = {}
    for key, value in pairs.items():
        name = _BY_LOWER.get(key.lower())
        if name and value.isascii() and value.isdecimal() and int(value) > 0:
            record[name] = int(value)
    return record if "CPUs" in record and "RealMemory" in record else None


def parse_nodes(text: str) -> dict[str, Record]:
    """Node -> record of the NodeName lines of a file, or of ``slurmd -C``; a line without a record is left out."""
    records: dict[str, Record] = {}
    for line in syntax.logical_lines(text):
        pairs = dict(syntax.key_values(line))
        names = next((value for key, value in pairs.items() if key.lower() == "nodename"), "")
        record = _record(pairs)
        if names.upper() != "DEFAULT" and record is not None:
            records.update(dict.fromkeys(scontrol.names_of(names), record))
    return records


def stable(measured: Record, before: Record | None, step: int) -> Record:
    """The record to configure: memory is rounded down to ``step`` MiB, so that trays of one kind are equal.

    Measured memory differs from boot to boot by what kernel and firmware reserve; slurmctld refuses a node with less
    memory than its line in slurm.conf. So a configured value stays as long as the tray has that much, and less than two
    steps more.
    """
    memory = measured["RealMemory"]
    rounded = memory // step * step if step > 0 and memory >= 4 * step else memory
    if before and before["RealMemory"] <= memory < before["RealMemory"] + 2 * max(step, 1):
        rounded = before["RealMemory"]
    return {**measured, "RealMemory": rounded}
