# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dynamic inventory of an NVLink fabric."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fabric
short_description: Trays of an NVLink fabric, grouped by NVLink domain and clique
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Reads the fabric file, or queries live sources, and groups the trays by NVLink domain, clique, health and state.
  - An inventory file for this plugin ends in C(.nvlink.yml) or C(.nvlink.yaml), or is another C(.yml) or C(.yaml) file
    with the line C(plugin) of the example.
  - Every tray has the host vars C(nvlink_tray_index), C(nvlink_gpu_count), C(nvlink_health) (healthy, degraded,
    unhealthy or unknown), C(nvlink_state) (present, stale, conflict or unplaced), C(nvlink_imex_address),
    C(nvlink_slurm_node) and C(nvlink_kubernetes_node), and C(ansible_host) where the fabric file holds it.
  - Variables that the trays of a clique share are set on the clique's group, so every tray has them;
    C(nvlink_cluster_uuid), C(nvlink_clique_id), C(nvlink_clique) (their text form C(<uuid>.<id>)),
    C(nvlink_domain_name), C(nvlink_clique_name) and C(nvlink_block). They are null for trays without a place.
  - Where several clusters share the fabric, every tray has C(nvlink_slurm_cluster) and C(nvlink_kubernetes_cluster),
    null in none, and C(nvlink_block) is its block in its Slurm cluster, null in none.
  - Where a clique has several blocks (variable C(slurm_topology_split) of the playbook discover), C(nvlink_block) is a
    variable of its trays.
  - Where O(fabric_file) is set, every host has its absolute path as C(nvlink_fabric_file), and O(state_dir) as
    C(nvlink_fabric_state_dir).
  - The groups are C(nvlink) (every tray), C(nvlink_domain_<name>), below it C(nvlink_clique_<name>), and
    C(nvlink_unhealthy), C(nvlink_degraded), C(nvlink_stale) and C(nvlink_unplaced), which exist even while empty;
    where several clusters share the fabric also C(nvlink_slurm_<cluster>) and C(nvlink_kubernetes_<cluster>).
    C(nvlink_rollout), C(nvlink_repair) and C(nvlink_repair_spare) are empty until a rollout or the playbook repair
    puts trays into them, so that Ansible does not warn of a missing group.
  - With a fabric file, trays that it does not have are in C(nvlink_unplaced) alone, since nobody has reviewed their
    names.
  - Live sources alone set C(ansible_host) only for hosts that no other source of the inventory has.
  - Values are never templated, whatever a tray reports.
notes:
  - O(compose), O(groups) and O(keyed_groups) cost about a third of a millisecond for each expression and tray, since
    Ansible compiles the expression each time. The groups above cost almost nothing, so prefer them on a large fleet.
  - O(cache) keeps the answers of live sources until their options change. The fabric file is read in each run.
  - Without the state file next to the fabric file, every tray is present and its health is unknown.
requirements:
  - fastjsonschema, for the source V(fabric_file)
  - ClusterShell and OpenSSH's client, for the source V(ssh)
  - urllib3, for the sources V(rest) and V(topograph)
  - jmespath, for the source V(rest) and wherever an option is a JMESPath expression
