# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure and print the tables of docs/contributing/performance.md; --write writes them there.

A table stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`. Compare ratios within one run on one machine
only, never seconds of two runs or of two machines. No test depends on a figure.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import ages
import explain
import imex
import live
import partitioning
import payload
import placing
import runs
import slurm_playbook
from ansible.release import __version__ as core

import inventory

CHECKOUT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the benchmarks of the command line."""
    parser = argparse.ArgumentParser(description="Measure and print the tables of docs/contributing/performance.md.")
    parser.add_argument("--racks", type=int, default=576, help="racks of 18 trays (576)")
    parser.add_argument("--rounds", type=int, default=7, help="measured runs of each command (7)")
    parser.add_argument("--write", action="store_true", help="write the tables into the page")
    parser.add_argument("--live", type=int, metavar="TARGETS", help="measure live discovery on the lab only (root)")
    parser.add_argument("--slurm", action="store_true", help="measure the playbook slurm with slurmctld only (root)")
    parser.add_argument("--payload", action="store_true", help="measure what each module carries to a host only")
    parser.add_argument("--imex", action="store_true", help="measure the IMEX prolog on the lab only (root)")
    parser.add_argument("--explain", action="store_true", help="measure nvlink-explain with slurmctld only (root)")
    runs_help = "measure whole runs of the playbooks at these numbers of stand-in trays only, such as 36,288 (root)"
    parser.add_argument("--runs", metavar="SIZES", help=runs_help)
    parser.add_argument("--ages", action="store_true", help="print the commit of each table, and how many followed")
    options = parser.parse_args()
    if options.ages:
        for name, commit, since in ages.ages():
            print(f"{name:20}{commit:14}{since} commits of its code since")
        return 0
    # As for users: the warm-up round keeps the byte code.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name, table in _tables(options, CHECKOUT / "build" / "bench"):
        rounds = 1 if name in (runs.NAME, slurm_playbook.NAME, payload.NAME) else options.rounds
        best = options.live or options.imex
        text = f"{_machine(rounds, 'the best' if best else 'medians')}\n\n{table}"
        print(f"{text}\n", flush=True)
        if options.write:
            _write(name, text)
    return 0


def _tables(options: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each table as soon as it is measured."""
    if options.live:
        yield live.NAME, live.table(options.live, options.rounds, scratch / live.NAME)
    elif options.runs:
        sizes = [int(size) for size in options.runs.split(",")]
        yield runs.NAME, runs.table(sizes, scratch / runs.NAME)
    elif options.slurm:
        yield slurm_playbook.NAME, slurm_playbook.table(options.racks, scratch / slurm_playbook.NAME)
    elif options.explain:
        yield explain.NAME, explain.table(options.racks, options.rounds, scratch / explain.NAME)
    elif options.payload:
        yield payload.NAME, payload.table()
    elif options.imex:
        yield imex.NAME, imex.table(options.rounds)
    else:
        yield placing.NAME, placing.table(options.racks, options.rounds, scratch / placing.NAME)
        yield partitioning.NAME, partitioning.table(options.racks, options.rounds)
        yield inventory.NAME, inventory.table(options.racks, options.rounds, scratch / inventory.NAME)


def _machine(rounds: int, statistic: str) -> str:
    return (
        f"ansible-core {core}, Python {platform.python_version()}, {os.cpu_count()} CPUs ({platform.machine()}), "
        f"{statistic} of {rounds} interleaved runs, measured at {ages.commit()}."
    )


def _write(name: str, text: str) -> None:
    marks = re.compile(f"(<!-- bench:{name} -->\n).*?(<!-- /bench:{name} -->)", re.DOTALL)
    page, found = marks.subn(lambda found: f"{found[1]}{text}\n{found[2]}", ages.PAGE.read_text())
    if not found:
        raise SystemExit(f"the page has no marks for {name}; add <!-- bench:{name} --> and <!-- /bench:{name} -->")
    ages.PAGE.write_text(page)


if __name__ == "__main__":
    sys.exit(main())
