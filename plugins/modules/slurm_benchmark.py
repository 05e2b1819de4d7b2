#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_benchmark
short_description: Evaluate the jobs that benchmark blocks
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Returns the blocks to benchmark, and evaluates what their jobs printed. It connects to no host. The playbook
    C(rackscale.nvlink.verify) with the tag C(benchmark) reserves the blocks and runs the jobs.
options:
  fabric_file:
    description:
      - Path of the fabric file on the Ansible controller, whose blocks are benchmarked.
    type: path
    required: true
  cluster:
    description: The Slurm cluster of the fabric file. Required where several Slurm clusters share it.
    type: str
  cliques:
    description: The cliques whose blocks are benchmarked. All of them if empty.
    type: list
    elements: str
    default: []
  programs:
    description: Programs to run on each block, each as one job with one task on each tray.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name that RV(failures) have.
        type: str
        required: true
      kind:
        description:
          - The format of its output. V(nvbandwidth) and V(nccl_tests) print on the first task, V(dcgmi_diag) is
            C(dcgmi diag -j) on each tray, V(dcgmi_mndiag) is C(dcgmi mndiag --json) on the first task.
        type: str
        choices: [nvbandwidth, nccl_tests, dcgmi_diag, dcgmi_mndiag]
        required: true
      command:
        description: The command that bash runs in each task.
        type: str
        required: true
      seconds:
        description: Seconds that the program may take.
        type: int
        default: 600
      min_bandwidth:
        description:
          - The lowest accepted bandwidth in GB/s, no limit if unset. For V(nvbandwidth) it applies to the smallest
            value between any two GPUs, for V(nccl_tests) to the average bus bandwidth.
        type: float
  channel_isolation:
    description:
      - V(own) requires an IMEX channel on each tray, and different channels for concurrent jobs, as
        C(switch/nvidia_imex) assigns them. V(any) requires a channel. V(none) requires no channel.
    type: str
    choices: [own, any, none]
    default: any
  results:
    description:
      - Of each block a dictionary with its name as C(block), and what the tasks returned that reserved it
        (C(reserved)), and lists of those that ran a job on each half (C(halves)) and the programs (C(programs)).
    type: list
    elements: dict
    default: []
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
seealso:
  - module: rackscale.nvlink.verify
"""

EXAMPLES = r"""
- name: Read the blocks to benchmark
  rackscale.nvlink.slurm_benchmark:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    cliques: [r01]
"""

RETURN = r"""
ok:
  description: Whether no failure has severity error.
  returned: success
  type: bool
changes:
  description: Always empty; Slurm is left as it was.
  returned: success
  type: list
  elements: str
findings:
  description: The failures as findings, with C(code), C(severity), C(message), C(tray) and C(clique).
  returned: success
  type: list
  elements: dict
failures:
  description: What failed, in the form of the failures of M(rackscale.nvlink.verify).
  returned: success
  type: list
  elements: dict
blocks:
  description: The blocks to benchmark.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the block.
      type: str
    nodes:
      description: The NodeNames of its trays.
      type: list
      elements: str
programs:
  description: The option O(programs) with the default of each option.
  returned: success
  type: list
  elements: dict
text:
  description: The result as lines of text. In check mode the blocks that would be benchmarked.
  returned: success
  type: list
  elements: str
  sample: ["2 blocks were benchmarked: r01, r02."]
"""
