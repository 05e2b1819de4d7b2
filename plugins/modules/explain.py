#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: explain
short_description: Explain why a job, a tray, a pod or the whole queue waits, and what would start it now
version_added: 1.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Reads what Slurm shows of jobs, trays, partitions, reservations and blocks, and returns for what a job waits.
    Without O(job), O(tray) and O(segment) it counts everything that is pending.
  - Of a Kubernetes cluster it reads on the Ansible controller what M(rackscale.nvlink.verify) reads, the pods that wait
    and the queues of Kueue and KAI, for O(pod), O(compute_domain), or to count all that waits where nothing is named.
  - Changes nothing. What could start a job now is asked of slurmctld by C(sbatch --test-only), which queues nothing; as
    root in the name of the job's user. Where no change of the job starts it, and for a tray out of service, a slurmctld
    in a sandbox is asked whether the job starts with the tray back. What could start a pod is asked of the
    API server by a dry run.
  - Run it on the host of slurmctld. C(nvlink-explain) is the same for users of a login node.
options:
  job:
    description: ID of a job, as squeue shows it.
    type: str
    default: ''
  tray:
    description: Name of a tray in the fabric file or in Slurm.
    type: str
    default: ''
  segment:
    description:
      - With O(job), its C(--segment) where Slurm does not show it (24.11). Alone, asks how many segments of so many
        trays can start now.
    type: int
  partition:
    description: The partition of O(segment). Slurm's default if empty.
    type: str
    default: ''
  slurm:
    description: Whether there is a Slurm to ask. Without it O(job), O(tray) and O(segment) have no answer.
    type: bool
    default: true
  pod:
    description: A pod as NAMESPACE/NAME, of the cluster of O(kubeconfig).
    type: str
    default: ''
  compute_domain:
    description: A ComputeDomain as NAMESPACE/NAME, of the cluster of O(kubeconfig).
    type: str
    default: ''
  kubeconfig:
    description: A kubeconfig file, or C(in-cluster) in a pod. Without it Kubernetes is not asked.
    type: path
    default: ''
  context:
    description: A context of the kubeconfig file. Empty for its current context.
    type: str
    default: ''
  fabric_file:
    description: Path of the fabric file on the Ansible controller. Without it no health of trays is known.
    type: path
  state_dir:
    description: The folder of the state file, where it is not that of the fabric file.
    type: path
  verdict_file:
    description: The last verdict, whose failures of trays are in the answer. The state file has them where it is empty.
    type: path
  path:
    description: File on the Ansible controller to write the answer to as JSON.
    type: path
  timeout:
    description: Seconds that one call of a tool, or one request to the API server, may take.
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
  - module: rackscale.nvlink.verify
"""

EXAMPLES = r"""
- name: Explain why a job waits
  rackscale.nvlink.explain:
    job: "1234"
  register: answer
"""

RETURN = r"""
changes:
  description: Always empty; the module changes nothing.
  returned: success
  type: list
  elements: str
findings:
  description: Always empty.
  returned: success
  type: list
  elements: dict
text:
  description: The answer as lines of text, its sentence first.
  returned: success
  type: list
  elements: str
  sample:
    - "Job 1234 waits for an operator: it needs 18 trays in one block, and r03t07 is drained: GPU 2 lost."
    - "  17 of 54 idle (r03 17)"
kubernetes:
  description: As RV(answer), of what waits in Kubernetes, beside that of Slurm.
  returned: where nothing is named, and Slurm and a cluster are asked
  type: dict
answer:
  description: The answer as C(nvlink-explain --json) prints it.
  returned: success
  type: dict
  contains:
    schema_version:
      description: Version of this form, V(1).
      type: int
    kind:
      description: job, tray, segment, pod, compute_domain or queue.
      type: str
    subject:
      description: Its ID, name (NAMESPACE/NAME) or size; empty for the queue.
      type: str
    waits_for:
      description: jobs, operator, never, slurm, kubernetes or nothing.
      type: str
    sentence:
      description: The answer in one sentence.
      type: str
    evidence:
      description: At most five lines of counted evidence.
      type: list
      elements: dict
      contains:
        what:
          description: What the trays, jobs or pods are.
          type: str
        count:
          description: How many of them are.
          type: int
        of:
          description: Of how many, null where there is no whole.
          type: int
        names:
          description: Which, such as V(r01 8) for eight trays of a block.
          type: list
          elements: str
        until:
          description: Local time of the Slurm controller, null for no end.
          type: str
    change:
      description: The cheapest change that ends the wait, null where none is confirmed.
      type: dict
      contains:
        sentence:
          description: What it is.
          type: str
        confirmed_by:
          description: The command that has confirmed it.
          type: str
    unknown:
      description: What could not be read or is not considered.
      type: list
      elements: str
"""
