# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source slurm: the block topology of a running cluster, so that a site's hand-made blocks keep names and positions.

It names no clique and has asked no tray, so its observations are unreachable ones that only carry a block.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    SlurmError,
    parse_show_topology,
    parse_yaml,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric_file import NODE_NAME
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.merging import OutageError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.model import Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import shown
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import sentence

SOURCE = "slurm"

Blocks = list[tuple[str, tuple[str, ...]]]
"""Block name and its nodes, in Slurm's order."""


def discover(option: Any, now: str) -> list[Observation]:
    """An observation of each node in a block: its block's name and position."""
    options = Options(option, ("command", "topology", "timeout"), SOURCE)
    command, timeout = _command(options, option), options.number("timeout", 30, 0.1, 600)
    seen: dict[str, Observation] = {}
    for position, (name, nodes) in enumerate(_blocks(options, command, timeout)):
        for node in nodes:
            if NODE_NAME.fullmatch(node):
                # Slurm lets a node stand in one block only; a topology under way may show two.
                seen.setdefault(node, _observation(node, (name, position), now))
    return list(seen.values())


def _observation(node: str, block: tuple[str, int], now: str) -> Observation:
    return Observation(
        node,
        SOURCE,
        reachable=False,
        problem=f"Slurm has it in block {block[0]} and no other source tells of it",
        observed_at=now,
        slurm_node=node,
        block=block,
    )


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
        if told.rc == 0 and told.stdout.lstrip().startswith(("-", "#")):
            topologies = [row for row in parse_yaml(told.stdout) if row.kind == "block"]
            if wanted:
                topologies = [row for row in topologies if row.name == wanted]
            elif len(topologies) > 1:
                topologies = [row for row in topologies if row.cluster_default]
            if len(topologies) != 1:
                what = shown(wanted) if wanted else "that is the default or the only one"
                raise options.wrong("topology", f"finds no topology of blocks {what}; name one that scontrol shows")
            return [(block.name, block.nodes) for block in topologies[0].blocks]
        argv = [*command, "show", "topology"]
        told = _ask(argv, timeout)
        if told.rc != 0:
            why = sentence(told.stderr or told.stdout) or f"exit status {told.rc}"
            raise OutageError(f"{SOURCE}: {shown(shlex.join(argv))} fails ({why}); run it by hand")
        shown_blocks = [(row.name, row.nodes) for row in parse_show_topology(told.stdout) if not row.aggregated]
    except SlurmError as error:
        raise OutageError(f"{SOURCE}: {str(error).rstrip('.')}") from None
    if not shown_blocks:
        raise OutageError(f"{SOURCE}: scontrol shows no block; leave this source out where no block topology runs")
    return shown_blocks


def _ask(argv: Sequence[str], timeout: float) -> child.Result:
    try:
        told = child.run(argv, timeout)
    except NvlinkError as error:
        raise OutageError(f"{SOURCE}: {str(error).rstrip('.')}") from None
    words = shown(shlex.join(argv))
    if told.error:
        raise OutageError(f"{SOURCE}: {words} cannot be started ({sentence(told.error)}); correct command")
    if told.timed_out:
        raise OutageError(f"{SOURCE}: {words} gave no answer in {timeout:g} seconds; see slurmctld, or raise timeout")
    return told
