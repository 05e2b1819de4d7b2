# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the live changes of operators (``scontrol update``) that a reconfigure would undo. Pure but for ``read()``.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Observed on slurmctld 24.11.5 and 26.05.5, the same for a reconfigure and a restart:
- Partitions lose every live setting, and one made by ``scontrol create`` vanishes. ReconfigFlags=KeepPartState keeps
  State; KeepPartInfo keeps all but JobDefaults and the limits of memory.
- Nodes lose Weight, Features, Gres and CpuBind. They keep State, Reason, Comment and Extra.
- DebugFlags, SlurmctldDebug and SuspendExc* are those of slurm.conf again.
- 26.05.5 alone: a live ExclusiveTopo of a partition with ExclusiveUser makes the saved state of partitions unreadable
  ("Invalid data for partition"), and then no ReconfigFlags keep anything of any partition.
A setting whose form in slurm.conf differs from that of scontrol (node sets, memory limits, NodeAddr) is not compared,
so that no apply stops without cause.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand, fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

# The gate's name, and the number of changes that a message lists.
GATE = "live_changes_lost"
MAX_CHANGES = 8

Record = Mapping[str, str]
Form = Callable[[str], object]
_UNSET = ("", "(null)", "none", "n/a")


class LiveChanges(SlurmError):
    """A reconfigure would undo what operators changed with scontrol update."""


@dataclass(frozen=True)
class Configured:
    """slurm.conf with its includes: name -> the keys of its line in lower case, DEFAULT lines included."""

    partitions: Mapping[str, Record] = field(default_factory=dict)
    nodes: Mapping[str, Record] = field(default_factory=dict)
    settings: Record = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """One live value. kind: partition, node or setting; configured is empty where slurm.conf has no such partition."""

    kind: str
    name: str
    key: str
    live: str
    configured: str


# --------------------------------------------------------------------------------------------------------- slurm.conf


def configured(lines: Iterable[str]) -> Configured:
    """The lines of slurm.conf and its includes, in the order in which slurmctld reads them."""
    partitions: dict[str, Record] = {}
    nodes: dict[str, Record] = {}
    settings: dict[str, str] = {}
    defaults: dict[str, dict[str, str]] = {"partitionname": {}, "nodename": {}}
    for line in lines:
        pairs = syntax.key_values(line)
        if not pairs:
            continue
        first, name = pairs[0][0].lower(), pairs[0][1]
        keys = {key.lower(): value for key, value in pairs[1:]}
        if first not in defaults:
            settings.update((key.lower(), value) for key, value in pairs)
        elif name.upper() == "DEFAULT":
            defaults[first].update(keys)
        elif first == "partitionname":
            partitions[name] = {**defaults[first], **keys}
        else:
            merged = {**defaults[first], **keys}
            nodes.update((node, merged) for node in _expanded(name))
    return Configured(partitions, nodes, settings)


def read(conf_dir: str, writes: Mapping[str, bytes | None]) -> Configured:
    """What slurmctld would read with these files written."""

    def text(path: str) -> str:
        data = writes[path] if path in writes else host.read(path)
        return (data or b"").decode("utf-8", "replace")

    return configured(line for _file, line in syntax.conf_lines(os.path.join(conf_dir, "slurm.conf"), text))


# ---------------------------------------------------------------------------------------------------------- the values


def _word(value: str) -> object:
    return "" if value.lower() in _UNSET else value.lower()


def _time(value: str) -> object:
    return "" if value.lower() in (*_UNSET, "unlimited", "infinite", "-1") else syntax.parse_minutes(value)


def _limit(value: str) -> object:
    return "" if value.lower() in (*_UNSET, "unlimited", "infinite", "-1") else value.lower()


def _names(value: str) -> object:
    return frozenset(part for part in value.lower().split(",") if part not in (*_UNSET, "all"))


def _hosts(value: str) -> object:
    return frozenset(_expanded("" if value.lower() in (*_UNSET, "all") else value))


