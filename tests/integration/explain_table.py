# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Situations in which a job waits, and what nvlink-explain says of each.

test_explain.py makes them with real slurmctlds; the unit test answers from what those printed (situations.json).
"""

from __future__ import annotations

from dataclasses import dataclass, field

WAIT = "wait"  # until slurmctld has considered each job
FOUR = (("r01", "r01t[01-04]"), ("r02", "r02t[01-04]"))
RACKS = tuple((name, f"{name}t[01-18]") for name in ("r01", "r02", "r03"))
GPU = "PartitionName=gpu Nodes=ALL Default=YES"
BATCH = "sbatch --parsable --exclusive"
HOUR = "-t 60 --wrap true"
DRAIN = "state=drain reason='GPU 2 lost'"


@dataclass(frozen=True)
class Situation:
    """A cluster, what happens to it, and the answers by question, in which ``TIME`` is a time.

    old: the answers of 24.11 where they are others; None where it has no such situation.
    """

    name: str
    answers: dict[str, str]
    steps: tuple[str, ...]
    blocks: tuple[tuple[str, str], ...] = FOUR
    base: int = 4
    conf: tuple[str, ...] = (GPU,)
    old: dict[str, str] | None = field(default_factory=dict)
    quick: bool = False

    def of(self, suite: str) -> dict[str, str]:
        """The answers on a release."""
        if suite != "trixie":
            return self.answers
        return {} if self.old is None else {**self.answers, **self.old}


UNKNOWN = "Not known: the job's --segment, which this Slurm does not show: add --segment N if it has one.\n"

SITUATIONS = (
    Situation(
        "drained",
        {
            "2": """\
Job 2 waits for jobs: job 1 of root, until TIME at the latest; it needs 4 trays in one block.
  3 of 8 idle (r01 3)
  4 of 8 busy with job 1 of root (r02 4) until TIME
  1 of 8 out of service (r01t02 drained: GPU 2 lost, since TIME, by root)
It starts now with 3 trays (sbatch --test-only --nodes=3).
""",
            "--segment 4": """\
A segment of 4 in partition gpu waits for jobs: job 1 of root, until TIME at the latest; it needs 4 trays in one block.
  3 of 8 idle (r01 3)
  4 of 8 busy with job 1 of root (r02 4) until TIME
  1 of 8 out of service (r01t02 drained: GPU 2 lost, since TIME, by root)
""",
            "--segment 3": """\
1 segment of 3 trays can start now in partition gpu: idle in r01 3.
  3 of 8 idle (r01 3)
  4 of 8 busy with job 1 of root (r02 4) until TIME
  1 of 8 out of service (r01t02 drained: GPU 2 lost, since TIME, by root)
""",
            "--segment 5": """\
A segment of 5 in partition gpu can never start: the base block has 4 trays, and Slurm refuses a larger --segment or \
does not keep it.
  3 of 8 idle (r01 3)
  4 of 8 busy with job 1 of root (r02 4) until TIME
  1 of 8 out of service (r01t02 drained: GPU 2 lost, since TIME, by root)
""",
            "--tray r01t02": "r01t02 of block r01 is drained: GPU 2 lost, since TIME, by root; scontrol update "
            "NodeName=r01t02 State=RESUME, once it is repaired.\n",
            "--tray r02t01": "r02t01 of block r02 is in service and runs job 1 of root.\n"
            "  1 on it (job 1 of root) until TIME\n",
        },
        (
            f"{BATCH} -N4 -w 'r02t[01-04]' {HOUR}",
            f"scontrol update nodename=r01t02 {DRAIN}",
            f"{BATCH} -N4 -J 'x JobState=RUNNING\nJobId=99 \x1b[31m' --comment='\x1b[2J' {HOUR}",
            WAIT,
        ),
        quick=True,
    ),
    Situation(
        "scattered",
        {
            "4": """\
