# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout
short_description: Keep the book of a rollout in waves
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Says whether a wave may begin, judges each wave by what its trays said, and keeps a file of what is left.
  - The role P(rackscale.nvlink.rollout#role) has the tasks in their order, the lookup P(rackscale.nvlink.waves#lookup)
    plans the waves.
  - A clique is done when every one of its trays said that it passed. One whose tray died in the middle has failed. One
    with a tray that was away before the wave began is left, and does not count as failed.
options:
  state:
    description:
      - V(begun), V(weighed), V(judged) and V(ended) are for the wave, so run them once. V(looked), V(passed) and
        V(failed) are for each tray.
      - V(begun) opens a wave, or says in RV(stop) that none may begin any more.
      - V(looked) notes whether the tray answers and whether there is anything to do on it.
      - V(weighed) gives the trays of all cliques of which at least one tray has something to do, or that an earlier run
        has begun and not ended.
      - V(passed) and V(failed) note how the tray came out.
      - V(judged) gives the trays that passed, V(ended) closes the wave.
      - V(told) ends the run. It fails where anything is left.
    type: str
    choices: [begun, looked, weighed, passed, failed, judged, ended, told]
    required: true
  rollout:
    description: The name of the rollout, one lower-case word.
    type: str
    required: true
  fabric_file:
    description: The fabric file. Needed but for V(told).
    type: path
  file:
    description: The file of what is left. Next to the fabric file, with the rollout's name in its own, by default.
    type: path
  stop_after:
    description: No further wave begins when so many cliques have failed, or the first wave.
    type: int
    default: 3
  absent:
    description: With V(looked), whether the tray does not answer.
    type: bool
    default: false
  due:
    description: With V(looked), whether there is anything to do on this tray.
    type: bool
    default: true
  why:
    description: With V(failed), why.
    type: str
    default: ""
  refused:
    description: With V(judged) and V(ended), Slurm nodes that passed and were then refused, each with the reason.
    type: dict
    default: {}
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - The file of what is left is not written.
  diff_mode:
    support: none
    details:
      - The file of what is left belongs to the run, it is no configuration.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Begin the wave
  rackscale.nvlink.rollout:
    state: begun
    rollout: driver
    fabric_file: /srv/cluster/fabric.json
  run_once: true
  register: wave
"""

RETURN = r"""
stop:
  description: Whether no further wave may begin.
  returned: with O(state=begun)
  type: bool
  sample: false
cliques:
  description: The cliques of the wave.
  returned: with O(state=begun)
  type: list
  elements: str
  sample: [r01a]
file:
  description: The file of what is left. It is gone when nothing is.
  returned: with O(state=begun)
  type: str
  sample: /srv/cluster/fabric.rollout-driver.json
trays:
  description: The trays with something to do, or those that passed.
  returned: with O(state=weighed) and O(state=judged)
  type: list
  elements: str
  sample: [r01t01, r01t02]
nodes:
  description: The same by their names in Slurm.
  returned: with O(state=weighed) and O(state=judged)
  type: list
  elements: str
  sample: [r01t01, r01t02]
left:
  description: The cliques of the wave that are not done.
  returned: with O(state=ended)
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "state": {
        "type": "str",
        "choices": ["begun", "looked", "weighed", "passed", "failed", "judged", "ended", "told"],
        "required": True,
    },
    "rollout": {"type": "str", "required": True},
    "fabric_file": {"type": "path"},
    "file": {"type": "path"},
    "stop_after": {"type": "int", "default": 3},
    "absent": {"type": "bool", "default": False},
    "due": {"type": "bool", "default": True},
    "why": {"type": "str", "default": ""},
    "refused": {"type": "dict", "default": {}},
}


def main() -> None:
    """Fail: without the action plugin there is nothing that this could do on a host."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rackscale.nvlink.rollout works on the controller, by its action plugin; run it from a playbook"
    )


if __name__ == "__main__":
    main()
