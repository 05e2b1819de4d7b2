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
      - Whether a private slurmctld loads the new files first, in a sandbox on the controller's host, and places test
        jobs. It runs in check mode too. Needs root, and a host that is not a container.
      - With V(auto) a rehearsal runs where slurmctld is to load something. A host that does not permit one is a finding
        of severity C(info).
      - With V(always) a rehearsal runs every time, and the module fails where it is not possible.
      - The module fails where slurmctld refuses the files, where a job of a block's size is not placed in its block, or
        where a required job of O(rehearse_jobs) would be pending for ever.
    type: str
    choices: [auto, always, never]
    default: auto
  rehearse_jobs:
    description:
      - The site's own test jobs, in addition to those of every block and partition (one tray, half, all, one more).
    type: list
    elements: dict
    default: []
    suboptions:
      nodes:
        description: The number of trays of the job.
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
        description: Whether the module fails where the job would be pending for ever.
        type: bool
        default: false
  rehearse_timeout:
    description: Seconds that the rehearsal may take.
    type: float
    default: 120
"""
