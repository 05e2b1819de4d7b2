#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_host
short_description: "[INTERNAL] Survey, rehearse or change the topology and partitions of Slurm on slurmctld's host"
version_added: 1.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - The steps of M(rackscale.nvlink.slurm_topology), M(rackscale.nvlink.slurm_tiers) and
    M(rackscale.nvlink.slurm_topology_info) on the host of slurmctld. What is planned between them is planned on the
    Ansible controller.
notes:
  - Used by the action plugins of this collection alone; its options may change in any release.
options:
  step:
    description:
      - V(survey) returns what slurmctld runs and the files that an apply may change. V(read) returns only the files, as
        their removal needs no slurmctld.
      - V(rehearse) loads the planned files in a sandbox, and returns what stops their loading.
      - V(transact) writes the planned topology in one transaction, V(tiers) the partitions and records of slurmdbd.
      - V(ask) asks the running slurmctld where it would place jobs.
      - V(explain) answers why jobs wait.
    type: str
    choices: [survey, read, rehearse, transact, tiers, ask, explain]
    required: true
  change:
    description: What to read, to rehearse, to apply or to ask, as the step's function documents it.
    type: dict
    required: true
  timeout:
    description: Seconds that one call of a tool, a lock or a reconfigure may take.
    type: float
    default: 60
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.slurmctld
attributes:
  check_mode:
    support: partial
    details:
      - The action plugins ask for V(transact) and V(tiers) in a run alone.
  diff_mode:
    support: none
  idempotent:
    support: none
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.slurm_topology
  - module: rackscale.nvlink.slurm_tiers
  - module: rackscale.nvlink.slurm_topology_info
  - module: rackscale.nvlink.explain
"""

EXAMPLES = r"""
- name: Read the files of the topology
  rackscale.nvlink.slurm_host:
    step: read
    change: {files: [topology.yaml, topology.conf]}
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
survey:
  description: What the action plugin plans from, which the task does not return. A hostlist may be long, and nodes and
    jobs may be many, so these are raw.
  returned: with O(step=survey) and O(step=read)
  type: dict
  contains:
    conf_dir:
      description: The folder of C(slurm.conf).
      type: str
    version:
      description: The installed version.
      type: str
    style:
      description: The format of the topology file.
      type: str
    acting:
      description: The active controller, where this host is a standby.
      type: str
    config:
      description: Settings that slurmctld runs with, by their names in lower case.
      type: dict
    settings:
      description: Settings in C(slurm.conf), by their names in lower case.
      type: dict
    node_topologies:
      description: The C(Topology) of node lines, by node.
      type: raw
    includes_ours:
      description: Whether C(slurm.conf) includes C(nvlink_topology.conf).
      type: bool
    texts:
      description: The text of each file that was asked for, by name.
      type: dict
    checksums:
      description: The SHA-256 of each file that an apply may change, by name.
      type: dict
    running:
      description: The topologies that slurmctld has loaded, in the form of C(topology.yaml).
      type: list
      elements: dict
    shown:
      description: The lines of C(scontrol show topology).
      type: list
      elements: dict
      contains:
        name:
          description: Name of the block.
          type: str
        nodes:
          description: Its nodes.
          type: raw
        size:
          description: Its size.
          type: int
        aggregated:
          description: Whether it is an aggregated block.
          type: bool
    nodes:
      description: The nodes of slurmctld, each with C(NodeName), C(NodeHostName), C(NodeAddr), C(State) and
        C(Reason).
      type: raw
    partitions:
      description: The partitions of slurmctld, as C(scontrol show partitions) prints them.
      type: list
      elements: dict
    site_partitions:
      description: The file of each partition that is not of M(rackscale.nvlink.slurm_tiers), by its name in lower case.
      type: dict
    includes_tiers:
      description: Whether C(slurm.conf) includes C(nvlink_partitions.conf).
      type: bool
    records:
      description: What sacctmgr prints of slurmdbd's records; nothing where it was not asked.
      type: dict
    unanswered:
      description: Why it printed nothing, empty otherwise.
      type: str
    limits:
      description: Cases of the finding C(slurm_feature_limited).
      type: list
      elements: str
    jobs:
      description: The jobs that have nodes, each with C(id), C(user), C(partition) and C(nodes).
      type: raw
written:
  description: The files that the change writes or removes.
  returned: with O(step=rehearse)
  type: list
  elements: str
