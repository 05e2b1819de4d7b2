# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dra_driver_info
short_description: Check a Kubernetes cluster and its trays for the NVIDIA DRA driver
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Reads a cluster by its API, on the controller, and returns findings on what prevents an installation of the driver,
    on its operation, or on what blocks its removal. It changes nothing, and reads only the metadata of Secrets.
  - The facts of the trays are read from their variables C(nvlink_fabric) and C(nvlink_imex). Gather them before with
    M(rackscale.nvlink.fabric_facts) and C(gather_subset=gpu,imex). Checks without facts are skipped.
options:
  kubeconfig:
    description: A kubeconfig file, or C(in-cluster) for the service account of the pod that Ansible runs in.
    type: path
    required: true
  context:
    description: A context of that file. Default is its current context.
    type: str
    default: ''
  timeout:
    description: Seconds for one request to the API server.
    type: float
    default: 30
  shape:
    description:
      - The shape of the cluster, which sets the values that it needs. One of V(compute_domains), V(all_dra),
        V(host_managed) and V(gpu_cluster), as in the role P(rackscale.nvlink.dra_driver#role).
    type: str
    default: compute_domains
  values:
    description: Values of the chart, which override those of O(shape) key by key.
    type: dict
    default: {}
  chart_version:
    description: The exact version of the chart, from 0.4.0 on.
    type: str
    default: 0.5.0
  release:
    description: The name of the Helm release.
    type: str
    default: dra-driver-nvidia-gpu
  namespace:
    description: The namespace of the Helm release.
    type: str
    default: dra-driver-nvidia-gpu
  external_label_writer:
    description:
      - Whether a program other than GPU Feature Discovery and the driver writes the label C(nvidia.com/gpu.clique),
        such as M(rackscale.nvlink.k8s_topology).
    type: bool
    default: false
  trays:
    description: The inventory names of the trays. Without any, the nodes with a GPU label are used.
    type: list
    elements: str
    default: []
  wait:
    description: Seconds to wait for errors to disappear.
    type: float
    default: 0
  kubelet_root:
    description: The folder of the kubelet on the trays, below which the values have the paths of the plugin.
    type: path
    default: /var/lib/kubelet
  cdi_enabled:
    description: Whether C(enable_cdi) is set in the configuration of every containerd 1.7.
    type: bool
    default: false
  crd_managers:
    description: Field managers from which the CRDs may be taken over.
    type: list
    elements: str
    default: []
  fail:
    description: Whether an error finding fails the task.
    type: bool
    default: true
  phase:
    description:
      - V(preflight) runs all checks that are possible before an installation or upgrade, including those of the
        values without their keys, for which the role asks the chart.
      - V(checks) checks the installed driver, its pods, DeviceClasses, ResourceSlices, labels and ComputeDomains.
      - V(uninstall) returns what must be deleted before the driver is removed.
      - V(imex) has the errors of V(preflight) before the owner of IMEX changes.
      - V(manifest) has the API server dry-run the objects of O(manifest), and compares them and the values with those
        of a 25.x release that they replace.
    type: str
    choices: [imex, preflight, manifest, checks, uninstall]
    required: true
  chart_crds:
    description: The CRDs of the chart, with which those of the cluster are compared.
    type: list
    elements: dict
    default: []
  chart_values:
    description: The values.yaml of the chart, which has every key of O(values).
    type: dict
    default: {}
  imex_pending:
    description: Whether P(rackscale.nvlink.imex#role) will configure IMEX later, so that its state is not checked.
    type: bool
    default: false
  manifest:
    description: What the chart renders, as YAML documents.
    type: str
    default: ''
  unread_keys:
    description: The keys of RV(variants) without which the chart renders the same as O(manifest).
    type: list
    elements: str
    default: []
  chart:
    description: The chart, as a folder or archive. Of O(unread_keys) those that its templates name are warnings.
    type: str
    default: ''
  old_values:
    description: The values of the release of a 25.x chart that is upgraded.
    type: dict
    default: {}
  old_manifest:
    description: The manifest of that release. Without it nothing is compared.
    type: str
    default: ''
  claims_before:
    description: RV(claims) of an earlier call; V(checks) has a finding on each that was in use and no longer is.
    type: list
    elements: dict
    default: []
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
"""

EXAMPLES = r"""
- name: Check whether a cluster is ready for the driver
  rackscale.nvlink.dra_driver_info:
    phase: preflight
    kubeconfig: ~/.kube/config
    shape: compute_domains
    trays: "{{ groups['nvlink'] }}"
    fail: false
  register: preflight
"""

RETURN = r"""
ok:
  description: Whether there is no finding of severity error.
  returned: success
  type: bool
  sample: true
changes:
  description: Always empty, since the module changes nothing.
  returned: success
  type: list
  elements: dict
  sample: []
findings:
  description: The findings. They are also warnings of the task.
  returned: always
  type: list
  elements: dict
  sample:
    - code: dra_node_not_selected
      severity: error
      node: r01t03
      message: >-
        The driver would not run on node r01t03: it has none of the labels of the chart's affinity; label it
        nvidia.com/gpu.present=true, or let node-feature-discovery set one of the others.
release_values:
  description: The values for the installation of the chart, from the shape, the version of the API and O(values).
  returned: success
  type: dict
  sample: {resourceApiVersion: resource.k8s.io/v1}
stand_alone:
  description: Whether the driver is installed by its own chart, not by GPU Operator.
  returned: success
  type: bool
  sample: true
api_version:
  description: The preferred version of C(resource.k8s.io) that the API server serves. Null if it serves none.
  returned: success
  type: str
  sample: v1
kubernetes_version:
  description: The version of the API server.
  returned: success
  type: str
  sample: v1.34.4
nodes:
  description: The nodes on which the driver is to run.
  returned: success
  type: list
  elements: str
  sample: [r01t01, r01t02]
free_nodes:
  description: Clique to the host names of its nodes that have no ComputeDomain.
  returned: success
  type: dict
  sample: {9f3c1d7a-0b2e-4c58-9d11-2f6a7e5b3c40.32766: [r01t01, r01t02]}
compute_domains:
  description: Clique with such nodes to the ComputeDomains on its other nodes.
  returned: success
  type: dict
  sample: {9f3c1d7a-0b2e-4c58-9d11-2f6a7e5b3c40.32766: [jobs/train]}
probe_namespaces:
  description: The namespaces with objects of a probe of the role P(rackscale.nvlink.dra_driver#role).
  returned: success
  type: list
  elements: str
  sample: []
variants:
  description: RV(release_values), and the same without each key (C(key)) that O(chart_values) lacks.
  returned: success
  type: list
  elements: dict
  sample: [{key: "", values: {resourceApiVersion: resource.k8s.io/v1}}]
upgrades_old_chart:
  description: Whether the installed release is of a 25.x chart.
  returned: success
  type: bool
  sample: false
claims:
  description: The claims with devices of the driver.
  returned: success
  type: list
  elements: dict
  sample: [{namespace: jobs, name: train-0, uid: 0b1c..., reserved: true}]
crds:
  description: The installed CRDs of the driver.
  returned: success
  type: list
  elements: str
  sample: [computedomains.resource.nvidia.com]
crds_shared:
  description: Whether GPU Operator or another field manager uses them too.
  returned: success
  type: bool
  sample: false
"""
