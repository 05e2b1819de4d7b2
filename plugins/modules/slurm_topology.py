#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_topology
short_description: Give the cliques of a fabric to a running slurmctld as topology blocks
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Writes one block for each clique of the fabric file, in the order of their positions, into C(topology.yaml) (Slurm
    25.05 and later) or C(topology.conf) (24.05 and 24.11), has slurmctld load it and compares what runs with what was
    written.
  - Before anything is written, every rule that this version of Slurm has for such a file is checked. A finding of
    severity C(error) stops the module.
  - If slurmctld refuses the file, stops answering or runs something else afterwards, the old file is put back and
    loaded, and the module fails with one sentence that says what failed and what was restored.
  - If file and running topology are already right, nothing is touched. If only the running one is not, slurmctld is
    told to reconfigure.
  - Jobs go on running meanwhile. A job that was placed by the old blocks stays where it is.
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
      - Exactly one of O(fabric_file), O(blocks) and O(clusters) is required for O(state=present).
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
        description: The NodeNames of the block's trays, one by one. Empty for a placeholder.
        type: list
        elements: str
        default: []
      folded:
        description: The same nodes as one hostlist, to be written into the file. Empty to list them one by one.
        type: str
        default: ""
  clusters:
    description:
      - The blocks of several Slurm clusters, instead of O(fabric_file). The module applies those of the cluster whose
        name is slurmctld's ClusterName.
    type: list
    elements: dict
    suboptions:
      name:
        description: The ClusterName.
        type: str
        required: true
      blocks:
        description: As O(blocks).
        type: list
        elements: dict
        required: true
        suboptions:
          name:
            description: Name of the block.
            type: str
            required: true
          nodes:
            description: The NodeNames of the block's trays, one by one.
            type: list
            elements: str
            default: []
          folded:
            description: The same nodes as one hostlist.
            type: str
            default: ""
  block_sizes:
    description:
      - The block sizes in nodes, the base size first, every other one a power of two times the base.
      - Chosen from the fabric file if empty. From 25.05 on it is the size of the largest clique. Before, where a
        block below the base size is fatal, it is the size of the smallest clique.
    type: list
    elements: int
    default: []
  topology_name:
    description: Name of the topology in C(topology.yaml), as partitions write it in C(Topology=). No other topology
      there is touched.
    type: str
    default: nvlink
  format:
    description:
      - The file to write. V(yaml) is C(topology.yaml), V(conf) is C(topology.conf).
      - V(auto) takes what the version of Slurm prefers.
    type: str
    choices: [auto, yaml, conf]
    default: auto
  other_topologies:
    description:
      - Topologies beside that of the blocks, in C(topology.yaml) (Slurm 25.05 and later), as partitions choose them
        with C(Topology=). One of kind V(flat) is for nodes without GPUs, which a block topology gives no job. One of
        kind V(tree) is the scale-out network.
      - The file's head names those of the list. One that an earlier run has made and the list no longer has is removed.
        Any other topology of the file stays as it is.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Its name.
        type: str
        required: true
      kind:
        description: Its kind.
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
            description: The nodes at it, as a hostlist. Only a switch without children has some.
            type: str
            default: ""
      leaf_variable:
        description:
          - Instead of O(other_topologies[].switches), the host variable that names a tray's leaf switch, as
            C(nvlink_leaf_switch). The action plugin makes the tree of it.
        type: str
      spine_variable:
        description:
          - The host variable that names the spine switch above the leaf. Without it one switch joins all leaves.
        type: str
  cluster_default:
    description:
      - Name of the topology that partitions without C(Topology=) use, in C(topology.yaml). That of the blocks if
        empty.
    type: str
    default: ""
  allow_moving_jobs:
    description:
      - Whether trays may change their block while jobs run on them. The jobs run on where they are, but the nodes of
        one may then stand in several blocks.
      - If V(false), such jobs stop the module.
    type: bool
    default: false
  live_update:
    description:
      - Whether one tray that moves between two blocks, with nothing else changed, goes by C(scontrol update) (Slurm
        25.05 and later) rather than by a reconfigure. The file is written too.
      - Until the next reconfigure slurmd then tells the jobs on that tray its old place in C(SLURM_TOPOLOGY_ADDR).
    type: bool
    default: true
  standby:
    description:
      - What to do on a SlurmctldHost that stands by for the one in charge. With V(write) it gets the same files, once
        the one in charge runs them. With V(skip) nothing is done there, and RV(standby_of) says so.
      - For controllers without a shared folder run the module with V(skip) on all of them, then with V(write).
    type: str
    choices: [write, skip]
    default: write
  manage_conf:
    description:
      - Whether to set what C(slurm.conf) leaves unset of C(TopologyPlugin), C(SelectType) and C(PrologFlags), and of
        C(TopologyParam=BlockAsNodeRank) where the blocks are the cluster's default (Slurm 25.11 and later), in the
        file C(nvlink_topology.conf) that C(slurm.conf) then includes.
      - The plugin is only set together with a topology that has nodes. Lines of C(slurm.conf) itself are never
        changed, and one that contradicts stops the module.
    type: bool
    default: false
  segments:
    description: Values of C(--segment) that jobs use. Each is checked against what Slurm accepts with these blocks.
    type: list
    elements: int
    default: []
  timeout:
    description: Seconds that one call of scontrol may take, that another run may hold the lock of O(conf_dir), and that
      slurmctld may take to run a restored topology.
    type: float
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
      - A line for every tray that moves, every block that is new or retired, and every size that changes.
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

