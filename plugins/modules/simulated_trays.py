# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: simulated_trays
short_description: "[INTERNAL] Write simulated trays for the demo"
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Writes, on the controller, one directory for each simulated tray. It contains stand-ins of C(nvidia-smi) and C(ip)
    that print the output of these programs on that tray, and C(python), the controller's own Python with these two
    first in its C(PATH).
  - A host with the connection plugin P(ansible.builtin.local#connection) and that C(python) as its
    C(ansible_python_interpreter) is such a tray for M(rackscale.nvlink.fabric_facts), so that the real playbooks run
    without GPUs, as in the playbook C(rackscale.nvlink.demo).
  - Next to them it writes C(ssh-to-nowhere), an executable that fails as C(ssh) does for an unreachable host.
options:
  dest:
    description:
      - The directory to write to; it is created if missing. Files of an earlier run that are no longer part of the
        simulation are removed.
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
        description: Seed of all UUIDs. The same seed gives the same racks.
        type: int
        default: 1
      split:
        description: Number of a rack, from 1, to the number of its cliques.
        type: dict
      cliques_per_rack:
        description: Number of cliques of the other racks.
        type: int
        default: 1
  unhealthy_gpus:
    description:
      - Name of a tray to the list of its GPUs, by index from 0, that report an unhealthy NVLink fabric.
    type: dict
    default: {}
  python:
    description:
      - The Python of the simulated trays. The default is the one that runs Ansible.
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
notes:
  - Used by the roles of this collection alone; its options may change in any release.
"""

EXAMPLES = r"""
- name: Two racks, the second one split, with one unhealthy GPU
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
changes:
  description: Files that were written or removed, or would be in check mode, as paths below O(dest).
  returned: success
  type: list
  elements: str
findings:
  description: Always empty.
  returned: success
  type: list
  elements: dict
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
