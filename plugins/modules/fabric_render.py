# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_render
short_description: Render a fabric file for Slurm, IMEX, Kubernetes and people
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Writes, on the controller, what is made from a fabric file. It touches no host.
  - Renders the Slurm topology (C(slurm/topology.yaml) and C(slurm/topology.conf)), one IMEX node list a clique
    (C(imex/<clique>/nodes_config.cfg), the trays in the natural order of their names) and a report
    (C(report/index.html), one file that loads nothing). C(report/report.json) beside it keeps the report's numbers, so
    that the next one can say what changed.
  - Writes the fabric in numbers (C(metrics/nvlink_fabric.prom) for the textfile collector of Prometheus' node_exporter,
    C(metrics/nvlink_fabric.json) for other programs).
  - Where several Slurm clusters share the fabric, the topology of each is in C(slurm/<cluster>/).
  - For Kubernetes it renders values of the NVIDIA DRA driver's chart (C(kubernetes/dra-values.yaml)), what each
    scheduler is told of the cliques (C(kubernetes/topology-<scheduler>.yaml)) and example workloads
    (C(kubernetes/example-*.yaml)). Where several Kubernetes clusters share the fabric, they are in
    C(kubernetes/<cluster>/). The module M(rackscale.nvlink.k8s_topology) applies them.
  - The same fabric file and state file give the same bytes. A file is written only where its bytes change, and a file
    that an earlier run wrote and that is no longer rendered is removed, unless a person changed it since.
options:
  fabric_file:
    description:
      - The fabric file. The state file is read beside it; without one, health and state of the trays are unknown.
    type: path
    required: true
  render_dir:
    description:
      - The directory to write to; it is made where it is missing.
      - One of O(render_dir) and O(rack_map) is required.
    type: path
  renderers:
    description:
      - What to render. What another run rendered besides is left as it is.
    type: list
    elements: str
    choices: [slurm, imex, dra, schedulers, examples, metrics, report]
    default: [slurm, imex, dra, schedulers, examples, metrics, report]
  rehearsal:
    description:
      - A rehearsal to show in the report, the file that the role slurm_topology writes where its variable
        C(slurm_topology_rehearsal_file) is set.
    type: path
  verdict:
    description:
      - The C(verdict.json) that the playbook C(rackscale.nvlink.verify) wrote. The report shows its failures, the
        metrics count them by layer.
    type: path
  squeue:
    description:
      - What C(squeue --noheader --states=RUNNING,COMPLETING --format='%i %N') prints, line by line. Rack map and report
        then say which jobs run on each tray.
      - Without it they say nothing of jobs. An empty list means that none runs.
    type: list
    elements: str
  rack_map:
    description:
      - Whether to print the racks side by side, one row a tray, and to return them as RV(rack_map).
      - The environment variable E(COLUMNS) sets the width where there is no terminal to ask.
    type: bool
    default: false
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: partial
    details:
      - Of the report and its numbers it says only that they change.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.fabric_file
  - module: rackscale.nvlink.k8s_topology
notes:
  - It fails when a finding of severity error keeps a file from being rendered. The other files are written all the
    same.
"""

EXAMPLES = r"""
- name: Render everything
  rackscale.nvlink.fabric_render:
    fabric_file: /srv/cluster/fabric.json
    render_dir: /srv/cluster/rendered

- name: Show the racks in the terminal
  rackscale.nvlink.fabric_render:
    fabric_file: /srv/cluster/fabric.json
    rack_map: true

- name: Give node_exporter the fabric in numbers, with what verify found
  rackscale.nvlink.fabric_render:
    fabric_file: /srv/cluster/fabric.json
    render_dir: /srv/cluster/rendered
    renderers: [metrics]
    verdict: /srv/cluster/verdict.json
"""

RETURN = r"""
render_dir:
  description: The directory that was written to.
  returned: when O(render_dir) is given
  type: str
  sample: /srv/cluster/rendered
files:
  description: What is rendered, as paths below O(render_dir).
  returned: when O(render_dir) is given
  type: list
  elements: str
  sample: [imex/r01/nodes_config.cfg, report/index.html, slurm/topology.conf, slurm/topology.yaml]
removed:
  description: What an earlier run wrote and this one removed.
  returned: when O(render_dir) is given
  type: list
  elements: str
  sample: []
findings:
  description: What could not be rendered and why.
  returned: when O(render_dir) is given
  type: list
  elements: dict
  sample:
    - code: imex_address_missing
      severity: error
      tray: r01t03
      clique: r01
      message: >-
        The IMEX list of clique r01 is not written, because r01t03 has no imex_address: widen imex_network or set the
        address in the fabric file.
rack_map:
  description: The lines of the rack map, 120 columns wide and without colour.
  returned: when O(rack_map) is true
  type: list
  elements: str
  sample: ["r01  0f3c81aa  18 of 18 trays"]
"""
