# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nvlink-explain, a program for login nodes: why a job waits or how it was placed, and what can start now.

Private to this collection; it may change in any release. Python 3.9, standard library only.

It changes nothing and needs no root: it reads what squeue, sinfo and scontrol print for this user, and asks
``sbatch --test-only``, which queues nothing, about the user's own jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import sentences, situations, summary
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.sentences import Answer
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.slurm_evidence import (
    SECONDS,
    Evidence,
    Job,
    down_in_file,
    read,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import one_line


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="nvlink-explain", description=(__doc__ or "").partition("\n\n")[0])
    made.add_argument("job", nargs="?", help="the ID of a job: why it waits, or how it was placed")
    made.add_argument(
        "--segment", type=int, metavar="N", help="how many segments of N trays can start now; with a job, its --segment"
    )
    made.add_argument("--partition", default="", help="the partition for --segment (default: Slurm's default)")
    made.add_argument("--tray", metavar="NAME", help="whether a tray is in service, since when, and why not")
    made.add_argument("--pending", action="store_true", help="all jobs that wait, counted by reason")
    made.add_argument("--json", action="store_true", help="the answer as JSON")
    return made


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print the answer; 0, 1 with one sentence on standard error where there is none, 2 for a wrong command line."""
    options, made = parser().parse_args(arguments), parser()
    questions = (options.job, options.tray, options.pending, options.segment and not options.job)
    if sum(map(bool, questions)) != 1 or (options.segment is not None and options.segment < 1):
        made.error("ask one question: a job's ID, --segment N, --tray NAME or --pending")
    slurm = Slurm(timeout=SECONDS, conf_dir=os.path.dirname(environ.get("SLURM_CONF", "")))
    evidence = Evidence(in_summary=summary.blocks())
    try:
        answer = ask(slurm, evidence, options, summary.health())
    except NvlinkError as error:
        sys.stderr.write(f"nvlink-explain: {one_line(str(error))}\n")
        return 1
    text = sentences.text(answer, evidence.missing)
    if options.json:
        text = json.dumps(sentences.as_dict(answer, evidence.missing), indent=1) + "\n"
    # A reason may have characters that this terminal's encoding lacks.
    sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "replace"))
    return 0


def ask(slurm: Slurm, evidence: Evidence, options: argparse.Namespace, health: summary.Health) -> Answer:
    """Read what the question needs, and answer it. NvlinkError where it names nothing, or Slurm does not answer."""
    read(slurm, evidence, ("jobs", "trays", "partitions", "reservations", "settings"))
    job = situations.find(evidence, options.job) if options.job else None
    if job is not None and job.segment is None:
        job = evidence.jobs[job.number] = job._replace(segment=options.segment or 0)
        if not options.segment:
            evidence.missing.append(
                "the job's --segment, which this Slurm does not show: add --segment N if it has one"
            )
    evidence.missing += situations.not_weighed(evidence, job, os.getuid() == 0)
    evidence.down_in_file = down_in_file(evidence)
    partition = evidence.partitions.get(situations.partition_of(evidence, job, options.tray, options.partition))
    topology = [partition.topology] if partition is not None and partition.topology else []
    if job is not None and job.reason.startswith(("QOS", "Assoc")):
        read(slurm, evidence, ("limits",))
    else:
        read(slurm, evidence, ("blocks",), *topology)
    if options.tray:
        return situations.of_tray(evidence, options.tray, health)
    if job is not None:
        return _tested(slurm, evidence, job, situations.of_job(evidence, job, health))
    if options.segment:
        return situations.of_segment(evidence, options.segment, options.partition, health)
    return situations.of_queue(evidence, health)


def _tested(slurm: Slurm, evidence: Evidence, job: Job, answer: Answer) -> Answer:
    """The answer with the first change that slurmctld confirms: for the user's own job, for root in its user's name."""
    me = os.getuid()
    others = [f"--uid={job.uid}"] if me == 0 and job.uid else []
    for proposal in answer.proposals if me in (0, job.uid) and not job.het else ():
        options = [*others, *situations.test_options(job, proposal)]
        done: child.Result = slurm.call("sbatch", *options, timeout=SECONDS)
        change = situations.confirmed(evidence, job, proposal, f"{done.stdout}\n{done.stderr}")
        if change is not None:
            return answer._replace(change=change)
    return answer