def _flag(value: str) -> object:
    return value.lower() in ("yes", "true", "1")


def _shared(value: str) -> object:
    """OverSubscribe, of which YES and FORCE mean four jobs."""
    word, _colon, number = value.lower().partition(":")
    return (word, number or "4") if word in ("yes", "force") else "exclusive" if word == "exclusive" else ""


def _exclusive(value: str) -> object:
    return "" if value.lower() == "no" else value.lower()


def _state(value: str) -> object:
    return value.lower() or "up"


def _one(value: str) -> object:
    return value or "1"


def _zero(value: str) -> object:
    return value or "0"


def _gres(value: str) -> object:
    """Name -> count: scontrol adds types and sockets of gres.conf."""
    counts: dict[str, str] = {}
    for part in ("" if value.lower() in _UNSET else value.lower()).split(","):
        words = part.partition("(")[0].split(":")
        if words[0]:
            number = words[-1] if len(words) > 1 and words[-1][:1].isdigit() else "1"
            known = counts.get(words[0], "0")
            plain = known.isdigit() and number.isdigit()
            counts[words[0]] = str(int(known) + int(number)) if plain else f"{known}+{number}"
    return counts


_LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")


def _level(value: str) -> object:
    word = value.lower() or "info"
    return _LEVELS[int(word)] if word.isdigit() and int(word) < len(_LEVELS) else word


# scontrol's key -> how it compares, and the keys of slurm.conf where they have other names.
_PARTITION: dict[str, tuple[Form, tuple[str, ...]]] = {
    "State": (_state, ()),
    "MaxTime": (_time, ()),
    "DefaultTime": (_time, ()),
    "MaxNodes": (_limit, ()),
    "MinNodes": (_zero, ()),
    "AllowAccounts": (_names, ()),
    "AllowGroups": (_names, ()),
    "AllowQos": (_names, ()),
    "DenyAccounts": (_names, ()),
    "DenyQos": (_names, ()),
    "AllocNodes": (_hosts, ("allowallocnodes", "allocnodes")),
    "Hidden": (_flag, ()),
    "RootOnly": (_flag, ()),
    "ReqResv": (_flag, ()),
    "ExclusiveUser": (_flag, ()),
    "ExclusiveTopo": (_flag, ()),
    "Exclusive": (_exclusive, ()),
    "PowerDownOnIdle": (_flag, ()),
    "OverSubscribe": (_shared, ("oversubscribe", "shared")),
    "PriorityTier": (_one, ("prioritytier", "priority")),
    "PriorityJobFactor": (_one, ("priorityjobfactor", "priority")),
    "GraceTime": (_zero, ()),
    "MaxCPUsPerNode": (_limit, ()),
    "MaxCPUsPerSocket": (_limit, ()),
    "QoS": (_word, ()),
    "Alternate": (_word, ()),
    "CpuBind": (_word, ()),
    "JobDefaults": (_word, ()),
    "TRESBillingWeights": (_word, ()),
}
# What slurmctld uses where slurm.conf has no value, for messages.
_DEFAULTS = {
    "State": "UP",
    "MaxTime": "UNLIMITED",
    "MaxNodes": "UNLIMITED",
    "PriorityTier": "1",
    "PriorityJobFactor": "1",
    "OverSubscribe": "NO",
    "Weight": "1",
    "SlurmctldDebug": "info",
}
# Those that scontrol prints only where they are set.
_ONLY_IF_SET = frozenset(("DenyAccounts", "DenyQos", "Alternate", "CpuBind", "TRESBillingWeights"))
# Those that ReconfigFlags=KeepPartInfo does not keep.
_NOT_KEPT = frozenset(("JobDefaults",))
_NODE: dict[str, tuple[Form, tuple[str, ...]]] = {
    "Weight": (_one, ()),
    "AvailableFeatures": (_names, ("feature", "features")),
    "Gres": (_gres, ()),
    "CpuBind": (_word, ()),
}
_SETTING: dict[str, Form] = {
    "DebugFlags": _names,
    "SlurmctldDebug": _level,
    "SuspendExcNodes": _names,
    "SuspendExcParts": _names,
    "SuspendExcStates": _names,
}


