# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waves of a rollout, and the trays that a person names."""

from __future__ import annotations

DOCUMENTATION = r"""
name: waves
short_description: Trays of a rollout in the order of its waves
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Plans a change of whole cliques, a canary first and then a number of NVLink domains at a time. The role
    P(rackscale.nvlink.rollout#role) runs the waves.
  - It plans for the hosts of the inventory that C(--limit) selects and that the fabric file places.
  - An option that is not given to the lookup is read from the variables of the play, or of localhost, such as those in
    C(group_vars/all.yml). Variables of any other host do not matter, since facts of a tray are among them.
  - Ansible has no host variables when it reads the first play of a playbook. So put another play before the one with
    this lookup, or set all options with C(-e).
options:
  _terms:
    description:
      - V(waves) for the waves in order, each with its C(cliques) and C(trays).
      - V(named) for the trays that O(rollout_trays) names, placed or not, without the rest of their cliques. V(nodes)
        for the Slurm node names of these, V(new) for the Slurm node names of those without a place.
    required: true
  fabric_file:
    description: The fabric file, by default as the lookup P(rackscale.nvlink.fabric_path#lookup) finds it.
    type: path
  fabric_state_dir:
    description:
      - The folder of the state file, where it is not that of the fabric file. The variables C(fabric_state_dir) or
        C(nvlink_fabric_state_dir) by default.
    type: path
  rollout_trays:
    description: Trays whose cliques are changed, as hostlists and names of cliques and domains. All by default.
    type: str
  rollout_canary:
    description: The clique that goes first. By default the first with all trays healthy at the last discover.
    type: str
  rollout_domains:
    description:
      - Number of NVLink domains in a wave, or a list of numbers of which the last repeats. V(1) by default.
    type: raw
  rollout_resume:
    description: The progress file of an earlier run. Only its cliques are changed.
    type: path
seealso:
  - module: rackscale.nvlink.rollout
"""

EXAMPLES = r"""
- name: Print the waves of the next rollout
  ansible.builtin.debug:
    msg: "{{ query('rackscale.nvlink.waves', 'waves', rollout_domains=2) }}"
"""

RETURN = r"""
_list:
  description: Names of trays or nodes, or a dictionary of each wave.
  type: list
  elements: raw
"""

import os
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.plugins.lookup import LookupBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file, waves
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import RolloutError, Wave
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import absolute, ended, shown

NAMED = ("named", "nodes", "new")
Option = Callable[[str], Any]
OPTIONS = ("rollout_trays", "rollout_canary", "rollout_domains", "rollout_resume")


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: Variables | None = None, **kwargs: Any) -> list[Any]:
        if len(terms) != 1 or terms[0] not in ("waves", *NAMED):
            raise AnsibleError(f"waves: {shown(terms)} must be one of waves, {', '.join(NAMED)}.")
        try:
            if terms[0] == "waves":
                planned = self._waves(variables or {}, kwargs)
                return [{"cliques": list(wave.cliques), "trays": list(wave.trays)} for wave in planned]
            return self._named(variables or {}, kwargs, terms[0])
        except NvlinkError as error:
            raise AnsibleError(ended(str(error))) from None

    def _reader(self, variables: Variables, given: Arguments) -> Option:
        """A function from name to value: of the lookup, else of the play or localhost, never of another host."""
        # In the keywords of a play there is no host.
        is_local = variables.get("inventory_hostname", "localhost") == "localhost"

        def option(name: str) -> Any:
            if name in given:
                return given[name]
            if name in variables and is_local:
                return self._templar.template(variables[name])
            return trust.controller_value(variables, name)

        return option

    def _fabric(self, option: Option) -> tuple[Fabric, str]:
        """(the fabric, path of its file); an empty fabric in check mode before the first file exists."""
        path = fabric_file.path_from(option)
        if not path:
            raise RolloutError("fabric_file: is not set; add -e fabric_file=PATH, the file that discover wrote")
        path = absolute(path)
        if option("ansible_check_mode") and not os.path.exists(path):
            return Fabric(), path
        return fabric_file.load(path), path

    def _named(self, variables: Variables, given: Arguments, shape: str) -> list[str]:
        option = self._reader(variables, given)
        path = absolute(fabric_file.path_from(option))
        # The first trays are named before a fabric file exists.
        fabric = fabric_file.load(path) if os.path.isfile(path) else Fabric()
        names = fabric.trays_of(str(option("rollout_trays") or ""))
        if shape == "new":
            return [name for name in names if name not in fabric.trays]
        return [
            fabric.trays[name]["slurm_node"] if shape == "nodes" and name in fabric.trays else name for name in names
        ]

    def _waves(self, variables: Variables, given: Arguments) -> list[Wave]:
        hosts = self._hosts(variables)
        if not hosts:
            return []
        option = self._reader(variables, given)
        fabric, path = self._fabric(option)
        trays, canary, domains, resume = (option(name) for name in OPTIONS)
        selected = set(hosts)
        if trays:
            # In check mode a new tray has no place yet.
            text = str(trays)
            named = fabric.trays_of(text) if option("ansible_check_mode") else waves.placed(fabric, text)
            chosen = set(waves.cliques_of(fabric, named))
            selected = {tray for tray in selected if tray in fabric.trays and fabric.trays[tray]["clique"] in chosen}
        only = waves.known_cliques(fabric, list(progress_file.read(str(resume))), str(resume)) if resume else None
        state = fabric_file.load_state(path, option("fabric_state_dir") or option("nvlink_fabric_state_dir") or None)
        return waves.plan(fabric, selected, _domain_counts(domains), str(canary or ""), only, state)

    def _hosts(self, variables: Variables) -> list[str]:
        """The hosts that --limit selects."""
        groups, limit = variables.get("groups", {}), variables.get("ansible_limit")
        if not limit:
            return list(groups.get("all", []))
        # The inventory itself is not a variable; this is the way of the lookup inventory_hostnames.
        manager = InventoryManager(self._loader, parse=False)
        for group, hosts in groups.items():
            manager.add_group(group)
            for host in hosts:
                manager.add_host(host, group=group)
        manager.subset(limit)
        return [host.name for host in manager.get_hosts("all")]


def _domain_counts(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [1 if value is None else value]
    if not all(str(size).strip().isdecimal() for size in values):
        raise RolloutError(f"rollout_domains: {shown(value)} must be whole numbers from 1, one or a list of them")
    return [int(size) for size in values]