extends_documentation_fragment:
  - constructed
  - inventory_cache
  - rackscale.nvlink.source_ssh
  - rackscale.nvlink.source_kubernetes
  - rackscale.nvlink.source_topograph
  - rackscale.nvlink.source_rest
  - rackscale.nvlink.source_slurm
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [rackscale.nvlink.fabric]
  sources:
    description:
      - The sources of trays, in the order of trust. If two live sources report different cliques for one tray, the
        first decides, and a finding shows both. Values that the first does not report, such as GPU UUIDs, are taken
        from the next.
      - V(fabric_file) is the accepted fabric. Only it has stable names, so list it first.
      - V(ssh) queries every tray over ssh, V(simulation) simulates trays. They are live sources; see the option of each
        name.
      - V(kubernetes), V(topograph) and V(rest) are live sources that query other services; see the option of each name.
      - V(slurm) is the topology of a running Slurm, which has no cliques. It only adds the blocks of trays that other
        sources report; see O(slurm).
      - Live sources on top of V(fabric_file) change the state and health of its trays and add others as unplaced;
        they move no tray.
      - Live sources alone use provisional names, C(new_<first 8 digits of the cluster UUID>) for a domain, the same
        with C(_<clique ID>) for a clique and its block.
    type: list
    elements: str
    required: true
  min_answer:
    description:
      - The smallest share of its trays, in percent, for which a live source must answer. Less, or a failure, is an
        error. If V(fabric_file) is a source too, it is a warning and the places of the fabric file are kept, so an
        outage never empties the inventory. Such an answer is not cached.
      - For V(ssh) these are the trays that it queries, for other sources those of the fabric file, where that is a
        source too.
    type: float
    default: 50
  fabric_file:
    description:
      - The fabric file. Required by the source V(fabric_file).
      - A relative path starts at the inventory file's directory. A template may be used.
    type: str
  state_dir:
    description:
      - The folder of the state file, where it is not that of the fabric file, as the variable C(fabric_state_dir) of
        the playbooks. A relative path starts at the inventory file's directory. A template may be used.
    type: str
  simulation:
    description:
      - The fleet that the source V(simulation) simulates. Equal options give equal trays on every machine.
      - Trays are named C(r01t01) and so on, with as many digits as the fleet needs.
    type: dict
    suboptions:
      racks:
        description: Number of racks. Each is an NVLink domain of its own.
        type: int
        default: 1
      trays_per_rack:
        description: Number of trays of a rack.
        type: int
        default: 18
      gpus_per_tray:
        description: Number of GPUs of a tray.
        type: int
        default: 4
      seed:
        description: Seed of UUIDs, serial numbers and faults.
        type: int
        default: 1
      cliques_per_rack:
        description: Number of cliques of every rack.
        type: int
        default: 1
      split:
        description: Racks that are split differently, as a mapping of the rack's number to its number of cliques.
        type: dict
      faults:
        description:
          - Faults of some of the trays.
          - Each is a rate from 0 to 1, evaluated for each tray by the seed, or a list of trays. A tray has one fault at
            most, the first one in this order.
        type: dict
        suboptions:
          down:
            description: Trays that give no answer.
            type: raw
          detached:
            description: Trays that answer, but are attached to no NVLink domain.
            type: raw
          unhealthy:
            description: Unhealthy trays, each with a finding about its first GPU.
            type: raw
          degraded:
            description: Degraded trays.
            type: raw
"""

EXAMPLES = r"""
# fabric.nvlink.yml: the accepted fabric, next to this file
plugin: rackscale.nvlink.fabric
sources: [fabric_file]
fabric_file: fabric.json

---
# big.nvlink.yml: 10,368 simulated trays
plugin: rackscale.nvlink.fabric
sources: [simulation]
simulation: {racks: 576, trays_per_rack: 18, gpus_per_tray: 4, seed: 1}

---
# bad-day.nvlink.yml: two racks, the second one split into two cliques of 9 trays, with faults
plugin: rackscale.nvlink.fabric
sources: [simulation]
simulation:
  racks: 2
  cliques_per_rack: 1
  split:
    "2": 2
  faults:
    down: [r01t07]
    detached: [r01t08, r02t01]
    unhealthy: 0.05
    degraded: 0.1

---
# live.nvlink.yml: the accepted fabric with the health from a live source, cached for ten minutes
plugin: rackscale.nvlink.fabric
sources: [fabric_file, simulation]
fabric_file: "{{ lookup('ansible.builtin.env', 'HOME') }}/fabric.json"
simulation:
  racks: 2
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/rackscale.nvlink/inventory
cache_timeout: 600

---
# nodes.nvlink.yml: the nodes of a Kubernetes cluster
plugin: rackscale.nvlink.fabric
sources: [fabric_file, kubernetes]
fabric_file: fabric.json
kubernetes:
  kubeconfig: ~/.kube/config
  context: prod
  tray_name: split('.', metadata.name)[0]
  page_size: 1000
  kubernetes_cluster: prod