Job 4 waits for jobs: job 1 of root, until TIME at the latest; it needs 16 trays in one block.
  16 of 54 idle (r01 8, r02 4, r03 4)
  38 of 54 busy with job 1 of root, job 2 of root, job 3 of root (r02 14, r03 14, r01 10) until TIME
It starts now with --segment=4; NVLink then joins 4 trays (sbatch --test-only --segment=4).
""",
            "--segment 16": """\
A segment of 16 in partition gpu waits for jobs: job 1 of root, until TIME at the latest; it needs 16 trays in one \
block.
  16 of 54 idle (r01 8, r02 4, r03 4)
  38 of 54 busy with job 1 of root, job 2 of root, job 3 of root (r02 14, r03 14, r01 10) until TIME
""",
            "--segment 4": """\
4 segments of 4 trays can start now in partition gpu: idle in r01 8, r02 4, r03 4.
  16 of 54 idle (r01 8, r02 4, r03 4)
  38 of 54 busy with job 1 of root, job 2 of root, job 3 of root (r02 14, r03 14, r01 10) until TIME
""",
        },
        (
            f"{BATCH} -N10 -w 'r01t[01-10]' {HOUR}",
            f"{BATCH} -N14 -w 'r02t[01-14]' {HOUR}",
            f"{BATCH} -N14 -w 'r03t[01-14]' {HOUR}",
            WAIT,
            f"{BATCH} -N16 {HOUR}",
            WAIT,
        ),
        RACKS,
        18,
        quick=True,
    ),
    Situation(
        "whole rack",
        {
            "3": """\
Job 3 waits for an operator: it needs 18 trays in one block, and r03t07 is drained: GPU 2 lost, since TIME, by root.
  17 of 54 idle (r03 17)
  36 of 54 busy with job 1 of root, job 2 of root (r01 18, r02 18)
  1 of 54 out of service (r03t07 drained: GPU 2 lost, since TIME, by root)
It starts now with 17 trays (sbatch --test-only --nodes=17).
""",
        },
        (
            f"scontrol update nodename=r03t07 {DRAIN}",
            f"{BATCH} -N18 -w 'r01t[01-18]' --wrap true",
            f"{BATCH} -N18 -w 'r02t[01-18]' --wrap true",
            WAIT,
            f"{BATCH} -N18 {HOUR}",
            WAIT,
        ),
        RACKS,
        18,
        quick=True,
    ),
    Situation(
        "segments",
        {
            "3 --segment 4": """\
Job 3 waits for jobs: job 1 of root, until TIME at the latest; it needs 8 trays in 2 segments of 4, each in one block.
  10 of 12 idle (r02 4, r01 3, r03 3)
  2 of 12 busy with job 1 of root, job 2 of root (r01 1, r03 1) until TIME
It starts now with --segment=2; NVLink then joins 2 trays (sbatch --test-only --segment=2).
""",
        },
        (
            f"{BATCH} -N1 -w r01t01 {HOUR}",
            f"{BATCH} -N1 -w r03t01 -t 90 --wrap true",
            WAIT,
            f"{BATCH} -N8 --segment=4 {HOUR}",
            WAIT,
        ),
        (*FOUR, ("r03", "r03t[01-04]")),
    ),
    Situation(
        "segment above the base block",
        {
            "1": """\
Job 1 runs on 5 trays, 1+4 in 2 blocks: NVLink ends between r01t05 and r02t01 (ranks 0 and 1 where its 5 tasks are in \
block order); its --segment=5 is above the base block of 4, so it was not kept.
  4 of 5 trays in r02
  1 of 5 trays in r01
""",
        },
        (f"scontrol update nodename=r01t[01-04] {DRAIN}", f"{BATCH} -N5 --segment=5 {HOUR}", WAIT),
        (("r01", "r01t[01-05]"), ("r02", "r02t[01-04]")),
        old=None,  # refused
    ),
    Situation(
        "limits of a partition",
        {
            "1": "Job 1 can never start: it asks for 4 trays, and partition gold allows 2 a job (MaxNodes).\n",
            "2": "Job 2 can never start: it asks for 60 minutes, and partition gold allows 30 (MaxTime).\n",
        },
        (f"{BATCH} -N4 -p gold -t 10 --wrap true", f"{BATCH} -N2 -p gold {HOUR}", WAIT),
        conf=(GPU, "PartitionName=gold Nodes=r01t[01-04] MaxNodes=2 MaxTime=30"),
    ),
    Situation(
        "maintenance",
        {
            "1": """\
