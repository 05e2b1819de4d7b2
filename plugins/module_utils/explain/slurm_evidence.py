# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Slurm shows of jobs, trays, partitions, reservations and blocks, read as any user may read it.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Each list is read at most once. sinfo folds trays of equal state into one row, so that 10,368 of them are a few lines;
squeue prints no field that a user words (name, comment, account), so that no job can add a row. What a user may not
read is in ``missing``, in sentences. Observed on 24.11.5 and 26.05.5.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules, scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError, names_of
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import parse_minutes

SECONDS = 10.0
_AT_ONCE = 3
# No name, hostlist or reason of Slurm has it.
_SEPARATOR = "\x1f"
_JOB = (
    "JobArrayID JobID StateCompact Reason PriorityLong UserName Partition QOS NumNodes NodeList StartTime EndTime"
    " TimeLimit ReqNodes ExcNodes Feature Reservation OverSubscribe SegmentSize HetJobId admin_comment"
)
_NODE = "StateComplete Timestamp UserLong Reason NodeList"
_UNSET = ("", "(null)", "N/A", "NONE", "None", "Unknown", "none")
_NO_END_MINUTES = 300 * 1440
_TIME = "%Y-%m-%dT%H:%M:%S"
QOS_COLUMNS = "Name,GrpTRES,GrpJobs,MaxTRESPU,MaxJobsPU,MaxTRESPA,MaxTRES,MaxWall"
PENDING, ACTIVE = ("PD", "RH", "RF", "RQ", "SE"), ("R", "CF", "CG", "S", "ST", "SI", "SO", "RS")


class Job(NamedTuple):
    """A job as squeue shows it; an array's waiting tasks are one.

    end: local time in ISO form, as all times here; empty where there is none. segment: 0
    for none, None where this release does not show it. shared: whether it may share its trays.
    """

    shown: str
    number: int
    state: str
    reason: str
    priority: int
    user: str
    partitions: tuple[str, ...]
    qos: str = ""
    nodes: int = 1
    names: tuple[str, ...] = ()
    start: str = ""
    end: str = ""
    minutes: int | None = None
    wants: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    features: str = ""
    reservation: str = ""
    shared: bool = False
    segment: int | None = 0
    het: str = ""
    comment: str = ""


class Partition(NamedTuple):
    """A partition; most, minutes: None for no limit."""

    name: str
    nodes: frozenset[str]
    state: str = "UP"
    least: int = 0
    most: int | None = None
    minutes: int | None = None
    default: bool = False
    topology: str = ""


class Reservation(NamedTuple):
    """A reservation; end: empty where it has none."""

    name: str
    nodes: frozenset[str]
    start: str = ""
    end: str = ""


