#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_nodes
short_description: Drain and resume trays in Slurm, and keep spare trays in a reservation
version_added: 1.0.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Runs on a host with scontrol, such as the Slurm controller, as a user with the rights of a Slurm operator.
  - Drains nodes with a reason, and resumes those that were drained with that reason. A node that was drained for
    another reason keeps its state and its reason.
  - With O(test) a node is first reserved for O(test_user), then undrained, then tested by a job. It is open to other
    jobs only after that job ended with exit status 0; otherwise it is drained again. The reservation ends by itself
    if the run is killed.
  - With O(state=spares_present), O(active) trays of each block run jobs, such as 16 of 18, and the others are in the
    reservation C(nvlink_spare_BLOCK). A drained or down tray does not count as active, so a spare of its block
    replaces it. When it comes back, it becomes the spare. Only Slurm keeps the list of spares.
  - With O(clique_test) a further job then runs on all tested trays of a clique together with its idle trays, in a
    reservation that Slurm refuses where jobs run. If it fails, the tested trays are drained again.
  - Reservations with other names are never changed.
options:
  state:
    description:
      - V(drained) drains O(nodes), then waits up to O(wait) seconds for running jobs. V(resumed) returns them to
        service.
      - V(adopted) gives O(reason) to those of O(nodes) that are drained for another reason that begins with
        C(nvlink:), so that a later V(resumed) with O(reason) resumes them.
      - V(spares_present) keeps spare trays of each block in a reservation. V(spares_absent) deletes these
        reservations.
      - An option that has no meaning for the chosen state fails the task, unless it has its default value.
    type: str
    choices: [drained, resumed, adopted, spares_present, spares_absent]
    required: true
  nodes:
    description:
      - The NodeNames, required for O(state=drained), O(state=resumed) and O(state=adopted).
      - A name that slurmctld does not know is listed in RV(unknown_nodes).
    type: list
    elements: str
  reason:
    description:
      - The reason in a few words, required for O(state=drained), O(state=resumed) and O(state=adopted). Slurm shows it
        after C(nvlink:).
      - With O(state=resumed), only nodes are resumed that were drained for this reason, or whose test has failed
        before.
    type: str
  any_reason:
    description:
      - The nodes of O(nodes) that O(state=resumed) also resumes where they were drained for another reason that begins
        with C(nvlink:). One whose test fails keeps that reason, with who drained it and when.
    type: list
    elements: str
    default: []
    version_added: 1.1.0
  wait:
    description:
      - Seconds to wait for running jobs, for O(state=drained). Nodes that still run jobs then are listed in
        RV(running_jobs).
    type: float
    default: 0
  unless_up:
    description: Whether to skip nodes that answer slurmctld, for O(state=drained).
    type: bool
    default: false
  test:
    description:
      - A program with its arguments, for O(state=resumed). A job runs it on each node, on up to 32 nodes concurrently.
    type: list
    elements: str
    default: []
  test_user:
    description: The user who runs O(test), for O(state=resumed).
    type: str
    default: root
  test_timeout:
    description: Seconds that O(test) may take on one node, for O(state=resumed).
    type: float
    default: 120
  clique_test:
    description:
      - A program with its arguments, for O(state=resumed), such as one that sends data over NVLink. After O(test), one
        job for each clique of O(fabric_file) runs it once on each of the clique's trays in O(nodes) and on each of its
        idle trays, spares among them. It has O(test_timeout) seconds as well.
      - A clique with one of O(nodes) and no idle tray is not tested and is listed in RV(untested); the tray is resumed.
    type: list
    elements: str
    default: []
    version_added: 1.1.0
  fabric_file:
    description:
      - Path of the fabric file on the Ansible controller, required for O(state=spares_present) and O(clique_test).
    type: path
  blocks:
    description:
      - The blocks in O(fabric_file), with the NodeNames of their trays. Set by the action plugin. For O(clique_test)
        they have the names of the cliques.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the block.
        type: str
        required: true
      nodes:
        description: The NodeNames of the block's trays, in natural order.
        type: list
        elements: str
        required: true
  active:
    description: How many trays of each block run jobs, from 1, required for O(state=spares_present).
    type: int
  unfit:
    description:
      - NodeNames of trays that must not run jobs, such as those with an error of the last verdict, for
        O(state=spares_present). They do not count as active, and a spare among them stays in its reservation.
    type: list
    elements: str
    default: []
    version_added: 1.1.0
  returned:
    description:
      - NodeNames of trays that were repaired, for O(state=spares_present). They become spares before other trays.
    type: list
    elements: str
    default: []
    version_added: 1.1.0
  user:
    description: The user who may run jobs on spares, for O(state=spares_present).
    type: str
    default: root
  timeout:
    description:
      - Seconds that one call of scontrol may take. With O(test), also the time for resumed nodes to answer slurmctld.
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
- name: Drain a tray that is about to be replaced
  rackscale.nvlink.slurm_nodes:
    nodes: [r01t04]
    state: drained
    reason: replaced
    wait: 3600

- name: Resume it after a test job has read its GPUs
  rackscale.nvlink.slurm_nodes:
    nodes: [r01t04]
    state: resumed
    reason: replaced
    test: [nvidia-smi, -q, -x]

- name: Run jobs on 16 trays of each block, and keep the other two as spares
  rackscale.nvlink.slurm_nodes:
    state: spares_present
    fabric_file: /srv/cluster/fabric.json
    active: 16

- name: Delete the reservations of spare trays
  rackscale.nvlink.slurm_nodes:
    state: spares_absent
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
changes:
  description: What changed, or would change in check mode.
  returned: success
  type: list
  elements: str
  sample: ["r01t04: drained (nvlink: replaced)", "nvlink_spare_r01: r01t18 becomes active"]
