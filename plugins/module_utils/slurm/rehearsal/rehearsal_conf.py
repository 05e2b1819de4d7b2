# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The slurm.conf of a rehearsal, derived from the site's: only the settings that decide where a job is placed.

Private to this collection; it may change in any release. Python 3.9, standard library only; reads files, writes none.

Settings are kept by an allow list; every other setting is left out, because an unknown one may start a program or wait
for a service. What is left out is reported by name, never by value: values may be secrets.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, rules, syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import FILE_NAMES, SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.sandbox_slurmctld import NO_DATABASE
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize

# The rehearsal's own partition: all trays of all blocks, without the site's limits.
OPEN_PARTITION = "nvlink_rehearsal"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEPT = _words(
    """
    clustername selecttype selecttypeparameters topologyplugin topologyparam grestypes schedulertype
    schedulerparameters maxnodecount defmempernode defmempercpu defmempergpu defcpupergpu
    maxmempernode maxmempercpu jobdefaults plugindir
    """
)
_KEPT_OF_NODES = _words(
    """
    nodename cpus procs boards sockets socketsperboard corespersocket threadspercore realmemory tmpdisk
    feature features gres weight topology corespeccount cpuspeclist memspeclimit restrictedcorespergpu
    """
)
_KEPT_OF_PARTITIONS = _words(
    """
    partitionname nodes default minnodes maxnodes defaulttime maxtime oversubscribe shared exclusive
    exclusiveuser exclusivetopo lln topology defmempernode defmempercpu defmempergpu defcpupergpu
    maxmempernode maxmempercpu maxcpuspernode maxcpuspersocket prioritytier priorityjobfactor priority
    selecttypeparameters jobdefaults
    """
)
# The rehearsal has its own values for these; they are not reported as left out.
_REPLACED = _words(
    """
    slurmctldhost controlmachine controladdr backupcontroller backupaddr slurmctldport slurmdport slurmuser
    slurmduser authtype authinfo authaltty authaltparameters authalttypes credtype statesavelocation
    slurmctldpidfile slurmdpidfile slurmctldlogfile slurmdlogfile slurmschedlogfile slurmctlddebug slurmddebug
    slurmdspooldir slurmctldsyslogdebug slurmdsyslogdebug slurmctldtimeout slurmdtimeout messagetimeout
    logtimeformat debugflags proctracktype taskplugin include enforcepartlimits
    """
)
# Settings that need the accounting records.
_OF_RECORDS = _words("qos allowqos denyqos allowaccounts denyaccounts accountingstorageenforce accountingstoragetres")
_REASONS = (
    (
        "programs of the site are never run in a rehearsal",
        """
        jobsubmitplugins clifilterplugins plugstackconfig prolog epilog prologslurmctld epilogslurmctld taskprolog
        taskepilog srunprolog srunepilog healthcheckprogram rebootprogram suspendprogram resumeprogram
        resumefailprogram unkillablestepprogram mailprog prepplugins prepparameters burstbuffertype
        nodefeaturesplugins
        """,
    ),
    (
        "a rehearsal has no accounting records",
        """
        qos allowqos denyqos allowaccounts denyaccounts allowgroups accountingstoragetype accountingstorageenforce
        accountingstoragehost accountingstoragetres priorityweightqos priorityweightfairshare
        """,
    ),
    (
        "in a rehearsal every tray is up and every partition open",
        "state downnodes reason suspendexcnodes suspendexcparts alternate",
    ),
    (
        "it would refuse the test jobs",
        "allocnodes reqresv rootonly disablerootjobs hidden",
    ),
    (
        "no other job runs in a rehearsal that could use them up",
        "switchtype switchparameters licenses mcsplugin mcsparameters",
    ),
)
_WHY = {word: why for why, words in _REASONS for word in words.split()}
_OTHERWISE = "not needed to place a job"


@dataclass(frozen=True)
class Derived:
    """The configuration that a rehearsal loads.

    text: its slurm.conf, without the rehearsal's own settings; files: name -> text of the topology files in the same
    folder; nodes: the names that it defines; left_out: maps of setting, where, why; added: sentences.
    """

    text: str
    files: Mapping[str, str]
    nodes: frozenset[str]
    left_out: tuple[dict[str, str], ...]
    added: tuple[str, ...]


