# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_render
short_description: Render a fabric file for Slurm, IMEX, Kubernetes, metrics and a report
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Writes the files that are made from a fabric file. It runs on the controller and connects to no host.
  - Renders the Slurm topology (C(slurm/topology.yaml) and C(slurm/topology.conf)), one IMEX node list a clique
    (C(imex/<clique>/nodes_config.cfg), the trays in the natural order of their names) and a report
    (C(report/index.html), one file without external resources).
  - Writes metrics of the fabric (C(metrics/nvlink_fabric.prom)) for the textfile collector of node_exporter.
  - Report and metrics show the incidents of the playbook C(rackscale.nvlink.repair) from the ledger
    (C(fabric.repairs.jsonl)) next to the state file.
  - Where several Slurm clusters share the fabric, the topology of each is in C(slurm/<cluster>/).
  - For Kubernetes it renders values of the NVIDIA DRA driver's chart (C(kubernetes/dra-values.yaml)), the
    topology objects of each scheduler (C(kubernetes/topology-<scheduler>.yaml)) and example workloads
    (C(kubernetes/example-*.yaml)). Where several Kubernetes clusters share the fabric, they are in
    C(kubernetes/<cluster>/). The module M(rackscale.nvlink.k8s_topology) applies them.
  - The same fabric file and state file give the same bytes. A file is written only where its bytes change, and a file
    that an earlier run wrote and that is no longer rendered is removed, unless a person changed it since.
options:
  fabric_file:
    description:
      - The fabric file. The state file next to it is read too; without it, the health of the trays is unknown.
    type: path
    required: true
  state_dir:
    description:
      - The folder of the state file, where it is not that of the fabric file; see M(rackscale.nvlink.fabric_file).
    type: path
  proposal_file:
    description:
      - A proposal of M(rackscale.nvlink.fabric_file). RV(domain_map) then shows the domains that it changes, each tray
        with its clique before and after. Nothing is rendered from a proposal, so O(render_dir) must not be set.
    type: path
  render_dir:
    description:
      - The directory to write to; it is created if missing.
      - One of O(render_dir), O(domain_map) and O(proposal_file) is required.
    type: path
  replace:
    description:
      - Whether to replace files in O(render_dir) that no earlier run has written, such as those of the site in
        C(/etc/slurm). Without it such a file is an error that names it.
    type: bool
    default: false
    version_added: 1.1.0
  renderers:
    description:
      - What to render. Files of other renderers from earlier runs stay as they are.
    type: list
    elements: str
    choices: [slurm, imex, dra, schedulers, examples, metrics, report]
    default: [slurm, imex, dra, schedulers, examples, metrics, report]
  verdict:
    description:
      - The C(verdict.json) that the playbook C(rackscale.nvlink.verify) wrote. The report shows its failures, the
        metrics count them by layer.
    type: path
  since:
    description:
      - An earlier C(verdict.json) of the same fabric file. Report and domain map then show what changed since, compared
        with O(verdict), which must be newer - the health of trays and their states in Slurm, findings, places, and
        incidents of the playbook C(rackscale.nvlink.repair).
    type: path
    version_added: 1.1.0
  squeue:
    description:
      - The lines of C(squeue --noheader --states=RUNNING,COMPLETING --format='%i %N'). Domain map and report then show
        the jobs on each tray.
      - Without it they show no jobs. An empty list means that no job runs.
    type: list
    elements: str
  scontrol:
    description:
      - The lines of C(scontrol --all --oneliner show nodes). Domain map, report and metrics then show which trays get
        no new job, since they are drained, down or reserved, and do not count them as usable.
      - Without it they show the states in O(verdict), and say that they are not known where it has none.
      - Report and metrics have the time of this task, or that of the verdict, as the time of the states.
    type: list
    elements: str
    version_added: 1.1.0
  without:
    description:
      - Trays that domain map and report show as drained, to see what jobs can use without them. The metrics are then
        not rendered.
    type: list
    elements: str
    default: []
    version_added: 1.1.0
  spares_active:
    description:
      - How many trays of each block run jobs; the others are spares. Report and metrics then show how many of them are
        reserved, free, promoted to run jobs, and missing, where the states in Slurm are known.
      - V(0) where no tray is kept as a spare.
    type: int
    default: 0
    version_added: 1.1.0
  gpus_by_dra:
    description:
      - Whether the NVIDIA DRA driver allocates GPUs, rather than a device plugin. The example workloads then claim them
        from the DeviceClass C(gpu.nvidia.com), and the values of the driver's chart enable its GPU plugin.
    type: bool
    default: false
  topology:
    description: The options of M(rackscale.nvlink.k8s_topology) of the same names, for what is rendered for Kubernetes.
    type: dict
    default: {}
    suboptions:
      name:
        description: The name of the objects.
        type: str
        default: nvlink
      levels_above:
        description: Topology levels above the clique, the broadest first.
        type: list
        elements: dict
        default: []
        suboptions:
          label:
            description: The node label.
            type: str
            required: true
          name:
            description: The name of the level in Grove.
            type: str
            required: true
      flavor_labels:
        description: The node labels by which Kueue's flavor selects the trays.
        type: dict
        default: {nvidia.com/gpu.present: "true"}
      templates:
        description: Jinja templates of the site, by scheduler.
        type: dict
        default: {}
  block_sizes:
    description:
      - The block sizes of Slurm's topology files, as in M(rackscale.nvlink.slurm_topology).
      - Report and metrics show what jobs may span with them.
    type: list
    elements: int
    default: []
  site:
    description:
      - The name of the site, for the head of the report.
    type: str
    default: ''
  domain_map:
    description:
      - Whether to return a map of the NVLink domains as RV(domain_map), one row for each tray.
      - It fits the terminal, or the columns that the environment variable E(COLUMNS) sets; without both it fits 120.
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
      - For the report and its numbers it shows only that they change.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: rackscale.nvlink.fabric_file
  - module: rackscale.nvlink.k8s_topology
