# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the modules for the DRA driver: the cluster, the release and the trays."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
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
        V(host_managed), V(gpu_cluster), V(upgrade) and V(mock), as in the role P(rackscale.nvlink.dra_driver#role).
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
"""

    CHECKS = r"""
options:
  kubelet_root:
    description: The folder of the kubelet on the trays.
    type: path
    default: /var/lib/kubelet
  cdi_enabled:
    description: Whether C(enable_cdi) is set in the configuration of every containerd 1.7.
    type: bool
    default: false
  extra_keys:
    description: Dotted keys that only the templates of the chart read.
    type: list
    elements: str
    default: []
  crd_managers:
    description: Field managers from which the CRDs may be taken over.
    type: list
    elements: str
    default: []
  fail:
    description: Whether an error finding fails the task.
    type: bool
    default: true
"""
