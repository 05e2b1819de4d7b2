# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvlink-explain against Slurm's own clients, next to a slurmctld with all trays and 5,000 jobs (root)."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.slurm_evidence import READS
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import topology_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import probe
from ansible_collections.rackscale.nvlink.tests.integration.slurm_site import FILE
from ansible_collections.rackscale.nvlink.tests.integration.slurmctld import ENTER, SUITES, Slurmctld, sandbox
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_corpus
from measure import Cost, once

NAME = "explain"
TRAYS, RUN, WAIT, FEW = 18, 3000, 2000, 20
AIM = "<= 2"
# Without what this process has before it begins another.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
SCHEDULER = "default_queue_depth=10000,sched_interval=2,sched_min_interval=0,max_sched_time=60,bf_interval=600"


def table(racks: int, rounds: int, scratch: Path) -> str:
    """Both versions as a Markdown table."""
    scratch.mkdir(parents=True, exist_ok=True)
    lines = ["| slurmctld | trays | jobs | command | wall s | CPU s | MB | aim |", "|---|--:|--:|---|--:|--:|--:|---|"]
    for suite, version in SUITES.items():
        with sandbox(suite, scratch / f"{suite}-{os.getpid()}") as made:
            _start(made, racks)
            head = f"{version[0]}.{version[1]:02d} | {racks * TRAYS:,} | {_jobs(made):,}"
            for name, (runs, memory) in _measured(made, rounds, scratch).items():
                wall, cpu = (
                    statistics.median(part) for part in zip(*((one.wall, one.cpu) for one in runs), strict=True)
                )
                aim = AIM if name.startswith("nvlink-explain") else ""
                lines.append(f"| {head} | `{name}` | {wall:.2f} | {cpu:.2f} | {memory:.0f} | {aim} |")
    return "\n".join(lines)


def _start(made: Slurmctld, racks: int) -> None:
    names = [(f"r{rack:03d}", f"r{rack:03d}t[01-{TRAYS}]") for rack in range(racks)]
    settings = ("MaxJobCount=20000", "MaxArraySize=10000", f"SchedulerParameters={SCHEDULER}", "ResumeTimeout=3600")
    nodes = made.nodes(f"r[000-{racks - 1:03d}]t[01-{TRAYS}]")
    old = made.suite == "trixie"
    made.configure(nodes, *settings, "PartitionName=gpu Nodes=ALL Default=YES", plugin="topology/block" if old else "")
    blocks = tuple(slurm_corpus.block(*one) for one in names)
    topology = Topology("nvlink", blocks=blocks, block_sizes=(TRAYS,))
    (made.conf_dir / FILE[made.suite]).write_text(topology_files.render([topology], FILE[made.suite].partition(".")[2]))
    (made.conf_dir / "nvlink-explain").write_bytes(probe.program("/usr/bin/python3", "explain/program"))
    made.start()
    batch = "sbatch --exclusive -o /dev/null --wrap true -t"
    made.run("sh", "-c", f"cd /; {batch} 1-0 --array=1-{RUN} -N1", timeout=600)
    deadline = time.monotonic() + 600
    while _jobs(made) < RUN and time.monotonic() < deadline:
        time.sleep(2)
    # Jobs of many trays take slurmctld half a second each: most of the others wait for the first.
    loop = f"cd /; seq {WAIT - FEW} | xargs -P4 -n1 sh -c '{batch} 60 -N1 -d afterok:1 >/dev/null'"
    made.run("sh", "-c", loop, timeout=900)
    free = racks - RUN // TRAYS
    for number in range(FEW):
        made.run("sh", "-c", f"cd /; {batch} 60 --segment={TRAYS} -N{TRAYS * (free + 1 + number % 5)}")


def _jobs(made: Slurmctld) -> int:
    return len(made.run("squeue", "-h", "-o", "%i").stdout.splitlines())


def _measured(made: Slurmctld, rounds: int, scratch: Path) -> dict[str, tuple[list[Cost], float]]:
    rows = made.run("squeue", "-h", "-t", "PD", "-o", "%D %i").stdout.splitlines()
    job = max(rows, key=lambda row: int(row.split()[0])).split()[1]
    program = ["python3", "-IS", str(made.conf_dir / "nvlink-explain")]
    questions = {"JOB": [job], "--pending": ["--pending"], "--segment 16": ["--segment", "16"]}
    commands = {f"nvlink-explain {name}": [*program, *words] for name, words in questions.items()}
    commands |= {
        f"{read.command[0]} of the {name}": list(read.command) for name, read in READS.items() if name != "limits"
    }
    inside = ["nsenter", "-t", str(made.pid), *ENTER, "sh", "-c", 'cd / && exec "$@"', "sh"]
    settings = {**os.environ, "SLURM_CONF": str(made.conf_dir / "slurm.conf"), "LC_ALL": "C"}
    runs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _round in range(rounds):
        for name, words in commands.items():
            runs[name].append(once([*inside, *words], settings, scratch / "output"))
    peaks = {name: made.run("python3", "-c", PEAK, *words).stdout for name, words in commands.items()}
    return {name: (runs[name], int(peaks[name]) / 1024) for name in commands}
