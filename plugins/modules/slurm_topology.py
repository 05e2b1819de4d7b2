#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_topology
short_description: Configure Slurm block topology from the cliques of a fabric
version_added: 1.0.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Writes one block for each clique of the fabric file, or those that it is split into, in the order of their
    positions, into C(topology.yaml) (Slurm 25.05 and later) or C(topology.conf) (24.05 and 24.11), has slurmctld load
    it and compares the running topology with the written one.
  - Before anything is written, the topology is checked against every rule of this version of Slurm. A finding of
    severity C(error) fails the module.
  - If slurmctld refuses the file, stops answering or runs another topology afterwards, the old file is restored and
    loaded, and the module fails with one sentence that names the cause and what was restored. A slurmctld that hangs is
    restarted with the old file, where systemd has its C(slurmctld.service).
  - If the file and the running topology are as desired, nothing changes. If only the running topology differs, the
    module runs C(scontrol reconfigure).
  - Jobs continue meanwhile. A job that was placed by the old blocks keeps its trays.
  - Run it on the host of slurmctld, as a user that may write next to C(slurm.conf).
options:
  state:
    description:
      - V(present) applies the blocks.
      - V(absent) removes C(topology.yaml) or C(topology.conf), C(nvlink_topology.conf) and its Include line in
        C(slurm.conf), where this collection has written them. In C(topology.yaml) other topologies stay. Where
        slurmctld does not run without them, all files are restored. Only O(topology_name), O(conf_dir), O(bin_dir) and
        O(timeout) have an effect.
    type: str
    choices: [present, absent]
    default: present
  fabric_file:
    description:
      - Path of the fabric file on the Ansible controller, whose cliques become the blocks.
      - Either O(fabric_file) or O(blocks) is required for O(state=present).
    type: path
  blocks:
    description:
      - The blocks in their order, instead of O(fabric_file).
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the block.
        type: str
        required: true
      nodes:
        description: The NodeNames of the block's trays. Empty for a placeholder.
        type: list
        elements: str
        default: []
      group:
        description: Name of a level above the block. Slurm aggregates the blocks of a group, which stand together.
        type: str
        default: ""
  block_sizes:
    description:
      - The block sizes in nodes. The first is the base block size, every other one is the base times a power of two.
      - If empty, the base block size is set, and the size of a group where the fabric file has groups of cliques. The
        base is from 25.05 on the size of the largest clique. Before, where a block below the base size is fatal, it is
        the size of the smallest clique.
    type: list
    elements: int
    default: []
  topology_name:
    description: Name of the topology in C(topology.yaml), which partitions use in C(Topology=).
    type: str
    default: nvlink
  other_topologies:
    description:
      - Further topologies in C(topology.yaml) (Slurm 25.05 and later), which partitions select with C(Topology=). Kind
        V(flat) is for nodes without GPUs, which in a block topology get only jobs that exclude all nodes of blocks.
        Kind V(tree) is the scale-out network.
      - The header of the file lists them. One that an earlier run has written and that is no longer listed here is
        removed. Any other topology of the file stays unchanged.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the topology.
        type: str
        required: true
      kind:
        description: Kind of the topology.
        type: str
        choices: [flat, tree]
        required: true
      switches:
        description: The switches of a tree.
        type: list
        elements: dict
        default: []
        suboptions:
          switch:
            description: Name of the switch.
            type: str
            required: true
          children:
            description: The switches below it, as a hostlist.
            type: str
            default: ""
          nodes:
            description: The nodes at it, as a hostlist, for a switch without children.
            type: str
            default: ""
  cluster_default:
    description:
      - Name of the topology in C(topology.yaml) that partitions without C(Topology=) use. The block topology if empty.
    type: str
    default: ""
  allow_moving_jobs:
    description:
      - Whether trays may change their block while jobs run on them whose trays are then in several blocks.
      - If V(false), such jobs fail the module.
    type: bool
    default: false
  override:
    description:
      - Names of gates that do not object in this run, each then a warning.
      - V(block_vanishes), when a running block keeps no node, other than by a new name. V(block_shrinks), when it
        keeps fewer, other than by one node that moves to another block. V(nodes_lose_block), when nodes of another
        block would be in no block.
        V(base_shrinks), before Slurm 25.05, when the smallest clique would make the base block size smaller
        than the running one.
        V(live_changes_lost), when a reconfigure would undo what operators changed with C(scontrol update).
        V(cluster_default_changes), when partitions without C(Topology=) would use another topology than now, and none
        is set as the default, or when O(manage_conf) would replace the tree of a C(topology.conf) before Slurm 25.05.
        V(block_sizes_change), when the file of the site has other block sizes, and O(block_sizes) is not set.
      - Where no blocks run yet, no gate of blocks objects. In check mode they do as in a run.
    type: list
    elements: str
    choices:
      - block_vanishes
      - block_shrinks
      - nodes_lose_block
      - base_shrinks
      - live_changes_lost
      - cluster_default_changes
      - block_sizes_change
    default: []
  min_block_size:
    description:
      - Cliques with fewer trays get no block before Slurm 25.05, where a block below the base block size is fatal and
        the smallest clique therefore limits it. Each is a warning. From 25.05 on it has no effect.
    type: int
    default: 0
  standby:
    description:
      - What to do on a standby SlurmctldHost. V(write) writes the same files, once the active controller runs them.
        V(skip) does nothing and returns RV(standby_of).
      - Run the module with V(skip) on all controllers, then with V(write). One task with V(write) on all of them nearly
        always fails on a standby, which reads what runs before the active controller has loaded it.
    type: str
    choices: [write, skip]
    default: write
  manage_conf:
    description:
      - Whether to set C(TopologyPlugin), C(SelectType), C(PrologFlags) and, where the blocks are the cluster's default
        (Slurm 25.11 and later), C(TopologyParam=BlockAsNodeRank), where C(slurm.conf) does not set them. They are
        written to the file C(nvlink_topology.conf), and C(slurm.conf) gets an Include line for it.
      - The plugin is only set together with a topology that has nodes. Before Slurm 25.05 the line of another
        C(TopologyPlugin) becomes a comment. Other lines of C(slurm.conf) are never changed, and an inconsistent one
        fails the module.
    type: bool
    default: false
  timeout:
    description: Seconds that one call of scontrol may take, that another run may hold the lock of O(conf_dir), that
      slurmctld may take to answer after a reconfigure, and to run a restored topology.
    type: float
    default: 60
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
  - rackscale.nvlink.rehearsal
  - rackscale.nvlink.slurmctld
  - rackscale.nvlink.slurmctld.cluster
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - One line for each tray that moves, each new or retired block, and each changed block size.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_topology_info
"""

EXAMPLES = r"""
- name: Show what would change
  rackscale.nvlink.slurm_topology:
    fabric_file: "{{ inventory_dir }}/fabric.json"
  check_mode: true
  diff: true

