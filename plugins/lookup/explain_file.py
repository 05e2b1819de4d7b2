# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of nvlink-explain that the role slurm_topology copies."""

from __future__ import annotations

DOCUMENTATION = r"""
name: explain_file
short_description: Path of a file of nvlink-explain on the Ansible controller
version_added: 1.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Returns the path of a temporary file, which is removed when the run ends. Equal options give equal files.
options:
  _terms:
    description:
      - C(program) for C(nvlink-explain), one file that needs Python 3.9 or later alone.
      - C(blocks) for the part of its summary that has each block with its clique and trays, by their names in Slurm.
    required: true
  python:
    description: The Python that runs the program.
    type: str
    default: /usr/bin/python3
  fabric_file:
    description: Path of the fabric file, for the blocks.
    type: path
  cluster:
    description: The Slurm cluster in the fabric file, where several share it.
    type: str
"""

EXAMPLES = r"""
- name: Install nvlink-explain
  ansible.builtin.copy:
    src: "{{ lookup('rackscale.nvlink.explain_file', 'program') }}"
    dest: /usr/local/bin/nvlink-explain
    mode: "0755"
"""

RETURN = r"""
_raw:
  description: The path.
  type: list
  elements: path
"""

import os
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import summary
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import probe
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: Variables | None = None, **kwargs: Any) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        path = os.path.join(constants.DEFAULT_LOCAL_TMP, f"nvlink-explain-{os.getpid()}-{terms[0]}")
        try:
            storage.write_atomic(path, self._program() if terms[0] == "program" else self._blocks())
        except NvlinkError as error:
            raise AnsibleError(ended(str(error))) from None
        return [path]

    def _program(self) -> bytes:
        return probe.program(self.get_option("python"), "explain/program")

    def _blocks(self) -> bytes:
        fabric = fabric_file.load(self.get_option("fabric_file"))
        blocks = {
            view.name: {"clique": view.clique, "trays": [fabric.trays[tray]["slurm_node"] for tray in view.trays]}
            for whole in fabric.blocks(self.get_option("cluster") or None)
            for view in fabric.parts(whole)
        }
        return fabric_file.encode({"schema_version": summary.SCHEMA_VERSION, "blocks": blocks})
