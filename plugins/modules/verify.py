# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: verify
short_description: Judge whether trays, fabric file, Slurm, IMEX and Kubernetes say the same
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Compares what trays and controllers said earlier in this run, and what a Kubernetes cluster says now, with the
    fabric file, and writes the verdict. It changes nothing else. One fault is one failure, in the layer where it came
    about, with its likely cause and the command that mends it.
  - The role P(rackscale.nvlink.verify#role) asks everybody and calls it.
  - The two files are a report of the run, so they are written in check mode too and count as no change.
options:
  fabric_file:
    description: The fabric file.
    type: path
    required: true
  trays:
    description: Hosts of this run that are trays, by their inventory names.
    type: list
    elements: str
    default: []
  observations:
    description: The variable in which these hosts registered the result of M(rackscale.nvlink.fabric_facts) in this run, with
      O(rackscale.nvlink.fabric_facts#module:gather_subset=all).
    type: str
    default: ''
  quick:
    description: Whether no tray was asked, so that the layers that need trays are skipped.
    type: bool
    default: false
  slurm:
    description:
      - The results of M(rackscale.nvlink.slurm_topology_info), registered in a loop over the Slurm controllers.
      - Without it the layer is skipped.
    type: list
    elements: dict
  tiers:
    description: The results of M(rackscale.nvlink.slurm_tiers) in check mode, registered in the same loop.
    type: list
    elements: dict
    default: []
  kubeconfig:
    description: A kubeconfig file. Without it the layer is skipped.
    type: path
    default: ''
  context:
    description: A context of that file. Empty for its current one.
    type: str
    default: ''
  kubernetes_cluster:
    description: The cluster's name in the fabric file, where several Kubernetes clusters share the fabric.
    type: str
    default: ''
  timeout:
    description: Seconds that one answer of the API server may take.
    type: float
    default: 30
  channels:
    description:
      - Numbers of the IMEX channels that every tray must have. Without any, a tray must have those that more than half
        of the trays of its clique have.
    type: list
    elements: int
    default: []
  verdict_file:
    description: Where the verdict is written as JSON. Empty for no file.
    type: path
    default: ''
  junit_file:
    description: Where the verdict is written as JUnit XML. Empty for no file.
    type: path
    default: ''
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.info_module
attributes:
  action:
    description: Runs on the controller and executes nothing on the host.
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.fabric_facts
"""

EXAMPLES = r"""
- name: Ask every tray
  rackscale.nvlink.fabric_facts:
    gather_subset: [all]
  register: said

- name: Judge
  rackscale.nvlink.verify:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    trays: "{{ groups['nvlink'] }}"
    observations: said
    verdict_file: verdict.json
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
verdict:
  description: The verdict, as it stands in the file.
  returned: success
  type: dict
  contains:
    ok:
      description: Whether there is no failure of severity error.
      type: bool
    checked_at:
      description: When, in UTC.
      type: str
      sample: "2026-11-21T05:00:00Z"
    fabric_file:
      description: The path of the fabric file.
      type: str
    layers:
      description: Each layer with V(checked), or V(skipped:) and the reason.
      type: dict
      sample: {hardware: checked, kubernetes: "skipped: no kubeconfig is named"}
    trays:
      description: The number of trays in the fabric file.
      type: int
    asked:
      description: How many of them this run has asked, those that did not answer included.
      type: int
    cliques:
      description: The number of its cliques that have trays.
      type: int
    failures:
      description: What disagrees, from the lowest layer up.
      type: list
      elements: dict
      contains:
        code:
          description: The finding's code.
          type: str
          sample: tray_moved
        severity:
          description: error or warning.
          type: str
        layer:
          description: The layer of its cause.
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
          description: The likely cause.
          type: str
        mend:
          description: The command that mends it.
          type: str
text:
  description: The same for a person, line by line.
  returned: success
  type: list
  elements: str
  sample: ["36 trays in 3 cliques, 36 of them asked: all layers agree (0 errors, 0 others)."]
"""
