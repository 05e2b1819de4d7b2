# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout
short_description: "[INTERNAL] Record the progress of a rollout in waves"
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Plans the waves, decides whether a wave may start, evaluates each wave from the results of its trays, and writes the
    progress file.
  - The role P(rackscale.nvlink.rollout#role) runs the tasks.
  - From V(planned) to V(reported) or V(summarized) the file C(fabric.rollout.lock.HOST.PID) in the folder of the state
    file names the run, except in check mode. It does not count once that process has ended, and stops no other rollout.
  - A clique is finished when all of its trays have passed. It has failed when a tray failed or was lost during the
    wave. It is skipped, which does not count as failed, when a tray was unreachable before the wave started.
notes:
  - Used by the roles of this collection alone; its options may change in any release.
options:
  state:
    description:
      - V(planned) runs on localhost before the first wave. Register its result as C(rollout_plan), from which all other
        states read what the rollout does.
      - V(acknowledged) sets, on localhost, the entries of O(trays) in the state file, as trays in repair.
      - V(inspected) runs once before the first wave, in a play over all trays, and returns RV(due).
      - V(started), V(selected), V(evaluated) and V(finished) are for the wave, so run them once.
        V(observed), V(checked), V(passed) and V(failed) are for each tray.
      - V(started) starts a wave, or returns RV(stop=true) when no further wave may start.
      - V(observed) records whether the tray is reachable and whether changes are due on it.
      - V(selected) returns the trays of all cliques in which changes are due on at least one tray, or that an earlier
        run started and did not finish.
      - V(checked) does nothing. Like V(observed) and V(passed), it fails for a tray whose facts set variables of this
        collection, so it ends a step in which modules of others ran.
      - V(passed) and V(failed) record the result of the tray.
      - V(evaluated) returns the nodes of the selected trays that passed, V(finished) ends the wave.
      - V(reported) ends the run. It fails if a clique is unfinished. A run that names trays, by O(trays) or C(--limit)
        and without O(resume), does not fail for other cliques that an earlier run left; RV(text) has a line of them.
      - V(summarized) ends a run of the playbook C(site), with a rollout or without one. It returns RV(text) and
        RV(failure), and does not fail.
    type: str
    choices:
      - acknowledged
      - planned
      - inspected
      - started
      - observed
      - selected
      - checked
      - passed
      - failed
      - evaluated
      - finished
      - reported
      - summarized
    required: true
  rollout:
    description: Name of the rollout, one lower-case word. Required with O(state=planned).
    type: str
  fabric_file:
    description: The fabric file. Required with O(state=planned).
    type: path
  progress_file:
    description:
      - With O(state=planned), the progress file. C(fabric.rollout-NAME.json) next to the fabric file by default.
    type: path
  stop_after:
    description:
      - With O(state=planned), number of failed cliques after which no further wave starts. A failed first wave stops
        the rollout too.
    type: int
    default: 3
  known:
    description: With O(state=planned), the names of rollouts that have steps of their own.
    type: list
    elements: str
    default: []
  allow_empty:
    description: With O(state=planned), whether a rollout without any tray is no error.
    type: bool
    default: false
  state_dir:
    description: With O(state=planned), the folder of the state file, where it is not that of the fabric file.
    type: path
  trays:
    description:
      - With O(state=planned), trays whose cliques are changed, as hostlists and names of cliques and domains. All hosts
        of the run by default that the fabric file places.
    type: str
    default: ""
  canary:
    description:
      - With O(state=planned), the clique that goes first. By default the first with all trays healthy at the last
        discover.
    type: str
    default: ""
  domains:
    description: With O(state=planned), the number of NVLink domains in each wave, of which the last repeats.
    type: list
    elements: int
    default: [1]
  resume:
    description: With O(state=planned), the progress file of an earlier run. Only its cliques are changed.
    type: path
  settings:
    description: With O(state=planned), what the steps of the waves need.
    type: dict
    default: {}
  unchanged:
    description: With O(state=inspected), the trays that the steps would leave unchanged.
    type: list
    elements: str
    default: []
  unreachable:
    description: With O(state=observed), whether the tray is unreachable.
    type: bool
    default: false
  due:
    description: With O(state=observed), whether changes are due on this tray.
    type: bool
    default: true
  refused:
    description: With O(state=observed), why the steps would refuse to change this tray. Its clique is then unfinished,
      and none of its trays is drained or changed.
    type: str
    default: ""
  until_date:
    description: With O(state=acknowledged), the date or time at which the trays are no longer in repair.
    type: str
    default: ""
  reason:
    description: With O(state=failed) and O(state=acknowledged), the reason.
    type: str
    default: ""
  failed_tests:
    description:
      - With O(state=finished), Slurm nodes that passed and whose test job failed, each with the reason.
    type: dict
    default: {}
  fail:
    description: With O(state=reported), whether it fails if a clique is unfinished.
    type: bool
    default: true
  plan:
    description: With O(state=summarized), the result of M(rackscale.nvlink.run_check).
    type: dict
    default: {}
  verify:
    description: With O(state=summarized), the result of M(rackscale.nvlink.verify), if it ran.
    type: dict
    default: {}
  report:
    description: With O(state=summarized), the result of M(rackscale.nvlink.fabric_render), if it ran.
    type: dict
    default: {}
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - The progress file is not written.
  diff_mode:
    support: none
    details:
      - The progress file is data of the run, no configuration.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Start the wave
  rackscale.nvlink.rollout:
    state: started
  run_once: true
  register: wave
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
changes:
  description: Always empty.
  returned: always
  type: list
  elements: str
findings:
  description: Always empty.
  returned: always
  type: list
  elements: dict
due:
  description: The trays of the cliques on which changes are due.
  returned: with O(state=inspected)
  type: list
  elements: str
waves:
  description: The cliques of each wave on which changes are due, one text each.
  returned: with O(state=inspected)
  type: list
  elements: str
stop:
  description: Whether no further wave may start.
  returned: with O(state=started)
  type: bool
  sample: false
announcement:
  description: The cliques of the wave in a sentence, which the callback P(rackscale.nvlink.progress#callback) prints.
  returned: with O(state=started), where the wave starts
  type: str
  sample: Wave of r01a with 2 trays.
cliques:
  description: The cliques of each wave.
  returned: with O(state=planned)
  type: list
  elements: list
  sample: [[r01a]]
rollout:
  description: The name of the rollout.
  returned: with O(state=planned)
  type: str
  sample: driver
settings:
  description: What the steps of the waves need.
  returned: with O(state=planned)
  type: dict
  sample: {steps: [imex]}
sizes:
  description: Number of trays of each wave, for the keyword C(serial) of the play of the waves.
  returned: with O(state=planned)
  type: list
  elements: int
  sample: [4, 18]
trays:
  description:
    - The selected trays. With O(state=planned) the trays of all waves in order, which the role puts into the group
      C(nvlink_rollout), the hosts of the play of the waves.
    - With O(state=reported) those of RV(unfinished) that have not passed.
  returned: with O(state=planned), O(state=selected) and O(state=reported)
  type: list
  elements: str
  sample: [r01t01, r01t02]
nodes:
  description: The node names in Slurm of the selected trays, or of those of them that passed.
  returned: with O(state=selected) and O(state=evaluated)
  type: list
  elements: str
  sample: [r01t01, r01t02]
any_reason:
  description: Those of RV(nodes) that the run names, which are resumed whichever playbook has drained them.
  returned: with O(state=evaluated)
  type: list
  elements: str
  sample: [r01t02]
passed:
  description: Whether the tray has passed.
  returned: with O(state=passed) and O(state=failed)
  type: bool
  sample: true
unfinished:
  description: The unfinished cliques, for which a run fails.
  returned: with O(state=reported)
  type: list
  elements: str
  sample: []
failure:
  description: Why the run fails, as a sentence. Empty where it does not.
  returned: with O(state=summarized)
  type: str
  sample: ""
text:
  description:
    - The result of the rollout as lines of text, one for all cliques and one for each that has changed.
    - With O(state=summarized), the result of the whole run.
  returned: with O(state=reported) or O(state=summarized)
  type: list
  elements: str
  sample: ["Rollout imex: 1 clique changed.", "r01: 2 trays: r01t[01-02]"]
"""