# ---------------------------------------------------------------------------------------------------------- comparing


def lost(
    partitions: Sequence[Record],
    nodes: Sequence[Record],
    settings: Record,
    before: Configured,
    after: Configured | None = None,
) -> list[Change]:
    """The live values that neither the present slurm.conf nor the planned one has.

    partitions, nodes: records of ``scontrol -o show``; settings: ``scontrol show config`` in lower case. A value that
    the plan sets is no loss, nor is one that the plan changes on purpose: only what differs from ``before`` is live.
    """
    after = before if after is None else after
    flags = {flag.strip().lower() for flag in after.settings.get("reconfigflags", "").split(",")}
    found = [
        *_lost_partitions(partitions, before, after, flags),
        *_lost_nodes(nodes, before, after, settings),
    ]
    for key, form in _SETTING.items():
        if key.startswith("SuspendExc") and "keeppowersavesettings" in flags:
            continue
        old, new = (known.settings.get(key.lower(), "") for known in (before, after))
        found += _differing("setting", "", key, settings.get(key.lower(), ""), old, new, form)
    return found


def _lost_partitions(
    records: Sequence[Record], before: Configured, after: Configured, flags: set[str]
) -> Iterable[Change]:
    keeps_all, keeps_state = "keeppartinfo" in flags, "keeppartstate" in flags
    if any(_saves_invalid(record, before.partitions.get(record.get("PartitionName", ""), {})) for record in records):
        keeps_all = keeps_state = False
    for record in records:
        name = record.get("PartitionName", "")
        old, new = (_by_release(known.partitions.get(name), record) for known in (before, after))
        if old is None or new is None:
            # One that the plan removes is in its own diff.
            if name and old is None and new is None and not keeps_all:
                yield Change("partition", name, "", "", "")
            continue
        for key, (form, aliases) in _PARTITION.items():
            if (keeps_all and key not in _NOT_KEPT) or (key == "State" and keeps_state):
                continue
            if key not in record and key not in _ONLY_IF_SET:
                continue  # this release does not print it
            was, becomes = (_value(line, key, aliases) for line in (old, new))
            yield from _differing("partition", name, key, record.get(key, ""), was, becomes, form)
        if not keeps_all:
            yield from _lost_members(name, record, old, new, before, after)


def _by_release(line: Record | None, record: Record) -> Record | None:
    """A line of slurm.conf with Exclusive= where scontrol prints that (26.05): older keys set it too."""
    if line is None or "Exclusive" not in record:
        return line
    shared = _value(line, "", ("oversubscribe", "shared"))
    older = {"topo": _flag(line.get("exclusivetopo", "")), "user": _flag(line.get("exclusiveuser", ""))}
    older["node"] = _shared(shared) == "exclusive"
    value = line.get("exclusive") or next((value for value, holds in older.items() if holds), "")
    return {**line, "exclusive": value, "oversubscribe": "" if older["node"] else shared}


def _saves_invalid(record: Record, line: Record) -> bool:
    """Whether slurmctld could not read this partition again from its state: an exclusiveness that was changed live."""
    line = _by_release(line, record) or {}
    return "Exclusive" in record and _exclusive(record["Exclusive"]) != _exclusive(line.get("exclusive", ""))


def _lost_members(
    name: str, record: Record, old: Record, new: Record, before: Configured, after: Configured
) -> Iterable[Change]:
    """Nodes=, where it names nodes; not where it has node sets or functions."""
    live = frozenset(_expanded(record.get("Nodes", "")))
    members = [
        frozenset(known.nodes)
        if line.get("nodes", "").upper() == "ALL"
        else frozenset(_expanded(line.get("nodes", "")))
        for line, known in ((old, before), (new, after))
    ]
    plain = all(nodes <= known.nodes.keys() for nodes, known in zip(members, (before, after)))
    # Dynamic nodes join a partition of all nodes by themselves.
    live = live & (before.nodes.keys() | after.nodes.keys())
    if plain and live not in members:
        yield Change("partition", name, "Nodes", record.get("Nodes", ""), new.get("nodes", ""))