- name: Give the blocks to Slurm
  rackscale.nvlink.slurm_topology:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    block_sizes: [18, 36]

- name: Remove the blocks
  rackscale.nvlink.slurm_topology:
    state: absent
"""

RETURN = r"""
version:
  description: The version of Slurm.
  returned: when O(state=present)
  type: str
  sample: 26.05.5
path:
  description: The topology file.
  returned: when O(state=present)
  type: str
  sample: /etc/slurm/topology.yaml
topology_name:
  description: The name of the topology, C(default) with topology.conf.
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
      description: The block that it leaves, null if it was in none.
      type: str
    to:
      description: The block that it comes to, null if it comes to none.
      type: str
changes:
  description: What changes, a line each, as C(--diff) shows it.
  returned: success
  type: list
  elements: str
  sample: ["r01t03: r01 -> r02a"]
written:
  description: The files that were written, or would be in check mode. The one before stays beside each as C(.previous).
  returned: success
  type: list
  elements: str
reconfigured:
  description: Whether slurmctld was told to reconfigure, or would be in check mode.
  returned: success
  type: bool
live:
  description: The node that was moved without a reconfigure, or would be in check mode, else null.
  returned: success
  type: str
jobs:
  description: The jobs on trays that change their block.
  returned: success
  type: list
  elements: dict
  sample: [{job: "12", user: alice, partition: gpu, nodes: [r01t03]}]
  contains:
    job:
      description: The job's number.
      type: str
    user:
      description: Whose job it is.
      type: str
    partition:
      description: Its partition.
      type: str
    nodes:
      description: Its nodes that change their block.
      type: list
      elements: str
standby_of:
  description: The controller in charge, where this host stands by for it, else null.
  returned: success
  type: str
