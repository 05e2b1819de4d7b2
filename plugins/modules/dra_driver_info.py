# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dra_driver_info
short_description: Judge a Kubernetes cluster and its trays for NVIDIA's DRA driver
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Reads a cluster by its API, on the controller, and says in findings what stands against the driver's install, its
    running, or its removal. It changes nothing, and reads no Secret beyond its metadata.
  - What the trays say is taken from their variables C(nvlink_fabric) and C(nvlink_imex), so run
    M(rackscale.nvlink.fabric_facts) with the subsets V(gpu) and V(imex) on them before.
  - The role P(rackscale.nvlink.dra_driver#role) has it in its steps.
options:
  phase:
    description:
      - V(preflight) judges everything that can be told before an install or upgrade, values of the chart included.
      - V(imex) judges whether IMEX may be given to the owner that the values want.
      - V(upgrade) tells what an upgrade of a 25.x release drops.
      - V(crds) judges the CRDs alone.
      - V(checks) judges the installed driver, and whether claims that were in use still are.
      - V(probe) judges whether the channels of O(probe_objects) reach their pods, V(probe_left) what those have left.
      - V(uninstall) tells what must go before the driver does.
    type: str
    choices: [preflight, imex, upgrade, crds, checks, probe, probe_left, uninstall]
    required: true
  kubelet_root:
    description: The kubelet's folder on the trays.
    type: path
    default: /var/lib/kubelet
  cdi_enabled:
    description: Whether C(enable_cdi) is set in the configuration of every containerd 1.7.
    type: bool
    default: false
  extra_keys:
    description: Dotted keys that the chart has besides those that are known.
    type: list
    elements: str
    default: []
  crd_managers:
    description: Field managers that the CRDs may be taken from.
    type: list
    elements: str
    default: []
  wanted_crds:
    description: The chart's CRDs, to compare those of the cluster with.
    type: list
    elements: dict
    default: []
  imex_follows:
    description: Whether IMEX of the trays is still to be given to its owner, so that nothing is said of it.
    type: bool
    default: false
  waves:
    description: Whether the plugin comes onto nodes in waves. V(checks) then judges those that it has come to.
    type: bool
    default: false
  trays:
    description: The trays, by their inventory names. Without any, they are the nodes that a label says GPUs of.
    type: list
    elements: str
    default: []
  claims_before:
    description: With V(checks), RV(claims) of an earlier call.
    type: list
    elements: dict
    default: []
  old_values:
    description: With V(upgrade), the values that the old release was given.
    type: dict
    default: {}
  old_manifest:
    description: With V(upgrade), the old release's objects, as C(helm get manifest) prints them.
    type: str
    default: ''
  new_manifest:
    description: With V(upgrade), the objects that take their place, as C(helm template) prints them.
    type: str
    default: ''
  probe_namespace:
    description: The namespace of RV(probe_objects).
    type: str
    default: default
  probe_image:
    description: The image of their pods, with C(sleep) and C(test).
    type: str
    default: docker.io/library/busybox:1.37
  probe_across:
    description: Whether RV(probe_objects) are of the negative trial, a ComputeDomain on a node of each of two cliques.
    type: bool
    default: false
  probe_objects:
    description: With V(probe), the objects that were made for a trial.
    type: list
    elements: dict
    default: []
  probe_domains:
    description: With V(probe_left), RV(probe_domains) of an earlier call.
    type: list
    elements: str
    default: []
  wait:
    description: Seconds in which errors may still go away.
    type: float
    default: 0
  fail:
    description: Whether an error makes the task fail.
    type: bool
    default: true
extends_documentation_fragment:
  - rackscale.nvlink.dra_driver
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.info_module
attributes:
  action:
    description: Runs on the controller and executes nothing on the host.
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: See whether a cluster is ready for the driver
  rackscale.nvlink.dra_driver_info:
    phase: preflight
    kubeconfig: ~/.kube/config
    shape: compute_domains
    trays: "{{ groups['nvlink'] }}"
    fail: false
  register: seen
"""

RETURN = r"""
ok:
  description: Whether there is no finding of severity error.
  returned: success
  type: bool
  sample: true
findings:
  description: What was found. All of them are warnings of the run too.
  returned: always
  type: list
  elements: dict
  sample:
    - code: dra_node_not_selected
      severity: error
      node: r01t03
      message: >-
        The driver would not run on node r01t03: it has none of the labels that the chart looks for; label it
        nvidia.com/gpu.present=true, or have node-feature-discovery set one of its own.
release_values:
  description: The values to install the chart with, the shape's and the API's version included.
  returned: success
  type: dict
  sample: {resourceApiVersion: resource.k8s.io/v1}
stand_alone:
  description: Whether the driver comes from a chart of its own, not from GPU Operator.
  returned: success
  type: bool
  sample: true
api_version:
  description: The best version of C(resource.k8s.io) that is served.
  returned: success
  type: str
  sample: v1
kubernetes_version:
  description: The API server's version.
  returned: success
  type: str
  sample: v1.34.4
nodes:
  description: The nodes that the driver is to run on.
  returned: success
  type: list
  elements: str
  sample: [r01t01, r01t02]
waiting:
  description: With O(waves), the nodes to which the plugin has still to come.
  returned: success
  type: list
  elements: str
  sample: []
upgrades_old_chart:
  description: Whether the release is of a 25.x chart now.
  returned: success
  type: bool
  sample: false
claims:
  description: The claims with devices of the driver.
  returned: success
  type: list
  elements: dict
  sample: [{namespace: jobs, name: train-0, uid: 0b1c..., reserved: true}]
probe_objects:
  description: What to make for a trial, a ComputeDomain and a DaemonSet for each clique with nodes that none else has.
  returned: success
  type: list
  elements: dict
  sample: []
probe_domains:
  description: The UIDs of those ComputeDomains of O(probe_objects) that are there.
  returned: success
  type: list
  elements: str
  sample: [0b1c...]
crds:
  description: The driver's CRDs that are there.
  returned: success
  type: list
  elements: str
  sample: [computedomains.resource.nvidia.com]
crds_shared:
  description: Whether GPU Operator or another manager has them too.
  returned: success
  type: bool
  sample: false
"""
