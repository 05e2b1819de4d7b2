# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurmdbd's records through sacctmgr: QoS, accounts and grants of QoS, read and changed step by step.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A QoS belongs to this collection if its description is the mark of this cluster (``mark``): the mark is stored with the
QoS, in a database that several clusters and controllers may share. Of such a QoS every field of ``FIELDS`` is managed
and unset where a tier does not set it; the fields of all other QoS are never changed.

Observed with sacctmgr 24.11.5 and 26.05.5 and relied upon here: ``modify ... set`` keeps the keys of a TRES list that
it does not name, so a key to remove is set to -1; ``wopi`` shows an association's own values without its parents'; a
QoS that is deleted while a partition names it is fatal at the next start of slurmctld, without any message before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.tiers import Grant, Qos, parse_time

_UNITS = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}  # of memory, in MiB
_TRES = re.compile(r"([a-z]+(?:/[\w.:-]+)?)=(-?\d+(?:\.\d+)?)([KMGTP]?)\Z", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)\Z", re.ASCII)
_MAX_COUNT = 2**63 - 1


@dataclass(frozen=True)
class Kind:
    """How a field's value is parsed from sacctmgr or an option (None: not set), and written: value, value before."""

    read: Callable[[Any, str], Any]
    write: Callable[[Any, Any], str]
    unset: Any = None


def _number(value: Any, where: str) -> int | None:
    text = str(value).strip()
    if text in ("", "-1"):
        return None
    if not re.match(r"\d{1,10}\Z", text, re.ASCII):
        raise SlurmError(f"{where}: {text[:60]!r} is not a number, use one of 0 or more.")
    return int(text)


def _factor(value: Any, where: str) -> float | None:
    text = str(value).strip()
    if text in ("", "-1"):
        return None
    if not re.match(r"\d{1,10}(\.\d{1,10})?\Z", text, re.ASCII):
        raise SlurmError(f"{where}: {text[:60]!r} is not a factor, use a number such as 0.5.")
    return round(float(text), 6)


def _tres(value: Any, where: str) -> dict[str, int] | None:
    parts = [f"{key}={count}" for key, count in value.items()] if isinstance(value, Mapping) else str(value).split(",")
    found: dict[str, int] = {}
    for part in parts:
        if not part.strip():
            continue
        match = _TRES.match(part.strip())
        if match is None:
            raise SlurmError(f"{where}: {part[:60]!r} is not a count of a resource, use node: 36 or gres/gpu: 144.")
        kind, count, unit = match.group(1).lower(), float(match.group(2)), match.group(3).upper()
        if count < 0:
            continue
        amount = int(count * (_UNITS[unit] if kind == "mem" else 1024 ** "KMGTP".find(unit) * 1024 if unit else 1))
        if amount > _MAX_COUNT:
            raise SlurmError(f"{where}: {part[:60]!r} is more than Slurm can count, use a smaller number.")
        found[kind] = amount
    return found or None


def _write_tres(value: dict[str, int] | None, before: dict[str, int] | None) -> str:
    removed = {key: -1 for key in before or {} if key not in (value or {})}
    return ",".join(f"{key}={count}" for key, count in sorted({**removed, **(value or {})}.items()))


def _words(value: Any, where: str) -> frozenset[str] | None:
    parts = [str(part).strip() for part in (value if isinstance(value, (list, tuple)) else str(value).split(","))]
    for part in parts:
        if part and not re.match(r"[\w.-]{1,64}\Z", part, re.ASCII):
            raise SlurmError(f"{where}: {part[:60]!r} is not a name, use letters, digits, dot, _ and -.")
    return frozenset(part.lower() for part in parts if part) or None


def _minutes(value: Any, where: str) -> int | None:
    return None if str(value).strip() == "" else parse_time(value, where)