---
# pod.nvlink.yml: the same from a pod, with its service account
plugin: rackscale.nvlink.fabric
sources: [fabric_file, kubernetes]
fabric_file: fabric.json
min_answer: 50
kubernetes:
  api_url: https://kubernetes.default.svc
  token_file: /var/run/secrets/kubernetes.io/serviceaccount/token
  ca_file: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
  label_selector: node-role.example.org/tray=true
  timeout: 60
  deadline: 300
  max_bytes: 268435456

---
# topograph.nvlink.yml: the blocks that NVIDIA Topograph finds
plugin: rackscale.nvlink.fabric
sources: [fabric_file, topograph]
fabric_file: fabric.json
topograph:
  url: http://topograph.example.org:49021
  provider:
    name: infiniband-bm
    params:
      accelerator:
        source: nvidia-smi
  deadline: 600

---
# slinky.nvlink.yml: what Topograph writes for the Slurm of Slinky, read with a kubeconfig file
plugin: rackscale.nvlink.fabric
sources: [fabric_file, topograph]
fabric_file: fabric.json
topograph:
  kubeconfig: ~/.kube/config
  context: prod
  config_map:
    namespace: slurm
    name: slurm-config
    key: topology.conf

---
# slinky-api.nvlink.yml: the same with a token
plugin: rackscale.nvlink.fabric
sources: [fabric_file, topograph]
fabric_file: fabric.json
topograph:
  api_url: https://api.prod.example.org:6443
  token_file: ~/.config/nvlink/topology-reader.token
  config_map:
    namespace: slurm
    name: slurm-config

---
# netq.nvlink.yml: the same with all its options
plugin: rackscale.nvlink.fabric
sources: [fabric_file, topograph]
fabric_file: fabric.json
topograph:
  url: https://topograph.example.org
  username: nvlink
  password: "{{ lookup('ansible.builtin.env', 'TOPOGRAPH_PASSWORD') }}"
  validate_certs: false
  provider:
    name: netq
    params:
      apiUrl: https://netq.example.org
    creds:
      username: reader
      password: "{{ lookup('ansible.builtin.env', 'NETQ_PASSWORD') }}"
  engine:
    name: slurm
    params:
      plugin: topology/block
  nodes:
    - region: local
      instances:
        i1: slurm-r01t01
  tray_name: sub('^slurm-', '', node)
  poll_interval: 5
  deadline: 600
  slurm_cluster: alpha

---
# cmdb.nvlink.yml: whatever else knows the trays; docs/sources.md has more of these
plugin: rackscale.nvlink.fabric
sources: [fabric_file, rest]
fabric_file: fabric.json
rest:
  url: https://cmdb.example.org/api/trays?limit=500
  token_file: ~/.config/cmdb.token
  ca_file: /etc/ssl/certs/example-ca.pem
  trays: items[?kind == 'gpu-tray']
  next: links.next
  fields:
    name: hostname
    clique: nvlink.clique
    tray_index: nvlink.tray
    gpu_uuids: gpus[].uuid
    addresses: interfaces[?name == 'mgmt0'].address

---
# every-field.nvlink.yml: all fields that an item can have, with a key of the site's own instead of a bearer's token
plugin: rackscale.nvlink.fabric
sources: [fabric_file, rest]
fabric_file: fabric.json
rest:
  url: https://cmdb.example.org/api/trays
  token: "{{ lookup('ansible.builtin.env', 'CMDB_KEY') }}"
  token_header: X-Api-Key
  token_prefix: Key
  trays: items
  next: link
  max_pages: 50
  fields:
    name: hostname
    cluster_uuid: nvlink.cluster
    clique_id: nvlink.clique_id
    chassis_serial: chassis.serial
    tray_index: chassis.tray
    gpu_count: length(gpus)
    driver_version: driver
    health: nvlink.health
    observed_at: last_seen
    problem: state != 'in-service' && join(' ', ['the CMDB calls it', state]) || null
    slurm_node: slurm.node
    slurm_cluster: slurm.cluster
    kubernetes_node: kubernetes.node
    kubernetes_cluster: kubernetes.cluster
    ansible_host: addresses.management

---
# bmc.nvlink.yml: a service that requires a client certificate and a user's password
plugin: rackscale.nvlink.fabric
sources: [fabric_file, rest]
fabric_file: fabric.json
rest:
  url: https://bmc.example.org/redfish/v1/Systems?$expand=.
  client_cert: ~/.config/bmc/client.pem
  client_key: ~/.config/bmc/client.key
  username: reader
  password_file: ~/.config/bmc/password
  trays: Members
  next: '"Members@odata.nextLink"'
  fields:
    name: split('.', lower(HostName))[0]