@dataclass
class Evidence:
    """All that was read.

    blocks: block -> its trays. sizes: BlockSizes, the base first. settings: ``scontrol show config``. qos: name ->
    columns. cliques: block -> its trays, of the summary. missing: what could not be read, in sentences.
    """

    now: str
    jobs: dict[int, Job] = field(default_factory=dict)
    trays: dict[str, Node] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    blocks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    qos: dict[str, dict[str, str]] = field(default_factory=dict)
    cliques: dict[str, tuple[str, ...]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def version(self) -> rules.Version:
        return rules.parse_version(self.settings.get("slurm_version", "0.0.0"))


def _columns(names: str) -> str:
    return ",".join(f"{name}:{_SEPARATOR}" for name in names.split())


READS: Mapping[str, tuple[str, ...]] = {
    "jobs": ("squeue", "-a", "-h", "--local", "-O", _columns(_JOB)),
    "trays": ("sinfo", "-a", "-h", "--local", "-O", _columns(_NODE)),
    "partitions": ("scontrol", "-a", "-o", "show", "partitions"),
    "reservations": ("scontrol", "-a", "-o", "show", "reservation"),
    "blocks": ("scontrol", "show", "topology"),
    "settings": ("scontrol", "show", "config"),
    "qos": ("sacctmgr", "-nP", "show", "qos", f"format={QOS_COLUMNS}"),
}
"""What is read -> the program and its arguments."""


def read(slurm: Slurm, evidence: Evidence, names: Sequence[str], topology: str = "") -> None:
    """Add these of READS to the evidence. SlurmError where a program is missing or slurmctld does not answer.

    topology: that of the partition, where it has one of its own.
    """
    more = {"blocks": [topology] if topology else []}
    commands = [[slurm.program(READS[name][0]), *READS[name][1:], *more.get(name, ())] for name in names]
    done = child.run_each(commands, SECONDS, _AT_ONCE, env=slurm.environment())
    for name, result in zip(names, done):
        add(evidence, name, result)


def add(evidence: Evidence, name: str, result: child.Result) -> None:
    """Add what one of READS printed."""
    # squeue ends with 0 where it may not read partitions; scontrol where slurmctld does not answer.
    denied = "denied" in result.stderr
    if result.timed_out or result.rc != 0 or denied or "slurm_load" in result.stderr:
        if not denied and name not in ("qos", "blocks"):
            raise SlurmError(f"{READS[name][0]} failed ({result.reason.rstrip('.')}): check that slurmctld answers.")
        if denied or name == "qos":
            evidence.missing.append(f"you may not read the {name} of this cluster: ask an administrator")
        return
    setattr(evidence, name, _PARSERS[name](result.stdout))
    if name == "blocks":
        shown = scontrol.parse_show_topology(result.stdout)
        base = [block.size for block in shown if not block.aggregated and block.size][:1]
        levels = sorted({block.size for block in shown if block.aggregated and block.size})
        evidence.sizes = tuple(size for size in (*base, *levels) if size)


def _rows(text: str, columns: str) -> list[dict[str, str]]:
    rows, names = (line.split(_SEPARATOR) for line in text.split("\n")), columns.split()
    return [
        {name: "" if value in _UNSET and name != "SegmentSize" else value for name, value in zip(names, row)}
        for row in rows
        if len(row) == len(names) + 1
    ]


def _jobs(text: str) -> dict[int, Job]:
    return {job.number: job for job in (_job(row) for row in _rows(text, _JOB)) if job.number}


def _job(row: Mapping[str, str]) -> Job:
    # Empty where this release does not know the field.
    segment = row["SegmentSize"]
    return Job(
        shown=row["JobArrayID"],
        number=_number(row["JobID"]) or 0,
        state=row["StateCompact"],
        reason=row["Reason"],
        priority=_number(row["PriorityLong"]) or 0,
        user=row["UserName"],
        partitions=tuple(row["Partition"].split(",")),
        qos=row["QOS"],
        nodes=_number(row["NumNodes"].partition("-")[0]) or 1,
        names=tuple(names_of(row["NodeList"])),
        start=row["StartTime"],
        end=row["EndTime"],
        minutes=_minutes(row["TimeLimit"]),
        wants=tuple(names_of(row["ReqNodes"])),
        without=tuple(names_of(row["ExcNodes"])),
        features=row["Feature"],
        reservation=row["Reservation"],
        shared=row["OverSubscribe"] in ("OK", "YES"),
        segment=_number(segment) if segment.isdecimal() or not segment else 0,
        het=row["HetJobId"],
        comment=row["admin_comment"],
    )


def _trays(text: str) -> dict[str, Node]:
    found = {}
    for row in _rows(text, _NODE):
        by = f"{row['UserLong'].partition('(')[0]}@{row['Timestamp']}" if row["Reason"] else ""
        node = Node(frozenset(row["StateComplete"].upper().split("+")), row["Reason"], by)
        found.update(dict.fromkeys(names_of(row["NodeList"]), node))
    return found


def _partitions(text: str) -> dict[str, Partition]:
    records = scontrol.parse_records(text)
    return {
        known.name: Partition(
            known.name,
            frozenset(known.nodes),
            record.get("State", ""),
            _number(record.get("MinNodes", "")) or 0,
            _number(record.get("MaxNodes", "")),
            _minutes(record.get("MaxTime", "")),
            record.get("Default") == "YES",
            known.topology,
        )
        for record, known in zip(records, rules.partitions_of(records))
    }


def _reservations(text: str) -> tuple[Reservation, ...]:
    return tuple(
        Reservation(
            record["ReservationName"],
            frozenset(names_of(record.get("Nodes", ""))),
            record.get("StartTime", ""),
            # One without an end lasts a year.
            "" if (_minutes(record.get("Duration", "")) or 0) > _NO_END_MINUTES else record.get("EndTime", ""),
        )
        for record in scontrol.parse_records(text)
        if "ReservationName" in record
    )


def _blocks(text: str) -> dict[str, tuple[str, ...]]:
    return {one.name: one.nodes for one in scontrol.parse_show_topology(text) if not one.aggregated}


def _qos(text: str) -> dict[str, dict[str, str]]:
    rows = (dict(zip(QOS_COLUMNS.split(","), line.split("|"))) for line in text.splitlines())
    return {row["Name"]: row for row in rows}


_PARSERS = {
    "jobs": _jobs,
    "trays": _trays,
    "partitions": _partitions,
    "reservations": _reservations,
    "blocks": _blocks,
    "settings": scontrol.parse_config,
    "qos": _qos,
}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _minutes(text: str) -> int | None:
    try:
        return parse_minutes(text)
    except ValueError:
        return None


def seconds_of(text: str) -> float:
    """Seconds since the epoch of a local time in ISO form."""
    return time.mktime(time.strptime(text, _TIME))


def time_of(seconds: float) -> str:
    return time.strftime(_TIME, time.localtime(seconds))