def _seconds(value: Any, where: str) -> int | None:
    text = str(value).strip()
    if text.isdecimal() and text.isascii():
        return int(text) or None
    match = _DURATION.match(text)
    if match is None:
        if text in ("", "-1"):
            return None
        raise SlurmError(f"{where}: {text[:60]!r} is not a time, use seconds or HH:MM:SS.")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds or None


def _mode(value: Any, where: str) -> str | None:
    text = str(value).strip().lower()
    if not re.match(r"[a-z,]{0,40}\Z", text):
        raise SlurmError(f"{where}: {text[:60]!r} is not a mode, use cancel, requeue, suspend or cluster.")
    return None if text in ("", "cluster") else ",".join(sorted(text.split(",")))


def _plain(none: str) -> Callable[[Any, Any], str]:
    return lambda value, _before: none if value is None else str(value)


def _list(none: str) -> Callable[[Any, Any], str]:
    return lambda value, _before: ",".join(sorted(value)) if value else none


_INT = Kind(_number, _plain("-1"))
_FACTOR = Kind(_factor, _plain("-1"))
_COUNTS = Kind(_tres, _write_tres)
_TIME = Kind(_minutes, _plain("-1"))


@dataclass(frozen=True)
class Field:
    """A setting of a QoS: the option's name, and sacctmgr's key, which is also the name of its column."""

    option: str
    key: str
    kind: Kind


FIELDS = (
    Field("priority", "Priority", Kind(lambda value, where: _number(value, where) or None, _plain("0"))),
    Field("grp_tres", "GrpTRES", _COUNTS),
    Field("grp_tres_mins", "GrpTRESMins", _COUNTS),
    Field("grp_tres_run_mins", "GrpTRESRunMins", _COUNTS),
    Field("grp_jobs", "GrpJobs", _INT),
    Field("grp_submit_jobs", "GrpSubmit", _INT),
    Field("grp_wall", "GrpWall", _TIME),
    Field("max_tres_per_job", "MaxTRES", _COUNTS),
    Field("max_tres_per_node", "MaxTRESPerNode", _COUNTS),
    Field("max_tres_mins_per_job", "MaxTRESMins", _COUNTS),
    Field("max_tres_per_account", "MaxTRESPerAccount", _COUNTS),
    Field("max_tres_per_user", "MaxTRESPerUser", _COUNTS),
    Field("max_wall", "MaxWall", _TIME),
    Field("max_jobs_per_account", "MaxJobsPA", _INT),
    Field("max_jobs_per_user", "MaxJobsPU", _INT),
    Field("max_submit_jobs_per_account", "MaxSubmitPA", _INT),
    Field("max_submit_jobs_per_user", "MaxSubmitPU", _INT),
    Field("min_tres_per_job", "MinTRES", _COUNTS),
    Field("flags", "Flags", Kind(_words, _list("-1"))),
    Field("preempt", "Preempt", Kind(_words, _list(""))),
    Field("preempt_mode", "PreemptMode", Kind(_mode, _plain("cluster"))),
    Field("grace_time", "GraceTime", Kind(_seconds, _plain("0"))),
    Field(
        "usage_factor",
        "UsageFactor",
        Kind(lambda value, where: None if _factor(value, where) == 1 else _factor(value, where), _plain("1")),
    ),
    Field("limit_factor", "LimitFactor", _FACTOR),
    Field("usage_threshold", "UsageThreshold", _FACTOR),
)
_BY_OPTION = {known.option: known for known in FIELDS}


@dataclass(frozen=True)
class Record:
    """A QoS in slurmdbd: ``settings`` by option, only those that are set."""

    name: str
    description: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Association:
    """An association of an account (user empty) or of a user in it, with its own QoS."""

    account: str
    user: str
    partition: str
    qos: frozenset[str]


