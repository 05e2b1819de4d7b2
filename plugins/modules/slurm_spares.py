#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_spares
short_description: Keep spare trays of each block in a reservation
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Of each block so many trays work, as 16 of 18. The others stand in the reservation C(nvlink_spare_BLOCK).
  - A tray that is drained or down is none that works, so a spare of its block is let go. When it comes back, it
    becomes the spare. Nothing but Slurm remembers who is a spare.
  - Reservations with other names are never touched.
options:
  fabric_file:
    description:
      - Path of the fabric file on the Ansible controller. The action plugin hands its blocks to the module.
      - One of O(fabric_file) and O(blocks) is required.
    type: path
  blocks:
    description: Name of a block to its NodeNames in their order, instead of a fabric file.
    type: dict
  active:
    description: How many trays of each block are to work. V(0) removes the reservations.
    type: int
    required: true
  user:
    description: Who may run jobs on spares.
    type: str
    default: root
  timeout:
    description: Seconds that one call of scontrol may take.
    type: int
    default: 60
extends_documentation_fragment:
  - rackscale.nvlink.slurm
  - rackscale.nvlink.slurm.cluster
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Let 16 trays of each rack work, and keep two as spares
  rackscale.nvlink.slurm_spares:
    fabric_file: /srv/cluster/fabric.json
    active: 16
"""

RETURN = r"""
changes:
  description: Who becomes a spare and who works, or would in check mode.
  returned: success
  type: list
  elements: str
  sample: ["nvlink_spare_r01: r01t18 works"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import spares
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm

ARGUMENTS: dict[str, dict[str, Any]] = {
    # Taken by the action plugin, which gives blocks.
    "fabric_file": {"type": "path"},
    "cluster": {"type": "str"},
    "blocks": {"type": "dict"},
    "active": {"type": "int", "required": True},
    "user": {"type": "str", "default": "root"},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "bin_dir": {"type": "path"},
    "timeout": {"type": "int", "default": 60},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS, required_one_of=[("fabric_file", "blocks")], supports_check_mode=True
    )
    params = module.params
    try:
        slurm = Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
        changes = spares.plan(slurm, params["blocks"] or {}, params["active"])
        if not module.check_mode:
            spares.apply(slurm, changes, params["user"])
    except NvlinkError as error:
        module.fail_json(msg=str(error))
    told = [spares.told(change) for change in changes]
    more = {"diff": {"prepared": "".join(f"{line}\n" for line in told)}} if module._diff and told else {}
    module.exit_json(changed=bool(changes), changes=told, **more)


if __name__ == "__main__":
    main()
