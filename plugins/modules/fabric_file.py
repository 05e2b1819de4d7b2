# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_file
short_description: Propose, accept, edit or check the fabric file
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Merges the observations of the trays into the fabric file, the reviewed file that assigns each tray to an NVLink
    clique. It runs on the controller and connects to no host, except through O(sources).
  - A tray is placed or moved only when all its GPUs are attached to one clique. A tray that is down, rebooting,
    in progress, unhealthy or in conflict keeps its place, and only targets of this run can become stale.
  - A run on some of the trays, such as a job slice, adds to the pending proposal; its changes of other trays stay in
    it. O(accept=gates) accepts changes of trays of this run only.
  - Names of domains, cliques and blocks and the positions of blocks are assigned once, never changed and never reused.
  - Next to the fabric file (C(fabric.json)), or in O(state_dir), are the state file (C(fabric.state.json), health and
    findings, not reviewed), the proposal (C(fabric.proposed.json), and C(fabric.proposed.md) for its review). The
    previous version (C(fabric.json.previous)) is next to the fabric file.
  - A discovery in which no tray answers, or fewer than O(min_answer), fails with the causes. It changes no place and
    no proposal; trays of the fabric file become stale.
  - Run it on localhost, as the playbooks C(rackscale.nvlink.discover) and C(rackscale.nvlink.accept) do. On a
    tray the variables of that tray, which it can change by the facts that it returns,
    would decide which file is written and which sources are queried.
  - A tray whose facts set a variable of this collection is refused with the finding V(tray_facts_foreign), and keeps
    its place.
