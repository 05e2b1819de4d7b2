#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: partition
short_description: "[INTERNAL] Plan changes of NVLink partitions, make them on the switch and keep their journals"
version_added: 1.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Compares the NVLink partitions that a site wants with the fabric file and with what the switches list, and plans
    which trays move.
  - Each step of a change has a line in the journal of its NVLink domain before and after it, so a run that was killed
    is continued by the next one.
  - The playbook partition runs the tasks of the steps. With O(state=planned) and O(state=switched) this module connects
    to the NVLink switches over HTTPS, and to no other host.
notes:
  - Used by the playbooks of this collection alone; its options may change in any release.
options:
  state:
    description:
      - V(named) returns the domains whose partitions differ from O(wish), or whose change has begun.
      - V(planned) reads the switches, and returns the plans and the trays that change clique.
      - V(reviewed) returns the plan as text, with its SHA-256, from RV(plans), O(planned) and what Slurm's roles
        registered.
      - V(confirmed) writes the plans to the journals, or continues the changes that have begun.
      - V(begun) returns the trays for which O(step) is due, and writes that it begins.
      - V(ended) writes what became of O(step), and fails where it failed.
      - V(switched) moves the GPUs on the switch, and puts them back where it refuses.
      - V(agreed) fails unless O(proposed) has the places of the plan and no other change.
      - V(reported) ends the changes.
    type: str
    choices: [named, planned, reviewed, confirmed, begun, ended, switched, agreed, reported]
    required: true
  step:
    description: The step. Required with O(state=begun) and O(state=ended).
    type: str
    choices: [drain, imex, gpus, accept, slurm, return]
  fabric_file:
    description: Path of the fabric file. The journals C(fabric.partition-DOMAIN.jsonl) are beside its state file.
    type: path
    required: true
  state_dir:
    description: Folder of the state file, where it is not that of the fabric file.
    type: path
  wish:
    description: The NVLink partitions that the site wants, of each NVLink domain.
    type: dict
    default: {}
  only:
    description: The NVLink domains that this run changes. Empty for the only one whose partitions differ.
    type: list
    elements: str
    default: []
  domains:
    description: The RV(domains) of this run.
    type: list
    elements: str
    default: []
  rollback:
    description: Whether a change that has begun is undone.
    type: bool
    default: false
  switches:
    description: The hosts of the NVLink switches in the inventory.
    type: list
    elements: str
    default: []
  by:
    description: Who changes the partitions on the switch.
    type: str
    choices: [nvue, hand]
    default: nvue
  simulated:
    description: Whether the GPUs are taken to be in the clique of the fabric file, as in the playbook demo.
    type: bool
    default: false
  wait:
    description: Seconds until a switch lists a change.
    type: float
    default: 600
  override:
    description: What does not object to the plan.
    type: list
    elements: str
    choices: [jobs, drained, compute_domains, degraded]
    default: []
  imex_owner:
    description: The owner of IMEX on trays for which the site does not set C(imex_owner).
    type: str
    default: ""
  verdict_file:
    description: A verdict of the playbook verify, which remembers the GPUs of trays that do not answer.
    type: path
  scontrol:
    description: The lines of C(scontrol --all --oneliner show nodes); left out where there is no Slurm.
    type: list
    elements: str
  squeue:
    description: Lines with a job's ID and its nodes, of the jobs that run now.
    type: list
    elements: str
  kubeconfig:
    description: A kubeconfig file, or C(in-cluster); left out where no tray is a node of Kubernetes.
    type: path
  context:
    description: A context of that file. Default is its current context.
    type: str
    default: ""
  kubernetes_cluster:
    description: The Kubernetes cluster, of a fabric file with several.
    type: str
    default: ""
  timeout:
    description: Seconds for one request to the API server.
    type: float
    default: 30
  plans:
    description: The RV(plans) of this run.
    type: list
    elements: dict
    default: []
  objections:
    description: The RV(objections) of O(state=planned).
    type: list
    elements: str
    default: []
  lines:
    description: What else the plan says, which its SHA-256 covers.
    type: list
    elements: str
    default: []
  planned:
    description: What the module fabric_file returned with its state planned.
    type: dict
    default: {}
  proposed:
    description: What the module fabric_file returned with its state proposed.
    type: dict
    default: {}
  plan:
    description: The SHA-256 of the plan that a person has reviewed.
    type: str
  base:
    description: The RV(base) of this run.
    type: str
  sha256:
    description: The RV(sha256) of this run.
    type: str
    default: ""
  trays:
    description: The trays that answer, with O(state=agreed), O(step=return) and O(state=reported).
    type: list
    elements: str
    default: []
  results:
    description: What the tasks of O(step) registered on localhost.
    type: list
    elements: raw
    default: []
  hosts:
    description: The hosts whose variables O(registered) are read, where they are not the trays of the change.
    type: list
    elements: str
  registered:
    description: The variables that tasks registered on the trays or on O(hosts).
    type: list
    elements: str
    default: []
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
- name: Find the NVLink domains whose partitions change
  rackscale.nvlink.partition:
    state: named
    fabric_file: /srv/cluster/fabric.json
    wish: {r01: 2x9}
  register: partition_named
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
domains:
  description: The NVLink domains that this run changes.
  returned: with O(state=named) and O(state=confirmed)
  type: list
  elements: str
is_new:
  description: Whether they are to be planned; else their change has begun, or there is none.
  returned: with O(state=named)
  type: bool
trays:
  description:
    - With O(state=named) the trays of RV(domains) that a plan needs; with O(state=confirmed) those whose clique
      changes; with O(state=begun) the same, or none where the step is done; with O(state=ended) those that answered.
  returned: with O(state=named), O(state=confirmed), O(state=begun) and O(state=ended)
  type: list
  elements: str
nodes:
  description: The NodeNames of RV(trays).
  returned: with O(state=begun)
  type: list
  elements: str
rows:
  description: Of each of RV(trays) that is a node of Kubernetes its names, its clique's label and the ID of the change.
  returned: with O(state=begun)
  type: list
  elements: dict
imex_owner:
  description: The owner of IMEX on all of RV(trays), as planned; empty where nothing of this collection owns it.
  returned: with O(state=confirmed)
  type: str
clique_ids:
  description: Of each tray that moves the clique ID that its GPUs are to report.
  returned: with O(state=begun)
  type: dict
plans:
  description: A plan for each of the domains.
  returned: with O(state=planned) and O(state=reviewed)
  type: list
  elements: dict
moves:
  description: Of each answering tray that moves its next clique ID.
  returned: with O(state=planned)
  type: dict
objections:
  description: Sentences on why nothing may be changed.
  returned: with O(state=planned) and O(state=reviewed)
  type: list
  elements: str
base:
  description: The SHA-256 of the fabric file of the plan.
  returned: with O(state=planned)
  type: str
sha256:
  description: The SHA-256 of the plan.
  returned: with O(state=reviewed)
  type: str
is_due:
  description: Whether a tray moves.
  returned: with O(state=reviewed)
  type: bool
text:
  description: Lines of text for a person.
  returned: with O(state=named), O(state=reviewed), O(state=confirmed), O(state=switched) and O(state=reported)
  type: list
  elements: str
failure:
  description: What the changes have done and why the run fails, as one was put back or a test failed; else empty.
  returned: with O(state=reported)
  type: str
"""
