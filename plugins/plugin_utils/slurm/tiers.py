# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tiers: the site's description becomes partitions, QoS and grants, and the file of partitions. Pure.

``render`` and ``parse`` are inverse to each other. The head of the file records what belongs to this collection: the
QoS and grants that were created with the partitions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules, syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import TIERS_HEADER
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block, SlurmError, names_of
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.partitions import Partition
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown

EXCLUSIVE_SINCE = (26, 5, 0)  # Exclusive= replaces ExclusiveTopo=
TOPOLOGY_SINCE = (25, 5, 0)  # PartitionName=... Topology=
SEGMENT_SINCE = (25, 11, 2)  # job_submit/lua has segment_size

# slurmdbd stores the names of QoS, accounts and users in lower case.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}\Z", re.ASCII)
_LOWER = re.compile(r"[a-z0-9_][a-z0-9._-]{0,63}\Z", re.ASCII)
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]{1,63}\Z", re.ASCII)
_VALUE = re.compile(r"[^\s\"'#\\]{1,4000}\Z")


@dataclass(frozen=True)
class Qos:
    """A desired QoS: ``settings`` by the option's name, with the site's values (accounting.FIELDS)."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, order=True)
class Grant:
    """The right of an account, or of one user of it, to a QoS."""

    account: str
    user: str
    qos: str

    def subject(self) -> str:
        return f"user {self.user} of account {self.account}" if self.user else f"account {self.account}"


@dataclass(frozen=True)
class Segment:
    """The policy of a partition for ``--segment``, in nodes; 0 is none."""

    default: int = 0
    maximum: int = 0


@dataclass(frozen=True)
class DesiredTiers:
    """The desired partitions, QoS, grants and segment policies of all tiers."""

    partitions: tuple[Partition, ...] = ()
    qos: tuple[Qos, ...] = ()
    grants: tuple[Grant, ...] = ()
    segments: Mapping[str, Segment] = field(default_factory=dict)
    other_qos: tuple[tuple[str, str], ...] = ()  # (tier, name): named by the tier, defined by none

    @property
    def named_accounts(self) -> set[str]:
        """The accounts that the partitions admit by name, in lower case; Slurm's word ALL is none."""
        values = (partition.get("AllowAccounts") for partition in self.partitions)
        return {name for value in values for name in value.lower().split(",")} - {"", "all"}


@dataclass(frozen=True)
class Written:
    """The content of a file of partitions."""

    partitions: tuple[Partition, ...] = ()
    qos: frozenset[str] = frozenset()
    grants: frozenset[Grant] = frozenset()


# --------------------------------------------------------------------------------------------- from options to objects


def build(
    tiers: Sequence[Arguments],
    blocks: Sequence[Block],
    cliques: Mapping[str, Sequence[str]],
    version: rules.Version,
    topology: str = "",
) -> DesiredTiers:
    """Build the partitions, QoS and grants of the option ``tiers``; SlurmError names the tier and the wrong field.

    cliques: clique -> its blocks. topology: Topology= of a partition whose tier names none, from 25.05 on.
    """
    qos = _all_qos(tiers)
    partitions: list[Partition] = []
    grants: set[Grant] = set()
    segments: dict[str, Segment] = {}
    others: list[tuple[str, str]] = []
    for tier in tiers:
        name = _named(tier.get("name"), "tiers[].name", _NAME)
        if name.lower() == "default":
            raise SlurmError(f"tiers[].name: Slurm reserves the name {name}, choose another one.")
        chosen = _blocks(tier, name, blocks, cliques)
        made = list(_partitions(tier, name, chosen, version, topology))
        for partition in made:
            if any(known.name.lower() == partition.name.lower() for known in partitions):
                raise SlurmError(f"tiers: two partitions are named {partition.name}, rename one of the tiers.")
            partitions.append(partition)
        policy = _segment(tier, name)
        if policy != Segment():
            segments.update((partition.name, policy) for partition in made)
        grants.update(_grants(tier, name))
        named = [*(tier.get("allow_qos") or []), *((tier.get("qos") or {}).get("preempt") or [])]
        others += [(name, other) for other in named if other not in qos]
    defaults = [partition.name for partition in partitions if partition.get("Default") == "YES"]
    if len(defaults) > 1:
        raise SlurmError(f"tiers: {defaults[0]} and {defaults[1]} both have default: true, remove it from one.")
    desired_qos = tuple(qos[name] for name in sorted(qos))
    return DesiredTiers(tuple(partitions), desired_qos, tuple(sorted(grants)), segments, tuple(others))