notes:
  - It fails if a finding of severity error prevents a file from being rendered. The other files are written
    nevertheless.
"""

EXAMPLES = r"""
- name: Render everything
  rackscale.nvlink.fabric_render:
    fabric_file: /srv/cluster/fabric.json
    render_dir: /srv/cluster/rendered

- name: Draw the NVLink domains
  rackscale.nvlink.fabric_render:
    fabric_file: /srv/cluster/fabric.json
    domain_map: true
  register: rendered

- name: Print the domain map
  ansible.builtin.debug:
    msg: "{{ rendered.domain_map }}"

- name: Write metrics for node_exporter, with the failures of verify
  rackscale.nvlink.fabric_render:
    fabric_file: /srv/cluster/fabric.json
    render_dir: /srv/cluster/rendered
    renderers: [metrics]
    verdict: /srv/cluster/verdict.json
"""

RETURN = r"""
extends_documentation_fragment: rackscale.nvlink.return_values
render_dir:
  description: The directory that was written to.
  returned: when O(render_dir) is given
  type: str
  sample: /srv/cluster/rendered
files:
  description: The rendered files, as paths below O(render_dir).
  returned: when O(render_dir) is given
  type: list
  elements: str
  sample: [imex/r01/nodes_config.cfg, report/index.html, slurm/topology.conf, slurm/topology.yaml]
changes:
  description: Files that were written or removed, or would be in check mode, as paths below O(render_dir).
  returned: always
  type: list
  elements: str
  sample: [slurm/topology.yaml]
removed:
  description: Files of an earlier run that were removed, as paths below O(render_dir).
  returned: when O(render_dir) is given
  type: list
  elements: str
  sample: []
findings:
  description: Files that could not be rendered, and why. Empty without O(render_dir).
  returned: always
  type: list
  elements: dict
  sample:
    - code: imex_address_invalid
      severity: error
      tray: r01t03
      clique: r01
      message: >-
        The IMEX node list of clique r01 is not written, because imex_address is missing for r01t03; widen imex_network,
        or set the address in the fabric file.
domain_map:
  description: The lines of the domain map.
  returned: when O(domain_map) is true
  type: list
  elements: str
  sample: ["r01  18 of 18 trays  0f3c81aa"]
"""
