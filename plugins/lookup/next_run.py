# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to run next."""

from __future__ import annotations

DOCUMENTATION = r"""
name: next_run
short_description: The sentence that names the next command
version_added: 1.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Returns the command of another playbook of this collection, as a sentence, with the inventories, the files of
    variables and the fabric file of this run's own command line. No other extra variable is in it, since it may be a
    secret.
  - In check mode the next command is the same one without C(--check).
options:
  _terms:
    description:
      - Name of the playbook, and its other arguments.
      - V(apply) is C(slurm) or C(kubernetes) as a dry run where the inventory has one of the two alone, else C(site).
    required: true
"""

EXAMPLES = r"""
- name: Print what was done, and what is next
  ansible.builtin.debug:
    msg: "2 changes.{{ lookup('rackscale.nvlink.next_run', 'verify') }}"
"""

RETURN = r"""
_raw:
  description: The sentence, with a space before it.
  type: list
  elements: str
"""

from typing import Any

from ansible.plugins.lookup import LookupBase
from ansible.utils.vars import load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import next_command


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: Variables | None = None, **_kwargs: Any) -> list[str]:
        given = variables or {}
        if terms[0] == "apply":
            kubernetes = given.get("dra_driver_shape") or given.get("k8s_topology_schedulers")
            phases = ["slurm"] * bool((given.get("groups") or {}).get("slurm_controller"))
            phases += ["kubernetes"] * bool(kubernetes) + ["imex"] * bool(given.get("imex_owner"))
            terms = [*phases, "--check", "--diff"] if phases in (["slurm"], ["kubernetes"]) else ["site"]
        return [next_command.sentence(*map(str, terms), extra=load_extra_vars(self._loader))]
