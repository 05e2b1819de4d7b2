# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The slurm.conf of a rehearsal, derived from the site's: what decides where a job is placed.

Private to this collection; it may change in any release. Python 3.9, standard library only; reads files, writes none.

Single settings are kept by an allow list, because an unknown one may start a program or wait for a service. Lines of
nodes and partitions can do neither: they stay, but for what would make a tray or a partition refuse the test jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf, sandbox_slurmctld, scontrol, syntax

# The rehearsal's own partition: all trays of all blocks, without the site's limits.
OPEN_PARTITION = "nvlink_rehearsal"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEPT = _words(f"schedulertype schedulerparameters {sandbox_slurmctld.KEPT}")
# Every tray is up, without a slurmd.
_NOT_OF_NODES = _words("state reason nodeaddr nodehostname port bcastaddr")
# Every partition is up for the test jobs, and what needs further settings has no effect on an empty cluster.
_NOT_OF_PARTITIONS = _words(
    """
    state alternate allocnodes allowgroups reqresv rootonly disablerootjobs hidden preemptmode gracetime
    overtimelimit tresbillingweights powerdownonidle suspendtime suspendtimeout resumetimeout
    """
)
_LEFT_OUT = {"nodename": _NOT_OF_NODES, "partitionname": _NOT_OF_PARTITIONS, "nodeset": _words("")}
# What needs the accounting records.
_OF_RECORDS = _words("qos allowqos denyqos allowaccounts denyaccounts")
_OF_TOPOLOGY = frozenset(("topology", "topologyplugin", "topologyparam"))


@dataclass(frozen=True)
class Derived:
    """The configuration that a rehearsal loads.

    text: its slurm.conf, without the rehearsal's own settings; files: name -> text of the topology files in the same
    folder; nodes: the names that it defines.
    """

    text: str
    files: Mapping[str, str]
    nodes: frozenset[str]


def derive(
    conf_dir: str,
    writes: Mapping[str, bytes | None] | None = None,
    blocks: Sequence[scontrol.Block] = (),
    topology: str = "",
    records: Sequence[Mapping[str, str]] = (),
    bare: bool = False,
) -> Derived:
    """Derive the rehearsal's slurm.conf from the site's as it would be after ``writes`` (path -> new bytes).

    topology: the name for the open partition's Topology=, empty where the version has none. records: the running
    nodes (``scontrol show nodes``); those in no file (dynamic nodes) are added. bare: without any topology, to check
    whether the rest loads.
    """
    read = conf.reader(writes or {})
    without = _OF_RECORDS | (_OF_TOPOLOGY if bare else frozenset())
    given, lines = syntax.split(line for _file, line in conf.lines(conf_dir, read))
    of: dict[str, list[str]] = {"nodename": [], "nodeset": [], "partitionname": []}
    names: set[str] = set()
    future: set[str] = set()
    for line in lines:
        pairs = _but(syntax.key_values(line), without)
        first = pairs[0][0].lower()
        more: dict[str, str] = {}
        if first == "nodename":
            more, found = _state(pairs)
            (future if more.get("State") == "FUTURE" else names).update(found)
        of[first].append(_joined(_but(pairs, _LEFT_OUT[first]), more))
    for record in records:
        if record["NodeName"] not in names | future:
            of["nodename"].append(_dynamic(record, bare))
            names.add(record["NodeName"])
    text = [f"{key}={_quoted(value)}" for key, value in given.items() if key in _KEPT - without]
    # Before the site's, whose PartitionName=DEFAULT lines hold for all that follow.
    text += [*of["nodename"], *of["nodeset"], *([] if bare else _open_partition(blocks, names, topology))]
    text += of["partitionname"]
    topologies = {} if bare else conf.topologies(conf_dir, read)
    return Derived("".join(f"{line}\n" for line in text), topologies, frozenset(names))


def _state(pairs: Sequence[tuple[str, str]]) -> tuple[dict[str, str], list[str]]:
    """The settings of a node that needs no slurmd, and the names of its line; none of both for DEFAULT."""
    if pairs[0][1].upper() == "DEFAULT":
        return {}, []
    # slurmctld does not count a FUTURE node either.
    is_future = any(key.lower() == "state" and value.upper() == "FUTURE" for key, value in pairs)
    return {"NodeAddr": "127.0.0.1", "State": "FUTURE" if is_future else "CLOUD"}, scontrol.names_of(pairs[0][1])


_OF_DYNAMIC = {"CPUs": "CPUTot", "Features": "AvailableFeatures"}
# Jobs that take whole nodes do not depend on sockets and cores.
_OF_RECORD = ("NodeName", "CPUs", "RealMemory", "Features", "Gres", "Weight", "Topology")


def _dynamic(record: Mapping[str, str], bare: bool) -> str:
    """A line for a running node that no file defines."""
    values = [(key, record.get(_OF_DYNAMIC.get(key, key), "")) for key in _OF_RECORD]
    known = [pair for pair in values if pair[1] not in ("", "(null)", "N/A")]
    return _joined(_but(known, _OF_TOPOLOGY if bare else ()), {"NodeAddr": "127.0.0.1", "State": "CLOUD"})


def _open_partition(blocks: Sequence[scontrol.Block], names: set[str], topology: str) -> list[str]:
    hostlists = []
    for block in blocks:
        known = [node for node in block.nodes if node in names]
        if known:
            hostlists.append(block.hostlist() if len(known) == len(block.nodes) else ",".join(known))
    if not hostlists:
        return []
    pairs = [("PartitionName", OPEN_PARTITION), ("Nodes", ",".join(hostlists)), ("MaxTime", "UNLIMITED")]
    return [_joined(pairs, {"Topology": topology} if topology else {})]


def _but(pairs: Iterable[tuple[str, str]], keys: Collection[str]) -> list[tuple[str, str]]:
    return [(key, value) for key, value in pairs if key.lower() not in keys]


def _joined(pairs: Iterable[tuple[str, str]], more: Mapping[str, str] | None = None) -> str:
    return " ".join(f"{key}={_quoted(value)}" for key, value in (*pairs, *(more or {}).items()))


def _quoted(value: str) -> str:
    return f'"{value}"' if any(character.isspace() for character in value) else value