@dataclass
class _Reading:
    """The settings gathered line by line. more: further settings to keep."""

    more: frozenset[str] = frozenset()
    settings: dict[str, tuple[str, str]] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    future: set[str] = field(default_factory=set)
    sets: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)
    left: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    spelt: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def leave(self, key: str, kind: str, of: str) -> None:
        self.spelt.setdefault(key.lower(), key)
        self.left.setdefault((key.lower(), kind), []).append(of)


def derive(
    conf_dir: str,
    writes: Mapping[str, bytes] | None = None,
    blocks: Sequence[files.Block] = (),
    topology: str = "",
    records: Sequence[Mapping[str, str]] = (),
    bare: bool = False,
    accounting: bool = False,
) -> Derived:
    """Derive the rehearsal's slurm.conf from the site's as it would be after ``writes`` (path -> new bytes).

    topology: the name for the open partition's Topology=, empty where the version has none. records: the running
    nodes (``scontrol show nodes``); those in no file (dynamic nodes) are added. bare: without any topology, to check
    whether the rest loads. accounting: with the settings that need accounting records. SlurmError where slurm.conf
    cannot be read.
    """
    changed = {os.path.realpath(path): data for path, data in (writes or {}).items()}
    read = _Reading(more=_OF_RECORDS if accounting else frozenset())
    for line in _lines(conf_dir, changed, read.problems):
        _take(line, read, bare)
    added = _dynamic(read, records, bare)
    added.append("State=CLOUD and NodeAddr=127.0.0.1 for every node: all count as idle, without a slurmd.")
    added.append("EnforcePartLimits=ALL: a job that would be pending for ever is refused at once.")
    open_partition = [] if bare else _open_partition(blocks, read.names, topology)
    if open_partition:
        added.append(f"PartitionName={OPEN_PARTITION} over all trays of all blocks, for the test jobs of the blocks.")
    if bare:
        for key in ("topologyplugin", "topologyparam"):
            read.settings.pop(key, None)
    text = [f"{name}={_quoted(value)}" for name, value in read.settings.values()]
    text += NO_DATABASE if accounting else ()
    # Before the site's, whose PartitionName=DEFAULT lines hold for all that follow.
    text += [*read.nodes, *read.sets, *open_partition, *read.partitions]
    return Derived(
        "".join(f"{line}\n" for line in text),
        {} if bare else _topologies(conf_dir, changed),
        frozenset(read.names),
        tuple(_left_out(read)),
        tuple(added),
    )


def _lines(conf_dir: str, changed: Mapping[str, bytes], problems: list[str]) -> Iterable[str]:
    """The logical lines of slurm.conf, with those of the files that it includes where it includes them."""
    main = os.path.join(conf_dir, "slurm.conf")

    def read(path: str) -> str:
        try:
            return _text(path, changed)
        except SlurmError as error:
            if path == main:
                raise
            problems.append(str(error))
            return ""

    for _file, line in syntax.conf_lines(main, read):
        if syntax.include_of(line):
            problems.append(f"{line} is nested in more than {syntax.MAX_INCLUDES} Includes and was left out.")
        else:
            yield line


def _text(path: str, changed: Mapping[str, bytes]) -> str:
    path = os.path.realpath(path)
    data = changed.get(path)
    if data is None:
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise SlurmError(f"{path} cannot be read ({error.strerror}): correct the Include or its mode.") from None
    return data.decode("utf-8", "replace")


def _take(line: str, read: _Reading, bare: bool) -> None:
    pairs = syntax.key_values(line)
    first = pairs[0][0].lower() if pairs else ""
    if first == "nodename":
        read.nodes.append(_node(pairs, read, bare))
    elif first == "partitionname":
        name = pairs[0][1]
        known = _KEPT_OF_PARTITIONS | read.more
        kept = [(key, value) for key, value in pairs if key.lower() in known]
        if bare:
            kept = [(key, value) for key, value in kept if key.lower() != "topology"]
        for key, _value in pairs:
            if key.lower() not in known:
                read.leave(key, "partition", name)
        read.partitions.append(_joined(kept))
    elif first == "nodeset":
        read.sets.append(_joined(pairs))
    elif first in ("downnodes", "frontendname", "switchname"):
        read.leave(pairs[0][0], "slurm.conf", "")
    else:
        for key, value in pairs:
            if key.lower() in _KEPT | read.more:
                read.settings[key.lower()] = (key, value)
            elif key.lower() not in _REPLACED:
                read.leave(key, "slurm.conf", "")


