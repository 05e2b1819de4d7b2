# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node lines of a new Slurm, and what slurm.conf and gres.conf have of its trays. Pure.

The fabric file alone decides which nodes exist; their hardware comes from the trays that answered in this run and, for
all others, from the present node lines. So neither a run of one tray nor a tray that is down changes the line of
another. What all trays share (memory per CPU, IMEX channels) is the site's setting, or what most trays report: no tray
alone decides it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ansible_collections.rackscale.nvlink.plugins.module_utils import text
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster, hardware
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.hardware import Record
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.measured import Trays

T = TypeVar("T")
HEADER = "# Written by rackscale.nvlink (slurm) from the fabric file: the next run overwrites changes made here.\n"
# The driver's number of channels unless NVreg_ImexChannelCount is set.
DRIVER_CHANNELS = 2048


@dataclass(frozen=True)
class Node:
    """One tray as a Slurm node; address is empty where its name resolves. features: of its place in the fabric."""

    tray: str
    name: str
    clique: str
    gpus: int
    address: str = ""
    features: tuple[str, ...] = ()


@dataclass
class Rendered:
    """lines: the file of node lines. gpus: hostlist of nodes -> their number of GPUs. memory_per_cpu: MiB.

    channels: the number of IMEX channels.
    """

    lines: str
    gpus: dict[str, int]
    memory_per_cpu: int
    channels: int
    findings: list[Finding]


def nodes_of(
    fabric: Fabric, slurm_cluster: str | None, trays: Trays, addresses: bool = False, features: bool = False
) -> list[Node]:
    """The fabric's trays as nodes, of one Slurm cluster where several share it.

    addresses: whether a node has the tray's address. features: whether its features are the names of its NVLink domain
    and clique.
    """
    made = []
    for view in fabric.blocks(slurm_cluster):
        members = [(name, fabric.trays[name]) for name in view.trays]
        counts = {name: len(tray["gpu_uuids"]) or trays.gpus.get(name, 0) for name, tray in members}
        # Node labels and Topograph report no GPUs: all trays of a clique have the same number.
        usual = _most_common(filter(None, counts.values())) or 0
        # A domain that is one clique often has the clique's name.
        place = dict.fromkeys((fabric.cliques[view.clique]["domain"], view.clique)) if features and members else ()
        for name, tray in members:
            address = trays.addresses.get(name, "") if addresses else ""
            made.append(Node(name, tray["slurm_node"], view.clique, counts[name] or usual, address, tuple(place)))
    return made


