#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_benchmark
short_description: Try blocks with jobs below a reservation
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Takes one block after the other out of service by a reservation, runs jobs on it, gives it back and judges what the
    jobs printed. Slurm refuses the reservation where jobs run, so that nobody's work is met, and that block is not
    tried.
  - Two jobs side by side on the two halves of a block say where they run and which IMEX channels they have. The site's
    own programs follow on the whole block, with one task a tray. Their output is read and held against thresholds.
  - Run it on the Slurm controller, as root. In check mode it tells which blocks it would try.
options:
  fabric_file:
    description: The fabric file on the Ansible controller.
    type: path
  cliques:
    description: The cliques whose blocks are tried, by their names in the fabric file. Without any, all of them.
    type: list
    elements: str
    default: []
  cluster:
    description: The Slurm cluster, where several share the fabric file.
    type: str
    default: ''
  programs:
    description: Programs to run on each block, each one job of one task a tray.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: What failures call it.
        type: str
        required: true
      kind:
        description:
          - How its output is read. V(nvbandwidth) and V(nccl_tests) print on the first task, V(dcgmi_diag) is
            C(dcgmi diag -j) on each tray, V(dcgmi_mndiag) is C(dcgmi mndiag --json) on the first.
        type: str
        choices: [nvbandwidth, nccl_tests, dcgmi_diag, dcgmi_mndiag]
        required: true
      command:
        description: What each task runs in bash.
        type: str
        required: true
      seconds:
        description: How long it may take.
        type: int
        default: 600
      min_bandwidth:
        description:
          - The least bandwidth in GB/s. Of V(nvbandwidth) the smallest between any two GPUs, of V(nccl_tests) the
            average bus bandwidth.
        type: float
  channels:
    description:
      - V(own) wants a channel on each tray and other channels for jobs side by side, as C(switch/nvidia_imex) gives
        them. V(any) wants a channel. V(none) asks for nothing.
    type: str
    choices: [own, any, none]
    default: any
  timeout:
    description: Seconds that a call of scontrol may take.
    type: int
    default: 60
  blocks:
    description: For the action plugin alone, which fills it from the fabric file.
    type: list
    elements: dict
    suboptions:
      block:
        description: Name of the block.
        type: str
        required: true
      nodes:
        description: Its nodes.
        type: list
        elements: str
        required: true
extends_documentation_fragment:
  - rackscale.nvlink.slurm
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
      - It leaves Slurm as it was.
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.verify
"""

EXAMPLES = r"""
- name: Try rack r01 with nvbandwidth
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
ok:
  description: Whether there is no failure of severity error.
  returned: success
  type: bool
blocks:
  description: What each block's jobs came to, as they printed it.
  returned: success
  type: list
  elements: dict
text:
  description: The same for a person, line by line. In check mode the blocks that it would try.
  returned: success
  type: list
  elements: str
  sample: ["2 blocks were tried: r01, r02."]
failures:
  description: What failed, in the form of the failures of M(rackscale.nvlink.verify).
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import benchmark, programs

PROGRAM = {
    "name": {"type": "str", "required": True},
    "kind": {"type": "str", "choices": ["nvbandwidth", "nccl_tests", "dcgmi_diag", "dcgmi_mndiag"], "required": True},
    "command": {"type": "str", "required": True},
    "seconds": {"type": "int", "default": 600},
    "min_bandwidth": {"type": "float"},
}
BLOCK = {"block": {"type": "str", "required": True}, "nodes": {"type": "list", "elements": "str", "required": True}}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            # The first ones are taken by the action plugin.
            "fabric_file": {"type": "path"},
            "cliques": {"type": "list", "elements": "str", "default": []},
            "cluster": {"type": "str", "default": ""},
            "channels": {"type": "str", "choices": ["own", "any", "none"], "default": "any"},
            "programs": {"type": "list", "elements": "dict", "default": [], "options": PROGRAM},
            "conf_dir": {"type": "path", "default": "/etc/slurm"},
            "bin_dir": {"type": "path"},
            "timeout": {"type": "int", "default": 60},
            "blocks": {"type": "list", "elements": "dict", "options": BLOCK},
        },
        supports_check_mode=True,
    )
    params = module.params
    if params["blocks"] is None:
        module.fail_json(
            msg="slurm_benchmark has no blocks: call it as a task, its action plugin reads the fabric file."
        )
    if module.check_mode:
        module.exit_json(changed=False, blocks=[])
    try:
        slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
        rows = [
            benchmark.run_on_block(slurm, row["block"], row["nodes"], params["programs"]) for row in params["blocks"]
        ]
    except NvlinkError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, blocks=rows)


if __name__ == "__main__":
    main()
