# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_topology
short_description: Tell the schedulers of a Kubernetes cluster the cliques of a fabric
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Finds the schedulers that are installed by their CustomResourceDefinitions and gives each of them the cliques of the
    fabric file. These are KAI Scheduler (Topology), Kueue (Topology and ResourceFlavor), Volcano (one HyperNode a
    clique), Grove (ClusterTopologyBinding) and Slinky (an annotation on each Node). Run:ai is told by its REST API
    where O(runai) is set.
  - Decides who writes the node label C(nvidia.com/gpu.clique), on which all of them rely, so that it is exactly one of
    GPU Feature Discovery, the NVIDIA DRA driver and this module, and compares the labels with the fabric file and, in
    O(tray_cliques), with what the trays' GPUs say.
  - Everything is dry-run by the API server before anything is written. Objects are written by server-side apply as the
    field manager C(rackscale.nvlink), and labels and annotations of Nodes as one that starts with it.
  - Only objects with the label C(app.kubernetes.io/managed-by=rackscale.nvlink) are changed or deleted.
  - It runs on the Ansible controller, which must reach the API server.
options:
  fabric_file:
    description: The fabric file.
    type: path
    required: true
  cluster:
    description: The Kubernetes cluster that is meant, where several share the fabric file.
    type: str
  api:
    description:
      - The way to the API server. The account needs C(list) of nodes and daemonsets (C(apps)), C(patch) of nodes, and
        C(list), C(patch), C(create) and C(delete) of the schedulers' objects.
      - Besides the suboptions here it takes C(username), C(password), C(password_file), C(client_cert),
        C(client_key) and C(max_bytes) with O(api.api_url), as the inventory's source C(kubernetes) does.
    type: dict
    required: true
    suboptions:
      kubeconfig:
        description:
          - A kubeconfig file with a token, a token file or a client certificate, as an absolute path or one that
            starts with C(~/). Logging in by C(exec) or C(auth-provider) is not supported.
        type: path
      context:
        description: The context of that file. The default is its current context.
        type: str
      api_url:
        description: The API server, instead of O(api.kubeconfig).
        type: str
      token:
        description: The token to log in with at O(api.api_url). It is secret, so prefer O(api.token_file).
        type: str
      token_file:
        description: A file that holds the token and nothing else.
        type: path
      ca_file:
        description: PEM file with the certificates of the CAs that the server's certificate may come from.
        type: path
      validate_certs:
        description: Whether the server's certificate is checked.
        type: bool
        default: true
      timeout:
        description: Seconds that one request may take.
        type: float
        default: 30
      deadline:
        description: Seconds that all requests may take together. A Node that changes is one request.
        type: float
        default: 1800
  state:
    description:
      - With V(absent) it removes what it owns of O(schedulers), and of each Node the labels and annotations that its
        field managers own, those that O(topograph=add) copied among them. What another field manager owns too stays.
    type: str
    choices: [present, absent]
    default: present
  schedulers:
    description:
      - The schedulers to tell. V(auto) means those that are installed. One that is named and not installed stops the
        module. Those that are left out are left as they are.
    type: list
    elements: str
    choices: [auto, kai, kueue, volcano, grove, slinky]
    default: [auto]
  name:
    description: The name of the objects, with a dash and the clique's name behind it where there is one a clique.
    type: str
    default: nvlink
  levels_above:
    description: Levels that are broader than a clique, the broadest first. Every Node needs their labels.
    type: list
    elements: dict
    default: []
    suboptions:
      label:
        description: The node label, as C(topology.kubernetes.io/zone).
        type: str
        required: true
      name:
        description: What Grove calls the level, as V(zone).
        type: str
        required: true
  flavor_labels:
    description: The node labels by which Kueue's flavor, and Run:ai's node pool by the first of them, select the trays.
    type: dict
    default: {nvidia.com/gpu.present: "true"}
  clique_label:
    description:
      - Who is to write C(nvidia.com/gpu.clique). V(auto) means the one that runs, and this module where neither GPU
        Feature Discovery nor the DRA driver's plugin writes it and nobody unknown has.
      - V(gfd) and V(dra_driver) stop the module where that one does not run. V(ours) stops it where another runs, and
        takes over what others have left.
    type: str
    choices: [auto, gfd, dra_driver, ours]
    default: auto
  coming_writer:
    description:
      - A writer of the label that is about to run and counts as if it did. It is for check mode, where what would start
        it has only been looked at.
    type: str
    choices: [gfd, dra_driver]
  topograph:
    description:
      - What to do with labels of Topograph 0.5 and older. V(look) tells of them. V(add) copies each to the key of
        Topograph 1.0 where that is missing. V(finish) removes the old ones once every Node has the new ones and no
        Topology names an old one.
    type: str
    choices: [look, add, finish]
    default: look
  tray_cliques:
    description:
      - What the trays' GPUs say, tray to C(nvlink_fabric.clique) of M(rackscale.nvlink.fabric_facts), to compare labels
        with. Null means GPUs in no clique. Trays that were not asked are left out.
    type: dict
    default: {}
  allow_recreate:
    description:
      - Whether an object may be deleted and made anew where it cannot be changed in place. Workloads that name it wait
        meanwhile. If V(false), such an object stops the module.
    type: bool
    default: false
  runai:
    description:
      - Run:ai's control plane, to give the cluster a network topology and a node pool with it, both named O(name).
      - Nothing is deleted there, for its objects have no mark of who made them.
    type: dict
    suboptions:
      url:
        description: Its address, as C(https://runai.example.org).
        type: str
        required: true
      cluster_id:
        description: The UUID that it shows for the cluster.
        type: str
        required: true
      token:
        description: An API token. It is secret, so prefer O(runai.token_file).
        type: str
      token_file:
        description: A file that holds the token and nothing else.
        type: path
      ca_file:
        description: PEM file with the certificates of the CAs that its certificate may come from.
        type: path
      validate_certs:
        description: Whether its certificate is checked.
        type: bool
        default: true
      timeout:
        description: Seconds that one request may take.
        type: float
        default: 30
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - The API server dry-runs what would be written.
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

- name: Tell KAI and Kueue, in a cluster where the DRA driver writes the label
  rackscale.nvlink.k8s_topology:
    fabric_file: /srv/cluster/fabric.json
    api:
      api_url: https://api.example.org:6443
      token_file: /run/secrets/kubernetes-token
      ca_file: /etc/pki/kubernetes-ca.pem
    schedulers: [kai, kueue]
    clique_label: dra_driver
"""

RETURN = r"""
schedulers:
  description: The schedulers that are told.
  returned: always
  type: list
  elements: str
  sample: [kai, kueue]
clique_label_writer:
  description: Who writes the label, V(gfd), V(dra_driver), V(ours), V(unknown), V(nobody) or V(several).
  returned: always
  type: str
  sample: dra_driver
plan:
  description: What was changed, or would be in check mode. After a failed write, what was changed before it.
  returned: always
  type: list
  elements: dict
  sample: [{action: create, what: Topology nvlink of kai.scheduler, why: ""}]
  contains:
    action:
      description: create, update, recreate or delete.
      type: str
    what:
      description: The object.
      type: str
    why:
      description: Why, or which fields.
      type: str
findings:
  description: What is wrong, or worth knowing, each with its remedy.
  returned: always
  type: list
  elements: dict
  contains:
    code:
      description: The reason code.
      type: str
    severity:
      description: error, warning or info.
      type: str
    message:
      description: One sentence with the remedy.
      type: str
    tray:
      description: The tray that it is about.
      type: str
    clique:
      description: The clique that it is about.
      type: str
"""
