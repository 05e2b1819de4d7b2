# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: verify
short_description: Verify that hardware, fabric file, Slurm, IMEX and Kubernetes agree
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Compares the registered results of trays and Slurm controllers, and the objects of a Kubernetes cluster, with the
    fabric file, and writes the verdict. It changes nothing else.
  - One fault is one failure, in the layer where it originates, with its likely cause and a remediation.
  - The role P(rackscale.nvlink.verify#role) queries trays and controllers and runs this module on the controller.
  - The two files report the run; they are written in check mode too and count as no change.
options:
  fabric_file:
    description: The fabric file on the controller.
    type: path
    required: true
  trays:
    description: Inventory names of the trays. Trays that this run has not queried are passed over.
    type: list
    elements: str
    default: []
  observations:
    description:
      - Name of the variable in which the trays registered the result of M(rackscale.nvlink.fabric_facts) in this run,
        with O(rackscale.nvlink.fabric_facts#module:gather_subset=all).
    type: str
    default: ''
  tray_reading:
    description:
      - V(ansible) takes the results that the trays registered as O(observations). With V(ssh) this module reads the
        trays itself, from one process, by C(ssh) with the options that Ansible's connection plugin C(ssh) would have.
      - Prompts and passwords are impossible. A tray with C(ansible_become) is read by C(sudo -n).
    type: str
    choices: [ansible, ssh]
    default: ansible
    version_added: 1.1.0
  hosts:
    description: The hosts of this run, of which O(trays) are read with O(tray_reading=ssh). By default O(trays).
    type: list
    elements: str
    version_added: 1.1.0
  facts:
    description: The options of M(rackscale.nvlink.fabric_facts), of the reading with O(tray_reading=ssh).
    type: dict
    default: {}
    version_added: 1.1.0
  quick:
    description: Whether to skip the layers that need facts of trays.
    type: bool
    default: false
  slurm:
    description:
      - The results of M(rackscale.nvlink.slurm_topology_info), registered in a loop over the Slurm controllers.
      - Without it the layers C(slurm) and C(tiers) are skipped.
    type: list
    elements: dict
  tiers:
    description: The results of M(rackscale.nvlink.slurm_tiers) in check mode, registered in the same loop.
    type: list
    elements: dict
    default: []
  switches:
    description:
      - Inventory names of the NVLink switches, with the host variable C(nvlink_switch_domain) and the variables of the
        login, see docs/switches.md. They are read over HTTPS; Ansible never connects to them. Without any the layer
        C(switch) is skipped.
      - A run that has read trays reads the switches of their NVLink domains alone.
    type: list
    elements: str
    default: []
    version_added: 1.1.0
  partitions:
    description:
      - The NVLink partitions that the site wants, as the variable C(nvlink_partitions). The layer C(switch) compares
        the multicast limit and the resiliency mode of those that are named.
    type: dict
    default: {}
    version_added: 1.1.0
  kubeconfig:
    description: A kubeconfig file, or C(in-cluster) in a pod. Without it the layer C(kubernetes) is skipped.
    type: path
    default: ''
  context:
    description: A context of the kubeconfig file. Empty for its current context.
    type: str
    default: ''
  kubernetes_cluster:
    description: Name of the Kubernetes cluster in the fabric file, where several clusters share the fabric.
    type: str
    default: ''
  timeout:
    description: Seconds that one request to the API server may take.
    type: float
    default: 30
  channels:
    description:
      - Minor numbers of the IMEX channels that every tray must have. Empty for those that more than half of the trays
        of its clique have.
    type: list
    elements: int
    default: []
  state_dir:
    description: The folder of the state file, where it is not that of the fabric file.
    type: path
    version_added: 1.1.0
  acknowledged:
    description:
      - Whether failures of trays alone that the state file has as in repair are notes, until the date that it has.
        Not for a tray that is to return to service.
    type: bool
    default: true
    version_added: 1.1.0
  verdict_file:
    description:
      - File to write the verdict to as JSON. Empty for none.
      - It also keeps the recovery counters of NVLinks, with which the next run that has the same file compares. Without
        it a link that recovers again and again is not found.
    type: path
    default: ''
  junit_file:
    description: File to write the verdict to as JUnit XML. Empty for none.
    type: path
    default: ''
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.info_module
attributes:
  action:
    description: Runs on the controller and executes nothing on a host.
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.fabric_facts
"""

EXAMPLES = r"""
- name: Read the facts of every tray
  rackscale.nvlink.fabric_facts:
    gather_subset: [all]
  register: tray_facts

- name: Compare all layers with the fabric file
  rackscale.nvlink.verify:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    trays: "{{ groups['nvlink'] }}"
    observations: tray_facts
    verdict_file: verdict.json
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
changes:
  description: Always empty; the module changes nothing.
  returned: success
  type: list
  elements: str
findings:
  description: The failures of the verdict as findings.
  returned: success
  type: list
  elements: dict
  contains:
    code:
      description: The finding's code.
      type: str
    severity:
      description: error, warning or info.
      type: str
    message:
      description: What disagrees.
      type: str
    tray:
      description: The tray, null where it is about none or several.
      type: str
    clique:
      description: The clique, null where it is about none or several.
      type: str
verdict:
  description:
    - The verdict, the content of O(verdict_file) without its keys C(links), C(switch), C(health) and C(placed).
  returned: success
  type: dict
  contains:
    ok:
      description: Whether no failure has severity error.
      type: bool
    checked_at:
      description: Time of the verdict in UTC.
      type: str
      sample: "2026-11-21T05:00:00Z"
    fabric_file:
      description: The path of the fabric file.
      type: str
    layers:
      description: Layer and V(checked), or V(skipped:) with the reason.
      type: dict
      sample: {hardware: checked, kubernetes: "skipped: no kubeconfig is set"}
    compute_domains:
      description:
        - The GPUs that no new ComputeDomain can use, because another one has their node. Null without a cluster that
          has ComputeDomains.
        - C(cliques) has the number of nodes, of nodes that a new one can use and of stranded GPUs (null where it
          is unknown), and the nodes of each ComputeDomain. C(unknown) has the rights that the account lacks.
      type: dict
      sample:
        unknown: []
        cliques:
          r01: {nodes: 18, free_nodes: 17, stranded_gpus: 2, blocked_by: {jobs/train: [r01t01]}}
    slurm_nodes:
      description: The state of each tray in Slurm, with the reason; null where no controller answered.
      type: dict
      sample: {r02t03: IDLE, r02t04: "DRAIN+IDLE: RMA 4711"}
    trays:
      description: The number of trays in the fabric file.
      type: int
    queried:
      description: The number of them that this run queried, unreachable ones included.
      type: int
    answered:
      description: The number of them that answered.
      type: int
    cliques:
      description: The number of cliques in the fabric file that have trays.
      type: int
    failures:
      description: The disagreements, from the lowest layer up.
      type: list
      elements: dict
      contains:
        code:
          description: The finding's code.
          type: str
          sample: tray_moved
        severity:
          description: error, warning or info.
          type: str
        layer:
          description: The layer in which the fault originates.
          type: str
          sample: fabric_file
        tray:
          description: The tray, null where it is about none or several.
          type: str
        clique:
          description: The clique, null where it is about none or several.
          type: str
        trays:
          description: All trays that it is about.
          type: list
          elements: str
        message:
          description: What disagrees, in one sentence.
          type: str
        cause:
          description: The likely cause, empty where none is known.
          type: str
        action:
          description: What repairs it where the code alone does not decide, else empty.
          type: str
          sample: reset_gpu
        gpu:
          description: The index of the GPU, only where it is about one.
          type: int
        link:
          description: The number of the NVLink of that GPU, only where it is about one.
          type: int
        remediation:
          description: The command or action that fixes it.
          type: str
health:
  description: The trays of failures by their names in Slurm, for C(nvlink-explain); no addresses, serials or secrets.
  returned: success
  type: dict
  contains:
    schema_version:
      description: Version of this form, V(1).
      type: int
    at:
      description: Time of the verdict in UTC.
      type: str
    trays:
      description: Each with C(state), C(since), C(code), C(reason) and C(remedy).
      type: dict
text:
  description: The verdict as lines of text.
  returned: success
  type: list
  elements: str
  sample: ["36 trays in 3 cliques, 36 queried: all layers agree (0 errors, 0 warnings)."]
summary:
  description: The first line of RV(text), with the message of the first error.
  returned: success
  type: str
  sample: "36 trays in 3 cliques, 36 queried: all layers agree (0 errors, 0 warnings)."
"""
