#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_check
short_description: "[INTERNAL] Fail where a person names what does not exist or sets a wrong value; plan a run of site"
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Checks the tags and the limit of the command line, and variables that name hosts or trays, before anything is done.
    Ansible itself ends with exit status 0 where a pattern matches no host, or where no task has a tag.
  - Each list holds names of variables. Their values are read as localhost has them.
  - Fails for an extra variable that nothing reads, where its name is similar to a variable of this collection
    or has a prefix that only this collection uses. In the inventory such a name is a warning.
  - Fails for a value of a wrong type, for a negative number, and for a value that is none of the choices or that has an
    unknown key. All extra variables are checked, and of the inventory those that the playbook reads, on localhost and
    on up to 1,000 hosts, those with a file in C(host_vars) and one of each group first. Templates are not evaluated.
  - Where a playbook of the site imports the one with this task, a tag that is similar to one of this collection is only
    a warning.
notes:
  - Run it once, in a play over C(localhost:all), so that it knows which hosts C(--limit) leaves and fails for localhost
    where it is among them. It reads the command line and variables of localhost alone, and connects to no host.
  - Used by the playbooks of this collection alone; its options may change in any release.
options:
  localhost:
    description:
      - Whether C(--limit) must leave localhost. Else Ansible would drop the plays on localhost, and the run would
        succeed without doing what it is for.
    type: bool
    default: true
  required:
    description: Variables that must be set.
    type: list
    elements: str
    default: []
  patterns:
    description:
      - Patterns that must match a host of this run. A variable that is not set has its default.
      - With O(plan) they may match none, since the plan itself requires trays.
    type: list
    elements: str
    default: []
  inventory_patterns:
    description: Patterns that must match a host of the inventory, in this run or not.
    type: list
    elements: str
    default: []
  optional_patterns:
    description: Patterns that must match a host of the inventory where they are set.
    type: list
    elements: str
    default: []
  fabric_variable:
    description:
      - The variable of a role that is the path of the fabric file, by default as the lookup
        P(rackscale.nvlink.fabric_path#lookup) finds it. The file must exist and be valid, in check mode too.
      - The variables are read as the first host of O(patterns) or O(inventory_patterns) has them, whose tasks read the
        file.
    type: str
  files:
    description: Paths of files, or of several between colons. One that does not exist is an error where an extra
      variable sets it, else a warning.
    type: list
    elements: str
    default: []
  trays:
    description: Hostlists of trays, cliques and domains of the fabric file, or of hosts of the inventory.
    type: list
    elements: str
    default: []
  placed:
    description:
      - Hostlists of trays, cliques and domains of the fabric file.
      - In check mode hosts of the inventory too, since a discovery before it places them in no file.
    type: list
    elements: str
    default: []
  renames:
    description: Pairs OLD:NEW, separated by commas.
    type: list
    elements: str
    default: []
  plan:
    description:
      - Whether to plan the phases of the playbook C(rackscale.nvlink.site), and to fail with all errors that would stop
        a later one, found from variables of localhost, the addresses of the trays and the fabric file alone.
      - Slurm applies with a host of C(slurm_controller_hosts). IMEX applies with C(imex_owner) and without
        the DRA driver. Kubernetes applies with C(dra_driver_shape) or C(k8s_topology_schedulers). Tags select among
        these.
    type: bool
    default: false
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details:
      - It changes nothing.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Check what this run names
  rackscale.nvlink.run_check:
    required: [drain_trays]
    inventory_patterns: [slurm_controller_hosts]
    trays: [drain_trays]
  run_once: true
"""

RETURN = r"""
phases:
  description: The phases to run, in their order.
  returned: with O(plan)
  type: list
  elements: str
  sample: [discover, slurm, imex, verify, report]
changes:
  description: Always empty.
  returned: always
  type: list
  elements: str
findings:
  description: Always empty.
  returned: always
  type: list
  elements: dict
playbooks:
  description:
    - The playbooks whose plays in the folder C(phases) are to run. With O(plan) those of the phases, else the one that
      has this task.
  returned: always
  type: list
  elements: str
  sample: [discover, slurm, rollout, verify, render]
hosts:
  description: The hosts of this run that match one of O(patterns) and O(optional_patterns).
  returned: always
  type: list
  elements: str
  sample: [r01t01, r01t02]
dra_driver:
  description:
    - Whether the DRA driver is installed. C(site) does not install it where C(k8s_topology_schedulers) is set and
      C(dra_driver_shape) is not.
  returned: always
  type: bool
  sample: false
"""
