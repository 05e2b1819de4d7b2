# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the running Slurm jobs of each node from the output of squeue. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import RenderError

# Prints each job's ID, as users type it, and its nodes.
COMMAND = "squeue --noheader --states=RUNNING,COMPLETING --format='%i %N'"


def running_jobs(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Slurm node name -> its job IDs in squeue's order; RenderError quotes a line without job and nodes."""
    jobs: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, lines)):
        job, _space, nodes = line.partition(" ")
        try:
            names = hostlist.expand(nodes)
        except NvlinkError as error:
            raise RenderError(f"squeue: the line {line[:80]!r} has no list of nodes ({error})") from None
        if not names:
            raise RenderError(f"squeue: the line {line[:80]!r} has no job and nodes; use the output of {COMMAND}.")
        for name in names:
            jobs.setdefault(name, []).append(job)
    return {name: tuple(found) for name, found in jobs.items()}
