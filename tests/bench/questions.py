# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the test jobs of verify cost a slurmctld that runs many jobs (root)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ansible_collections.rackscale.nvlink.tests.integration.slurmctld import SUITES, Slurmctld, sandbox
from ansible_collections.rackscale.nvlink.tests.integration.stage import Stage

NAME = "questions"
RACKS, TRAYS = 56, 18
SECONDS = 300.0
CPU = "cat /proc/[0-9]*/stat"


def table(jobs: int, scratch: Path) -> str:
    """The questions on an idle slurmctld and on one with this many running jobs, as a Markdown table."""
    scratch.mkdir(parents=True, exist_ok=True)
    lines = [
        "| slurmctld | racks | running jobs | questions | wall s | CPU of slurmctld s |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for suite, version in SUITES.items():
        with sandbox(suite, scratch / f"{suite}-{os.getpid()}") as made:
            stage = _stage(made)
            for running in (0, jobs):
                if running:
                    _run(made, running)
                before, started = _cpu(made), time.perf_counter()
                answers = stage.ask(SECONDS)
                wall = time.perf_counter() - started
                if answers["why"] or answers["rows"]:
                    raise SystemExit(f"slurmctld did not place the test jobs: {answers}")
                head = f"{version[0]}.{version[1]:02d} | {RACKS} | {running:,} | {answers['asked']}"
                lines.append(f"| {head} | {wall:.1f} | {_cpu(made) - before:.1f} |")
    return "\n".join(lines)


def _stage(made: Slurmctld) -> Stage:
    """A slurmctld with a block for each rack."""
    blocks = [(f"r{rack:02d}", f"r{rack:02d}t[01-{TRAYS}]") for rack in range(1, RACKS + 1)]
    old = made.suite == "trixie"
    partition = "PartitionName=gpu Nodes=ALL Default=YES"
    made.configure(
        *(made.nodes(nodes) for _name, nodes in blocks),
        partition,
        plugin="topology/block" if old else "",
        select="select/cons_tres",
    )
    stage = Stage(made)
    for path, text in stage.request(made.conf_dir, tuple(blocks), [TRAYS])["writes"].items():
        Path(path).write_text(text)
    made.start()
    return stage


def _run(made: Slurmctld, jobs: int) -> None:
    """Run this many jobs of one tray."""
    made.run("sh", "-c", f"for job in $(seq {jobs}); do sbatch -N1 --exclusive --wrap true; done", timeout=900)
    deadline = time.monotonic() + 300
    while made.run("squeue", "-h", "-t", "R,CF", "-o", "%A").stdout.count("\n") < jobs:
        if time.monotonic() > deadline:
            raise SystemExit(f"slurmctld does not run {jobs} jobs")
        time.sleep(1)


def _cpu(made: Slurmctld) -> float:
    """The seconds of CPU that the slurmctlds in the sandbox have used."""
    rows = [line.rpartition(")") for line in made.run("sh", "-c", CPU).stdout.splitlines()]
    used = [fields.split()[11:13] for head, _end, fields in rows if "(slurmctld" in head]
    return sum(int(ticks) for row in used for ticks in row) / os.sysconf("SC_CLK_TCK")