- name: Configure the blocks
  rackscale.nvlink.slurm_topology:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    block_sizes: [18, 36]

- name: Remove the blocks
  rackscale.nvlink.slurm_topology:
    state: absent
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
version:
  description: Version of Slurm.
  returned: when O(state=present)
  type: str
  sample: 26.05.5
path:
  description: Path of the topology file.
  returned: when O(state=present)
  type: str
  sample: /etc/slurm/topology.yaml
topology_name:
  description: Name of the topology. Slurm calls that of a topology.conf C(default).
  returned: success
  type: str
  sample: nvlink
block_sizes:
  description: The block sizes, chosen or given.
  returned: when O(state=present)
  type: list
  elements: int
  sample: [18]
moves:
  description: The nodes whose block changes.
  returned: when O(state=present)
  type: list
  elements: dict
  sample: [{node: r01t03, from: r01, to: r02a}]
  contains:
    node:
      description: The node.
      type: str
    from:
      description: Its old block, null if it was in none.
      type: str
    to:
      description: Its new block, null if it is in none.
      type: str
changes:
  description: What changed, or would change in check mode, one line each.
  returned: success
  type: list
  elements: str
  sample: ["r01t03: r01 -> r02a"]
written:
  description:
    - The files that were written, or would be in check mode. The previous content is kept next to each as C(.previous).
    - With O(state=absent) the files that were removed or changed.
  returned: success
  type: list
  elements: str
reconfigured:
  description: Whether slurmctld was reconfigured, or would be in check mode.
  returned: success
  type: bool
jobs:
  description: The jobs on trays that change their block.
  returned: when O(state=present)
  type: list
  elements: dict
  sample: [{job: "12", user: alice, partition: gpu, nodes: [r01t03]}]
  contains:
    job:
      description: The job ID.
      type: str
    user:
      description: Owner of the job.
      type: str
    partition:
      description: Its partition.
      type: str
    nodes:
      description: Its nodes that change their block.
      type: list
      elements: str
standby_of:
  description: The active controller, where this host is a standby, else null.
  returned: success
  type: str
rehearsal:
  description: Result of the rehearsal, null where it was not requested.
  returned: when O(state=present)
  type: dict
  contains:
    summary:
      description: The result in one sentence, which the playbooks print.
      type: str
      sample: "Rehearsal: a private slurmctld 26.05.5 loads the new files and places jobs on 2 of 2 blocks."
    ran:
      description: Whether it ran.
      type: bool
    why:
      description: Why it did not run.
      type: str
    loaded:
      description: Whether slurmctld loaded the files.
      type: bool
    fatal:
      description: The fatal message of slurmctld where it did not.
      type: str
    version:
      description: The version of slurmctld.
      type: str
    seconds:
      description: Duration in seconds.
      type: float
    complete:
      description: Whether slurmctld answered for every test job.
      type: bool
    placed:
      description: Number of test jobs that would run.
      type: int
    refused:
      description: Number of test jobs that would stay pending.
      type: int
    outcomes:
      description:
        - The test jobs. C(kind) is V(block) (on trays of C(block) alone), V(spread) (as many as a block has while no
          block has so many), V(all) (all trays), V(partition), V(past) (as those of the last weeks) or V(site).
      type: list
      elements: dict
      sample:
        - kind: block
          nodes: 18
          partition: nvlink_rehearsal
          segment: 0
          block: r01
          outcome: placed
          "on": r01t[01-18]
          blocks: [r01]
          reason: ""
          required: false
      contains:
        kind:
          description: Kind of the test job.
          type: str
        nodes:
          description: Number of trays that it requests.
          type: int
        partition:
          description: Its partition. V(nvlink_rehearsal) exists only in the rehearsal, with all blocks and no limits.
          type: str
        segment:
          description: Its C(--segment), V(0) for none.
          type: int
        block:
          description: The block that it tests, or empty.
          type: str
        outcome:
          description: placed, refused or unanswered.
          type: str
        "on":
          description: The trays that Slurm would allocate, as a hostlist. Of a long one the first trays and the number
            of the others.
          type: str
        blocks:
          description: The blocks of these trays.
          type: list
          elements: str
        reason:
          description: Why slurmctld refuses it.
          type: str
        required:
          description: Whether the site requires it to run.
          type: bool
    left_out:
      description: What the rehearsal could not consider, with the reason, such as the jobs of the last weeks.
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
