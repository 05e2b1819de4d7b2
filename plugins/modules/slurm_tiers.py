#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_tiers
short_description: Give blocks of a fabric to users as Slurm partitions with QoS
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - A tier is a partition over blocks of the fabric file, or one partition a block, with the QoS that its jobs have and
    the accounts and users that are granted it.
  - Writes the partitions into C(nvlink_partitions.conf) beside C(slurm.conf), has slurmctld load it and compares what
    runs. QoS, accounts and grants are made in slurmdbd through sacctmgr before a partition names them, and taken away
    after the last partition has ceased to.
  - If slurmctld refuses the partitions, the old file is put back and loaded, and the changes in slurmdbd are undone.
  - Changes nothing that it did not make. Partitions are its own if they stand in its file, a QoS is if its description
    is C(rackscale.nvlink tier of CLUSTER), a grant is if the head of its file notes it. Of its own objects it takes
    back every change by hand, but for the state of a partition. Accounts and users are never removed.
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
      - The tiers, required for O(state=present). All that existed before and are not in the list are removed.
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
          - Whether each block becomes a partition of its own, so that whoever uses it is inside one clique by the
            partition alone.
          - On Slurm 24.x, where the base block size is that of the smallest clique, this is what keeps a job in one of
            the larger cliques.
        type: bool
        default: false
      default:
        description: Whether jobs that name no partition go here.
        type: bool
        default: false
      state:
        description: State of the partitions.
        type: str
        choices: [up, down, drain, inactive]
        default: up
      priority_tier:
        description: Jobs of a higher PriorityTier are looked at first, and may preempt with preempt/partition_prio.
        type: int
      min_nodes:
        description: The fewest nodes of a job.
        type: int
      max_nodes:
        description: The most nodes of a job.
        type: int
      default_time:
        description: Time limit of a job that gives none, in minutes, HH:MM:SS or D-HH:MM:SS.
        type: str
      max_time:
        description: The longest time limit.
        type: str
      groups:
        description: The unix groups whose members may use it (AllowGroups).
        type: list
        elements: str
        default: []
      allow_accounts:
        description: The accounts that may use it (AllowAccounts).
        type: list
        elements: str
        default: []
      allow_qos:
        description: QoS beside the tier's own that jobs may have here. They are not changed.
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
            description: The account that the user has it in.
            type: str
            required: true
      exclusive:
        description:
          - Whether a job has its blocks (V(topo)), nodes (V(node)) or its user has the nodes (V(user)) alone.
          - V(topo) is C(ExclusiveTopo=YES) before Slurm 26.05 and C(Exclusive=TOPO) from it on.
        type: str
        choices: [topo, node, user]
      topology:
        description: The topology that the partition uses (Slurm 25.05 and later), instead of O(topology_name).
        type: str
      segment:
        description:
          - The policy for C(--segment), in nodes. Checked against the blocks, and held to with O(segment_script).
        type: dict
        suboptions:
          default:
            description: What a job gets that gives none, is larger, and divides by it.
            type: int
          maximum:
            description: The largest that is taken.
            type: int
      options:
        description: Other settings of the partition's line, as slurm.conf has them.
        type: dict
        default: {}
      qos:
        description:
          - The QoS of the tier's jobs. It is what the partition's AllowQos lets in.
          - Several tiers may share one; it is defined by one of them, and the others only name it.
        type: dict
        suboptions: &qos
          name:
            description: Name of the QoS. The tier's name, or NAME_limits for O(tiers[].partition_qos).
            type: str
          priority:
            description: Priority of its jobs, weighted with PriorityWeightQOS.
            type: int
          grp_tres:
            description: What all its jobs together may hold, as a map of resource to count, C(node) or C(gres/gpu).
            type: dict
          grp_tres_mins:
            description: What all its jobs together may use, in minutes.
            type: dict
          grp_tres_run_mins:
            description: What its running jobs may have left to use, in minutes.
            type: dict
          grp_jobs:
            description: Running jobs at once.
            type: int
          grp_submit_jobs:
            description: Jobs in the queue at once.
            type: int
          grp_wall:
            description: Wall-clock time of all its jobs.
            type: str
          max_tres_per_job:
            description: What a job may hold.
            type: dict
          max_tres_per_node:
            description: What a job may hold of a node.
            type: dict
          max_tres_mins_per_job:
            description: What a job may use, in minutes.
            type: dict
          max_tres_per_account:
            description: What an account may hold.
            type: dict
          max_tres_per_user:
            description: What a user may hold.
            type: dict
          max_wall:
            description: The longest time limit of a job.
            type: str
          max_jobs_per_account:
            description: Running jobs of an account.
            type: int
          max_jobs_per_user:
            description: Running jobs of a user.
            type: int
          max_submit_jobs_per_account:
            description: Jobs of an account in the queue.
            type: int
          max_submit_jobs_per_user:
            description: Jobs of a user in the queue.
            type: int
          min_tres_per_job:
            description: What a job must ask for at least.
            type: dict
          flags:
            description: Flags, as V(DenyOnLimit) or V(OverPartQOS).
            type: list
            elements: str
          preempt:
            description: The QoS whose jobs its jobs may preempt.
            type: list
            elements: str
          preempt_mode:
            description: What happens to its jobs when they are preempted.
            type: str
            choices: [cluster, cancel, requeue, suspend]
          grace_time:
            description: Seconds that a preempted job of it goes on.
            type: int
          usage_factor:
            description: What its usage counts against limits and fair share.
            type: float
          limit_factor:
            description: What the limits of associations are multiplied by.
            type: float
          usage_threshold:
            description: The fair share below which it takes no jobs.
            type: float
      partition_qos:
        description: A QoS of the partition itself (C(QOS=)), whose limits hold for every job in it, whoever runs it.
        type: dict
        suboptions: *qos
  fabric_file:
    description:
      - Path of the fabric file on the Ansible controller. The action plugin reads it and hands its blocks to the
        module.
      - One of O(fabric_file) and O(clusters) is required for O(state=present).
    type: path
  clusters:
    description: The blocks of each Slurm cluster, instead of a fabric file.
    type: list
    elements: dict
    suboptions:
      name:
        description: Its ClusterName. Empty for whichever runs here.
        type: str
        default: ""
      blocks:
        description: The blocks in their order.
        type: list
        elements: dict
        required: true
        suboptions:
          name:
            description: Name of the block.
            type: str
            required: true
          clique:
            description: Name of its clique.
            type: str
            default: ""
          nodes:
            description: The NodeNames of its trays.
            type: list
            elements: str
            default: []
          folded:
            description: The same as one hostlist.
            type: str
            default: ""
      hostlists:
        description: The folded hostlist of each tier's nodes.
        type: dict
        default: {}
  topology_name:
    description:
      - The topology that partitions name in C(Topology=), from Slurm 25.05 on, where a topology of that name runs
        beside others.
    type: str
    default: nvlink
  create_accounts:
    description: Whether accounts and users that O(tiers) grant a QoS are made where slurmdbd lacks them.
    type: bool
    default: false
  manage_conf:
    description: Whether to add the line C(Include nvlink_partitions.conf) to C(slurm.conf) where it is missing.
    type: bool
    default: false
  segment_script:
    description:
      - Whether Slurm holds to the policy for segments by job_submit/lua, from 25.11.2 on.
      - Writes C(nvlink_segments.lua), C(job_submit.lua) where there is none, and C(JobSubmitPlugins=lua) where it is
        unset.
    type: bool
    default: false
  timeout:
    description: Seconds that one call of scontrol or sacctmgr, or another apply, may take.
    type: int
    default: 60
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
  - rackscale.nvlink.rehearsal
  - rackscale.nvlink.slurm
  - rackscale.nvlink.slurm.cluster
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - A line for every QoS, account, grant and partition that is new, changes or goes.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_topology
"""

EXAMPLES = r"""
- name: Two racks by contract, the rest for everybody, preemptible
  rackscale.nvlink.slurm_tiers:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    tiers:
      - name: gold
        blocks: [r01, r02]
        exclusive: topo
        segment: {default: 16, maximum: 18}
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

