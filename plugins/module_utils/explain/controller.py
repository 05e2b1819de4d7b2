# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same answers on the host of slurmctld, with what its root can ask: whether a job starts with a tray back.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import program, sentences, situations
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.holding import Holding
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.sentences import Change
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.slurm_evidence import Evidence, Job
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.questions import TestJob
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.rehearse import Candidate, rehearse

# Of the sandbox.
SECONDS = 30.0
_MAX_JOBS = 8


def step(slurm: Slurm, conf_dir: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as document and lines: job, segment, partition, tray, and health."""
    evidence, asked = Evidence(), argparse.Namespace(**question)
    answer = program.ask(slurm, evidence, asked, asked.health)
    job, out = _waits_for(evidence, asked, answer.out)
    if job is not None and out and answer.change is None:
        answer = answer._replace(change=_when_back(slurm, conf_dir, evidence, job, out))
    text = sentences.text(answer, evidence.missing).splitlines()
    return {"answer": sentences.as_dict(answer, evidence.missing), "text": text}


def _waits_for(
    evidence: Evidence, asked: argparse.Namespace, out: tuple[str, ...]
) -> tuple[Job | None, tuple[str, ...]]:
    """(the job of the question, or the first that waits for its tray; all trays out of service that it waits for).

    out: those of the answer.
    """
    if asked.job:
        return situations.find(evidence, asked.job), out
    jobs = [one for one in evidence.jobs.values() if not one.active] if asked.tray else []
    first = sorted(jobs, key=lambda one: -one.priority)[:_MAX_JOBS]
    found = ((one, situations.of_job(evidence, one).out) for one in first)
    return next((row for row in found if asked.tray in row[1]), (None, ()))


def _when_back(slurm: Slurm, conf_dir: str, evidence: Evidence, job: Job, out: tuple[str, ...]) -> Change | None:
    """Whether these trays start the job, by a slurmctld in a sandbox where all are idle."""
    name = next(name for name in job.partitions if set(out).issubset(evidence.partitions[name].nodes))
    held = Holding(evidence, job._replace(partitions=(name,)))
    away = tuple(sorted(held.trays.keys() - held.idle - set(out)))
    test = TestJob("site", job.nodes, name, job.segment or 0, trays=job.wants, without=away)
    blocks = tuple(scontrol.Block(block, trays) for block, trays in evidence.blocks.items())
    topology = scontrol.Topology(blocks=blocks, block_sizes=evidence.sizes)
    candidate = Candidate(conf_dir, topology, evidence.version, scontrol.CONF, jobs=(test,), only_jobs=True)
    if not any(one.outcome == "placed" for one in rehearse(slurm, candidate, SECONDS).outcomes):
        return None
    back = f"{sentences.trays(out)} {'is' if len(out) == 1 else 'are'} in service"
    return Change(
        f"Job {sentences.clean(job.shown)} starts now once {back}.", "sbatch --test-only by a slurmctld in a sandbox"
    )