@dataclass(frozen=True)
class Records:
    """The records of slurmdbd that tiers need. tres: names such as ``gres/gpu``."""

    qos: Mapping[str, Record] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()
    tres: frozenset[str] = frozenset()

    def account(self, name: str) -> bool:
        return any(known.account == name and not known.user for known in self.associations)

    def has(self, grant: Grant) -> bool:
        return any(grant.qos in known.qos for known in self._of(grant))

    def user(self, account: str, name: str) -> bool:
        return any(known.account == account and known.user == name for known in self.associations)

    def _of(self, grant: Grant) -> Iterable[Association]:
        return (
            known
            for known in self.associations
            if (known.account, known.user, known.partition) == (grant.account, grant.user, "")
        )

    def grants(self) -> frozenset[Grant]:
        return frozenset(
            Grant(known.account, known.user, qos)
            for known in self.associations
            for qos in known.qos
            if not known.partition
        )


@dataclass(frozen=True)
class Step:
    """A change of slurmdbd: its description, the arguments of sacctmgr, and those that undo it."""

    description: str
    do: tuple[str, ...]
    undo: tuple[str, ...] = ()


def mark(cluster: str) -> str:
    """The description of a QoS that belongs to the tiers of this cluster."""
    return f"rackscale.nvlink tier of {cluster.lower()}"


def is_ours(record: Record, cluster: str) -> bool:
    return record.description.lower() == mark(cluster)


# ------------------------------------------------------------------------------------------------------------ reading


class Sacctmgr:
    """sacctmgr on this host. SlurmError in one sentence where slurmdbd does not answer."""

    def __init__(self, slurm: Slurm, cluster: str) -> None:
        self.slurm = slurm
        self.cluster = cluster

    def query(self, *arguments: str) -> list[list[str]]:
        """The rows of ``sacctmgr show``."""
        result = self.slurm.call("sacctmgr", "-nP", "show", *arguments)
        if result.rc != 0 or result.timed_out:
            raise SlurmError(
                f"slurmdbd does not answer ({_short(result.reason)}): start it and its database; nothing was changed."
            )
        return [line.split("|") for line in result.stdout.splitlines() if line.strip()]

    def run(self, arguments: Sequence[str]) -> str:
        """Run a changing command; its error, empty on success."""
        result = self.slurm.call("sacctmgr", "-i", "-Q", *arguments)
        return "" if result.rc == 0 and not result.timed_out else _short(result.reason) or "it failed"

    def records(self) -> Records:
        columns = ",".join(["Name", *(known.key for known in FIELDS), "Description"])
        qos = {}
        # The description may hold the separator, so it is the last column.
        for row in self.query("qos", f"format={columns}"):
            values = row[1 : 1 + len(FIELDS)]
            settings = {known.option: _as_shown(known, value) for known, value in zip(FIELDS, values)}
            settings = {key: value for key, value in settings.items() if value is not None}
            qos[row[0]] = Record(row[0], "|".join(row[1 + len(FIELDS) :]), settings)
        rows = self.query("assoc", "where", f"cluster={self.cluster}", "wopi", "format=Account,User,Partition,QOS")
        associations = tuple(
            Association(row[0], row[1], row[2], frozenset(name for name in row[3].split(",") if name))
            for row in rows
            if len(row) == 4
        )
        tres = frozenset("/".join(part for part in row[:2] if part) for row in self.query("tres", "format=Type,Name"))
        return Records(qos, associations, tres)


def _as_shown(known: Field, value: str) -> Any:
    try:
        return known.kind.read(value, "")
    except SlurmError:
        return value  # an unknown form, which differs from every desired value


def _short(text: str) -> str:
    text = re.sub(r"^sacctmgr: (error: )?", "", text.strip())
    return text.rstrip(".")[:200]


# ------------------------------------------------------------------------------------------------- what to change


def canonical(qos: Qos) -> dict[str, Any]:
    """The settings of a desired QoS in the form of records; SlurmError names the option with a wrong value."""
    made = {}
    for option, value in qos.settings.items():
        if option not in _BY_OPTION:
            raise SlurmError(f"tiers, qos {qos.name}: {option} is not a setting of a QoS, correct it.")
        read = _BY_OPTION[option].kind.read(value, f"tiers, qos {qos.name}, {option}")
        if read is not None:
            made[option] = read
    return made