def render(options: Arguments, nodes: Sequence[Node], trays: Trays, before: Mapping[str, str]) -> Rendered:
    """What the files of a cluster have of its trays.

    options: those of slurm_step, as the site sets them. before: the present files by name.
    SlurmError where no tray was ever measured.
    """
    old = hardware.parse_nodes(before.get(cluster.NODES, ""))
    records, findings = _records(nodes, trays.measured, old, options["memory_step"])
    settings = cluster.settings(before.get(cluster.CONF, ""))
    counts = {node: count for node, count in trays.channels.items() if node in records}
    count = options["imex_channel_count"] or _channel_count(counts.values(), len(nodes), settings)
    findings += _channel_findings(count, counts, nodes) if options["imex"] else []
    # Memory per CPU of a job that requests none: with memory as a resource, Slurm's default is all of it.
    shares = [record["RealMemory"] // record["CPUs"] for record in records.values()]
    per_cpu = _shared(shares, len(nodes), _number(settings.get("defmempercpu", "")))
    return Rendered(_lines(options, nodes, records), _gpus(nodes), per_cpu, count, findings)


def _records(
    nodes: Sequence[Node], measured: Mapping[str, Record], old: Mapping[str, Record], step: int
) -> tuple[dict[str, Record], list[Finding]]:
    names = {node.name for node in nodes}
    records = {name: record for name, record in old.items() if name in names}
    fresh = {name: record for name, record in measured.items() if name in names}
    records.update((name, hardware.stable(record, old.get(name), step)) for name, record in fresh.items())
    if nodes and not records:
        raise SlurmError("The hardware of no tray is known, from this run or before: make one tray reachable.")
    everywhere = _most_common(map(_frozen, records.values()))
    findings = []
    for clique, here in equal((node.clique, node) for node in nodes).items():
        # One tray alone does not decide for its clique.
        known = Counter(_frozen(records[node.name]) for node in here if node.name in records).most_common(1)
        usual = known[0][0] if known and known[0][1] > 1 else everywhere
        for node in here:
            if node.name not in records and usual:
                records[node.name] = dict(usual)
                message = (
                    f"The hardware of tray {node.tray} was never measured, so its clique's most common one is used: run"
                    " the role slurm again once the tray is up."
                )
                findings.append(finding("slurm_hardware_assumed", message, tray=node.tray, clique=clique))
    return records, findings


def _frozen(record: Record) -> tuple[tuple[str, int], ...]:
    return tuple((key, record[key]) for key in hardware.KEYS if key in record)


def _most_common(values: Iterable[T]) -> T | None:
    """The most common value, the first of several; None where there are no values."""
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else None


def _shared(values: Iterable[int], trays: int, before: int) -> int:
    """A value that all trays of the cluster share.

    What more than half of all trays report now, else the configured value (0: none), else the most common one: the
    smaller of several. So no run of some trays, and no tray alone, changes it for the others.
    """
    ranked = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
    value, count = ranked[0] if ranked else (0, 0)
    return value if count * 2 > trays or not before else before


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _channel_count(counts: Iterable[int], trays: int, settings: Mapping[str, str]) -> int:
    """One less than the drivers' count: Slurm never uses channel 0, and from 25.11 on uses channel N too."""
    parts = (part.partition("=") for part in settings.get("switchparameters", "").split(","))
    before = _number(next((value for key, _equals, value in parts if key == "imex_channel_count"), ""))
    return _shared([count - 1 for count in counts if count > 1], trays, before) or DRIVER_CHANNELS - 1


def _channel_findings(count: int, driver_counts: Mapping[str, int], nodes: Sequence[Node]) -> list[Finding]:
    """Slurm does not query the drivers, and its one pool serves the jobs of the whole cluster."""
    found = []
    for node in nodes:
        smallest = driver_counts.get(node.name)
        if smallest is not None and count >= smallest:
            channels = f"the channels 0 to {smallest - 1}" if smallest else "none"
            message = (
                f"imex_channel_count is {count} and the driver of tray {node.tray} has {channels}: a job with a channel"
                " above that has no IMEX there; raise its NVreg_ImexChannelCount, or lower imex_channel_count."
            )
            found.append(finding("slurm_channels_few", message, tray=node.tray, clique=node.clique))
    if count < len(nodes):
        message = (
            f"Slurm has {text.count(count, 'IMEX channel')} for {text.count(len(nodes), 'node')}, and each running job"
            " takes one: where none is left, jobs wait, or start without one before 25.11; raise"
            " NVreg_ImexChannelCount and imex_channel_count."
        )
        found.append(finding("slurm_channels_few", message))
    return found


def _lines(options: Arguments, nodes: Sequence[Node], records: Mapping[str, Record]) -> str:
    """One line for the trays of a clique that are of one kind; those with an address have their own."""
    gpu_type = f"{options['gpu_type']}:" if options["gpu_type"] else ""

    def rest(node: Node) -> str:
        keys = [f"{key}={value}" for key, value in _frozen(records[node.name])]
        if node.gpus and options["gres"] != "none":
            keys.append(f"Gres=gpu:{gpu_type}{node.gpus}")
        keys_of_site = _with_features(options["node"], node.features)
        return " ".join([*keys, *(f"{key}={_value(value)}" for key, value in keys_of_site.items())])

    lines = [HEADER]
    kinds = equal(((node.clique, bool(node.address), rest(node)), node) for node in nodes)
    for (_clique, has_address, keys), members in kinds.items():
        names = _folded(members)
        if has_address:
            # In the order of the addresses.
            addresses = ",".join(node.address for node in members)
            names = f"{','.join(node.name for node in members)} NodeAddr={addresses}"
        lines.append(f"NodeName={names} {keys}\n")
    return "".join(lines)


def _gpus(nodes: Sequence[Node]) -> dict[str, int]:
    kinds = equal(((node.clique, node.gpus), node) for node in nodes if node.gpus)
    return {_folded(members): gpus for (_clique, gpus), members in kinds.items()}


def _folded(members: Sequence[Node]) -> str:
    return fold(natural_sorted(node.name for node in members))


def _value(value: object) -> str:
    return ("YES" if value else "NO") if isinstance(value, bool) else str(value)


def _with_features(node: Mapping[str, object], features: Sequence[str]) -> Mapping[str, object]:
    """The site's keys of a node line, these features after its own. Of Feature and Features Slurm reads the first."""
    if not features:
        return node
    key = next((key for key in sorted(node, key=str.lower) if key.lower() in ("feature", "features")), "Features")
    there = [word.strip() for word in str(node.get(key, "")).split(",") if word.strip()]
    return {**node, key: ",".join(dict.fromkeys([*there, *features]))}
