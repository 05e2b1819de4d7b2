# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The trays that a person names."""

from __future__ import annotations

DOCUMENTATION = r"""
name: trays
short_description: Trays that hostlists, cliques and domains name
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Returns the trays of hostlists and of names of cliques and domains of the fabric file. Any other name is that of a
    new tray.
  - The fabric file is found as by the lookup P(rackscale.nvlink.fabric_path#lookup), with the variables of the play or
    of localhost. Variables of any other host do not matter, since facts of a tray are among them.
options:
  _terms:
    description: Texts such as V(r01t[01-04],r02), or lists of these.
    required: true
  result:
    description:
      - V(trays) for their names, V(nodes) for their node names in Slurm, V(new_nodes) for those of trays without a
        place.
    type: str
    choices: [trays, nodes, new_nodes]
    default: trays
"""

EXAMPLES = r"""
- name: Print the Slurm nodes of two trays
  ansible.builtin.debug:
    msg: "{{ query('rackscale.nvlink.trays', 'r01t[01-02]', result='nodes') }}"
"""

RETURN = r"""
_list:
  description: Names of trays or nodes.
  type: list
  elements: str
"""

import os
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: Variables | None = None, **kwargs: Any) -> list[str]:
        self.set_options(direct=kwargs)
        given = variables or {}
        # In the keywords of a play there is no host.
        is_local = given.get("inventory_hostname", "localhost") == "localhost"

        def value(name: str) -> Any:
            if name in given and is_local:
                return self._templar.template(given[name])
            return trust.controller_value(given, name)

        texts = [str(text) for term in terms for text in (term if isinstance(term, list) else [term])]
        result = self.get_option("result")
        try:
            path = absolute(fabric_file.path_from(value))
            # The first trays are named before a fabric file exists.
            fabric = fabric_file.load(path) if os.path.isfile(path) else Fabric()
            names = fabric.trays_of(",".join(texts))
        except NvlinkError as error:
            raise AnsibleError(ended(str(error))) from None
        if result == "new_nodes":
            return [name for name in names if name not in fabric.trays]
        if result == "nodes":
            return [fabric.trays[name]["slurm_node"] if name in fabric.trays else name for name in names]
        return names