---
# exported.nvlink.yml: the same from a file
plugin: rackscale.nvlink.fabric
sources: [rest]
rest:
  file: ~/exports/trays.json
  trays: "@"
  fields:
    name: name
    clique: clique

---
# adopt.nvlink.yml: the blocks of a hand-written Slurm topology, for the trays that ssh reaches
plugin: rackscale.nvlink.fabric
sources: [ssh, slurm]
ssh:
  hosts: r[01-02]t[01-18]
slurm:
  command: ssh slurm-head /opt/slurm/bin/scontrol
  topology: racks
  timeout: 60
  slurm_cluster: alpha

---
# trays.nvlink.yml: the trays of the fabric file, queried over ssh in every run
plugin: rackscale.nvlink.fabric
sources: [fabric_file, ssh]
fabric_file: fabric.json
ssh:
  user: root
  fanout: 128

---
# first.nvlink.yml: two racks that are not in a fabric file yet, queried through gateways
plugin: rackscale.nvlink.fabric
sources: [ssh]
ssh:
  hosts: r[01-02]t[01-18]
  ssh_options: [-i, ~/.ssh/trays]
  jump:
    r01t[01-18]: gateway1
    r02t[01-18]: admin@gateway2:2222

---
# slow.nvlink.yml: slow trays, on another port, with programs in unusual places
plugin: rackscale.nvlink.fabric
sources: [fabric_file, ssh]
fabric_file: fabric.json
ssh:
  port: 2222
  ssh: /opt/openssh/bin/ssh
  python: /opt/python3/bin/python3
  backend: nvidia_smi
  nvidia_smi: /opt/nvidia/bin/nvidia-smi
  connect_timeout: 30
  timeout: 60
  command_timeout: 150

---
# readonly.nvlink.yml: the fabric file in a read-only project, its state in a folder of this machine
plugin: rackscale.nvlink.fabric
sources: [fabric_file]
fabric_file: fabric.json
state_dir: /var/lib/nvlink

---
# grouped.nvlink.yml: more groups and variables by expressions
plugin: rackscale.nvlink.fabric
sources: [fabric_file]
fabric_file: fabric.json
strict: true
compose:
  ansible_host: nvlink_imex_address
groups:
  first_row: nvlink_tray_index < 9
