# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurmdbd's records, as sacctmgr prints them: QoS, accounts and grants of QoS, and the steps that change them. Pure.

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
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.tiers import Grant, Qos

_TRES = re.compile(r"([a-z]+(?:/[\w.:-]+)?)=(-?\d+(?:\.\d+)?)([KMGTP]?)\Z", re.ASCII | re.IGNORECASE)
_MAX_COUNT = 2**63 - 1

# ------------------------------------------------------------------- values, as a tier has them or sacctmgr prints them


def _number(text: str) -> float:
    if not re.match(r"\d{1,10}(\.\d{1,10})?\Z", text, re.ASCII):
        raise ValueError
    value = round(float(text), 6)
    return int(value) if value.is_integer() else value


def _tres(text: str) -> dict[str, int]:
    """Resource -> count; memory in MiB, as sacctmgr takes it without a unit."""
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = _TRES.match(part)
        if match is None:
            raise ValueError
        kind, count, unit = match.group(1).lower(), float(match.group(2)), match.group(3).upper()
        power = "KMGTP".find(unit) + 1 - (2 if kind == "mem" else 0) if unit else 0
        amount = int(count * 1024.0**power)
        if amount > _MAX_COUNT:
            raise ValueError
        if amount >= 0:
            found[kind] = amount
    return found


def _words(text: str) -> frozenset[str]:
    parts = [part.strip().lower() for part in text.split(",")]
    if not all(re.match(r"[\w.-]{0,64}\Z", part, re.ASCII) for part in parts):
        raise ValueError
    return frozenset(filter(None, parts))


def _seconds(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else syntax.parse_seconds(text)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(sorted(f"{key}={count}" for key, count in value.items()))
    return ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)


class Kind(NamedTuple):
    """How a value is read (ValueError for another text), and in which form a tier has it."""

    read: Callable[[str], Any]
    form: str


_COUNT = Kind(_number, "a number of 0 or more")
_FACTOR = Kind(_number, "a number such as 0.5")
_COUNTS = Kind(_tres, "counts of resources that Slurm can hold, such as node: 36 or gres/gpu: 144")
_WORDS = Kind(_words, "names of letters, digits, dot, _ and -")
_MODE = Kind(_words, "a mode")
_TIME = Kind(syntax.parse_minutes, "minutes, HH:MM:SS or D-HH:MM:SS")
_SECONDS = Kind(_seconds, "a number of seconds")


class Field(NamedTuple):
    """A setting of a QoS: the option's name, sacctmgr's key, which is also its column, and the value that unsets it."""

    option: str
    key: str
    kind: Kind
    unset: str = "-1"

    def value(self, text: str) -> Any:
        """The value of a text; None where it is not set. ValueError where it is none."""
        value = None if text.strip() in ("", "-1") else self.kind.read(text.strip())
        return None if value is None or _text(value) in ("", self.unset) else value

    def written(self, value: Any, before: Any) -> str:
        """What sacctmgr gets to change the value: of resources each one that goes."""
        if self.kind is _COUNTS:
            return _text({**dict.fromkeys(before or {}, -1), **(value or {})})
        return self.unset if value is None else _text(value)


FIELDS = (
    Field("priority", "Priority", _COUNT, "0"),
    Field("grp_tres", "GrpTRES", _COUNTS),
    Field("grp_tres_mins", "GrpTRESMins", _COUNTS),
    Field("grp_tres_run_mins", "GrpTRESRunMins", _COUNTS),
    Field("grp_jobs", "GrpJobs", _COUNT),
    Field("grp_submit_jobs", "GrpSubmit", _COUNT),
    Field("grp_wall", "GrpWall", _TIME),
    Field("max_tres_per_job", "MaxTRES", _COUNTS),
    Field("max_tres_per_node", "MaxTRESPerNode", _COUNTS),
    Field("max_tres_mins_per_job", "MaxTRESMins", _COUNTS),
    Field("max_tres_per_account", "MaxTRESPerAccount", _COUNTS),
    Field("max_tres_per_user", "MaxTRESPerUser", _COUNTS),
    Field("max_wall", "MaxWall", _TIME),
    Field("max_jobs_per_account", "MaxJobsPA", _COUNT),
    Field("max_jobs_per_user", "MaxJobsPU", _COUNT),
    Field("max_submit_jobs_per_account", "MaxSubmitPA", _COUNT),
    Field("max_submit_jobs_per_user", "MaxSubmitPU", _COUNT),
    Field("min_tres_per_job", "MinTRES", _COUNTS),
    Field("flags", "Flags", _WORDS),
    Field("preempt", "Preempt", _WORDS, ""),
    Field("preempt_mode", "PreemptMode", _MODE, "cluster"),
    Field("grace_time", "GraceTime", _SECONDS, "0"),
    Field("usage_factor", "UsageFactor", _FACTOR, "1"),
    Field("limit_factor", "LimitFactor", _FACTOR),
    Field("usage_threshold", "UsageThreshold", _FACTOR),
)
_BY_OPTION = {known.option: known for known in FIELDS}
# The description may hold the separator, so it is the last column.
COLUMNS = ",".join(["Name", *(known.key for known in FIELDS), "Description"])
"""What sacctmgr is to print of QoS."""