- name: One partition a clique, for whom it is let
  rackscale.nvlink.slurm_tiers:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    tiers:
      - name: lease
        cliques: [r03a, r03b]
        per_block: true
        groups: [tenant1]
        partition_qos: {max_wall: 7-00:00:00}
"""

RETURN = r"""
version:
  description: The version of Slurm.
  returned: success
  type: str
  sample: 26.05.5
path:
  description: The file of partitions.
  returned: success
  type: str
  sample: /etc/slurm/nvlink_partitions.conf
partitions:
  description: The partitions of the tiers, by name, with their nodes.
  returned: success
  type: dict
  sample: {gold: [r01t01, r01t02]}
changes:
  description: What changes, a line each in the order in which it is done, as C(--diff) shows it.
  returned: success
  type: list
  elements: str
  sample: ["qos gold: Priority 10 -> 1000"]
written:
  description: The files that were written, or would be in check mode. The one before stays beside as C(.previous).
  returned: success
  type: list
  elements: str
reconfigured:
  description: Whether slurmctld was told to reconfigure, or would be in check mode.
  returned: success
  type: bool
rehearsal:
  description:
    - What the rehearsal showed, as the result of the same name of M(rackscale.nvlink.slurm_topology); null where none
      was to be held. QoS and accounts take no part in it.
  returned: success
  type: dict
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
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import (
    programs,
    rehearsal,
    removing,
    tier_apply,
    tier_plan,
    tiers,
    transaction,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.module_exit import Findings, run_and_exit

COUNTS = {"type": "dict"}
NUMBER = {"type": "int"}
TEXT = {"type": "str"}
FACTOR = {"type": "float"}
NAMES: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
QOS: dict[str, dict[str, Any]] = {
    "name": TEXT,
    "priority": NUMBER,
    "grp_tres": COUNTS,
    "grp_tres_mins": COUNTS,
    "grp_tres_run_mins": COUNTS,
    "grp_jobs": NUMBER,
    "grp_submit_jobs": NUMBER,
    "grp_wall": TEXT,
    "max_tres_per_job": COUNTS,
    "max_tres_per_node": COUNTS,
    "max_tres_mins_per_job": COUNTS,
    "max_tres_per_account": COUNTS,
    "max_tres_per_user": COUNTS,
    "max_wall": TEXT,
    "max_jobs_per_account": NUMBER,
    "max_jobs_per_user": NUMBER,
    "max_submit_jobs_per_account": NUMBER,
    "max_submit_jobs_per_user": NUMBER,
    "min_tres_per_job": COUNTS,
    "flags": {"type": "list", "elements": "str"},
    "preempt": {"type": "list", "elements": "str"},
    "preempt_mode": {"type": "str", "choices": ["cluster", "cancel", "requeue", "suspend"]},
    "grace_time": NUMBER,
    "usage_factor": FACTOR,
    "limit_factor": FACTOR,
    "usage_threshold": FACTOR,
}
TIER: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "blocks": NAMES,
    "cliques": NAMES,
    "all": {"type": "bool", "default": False},
    "per_block": {"type": "bool", "default": False},
    "default": {"type": "bool", "default": False},
    "state": {"type": "str", "choices": ["up", "down", "drain", "inactive"], "default": "up"},
    "priority_tier": NUMBER,
    "min_nodes": NUMBER,
    "max_nodes": NUMBER,
    "default_time": TEXT,
    "max_time": TEXT,
    "groups": NAMES,
    "allow_accounts": NAMES,
    "allow_qos": NAMES,
    "accounts": NAMES,
    "users": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"name": {"type": "str", "required": True}, "account": {"type": "str", "required": True}},
    },
    "exclusive": {"type": "str", "choices": ["topo", "node", "user"]},
    "topology": TEXT,
    "segment": {"type": "dict", "options": {"default": NUMBER, "maximum": NUMBER}},
    "options": {"type": "dict", "default": {}},
    "qos": {"type": "dict", "options": QOS},
    "partition_qos": {"type": "dict", "options": QOS},
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "tiers": {"type": "list", "elements": "dict", "options": TIER},
    "fabric_file": {"type": "path"},
    "cluster": TEXT,
    "clusters": {
        "type": "list",
        "elements": "dict",
        "options": {
            "name": {"type": "str", "default": ""},
            "blocks": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "clique": {"type": "str", "default": ""},
                    "nodes": NAMES,
                    "folded": {"type": "str", "default": ""},
                },
            },
            "hostlists": {"type": "dict", "default": {}},
        },
    },
    "topology_name": {"type": "str", "default": "nvlink"},
    "create_accounts": {"type": "bool", "default": False},
    "manage_conf": {"type": "bool", "default": False},
    "segment_script": {"type": "bool", "default": False},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "bin_dir": {"type": "path"},
    "timeout": {"type": "int", "default": 60},
    **rehearsal.OPTIONS,
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS, required_if=[("state", "present", ("tiers",))], supports_check_mode=True
    )
    if module.params["state"] == "absent":
        run_and_exit(module, remove)
    if not module.params["clusters"]:
        module.fail_json(msg="Neither fabric_file nor clusters is given: name the fabric file.", findings=[])
    run_and_exit(module, run)


