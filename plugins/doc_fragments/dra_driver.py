# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of modules about the DRA driver: the cluster that it is in, and its release."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  kubeconfig:
    description: A kubeconfig file with a token, a token file or a client certificate.
    type: path
    required: true
  context:
    description: A context of that file. Empty for its current one.
    type: str
    default: ''
  timeout:
    description: Seconds that one answer of the API server may take.
    type: float
    default: 30
  shape:
    description: The shape of the cluster, as the role has it.
    type: str
    default: compute_domains
  values:
    description: Values of the chart over those of the shape.
    type: dict
    default: {}
  chart_version:
    description: The one version of the chart, from 0.4.0 on.
    type: str
    default: 0.5.0
  release:
    description: The release's name.
    type: str
    default: dra-driver-nvidia-gpu
  namespace:
    description: The release's namespace.
    type: str
    default: dra-driver-nvidia-gpu
  label_writer:
    description: V(site) if something of the site writes the label of cliques.
    type: str
    choices: ['', site]
    default: ''
"""
