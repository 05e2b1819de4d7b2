# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluate a block's benchmark jobs: their nodes, IMEX channels and bandwidth. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CHANNELS, HARDWARE, SLURM
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import tools
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

OF_EACH_TRAY = ("dcgmi_diag",)
_PLACE = re.compile(r"node=(\S*) address=(\S*) channels=(\S*)")


def evaluate(
    row: Mapping[str, Any],
    clique: str,
    tray_of: Mapping[str, str],
    programs: Sequence[Mapping[str, Any]],
    isolated: bool | None,
) -> Iterator[Finding]:
    """The failures of one block.

    row: as module_utils/slurm/benchmark.py returns it. tray_of: node -> tray of the block. programs: name, kind,
    min_bandwidth (GB/s, None for no limit). isolated: whether concurrent jobs must have IMEX channels of their own;
    None where jobs need no channel.
    """
    if row.get("refused_reason"):
        message = f"Slurm grants no reservation of block {row['block']} ({sentence(row['refused_reason'])})."
        yield failure("slurm_jobs_unanswered", SLURM, message, None, clique, trays=list(tray_of.values()))
        return
    yield from _placement(row, clique, tray_of, isolated)
    known = {str(program["name"]): program for program in programs}
    for job in map(mapped, as_list(row.get("programs"))):
        yield from _program(job, known[str(job["name"])], clique, list(tray_of.values()))


def _placement(
    row: Mapping[str, Any], clique: str, tray_of: Mapping[str, str], isolated: bool | None
) -> Iterator[Finding]:
    ran: list[str] = []
    channels: list[set[str]] = []
    for job in map(mapped, as_list(row.get("placement"))):
        placed = [match for text in mapped(job.get("tasks")).values() if (match := _PLACE.search(str(text)))]
        if job.get("rc") != 0:
            reason = sentence(job.get("stderr")) or "no error output"
            ended = "did not end in time" if job.get("rc") is None else f"ended with exit status {job.get('rc')}"
            yield failure("benchmark_failed", SLURM, f"A job on block {row['block']} {ended} ({reason}).", None, clique)
        channels.append(set())
        for node, address, devices in (match.groups() for match in placed):
            ran.append(node)
            tray = tray_of.get(node)
            # Where no blocks run, the address is the node alone.
            block = address.partition(".")[0] if "." in address else ""
            if tray is None or (address and block != row["block"]):
                where = f"block {block}" if block else "no block"
                message = f"A job for block {row['block']} ran on {node}, which is in {where}."
                yield failure("benchmark_failed", SLURM, message, tray, clique)
            channels[-1].update(filter(None, devices.split(",")))
            if isolated is not None and not devices:
                yield failure("benchmark_failed", CHANNELS, f"A job has no IMEX channel on {node}.", tray, clique)
    missing = [tray for node, tray in tray_of.items() if node not in ran]
    if missing and ran:
        message = f"Jobs on the whole block {row['block']} did not run on {summarize(missing)}."
        yield failure("benchmark_failed", SLURM, message, None, clique, trays=missing)
    shared = set.intersection(*channels) if len(channels) > 1 else set()
    if isolated and shared:
        message = f"Concurrent jobs on block {row['block']} share {summarize(sorted(shared))}."
        yield failure("benchmark_failed", CHANNELS, message, None, clique, trays=list(tray_of.values()))


def _program(
    job: Mapping[str, Any], program: Mapping[str, Any], clique: str, trays: Sequence[str]
) -> Iterator[Finding]:
    """trays: in the order of the job's tasks, which is that of the nodes' names in Slurm."""
    if job.get("rc") is None:
        message = f"{program['name']} on clique {clique} did not end in time."
        yield failure("benchmark_failed", HARDWARE, message, None, clique)
        return
    tasks = mapped(job.get("tasks"))
    for number, tray in enumerate(trays if program["kind"] in OF_EACH_TRAY else [None]):
        yield from _read(job, program, str(tasks.get(str(number), "")), clique, tray)


def _read(
    job: Mapping[str, Any], program: Mapping[str, Any], text: str, clique: str, tray: str | None
) -> Iterator[Finding]:
    """Failures of one output, of a tray or of the whole clique."""
    where = f"{program['name']} on {f'{tray} of ' if tray else ''}clique {clique}"
    try:
        result = tools.PARSERS[str(program["kind"])](text)
    except tools.ToolError as error:
        reason = sentence(job.get("stderr")) or sentence(str(error))
        message = f"{where} printed no result (exit status {job.get('rc')}, {reason})."
        yield failure("benchmark_failed", HARDWARE, message, tray, clique)
        return
    for fault in result.failed:
        yield failure("benchmark_failed", HARDWARE, f"{where}: {sentence(fault)}.", tray, clique)
    if result.wrong:
        yield failure(
            "benchmark_failed", HARDWARE, f"{where} computed {count(result.wrong, 'wrong value')}.", tray, clique
        )
    limit = program.get("min_bandwidth")
    reached = result.min_bandwidth
    if limit is not None and (reached is None or reached < float(limit)):
        measured = "printed no bandwidth" if reached is None else f"reached {reached:g} GB/s"
        message = f"{where} {measured}; min_bandwidth is {float(limit):g} GB/s."
        yield failure("benchmark_failed", HARDWARE, message, tray, clique)
