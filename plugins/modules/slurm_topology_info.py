#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_topology_info
short_description: Read the running block topology of Slurm
version_added: 1.0.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Returns the blocks that slurmctld runs, the state of its topology file, and findings about both.
  - Reads only, with scontrol and the files next to C(slurm.conf). Run it on the host of slurmctld.
  - With O(test_seconds) it also asks slurmctld, by C(sbatch --test-only), where it would place jobs. None is queued.
options:
  topology_name:
    description: The topology to return where there are several. The first block topology if none has this name.
    type: str
    default: nvlink
  owner:
    description:
      - The program that is meant to write the topology file, V(collection) for M(rackscale.nvlink.slurm_topology).
      - The finding C(slurm_topology_other_writer) names a file that the other one wrote last. Unset compares nothing.
    type: str
    choices: [collection, other]
  test_seconds:
    description:
      - Seconds in which to ask slurmctld where it would place jobs, for RV(test_jobs). 0 asks nothing.
      - The jobs are those of the user that runs the module, best root or the Slurm user. Each block is one question.
    type: float
    default: 0
  timeout:
    description: Seconds that one call of scontrol may take.
    type: float
    default: 60
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.info_module
  - rackscale.nvlink.slurmctld
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
"""

RETURN = r"""
version:
  description: Version of Slurm.
  returned: success
  type: str
  sample: 26.05.5
cluster:
  description: ClusterName of slurmctld.
  returned: success
  type: str
  sample: alps
plugin:
  description: Running TopologyPlugin. It has no effect where there is a C(topology.yaml).
  returned: success
  type: str
  sample: topology/block
topology:
  description: The running block topology, null if none runs.
  returned: success
  type: dict
  contains:
    name:
      description: Its name. Slurm calls that of a topology.conf C(default).
      type: str
    cluster_default:
      description: Whether partitions without C(Topology=) use it.
      type: bool
    block_sizes:
      description:
        - The block sizes in nodes, the base size first.
        - Where the topology.conf differs from what runs, those that a block has.
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
    left_out:
      description: The blocks that O(rackscale.nvlink.slurm_topology#module:min_block_size) has left out.
      type: list
      elements: str
others:
  description: Names of the other running topologies.
  returned: success
  type: list
  elements: str
nodes:
  description: The NodeName of each node of slurmctld, with the flags of its state and the reason for it.
  returned: success
  type: dict
  sample: {r02t03: IDLE, r02t04: "DRAIN+IDLE: RMA 4711"}
file:
  description: The topology file that this version prefers, or C(topology.conf) where only that exists.
  returned: success
  type: dict
  contains:
    path:
      description: Its path.
      type: str
    exists:
      description: Whether it exists.
      type: bool
    running:
      description: Whether slurmctld runs its content, null if it cannot be parsed.
      type: bool
segment_max:
  description: The largest C(--segment) that Slurm accepts, null if there is no limit.
  returned: success
  type: int
test_jobs:
  description: The jobs that slurmctld would not place as its blocks promise; null if no block topology runs.
  returned: when O(test_seconds) is above 0
  type: dict
  contains:
    planned:
      description: The number of questions.
      type: int
    asked:
      description: The number of questions that slurmctld answered.
      type: int
    why:
      description: Why it answered none or not all, else empty.
      type: str
    seconds:
      description: The duration.
      type: float
    left_out:
      description: The number of trays of blocks that no question names, since they are unavailable or in no partition
        that takes the job.
      type: int
    counts:
      description: The usable trays of each block in the partition of the job of all trays.
      type: list
      elements: int
    rows:
      description: A row for each such job.
      type: list
      elements: dict
      contains:
        kind:
          description:
            - V(block) for the usable trays of one block, V(segments) for segments in all blocks, V(all) for all usable
              trays.
          type: str
        partition:
          description: Its partition.
          type: str
        nodes:
          description: Its number of nodes.
          type: int
        segment:
          description: Its C(--segment), 0 without one.
          type: int
        block:
          description: The block, if it is about one.
          type: str
        outcome:
          description: V(refused), or V(spread) where segments are not whole inside the blocks.
          type: str
        reason:
          description: The answer of slurmctld, or what blocks got.
          type: str
        trays:
          description: The trays of the block that are refused alone.
          type: list
          elements: str
        placed_on:
          description: The nodes that it got, as a hostlist. Of a long one the first nodes and the number of the others.
          type: str
        rehearsed:
          description: The outcome of the same job in a rehearsal with the files of this host, empty without one.
          type: str
        predicted:
          description: Whether the rules of topology/block let it start.
          type: bool
changes:
  description: Always empty; the module changes nothing.
  returned: success
  type: list
  elements: str
findings:
  description: Errors, warnings and notes, each with its remedy.
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
      description: Name of the block, if it is about one.
      type: str
    tray:
      description: Name of the tray, if it is about one.
      type: str
"""
