# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the live changes of operators (``scontrol update``) that a reconfigure would undo.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A slurmctld in a sandbox loads the site's node and partition lines unchanged. What it shows otherwise than the running
one was changed live: both print in the same form, so no default and no spelling of a key has to be known here.

Observed on slurmctld 24.11.5 and 26.05.5, the same for a reconfigure and a restart:
- Partitions lose every live setting, one made by ``scontrol create`` vanishes, and a deleted one comes back, also with
  KeepPartInfo. ReconfigFlags=KeepPartState keeps
  State; KeepPartInfo keeps all but JobDefaults and the limits of memory.
- Nodes lose Weight, Features, Gres and CpuBind. They keep State, Reason, Comment and Extra. Of Gres a node that is not
  CLOUD keeps the larger of the saved and the configured count, also where slurm.conf has none any more.
- DebugFlags, SlurmctldDebug and SuspendExc* are those of slurm.conf again; these are compared with the file.
- 26.05.5 alone: a live ExclusiveTopo of a partition with ExclusiveUser makes the saved state of partitions unreadable
  ("Invalid data for partition"), and then no ReconfigFlags keep anything of any partition.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import (
    conf,
    rules,
    sandbox_slurmctld,
    scontrol,
    syntax,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.sandbox import Sandbox, run_inside
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import shortened, summarize

# The gate's name, and the changes that a message lists.
GATE = "live_changes_lost"
MAX_CHANGES = 8
# Characters of each: a partition may have thousands of nodes.
MAX_CLAUSE = 400
# Seconds for slurmctld in the sandbox: one of 10,000 nodes starts in a few.
SECONDS = 60.0

Record = Mapping[str, str]
# Further settings of slurm.conf that change what scontrol shows of partitions and nodes.
_SHOWN = """
preempttype preemptmode overtimelimit disablerootjobs resumetimeout suspendtime suspendtimeout accountingstoragetres
accountingstorageenforce
"""
# Programs of the site are never run; without any, scontrol leaves out the settings of power saving.
_PROGRAMS = ("suspendprogram", "resumeprogram")
_NODE = ("Weight", "AvailableFeatures", "Gres", "CpuBind")
# Those that follow from others.
_DERIVED = frozenset(("PartitionName", "TotalCPUs", "TotalNodes", "TRES"))
# Those that ReconfigFlags=KeepPartInfo does not keep.
_NOT_KEPT = re.compile("JobDefaults|(Def|Max)MemPer")
_SETTINGS = ("DebugFlags", "SlurmctldDebug", "SuspendExcNodes", "SuspendExcParts", "SuspendExcStates")
_LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")
_UNSET = ("", "(null)", "none", "n/a")


class LiveChanges(SlurmError):
    """A reconfigure would undo what operators changed with scontrol update."""


@dataclass(frozen=True)
class Shown:
    """What a slurmctld shows: name -> record of ``scontrol -o show``; of nodes only State and the keys of _NODE."""

    partitions: Mapping[str, Record]
    nodes: Mapping[str, Record]


@dataclass(frozen=True)
class Change:
    """One live value. kind: partition, node or setting.

    key is empty where slurm.conf has no such partition, or slurmctld none that slurm.conf has (live: deleted).
    """

    kind: str
    name: str
    key: str
    live: str
    configured: str


# ------------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Files:
    """What slurmctld would read. text: slurm.conf for the sandbox. topologies: name -> text. settings: single ones."""

    text: str
    topologies: Record
    settings: Record


def _read(conf_dir: str, writes: Mapping[str, bytes | None], version: rules.Version) -> _Files:
    """The files of this folder with these written."""
    read = conf.reader(writes)
    settings, lines = syntax.split(line for _file, line in conf.lines(conf_dir, read))
    # Before 25.05 no line of a node or partition depends on it.
    topologies = conf.topologies(conf_dir, read) if version >= rules.YAML_SINCE else {}
    if not topologies:
        settings.pop("topologyplugin", None)  # waits for its file, then ends
    kept = [f"{key}={settings[key]}" for key in (sandbox_slurmctld.KEPT + _SHOWN).split() if key in settings]
    kept += [f"{key}=/bin/true" for key in _PROGRAMS if settings.get(key)]
    return _Files("".join(f"{line}\n" for line in [*kept, *lines]), topologies, settings)


def _running(slurm: Slurm) -> Shown:
    return _parsed(*(slurm.scontrol("-a", "-o", "show", what) for what in ("partitions", "nodes")))


def loaded(slurm: Slurm, text: str, topologies: Record, state_dir: str) -> Shown:
    """What a slurmctld in a sandbox shows that has loaded these files; SlurmError with the reason where it cannot.

    state_dir: where the site's slurmctld saves the records of slurmdbd, empty without one.
    """
    names = sandbox_slurmctld.RECORDS if state_dir else ()
    saved = {name: data for name in names if (data := host.read(os.path.join(state_dir, name))) is not None}
    lines = [*sandbox_slurmctld.NO_DATABASE, *text.splitlines()]
    if len(saved) < len(sandbox_slurmctld.RECORDS):
        # A new cluster has saved none for some minutes, and its slurm.conf then needs none.
        saved, lines = {}, [line for line in text.splitlines() if not line.startswith("accountingstorage")]

    def work(sandbox: Sandbox) -> dict[str, Any]:
        sandbox_slurmctld.load_records(sandbox, saved)
        why = sandbox_slurmctld.load(sandbox, "\n".join(lines), topologies)
        if "adding tres" in why:
            # The saved records lack a new one, which only TRESBillingWeights can need.
            known = [line for line in lines if not line.startswith("accountingstoragetres")]
            why = sandbox_slurmctld.load(sandbox, "\n".join(known), topologies)
            why = why and f"{why}: slurmctld saves new TRES within 5 minutes"
        if why:
            return {"why": f"its slurmctld does not load slurm.conf ({why})"}
        shown = [
            sandbox_slurmctld.client(sandbox, "scontrol", "-a", "-o", "show", what) for what in ("partitions", "nodes")
        ]
        if any(result.returncode for result in shown):
            return {"why": "its slurmctld does not answer"}
        return vars(_parsed(*(result.stdout for result in shown)))

    programs = {name: os.path.realpath(slurm.program(name)) for name in ("slurmctld", "scontrol")}
    reply = run_inside(work, programs, SECONDS)
    if "why" in reply:
        raise SlurmError(reply["why"])
    return Shown(**reply)


def _parsed(partitions: str, nodes: str) -> Shown:
    return Shown(
        {known["PartitionName"]: known for known in scontrol.parse_records(partitions) if "PartitionName" in known},
        {
            known["NodeName"]: {key: known.get(key, "") for key in (*_NODE, "State")}
            for known in scontrol.parse_records(nodes)
            if "NodeName" in known
        },
    )


# ---------------------------------------------------------------------------------------------------------- comparing


def lost(running: Shown, before: Shown, after: Shown, config: Record, settings: Record) -> list[Change]:
    """The live values of partitions and nodes that neither the present files nor the planned ones give.

    before, after: what slurmctld shows after loading them. A value that the plan sets is no loss, nor is one that it
    changes on purpose: only what differs from ``before`` is live. config: ``scontrol show config`` in lower case.
    settings: those of the planned slurm.conf.
    """
    return [*_lost_partitions(running, before, after, _flags(settings)), *_lost_nodes(running, before, after, config)]


def _lost_partitions(running: Shown, before: Shown, after: Shown, flags: Collection[str]) -> Iterable[Change]:
    # Where 26.05 cannot read its saved partitions, no flag keeps anything.
    readable = all(
        record.get("Exclusive") == before.partitions.get(name, record).get("Exclusive")
        for name, record in running.partitions.items()
    )
    keeps_all, keeps_state = (readable and flag in flags for flag in ("keeppartinfo", "keeppartstate"))
    for name in sorted((before.partitions.keys() & after.partitions.keys()) - running.partitions.keys()):
        yield Change("partition", name, "", "deleted", "")
    for name, record in running.partitions.items():
        old, new = before.partitions.get(name), after.partitions.get(name)
        if old is None or new is None:
            # One that the plan removes is in its own diff.
            if old is None and new is None and not keeps_all:
                yield Change("partition", name, "", "", "")
            continue
        for key in sorted((record.keys() | old.keys()) - _DERIVED):
            if (keeps_all and not _NOT_KEPT.match(key)) or (key == "State" and keeps_state):
                continue
            shown, was, becomes = (known.get(key, "") for known in (record, old, new))
            if key == "Nodes":
                # Dynamic nodes join a partition of all nodes by themselves.
                members = [before.nodes.keys() & scontrol.names_of(value) for value in (shown, was, becomes)]
                same = members[0] in members[1:]
            else:
                same = shown in (was, becomes)
            if not same:
                yield Change("partition", name, key, shown, becomes)


def _lost_nodes(running: Shown, before: Shown, after: Shown, config: Record) -> Iterable[Change]:
    for name, record in running.nodes.items():
        old, new = before.nodes.get(name), after.nodes.get(name)
        if old is None or new is None:
            continue  # a dynamic node, which slurm.conf does not have
        for key in _NODE:
            # A plugin changes features with each boot.
            if key == "AvailableFeatures" and config.get("nodefeaturesplugins"):
                continue
            forms = [_gres(known[key]) if key == "Gres" else known[key] for known in (record, old, new)]
            # The saved count stays where the configured one is not larger.
            kept = key == "Gres" and "CLOUD" not in record["State"] and not _gres(new[key]) - _gres(record[key])
            if forms[0] not in forms[1:] and not kept:
                yield Change("node", name, key, record[key], new[key])


def lost_settings(config: Record, before: Record, after: Record) -> list[Change]:
    """The live values of _SETTINGS. config: ``scontrol show config``; before, after: settings of slurm.conf."""
    found = []
    for key in _SETTINGS:
        if key.startswith("SuspendExc") and "keeppowersavesettings" in _flags(after):
            continue
        live, old, new = (known.get(key.lower(), "") for known in (config, before, after))
        if _setting(key, live) not in (_setting(key, old), _setting(key, new)):
            found.append(Change("setting", "", key, live, new))
    return found


def _setting(key: str, value: str) -> object:
    if key == "SlurmctldDebug":
        word = value.lower() or "info"
        return _LEVELS[int(word)] if word.isdecimal() and int(word) < len(_LEVELS) else word
    return frozenset(part for part in value.lower().split(",") if part not in _UNSET)


def _flags(settings: Record) -> set[str]:
    return {flag.strip().lower() for flag in settings.get("reconfigflags", "").split(",")}


def _gres(value: str) -> Counter[str]:
    """Name -> count: slurmd adds the types and sockets of gres.conf."""
    counts: Counter[str] = Counter()
    for part in re.sub(r"\([^)]*\)", "", value.lower()).split(","):
        name, *words = part.split(":")
        number = re.match(r"(\d+)([kmgtp]?)", words[-1] if words else "")
        if name:
            counts[name] += int(number[1]) * 1024 ** " kmgtp".index(number[2] or " ") if number else 1
    return counts


# ------------------------------------------------------------------------------------------------------------- wording


def describe(changes: Sequence[Change]) -> list[str]:
    """One clause a partition, setting, or folded list of nodes: the live value and the configured one."""
    clauses = []
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for change in changes:
        if change.kind == "node":
            nodes.setdefault((change.key, change.live, change.configured), []).append(change.name)
        elif not change.key:
            what = "of slurm.conf was deleted, or never loaded" if change.live else "is not in slurm.conf"
            clauses.append(f"partition {change.name} {what}")
        else:
            of = f"{change.key} of partition {change.name}" if change.name else change.key
            clauses.append(f"{of} is {_worded(change.live)}, configured {_worded(change.configured)}")
    for (key, live, new), names in nodes.items():
        clauses.append(f"{key} of node {fold(names)} is {_worded(live)}, configured {_worded(new)}")
    return clauses


def _worded(value: str) -> str:
    return "unset" if value in ("", "(null)") else value


def survey(slurm: Slurm, conf_dir: str, writes: Mapping[str, bytes | None], own: Collection[str] = ()) -> list[str]:
    """What a reconfigure with these files written would undo, in clauses.

    Where no slurmctld runs in a sandbox, the first clause has the reason: then it may undo any change of partitions and
    nodes. own: partitions whose settings the caller writes each time, all but their State.
    """
    config = slurm.config()
    version = rules.parse_version(config.get("slurm_version", rules.show_version(rules.YAML_SINCE)))
    before, after = _read(conf_dir, {}, version), _read(conf_dir, writes, version)
    settings = describe(lost_settings(config, before.settings, after.settings))
    state_dir = config.get("statesavelocation", "") if "slurmdbd" in config.get("accountingstoragetype", "") else ""
    try:
        old = loaded(slurm, before.text, before.topologies, state_dir)
        running = _running(slurm)

        def changes(new: Shown) -> list[Change]:
            found = lost(running, old, new, config, after.settings)
            return [one for one in found if one.kind != "partition" or one.key == "State" or one.name not in own]

        found = changes(old)
        if found and after.text != before.text:
            found = changes(loaded(slurm, after.text, after.topologies, state_dir))
    except NvlinkError as error:
        return [f"any of partitions and nodes, since no sandbox can compare them: {str(error).rstrip('.')}", *settings]
    return [*describe(found), *settings]


def sentence(changes: Sequence[str]) -> str:
    clauses = (shortened(change, MAX_CLAUSE) for change in changes)
    return f"A reconfigure would undo live changes ({summarize(clauses, MAX_CHANGES)})"


def refusal(undone: str, override: str) -> str:
    """undone: as of sentence(); override: the option that permits it, with its variable."""
    return f"{undone}: write the live values into slurm.conf, or set {override} to {GATE} if this is intended."


def require_none(
    slurm: Slurm, conf_dir: str, writes: Mapping[str, bytes | None], override: str, own: Collection[str] = ()
) -> None:
    """LiveChanges where ``survey()`` finds any; override: the option that permits them, with its variable."""
    # One that does not answer is to be repaired, and cannot show what it would lose.
    if slurm.answers() and (found := survey(slurm, conf_dir, writes, own)):
        raise LiveChanges(refusal(sentence(found), override))
