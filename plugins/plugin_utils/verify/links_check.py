# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLinks in the layer hardware: links that are not at full speed, and links that recover again and again.

A link may recover for days before it fails, and its counter alone says nothing about when. So a run compares the
counters with those of the last run, which the verdict file keeps under ``links`` (memory())::

    {"r01t01": {"gpus": {"GPU-3d1c...": {"14": 505}}, "xid_at": 1795237200.1}}

A GPU has an entry once it was read, with its links that have a counter other than 0. xid_at: when the newest Xid that
was reported was logged, by the tray's clock (xids_check.py). Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import links
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import products
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import of_gpus
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure, worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import HARDWARE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, mapped, only, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import (
    Evidence,
)

Links = dict[str, int]
"""The number of a link, as text -> its recoveries in all."""


class Known(TypedDict):
    """What is kept of a tray: its GPUs by UUID, and when the newest Xid was logged."""

    gpus: dict[str, Links]
    xid_at: float


_LINK = re.compile(r"[0-9]{1,4}")


def check(evidence: Evidence) -> Iterator[Finding]:
    """Links in the layer hardware, of the trays that reported them."""
    expected = _expected(evidence)
    for tray, report in evidence.trays.items():
        clique = evidence.clique_of(tray)
        if report.links is None:
            continue
        gpus = report.links.gpus
        number, speed = expected.get(tray, (None, None))
        own = links.expected(gpus)[1]
        if own and speed and own < speed:
            message = f"{tray}: its NVLinks run at {own} MB/s, and {speed} MB/s are expected."
            yield failure("nvlink_links_degraded", HARDWARE, message, tray, clique)
        notes = [worded(note) for note in links.evaluate(gpus, number)]
        for code, text in of_gpus(notes):
            gpu = only(note.get("gpu") for note in notes if note["code"] == code)
            yield failure(code, HARDWARE, f"{tray}: {text}", tray, clique, gpu=gpu)
        before = known(evidence.links_before, tray)
        growing = [
            (gpu["index"], link, times, number)
            for gpu in gpus
            for link, times, number in compare(before["gpus"].get(str(gpu["uuid"])), counters(gpu))[0]
        ]
        if growing:
            texts = [
                f"NVLink {link} of GPU {gpu} went into recovery {count(times, 'time')} since the last run,"
                f" {number} in all"
                for gpu, link, times, number in growing
            ]
            text = f"{tray}: {summarize(texts)}."
            gpu, link = (only(values) for values in zip(*(row[:2] for row in growing), strict=True))
            one = int(link) if link is not None else None
            yield failure("nvlink_link_recovering", HARDWARE, text, tray, clique, gpu=gpu, link=one)


def _expected(evidence: Evidence) -> dict[str, tuple[int | None, int | None]]:
    """Tray -> the number of NVLinks of its GPUs and their speed: of its product, else of most GPUs of that name.

    Without hosts of an unknown product that have no place: they may have PCIe cards without a bridge.
    """
    trays_of: dict[str, list[str]] = {}
    for tray, report in evidence.trays.items():
        name = report.gpu.gpus[0].name if report.gpu and report.gpu.gpus else ""
        trays_of.setdefault(name, []).append(tray)
    found = {}
    for name, trays in trays_of.items():
        product = products.of(name)
        parts = [evidence.trays[tray].links for tray in trays]
        values = product[:2] if product else links.expected([gpu for part in parts if part for gpu in part.gpus])
        found.update({tray: values for tray in trays if product or evidence.clique_of(tray)})
    return found


def memory(evidence: Evidence) -> dict[str, Known]:
    """What the next run compares with; of placed trays that this run did not read, what the last one kept."""
    kept: dict[str, Known] = {}
    for tray in evidence.fabric.trays:
        part = evidence.trays[tray].links if tray in evidence.trays else None
        before = known(evidence.links_before, tray)
        if part is None:
            if tray in evidence.links_before:
                kept[tray] = before
            continue
        now = {str(gpu["uuid"]): counters(gpu) for gpu in part.gpus}
        gpus = {uuid: compare(before["gpus"].get(uuid), counted)[1] for uuid, counted in now.items()}
        if not gpus or len(gpus) < part.gpu_count:
            # A GPU that cannot be read now may be one that was read before.
            gpus = {**before["gpus"], **gpus}
        kept[tray] = {
            "gpus": gpus,
            "xid_at": max([before["xid_at"], *(xid["last_at"] for xid in part.xids)]),
        }
    return kept


def compare(before: Links | None, now: Mapping[str, int | None]) -> tuple[list[tuple[str, int, int]], Links]:
    """([link, its recoveries since the last run and in all], what to keep) of one GPU.

    before: None where the GPU was not read before: a first number is no growth. now: link -> its recoveries, None where
    they are unknown; a link that is not here has none. A number that is smaller than before counts anew, since the GPU
    was reset.
    """
    growing, kept = [], {}
    rows = before or {}
    for link in sorted({*rows, *now}, key=int):
        old, number = rows.get(link, 0), now.get(link, 0)
        if number is None:
            number = old
        if before is not None and number > old:
            growing.append((link, number - old, number))
        if number:
            kept[link] = number
    return growing, kept


def counters(gpu: links.Gpu) -> dict[str, int | None]:
    """Link -> recoveries of a GPU's facts; None where the driver does not report them."""
    rows = {str(row["link"]): cast("int | None", row.get("recoveries")) for row in gpu["counters"]}
    if "recoveries" in gpu["unknown_counters"]:
        every = (link for row in gpu["links"] for link in row["links"])
        rows = {**dict.fromkeys(map(str, every)), **rows}
    return rows


def known(before: Object, tray: str) -> Known:
    """What the verdict file has of a tray, without what is malformed: a person may have edited it."""
    row = mapped(before.get(tray))
    gpus = {str(uuid): dict(counted) for uuid, counted in mapped(row.get("gpus")).items() if _is_known(counted)}
    at = row.get("xid_at")
    return {"gpus": gpus, "xid_at": at if isinstance(at, (int, float)) and not isinstance(at, bool) else 0}


def _is_known(counted: Any) -> bool:
    return isinstance(counted, Mapping) and all(
        _LINK.fullmatch(str(link)) and whole(times) is not None for link, times in counted.items()
    )
