# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Slurm shows of jobs, trays, partitions, reservations and blocks, read as any user may read it.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Each list is read at most once. sinfo folds trays of equal state into one row, so that 10,368 of them are a few lines.
Whatever a user or an operator has written into a field, it can neither end a column nor add a row. What a user may
not read is in ``missing``, in sentences. Observed on 24.11.5 and 26.05.5.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.summary import Blocks
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf, rules, scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError, names_of
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import key_values, known_minutes

SECONDS = 10.0
_AT_ONCE = 5
# Follows each column; no text can have it that was written before this process began.
SEPARATOR = f"\x1f{os.urandom(4).hex()}"
_END = "."
_UNSET = ("", "(null)", "N/A", "NONE", "None", "Unknown", "none")
_NO_END_MINUTES = 300 * 1440
_OWNER = re.compile(r"QOS=(\S+)\(\d+\)|ClusterName=\S+ Account=(\S+) UserName=(\w\S*?)?(?:\(\d+\))? ")
_LIMIT = re.compile(r"(?:(.+)=)?(\d+)(?:\((\d+)(?:\.\d+)?\))?")
_TIME = "%Y-%m-%dT%H:%M:%S"
ACTIVE = ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
EXPEDITING = "EXPEDITING"


class Job(NamedTuple):
    """A job as squeue shows it; an array's waiting tasks are one.

    end: local time in ISO form, as all times here; empty where there is none. segment: 0 for none, None where this
    release does not show it. shared: whether it may share its trays. gres, gpus: its GRES by tray and in all.
    """

    shown: str
    number: int
    state: str
    reason: str
    priority: int
    user: str
    partitions: tuple[str, ...]
    nodes: int = 1
    names: tuple[str, ...] = ()
    end: str = ""
    minutes: int | None = None
    wants: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    shared: bool = False
    segment: int | None = 0
    tasks: int = 0
    uid: int = 0
    het: str = ""
    comment: str = ""
    account: str = ""
    qos: str = ""
    features: str = ""
    reservation: str = ""
    licenses: str = ""
    gres: str = ""
    gpus: str = ""

    @property
    def active(self) -> bool:
        """Whether it has trays; squeue shows no other jobs but those that wait."""
        return self.state in ACTIVE


class Reservation(NamedTuple):
    """A reservation; end: empty where it has none."""

    name: str
    nodes: frozenset[str]
    start: str = ""
    end: str = ""


class Limit(NamedTuple):
    """A limit of a QoS or an account (kind, name): all of it, or the share of one user or account in it (holder).

    key: such as GrpTRES. what: the TRES, such as node; empty for a number of jobs. used: None where Slurm counts none.
    """

    kind: str
    name: str
    holder: str
    key: str
    what: str
    most: int
    used: int | None


@dataclass
class Evidence:
    """All that was read.

    blocks: block -> its trays. sizes: BlockSizes, the base first. settings: ``scontrol show config``. in_summary:
    blocks as well, with their cliques. down_in_file: partitions that slurm.conf itself has down. missing: what could
    not be read, in sentences.
    """

    now: str = field(default_factory=lambda: time.strftime(_TIME))
    jobs: dict[int, Job] = field(default_factory=dict)
    trays: dict[str, Node] = field(default_factory=dict)
    partitions: dict[str, rules.Partition] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    blocks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    down_in_file: frozenset[str] = frozenset()
    in_summary: Blocks = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def version(self) -> rules.Version:
        return rules.parse_version(self.settings.get("slurm_version", "0.0.0"))


def _text(cell: str) -> str:
    return "" if cell in _UNSET else cell


def _names(cell: str) -> tuple[str, ...]:
    return tuple(names_of(_text(cell)))


def _number(cell: str) -> int | None:
    return int(cell) if cell.isdecimal() else None


def _whole(cell: str) -> int:
    return _number(cell) or 0


_JOB: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "shown": ("JobArrayID", str),
    "number": ("JobID", _whole),
    "state": ("State", str),
    "reason": ("Reason", _text),
    "priority": ("PriorityLong", _whole),
    "user": ("UserName", str),
    "partitions": ("Partition", lambda cell: tuple(cell.split(","))),
    "nodes": ("NumNodes", lambda cell: _whole(cell.partition("-")[0]) or 1),
    "names": ("NodeList", _names),
    "end": ("EndTime", _text),
    "minutes": ("TimeLimit", known_minutes),
    "wants": ("ReqNodes", _names),
    "without": ("ExcNodes", _names),
    "shared": ("OverSubscribe", lambda cell: cell in ("OK", "YES")),
    # Empty where this release does not know the column, N/A for none.
    "segment": ("SegmentSize", lambda cell: _whole(cell) if cell else None),
    "tasks": ("NumTasks", _whole),
    "uid": ("UserId", _whole),
    "het": ("HetJobId", _text),
    "comment": ("admin_comment", _text),
    "account": ("Account", _text),
    "qos": ("QOS", _text),
    "features": ("Feature", _text),
    "reservation": ("Reservation", _text),
    "licenses": ("Licenses", _text),
    "gres": ("tres-per-node", _text),
    "gpus": ("tres-per-job", _text),
}
_NODE = ("StateComplete", "Timestamp", "UserLong", "Reason", "NodeList")


def _columns(names: Sequence[str]) -> str:
    return ",".join(f"{name}:{SEPARATOR}" for name in names) + _END


def _rows(text: str) -> Iterator[list[str]]:
    return (row.split(SEPARATOR) for row in text.split(f"{SEPARATOR}{_END}\n")[:-1])