def qos_steps(desired: Sequence[Qos], records: Records, cluster: str) -> list[Step]:
    """Create and update QoS: first all that are new, then the differences, since Preempt= names other QoS."""
    steps: list[Step] = []
    later: list[Step] = []
    for qos in desired:
        settings = canonical(qos)
        known = records.qos.get(qos.name)
        if known is None:
            first = {key: value for key, value in settings.items() if key != "preempt"}
            pairs = _pairs(first, {})
            do = ("add", "qos", qos.name, f"Description={mark(cluster)}", *pairs)
            description = f"qos {qos.name}: new" + (f", {', '.join(_pairs(settings, {}))}" if settings else "")
            steps.append(Step(description, do, ("delete", "qos", qos.name)))
            before: Mapping[str, Any] = first
        else:
            before = known.settings
        if settings != before:
            differences = ", ".join(_difference(key, before, settings) for key in _changed(before, settings))
            description = f"qos {qos.name}: {differences}" if known is not None else ""
            modify = ("modify", "qos", qos.name, "set")
            later.append(Step(description, (*modify, *_pairs(settings, before)), (*modify, *_pairs(before, settings))))
    return steps + later


def account_steps(desired: Iterable[Grant], records: Records, cluster: str) -> list[Step]:
    """Create the accounts and users that the grants name and slurmdbd does not have."""
    steps: list[Step] = []
    where = f"Cluster={cluster}"
    for account, user in sorted({(grant.account, user) for grant in desired for user in ("", grant.user)}):
        if not user and not records.account(account):
            fields = (f"Description={account}", f"Organization={account}")
            undo: tuple[str, ...] = ("delete", "account", "where", f"Name={account}", where)
            steps.append(Step(f"account {account}: new", ("add", "account", account, where, *fields), undo))
        elif user and not records.user(account, user):
            undo = ("delete", "user", "where", f"Name={user}", f"Account={account}", where)
            do = ("add", "user", user, f"Account={account}", where)
            steps.append(Step(f"user {user} of account {account}: new", do, undo))
    return steps


def grant_steps(desired: Iterable[Grant], records: Records, cluster: str) -> list[Step]:
    return [_grant(grant, "+=", cluster) for grant in sorted(desired) if not records.has(grant)]


def revoke_steps(revoked: Iterable[Grant], records: Records, cluster: str) -> list[Step]:
    return [_grant(grant, "-=", cluster) for grant in sorted(revoked) if records.has(grant)]


def delete_steps(names: Iterable[str]) -> list[Step]:
    return [Step(f"qos {name}: removed", ("delete", "qos", name)) for name in sorted(names)]


def _grant(grant: Grant, sign: str, cluster: str) -> Step:
    which: tuple[str, ...] = ("account", "where", f"Name={grant.account}", f"Cluster={cluster}")
    if grant.user:
        which = ("user", "where", f"Name={grant.user}", f"Account={grant.account}", f"Cluster={cluster}")
    back = "-=" if sign == "+=" else "+="
    return Step(
        f"{grant.subject()}: qos {sign} {grant.qos}",
        ("modify", *which, "set", f"QOS{sign}{grant.qos}"),
        ("modify", *which, "set", f"QOS{back}{grant.qos}"),
    )


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [known.option for known in FIELDS if before.get(known.option) != after.get(known.option)]


def _pairs(after: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """``Key=value`` for each field that differs, in the order of FIELDS."""
    made = []
    for option in _changed(before, after):
        known = _BY_OPTION[option]
        made.append(f"{known.key}={known.kind.write(after.get(option), before.get(option))}")
    return made


def _difference(option: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    known = _BY_OPTION[option]
    old, new = (known.kind.write(values[option], None) if option in values else "unset" for values in (before, after))
    return f"{known.key} {old} -> {new}"
