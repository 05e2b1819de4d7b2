#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_benchmark
short_description: Benchmark blocks with jobs in a reservation
version_added: 1.0.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Reserves one block after the other, runs jobs on it, deletes the reservation and evaluates what the jobs printed.
    Slurm refuses a reservation where jobs run, so no user's job is affected, and that block is not benchmarked.
  - Two concurrent jobs on the two halves of a block print where they run and which IMEX channels they have. The site's
    own programs follow on the whole block, with one task on each tray. Their output is parsed and compared with
    thresholds.
  - Run it on the Slurm controller, as root. It fails where Slurm is too old for blocks. In check mode it only lists
    the blocks.
options:
  fabric_file:
    description:
      - Path of the fabric file on the Ansible controller, whose blocks are benchmarked. Required.
    type: path
  blocks:
    description: The blocks to benchmark, in O(fabric_file). Set by the action plugin.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the block.
        type: str
        required: true
      nodes:
        description: The NodeNames of the block's trays.
        type: list
        elements: str
        required: true
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
  timeout:
    description: Seconds that one call of scontrol may take.
    type: float
    default: 60
extends_documentation_fragment:
  - rackscale.nvlink.slurmctld
  - rackscale.nvlink.slurmctld.cluster
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - Slurm is left as it was.
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.verify
"""

EXAMPLES = r"""
- name: Benchmark clique r01 with nvbandwidth
  rackscale.nvlink.slurm_benchmark:
    fabric_file: "{{ inventory_dir }}/fabric.json"
    cliques: [r01]
    programs:
      - name: nvbandwidth
        kind: nvbandwidth
        command: nvbandwidth -t multinode_device_to_device_memcpy_read_ce
        min_bandwidth: 700
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
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
results:
  description: The jobs of each block with their output. Empty in check mode.
  returned: success
  type: list
  elements: dict
  contains:
    block:
      description: Name of the block.
      type: str
    refused_reason:
      description: Why Slurm refused the reservation, empty where it did not.
      type: str
    placement:
      description: The two concurrent jobs.
      type: list
      elements: dict
    programs:
      description: The job of each program, with its name.
      type: list
      elements: dict
text:
  description: The result as lines of text. In check mode the blocks that would be benchmarked.
  returned: success
  type: list
  elements: str
  sample: ["2 blocks were benchmarked: r01, r02."]
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import benchmark, programs, rules

PROGRAM: dict[str, Specification] = {
    "name": {"type": "str", "required": True},
    "kind": {"type": "str", "choices": ["nvbandwidth", "nccl_tests", "dcgmi_diag", "dcgmi_mndiag"], "required": True},
    "command": {"type": "str", "required": True},
    "seconds": {"type": "int", "default": 600},
    "min_bandwidth": {"type": "float"},
}
ARGUMENTS: dict[str, Specification] = {
    # The action plugin reads fabric_file, cluster, cliques and channel_isolation on the Ansible controller.
    "fabric_file": {"type": "path"},
    "cluster": {"type": "str"},
    "cliques": {"type": "list", "elements": "str", "default": []},
    "channel_isolation": {"type": "str", "choices": ["own", "any", "none"], "default": "any"},
    "programs": {"type": "list", "elements": "dict", "default": [], "options": PROGRAM},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "bin_dir": {"type": "path"},
    "timeout": {"type": "float", "default": 60},
}


def main() -> None:
    actions.begin()
    module = AnsibleModule(argument_spec={**ARGUMENTS, "blocks": programs.BLOCKS}, supports_check_mode=True)
    params = module.params
    rows = []
    try:
        slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
        # Jobs would run on the trays there too, without any block.
        rules.require_supported(slurm.version())
        for block in [] if module.check_mode else params["blocks"]:
            rows.append(benchmark.run_on_block(slurm, block["name"], block["nodes"], params["programs"]))
    except NvlinkError as error:
        module.fail_json(msg=str(error), actions=actions.done())
    module.exit_json(changed=False, changes=[], findings=[], actions=actions.done(), results=rows)


if __name__ == "__main__":
    main()