rehearsal:
  description: What the rehearsal showed, null where none was to be held.
  returned: success
  type: dict
  contains:
    ran:
      description: Whether it could be held.
      type: bool
    why:
      description: Why it could not.
      type: str
    loaded:
      description: Whether slurmctld took the files.
      type: bool
    fatal:
      description: Its words where it did not.
      type: str
    version:
      description: The version of slurmctld.
      type: str
    seconds:
      description: How long it took.
      type: float
    complete:
      description: Whether every test job was answered.
      type: bool
    placed:
      description: How many test jobs would run.
      type: int
    refused:
      description: How many would wait for ever.
      type: int
    outcomes:
      description:
        - The test jobs. C(kind) is V(block) (on trays of C(block) alone), V(larger) (one tray more than a block has),
          V(spread) (as many as a block has while no block has so many), V(partition) or V(site).
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
          user: ""
      contains:
        kind:
          description: What the job asks.
          type: str
        nodes:
          description: How many trays it wants.
          type: int
        partition:
          description: Its partition. V(nvlink_rehearsal) is one of the rehearsal alone, over all blocks and unlimited.
          type: str
        segment:
          description: Its segment, V(0) for none.
          type: int
        block:
          description: The block that it is about, or empty.
          type: str
        outcome:
          description: placed, refused or unanswered.
          type: str
        "on":
          description: The trays that it would get, as a hostlist.
          type: str
        blocks:
          description: The blocks that they are in.
          type: list
          elements: str
        reason:
          description: Why slurmctld refuses it.
          type: str
        required:
          description: Whether the site requires it to run.
          type: bool
        user:
          description: Whose job it is, empty where it meets no accounting records.
          type: str
    left_out:
      description: What the rehearsal left out of the site's settings, so that nobody takes it for more than it is.
      type: list
      elements: dict
      contains:
        setting:
          description: The setting.
          type: str
        where:
          description: Where it stands.
          type: str
        why:
          description: Why it was left out.
          type: str
    added:
      description: What the rehearsal added to them.
      type: list
      elements: str
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

import contextlib
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import (
    applying,
    planning,
    programs,
    rehearsal,
    removing,
    surveying,
    transaction,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.module_exit import Findings, run_and_exit

BLOCK: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "folded": {"type": "str", "default": ""},
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "fabric_file": {"type": "path"},
    "cluster": {"type": "str"},
    "blocks": {"type": "list", "elements": "dict", "options": BLOCK},
    "clusters": {
        "type": "list",
        "elements": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "blocks": {"type": "list", "elements": "dict", "required": True, "options": BLOCK},
        },
    },
    "block_sizes": {"type": "list", "elements": "int", "default": []},
    "topology_name": {"type": "str", "default": "nvlink"},
    "format": {"type": "str", "choices": ["auto", "yaml", "conf"], "default": "auto"},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "bin_dir": {"type": "path"},
    "other_topologies": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "kind": {"type": "str", "choices": ["flat", "tree"], "required": True},
            "switches": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "switch": {"type": "str", "required": True},
                    "children": {"type": "str", "default": ""},
                    "nodes": {"type": "str", "default": ""},
                },
            },
            "leaf_variable": {"type": "str"},
            "spine_variable": {"type": "str"},
        },
    },
    "cluster_default": {"type": "str", "default": ""},
    "allow_moving_jobs": {"type": "bool", "default": False},
    "live_update": {"type": "bool", "default": True},
    "standby": {"type": "str", "choices": ["write", "skip"], "default": "write"},
    "manage_conf": {"type": "bool", "default": False},
    "segments": {"type": "list", "elements": "int", "default": []},
    "timeout": {"type": "float", "default": 60},
    **rehearsal.OPTIONS,
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if module.params["state"] == "absent":
        run_and_exit(module, remove)
    if module.params["blocks"] is None and not module.params["clusters"]:
        module.fail_json(msg="slurm_topology has no blocks: name the fabric file.", findings=[])
    run_and_exit(module, run)


def remove(module: AnsibleModule, _findings: Findings) -> dict[str, Any]:
    """Remove the files of the topology; a failure restores all of them."""
    params = module.params
    slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
    with contextlib.nullcontext() if module.check_mode else transaction.locked(params["conf_dir"], params["timeout"]):
        removal = removing.plan(params["conf_dir"], removing.TOPOLOGY, params["topology_name"])
        if removal.texts and not module.check_mode:
            removing.apply(slurm, removal)
    changes = removal.lines()
    result: dict[str, Any] = {
        "changed": bool(changes),
        "topology_name": params["topology_name"],
        "changes": changes,
        "written": sorted(removal.texts),
        "reconfigured": bool(changes),
        "standby_of": None,
        "findings": [],
    }
    if module._diff and changes:
        result["diff"] = {"prepared": "".join(f"{line}\n" for line in changes)}
    return result


