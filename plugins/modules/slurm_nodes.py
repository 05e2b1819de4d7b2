#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_nodes
short_description: Keep jobs from trays, and give them back after a test
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Runs on a host with scontrol, as the Slurm controller, with the rights of a Slurm operator.
  - Drains nodes with a reason, and resumes those that were drained with that reason. A node that somebody else has
    drained keeps its state and its reason.
  - With O(test) a node is first reserved for O(test_user), then undrained, then tested by a job. Only when that job
    ended with 0 do others get in; else the node is drained again. The reservation ends by itself if the run is killed.
options:
  nodes:
    description: The NodeNames. One that slurmctld does not know is told in RV(missing).
    type: list
    elements: str
    required: true
  state:
    description:
      - V(drained) keeps new jobs away and waits for those that run. V(resumed) gives nodes back.
      - V(taken_over) gives O(reason) to nodes that are drained for another reason that begins with C(nvlink:).
    type: str
    choices: [drained, resumed, taken_over]
    required: true
  reason:
    description:
      - Why, in a few words. What Slurm shows begins with C(nvlink:).
      - With V(resumed), only nodes come back that were drained for this reason, or whose test has failed before.
    type: str
    required: true
  wait:
    description: With V(drained), seconds to wait for running jobs. Nodes that still have some are told in RV(busy).
    type: float
    default: 0
  unless_up:
    description: With V(drained), leave nodes alone that answer slurmctld, which work already.
    type: bool
    default: false
  test:
    description: With V(resumed), the program and its arguments that a job runs on each node, one node after the other.
    type: list
    elements: str
    default: []
  test_user:
    description: The user of the test's jobs.
    type: str
    default: root
  test_timeout:
    description: Seconds that the test of one node may take.
    type: float
    default: 120
  timeout:
    description: Seconds that one call of scontrol may take, and that resumed nodes may take to answer slurmctld.
    type: int
    default: 60
extends_documentation_fragment:
  - rackscale.nvlink.slurm
  - rackscale.nvlink.attributes
attributes:
  check_mode:
    support: full
    details:
      - No test runs.
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Keep jobs from a tray that is about to be replaced
  rackscale.nvlink.slurm_nodes:
    nodes: [r01t04]
    state: drained
    reason: replaced
    wait: 3600

- name: Give it back once a job sees its GPUs
  rackscale.nvlink.slurm_nodes:
    nodes: [r01t04]
    state: resumed
    reason: replaced
    test: [nvidia-smi, -q, -x]
"""

RETURN = r"""
changes:
  description: What changed, or would in check mode.
  returned: success
  type: list
  elements: str
  sample: ["r01t04: drained (nvlink: replaced)"]
missing:
  description: Nodes that slurmctld does not know.
  returned: success
  type: list
  elements: str
  sample: []
busy:
  description: Nodes on which jobs still run, each with their ids.
  returned: success
  type: dict
  sample: {r01t04: ["17"]}
kept:
  description: Nodes that are drained for another reason and stay so, each with that reason.
  returned: success
  type: dict
  sample: {r01t05: broken fan}
refused:
  description: Nodes whose test failed and that are drained again, each with what went wrong.
  returned: success
  type: dict
  sample: {r01t06: its test nvidia-smi failed (it ended with 9)}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import nodes
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm

ARGUMENTS: dict[str, dict[str, Any]] = {
    "nodes": {"type": "list", "elements": "str", "required": True},
    "state": {"type": "str", "choices": ["drained", "resumed", "taken_over"], "required": True},
    "reason": {"type": "str", "required": True},
    "wait": {"type": "float", "default": 0},
    "unless_up": {"type": "bool", "default": False},
    "test": {"type": "list", "elements": "str", "default": []},
    "test_user": {"type": "str", "default": "root"},
    "test_timeout": {"type": "float", "default": 120},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "bin_dir": {"type": "path"},
    "timeout": {"type": "int", "default": 60},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    why = nodes.OURS + params["reason"]
    try:
        slurm = Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
        if not params["nodes"]:
            outcome = nodes.Outcome()
        elif params["state"] == "drained":
            outcome = nodes.drain(slurm, params["nodes"], why, params["wait"], module.check_mode, params["unless_up"])
        elif params["state"] == "taken_over":
            outcome = nodes.take_over(slurm, params["nodes"], why, module.check_mode)
        else:
            test = nodes.Test(tuple(params["test"]), params["test_user"], params["test_timeout"])
            outcome = nodes.resume(slurm, params["nodes"], why, test, module.check_mode)
    except NvlinkError as error:
        module.fail_json(msg=str(error))
    told = {
        "changes": outcome.changes,
        "missing": outcome.missing,
        "busy": outcome.busy,
        "kept": outcome.kept,
        "refused": outcome.refused,
    }
    if module._diff and outcome.changes:
        told["diff"] = {"prepared": "".join(f"{line}\n" for line in outcome.changes)}
    module.exit_json(changed=bool(outcome.changes), **told)


if __name__ == "__main__":
    main()
