# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_file
short_description: Propose, accept, edit or check the fabric file
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Merges what the trays of this play said of themselves into the fabric file, the one reviewed file that says which
    tray stands in which NVLink clique. It works on the controller only and touches no host.
  - A tray is placed or moved only when all its GPUs are attached to one clique. A tray that is down, rebooting,
    in progress, unhealthy or in conflict keeps the place that it has, and only targets of this play can become stale.
  - A run on some of the trays, as a job slice is one, adds to the proposal that waits; what that says of other trays
    stays in it. With O(accept=gates) only what this run has seen is accepted.
  - Names of domains, cliques and blocks and the positions of blocks are given once, kept, and never given again.
  - Next to the fabric file (C(fabric.json)) stand the state file (C(fabric.state.json), health and findings, not
    reviewed), the proposal (C(fabric.proposed.json)) and the file before the last acceptance (C(fabric.json.previous)).
  - Run it with C(run_once). The playbooks C(rackscale.nvlink.discover) and C(rackscale.nvlink.accept) do.
options:
  fabric_file:
    description:
      - The absolute path of the fabric file on the controller. Its directory must exist.
    type: path
    required: true
    aliases: [path]
  state:
    description:
      - V(proposed) places the observed trays and writes a proposal where the fabric changes.
      - V(accepted) turns the proposal that O(proposal) names into the fabric file.
      - V(edited) renames the trays in O(rename) and removes those in O(remove), for what no source can observe. A
        pending proposal is removed, since it was made from the old file.
      - V(checked) only reads the fabric file, where there is one, and the options.
    type: str
    choices: [proposed, accepted, edited, checked]
    default: proposed
  observations:
    description:
      - The name under which a task of this run has registered the results of M(rackscale.nvlink.fabric_facts) on all
        hosts of the play. Facts of an earlier run, as a fact cache holds them, are never read.
      - A host whose result is missing, skipped, failed or unreachable keeps its place.
      - Required with O(state=proposed), unless O(sources) leaves V(ansible_facts) out.
    type: str
  sources:
    description:
      - Where to look, in the order of trust, the most trusted first.
      - V(ansible_facts) is what O(observations) names. The live sources of the inventory plugin
        P(rackscale.nvlink.fabric#inventory) are the others, each by its name or as a mapping of its name to the options
        that it has there.
      - If two name different cliques for one tray, the first decides, and a finding shows both. What the first leaves
        open, as the GPUs' UUIDs, is taken from the next.
      - A live source that fails is an error where there is no fabric file yet, else a finding.
    type: list
    elements: raw
    default: [ansible_facts]
  min_answer:
    description:
      - A source that answers for less than this part of the trays that it was asked for, in percent, is an error where
        there is no fabric file yet, else a finding.
      - Without it, 50 is asked of live sources and nothing of V(ansible_facts).
    type: float
  accept:
    description:
      - With V(gates) the new fabric is written at once if no gate objects. If one does, the proposal is written and the
        task fails.
    type: str
    choices: [gates]
  proposal:
    description:
      - The sha256 of the proposal to accept, as O(state=proposed) returned it in RV(sha256), or of the proposal file.
      - Required with O(state=accepted).
    type: str
  rename:
    description:
      - Trays to rename, old name to new name. A renamed tray keeps its place and its names in Slurm and Kubernetes.
      - O(state=edited) requires O(rename), O(remove) or both.
    type: dict
  remove:
    description:
      - Names of trays that are gone for good. Their cliques and blocks keep name and position, also without any tray.
      - With O(state=edited).
    type: list
    elements: str
  imex_network:
    description:
      - Networks in CIDR notation, the preferred one first. The IMEX address of a tray is its first address in them.
      - Without any, it is the address that Ansible connects to if that is one of the tray's, else the first IPv4
        address, else the first IPv6 address. An address that several trays show is never taken.
    type: list
    elements: str
    default: []
  domain_names:
    description:
      - Names for NVLink domains, by cluster UUID or chassis serial. Used when a domain is first seen; others are named
        C(r01), C(r02) and so on.
    type: dict
    default: {}
  expected_trays:
    description:
      - How many trays every NVLink domain should have. Without it, the trays are counted when a domain is first seen.
    type: int
  moved_percent:
    description:
      - "Gate: at most this part of the placed trays may move in one go, or leave a Slurm or Kubernetes cluster, in
        percent. One tray may always move, unless this is V(0)."
    type: float
    default: 10
  conflict_policy:
    description:
      - What to do with a tray whose GPUs are in different cliques.
      - V(keep) keeps its place, if it has one. V(error) stops the run. V(majority) takes it for one of the clique that
        more than half of its GPUs name; it enters that clique only where O(override) names V(mixed_cliques).
    type: str
    choices: [keep, error, majority]
    default: keep
  expected:
    description:
      - "The trays that the site declares: the name of an NVLink domain, or of one of its cliques, to a hostlist such as
        C(r01t[01-18]) or a list of them."
      - A new domain whose trays are all declared under one name takes that name. Declared trays that have no place, or
        one elsewhere, are findings.
    type: dict
    default: {}
  max_age:
    description:
      - "Gate: how many seconds ago a tray may have been observed that gets or changes its place. Without it, any age
        will do."
    type: float
  override:
    description:
      - Gates that must not object in this run, by their names. The fabric file keeps when and what they would have
        objected to. A run that adds to a waiting proposal need not name again what that has overridden.
      - V(moved_percent); V(domain_merged) and V(domain_split), when NVLink domains merge or part; V(clique_shrank),
        when trays leave a clique or domain that then has fewer than O(expected) or O(expected_trays) says;
        V(unknown_trays), when a new tray is not in O(expected); V(source_too_old), see O(max_age); V(mixed_cliques),
        see O(conflict_policy).
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
  - A site variable C(fabric_slurm_node) or C(fabric_kubernetes_node) of a tray, which may be an expression, is its node
    name there. Without it, the inventory name is.
  - A site variable C(fabric_slurm_cluster) or C(fabric_kubernetes_cluster) of a tray, which may be an expression too,
    is the cluster that the tray belongs to, where several share the fabric file; it is empty to take the tray out of
    all. A tray of which the site says nothing stays where it is.
"""

EXAMPLES = r"""
- name: Ask the trays
  hosts: all
  gather_facts: false
  tasks:
    - name: Ask what the GPUs say
      rackscale.nvlink.fabric_facts:
      register: site_observed
      ignore_unreachable: true

- name: Merge what they said
  hosts: all
  gather_facts: false
  tasks:
    - name: Propose the next fabric file
      rackscale.nvlink.fabric_file:
        fabric_file: /srv/site/fabric.json
        observations: site_observed
        imex_network: [198.51.100.0/24]
      run_once: true
      register: site_discovered

- name: Ask other services too
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

- name: Accept what was looked at
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Accept one proposal
      rackscale.nvlink.fabric_file:
        fabric_file: /srv/site/fabric.json
        state: accepted
        proposal: 1f0c3b9a7d25e84f60b1d2c3a4958677e8f90a1b2c3d4e5f60718293a4b5c6d7
"""

RETURN = r"""
fabric_file:
  description: The path of the fabric file.
  returned: success
  type: str
  sample: /srv/site/fabric.json
sha256:
  description:
    - The sha256 of the fabric file that is proposed, or that stands there where nothing is proposed.
    - Null where there is neither.
  returned: with O(state=proposed) and O(state=accepted)
  type: str
proposal:
  description: The path of the proposal file; null where nothing is to be accepted.
  returned: with O(state=proposed) and O(state=accepted)
  type: str
  sample: /srv/site/fabric.proposed.json
changes:
  description: What happens to each tray that changes.
  returned: with O(state=proposed) and O(state=accepted)
  type: list
  elements: dict
  contains:
    tray:
      description: The tray's inventory name.
      type: str
    from:
      description: Its clique before; null where it had none.
      type: str
    to:
      description: Its clique after.
      type: str
    kind:
      description: One of C(placed), C(moved), C(replaced), C(gpus), C(slot), C(address), C(name), C(cluster).
      type: str
    why:
      description: The reason.
      type: str
objections:
  description: Findings of gates that object. Empty where none does.
  returned: with O(state=proposed) and O(state=accepted)
  type: list
  elements: dict
findings:
  description: Every finding about trays, cliques and domains, with code, severity, message and subject.
  returned: with O(state=proposed)
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
      description: Trays that get their first place.
      type: int
    moved:
      description: Trays that change their clique.
      type: int
    stale:
      description: Trays that keep a place that they did not confirm.
      type: int
    conflict:
      description: Trays whose GPUs contradict each other or another tray.
      type: int
    unplaced:
      description: Trays that were asked for and have no place.
      type: int
msg:
  description: One line that says how it ended and what to do next.
  returned: always
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

# The action plugin validates its options with this, so that there is one truth about them.
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "fabric_file": {"type": "path", "required": True, "aliases": ["path"]},
    "state": {"type": "str", "choices": ["proposed", "accepted", "edited", "checked"], "default": "proposed"},
    "observations": {"type": "str"},
    "accept": {"type": "str", "choices": ["gates"]},
    "proposal": {"type": "str"},
    "rename": {"type": "dict"},
    "remove": {"type": "list", "elements": "str"},
    "imex_network": {"type": "list", "elements": "str", "default": []},
    "domain_names": {"type": "dict", "default": {}},
    "expected_trays": {"type": "int"},
    "moved_percent": {"type": "float", "default": 10},
    "sources": {"type": "list", "elements": "raw", "default": ["ansible_facts"]},
    "min_answer": {"type": "float"},
    "conflict_policy": {"type": "str", "choices": ["keep", "error", "majority"], "default": "keep"},
    "expected": {"type": "dict", "default": {}},
    "max_age": {"type": "float"},
    "override": {"type": "list", "elements": "str", "default": []},
}
REQUIRED_IF: list[tuple[Any, ...]] = [
    ("state", "proposed", ["observations"]),
    ("state", "accepted", ["proposal"]),
    ("state", "edited", ["rename", "remove"], True),
]


def main() -> None:
    """Fail: without the action plugin there is nothing that this could do on a host."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, required_if=REQUIRED_IF, supports_check_mode=True)
    module.fail_json(
        msg="rackscale.nvlink.fabric_file works on the controller, by its action plugin; run it from a playbook"
    )


if __name__ == "__main__":
    main()