class Record(NamedTuple):
    """A QoS in slurmdbd: ``settings`` by option, only those that are set."""

    description: str
    settings: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Records:
    """The records of slurmdbd that tiers need. tres: names such as ``gres/gpu``.

    members: (account, user), the user empty for the account itself. grants: the own ones of both, not of a partition.
    """

    qos: Mapping[str, Record] = field(default_factory=dict)
    members: frozenset[tuple[str, str]] = frozenset()
    grants: frozenset[Grant] = frozenset()
    tres: frozenset[str] = frozenset()


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


def parse(printed: Mapping[str, str]) -> Records:
    """The records in what sacctmgr has printed (sacctmgr.Sacctmgr.records); SlurmError where it is something else."""
    try:
        rows = {name: [line.split("|") for line in text.splitlines() if line.strip()] for name, text in printed.items()}
        qos = {}
        for name, *row in rows["qos"]:
            shown = {known.option: _as_shown(known, text) for known, text in zip(FIELDS, row)}
            settings = {option: value for option, value in shown.items() if value is not None}
            qos[name] = Record("|".join(row[len(FIELDS) :]), settings)
        return Records(
            qos,
            frozenset((account, user) for account, user, _partition, _qos in rows["assoc"]),
            frozenset(
                Grant(account, user, name)
                for account, user, partition, granted in rows["assoc"]
                for name in granted.split(",")
                if name and not partition
            ),
            frozenset("/".join(part for part in row[:2] if part) for row in rows["tres"]),
        )
    except (KeyError, ValueError):
        raise SlurmError("sacctmgr has printed no records of slurmdbd: check that it is Slurm's own.") from None


def _as_shown(known: Field, text: str) -> Any:
    try:
        return known.value(text)
    except ValueError:
        return text  # an unknown form, which differs from every desired value


# ------------------------------------------------------------------------------------------------- what to change


def canonical(qos: Qos) -> dict[str, Any]:
    """The settings of a desired QoS in the form of records; SlurmError names the option with a wrong value."""
    made = {}
    for option, given in qos.settings.items():
        known = _BY_OPTION.get(option)
        if known is None:
            raise SlurmError(f"tiers, qos {qos.name}: {option} is not a setting of a QoS, correct it.")
        text = ",".join(map(str, given)) if isinstance(given, (list, tuple)) else _text(given)
        try:
            made[option] = known.value(text)
        except ValueError:
            raise SlurmError(
                f"tiers, qos {qos.name}, {option}: {text[:60]!r} is not valid, use {known.kind.form}."
            ) from None
    return {option: value for option, value in made.items() if value is not None}


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
        if not user and (account, user) not in records.members:
            fields = (f"Description={account}", f"Organization={account}")
            undo: tuple[str, ...] = ("delete", "account", "where", f"Name={account}", where)
            steps.append(Step(f"account {account}: new", ("add", "account", account, where, *fields), undo))
        elif user and (account, user) not in records.members:
            undo = ("delete", "user", "where", f"Name={user}", f"Account={account}", where)
            do = ("add", "user", user, f"Account={account}", where)
            steps.append(Step(f"user {user} of account {account}: new", do, undo))
    return steps


def delete_steps(names: Iterable[str]) -> list[Step]:
    return [Step(f"qos {name}: removed", ("delete", "qos", name)) for name in sorted(names)]


def grant_steps(grants: Iterable[Grant], sign: str, cluster: str) -> list[Step]:
    """Add (sign +=) or revoke (sign -=) grants."""
    return [_grant(grant, sign, cluster) for grant in sorted(grants)]


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
    changed = [_BY_OPTION[option] for option in _changed(before, after)]
    return [f"{known.key}={known.written(after.get(known.option), before.get(known.option))}" for known in changed]


def _difference(option: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    old, new = (_text(values[option]) if option in values else "unset" for values in (before, after))
    return f"{_BY_OPTION[option].key} {old} -> {new}"