def _node(pairs: Sequence[tuple[str, str]], read: _Reading, bare: bool) -> str:
    """A NodeName line for a node that needs no slurmd."""
    lowered = {key.lower(): value for key, value in pairs}
    kept = [(key, value) for key, value in pairs if key.lower() in _KEPT_OF_NODES]
    if bare:
        kept = [(key, value) for key, value in kept if key.lower() != "topology"]
    known = _KEPT_OF_NODES | {"nodeaddr", "nodehostname", "port", "bcastaddr"}
    for key, _value in pairs:
        if key.lower() not in known:
            read.leave(key, "node", lowered["nodename"])
    if lowered["nodename"].upper() == "DEFAULT":
        return _joined(kept)
    # slurmctld does not count a FUTURE node either.
    state = "FUTURE" if lowered.get("state", "").upper() == "FUTURE" else "CLOUD"
    try:
        (read.names if state == "CLOUD" else read.future).update(expand(lowered["nodename"]))
    except HostlistError as error:
        read.problems.append(str(error))
    return _joined([*kept, ("NodeAddr", "127.0.0.1"), ("State", state)])


def _dynamic(read: _Reading, records: Sequence[Mapping[str, str]], bare: bool) -> list[str]:
    """Add lines for running nodes that no file defines; returns the sentences for ``added``."""
    there = read.names | read.future
    missing = [record for record in records if record.get("NodeName") and record["NodeName"] not in there]
    for record in missing:
        values = {
            "NodeName": record["NodeName"],
            "CPUs": record.get("CPUTot", ""),
            "Boards": record.get("Boards", ""),
            "Sockets": record.get("Sockets", ""),
            "CoresPerSocket": record.get("CoresPerSocket", ""),
            "ThreadsPerCore": record.get("ThreadsPerCore", ""),
            "RealMemory": record.get("RealMemory", ""),
            "Features": record.get("AvailableFeatures", ""),
            "Gres": record.get("Gres", ""),
            "Weight": record.get("Weight", ""),
            "Topology": "" if bare else record.get("Topology", ""),
            "NodeAddr": "127.0.0.1",
            "State": "CLOUD",
        }
        read.nodes.append(_joined((key, value) for key, value in values.items() if value not in ("", "(null)", "N/A")))
        read.names.add(record["NodeName"])
    if not missing:
        return []
    names = summarize((record["NodeName"] for record in missing), limit=3)
    return [f"{count(len(missing), 'running node')} without a NodeName line ({names})."]


def _open_partition(blocks: Sequence[files.Block], names: set[str], topology: str) -> list[str]:
    hostlists = []
    for block in blocks:
        known = [node for node in block.nodes if node in names]
        if known:
            hostlists.append(block.hostlist() if len(known) == len(block.nodes) else ",".join(known))
    if not hostlists:
        return []
    pairs = [("PartitionName", OPEN_PARTITION), ("Nodes", ",".join(hostlists)), ("MaxTime", "UNLIMITED")]
    return [_joined([*pairs, *([("Topology", topology)] if topology else [])])]


def _topologies(conf_dir: str, changed: Mapping[str, bytes]) -> dict[str, str]:
    found = {}
    for name in FILE_NAMES.values():
        path = os.path.join(conf_dir, name)
        if os.path.realpath(path) in changed or os.path.exists(path):
            found[name] = _text(path, changed)
    return found


def _left_out(read: _Reading) -> Iterable[dict[str, str]]:
    for (key, kind), of in sorted(read.left.items(), key=lambda item: (item[0][1], item[0][0])):
        names = sorted(set(filter(None, of)))
        where = kind
        if names:
            where = f"{kind if len(names) == 1 else count(len(names), kind)} {summarize(names, limit=3)}"
        yield {"setting": read.spelt[key], "where": where, "why": _WHY.get(key, _OTHERWISE)}
    for problem in read.problems:
        yield {"setting": "Include", "where": "slurm.conf", "why": problem}


def _joined(pairs: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{key}={_quoted(value)}" for key, value in pairs)


def _quoted(value: str) -> str:
    return f'"{value}"' if any(character.isspace() for character in value) else value


def partition_topology(version: rules.Version, style: str, name: str) -> str:
    """The Topology= of the open partition: from 25.05 on a partition chooses one of topology.yaml; else empty."""
    return name if version >= rules.YAML_SINCE and style == files.YAML else ""
