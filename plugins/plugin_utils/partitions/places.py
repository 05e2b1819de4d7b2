# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of trays in the list of an NVLink switch, and its partitions as cliques of the fabric file.

A GPU is found in the list of a switch by the number that NVML reports of it (fabric_guid, else its UUID), and its slot,
host and module must be the switch's location of it. That both are the same is inferred from NVIDIA's sources: where
they disagree, the tray is doubtful, and nothing is concluded of it.

Of a tray that does not answer, the verdict file keeps the numbers and places of its GPUs under ``switch`` (memory())::

    {"r01t01": [["0x3d1c5e0a9b2f4c77", "gpu-3d1c...", "10.1.2"]]}

Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import TrayReport

DEFAULT_CLIQUE = 32766


class Gpu(NamedTuple):
    """A GPU by its driver. ids: its fabric GUID and its UUID as of nvue.uid(); place: slot.host.module, or empty."""

    ids: tuple[str, ...]
    place: str


class Located(NamedTuple):
    """A GPU as a switch lists it. partition: its ID; None where the switch lists it in none, and location is empty."""

    location: str
    uid: str
    partition: int | None


class Places(NamedTuple):
    """The GPUs of trays in the list of a switch.

    gpus: tray -> each of its GPUs that is known. doubts: tray -> the first GPU that the switch lists otherwise than its
    driver does, in words.
    """

    gpus: dict[str, list[Located]]
    doubts: dict[str, str]


def known(trays: Iterable[str], reports: Mapping[str, TrayReport], before: Object) -> dict[str, list[Gpu]]:
    """Tray -> its GPUs, as it reports them now, or as it did when it last answered; without those of which is neither.

    before: what the verdict file kept (memory()), of any form.
    """
    found: dict[str, list[Gpu]] = {}
    for tray in trays:
        part = reports[tray].gpu if tray in reports else None
        if part is None or part.observed is None:
            if rows := list(filter(_is_kept, as_list(before.get(tray)))):
                found[tray] = [Gpu(tuple(row[:-1]), row[-1]) for row in rows]
            continue
        gpus = []
        for gpu in part.gpus:
            numbers = (part.slot_number, part.observed.host_id, gpu.module_id)
            place = "" if None in numbers else ".".join(map(str, numbers))
            gpus.append(Gpu(tuple(filter(None, map(nvue.uid, (gpu.fabric_guid, gpu.uuid)))), place))
        found[tray] = gpus
    return found


def memory(known: Mapping[str, Sequence[Gpu]]) -> dict[str, list[list[str]]]:
    """What the verdict file keeps of the GPUs of known() for the next run."""
    return {tray: [[*gpu.ids, gpu.place] for gpu in gpus] for tray, gpus in known.items()}


def locate(known: Mapping[str, Sequence[Gpu]], partitions: Sequence[nvue.Partition]) -> Places:
    """Where a switch lists the GPUs of trays (known())."""
    by_uid = {gpu.uid: (row, gpu) for row in partitions for gpu in row.gpus if gpu.uid}
    by_place = equal((place(gpu), (row, gpu)) for row in partitions for gpu in row.gpus)
    found = Places({}, {})
    for tray, gpus in known.items():
        found.gpus[tray] = []
        for own in gpus:
            there = next((by_uid[uid] for uid in own.ids if uid in by_uid), None)
            at = by_place.get(own.place, []) if own.place else []
            there = there or (at[0] if len(at) == 1 else None)
            if there is None:
                found.gpus[tray].append(Located("", own.ids[0] if own.ids else "", None))
                continue
            partition, listed = there
            found.gpus[tray].append(Located(listed.location, listed.uid, partition.id))
            if _differs(own, listed):
                differs = f"{listed.uid or 'a GPU'} at {listed.location}, its driver has {own.ids[0]} at {own.place}"
                found.doubts.setdefault(tray, f"{tray}: {differs}")
    return found


def elsewhere(
    found: Places, partitions: Sequence[nvue.Partition], clique_ids: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Each tray that has GPUs in another NVLink partition than that of its clique, and its partitions in words.

    found: by locate(). clique_ids: tray of it -> the ID of its clique.
    """
    for tray, clique_id in clique_ids.items():
        there = {gpu.partition for gpu in found.gpus[tray] if gpu.partition is not None}
        if not there <= {row.id for row in partitions if is_clique(row, clique_id)}:
            yield tray, " and ".join(map(str, sorted(there)))


def place(gpu: nvue.Gpu) -> str:
    """slot.host.module of a location."""
    return gpu.location.partition(".")[2]


def is_clique(partition: nvue.Partition, clique_id: int) -> bool:
    """Whether a partition is the clique with this ID of its domain.

    Older releases have another number for the default partition, and this name.
    """
    return partition.id == clique_id or (clique_id == DEFAULT_CLIQUE and "default" in partition.name.lower())


def _differs(own: Gpu, listed: nvue.Gpu) -> bool:
    is_other = bool(listed.uid and own.ids) and listed.uid not in own.ids
    return is_other or bool(listed.location and own.place and place(listed) != own.place)


def _is_kept(row: Any) -> bool:
    return isinstance(row, list) and len(row) > 1 and all(isinstance(text, str) and len(text) < 64 for text in row)