def remove(module: AnsibleModule, findings: Findings) -> dict[str, Any]:
    """Remove the partitions and their files, then QoS and grants; a failure before that restores all files."""
    params = module.params
    slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
    with contextlib.nullcontext() if module.check_mode else transaction.locked(params["conf_dir"], params["timeout"]):
        plan = tier_plan.plan_removal(tier_plan.look(slurm, params["conf_dir"]))
        removal = removing.plan(params["conf_dir"], removing.TIERS)
        findings.extend(plan.findings)
        stopped = bool(plan.stopped_by())
        if not module.check_mode and not stopped:
            if removal.texts:
                removing.apply(slurm, removal, lambda: plan.problem(tier_plan.running_partitions(slurm)))
            tier_apply.apply(plan)
    changes = [*plan.difference, *removal.lines()]
    result: dict[str, Any] = {
        "changed": bool(changes) and not stopped,
        "version": plan.survey.seen.version_text,
        "path": plan.survey.path,
        "partitions": {},
        "changes": changes,
        "written": [] if stopped else sorted(removal.texts),
        "reconfigured": bool(removal.texts) and not stopped,
        "rehearsal": None,
        "findings": findings,
    }
    if module._diff and changes:
        result["diff"] = {"prepared": "".join(f"{line}\n" for line in changes)}
    return result


