# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: simulated_trays
short_description: Write simulated trays to try the collection on
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Writes, on the controller, one directory for each tray of a simulation. In it stand C(nvidia-smi) and C(ip), which
    say what these programs say on that tray, and C(python), the controller's own Python that finds these two first.
  - A host with the connection plugin P(ansible.builtin.local#connection) and that C(python) as its
    C(ansible_python_interpreter) is such a tray for M(rackscale.nvlink.fabric_facts), so that the real playbooks run
    where there is no GPU. The playbook C(rackscale.nvlink.demo) does so.
  - Next to them it writes C(ssh-to-nowhere), an executable that fails as C(ssh) does when a host does not answer.
options:
  dest:
    description:
      - The directory to write to; it is made where it is missing. What an earlier run wrote and the simulation no
        longer has is removed, nothing else.
    type: path
    required: true
  simulation:
    description:
      - The racks to simulate, with the names and meanings that the source C(simulation) of the inventory plugin
        P(rackscale.nvlink.fabric#inventory) gives them.
    type: dict
    required: true
    suboptions:
      racks:
        description: Number of racks, each an NVLink domain of its own.
        type: int
        default: 1
      trays_per_rack:
        description: Number of trays in each rack.
        type: int
        default: 18
      gpus_per_tray:
        description: Number of GPUs in each tray.
        type: int
        default: 4
      seed:
        description: From it all UUIDs are made. The same seed gives the same racks.
        type: int
        default: 1
      split:
        description: Number of a rack, counted from 1, and the number of cliques that this rack is split into.
        type: dict
      cliques_per_rack:
        description: Number of cliques of the racks that O(simulation.split) does not name.
        type: int
        default: 1
  unhealthy_gpus:
    description:
      - Name of a tray and the list of its GPUs, by index from 0, whose NVLink fabric says that it is unhealthy.
    type: dict
    default: {}
  python:
    description:
      - The Python that the trays' C(python) runs. By default the one that runs Ansible.
    type: path
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Two racks, the second one split, with one GPU in trouble
  rackscale.nvlink.simulated_trays:
    dest: /srv/demo/trays
    simulation:
      racks: 2
      split:
        "2": 2
    unhealthy_gpus:
      r02t12: [2]
"""

RETURN = r"""
dest:
  description: The directory that was written to.
  returned: success
  type: str
  sample: /srv/demo/trays
trays:
  description: The names of the trays.
  returned: success
  type: list
  elements: str
  sample: [r01t01, r01t02]
"""
