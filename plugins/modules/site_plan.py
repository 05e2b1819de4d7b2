# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: site_plan
short_description: Look at a site's inventory before any host is touched
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Finds, from inventory data and the fabric file alone, what would fail later in the middle of a run of the playbook
    C(rackscale.nvlink.site), and tells all of it at once.
  - Says which phases the site has. Slurm, where it names a controller. IMEX, with Slurm or where C(imex_owner) is set,
    and without the DRA driver. Kubernetes, where C(dra_driver_shape) or C(k8s_topology_schedulers) is set.
  - Takes C(--tags) and C(--skip-tags) into account, so that a phase which is left out costs no host a task.
options:
  fabric_file:
    description: The fabric file, as an absolute path. It may be missing yet.
    type: path
    required: true
  trays:
    description: The hosts that are asked as trays.
    type: list
    elements: str
    required: true
  controllers:
    description: The hosts of slurmctld.
    type: list
    elements: str
    default: []
  phases:
    description: The phases to run, instead of those that the site has. Tags choose among these.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details:
      - It changes nothing.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Look before any host is touched
  rackscale.nvlink.site_plan:
    fabric_file: /srv/cluster/fabric.json
    trays: "{{ groups['trays'] }}"
    controllers: "{{ groups['slurm_controller'] | default([]) }}"
  run_once: true
"""

RETURN = r"""
phases:
  description: The phases to run, in their order.
  returned: always
  type: list
  elements: str
  sample: [discover, slurm, imex, verify, report]
dra_driver:
  description:
    - Whether the phase kubernetes brings the DRA driver. It does not where C(k8s_topology_schedulers) is set and
      C(dra_driver_shape) is not.
  returned: always
  type: bool
  sample: false
problems:
  description: What would fail later, each with its remedy.
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "fabric_file": {"type": "path", "required": True},
    "trays": {"type": "list", "elements": "str", "required": True},
    "controllers": {"type": "list", "elements": "str", "default": []},
    "phases": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Fail: without the action plugin there is nothing that this could do on a host."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg="rackscale.nvlink.site_plan works on the controller, by its action plugin; run it from a playbook"
    )


if __name__ == "__main__":
    main()
