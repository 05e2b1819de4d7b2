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
  - Values are read as localhost has them.
  - The playbooks import it by C(phases/check.yml), which registers its result as C(run_plan) in every run. Later plays
    read what the run is from there alone.
  - The variable C(run_playbook) of the play names the playbook. What it checks is C(run_check) in the entry of that
    playbook in C(playbooks/files/argument_specs.yml).
  - Of C(site) it plans the phases, and fails for all that would stop a later one, found from variables of localhost,
    the addresses of the trays and the fabric file alone. Slurm applies with a host of C(slurm_controller_hosts). IMEX
    applies with C(imex_owner) and without the DRA driver. Kubernetes applies with C(dra_driver_shape) or
    C(k8s_topology_schedulers). Tags select among these.
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
  - Used by the playbooks of this collection alone; its result may change in any release.
options: {}
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
  run_once: true
  register: run_plan
"""

RETURN = r"""
phases:
  description: The phases to run, in their order.
  returned: for the playbook site
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
    - The playbooks whose plays in the folder C(phases) are to run. Of C(site) those of the phases, else the playbook
      itself.
  returned: always
  type: list
  elements: str
  sample: [discover, slurm, rollout, verify, render]
hosts:
  description: The hosts of this run that match a pattern of the playbook, such as C(fabric_hosts) of C(discover).
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
