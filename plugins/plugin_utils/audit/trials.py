# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges what the jobs of a block's trial printed: where they ran, which channels they had, how fast it was. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.audit import tools
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.audit.failure import (
    CHANNELS,
    HARDWARE,
    SLURM,
    Failure,
    failure,
    some,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import listed, mapped, sentence

OF_EACH_TRAY = ("dcgmi_diag",)
_PLACE = re.compile(r"node=(\S*) address=(\S*) channels=(\S*)")


def judge(
    row: Mapping[str, Any],
    clique: str,
    tray_of: Mapping[str, str],
    trials: Sequence[Mapping[str, Any]],
    isolated: bool | None,
) -> Iterator[Failure]:
    """The failures of one block.

    row: as module_utils/slurm/trial.py returns it. tray_of: node -> tray of the block. trials: name, kind, least (GB/s,
    None for no limit). isolated: whether jobs that run side by side must have channels of their own; None where the
    trial asks for no channels at all.
    """
    if row.get("held"):
        message = f"Slurm does not give block {row['block']} up for its trial ({sentence(row['held'])})."
        yield failure("trial_held", SLURM, message, None, clique, trays=list(tray_of.values()))
        return
    yield from _placement(row, clique, tray_of, isolated)
    known = {str(trial["name"]): trial for trial in trials}
    for job in map(mapped, listed(row.get("trials"))):
        yield from _trial(job, known[str(job["name"])], clique)


def _placement(
    row: Mapping[str, Any], clique: str, tray_of: Mapping[str, str], isolated: bool | None
) -> Iterator[Failure]:
    ran: list[str] = []
    channels: list[set[str]] = []
    for job in map(mapped, listed(row.get("placement"))):
        told = [match for text in mapped(job.get("tasks")).values() if (match := _PLACE.search(str(text)))]
        if job.get("rc") != 0:
            yield _broken("A job", row["block"], job, clique)
        channels.append(set())
        for node, address, devices in (match.groups() for match in told):
            ran.append(node)
            tray = tray_of.get(node)
            block = address.partition(".")[0]
            if tray is None or block not in ("", row["block"]):
                message = f"A job on block {row['block']} ran on {node} in {block or 'no block'}."
                yield failure("trial_misplaced", SLURM, message, tray, clique)
            channels[-1].update(filter(None, devices.split(",")))
            if isolated is not None and not devices:
                yield failure("trial_no_channel", CHANNELS, f"A job has no IMEX channel on {node}.", tray, clique)
    missing = [tray for node, tray in tray_of.items() if node not in ran]
    if missing and ran:
        message = f"Jobs on all of block {row['block']} did not run on {some(missing)}."
        yield failure("trial_misplaced", SLURM, message, None, clique, trays=missing)
    shared = set.intersection(*channels) if len(channels) > 1 else set()
    if isolated and shared:
        message = f"Two jobs side by side on block {row['block']} both have {some(sorted(shared))}."
        yield failure("trial_channel_shared", CHANNELS, message, None, clique, trays=list(tray_of.values()))


def _trial(job: Mapping[str, Any], trial: Mapping[str, Any], clique: str) -> Iterator[Failure]:
    kind, name = str(trial["kind"]), str(trial["name"])
    tasks = {str(task): str(text) for task, text in mapped(job.get("tasks")).items()}
    if job.get("rc") is None:
        yield failure("trial_failed", HARDWARE, f"{name} on clique {clique} did not end in time.", None, clique)
        return
    read = tasks if kind in OF_EACH_TRAY else {"0": tasks.get("0", "")}
    for task, text in sorted(read.items()) or [("0", "")]:
        try:
            result = tools.PARSERS[kind](text)
        except tools.ToolError as error:
            said = sentence(job.get("stderr")) or sentence(str(error))
            message = f"{name} on clique {clique} gave no result (rc {job.get('rc')}, {said})."
            yield failure("trial_failed", HARDWARE, message, None, clique)
            continue
        where = f" on task {task}" if kind in OF_EACH_TRAY else ""
        for fault in result.failed:
            yield failure(
                "trial_failed", HARDWARE, f"{name}{where} of clique {clique}: {sentence(fault)}.", None, clique
            )
        if result.wrong:
            message = f"{name} on clique {clique} got {result.wrong} values wrong."
            yield failure("trial_failed", HARDWARE, message, None, clique)
        least = trial.get("least")
        if least is not None and (result.least is None or result.least < float(least)):
            reached = "nothing" if result.least is None else f"{result.least:g} GB/s"
            message = f"{name} on clique {clique} reached {reached}, and the site wants {float(least):g} GB/s."
            yield failure("trial_slow", HARDWARE, message, None, clique)


def _broken(what: str, block: str, job: Mapping[str, Any], clique: str) -> Failure:
    said = sentence(job.get("stderr")) or "without a word"
    ended = "did not end in time" if job.get("rc") is None else f"ended with {job.get('rc')}"
    return failure("trial_failed", SLURM, f"{what} on block {block} {ended} ({said}).", None, clique)