undone:
  description: What a reconfigure would undo of the live changes of operators, empty for nothing.
  returned: with O(step=rehearse)
  type: str
busy:
  description: The jobs in partitions that go, empty for none.
  returned: with O(step=rehearse)
  type: str
rehearsal:
  description: As the result of the same name of M(rackscale.nvlink.slurm_topology).
  returned: with O(step=rehearse)
  type: dict
test_jobs:
  description: As the result of the same name of M(rackscale.nvlink.slurm_topology_info).
  returned: with O(step=ask)
  type: dict
answer:
  description: As the result of the same name of M(rackscale.nvlink.explain).
  returned: with O(step=explain)
  type: dict
text:
  description: The answer as lines, as the result of the same name of M(rackscale.nvlink.explain).
  returned: with O(step=explain)
  type: list
  elements: str
restarted:
  description: Whether slurmctld did not answer the reconfigure and was restarted with the new files.
  returned: with O(step=transact) and O(step=tiers)
  type: bool
outdated:
  description: Whether it failed because a file is no longer the one of the survey.
  returned: on failure
  type: bool
findings:
  description: Findings of the rehearsal as codes, cases and values.
  returned: with O(step=rehearse), and on failure
  type: list
  elements: dict
"""


import signal
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import controller
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf, conf_folder, live, programs
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal import live_jobs, rehearse
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import tier_apply
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import surveying, transact

STEPS = ("survey", "read", "rehearse", "transact", "tiers", "ask", "explain")
ARGUMENTS: dict[str, Specification] = {
    "step": {"type": "str", "choices": list(STEPS), "required": True},
    "change": {"type": "dict", "required": True},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "bin_dir": {"type": "path"},
    "timeout": {"type": "float", "default": 60},
}


def main() -> None:
    actions.begin()
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    # A broken connection raises SystemExit in a step, which so does its rollback.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        result = run(module.params)
    except NvlinkError as error:
        module.fail_json(msg=str(error), findings=[], actions=actions.done())
    module.exit_json(actions=actions.done(), **result)


def _interrupted(number: int, _frame: Any) -> None:
    raise SystemExit(f"ended by signal {number}")


def run(params: Arguments) -> Result:
    """One step of the action plugin. Its findings are in the result: they do not fail the step."""
    change, conf_dir, step = params["change"], params["conf_dir"], params["step"]
    slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], conf_dir)
    if step == "read":
        # First: a file that changes meanwhile is then not the known one.
        sums = surveying.checksums(conf_dir, (*change["files"], conf.MAIN))
        conf.read_slurm_conf(conf_dir)
        return {"survey": {"texts": surveying.texts(conf_dir, change["files"]), "checksums": sums}}
    if step == "survey":
        return {"survey": surveying.rows(slurm, conf_dir, change)}
    if step == "rehearse":
        return _rehearse(slurm, conf_dir, change)
    if step == "explain":
        return controller.step(slurm, conf_dir, change)
    if step == "ask":
        return {"test_jobs": live_jobs.report(slurm, conf_dir, change)}
    apply = tier_apply.apply if step == "tiers" else transact.apply
    try:
        with conf_folder.locked(conf_dir, params["timeout"]):
            known = conf_folder.checksums(conf_dir)
            transact.require_unchanged(conf_dir, change["checksums"], known)
            restarted = apply(slurm, conf_dir, change, transact.writes(conf_dir, change), known)
            return {"changed": True, "restarted": restarted}
    except conf_folder.Outdated as error:
        return {"failed": True, "outdated": True, "msg": str(error)}


def _rehearse(slurm: programs.Slurm, conf_dir: str, change: Arguments) -> Result:
    """What stops loading the files: jobs in partitions that go, live changes that it would undo; else a rehearsal."""
    writes = transact.writes(conf_dir, change)
    busy = slurm.jobs_in(change["leaving"])
    reloads = change["reloads"] and (writes or not change["excludes"])
    undone = live.survey(slurm, conf_dir, writes, change["own"]) if reloads else []
    result: Result = {
        "written": sorted(writes),
        "busy": busy,
        "undone": live.sentence(undone) if undone else "",
        "rehearsal": None,
        "findings": [],
    }
    if change["rehearsal"] and not busy and (not undone or change["rehearsal"]["despite_undone"]):
        rehearsal, found = rehearse.before_apply(slurm, change, writes, conf_dir)
        result.update(rehearsal=rehearsal.result(), findings=found)
    return result


if __name__ == "__main__":
    main()
