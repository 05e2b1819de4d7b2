# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source slurm: the block topology of a running cluster, so that a site's hand-made blocks keep names and positions.

It names no clique and has asked no tray, so its observations are unreachable ones, with a block and a NodeName alone.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    SlurmError,
    parse_show_topology,
    parse_yaml,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import MAX_OUTPUT
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import NODE_NAME
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import OutageError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import SourceResult, shown
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import sentence

SOURCE = "slurm"
OPTIONS = ("command", "topology", "timeout", "slurm_cluster")

_NODE = re.compile(r"(?:^|\s)(NodeName|NodeHostName)=(\S+)")

Blocks = list[tuple[str, tuple[str, ...]]]
"""Block name and its nodes, in Slurm's order."""


def discover(option: Any, now: str) -> SourceResult:
    """An observation of each node in a block: its NodeName, and its block's name and position."""
    options = Options(option, OPTIONS, SOURCE)
    command, timeout = _command(options, option), options.number("timeout", 30, 0.1, 600)
    cluster = options.cluster("slurm_cluster")
    blocks = _blocks(options, command, timeout)
    findings: list[Finding] = []
    hosts = _host_names(command, timeout, findings)
    places: dict[str, tuple[str, int]] = {}
    unnamed: list[str] = []
    twice: dict[str, str] = {}
    for position, (name, nodes) in enumerate(blocks):
        for node in nodes:
            if not NODE_NAME.fullmatch(node):
                unnamed.append(node)
            elif places.setdefault(node, (name, position))[0] != name:
                # Slurm loads such a topology, and puts the node into both.
                twice.setdefault(node, name)
    for node, second in twice.items():
        message = f"Slurm has node {node} in the blocks {places[node][0]} and {second}; the first counts, take one out."
        findings.append(finding("tray_listed_twice", message))
    if unnamed:
        message = f"Slurm's blocks hold {shown(unnamed[0])}, which can be no tray's name; correct the block."
        findings.append(finding("trays_unnamed", message))
    seen = [_observation(hosts.get(node, node), node, block, cluster, now) for node, block in places.items()]
    return SourceResult(seen, findings, tuple((name, position) for position, (name, _nodes) in enumerate(blocks)))


def _observation(tray: str, node: str, block: tuple[str, int], cluster: str | None, now: str) -> Observation:
    return Observation(
        tray,
        SOURCE,
        reachable=False,
        problem=f"Slurm has it in block {block[0]} and no other source tells of it",
        observed_at=now,
        slurm_node=node,
        slurm_cluster=cluster,
        block=block,
    )


def _host_names(command: Sequence[str], timeout: float, findings: list[Finding]) -> dict[str, str]:
    """NodeName -> NodeHostName, of the nodes that alone are on a host of another name.

    So a tray is found that Slurm calls otherwise. Without an answer all nodes count as called like their hosts.
    """
    argv = [*command, "-o", "show", "nodes"]
    told = _ask(argv, timeout)
    if told.rc != 0:
        message = f"{SOURCE}: {_words(argv)} fails ({_why(told)}); nodes count as called like their hosts."
        findings.append(finding("source_incomplete", message))
        return {}
    said = (dict(_NODE.findall(line)) for line in told.stdout.splitlines())
    pairs = [(row["NodeName"], row["NodeHostName"]) for row in said if row.keys() >= {"NodeName", "NodeHostName"}]
    # Several slurmd on one host, as in tests of Slurm, are no trays of that name.
    shared = Counter(host for _node, host in pairs)
    return {node: host for node, host in pairs if node != host and shared[host] == 1 and NODE_NAME.fullmatch(host)}


def _command(options: Options, option: Any) -> list[str]:
    value = (option or {}).get("command", "scontrol")
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise options.wrong("command", f"cannot be split ({error}); correct its quotes") from None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise options.wrong("command", f"is {shown(value)}, write a command such as ssh ctl scontrol")
    return [str(word) for word in words]


def _blocks(options: Options, command: Sequence[str], timeout: float) -> Blocks:
    """topoconf (25.05 and later) also shows blocks without nodes, which hold a position; older ones show lines."""
    wanted = options.text("topology")
    told = _ask([*command, "show", "topoconf"], timeout)
    try:
        # It begins with %YAML; releases before 25.05 call topoconf an invalid entity, on standard error.
        topologies = parse_yaml(told.stdout) if told.rc == 0 else []
        named = [row for row in topologies if row.kind == "block"]
        if wanted:
            named = [row for row in named if row.name == wanted]
        elif len(named) > 1:
            named = [row for row in named if row.cluster_default]
        if len(named) == 1:
            return [(block.name, block.nodes) for block in named[0].blocks]
        if wanted or any(row.kind == "block" for row in topologies):
            what = shown(wanted) if wanted else "that is the default or the only one"
            raise options.wrong("topology", f"finds no topology of blocks {what}; name one that scontrol shows")
        argv = [*command, "show", "topology"]
        told = _ask(argv, timeout)
        # Without an answer of slurmctld it still exits with status 0.
        if told.rc != 0 or (told.stderr.strip() and not told.stdout.strip()):
            raise OutageError(f"{SOURCE}: {_words(argv)} fails ({_why(told)}); run it by hand")
        shown_blocks = [(row.name, row.nodes) for row in parse_show_topology(told.stdout) if not row.aggregated]
    except SlurmError as error:
        raise OutageError(f"{SOURCE}: {str(error).rstrip('.')}") from None
    if not shown_blocks:
        raise OutageError(f"{SOURCE}: scontrol shows no block; leave this source out where no block topology runs")
    return shown_blocks


def _words(argv: Sequence[str]) -> str:
    """The command for a sentence; of a long one the end, which says what was asked."""
    text = shlex.join(argv)
    return repr(text if len(text) <= 60 else f"...{text[-57:]}")


def _why(told: child.Result) -> str:
    return sentence(told.stderr or told.stdout) or f"exit status {told.rc}"


def _ask(argv: Sequence[str], timeout: float) -> child.Result:
    try:
        told = child.run(argv, timeout, max_output=MAX_OUTPUT)
    except NvlinkError as error:
        raise OutageError(f"{SOURCE}: {str(error).rstrip('.')}") from None
    words = _words(argv)
    if told.error:
        raise OutageError(f"{SOURCE}: {words} cannot be started ({sentence(told.error)}); correct command")
    if told.timed_out:
        raise OutageError(f"{SOURCE}: {words} gave no answer in {timeout:g} seconds; see slurmctld, or raise timeout")
    return told
