#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_teardown
short_description: Take blocks, tiers' partitions and spares out of an existing Slurm
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Removes, beside an existing C(slurm.conf), what the roles slurm_topology and slurm_tiers have written there, their
    C(Include) lines, and the reservations of M(rackscale.nvlink.slurm_spares). Then slurmctld reads what is left.
  - Only files that begin with a header of this collection go. In C(topology.yaml) other topologies stay.
  - Where slurmctld does not run without them, all files are put back and the module fails.
  - QoS and accounts of tiers are removed by M(rackscale.nvlink.slurm_tiers) with an empty list of tiers, before this.
options:
  topology_name:
    description: Name of the topology in C(topology.yaml).
    type: str
    default: nvlink
  timeout:
    description: Seconds that one call of scontrol may take.
    type: int
    default: 60
extends_documentation_fragment:
  - rackscale.nvlink.slurm
  - rackscale.nvlink.attributes
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
seealso:
  - module: rackscale.nvlink.slurm_topology
"""

EXAMPLES = r"""
- name: Leave Slurm as it was before
  rackscale.nvlink.slurm_teardown:
"""

RETURN = r"""
changes:
  description: What is removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: ["/etc/slurm/topology.conf: removed"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import removing, spares
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm

ARGUMENTS: dict[str, dict[str, Any]] = {
    "topology_name": {"type": "str", "default": "nvlink"},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "bin_dir": {"type": "path"},
    "timeout": {"type": "int", "default": 60},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    try:
        slurm = Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
        removal = removing.plan(params["conf_dir"], params["topology_name"])
        waiting = spares.plan(slurm, {}, 0)
        if not module.check_mode:
            spares.apply(slurm, waiting, "root")
            if removal.texts:
                removing.apply(slurm, params["conf_dir"], removal)
    except (NvlinkError, OSError) as error:
        module.fail_json(msg=str(error))
    told = [*removal.told(), *(spares.told(change) for change in waiting)]
    more = {"diff": {"prepared": "".join(f"{line}\n" for line in told)}} if module._diff and told else {}
    module.exit_json(changed=bool(told), changes=told, **more)


if __name__ == "__main__":
    main()