def _blocks(
    tier: Arguments, name: str, blocks: Sequence[Block], cliques: Mapping[str, Sequence[str]]
) -> tuple[Block, ...]:
    """The blocks of a tier that have nodes, in the order of the fabric file."""
    desired: set[str] = set()
    if sum(bool(tier.get(option)) for option in ("all", "blocks", "cliques")) != 1:
        raise SlurmError(f"tiers[{name}]: give exactly one of blocks, cliques or all: true.")
    for option, block_of in (("cliques", cliques), ("blocks", {block.name: [block.name] for block in blocks})):
        for given in tier.get(option) or []:
            if given not in block_of:
                what = option.rstrip("s")
                remedy = "correct it, or run discover and accept after a change of slurm_topology_split"
                raise SlurmError(f"tiers[{name}].{option}: {shown(given)} is no {what} of the fabric file; {remedy}.")
            desired.update(block_of[given])
    if tier.get("all"):
        return tuple(block for block in blocks if block.nodes)
    empty = [block for block in blocks if block.name in desired and not block.nodes]
    if empty:
        raise SlurmError(f"tiers[{name}]: the block {empty[0].name} has no tray, leave it out.")
    return tuple(block for block in blocks if block.name in desired)


def _partitions(
    tier: Arguments,
    name: str,
    blocks: Sequence[Block],
    version: rules.Version,
    topology: str,
) -> Iterable[Partition]:
    settings = _settings(tier, name, version, topology)
    if tier.get("per_block"):
        if tier.get("default"):
            raise SlurmError(f"tiers[{name}]: with per_block there are several partitions, leave out default.")
        for block in blocks:
            nodes_of_block = ("Nodes", block.hostlist())
            yield Partition(f"{name}_{block.name}", (nodes_of_block, *settings), block.nodes, (block.name,))
        return
    nodes = tuple(node for block in blocks for node in block.nodes)
    if not nodes:
        raise SlurmError(f"tiers[{name}]: it has no tray, which Slurm refuses; leave it out until it has one.")
    yield Partition(name, (("Nodes", fold(nodes)), *settings), nodes, tuple(block.name for block in blocks))


def _settings(tier: Arguments, name: str, version: rules.Version, topology: str) -> list[tuple[str, str]]:
    low, high = tier.get("min_nodes"), tier.get("max_nodes")
    if low and high and low > high:
        raise SlurmError(f"tiers[{name}]: min_nodes {low} is above max_nodes {high}, correct one.")
    times = {key: tier.get(key) for key in ("default_time", "max_time")}
    minutes = {key: parse_time(value, f"tiers[{name}].{key}") for key, value in times.items() if value}
    usual, longest = minutes.get("default_time"), minutes.get("max_time")
    if usual is not None and longest is not None and usual > longest:
        raise SlurmError(f"tiers[{name}]: default_time {times['default_time']} is above max_time, correct one.")
    own = _qos_name(tier, name, "qos")
    allowed = [_named(value, f"tiers[{name}].allow_qos", _LOWER) for value in tier.get("allow_qos") or []]
    values: list[tuple[str, Any]] = [
        ("Default", "YES" if tier.get("default") else ""),
        ("State", (tier.get("state") or "up").upper()),
        ("PriorityTier", tier.get("priority_tier")),
        ("MinNodes", low),
        ("MaxNodes", high),
        ("DefaultTime", times["default_time"]),
        ("MaxTime", times["max_time"]),
        *(
            (key, ",".join(_named(value, f"tiers[{name}].{option}", _NAME) for value in tier.get(option) or []))
            for key, option in (("AllowAccounts", "allow_accounts"), ("AllowGroups", "allow_groups"))
        ),
        ("AllowQos", ",".join(dict.fromkeys(filter(None, [own, *allowed])))),
        ("QOS", _qos_name(tier, name, "partition_qos")),
        ("Topology", _topology(tier, name, version, topology)),
        _exclusive(tier.get("exclusive") or "", version),
    ]
    made = [(key, str(value)) for key, value in values if value]
    taken = {key.lower() for key, _value in made} | {"partitionname", "nodes", "default", "allowqos", "qos"}
    for key, value in sorted((tier.get("options") or {}).items()):
        if not _KEY.match(str(key)) or not _VALUE.match(str(value)):
            raise SlurmError(f"tiers[{name}].options: {shown(key)} is no setting of one line, correct it.")
        if str(key).lower() in taken:
            raise SlurmError(f"tiers[{name}].options: a tier has an option for {key}, use that one.")
        made.append((str(key), str(value)))
    return made


_EXCLUSIVE_BEFORE = {
    "topo": ("ExclusiveTopo", "YES"),
    "user": ("ExclusiveUser", "YES"),
    "node": ("OverSubscribe", "EXCLUSIVE"),
}


def _exclusive(value: str, version: rules.Version) -> tuple[str, str]:
    standard = ("Exclusive", value.upper())
    return standard if version >= EXCLUSIVE_SINCE else _EXCLUSIVE_BEFORE.get(value, standard)


def _topology(tier: Arguments, name: str, version: rules.Version, standard: str) -> str:
    own = tier.get("topology") or ""
    if own and version < TOPOLOGY_SINCE:
        raise SlurmError(
            f"tiers[{name}].topology: partitions of Slurm {rules.show_version(version)} have no topology, leave it out"
            " or upgrade to 25.05."
        )
    return own or (standard if version >= TOPOLOGY_SINCE else "")


