#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_tiers
short_description: Configure partitions and QoS over blocks of the fabric as tiers
version_added: 1.0.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - A tier is a partition over blocks of the fabric file, or one partition a block, with the QoS that its jobs have and
    the accounts and users that are granted it.
  - Writes the partitions into C(nvlink_partitions.conf) in the folder of C(slurm.conf), has slurmctld load it and
    compares the running partitions. QoS, accounts and grants are created in slurmdbd through sacctmgr before a
    partition names them, and removed when no partition names them any more.
  - If slurmctld refuses the partitions, the old file is restored and loaded, and the changes in slurmdbd are undone.
  - It changes only its own objects. Those are the partitions in its file, QoS with the description
    C(rackscale.nvlink tier of CLUSTER), and grants that the head of its file lists. A manual change of its own objects
    is overwritten, except the state of a partition. Accounts and users are never removed.
options:
  state:
    description:
      - V(present) applies O(tiers).
      - V(absent) removes all tiers. The partitions go with their files and their Include line, and then the QoS of
        this collection. It fails while jobs are in these partitions. Where slurmctld does not run without the files,
        all of them are restored. Only O(conf_dir), O(bin_dir) and O(timeout) have an effect.
    type: str
    choices: [present, absent]
    default: present
  tiers:
    description:
      - The tiers, required for O(state=present). Tiers of earlier runs that are not in the list are removed.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the tier and its partition; with O(tiers[].per_block) the partitions are NAME_BLOCK.
        type: str
        required: true
      blocks:
        description: The blocks of the tier. One of O(tiers[].blocks), O(tiers[].cliques) and O(tiers[].all).
        type: list
        elements: str
        default: []
      cliques:
        description: The cliques whose blocks are the tier's.
        type: list
        elements: str
        default: []
      all:
        description: Whether the tier has all blocks that have trays.
        type: bool
        default: false
      per_block:
        description:
          - Whether each block becomes its own partition, so that a job in it stays inside one clique.
          - On Slurm 24.x, where the base block size is that of the smallest clique, only this keeps a job inside one of
            the larger cliques.
        type: bool
        default: false
      default:
        description: Whether this is the default partition.
        type: bool
        default: false
      state:
        description: State of the partitions.
        type: str
        choices: [up, down, drain, inactive]
        default: up
      priority_tier:
        description:
          - C(PriorityTier). Jobs of a higher one are scheduled first, and may preempt with preempt/partition_prio.
        type: int
      min_nodes:
        description: The minimum number of nodes of a job.
        type: int
      max_nodes:
        description: The maximum number of nodes of a job.
        type: int
      default_time:
        description: Time limit of a job that requests none, in minutes, HH:MM:SS or D-HH:MM:SS.
        type: str
      max_time:
        description: The maximum time limit, in the same forms.
        type: str
      allow_groups:
        description: The Unix groups whose members may use it (AllowGroups).
        type: list
        elements: str
        default: []
      allow_accounts:
        description: The accounts that may use it (AllowAccounts).
        type: list
        elements: str
        default: []
      allow_qos:
        description: Further QoS that jobs may use here (AllowQos), in addition to the tier's own. They are not changed.
        type: list
        elements: str
        default: []
      accounts:
        description: The accounts that are granted the tier's O(tiers[].qos).
        type: list
        elements: str
        default: []
      users:
        description: Users that are granted the tier's O(tiers[].qos), each in one account.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: Name of the user.
            type: str
            required: true
          account:
            description: The account in which the user is granted it.
            type: str
            required: true
      exclusive:
        description:
          - Exclusive use of the blocks by a job (V(topo)), of the nodes by a job (V(node)) or by a user (V(user)).
          - V(topo) is C(ExclusiveTopo=YES) before Slurm 26.05 and C(Exclusive=TOPO) from it on.
        type: str
        choices: [topo, node, user]
      topology:
        description: The topology that the partition uses (Slurm 25.05 and later), instead of O(topology_name).
        type: str
      segment:
        description:
          - The policy for C(--segment), in nodes. Checked against the blocks, and enforced with O(segment_script).
        type: dict
        suboptions:
          default:
            description: The segment of a job that requests none, is larger and divisible by it.
            type: int
          max:
            description: The largest segment that a job may request.
            type: int
      options:
        description: Other settings of the partition's line, by their keys in slurm.conf.
        type: dict
        default: {}
      qos:
        description:
          - The QoS of the tier's jobs, which the partition's AllowQos permits.
          - Several tiers may share one; one of them defines it, and the others only name it.
        type: dict
        suboptions: &qos
          name:
            description: Name of the QoS. By default the tier's name, or NAME_limits for O(tiers[].partition_qos).
            type: str
          priority:
            description: Priority of its jobs, weighted with PriorityWeightQOS.
            type: int
          grp_tres:
            description: Limit of all its jobs together, as a map of resource to count, such as C(node) or C(gres/gpu).
            type: dict
          grp_tres_mins:
            description: Limit of the usage of all its jobs together, in resource-minutes.
            type: dict
          grp_tres_run_mins:
            description: Limit of the remaining usage of its running jobs, in resource-minutes.
            type: dict
          grp_jobs:
            description: Limit of running jobs.
            type: int
          grp_submit_jobs:
            description: Limit of jobs in the queue.
            type: int
          grp_wall:
            description: Limit of the wall-clock time of all its jobs together.
            type: str
          max_tres_per_job:
            description: Limit of a job.
            type: dict
          max_tres_per_node:
            description: Limit of a job on each node.
            type: dict
          max_tres_mins_per_job:
            description: Limit of the usage of a job, in resource-minutes.
            type: dict
          max_tres_per_account:
            description: Limit of an account.
            type: dict
          max_tres_per_user:
            description: Limit of a user.
            type: dict
          max_wall:
            description: The maximum time limit of a job.
            type: str
          max_jobs_per_account:
            description: Limit of running jobs of an account.
            type: int
          max_jobs_per_user:
            description: Limit of running jobs of a user.
            type: int
          max_submit_jobs_per_account:
            description: Limit of jobs of an account in the queue.
            type: int
          max_submit_jobs_per_user:
            description: Limit of jobs of a user in the queue.
            type: int
          min_tres_per_job:
            description: The minimum that a job must request.
            type: dict
          flags:
            description: Flags, such as V(DenyOnLimit) or V(OverPartQOS).
            type: list
            elements: str
          preempt:
            description: The QoS whose jobs its jobs may preempt.
            type: list
            elements: str
          preempt_mode:
            description: What happens to its jobs when they are preempted. Not V(suspend) with V(imex_owner=job), since
              a job that starts on the trays of a suspended one is then requeued.
            type: str
            choices: [cluster, cancel, requeue, suspend]
          grace_time:
            description: Seconds that a preempted job continues.
            type: int
          usage_factor:
            description: Factor of its usage for limits and fair share.
            type: float
          limit_factor:
            description: Factor of the limits of associations.
            type: float
          usage_threshold:
            description: The fair share below which it accepts no jobs.
            type: float
      partition_qos:
        description: The QoS of the partition (C(QOS=)), whose limits apply to every job in it.
        type: dict
        suboptions: *qos
  fabric_file:
    description:
      - Path of the fabric file on the Ansible controller, required for O(state=present).
    type: path
  topology_name:
    description:
      - The topology that partitions name in C(Topology=), from Slurm 25.05 on, where a topology of that name runs
        next to others.
    type: str
    default: nvlink
  create_accounts:
    description: Whether to create accounts and users that O(tiers) grant a QoS and slurmdbd does not have.
    type: bool
    default: false
  manage_conf:
    description: Whether to add the line C(Include nvlink_partitions.conf) to C(slurm.conf) where it is missing.
    type: bool
    default: false
  override:
    description:
      - Names of gates that do not object in this run. V(live_changes_lost), when a reconfigure would undo what
        operators changed with C(scontrol update), other than settings of the tiers' own partitions.
    type: list
    elements: str
    choices: [live_changes_lost]
    default: []
  segment_script:
    description:
      - Whether Slurm (25.11.2 and later) applies the policy for segments, by job_submit/lua.
      - Writes C(nvlink_segments.lua), C(job_submit.lua) where there is none, and C(JobSubmitPlugins=lua) where it is
        unset.
    type: bool
    default: false
  timeout:
    description: Seconds that one call of scontrol or sacctmgr may take, and to wait for another run on this host.
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
      - A line for every QoS, account, grant and partition that is added, changed or removed.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_topology
