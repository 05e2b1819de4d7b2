# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source slurm: the block topology of a running cluster, so that a site's existing blocks keep names and positions.

Slurm has no clique and this source contacts no tray, so its observations are unreachable ones with only a block and a
NodeName.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.doc_fragments import source_slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import MAX_OUTPUT
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    SlurmError,
    parse_show_topology,
    parse_topoconf,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import TooManyValuesError, check_count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation, SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import NODE_NAME
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, OutageError, documented
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence, shown

SOURCE = "slurm"
OPTIONS = documented(source_slurm.ModuleDocFragment.DOCUMENTATION, SOURCE)

_NODE = re.compile(r"(?:^|\s)(NodeName|NodeHostName)=(\S+)")

Blocks = list[tuple[str, tuple[str, ...]]]
"""Block name and its nodes, in Slurm's order."""


def discover(option: Any, now: str) -> SourceResult:
    """An observation of each node in a block: its NodeName, and its block's name and position."""
    options = Options(option, OPTIONS, SOURCE)
    command, timeout = options.words("command", ["scontrol"]), options.number("timeout", 30, 0.1, 600)
    if not command:
        raise options.wrong("command", "is empty, write a command such as ssh ctl scontrol")
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
                # Slurm loads such a topology with the node in both blocks.
                twice.setdefault(node, f"{places[node][0]} and {name}")
    for node, both in twice.items():
        message = f"Slurm has node {node} in the blocks {both}; remove it from one (the first is used)."
        findings.append(finding("source_list_invalid", message))
    if unnamed:
        message = f"Slurm's blocks have the node {shown(unnamed[0])}, which is no valid tray name; correct the block."
        findings.append(finding("source_list_invalid", message))
    observations = [_observation(hosts.get(node, node), node, block, cluster, now) for node, block in places.items()]
    positions = tuple((name, position) for position, (name, _nodes) in enumerate(blocks))
    return SourceResult(observations, findings, positions)


def _observation(tray: str, node: str, block: tuple[str, int], cluster: str | None, now: str) -> Observation:
    return Observation(
        tray,
        SOURCE,
        reachable=False,
        problem=f"Slurm has it in block {block[0]} and no other source has it",
        observed_at=now,
        slurm_node=node,
        slurm_cluster=cluster,
        block=block,
    )


def _host_names(command: Sequence[str], timeout: float, findings: list[Finding]) -> dict[str, str]:
    """NodeName -> NodeHostName, of nodes whose NodeName differs from the name of their host.

    If scontrol fails, every NodeName counts as the name of its host.
    """
    argv = [*command, "-o", "show", "nodes"]
    result = _run(argv, timeout)
    if result.rc != 0:
        message = f"{SOURCE}: {_words(argv)} fails ({_why(result)}); each NodeName counts as the name of its host."
        findings.append(finding("source_failed", message))
        return {}
    rows = (dict(_NODE.findall(line)) for line in result.stdout.splitlines())
    pairs = [(row["NodeName"], row["NodeHostName"]) for row in rows if row.keys() >= {"NodeName", "NodeHostName"}]
    # Several slurmd on one host, as in tests of Slurm, are not trays.
    shared = Counter(host for _node, host in pairs)
    return {node: host for node, host in pairs if node != host and shared[host] == 1 and NODE_NAME.fullmatch(host)}


def _blocks(options: Options, command: Sequence[str], timeout: float) -> Blocks:
    """The blocks from ``show topoconf`` (25.05 and later, with empty blocks), else from ``show topology``."""
    name = options.text("topology")
    result = _run([*command, "show", "topoconf"], timeout)
    try:
        # Releases before 25.05 print "invalid entity" on standard error.
        topologies = parse_topoconf(result.stdout) if result.rc == 0 else []
        named = [row for row in topologies if row.kind == "block"]
        if name:
            named = [row for row in named if row.name == name]
        elif len(named) > 1:
            named = [row for row in named if row.cluster_default]
        if len(named) == 1:
            return [(block.name, block.nodes) for block in named[0].blocks]
        what = shown(name) if name else "that is the default or the only one"
        unknown = options.wrong("topology", f"finds no topology of blocks {what}; name one that scontrol shows")
        if topologies and (name or any(row.kind == "block" for row in topologies)):
            raise unknown
        argv = [*command, "show", "topology"]
        result = _run(argv, timeout)
        # It exits with status 0 even where slurmctld does not answer.
        if result.rc != 0 or (result.stderr.strip() and not result.stdout.strip()):
            raise OutageError(f"{SOURCE}: {_words(argv)} fails ({_why(result)}); run it by hand")
        # topology.conf has one topology, of this name.
        if name and name != "default":
            raise unknown
        shown_blocks = [(row.name, row.nodes) for row in parse_show_topology(result.stdout) if not row.aggregated]
    except SlurmError as error:
        raise OutageError(f"{SOURCE}: {str(error).rstrip('.')}") from None
    if not shown_blocks:
        raise OutageError(f"{SOURCE}: scontrol shows no block; leave this source out where no block topology runs")
    return shown_blocks


def _words(argv: Sequence[str]) -> str:
    """The command for a message; the end of a long one."""
    text = shlex.join(argv)
    return repr(text if len(text) <= 60 else f"...{text[-57:]}")


def _why(result: child.Result) -> str:
    return sentence(result.stderr or result.stdout) or f"exit status {result.rc}"


def _run(argv: Sequence[str], timeout: float) -> child.Result:
    result = child.run(argv, timeout, max_output=MAX_OUTPUT)
    words = _words(argv)
    if result.error:
        raise OutageError(f"{SOURCE}: {words} cannot be started ({sentence(result.error)}); correct command")
    try:
        check_count(result.stdout.count(",") + result.stdout.count("\n"), MAX_OUTPUT)
    except TooManyValuesError as error:
        raise OutageError(f"{SOURCE}: the answer of {words} {error}; run it by hand") from None
    if result.timed_out:
        raise OutageError(f"{SOURCE}: {words} did not answer in {timeout:g} seconds; check slurmctld, or raise timeout")
    return result
