# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The path of the site's fabric file."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_path
short_description: Path of the fabric file
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Returns the variable C(fabric_file), else C(nvlink_fabric_file), which the inventory plugin
    P(rackscale.nvlink.fabric#inventory) sets, else the path of C(fabric.json) beside the only inventory file.
  - Returns an empty text without these variables where the run has several inventory sources, or one that is no file,
    or where ansible-runner started it, as AWX does, with a copy of the inventory. Set C(fabric_file) there.
options: {}
seealso:
  - plugin: rackscale.nvlink.fabric
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Draw the domain map
  rackscale.nvlink.fabric_render:
    fabric_file: "{{ lookup('rackscale.nvlink.fabric_path') }}"
    domain_map: true
"""

RETURN = r"""
_raw:
  description: The path, which may not exist yet.
  type: list
  elements: str
"""

from typing import Any

from ansible.plugins.lookup import LookupBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: Variables | None = None, **kwargs: Any) -> list[str]:
        def value(name: str) -> Any:
            return self._templar.template((variables or {}).get(name))

        return [fabric_file.path_from(value)]
