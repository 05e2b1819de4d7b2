# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_topology
short_description: Publish the cliques of a fabric to the schedulers of a Kubernetes cluster
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Finds the installed schedulers by their CustomResourceDefinitions and creates their topology objects from the fabric
    file. These are KAI Scheduler (Topology), Kueue (Topology and ResourceFlavor), Volcano (one HyperNode per clique),
    Grove (ClusterTopologyBinding) and Slinky (an annotation on each Node). Run:ai is configured by its REST API where
    O(runai) is set.
  - Ensures that exactly one of GPU Feature Discovery, the NVIDIA DRA driver and this module writes the node label
    C(nvidia.com/gpu.clique), on which all of them rely. Compares the labels with the fabric file and, with
    O(trays), with the cliques that the trays' GPUs report.
  - The API server dry-runs everything before anything is written. Objects are written by server-side apply under the
    field manager C(rackscale.nvlink), labels and annotations of Nodes under field managers that start with that name.
  - Only objects with the label C(app.kubernetes.io/managed-by=rackscale.nvlink) are changed or deleted.
  - It runs on the Ansible controller, which must reach the API server.
options:
  fabric_file:
    description: The fabric file.
    type: path
    required: true
  kubernetes_cluster:
    description: The name of the Kubernetes cluster in the fabric file, where several share the file.
    type: str
  api:
    description:
      - The connection to the API server. The account needs C(list) of nodes and daemonsets (C(apps)), C(patch) of
        nodes, and C(list), C(patch), C(create) and C(delete) of the schedulers' objects.
      - With O(api.api_url), C(username), C(password), C(password_file), C(client_cert), C(client_key) and C(max_bytes)
        are accepted too, as in the inventory's source C(kubernetes).
    type: dict
    required: true
    suboptions:
      kubeconfig:
        description:
          - A kubeconfig file, as an absolute path or one that starts with C(~/), or V(in-cluster) for the service
            account of the pod that Ansible runs in, as in the inventory's source C(kubernetes).
        type: path
      context:
        description: The context of that file. Default is its current context.
        type: str
      api_url:
        description: The address of the API server, instead of O(api.kubeconfig).
        type: str
      token:
        description: A bearer token for O(api.api_url). It is secret, so prefer O(api.token_file).
        type: str
      token_file:
        description: A file that contains only the token.
        type: path
      ca_file:
        description: A PEM file of the CA certificates that the server's certificate is verified with.
        type: path
      validate_certs:
        description: Whether the server's certificate is verified.
        type: bool
        default: true
      timeout:
        description: Seconds for one request.
        type: float
        default: 30
      deadline:
        description: Seconds for all requests together. Each changed Node is one request.
        type: float
        default: 1800
  state:
    description:
      - V(present) creates or updates the objects. V(absent) removes the managed objects of O(schedulers) and, from each
        Node, the labels and annotations that this module's field managers own. Those that another field manager owns
        too stay.
    type: str
    choices: [present, absent]
    default: present
  schedulers:
    description:
      - The schedulers to configure. V(auto) means the installed ones. The module fails if a named one is not installed.
        Other schedulers are not changed.
    type: list
    elements: str
    choices: [auto, kai, kueue, volcano, grove, slinky]
    default: [auto]
  name:
    description: The name of the objects. An object per clique is named V(name-clique).
    type: str
    default: nvlink
  levels_above:
    description: Topology levels above the clique, the broadest first. Every Node needs their labels.
    type: list
    elements: dict
    default: []
    suboptions:
      label:
        description: The node label, such as C(topology.kubernetes.io/zone).
        type: str
        required: true
      name:
        description: The name of the level in Grove, such as V(zone).
        type: str
        required: true
  flavor_labels:
    description: The node labels by which Kueue's flavor selects the trays. Run:ai's node pool uses the first of them.
    type: dict
    default: {nvidia.com/gpu.present: "true"}
  label_writer:
    description:
      - The writer of the label C(nvidia.com/gpu.clique). V(auto) chooses the writer that runs, and this module where
        neither GPU Feature Discovery nor the DRA driver's plugin writes it and no unknown field manager owns it.
      - The module fails with V(gfd) or V(dra_driver) where that writer does not run, and with V(collection) where
        another writer runs. V(collection) takes over labels that former writers left.
    type: str
    choices: [auto, gfd, dra_driver, collection]
    default: auto
  pending_label_writer:
    description:
      - A writer of the label that counts as running although it does not run yet. Use it in check mode, where the task
        that would start the writer has changed nothing.
    type: str
    choices: [gfd, dra_driver]
  trays:
    description:
      - Trays whose facts C(nvlink_fabric), as M(rackscale.nvlink.fabric_facts) returns them, are compared with the
        labels. A tray without valid facts is not compared.
    type: list
    elements: str
    default: []
  templates:
    description:
      - Jinja templates of the site, by scheduler, instead of those in C(templates/schedulers) of the role
        P(rackscale.nvlink.k8s_topology#role), which have the same variables. Each object must be of the scheduler's
        kinds and have the label C(app.kubernetes.io/managed-by=rackscale.nvlink).
    type: dict
    default: {}
  runai:
    description:
      - Run:ai's control plane, where a network topology and a node pool that uses it are created, both named O(name).
      - Nothing is deleted there, since its objects do not record who created them.
    type: dict
    suboptions:
      url:
        description: Its address, such as C(https://runai.example.org).
        type: str
        required: true
      cluster_id:
        description: The UUID of the cluster in Run:ai.
        type: str
        required: true
      token:
        description: An API token. It is secret, so prefer O(runai.token_file).
        type: str
      token_file:
        description: A file that contains only the token.
        type: path
      ca_file:
        description: A PEM file of the CA certificates that its certificate is verified with.
        type: path
      validate_certs:
        description: Whether its certificate is verified.
        type: bool
        default: true
      timeout:
        description: Seconds for one request.
        type: float
        default: 30
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - The API server dry-runs the changes.
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.fabric_render
"""

EXAMPLES = r"""
- name: Show what would change
  rackscale.nvlink.k8s_topology:
    fabric_file: /srv/cluster/fabric.json
    api:
      kubeconfig: ~/.kube/config
  check_mode: true
  diff: true

- name: Configure KAI and Kueue in a cluster where the DRA driver writes the label
  rackscale.nvlink.k8s_topology:
    fabric_file: /srv/cluster/fabric.json
    api:
      api_url: https://api.example.org:6443
      token_file: /run/secrets/kubernetes-token
      ca_file: /etc/pki/kubernetes-ca.pem
    schedulers: [kai, kueue]
    label_writer: dra_driver
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
schedulers:
  description: The schedulers that are configured.
  returned: always
  type: list
  elements: str
  sample: [kai, kueue]
label_writer:
  description: The writer of the label. One of V(gfd), V(dra_driver), V(collection), V(unknown), V(none) or V(multiple).
  returned: always
  type: str
  sample: dra_driver
changes:
  description: The changes, or in check mode the changes that would be made. After a failed write, those made before it.
  returned: always
  type: list
  elements: dict
  sample: [{action: create, what: Topology nvlink of kai.scheduler, why: ""}]
  contains:
    action:
      description: V(create), V(update) or V(delete).
      type: str
    what:
      description: The object.
      type: str
    why:
      description: The reason, or the fields.
      type: str
findings:
  description: The findings.
  returned: always
  type: list
  elements: dict
  contains:
    code:
      description: The reason code.
      type: str
    severity:
      description: V(error), V(warning) or V(info).
      type: str
    message:
      description: One sentence with the remedy.
      type: str
    tray:
      description: The tray concerned.
      type: str
    clique:
      description: The clique concerned.
      type: str
"""
