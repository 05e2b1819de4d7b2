#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: repair
short_description: "[INTERNAL] Plan the repair of trays and keep the ledger of its incidents"
version_added: 1.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Plans at most one action for each tray, of the failures of the last verdict, the states in Slurm and the ledger, and
    refuses what the limits do not allow.
  - Each step of an incident has a line in the ledger before and after it, so a run that was killed is continued by the
    next one.
  - The playbook repair runs the tasks of the steps. This module connects to no host.
notes:
  - Used by the playbooks of this collection alone; its options may change in any release.
options:
  state:
    description:
      - V(planned) returns the plan. With O(apply) it writes the decisions to the ledger, and each row has the
        steps that this run does.
      - V(begun) returns the incidents for which O(step) is due, and writes that it begins.
      - V(ended) writes what became of O(step), from what its tasks returned.
      - V(reported) returns a line for each incident, and the documents that update the tickets of failed ones.
    type: str
    choices: [planned, begun, ended, reported]
    required: true
  step:
    description: The step of the incidents. Required with O(state=begun) and O(state=ended).
    type: str
    choices: [drain, evidence, spare, ticket, action, return, resume, close]
  fabric_file:
    description: Path of the fabric file. The ledger C(fabric.repairs.jsonl) is beside its state file.
    type: path
    required: true
  state_dir:
    description: Folder of the state file, where it is not that of the fabric file.
    type: path
  verdict_file:
    description: The verdict of the playbook verify. Required with O(state=planned).
    type: str
  apply:
    description: Whether the plan is carried out. Without it nothing is written but O(path).
    type: bool
    default: false
  path:
    description: File to write the plan to as JSON.
    type: path
  scontrol:
    description: The lines of C(scontrol --all --oneliner show nodes); left out where there is no Slurm.
    type: list
    elements: str
  squeue:
    description: Lines with a job's ID and its nodes, of the jobs that run now.
    type: list
    elements: str
  pods:
    description:
      - With O(state=begun), what kubernetes.core.k8s_info returned of the pods on the nodes of RV(rows), as a loop.
    type: list
    elements: dict
    default: []
  cordons:
    description: With O(state=begun), whether the drain also cordons nodes in Kubernetes.
    type: bool
    default: false
  max_age:
    description: Seconds that the verdict may be old.
    type: int
    default: 3600
  actions:
    description: The actions that a run does; a person does the others.
    type: list
    elements: str
    choices: [reset_gpu, reboot, power_cycle]
    default: []
  limits:
    description:
      - Trays that may be taken out of service, an C(hour) in all, and at the same time of a C(clique) and of a
        C(domain).
    type: dict
    default: {hour: 4, clique: 2, domain: 4}
  rack_share:
    description: Share of the trays of a domain, from which failures are one event of the domain without actions.
    type: float
    default: 0.5
  kill_jobs:
    description: Whether the jobs of a tray are ended instead of awaited.
    type: bool
    default: false
  reset:
    description: Trays or domains whose limits a person resets, or V(all).
    type: list
    elements: str
    default: []
  stop_file:
    description: While this file exists, no incident is opened and no step begins.
    type: path
  plan:
    description: The RV(plan) of this run, with O(state=begun) and O(state=reported).
    type: list
    elements: dict
    default: []
  incidents:
    description: The incidents whose O(step) ended.
    type: list
    elements: str
    default: []
  results:
    description: What the task of O(step) registered on localhost, or a list of these for a loop over RV(rows).
    type: raw
    default: []
  registered:
    description: The variables that the tasks of O(step) registered on the trays.
    type: list
    elements: str
    default: []
  spares:
    description: With O(state=reported), the trays that came into service, whose IMEX O(registered) has.
    type: list
    elements: str
    default: []
  detail:
    description: With O(state=ended), what the report of the tests has on trays that are not back.
    type: str
    default: ""
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - It plans, and writes no file.
  diff_mode:
    support: none
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Plan the repair of trays
  rackscale.nvlink.repair:
    state: planned
    fabric_file: /srv/cluster/fabric.json
    verdict_file: /srv/cluster/verdict.json
  register: repair_plan
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
changes:
  description: Always empty.
  returned: always
  type: list
  elements: str
findings:
  description: Always empty.
  returned: always
  type: list
  elements: dict
plan:
  description: At most one action for each tray.
  returned: with O(state=planned)
  type: list
  elements: dict
  sample: [{"tray": "r01t04", "action": "reset_gpu", "finding": "gpu_recovery_action", "reason": "...",
    "allowed": true, "brake": "", "incident": "r01t04-20261129T191500Z", "evidence": "...", "event": false}]
text:
  description: Lines of text for a person.
  returned: with O(state=planned), O(state=ended) and O(state=reported)
  type: list
  elements: str
unfit:
  description: The NodeNames of trays with an error of the verdict, which are no spares.
  returned: with O(state=planned)
  type: list
  elements: str
trays:
  description: The trays of the rows; with O(step=spare) those that came into service.
  returned: with O(state=planned), O(state=begun) and O(state=ended)
  type: list
  elements: str
rows:
  description:
    - A row for each incident, with the document of its ticket. With O(state=planned), of those whose action is due.
  returned: with O(state=planned), O(state=begun) and O(state=reported)
  type: list
  elements: dict
  contains:
    tray:
      description: The tray.
      type: str
    incident:
      description: The ID of the incident.
      type: str
    node:
      description: The NodeName of the tray.
      type: str
    kubernetes_node:
      description: The name of the tray's node in Kubernetes.
      type: str
    action:
      description: The action.
      type: str
    reason:
      description: The reason of the drain, without its prefix.
      type: str
    ticket:
      description: The document.
      type: dict
unfinished:
  description: The number of incidents with a failed step.
  returned: with O(state=reported)
  type: int
"""