def _jobs(text: str) -> dict[str, Any]:
    # Most cells of a column are equal.
    converters = [(name, functools.lru_cache(256)(convert)) for name, (_column, convert) in _JOB.items()]
    jobs = (Job(**{name: convert(cell) for (name, convert), cell in zip(converters, row)}) for row in _rows(text))
    return {"jobs": {job.number: job for job in jobs}}


def _trays(text: str) -> dict[str, Any]:
    found = {}
    for state, since, user, reason, names in _rows(text):
        by = f"{user.partition('(')[0]}@{since}" if _text(reason) else ""
        node = Node(frozenset(state.upper().split("+")), _text(reason), by)
        found.update(dict.fromkeys(names_of(names), node))
    return {"trays": found}


def _partitions(text: str) -> dict[str, Any]:
    return {"partitions": {one.name: one for one in rules.partitions_of(scontrol.parse_records(text))}}


def _reservations(text: str) -> dict[str, Any]:
    found = tuple(
        Reservation(
            record["ReservationName"],
            frozenset(names_of(record.get("Nodes", ""))),
            record.get("StartTime", ""),
            # One without an end lasts a year.
            "" if (known_minutes(record.get("Duration", "")) or 0) > _NO_END_MINUTES else record.get("EndTime", ""),
        )
        for record in scontrol.parse_records(text)
        if "ReservationName" in record
    )
    return {"reservations": found}


def _blocks(text: str) -> dict[str, Any]:
    shown = scontrol.parse_show_topology(text)
    lower = [block for block in shown if not block.aggregated]
    levels = sorted({block.size or 0 for block in shown if block.aggregated})
    sizes = tuple(filter(None, (*(block.size for block in lower[:1]), *levels)))
    return {"blocks": {block.name: block.nodes for block in lower}, "sizes": sizes}


def _limits(text: str) -> dict[str, Any]:
    """Those of ``show assoc_mgr`` that are set: ``node=2(1)`` is a limit of 2 with 1 in use, and N is none."""
    found, kind, name, holder = [], "", "", ""
    for line in text.splitlines():
        first = _OWNER.match(line)
        if first:
            kind, name = ("QoS", first[1]) if first[1] else ("account", first[2])
            holder = first[3] or ""
        elif "=" not in line:
            holder = line.strip().partition("(")[0]
        for key, values in (token.partition("=")[::2] for token in line.split()):
            pairs = (_LIMIT.fullmatch(value) for value in values.split(","))
            found += [
                Limit(kind, name, holder, key, pair[1] or "", int(pair[2]), _number(pair[3] or ""))
                for pair in pairs
                if pair and key.startswith(("Grp", "Max"))
            ]
    return {"limits": tuple(found)}


class Read(NamedTuple):
    """A program with its arguments, and what its output adds to the evidence."""

    command: tuple[str, ...]
    parse: Callable[[str], Mapping[str, Any]]


_JOB_COLUMNS = _columns([column for column, _convert in _JOB.values()])
READS: Mapping[str, Read] = {
    "jobs": Read(("squeue", "-a", "-h", "--local", "-O", _JOB_COLUMNS), _jobs),
    "trays": Read(("sinfo", "-a", "-h", "--local", "-O", _columns(_NODE)), _trays),
    "partitions": Read(("scontrol", "-a", "-o", "show", "partitions"), _partitions),
    "reservations": Read(("scontrol", "-a", "-o", "show", "reservation"), _reservations),
    "settings": Read(("scontrol", "show", "config"), lambda text: {"settings": scontrol.parse_config(text)}),
    "blocks": Read(("scontrol", "show", "topology"), _blocks),
    "limits": Read(("scontrol", "show", "assoc_mgr", "flags=qos,assoc"), _limits),
}


def read(slurm: Slurm, evidence: Evidence, names: Sequence[str], *more: str) -> None:
    """Add these of READS to the evidence. SlurmError where a program is missing or slurmctld does not answer.

    more: arguments of the last of them.
    """
    commands = [[slurm.program(program), *words] for program, *words in (READS[name].command for name in names)]
    commands[-1] += more
    for name, result in zip(names, child.run_each(commands, SECONDS, _AT_ONCE, env=slurm.environment())):
        add(evidence, name, result)


def add(evidence: Evidence, name: str, result: child.Result) -> None:
    """Add what one of READS printed."""
    # squeue ends with 0 where it may not read partitions; scontrol where slurmctld does not answer.
    denied = "denied" in result.stderr
    failed = result.timed_out or result.rc != 0 or denied or "slurm_load" in result.stderr
    if failed and not denied and (result.timed_out or name not in ("limits", "blocks")):
        why = f"{READS[name].command[0]} failed ({result.reason.rstrip('.')})"
        raise SlurmError(f"{why}: check that slurmctld answers.")
    if not failed:
        vars(evidence).update(READS[name].parse(result.stdout))
    # PrivateData leaves limits out, without a word.
    if denied or (name == "limits" and not evidence.limits):
        evidence.missing.append(f"you may not read the {name} of this cluster: ask an administrator")


def down_in_file(evidence: Evidence) -> frozenset[str]:
    """The partitions that are down and that slurm.conf has so, where this user may read it."""
    folder = os.path.dirname(evidence.settings.get("slurm_conf", ""))
    down = {name for name, one in evidence.partitions.items() if one.state != "UP"}
    lines = conf.lines(folder, conf.reader({})) if down and folder else ()
    rows = ({key.lower(): value for key, value in key_values(line)} for _file, line in lines)
    return frozenset(row["partitionname"] for row in rows if "state" in row and row.get("partitionname") in down)


def seconds_of(text: str) -> float:
    """Seconds since the epoch of a local time in ISO form."""
    return time.mktime(time.strptime(text, _TIME))
