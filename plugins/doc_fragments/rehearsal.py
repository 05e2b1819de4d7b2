# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of modules that rehearse before they write."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  rehearse:
    description:
      - Whether slurmctld's own program loads the new files first, in a sandbox on its host that nothing else can see,
        and says where test jobs would run. It runs in check mode too. Needs root, and a host that is no container.
      - With V(auto) it does where the running slurmctld is to load something. A host that does not let it is a finding
        of severity C(info).
      - With V(always) it does in every run, and a rehearsal that cannot be held stops the module.
      - The module stops where slurmctld refuses the files, where a block does not hold a job of its size, or where a
        required job of O(rehearse_jobs) would wait for ever.
    type: str
    choices: [auto, always, never]
    default: auto
  rehearse_jobs:
    description:
      - The site's own test jobs, beside those of every block and partition (one tray, half, all, one more).
    type: list
    elements: dict
    default: []
    suboptions:
      nodes:
        description: How many trays the job wants.
        type: int
        required: true
      segment:
        description: Its C(--segment), V(0) for none.
        type: int
        default: 0
      partition:
        description: Its partition, the cluster's default if empty.
        type: str
        default: ""
      required:
        description: Whether the module stops where it would wait for ever.
        type: bool
        default: false
      user:
        description:
          - Whose job it is. With a user the job meets QoS, accounts and their limits, as slurmctld has last saved them,
            where the site has slurmdbd; what keeps it from that is listed under C(left_out).
        type: str
        default: ""
      account:
        description: The account of that user's job, the user's default one if empty.
        type: str
        default: ""
      qos:
        description: The QoS of that user's job, the default one if empty.
        type: str
        default: ""
  rehearse_timeout:
    description: Seconds that the rehearsal may take.
    type: int
    default: 120
  rehearsal_file:
    description:
      - A file on the Ansible controller that the rehearsal is kept in, one for each Slurm cluster, for the report of
        M(rackscale.nvlink.fabric_render). It is written in check mode too, and where the rehearsal stops the module.
    type: path
"""
