# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The waves of a rollout, for the keywords hosts and serial of its play."""

from __future__ import annotations

DOCUMENTATION = r"""
name: waves
short_description: The trays of a rollout in the order of its waves
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Gives the keywords C(hosts) and C(serial) of a play what they need, so that the play changes whole cliques, a canary
    first and then so many racks at a time.
  - It plans for those hosts of the inventory that C(--limit) leaves and that have a place in the fabric file.
  - Where a variable is not given to the lookup, it is taken from the variables of the first such host, so that it may
    stand in C(group_vars).
options:
  _terms:
    description:
      - V(trays) for the names of the trays in their order, V(sizes) for the number of trays in each wave, V(cliques)
        for the names of each wave's cliques.
    required: true
  fabric_file:
    description: The fabric file. The variables C(fabric_file) or C(nvlink_fabric_file) by default.
    type: path
  rollout_trays:
    description: The trays whose cliques are changed, as hostlists and names of cliques and domains. All by default.
    type: str
  rollout_canary:
    description: The clique that goes first. By default the first whose trays were all well when last seen.
    type: str
  rollout_racks:
    description:
      - How many NVLink domains go at a time, a number or a list of which the last one repeats. V(1) by default.
    type: raw
  rollout_resume:
    description: The file that an earlier run has left. Only what stands in it is changed.
    type: path
seealso:
  - module: rackscale.nvlink.rollout
"""

EXAMPLES = r"""
- name: Change something clique by clique
  hosts: "{{ query('rackscale.nvlink.waves', 'trays') or 'all:!all' }}"
  serial: "{{ query('rackscale.nvlink.waves', 'sizes') or 1 }}"
  gather_facts: false
  tasks: []
"""

RETURN = r"""
_list:
  description: Names of trays, numbers, or lists of names of cliques.
  type: list
  elements: raw
"""

import os
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress, waves
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import RolloutError, Wave
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import shown

OPTIONS = ("rollout_trays", "rollout_canary", "rollout_racks", "rollout_resume")


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        shapes = {
            "trays": lambda wave: list(wave.trays),
            "sizes": lambda wave: [len(wave.trays)],
            "cliques": lambda wave: [list(wave.cliques)],
        }
        if len(terms) != 1 or terms[0] not in shapes:
            raise AnsibleError(f"waves: {shown(terms)} must be one of trays, sizes and cliques.")
        try:
            planned = self._waves(variables or {}, kwargs)
        except NvlinkError as error:
            raise AnsibleError(f"{str(error).rstrip('.')}.") from None
        return [entry for wave in planned for entry in shapes[terms[0]](wave)]

    def _waves(self, variables: Mapping[str, Any], given: Mapping[str, Any]) -> list[Wave]:
        # A play whose hosts are a template has all hosts here that --limit leaves.
        hosts = list(variables.get("ansible_play_hosts_all") or variables.get("groups", {}).get("all", []))
        told = _variables(variables, hosts)
        path = given.get("fabric_file") or told("fabric_file") or told("nvlink_fabric_file")
        if not hosts:
            return []
        if not path:
            raise RolloutError("fabric_file: is not set; add -e fabric_file=PATH, the file that discover wrote")
        path = self._loader.path_dwim(str(path))
        if told("ansible_check_mode") and not os.path.exists(path):
            # On a new site --check of the whole way comes here before anything was accepted.
            return []
        fabric = fabric_file.load(path)
        trays, canary, racks, resume = (given.get(name) or told(name) for name in OPTIONS)
        addressed = set(hosts)
        if trays:
            chosen = set(waves.cliques_of(fabric, waves.trays_of(fabric, str(trays))))
            addressed = {tray for tray in addressed if tray in fabric.trays and fabric.trays[tray]["clique"] in chosen}
        only = waves.known_cliques(fabric, list(progress.read(str(resume))), str(resume)) if resume else None
        state = fabric_file.load_state(path)
        return waves.plan(fabric, addressed, _racks(racks), str(canary or ""), only, state)


def _variables(variables: Mapping[str, Any], hosts: list[str]) -> Any:
    """What a play's own variables lack, as group_vars, its first host knows."""

    def told(name: str) -> Any:
        if name in variables:
            return variables[name]
        return variables["hostvars"][hosts[0]].get(name) if hosts and "hostvars" in variables else None

    return told


def _racks(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [1 if value is None else value]
    if not all(str(size).strip().isdecimal() for size in values):
        raise RolloutError(f"rollout_racks: {shown(value)} must be whole numbers from 1, one or a list of them")
    return [int(size) for size in values]