Job 1 waits for an operator: it needs 4 trays in one block, and its 60 minutes overlap reservation maint, which \
begins TIME.
  0 of 8 idle
  8 of 8 reserved by maint (r[01-02]t[01-04])
It starts now with --time=TIME (sbatch --test-only --time=TIME).
""",
        },
        (
            "scontrol create reservation reservationname=maint starttime=now+30minutes duration=600 nodes=ALL"
            " flags=maint,ignore_jobs users=root",
            f"{BATCH} -N4 {HOUR}",
            WAIT,
        ),
    ),
    Situation(
        "spares",
        {
            "2": """\
Job 2 waits for an operator: it needs 4 trays in one block, and reservation nvlink_spare_r01 keeps r01t[03-04].
  2 of 8 idle (r01 2)
  4 of 8 busy with job 1 of root (r02 4)
  2 of 8 reserved as spares by nvlink_spare_r01 (r01t[03-04])
It starts now with 2 trays (sbatch --test-only --nodes=2).
""",
        },
        (
            "scontrol create reservation reservationname=nvlink_spare_r01 starttime=now duration=UNLIMITED"
            " nodes=r01t03,r01t04 flags=ignore_jobs users=root",
            f"{BATCH} -N4 -w 'r02t[01-04]' --wrap true",
            WAIT,
            f"{BATCH} -N4 {HOUR}",
            WAIT,
        ),
    ),
    Situation(
        "partition and node down",
        {
            "1": """\