def run(module: AnsibleModule, findings: Findings) -> dict[str, Any]:
    """Look, plan, apply; findings are filled on the way, so that they are told even where an error ends it."""
    params = module.params
    slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
    if module.check_mode:
        plan = _plan(params, slurm)
        held = _rehearsed(plan, params)
        findings.extend(plan.findings)
    else:
        with transaction.locked(params["conf_dir"], params["timeout"]):
            plan = _plan(params, slurm)
            held = _rehearsed(plan, params)
            findings.extend(plan.findings)
            if not plan.stopped_by() and plan.changed:
                tier_apply.apply(plan)
    stopped = bool(plan.stopped_by())
    result: dict[str, Any] = {
        "changed": plan.changed and not stopped,
        "version": plan.survey.seen.version_text,
        "path": plan.survey.path,
        "partitions": {partition.name: list(partition.nodes) for partition in plan.wanted.partitions},
        "changes": plan.difference,
        "written": [] if stopped else sorted(plan.writes),
        "reconfigured": plan.reconfigure and not stopped,
        "rehearsal": None if held is None else held.result(),
        "findings": findings,
    }
    if module._diff and plan.difference:
        result["diff"] = {"prepared": "".join(f"{line}\n" for line in plan.difference)}
    return result


def _rehearsed(plan: tier_plan.TierPlan, params: Mapping[str, Any]) -> rehearsal.Rehearsal | None:
    """The rehearsal of partitions that nothing else forbids, over the blocks that run; its findings join the plan's."""
    if plan.stopped_by():
        return None
    seen = plan.survey.seen
    topology = seen.running_topology(params["topology_name"] if seen.running else "default")
    asked = {**params, "rehearse_jobs": [*params["rehearse_jobs"], *_segment_jobs(plan.wanted)]}
    held, found = rehearsal.before_apply(seen, topology, plan.writes, plan.reconfigure, asked)
    plan.findings += found
    return held


def _segment_jobs(wanted: tiers.Wanted) -> list[dict[str, Any]]:
    """A job of one or two segments in each tier that has a size for them: is there room for what it advises?"""
    jobs = []
    for partition in wanted.partitions:
        policy = wanted.segments.get(partition.name, tiers.Segment())
        size = policy.default or policy.maximum
        if size:
            nodes = size * max(min(2, len(partition.nodes) // size), 1)
            jobs.append({"nodes": nodes, "segment": size, "partition": partition.name})
    return jobs


def _plan(params: Mapping[str, Any], slurm: programs.Slurm) -> tier_plan.TierPlan:
    seen = tier_plan.look(slurm, params["conf_dir"])
    given = _cluster(params["clusters"], seen.cluster)
    blocks = tuple(Block(block["name"], tuple(block["nodes"]), block["folded"]) for block in given["blocks"])
    cliques = {block["clique"] or block["name"]: block["name"] for block in given["blocks"]}
    running = {known.name for known in seen.seen.running}
    # A cluster with one topology needs no name for it.
    topology = params["topology_name"] if params["topology_name"] in running and len(running) > 1 else ""
    wanted = tiers.build(params["tiers"], blocks, cliques, given["hostlists"], seen.seen.version, topology)
    policy = tier_plan.Policy(params["manage_conf"], params["create_accounts"], params["segment_script"])
    return tier_plan.plan(seen, wanted, blocks, policy)


def _cluster(clusters: list[dict[str, Any]], here: str) -> dict[str, Any]:
    """The blocks of the cluster that runs here; SlurmError where that is none of them."""
    found = [cluster for cluster in clusters if cluster["name"].lower() in ("", here) or len(clusters) == 1]
    if not found:
        names = ", ".join(cluster["name"] for cluster in clusters[:5])
        raise SlurmError(
            f"slurmctld's ClusterName is {here or 'not shown'}, and the fabric file's Slurm clusters are {names}: set"
            " slurm_tiers_cluster to the one that runs here."
        )
    return found[0]


if __name__ == "__main__":
    main()