def _lost_nodes(records: Sequence[Record], before: Configured, after: Configured, settings: Record) -> Iterable[Change]:
    for record in records:
        name = record.get("NodeName", "")
        old, new = before.nodes.get(name), after.nodes.get(name)
        if old is None or new is None:
            continue  # a dynamic node, which slurm.conf does not have
        for key, (form, aliases) in _NODE.items():
            # A plugin changes features with each boot.
            if key == "AvailableFeatures" and settings.get("nodefeaturesplugins"):
                continue
            was, becomes = (_value(line, key, aliases) for line in (old, new))
            yield from _differing("node", name, key, record.get(key, ""), was, becomes, form)


def _differing(kind: str, name: str, key: str, live: str, old: str, new: str, form: Form) -> Iterable[Change]:
    try:
        shown = form(live)
        differs = shown not in (form(old), form(new))
    except ValueError:
        return
    if differs:
        yield Change(kind, name, key, live, new or _DEFAULTS.get(key, ""))


def _value(line: Record, key: str, aliases: tuple[str, ...]) -> str:
    return next((line[name] for name in aliases or (key.lower(),) if name in line), "")


def _expanded(text: str) -> list[str]:
    try:
        return expand("" if text == "(null)" else text)
    except HostlistError:
        return []


# ------------------------------------------------------------------------------------------------------------- wording


def describe(changes: Sequence[Change]) -> list[str]:
    """One clause a partition, setting, or folded list of nodes: the live value and the configured one."""
    clauses = []
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for change in changes:
        if change.kind == "node":
            nodes.setdefault((change.key, change.live, change.configured), []).append(change.name)
        elif not change.key:
            clauses.append(f"partition {change.name} is not in slurm.conf")
        else:
            of = f"{change.key} of partition {change.name}" if change.name else change.key
            clauses.append(f"{of} is {_shown(change.live)}, configured {_shown(change.configured)}")
    for (key, live, new), names in nodes.items():
        clauses.append(f"{key} of node {fold(names)} is {_shown(live)}, configured {_shown(new)}")
    return clauses


def _shown(value: str) -> str:
    return "unset" if value in ("", "(null)") else value


# ------------------------------------------------------------------------------------------------------------- reading


def survey(slurm: Slurm, conf_dir: str, writes: Mapping[str, bytes | None], own: Collection[str] = ()) -> list[str]:
    """What a reconfigure with these files written would undo, in clauses.

    own: partitions whose settings the caller writes each time, all but their State.
    """
    partitions, nodes = (
        files.parse_records(slurm.scontrol("-a", "-o", "show", what)) for what in ("partitions", "nodes")
    )
    found = lost(partitions, nodes, slurm.config(), read(conf_dir, {}), read(conf_dir, writes))
    return describe([one for one in found if one.kind != "partition" or one.key == "State" or one.name not in own])


def sentence(changes: Sequence[str]) -> str:
    return f"A reconfigure would undo live changes ({summarize(changes, MAX_CHANGES)})"


def require_none(
    slurm: Slurm, conf_dir: str, writes: Mapping[str, bytes | None], override: str, own: Collection[str] = ()
) -> None:
    """LiveChanges where ``survey()`` finds any; override: the option that permits them, with its variable."""
    # One that does not answer is to be repaired, and cannot show what it would lose.
    found = survey(slurm, conf_dir, writes, own) if slurm.answers() else []
    if found:
        raise LiveChanges(
            f"{sentence(found)}: write the live values into slurm.conf, or set {override} to {GATE} if this is"
            " intended."
        )