def run(module: AnsibleModule, findings: Findings) -> dict[str, Any]:
    """Survey, plan, apply; findings are filled on the way, so that they are told even where an error ends it."""
    params = module.params
    slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
    wish = planning.DesiredState(
        blocks=tuple(Block(block["name"], tuple(block["nodes"]), block["folded"]) for block in _blocks(params, slurm)),
        block_sizes=tuple(params["block_sizes"]),
        name=params["topology_name"],
        manage_conf=params["manage_conf"],
        segments=tuple(params["segments"]),
        others=tuple(_other(entry) for entry in params["other_topologies"]),
        cluster_default=params["cluster_default"],
        allow_moving_jobs=params["allow_moving_jobs"],
        live_update=params["live_update"],
    )
    if module.check_mode:
        plan = planning.plan(surveying.survey(slurm, params["conf_dir"], params["format"]), wish)
        held = _rehearsed(plan, params)
        findings.extend(plan.findings)
    else:
        with transaction.locked(params["conf_dir"], params["timeout"]):
            plan = planning.plan(surveying.survey(slurm, params["conf_dir"], params["format"]), wish)
            held = _rehearsed(plan, params)
            findings.extend(plan.findings)
            if not plan.stopped_by() and not _skipped(plan, params):
                applying.apply(plan)
    stopped = bool(plan.stopped_by()) or _skipped(plan, params)
    result: dict[str, Any] = {
        "changed": plan.changed and not stopped,
        "version": plan.survey.version_text,
        "path": plan.survey.path,
        "topology_name": plan.topology.name,
        "block_sizes": list(plan.topology.block_sizes),
        "moves": plan.moves,
        "changes": plan.difference,
        "written": [] if stopped else sorted(plan.writes),
        "reconfigured": plan.reconfigure and plan.live is None and not stopped,
        "live": plan.live.node if plan.live is not None and not stopped else None,
        "jobs": plan.jobs,
        "standby_of": plan.survey.acting or None,
        "rehearsal": None if held is None else held.result(),
        "findings": findings,
    }
    if module._diff and plan.difference and not _skipped(plan, params):
        result["diff"] = {"prepared": "".join(f"{line}\n" for line in plan.difference)}
    return result


def _rehearsed(plan: planning.Plan, params: dict[str, Any]) -> rehearsal.Rehearsal | None:
    """The rehearsal of a plan that nothing else forbids; its findings are among the plan's."""
    if plan.stopped_by() or _skipped(plan, params):
        return None
    return rehearsal.rehearse_topology(plan, params)


def _blocks(params: dict[str, Any], slurm: programs.Slurm) -> list[dict[str, Any]]:
    """The blocks that were given, or those of the cluster that runs here; SlurmError where that is none of them."""
    if params["blocks"] is not None:
        return list(params["blocks"])
    here = slurm.config().get("clustername", "")
    # Slurm keeps a ClusterName in lower case.
    found = [cluster["blocks"] for cluster in params["clusters"] if cluster["name"].lower() == here.lower()]
    if not found:
        names = ", ".join(cluster["name"] for cluster in params["clusters"][:5])
        raise SlurmError(
            f"slurmctld's ClusterName is {here or 'not shown'}, and the fabric file's Slurm clusters are {names}:"
            " set the option cluster to the one that runs here."
        )
    return list(found[0])


def _skipped(plan: planning.Plan, params: dict[str, Any]) -> bool:
    """Whether this host stands by and is left for a later run."""
    return bool(plan.survey.acting) and params["standby"] == "skip"


def _other(entry: dict[str, Any]) -> Topology:
    """A topology beside that of the blocks, its body as topology.yaml has it."""
    if entry["kind"] == "flat":
        return Topology(entry["name"], "flat", False, body="true")
    switches = [
        {"switch": switch["switch"], **{key: switch[key] for key in ("children", "nodes") if switch[key]}}
        for switch in entry["switches"]
    ]
    return Topology(entry["name"], "tree", False, body={"switches": switches})


if __name__ == "__main__":
    main()
