#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_topology_info
short_description: Read the block topology that a slurmctld runs
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Returns the blocks that slurmctld runs, the state of its topology file, and the findings of the linter about what
    runs.
  - Reads only, through scontrol and the files beside slurm.conf. Run it on the host of slurmctld.
  - With a fabric file it also tells, for jobs of several sizes, over how many blocks Slurm may spread them, how many
    they need with the trays that work now, and which C(--segment) to use.
options:
  fabric_file:
    description:
      - Path of the fabric file on the Ansible controller, for RV(job_spans). The state file beside it tells which trays
        work; without one all do.
    type: path
  job_sizes:
    description: Sizes of jobs in nodes that RV(job_spans) has beside powers of two and multiples of the base size.
    type: list
    elements: int
    default: []
  topology_name:
    description: The topology to return where there are several. The first block topology if there is none of that name.
    type: str
    default: nvlink
  timeout:
    description: Seconds that one call of scontrol may take.
    type: float
    default: 60
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.info_module
  - rackscale.nvlink.slurm
attributes:
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_topology
"""

EXAMPLES = r"""
- name: Read the running blocks
  rackscale.nvlink.slurm_topology_info:
  register: slurm

- name: Read what jobs of 64 and 72 trays may span
  rackscale.nvlink.slurm_topology_info:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    job_sizes: [64, 72]
  register: slurm
"""

RETURN = r"""
version:
  description: The version of Slurm.
  returned: success
  type: str
  sample: 26.05.5
cluster:
  description: ClusterName as slurmctld has it.
  returned: success
  type: str
  sample: alps
plugin:
  description: TopologyPlugin as slurmctld runs it. It has no effect where there is a C(topology.yaml).
  returned: success
  type: str
  sample: topology/block
topology:
  description: The running block topology, null if none runs.
  returned: success
  type: dict
  contains:
    name:
      description: Its name, C(default) with topology.conf.
      type: str
    cluster_default:
      description: Whether partitions without C(Topology=) use it.
      type: bool
    block_sizes:
      description: The block sizes in nodes. With topology.conf those of which a block exists.
      type: list
      elements: int
    blocks:
      description: The blocks in their order.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the block.
          type: str
        nodes:
          description: Its nodes.
          type: list
          elements: str
others:
  description: Names of the other topologies that run beside it.
  returned: success
  type: list
  elements: str
file:
  description: The topology file that this version prefers, or the older one where only that is there.
  returned: success
  type: dict
  contains:
    path:
      description: Its path.
      type: str
    exists:
      description: Whether it is there.
      type: bool
    running:
      description: Whether slurmctld runs what it says, null if it cannot be read.
      type: bool
segment_max:
  description: The largest C(--segment) that Slurm accepts, null if there is no limit.
  returned: success
  type: int
job_spans:
  description: What a job may span on the idle cluster, a row for each size.
  returned: when a fabric file is given
  type: list
  elements: dict
  sample: [{nodes: 72, allowed: 4, needed: 5, starts: false, segment: 12}]
  contains:
    nodes:
      description: The job's size in nodes.
      type: int
    allowed:
      description: The number of base blocks over which Slurm may spread it without C(--segment).
      type: int
    needed:
      description: The fewest blocks that have as many working trays, null where all together have not.
      type: int
    starts:
      description: Whether Slurm finds a place for it without C(--segment). If not, it waits until trays come back.
      type: bool
    segment:
      description:
        - The largest C(--segment) with which it finds a place, so that so many nodes at a time share a clique.
        - Null where one block holds the whole job, or where no segment above 1 fits.
      type: int
findings:
  description: What is wrong, or worth knowing, each with its remedy.
  returned: always
  type: list
  elements: dict
  contains:
    code:
      description: The reason code.
      type: str
    severity:
      description: error, warning or info.
      type: str
    message:
      description: One sentence with the remedy.
      type: str
    block:
      description: The block that it is about.
      type: str
    tray:
      description: The tray that it is about.
      type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import info, programs

ARGUMENTS: dict[str, dict[str, Any]] = {
    # Taken by the action plugin, which adds job_spans.
    "fabric_file": {"type": "path"},
    "job_sizes": {"type": "list", "elements": "int", "default": []},
    "topology_name": {"type": "str", "default": "nvlink"},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "bin_dir": {"type": "path"},
    "timeout": {"type": "float", "default": 60},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    try:
        slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
        result = info.report(slurm, params["conf_dir"], params["topology_name"])
    except NvlinkError as error:
        module.fail_json(msg=str(error), findings=[])
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