Job 1 waits for an operator: it needs 1 tray, and r01t02 is down: burnt [31m 99| x, since TIME, by root.
  0 of 1 idle
  1 of 1 out of service (r01t02 down: burnt [31m 99| x, since TIME, by root)
  7 more that it may not use (its partition, --nodelist or --exclude)
""",
            "2": "Job 2 waits for an operator: partition dead is DOWN in slurm.conf; scontrol update "
            "PartitionName=dead State=UP brings it back.\n",
            "3": "Job 3 waits for an operator: partition live is DOWN; scontrol update PartitionName=live State=UP "
            "brings it back.\n",
        },
        (
            "scontrol update nodename=r01t02 state=down reason='burnt\x1b[31m\n99|\u2028\u202ex'",
            f"{BATCH} -N1 -w r01t02 {HOUR}",
            f"{BATCH} -N1 -p dead {HOUR}",
            "scontrol update partitionname=live state=down",
            f"{BATCH} -N1 -p live {HOUR}",
            WAIT,
        ),
        conf=(GPU, "PartitionName=dead Nodes=ALL State=DOWN", "PartitionName=live Nodes=ALL"),
    ),
    Situation(
        "Slurm's own words",
        {
            "2": "Job 2 waits for Slurm: Dependency.\n",
            "3": "Job 3 waits for Slurm: BeginTime.\n",
            "4": "Job 4 waits for Slurm: JobHeldUser.\n",
            "5": "Job 5 waits for Slurm: Licenses.\n",
            "7": "Job 7 waits for Slurm: Priority.\n",
            "8": "Job 8 waits for Slurm: JobHeldAdmin.\n",
            "--pending": """\
7 jobs wait in the queue.
  1 of 7 wait for jobs: Resources (6)
  1 of 7 wait for Slurm: BeginTime (3)
  1 of 7 wait for Slurm: Dependency (2)
  1 of 7 wait for Slurm: JobHeldAdmin (8)
  1 of 7 wait for Slurm: JobHeldUser (4)
""",
        },
        (
            f"{BATCH} -N4 -w 'r01t[01-04]' -L matlab:1 {HOUR}",
            WAIT,
            f"{BATCH} -N1 -d afterok:1 {HOUR}",
            f"{BATCH} -N1 -b now+1hour {HOUR}",
            f"{BATCH} -N1 -H {HOUR}",
            f"{BATCH} -N1 -L matlab:1 {HOUR}",
            f"{BATCH} -N8 {HOUR}",
            f"{BATCH} -N4 {HOUR}",
            f"{BATCH} -N1 {HOUR}",
            "scontrol hold 8",
            WAIT,
        ),
        conf=(GPU, "Licenses=matlab:1"),
    ),
    Situation(
        "one of several partitions refuses",
        {
            "1": "Job 1 runs on 3 trays of block r02, until TIME.\n",
        },
        (f"{BATCH} -N3 -p small,gpu {HOUR}", WAIT),
        conf=(GPU, "PartitionName=small Nodes=ALL MaxNodes=2"),
        old={
            "1": """\
Job 1 can never start: partition small refuses it, and this release then keeps it waiting in all of its partitions; it \
asks for 3 trays, and partition small allows 2 a job (MaxNodes).
  8 of 8 idle (r01 4, r02 4)
It starts now with --partition=gpu (sbatch --test-only --partition=gpu).
""",
        },
    ),
    Situation(
        "arrays and heterogeneous jobs",
        {
            "2_3": """\
Job 2_[1-6%3] waits for jobs: job 1 of root, until TIME at the latest; it needs 2 trays in one block.
  0 of 8 idle
  8 of 8 busy with job 1 of root (r01 4, r02 4) until TIME
""",
            "3+1": """\
Job 3+1 waits for jobs: job 1 of root, until TIME at the latest; it needs 4 trays in one block.
  0 of 8 idle
  8 of 8 busy with job 1 of root (r01 4, r02 4) until TIME
Not known: the other components of heterogeneous job 3.
""",
        },
        (f"{BATCH} -N8 {HOUR}", WAIT, f"{BATCH} --array=1-6%3 -N2 {HOUR}", f"{BATCH} -N2 : -N4 {HOUR}", WAIT),
    ),
    Situation(
        "expedited requeue",
        {
            "1": """\
Job 1 waits for jobs: job 2 of root, until TIME at the latest; it needs 4 trays in one block.
  3 of 8 idle (r02 3)
  4 of 8 busy with job 2 of root (r01 4) until TIME
  1 of 8 out of service (r02t02 down: burnt, since TIME, by root)
It starts now with 3 trays (sbatch --test-only --nodes=3).
""",
            "3": """\
Job 3 waits for Slurm: idle trays fit (it needs 3 trays in one block), job 1 of root (expedited requeue) is before it.
  3 of 8 idle (r02 3)
  4 of 8 busy with job 2 of root (r01 4) until TIME
  1 of 8 out of service (r02t02 down: burnt, since TIME, by root)
""",
        },
        (
            f"{BATCH} -N4 --requeue=expedite {HOUR}",
            f"{BATCH} -N4 {HOUR}",
            WAIT,
            "scontrol update nodename=r02t02 state=down reason=burnt",
            f"{BATCH} -N3 {HOUR}",
            WAIT,
        ),
        conf=(GPU, "SlurmctldParameters=enable_expedited_requeue"),
        old=None,  # 25.11 brings it
    ),
    Situation(
        "IMEX channels",
        {
            "3": """\
Job 3 waits for jobs: each of the cluster's IMEX channels belongs to a running job; the next job ends TIME.
  2 of 2 IMEX channels of the cluster in use, one a job until TIME
""",
        },
        (f"{BATCH} -N1 {HOUR}", f"{BATCH} -N1 {HOUR}", WAIT, f"{BATCH} -N1 {HOUR}", WAIT),
        conf=(GPU, "SwitchType=switch/nvidia_imex", "SwitchParameters=imex_channel_count=2,imex_dev_major=4"),
        old=None,  # starts without a channel
    ),
)