findings:
  description: Always empty.
  returned: success
  type: list
  elements: dict
  sample: []
unknown_nodes:
  description: Nodes that slurmctld does not know.
  returned: success
  type: list
  elements: str
  sample: []
running_jobs:
  description: The IDs of jobs that still run, by node.
  returned: success
  type: dict
  sample: {r01t04: ["17"]}
drained_by_others:
  description: The reasons of nodes that were drained for another reason and stay drained, by node.
  returned: success
  type: dict
  sample: {r01t05: broken fan}
failed_tests:
  description: Why the test failed on nodes that are drained again, by node.
  returned: success
  type: dict
  sample: {r01t06: its test nvidia-smi failed (it ended with 9)}
untested:
  description: A sentence for each clique in which O(clique_test) did not run.
  returned: success
  type: list
  elements: str
  sample: ["no idle tray in clique r01: not tested together"]
text:
  description: The result as lines of text, one for all nodes and one for each change.
  returned: success
  type: list
  elements: str
  sample: ["1 tray is drained: r01t04.", "r01t04: drained (nvlink: replaced)"]
"""

import functools
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import clique_test, nodes, programs, spares

DRAINING = ("drained", "resumed", "adopted")
# States, and the options that have a meaning for them alone; any other option has one for all states.
OPTIONS_OF = {
    DRAINING: ("nodes", "reason"),
    ("drained",): ("wait", "unless_up"),
    ("resumed",): ("any_reason", "test", "test_user", "test_timeout", "clique_test"),
    ("spares_present",): ("active", "user", "unfit", "returned"),
    ("spares_present", "resumed"): ("fabric_file", "cluster"),
}
ARGUMENTS: dict[str, Specification] = {
    "state": {"type": "str", "choices": [*DRAINING, "spares_present", "spares_absent"], "required": True},
    "nodes": {"type": "list", "elements": "str"},
    "reason": {"type": "str"},
    "wait": {"type": "float", "default": 0},
    "unless_up": {"type": "bool", "default": False},
    "any_reason": {"type": "list", "elements": "str", "default": []},
    "test": {"type": "list", "elements": "str", "default": []},
    "test_user": {"type": "str", "default": "root"},
    "test_timeout": {"type": "float", "default": 120},
    "clique_test": {"type": "list", "elements": "str", "default": []},
    "fabric_file": {"type": "path"},
    "cluster": {"type": "str"},
    "active": {"type": "int"},
    "unfit": {"type": "list", "elements": "str", "default": []},
    "returned": {"type": "list", "elements": "str", "default": []},
    "user": {"type": "str", "default": "root"},
    "conf_dir": {"type": "path", "default": "/etc/slurm"},
    "bin_dir": {"type": "path"},
    "timeout": {"type": "float", "default": 60},
}
REQUIRED_IF = [("state", state, ("nodes", "reason")) for state in DRAINING] + [
    ("state", "spares_present", ("active", "fabric_file")),
]


def main() -> None:
    actions.begin()
    module = AnsibleModule(argument_spec={**ARGUMENTS, "blocks": programs.BLOCKS}, supports_check_mode=True)
    try:
        outcome = run(module.params, module.check_mode)
    except NvlinkError as error:
        module.fail_json(msg=str(error), actions=actions.done())
    result = {**asdict(outcome), "findings": [], "actions": actions.done()}
    if module._diff and outcome.changes:
        result["diff"] = {"prepared": "".join(f"{line}\n" for line in outcome.changes)}
    module.exit_json(changed=bool(outcome.changes), **result)


def misplaced(params: Arguments) -> str:
    """One sentence about an option that has no meaning for the state, or a value that it cannot have; empty if none."""
    state = params["state"]
    for option in [option for states, options in OPTIONS_OF.items() if state not in states for option in options]:
        if params[option] != ARGUMENTS[option].get("default"):
            return f"slurm_nodes, option {option}: has no meaning for state {state}, leave it out."
    if state == "resumed" and bool(params["clique_test"]) != bool(params["fabric_file"]):
        problem = "is missing, clique_test needs it" if params["clique_test"] else "has a meaning for clique_test alone"
        return f"slurm_nodes, option fabric_file: {problem}."
    if state == "spares_present" and params["active"] < 1:
        return f"slurm_nodes, option active: is {params['active']}, use a number from 1, or state spares_absent."
    if params["test_timeout"] <= 0:
        given = f"{params['test_timeout']:g}"
        return f"slurm_nodes, option test_timeout (rollout_test_timeout): is {given}, use a number of seconds above 0."
    return ""


def run(params: Arguments, check: bool) -> nodes.Outcome:
    """Do what the state needs; with ``check`` only plan it."""
    slurm = programs.Slurm(params["bin_dir"] or "", params["timeout"], params["conf_dir"])
    state, names = params["state"], params["nodes"]
    blocks = {block["name"]: block["nodes"] for block in params["blocks"] or []}
    if state not in DRAINING:
        trays = (params["unfit"], params["returned"])
        return spares.keep(slurm, blocks, params["active"] or 0, params["user"], check, *trays)
    why = nodes.OURS + params["reason"]
    if not names:
        return nodes.Outcome()
    if state == "drained":
        return nodes.drain(slurm, names, why, params["wait"], check, params["unless_up"])
    if state == "adopted":
        return nodes.adopt(slurm, names, why, check)
    user, seconds = params["test_user"], params["test_timeout"]
    together = functools.partial(clique_test.run, nodes.Test(tuple(params["clique_test"]), user, seconds), blocks)
    test = nodes.Test(tuple(params["test"]), user, seconds, together if params["clique_test"] else None)
    return nodes.resume(slurm, names, why, test, check, params["any_reason"])


if __name__ == "__main__":
    main()