def _all_qos(tiers: Sequence[Arguments]) -> dict[str, Qos]:
    """Every QoS that the tiers define; a tier may name one that another tier defines."""
    made: dict[str, Qos] = {}
    for tier in tiers:
        for option in ("qos", "partition_qos"):
            given = tier.get(option)
            if given is None:
                continue
            name = _qos_name(tier, str(tier.get("name")), option)
            settings = {
                key: value
                for key, value in given.items()
                if key != "name" and value is not None and value not in ({}, [], "")
            }
            known = made.get(name)
            if known is None or not known.settings:
                made[name] = Qos(name, settings)
            elif settings and settings != known.settings:
                raise SlurmError(
                    f"tiers[{tier.get('name')}].{option}: another tier defines {name} differently, leave only its name"
                    " here."
                )
    return made


def _qos_name(tier: Arguments, tier_name: str, option: str) -> str:
    given = tier.get(option)
    if given is None:
        return ""
    standard = tier_name if option == "qos" else f"{tier_name}_limits"
    return _named(given.get("name") or standard.lower(), f"tiers[{tier_name}].{option}.name", _LOWER)


def _grants(tier: Arguments, name: str) -> Iterable[Grant]:
    qos = _qos_name(tier, name, "qos")
    accounts, users = tier.get("accounts") or [], tier.get("users") or []
    if (accounts or users) and not qos:
        raise SlurmError(f"tiers[{name}]: accounts and users are granted its qos, which is missing: add qos.")
    for account in accounts:
        yield Grant(_named(account, f"tiers[{name}].accounts", _LOWER), "", qos)
    for user in users:
        account = _named(user.get("account"), f"tiers[{name}].users[].account", _LOWER)
        yield Grant(account, _named(user.get("name"), f"tiers[{name}].users[].name", _LOWER), qos)


def _segment(tier: Arguments, name: str) -> Segment:
    given = tier.get("segment") or {}
    made = Segment(given.get("default") or 0, given.get("max") or 0)
    if min(made.default, made.maximum) < 0 or max(made.default, made.maximum) > 65533:
        raise SlurmError(f"tiers[{name}].segment: give numbers of nodes above 0.")
    if made.maximum and made.default > made.maximum:
        raise SlurmError(
            f"tiers[{name}].segment: default {made.default} is above max {made.maximum}, correct one of them."
        )
    return made


def parse_time(value: Any, where: str) -> int | None:
    """syntax.parse_minutes(); ``where`` is the option for the message."""
    text = str(value).strip()
    try:
        return syntax.parse_minutes(text)
    except ValueError:
        raise SlurmError(f"{where}: {shown(text)} is not a time, use minutes, HH:MM:SS or D-HH:MM:SS.") from None


def _named(value: Any, where: str, form: re.Pattern[str]) -> str:
    """The name, checked; ``where`` is the option for the message."""
    text = "" if value is None else str(value)
    if not form.match(text):
        letters = "lower-case letters" if form is _LOWER else "letters"
        raise SlurmError(f"{where}: {shown(text)} is not a valid name, use {letters}, digits, dot, _ and -.")
    return text


# ------------------------------------------------------------------------------------------------- the include file


def render(
    partitions: Sequence[Partition],
    qos: Iterable[str] = (),
    grants: Iterable[Grant] = (),
    settings: Mapping[str, str] | None = None,
) -> str:
    """The text of the file of partitions. ``settings``: single settings of slurm.conf, written before them."""
    owns = {"qos": sorted(qos), "grants": [[grant.account, grant.user, grant.qos] for grant in sorted(grants)]}
    lines = [TIERS_HEADER, f"# owns: {json.dumps(owns, sort_keys=True)}"]
    lines += [f"{key}={value}" for key, value in sorted((settings or {}).items())]
    lines += [partition.line() for partition in partitions]
    return "".join(f"{line}\n" for line in lines)


def parse(text: str) -> Written:
    """Parse a file of partitions; of a file that was changed manually, what can be parsed."""
    qos: set[str] = set()
    grants: set[Grant] = set()
    owns = re.search(r"(?m)^# owns: (.*)$", text)
    if owns:
        try:
            document = json.loads(owns.group(1))
            qos = {str(name) for name in document["qos"]}
            grants = {Grant(*(str(part) for part in entry)) for entry in document["grants"]}
        except (ValueError, KeyError, TypeError, RecursionError):
            qos, grants = set(), set()
    partitions = []
    for line in syntax.logical_lines(text):
        pairs = syntax.key_values(line)
        if not pairs or pairs[0][0].lower() != "partitionname":
            continue
        settings = tuple(pairs[1:])
        hostlist = next((value for key, value in settings if key.lower() == "nodes"), "")
        partitions.append(Partition(pairs[0][1], settings, tuple(names_of(hostlist))))
    return Written(tuple(partitions), frozenset(qos), frozenset(grants))