keyed_groups:
  - key: nvlink_state
    prefix: state
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from ansible import context
from ansible.errors import AnsibleError, AnsibleOptionsError, AnsibleParserError
from ansible.inventory.manager import InventoryManager
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.template import trust_as_template
from ansible.utils.vars import load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import rfc3339, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import (
    FabricFileError,
    load,
    load_state,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.inventory_vars import ROOT, Plan, plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import site_variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import inventory_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import (
    like_group,
    missing_library,
    nearest,
    shown,
)

STATE_DIR = "state_dir"

# No braces and no number sign: such a text is not a template and cannot change the delimiters of templates.
_PLAIN = re.compile(r"[A-Za-z0-9._:%/ -]+")


def plain(text: str) -> str:
    """Mark a text as trusted if it cannot be a template.

    This has no effect on plays, but ansible-inventory prints an untrusted text as {"__ansible_unsafe": text}, which
    programs that read its JSON do not expect. Every other text stays untrusted.
    """
    return trust_as_template(text) if _PLAIN.fullmatch(text) else text


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """Fill the inventory from the fabric file and live sources."""

    NAME = inventory_file.PLUGIN
    asks_others = False
    """Whether a live source asks for the hosts of all others; then none is queried."""

    def verify_file(self, path: str) -> bool:
        """Whether the file has a suffix of this plugin, or is YAML that names it."""
        return bool(super().verify_file(path)) and inventory_file.is_source(path)

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory; after an error it stays empty."""
        super().parse(inventory, loader, path, cache)
        config = self._load_config(path)
        try:
            self._check_config(config)
            self._read_config_data(path)
            names = sources.check_names(self._option("sources"))
            file, state_dir = self._path(sources.FABRIC_FILE, path), self._path(STATE_DIR, path)
            is_reviewed = sources.FABRIC_FILE in names
            if is_reviewed and file is None:
                raise SourceError(
                    "fabric_file: is missing; set the path of the fabric file, or remove fabric_file from sources"
                )
            if InventoryModule.asks_others and not is_reviewed:
                return
            # Only the plan is kept: a large fabric would double the memory.
            planned = plan(*self._discover(names, file, state_dir, path, cache), inventory.groups, is_reviewed)
            for name in planned.hosts.keys() & {*planned.groups, ROOT, *inventory.groups}:
                raise FabricFileError(like_group(file or path, name))
        except FabricFileError as error:
            raise AnsibleParserError(str(error)) from None
        except NvlinkError as error:
            raise AnsibleParserError(f"{path}: {error}") from None
        except AnsibleOptionsError as error:
            raise AnsibleParserError(f"{path}: {error}") from error
        except ImportError as error:
            raise AnsibleError(f"{path}: {missing_library(error.name)}") from error
        for name in planned.invalid:
            self.display.warning(
                f"{file or path}: its state holds {shown(name)}, which is not a valid tray name; left out"
            )
        everywhere = {"nvlink_fabric_file": file, "nvlink_fabric_state_dir": state_dir}
        shared = {name: value for name, value in everywhere.items() if value}
        if not is_reviewed:
            self._keep_connections(planned, path)
        self._fill(planned, shared)
        self._construct(planned, shared)

    def _keep_connections(self, planned: Plan, path: str) -> None:
        """Drop the addresses that live sources report of hosts that another source has, read before this one or after.

        A service must not decide where such a host is: it may be the Slurm controller.
        """
        addressed = [name for name, own in planned.hosts.items() if "ansible_host" in own]
        if not addressed:
            return
        InventoryModule.asks_others = True
        try:
            others = InventoryManager(loader=self.loader, sources=list(context.CLIARGS.get("inventory") or ())).hosts
        finally:
            InventoryModule.asks_others = False
        dropped = [name for name in addressed if name in others or name in self.inventory.hosts]
        for name in dropped:
            del planned.hosts[name]["ansible_host"]
        if lacking := [name for name in dropped if name in others and "ansible_host" not in others[name].vars]:
            self.display.warning(
                f"{path}: ansible_host of hosts of another inventory is not taken from a live source; set it in that"
                f" inventory: {summarize(lacking)}"
            )

    def _load_config(self, path: str) -> Mapping[str, Any]:
        """Load the inventory file; the errors of Ansible's own check name neither the file nor an unknown key."""
        config = self.loader.load_from_file(path, cache="none", trusted_as_template=True)
        if not config:
            raise AnsibleParserError(f"{path}: is empty; write plugin: {self.NAME} and sources into it")
        if not isinstance(config, Mapping):
            raise AnsibleParserError(f"{path}: must be a mapping of options, not {shown(config)}")
        return config

    def _check_config(self, config: Mapping[str, Any]) -> None:
        known = self.option_definitions
        for key, value in config.items():
            if key not in known:
                raise SourceError(f"{shown(key)} is not a known option{nearest(key, sorted(known))}")
            # Ansible checks the options later, but its messages do not name the file.
            for place, what in site_variables.problems(key, value, known[key]):
                raise SourceError(f"{place}: {what}")
        if "sources" not in config:
            raise SourceError(f"sources: is missing; list one or more of {', '.join(sources.KNOWN)}")

    def _option(self, name: str) -> Any:
        """The value of an option, with templates resolved by the extra vars."""
        value = self.get_option(name)
        if value and self.templar.is_template(value):
            self.templar.available_variables = load_extra_vars(self.loader)
            try:
                return self.templar.template(value)
            except AnsibleError as error:
                raise SourceError(f"{name}: cannot be templated ({error}); correct its template") from error
        return value

    def _path(self, name: str, path: str) -> str | None:
        """The absolute path in an option, a relative one from the folder of this file; None where it is left out."""
        value = self._option(name)
        if not value:
            return None
        if not isinstance(value, str) or not value.strip():
            raise SourceError(f"{name}: is {shown(value)}, write a path")
        return os.path.abspath(os.path.join(os.path.dirname(path), os.path.expanduser(value)))

    def _discover(
        self, names: list[str], file: str | None, state_dir: str | None, path: str, cache: bool
    ) -> tuple[Fabric, State | None]:
        live_options = {name: self._option(name) for name in names if name != sources.FABRIC_FILE}
        known = (load(file), load_state(file, state_dir)) if file and sources.FABRIC_FILE in names else None
        if known and (not live_options or InventoryModule.asks_others):
            return known
        # Imported here, since a fabric file alone needs neither placement nor its libraries.
        from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import overlay

        now = rfc3339()
        merged = self._observe(live_options, known[0] if known else None, now, path, cache)
        for row in merged.findings:
            self.display.warning(row["message"])
        if known:
            return overlay.overlaid(*known, merged.observations, now)
        return overlay.provisional(merged.observations, now, self.inventory.groups)

    def _observe(self, live_options: Mapping[str, Any], known: Fabric | None, now: str, path: str, cache: bool) -> Any:
        """What the live sources report (merging.Merged), from the cache where it has an answer for the same options.

        known: the content of the fabric file where that is a source too; then an outage is a warning, and its answer
        is not cached.
        """
        from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import merging, overlay, policy

        min_answer = policy.percent("min_answer", self._option("min_answer"))
        placed = known.trays if known else {}
        trays = {name: tray.get("ansible_host") or name for name, tray in placed.items()}
        nodes = {name: tray["slurm_node"] for name, tray in placed.items()}

        def query() -> merging.Merged:
            answers = (sources.query(name, options, now, trays, self.display) for name, options in live_options.items())
            return merging.merge(answers, min_answer, known is not None, nodes)

        if not self.get_option("cache"):
            return query()
        asked = json.dumps([live_options, trays, nodes], sort_keys=True, default=str)
        key = f"{self.get_cache_key(path)}_{hashlib.sha256(asked.encode()).hexdigest()}"
        cached = overlay.unpack(self._cache.get(key)) if cache else None
        if cached is not None:
            return cached
        merged = query()
        if not merged.outage:
            self._cache[key] = overlay.pack(merged)
        return merged

    def _fill(self, planned: Plan, everywhere: Mapping[str, Any]) -> None:
        """Add hosts first and link groups last, from the leaves up: the ancestors of a host are then computed once.

        Every reviewed host is in ROOT directly too, since Ansible does not keep the order of hosts of nested groups.
        """
        self.inventory.add_group(ROOT)
        self._set_variables(ROOT, planned.vars)
        self._set_variables("all", everywhere)
        for name, own in planned.hosts.items():
            self.inventory.add_host(name, None if name in planned.unreviewed else ROOT)
            self._set_variables(name, own)
        for name, group in planned.groups.items():
            self.inventory.add_group(name)
            self._set_variables(name, group.vars)
            for host in group.hosts:
                self.inventory.add_child(name, host)
        leaves_first = sorted(planned.groups.items(), key=lambda item: item[1].parent == ROOT)
        for name, group in leaves_first:
            self.inventory.add_child(group.parent, name)

    def _set_variables(self, entity: str, variables: Mapping[str, Any]) -> None:
        for key, value in variables.items():
            self.inventory.set_variable(entity, key, plain(value) if isinstance(value, str) else value)

    def _construct(self, planned: Plan, everywhere: Mapping[str, Any]) -> None:
        compose, groups, keyed = (self.get_option(name) for name in ("compose", "groups", "keyed_groups"))
        if not (compose or groups or keyed):
            return
        strict = self.get_option("strict")
        shared: dict[str, dict[str, Any]] = {}
        for group in planned.groups.values():
            for host in group.hosts if group.vars else ():
                shared[host] = {**shared[host], **group.vars} if host in shared else group.vars
        for name, own in planned.hosts.items():
            variables = {**planned.vars, **everywhere, **shared[name], **own, "inventory_hostname": name}
            self._set_composite_vars(compose, variables, name, strict=strict)
            self._add_host_to_composed_groups(groups, variables, name, strict=strict)
            self._add_host_to_keyed_groups(keyed, variables, name, strict=strict)
