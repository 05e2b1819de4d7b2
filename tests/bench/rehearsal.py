# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rehearsal costs with real slurmctlds (root), and what writing topology.yaml costs beside a plain YAML dump."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Policy, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.simulation import discover
from ansible_collections.rackscale.nvlink.tests.integration.slurmctld import SUITES, sandbox
from ansible_collections.rackscale.nvlink.tests.integration.stage import Stage
from measure import once

NAME = "rehearsal"
RACKS = (2, 56, 576)
TRAYS = 18
AT = "2026-11-21T05:00:00Z"


def table(rounds: int, scratch: Path) -> str:
    """Two Markdown tables: rehearsals of both versions, and the rendering of the largest fabric."""
    scratch.mkdir(parents=True, exist_ok=True)
    lines = [
        "| slurmctld | racks | trays | test jobs | wall s | CPU s | memory MB |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for suite, version in SUITES.items():
        with _stage(suite, scratch) as stage:
            for racks in RACKS:
                lines.append(_row(stage, version, racks, rounds, scratch))
    return "\n".join([*lines, "", *_rendering(RACKS[-1], rounds)])


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
    question.write_text(json.dumps(stage.asked(folder, blocks, [TRAYS], jobs=jobs)))
    answer = scratch / "answer.json"
    # The best run: whatever else the machine did can only have made it slower.
    costs = [once([*stage.command(), str(question)], os.environ, answer) for _round in range(max(rounds, 1))]
    best = min(costs, key=lambda cost: cost.wall)
    held = json.loads(answer.read_text())["rehearsal"]
    whole = [said for said in held["outcomes"] if said["kind"] == "block" and said["nodes"] == TRAYS]
    if [said["blocks"] for said in whole] != [[name] for name in names]:
        raise SystemExit(f"a job of a whole clique left its block: {held}")
    columns = [
        f"{version[0]}.{version[1]:02d}",
        f"{racks:,}",
        f"{racks * TRAYS:,}",
        f"{len(held['outcomes']):,}",
        f"{best.wall:.2f}",
        f"{best.cpu:.2f}",
        f"{best.memory:.0f}",
    ]
    return "| " + " | ".join(columns) + " |"


def _rendering(racks: int, rounds: int) -> Iterator[str]:
    seen = discover({"racks": racks, "trays_per_rack": TRAYS, "gpus_per_tray": 4, "seed": 1}, AT).observations
    fabric = place(None, None, seen, [row.tray for row in seen], AT, Policy()).fabric
    blocks = slurm.blocks(fabric)
    topology = Topology(name="nvlink", blocks=blocks, block_sizes=(TRAYS,))
    structure: list[dict[str, Any]] = [
        {
            "topology": topology.name,
            "cluster_default": True,
            "block": {
                "block_sizes": [TRAYS],
                "blocks": [{"block": block.name, "nodes": block.hostlist()} for block in blocks],
            },
        }
    ]
    if yaml.safe_load(files.render([topology], files.YAML)) != structure:
        raise SystemExit("both sides do not write the same structure")
    ways: dict[str, Callable[[], Any]] = {
        "`yaml.safe_dump` of the structure": lambda: yaml.safe_dump(structure, sort_keys=False),
        "our text of the structure": lambda: files.render([topology], files.YAML),
        "fabric to topology.yaml and .conf: names folded, rules checked": lambda: slurm.render(fabric, model.State()),
    }
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _round in range(max(rounds, 1)):
        for way, call in ways.items():
            started = time.process_time()
            call()
            took[way].append(time.process_time() - started)
    median = {way: statistics.median(seconds) for way, seconds in took.items()}
    floor, *_others = median.values()
    yield f"| topology.yaml of {racks:,} racks | CPU ms | ratio | aim |"
    yield "|---|--:|--:|--:|"
    for way, seconds in median.items():
        yield f"| {way} | {seconds * 1000:.1f} | {seconds / floor:.2f} | {'2' if way.startswith('our') else ''} |"
