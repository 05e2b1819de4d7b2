# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time and memory of a rehearsal with real slurmctlds (root)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ansible_collections.rackscale.nvlink.tests.integration.slurmctld import SUITES, sandbox
from ansible_collections.rackscale.nvlink.tests.integration.stage import Stage
from measure import once

NAME = "rehearsal"
RACKS = (2, 56, 576)
TRAYS = 18


def table(rounds: int, scratch: Path) -> str:
    """Rehearsals of both versions as a Markdown table."""
    scratch.mkdir(parents=True, exist_ok=True)
    lines = [
        "| slurmctld | racks | trays | test jobs | wall s | CPU s | memory MB |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for suite, version in SUITES.items():
        with _stage(suite, scratch) as stage:
            for racks in RACKS:
                lines.append(_row(stage, version, racks, rounds, scratch))
    return "\n".join(lines)


@contextmanager
def _stage(suite: str, scratch: Path) -> Iterator[Stage]:
    with sandbox(suite, scratch / f"{suite}-{os.getpid()}") as made:
        made.configure(made.nodes("n1"), "PartitionName=gpu Nodes=n1")
        made.start()
        yield Stage(made)


def _row(stage: Stage, version: tuple[int, int], racks: int, rounds: int, scratch: Path) -> str:
    names = [f"r{number:03d}" for number in range(racks)]
    everything = f"r[000-{racks - 1:03d}]t[01-{TRAYS}]"
    folder = stage.site(
        f"bench{racks}",
        "ClusterName=bench",
        f"NodeName={everything} CPUs=144 Gres=gpu:4",
        f"PartitionName=gpu Nodes={everything} Default=YES",
    )
    blocks = tuple((name, f"{name}t[01-{TRAYS}]") for name in names)
    jobs = [{"nodes": 64, "segment": 16}, {"nodes": racks * TRAYS}]
    question = folder / "question.json"
    question.write_text(json.dumps(stage.request(folder, blocks, [TRAYS], jobs=jobs)))
    answer = scratch / "answer.json"
    # The fastest run: other load can only add time.
    costs = [once([*stage.command(), str(question)], os.environ, answer) for _round in range(max(rounds, 1))]
    best = min(costs, key=lambda cost: cost.wall)
    result = json.loads(answer.read_text())["rehearsal"]
    whole = [row for row in result["outcomes"] if row["kind"] == "block" and row["nodes"] == TRAYS]
    if [row["blocks"] for row in whole] != [[name] for name in names]:
        raise SystemExit(f"a job of a whole clique left its block: {result}")
    columns = [
        f"{version[0]}.{version[1]:02d}",
        f"{racks:,}",
        f"{racks * TRAYS:,}",
        f"{len(result['outcomes']):,}",
        f"{best.wall:.2f}",
        f"{best.cpu:.2f}",
        f"{best.memory:.0f}",
    ]
    return "| " + " | ".join(columns) + " |"
