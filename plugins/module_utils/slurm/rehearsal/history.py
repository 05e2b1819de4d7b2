# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sizes and segments of the jobs of the last weeks, from sacct, which a rehearsal asks too.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Observed: sacct of 26.05.5 has the field SegmentSize; that of 24.11.5 refuses it, and there only ``--segment`` of the
command line is known, not that of a script.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.questions import TestJob
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError

DAYS = 14
# The most frequent ones; a job of one tray is in the rehearsal of every partition.
MAX_SHAPES = 20
# slurmdbd of a large site takes long for weeks, and an apply does not wait for it.
SECONDS = 15.0
_SEGMENT = re.compile(r"--segment[= ](\d{1,6})\b")
_NEVER_STARTED = ("", "None", "Unknown")


def shapes(lines: Iterable[str]) -> list[TestJob]:
    """The most frequent partitions, sizes and segments, in this order, as jobs.

    lines: of ``partition|nodes|start|segment or command line``.
    """
    counts: Counter[TestJob] = Counter()
    for line in lines:
        partition, nodes, start, last = (line.split("|", 3) + [""] * 3)[:4]
        if start in _NEVER_STARTED or not nodes.isdecimal() or not partition or "," in partition:
            continue
        found = _SEGMENT.search(last)
        segment = int(last) if last.isdecimal() else int(found.group(1)) if found else 0
        counts[TestJob("past", int(nodes), partition, segment)] += 1
    usual = [job for job, _count in counts.most_common(MAX_SHAPES)]
    return sorted(usual, key=lambda job: (job.partition, job.nodes, job.segment))


def read(slurm: Slurm, config: Mapping[str, str]) -> tuple[list[TestJob], str]:
    """The shapes, and why they could not be read; config: ``scontrol show config``. None without slurmdbd."""
    if "slurmdbd" not in config.get("accountingstoragetype", ""):
        return [], ""
    common = ("--allusers", "--allocations", "--noheader", "--parsable2", "--nnodes=2-1000000")
    reason = ""
    try:
        for last in ("SegmentSize", "SubmitLine"):
            fields = f"--format=Partition,NNodes,Start,{last}"
            result = slurm.call("sacct", *common, f"--starttime=now-{DAYS}days", fields, timeout=SECONDS)
            if result.rc == 0 and not result.timed_out:
                return shapes(result.stdout.splitlines()), ""
            reason = f"sacct failed ({result.reason.rstrip('.')})"
            if result.timed_out:
                break
    except SlurmError as error:
        reason = str(error)
    return [], reason
