# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a rollout, from what a person gave and the fabric file, with all that a person may have named wrongly."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import acknowledging, fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import open_changes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file, record, waves
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.record import Record
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import RolloutError, Wave
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

# The play that changes the trays has them from this group, which the role fills.
GROUP = "nvlink_rollout"
PARTITION = "partition"


def plan(
    options: Arguments, groups: Mapping[str, Sequence[str]], hosts: Sequence[str], now: str, check_mode: bool
) -> tuple[Record, dict[str, Any]]:
    """(the record of a new run; the result of the state `planned`). hosts: those that --limit selects."""
    rollout, settings = progress_file.check_name(options["rollout"] or ""), options["settings"]
    steps = settings.get("steps")
    if not steps:
        hint = nearest(rollout, options["known"])
        raise RolloutError(f"rollout_name: {shown(rollout)} has no steps of its own, nor is rollout_steps set{hint}")
    if rollout == PARTITION and not options["trays"]:
        raise RolloutError("rollout partition: it has no trays; run the playbook partition, which names them")
    if "hook" in steps:
        settings["hook"] = _hook(str(settings.get("hook") or ""))
    path = fabric_file.required(options["fabric_file"])
    # In check mode there may be no fabric file yet.
    fabric = Fabric() if check_mode and not os.path.exists(path) else fabric_file.load(path)
    if {"drain", "resume"} & set(steps):
        controller = str(settings.get("slurm_controller") or "")
        waves.check_controller(controller, (*fabric.trays, *groups.get("nvlink", ())))
    planned = _waves(options, fabric, hosts, check_mode)
    if not planned and not options["allow_empty"]:
        raise RolloutError(
            f"rollout {rollout}: no tray that the fabric file places is in this run, so there is nothing to"
            " change; check --limit, the inventory and the fabric file"
        )
    trays = [tray for wave in planned for members in wave.values() for tray in members]
    # That of the playbook partition is a step of the change.
    changing = {} if rollout == PARTITION else open_changes.sentences(path, options["state_dir"])
    for clique in {fabric.trays[tray]["clique"] for tray in trays} if changing else ():
        if why := changing.get(fabric.cliques[clique]["domain"]):
            raise RolloutError(f"rollout {rollout}: {why}, or leave its trays out with --limit")
    earlier = groups.get(GROUP)
    # Ansible removes no host from a group, and the order of the group is that of the waves.
    if earlier and list(earlier) != trays:
        raise RolloutError(
            f"rollout {rollout}: this run has a rollout of other trays already; run this one by a command of its own"
        )
    # The other trays of their cliques stay drained as a person or another playbook has drained them.
    settings["any_reason"] = (
        sorted(fabric.trays_of(options["trays"] or "") or trays) if settings.get("any_reason") else []
    )
    # A person names trays by one of both; a run that continues an earlier one has to finish all that it left.
    named = options["trays"] or len(hosts) < len(groups.get("all", ()))
    settings["others_may_wait"] = bool(named and not options["resume"])
    given = options["progress_file"]
    file = absolute(given) if given else progress_file.default_path(path, rollout)
    settings["acknowledged"] = sorted(acknowledging.current(path, options["state_dir"], now))
    settings["files"] = [path, options["state_dir"]]
    made = record.new(fabric, planned, file, options["stop_after"])
    sizes = [sum(map(len, wave.values())) for wave in planned]
    return made, {"rollout": rollout, "settings": settings, "trays": trays, "sizes": sizes, "cliques": made.waves}


def _waves(options: Arguments, fabric: Fabric, hosts: Sequence[str], check_mode: bool) -> list[Wave]:
    only = set(fabric.cliques)
    if options["trays"]:
        only = waves.cliques_of(fabric, options["trays"], check=not check_mode)
    if options["resume"]:
        unfinished = progress_file.read(options["resume"])
        waves.check_names(unfinished, fabric.cliques, options["resume"], "clique")
        only &= unfinished.keys()
    state = fabric_file.load_state(options["fabric_file"], options["state_dir"])
    return waves.plan(fabric, hosts, only, options["domains"], options["canary"], state)


def _hook(given: str) -> str:
    """The absolute path of the hook; RolloutError where it is no file."""
    path = absolute(given)
    if not os.path.isfile(path):
        what = f"{shown(given)} is no file" if given else "is not set"
        raise RolloutError(f"rollout_hook: {what}; set it to a file with tasks for one tray")
    return path