"""

EXAMPLES = r"""
- name: Two racks for one account with priority, all racks for everybody, preemptible
  rackscale.nvlink.slurm_tiers:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    tiers:
      - name: gold
        blocks: [r01, r02]
        exclusive: topo
        segment: {default: 16, max: 18}
        qos:
          priority: 1000
          max_tres_per_user: {node: 18}
          preempt: [bronze]
        accounts: [research]
      - name: bronze
        all: true
        qos: {priority: 10, preempt_mode: requeue}
        accounts: [research, students]

- name: Remove all tiers
  rackscale.nvlink.slurm_tiers:
    state: absent

- name: One partition a clique, for one group
  rackscale.nvlink.slurm_tiers:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    tiers:
      - name: lease
        cliques: [r03a, r03b]
        per_block: true
        allow_groups: [tenant1]
        partition_qos: {max_wall: 7-00:00:00}
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
version:
  description: The version of Slurm.
  returned: success
  type: str
  sample: 26.05.5
path:
  description: Path of the file of partitions.
  returned: success
  type: str
  sample: /etc/slurm/nvlink_partitions.conf
partitions:
  description: The partitions of the tiers, by name, with their nodes.
  returned: success
  type: dict
  sample: {gold: [r01t01, r01t02]}
changes:
  description: The changes in their order, a line each, as C(--diff) shows them.
  returned: success
  type: list
  elements: str
  sample: ["qos gold: Priority 10 -> 1000"]
written:
  description: The files that were written, or would be in check mode. The old one stays next to each as C(.previous).
  returned: success
  type: list
  elements: str
reconfigured:
  description: Whether slurmctld was reconfigured, or would be in check mode.
  returned: success
  type: bool
rehearsal:
  description:
    - The rehearsal, in the form of the result of the same name of M(rackscale.nvlink.slurm_topology); null where there
      was none. It has no QoS and accounts of O(tiers).
  returned: success
  type: dict
findings:
  description: Errors, warnings and information, each with its remedy.
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
"""