options:
  fabric_file:
    description:
      - The path of the fabric file on the controller; a relative one starts at the working folder. Its directory must
        exist.
    type: path
    required: true
    aliases: [path]
  state:
    description:
      - V(proposed) places the observed trays and writes a proposal where the fabric changes.
      - V(pending) returns the pending proposal for its review and changes nothing.
      - V(accepted) writes the proposal with the sha256 in O(proposal) as the fabric file.
      - V(edited) renames the trays in O(rename), removes those in O(remove) and groups the cliques in O(groups), for
        what no source can observe. A pending proposal is removed, since it was made from the old file.
      - V(checked) validates the fabric file, if it exists, and the options.
      - V(planned) places the observed trays as if those in O(moves) were in their new clique, and returns the path of
        the fabric file that would be accepted, in a folder of this run. It writes no file of the site, and is the same
        in check mode.
    type: str
    choices: [proposed, pending, accepted, edited, checked, planned]
    default: proposed
  observations:
    description:
      - The variable in which a task of this run has registered the results of M(rackscale.nvlink.fabric_facts) on
        O(trays). Facts of an earlier run, for example from a fact cache, are not read.
      - A tray whose result is missing, skipped, failed or unreachable keeps its place.
      - Required with O(state=proposed), unless O(sources) leaves V(ansible_facts) out or O(tray_reading=ssh).
    type: str
  tray_reading:
    description:
      - V(ansible) takes the results that O(trays) registered as O(observations). With V(ssh), and without O(sources),
        this module reads O(trays) itself, from one process, by C(ssh) with the options that Ansible's connection plugin
        C(ssh) would have.
    type: str
    choices: [ansible, ssh]
    default: ansible
    version_added: 1.1.0
  facts:
    description: The options of M(rackscale.nvlink.fabric_facts), of the reading with O(tray_reading=ssh).
    type: dict
    default: {}
    version_added: 1.1.0
  trays:
    description:
      - The inventory names of the trays that this run asks, with or without an answer. No other tray becomes stale
        through V(ansible_facts).
      - Required with O(observations).
    type: list
    elements: str
  sources:
    description:
      - The sources of observations, the most trusted one first.
      - V(ansible_facts) are the results in O(observations). The others are the live sources of the inventory plugin
        P(rackscale.nvlink.fabric#inventory), each by its name or as a mapping of its name to its options there.
      - If two sources report different cliques for one tray, the first decides, and a finding shows both. Values that
        the first does not report, such as GPU UUIDs, are taken from the next.
      - A live source that fails is an error without a fabric file, else a finding.
      - V(nvue), without options, reads the NVLink switches of the group C(nvlink_switches) and only adds findings,
        where a switch lists GPUs in another partition than they report. It never places a tray.
    type: list
    elements: raw
    default: [ansible_facts]
  min_answer:
    description:
      - The smallest share of its trays, in percent, for which a source must answer. Less is an error without a fabric
        file, else a finding. If it is set and all sources together answer for less, the task fails in any case.
      - The default is 50 for live sources, and no limit for V(ansible_facts). At least one tray must always answer.
    type: float
  accept:
    description:
      - With V(gates) the new fabric is written at once if no gate objects. If one does, the proposal is written and the
        task fails.
    type: str
    choices: [gates]
  on_objection:
    description:
      - Whether the task fails with O(accept=gates) where a gate objects. V(report) returns RV(is_refused) instead, for
        a playbook that shows RV(lines) before it fails.
    type: str
    choices: [fail, report]
    default: fail
  proposal:
    description:
      - The sha256 of the proposal to accept, as O(state=proposed) returned it in RV(sha256), or of the proposal file.
      - Required with O(state=accepted).
    type: str
  proposal_file:
    description:
      - The proposal to accept, where it does not lie where O(state=proposed) writes it, such as an artifact of another
        job. Neither state file nor lock of that job is needed.
    type: path
  state_dir:
    description:
      - The folder of state file, proposal and lock, where that of the fabric file is read-only or another job's. It
        must exist, and serves one fabric file. The default is the folder of the fabric file.
      - A run that writes the fabric file writes its previous version and its audit log next to it.
    type: path
  rename:
    description:
      - Trays to rename, old name to new name. A renamed tray keeps its place and its names in Slurm and Kubernetes.
      - O(state=edited) requires O(rename), O(remove) or O(groups).
    type: dict
  remove:
    description:
      - Trays that are gone for good, as hostlists such as V(r01t04) or V(r01t[01-04]); the name of a clique or domain
        stands for its trays. Cliques and blocks keep name and position, also without any tray.
      - A tray that the file does not have is removed already. With O(state=edited).
    type: list
    elements: str
  groups:
    description:
      - Levels above the clique, such as a second NVLink level or a leaf of the scale-out network. A mapping of the
        group's name to a hostlist of its cliques or domains, or a list of hostlists.
      - Slurm aggregates the blocks of a group. A domain stands for its cliques with trays. An empty name takes cliques
        out of their group. With O(state=edited).
    type: dict
  imex_network:
    description:
      - Networks in CIDR notation, the preferred one first. The IMEX address of a tray is its first address in them.
      - Without any, it is the address that Ansible connects to if that is one of the tray's, else the first IPv4
        address, else the first IPv6 address. An address that several trays report is never used.
    type: list
    elements: str
    default: []
  domain_names:
    description:
      - Names for NVLink domains, by cluster UUID or chassis serial. Used at the first discovery of a domain; others are
        named C(r01), C(r02) and so on.
    type: dict
    default: {}
  expected_trays:
    description:
      - The number of trays of every NVLink domain. The default is the number of trays at its first discovery.
    type: int
  moved_percent:
    description:
      - "Gate: the largest share of the placed trays, in percent, that may move, or leave a Slurm or Kubernetes cluster,
        in one run. One tray may always move, unless this is V(0)."
    type: float
    default: 10
  tray_partitions:
    description:
      - What to do with trays that are each alone in a clique, in an NVLink domain that is split per tray (at least half
        of its trays, and at least two).
      - V(own_block) gives each a block. V(leave_out) leaves them out of Slurm's blocks. V(keep_block) keeps each in the
        clique and block that it had; a tray without a place gets a block of its own.
      - V(ask) uses what the fabric file has for the domain. Without it, the gate V(tray_partitions) stops the proposal,
        in which each tray has a block.
      - The fabric file records the decision in C(tray_partitions) of the domain.
    type: str
    choices: [ask, own_block, leave_out, keep_block]
    default: ask
  slurm_topology_split:
    description:
      - "Cliques that have several blocks in Slurm's topology: name of a clique to the sizes of its blocks, such as
        C([14, 4]), or to the names of its blocks with the trays of each, as a hostlist or a list of hostlists."
      - The sizes take the trays in the natural order of their names; the first block is the clique's own one. Each tray
        of the clique is in exactly one block.
      - A clique that is not named has one block. Without the option all cliques stay as they are, and new trays are in
        their clique's own block.
    type: dict
  expected:
    description:
      - "The declared trays of the site: name of an NVLink domain, or of one of its cliques, to a hostlist such as
        C(r01t[01-18]) or a list of hostlists."
      - A new domain whose trays are all declared under one name gets that name. Declared trays without a place, or with
        another one, are findings.
    type: dict
    default: {}
  moves:
    description:
      - The trays that a change of NVLink partitions moves, by their inventory names, with their new clique IDs.
      - No known clique follows these trays to a new ID, as it would where a fabric manager has created its partition
        again with another ID. With O(state=proposed) the default is the trays of a change that the playbook partition
        has begun and not ended.
    type: dict
    default: {}
    version_added: 1.1.0
  max_age:
    description:
      - "Gate: the largest age, in seconds, of an observation that changes a place. The default is no limit."
    type: float
  override:
    description:
      - Names of gates that do not object in this run. The fabric file records them with the time and the objection. A
        run that adds to a pending proposal keeps the overrides of that proposal.
      - V(moved_percent), see O(moved_percent); V(domain_merged) and V(domain_split), when NVLink domains merge or
        split; V(clique_shrank), when trays leave a clique or domain that then has fewer than in O(expected) or
        O(expected_trays); V(unknown_trays), when a new tray is not in O(expected) or is placed elsewhere, or a domain
        gets more than O(expected_trays); V(source_too_old), see O(max_age);
        V(chassis_changed), when a known NVLink domain gets or loses a chassis;
        V(slot_conflict), when trays report one slot of a chassis; V(rotation_in_progress), while only a part of an
        NVLink domain reports a new cluster UUID, of which no tray moves;
        V(domain_uuid_changed) and V(clique_id_changed), when known GPUs report another cluster UUID or other clique
        IDs; V(tray_partitions), see O(tray_partitions).
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.fabric_facts
  - module: rackscale.nvlink.fabric_render
notes:
  - The host variables C(fabric_slurm_node) and C(fabric_kubernetes_node) of a tray set its node names; they may be
    templates over variables of the inventory, without facts. The default is the inventory name.
  - The host variables C(fabric_slurm_cluster) and C(fabric_kubernetes_cluster) of a tray set its clusters, where
    several clusters share the fabric file; they may be templates too. An empty value removes the tray from all clusters
    of the kind; without the variable the tray stays in its cluster.
"""

EXAMPLES = r"""
- name: Observe the trays
  hosts: nvlink
  gather_facts: false
  tasks:
    - name: Read the GPUs
      rackscale.nvlink.fabric_facts:
      register: site_observed
      ignore_unreachable: true

- name: Merge the observations
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Propose the next fabric file
      rackscale.nvlink.fabric_file:
        fabric_file: /srv/site/fabric.json
        observations: site_observed
        trays: "{{ groups['nvlink'] }}"
        imex_network: [198.51.100.0/24]
      register: site_discovered

- name: Query live sources
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Propose the next fabric file from two live sources
      rackscale.nvlink.fabric_file:
        fabric_file: /srv/site/fabric.json
        sources:
          - ssh: {hosts: "r[01-02]t[01-18]"}
          - kubernetes: {kubeconfig: /srv/site/kubeconfig}
        expected:
          r01: r01t[01-18]
          r02: r02t[01-18]
        override: [moved_percent]

- name: Accept a reviewed proposal
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Accept one proposal
      rackscale.nvlink.fabric_file:
        fabric_file: /srv/site/fabric.json
        state: accepted
        proposal: 1f0c3b9a7d25e84f60b1d2c3a4958677e8f90a1b2c3d4e5f60718293a4b5c6d7

- name: Rename a tray
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Give r01t04 the name rack1-tray4
      rackscale.nvlink.fabric_file:
        fabric_file: /srv/site/fabric.json
        state: edited
        rename: {r01t04: rack1-tray4}
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
fabric_file:
  description: The path of the fabric file.
  returned: success
  type: str
  sample: /srv/site/fabric.json
sha256:
  description:
    - The sha256 of the proposed fabric file, or of the current one where nothing is proposed.
    - Null where there is neither.
  returned: unless O(state=checked)
  type: str
proposal_file:
  description: The path of the proposal file; null without a pending proposal.
  returned: with O(state=proposed), O(state=pending), O(state=planned) and O(state=accepted)
  type: str
  sample: /srv/site/fabric.proposed.json
planned:
  description: The path of the fabric file as it would be after O(moves); it is removed when the run ends.
  returned: with O(state=planned)
  type: str
gates:
  description: Names of the gates that object to the planned places, as O(override) takes them.
  returned: with O(state=planned)
  type: list
  elements: str
review_file:
  description: The path of the proposal in Markdown, for a pull request; null without a pending proposal.
  returned: with O(state=proposed)
  type: str
  sample: /srv/site/fabric.proposed.md
is_refused:
  description: Whether O(accept=gates) is set and a gate objects.
  returned: with O(state=proposed), unless too few trays answer
  type: bool
lines:
  description:
    - "For a person: a table of the changes (tray, from, to, why, gate) of at most 40 rows, the objections, trays that
      are stale, in conflict or without a place by cause, hosts that are no trays, and RV(msg)."
    - With O(state=pending) the table, the objections and the sha256.
    - With C(--diff) first the difference, where the same proposal is already there.
  returned: with O(state=proposed), unless too few trays answer, and with O(state=pending) and O(state=planned)
  type: list
  elements: str
changes:
  description: The changed trays, or those that would change in check mode. Empty with O(state=checked).
  returned: always
  type: list
  elements: dict
  contains:
    tray:
      description: The tray's inventory name.
      type: str
    from:
      description: Its clique before; null for a new tray.
      type: str
    to:
      description: Its clique after; null for a removed tray.
      type: str
    kind:
      description: One of C(placed), C(moved), C(replaced), C(gpus), C(slot), C(address), C(name), C(cluster),
        C(removed).
      type: str
    why:
      description: The reason.
      type: str
objections:
  description: Findings of the gates that object. Empty if none does.
  returned: with O(state=proposed), O(state=pending), O(state=planned) and O(state=accepted)
  type: list
  elements: dict
findings:
  description: Findings about trays, cliques and domains, with code, severity, message and subject; empty without
    O(state=proposed).
  returned: always
  type: list
  elements: dict
summary:
  description: Counts of trays.
  returned: with O(state=proposed)
  type: dict
  contains:
    trays:
      description: Trays that have a place.
      type: int
    placed:
      description: Trays with a new place.
      type: int
    moved:
      description: Trays that change their clique.
      type: int
    stale:
      description: Trays that keep their place without a confirming observation.
      type: int
    conflict:
      description: Trays whose GPUs contradict each other or another tray.
      type: int
    unplaced:
      description: Observed trays without a place.
      type: int
msg:
  description: The result and the next step, in one line.
  returned: always
  type: str
"""
