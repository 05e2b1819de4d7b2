#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: doctor_facts
short_description: "[INTERNAL] Inspect a tray or a Slurm controller for the playbook doctor"
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Reads, without a change and without refreshing a package manager's cache, the user, Python, driver and NVML, the
    IMEX package, the clock and, on the Slurm controller, the version, ports and nodes of slurmctld.
  - Opens TCP connections to the given ports of other hosts, all at once and at most 160, and closes them.
  - A host that cannot be reached or on which the module fails does not fail the task; RV(problem) has the reason.
notes:
  - Used by the playbooks of this collection alone; its options may change in any release.
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.info_module
attributes:
  platform:
    support: full
options:
  role:
    description: What the host is.
    type: str
    choices: [tray, controller]
    default: tray
  backend:
    description: As in M(rackscale.nvlink.fabric_facts).
    type: str
    choices: [auto, nvml, nvidia_smi]
    default: auto
  nvidia_smi:
    description: As in M(rackscale.nvlink.fabric_facts).
    type: path
    default: nvidia-smi
  ip:
    description: As in M(rackscale.nvlink.fabric_facts).
    type: path
  timeout:
    description: Seconds for one GPU backend, above 0 and up to 3600.
    type: float
    default: 20
  bin_dir:
    description: Folder of Slurm's programs; the usual ones by default.
    type: path
    default: ''
  conf_dir:
    description: Folder of slurm.conf; that of Slurm's programs by default.
    type: path
    default: ''
  connects:
    description: Ports of other hosts to connect to; the action plugin adds those of a tray's neighbours.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Inventory name of the host.
        type: str
        required: true
      address:
        description: Its address or name.
        type: str
        required: true
      port:
        description: The port; 0 is that of slurmd.
        type: int
        required: true
  fabric_file:
    description: The fabric file, which has the members of a tray's clique; empty before the first discovery.
    type: path
    default: ''
  peer_ports:
    description: Ports of the tray's neighbours to connect to.
    type: list
    elements: int
    default: []
  controllers:
    description: The Slurm controllers, to whose slurmctld each tray connects.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Inspect the tray
  rackscale.nvlink.doctor_facts:
    peer_ports: [22, 50000]
"""

RETURN = r"""
changes:
  description: Always empty.
  returned: always
  type: list
  elements: str
findings:
  description: Answers that were dropped.
  returned: always
  type: list
  elements: dict
problem:
  description: Why the host did not answer.
  returned: failure
  type: str
clock:
  description: The host's clock minus the controller's in seconds, at least C(low) and at most C(high).
  returned: success
  type: dict
  sample: {"low": -0.8, "high": 0.1}
times:
  description: The host's clock at the start and the end of the module.
  returned: success
  type: dict
  contains:
    started:
      description: Seconds since 1970.
      type: float
    ended:
      description: Seconds since 1970.
      type: float
python:
  description: Version of the host's Python.
  returned: success
  type: str
user:
  description: The user that the module runs as.
  returned: success
  type: str
root:
  description: Whether that is root.
  returned: success
  type: bool
hostname:
  description: The host's own name.
  returned: success
  type: str
slurmd:
  description: Version of the installed slurmd.
  returned: role tray
  type: str
slurmd_name:
  description: The NodeName that C(slurmd -C) prints.
  returned: role tray
  type: str
gpu:
  description: What driver and NVML report.
  returned: role tray
  type: dict
  contains:
    driver:
      description: Version of the loaded driver.
      type: str
    gpus:
      description: Number of GPUs.
      type: int
    backend:
      description: C(nvml) or C(nvidia_smi).
      type: str
    attached:
      description: Whether all GPUs have joined one clique.
      type: bool
    findings:
      description: Findings of M(rackscale.nvlink.fabric_facts).
      type: list
      elements: dict
imex:
  description: The IMEX package.
  returned: role tray
  type: dict
  contains:
    program:
      description: Whether the daemon's program exists.
      type: bool
    installed:
      description: Version of the installed package.
      type: str
    candidate:
      description: Version of the package that the package manager offers for the loaded driver.
      type: str
    offered:
      description: Other versions that it offers.
      type: list
      elements: str
    manager:
      description: The package manager.
      type: str
listens:
  description: TCP ports on which the host listens.
  returned: role tray
  type: list
  elements: int
connects:
  description: Results of the connections.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Inventory name of the other host.
      type: str
    address:
      description: Its address.
      type: str
    port:
      description: Its port.
      type: int
    state:
      description: C(open), C(refused), C(timeout), C(unreachable) or C(unresolved).
      type: str
    reason:
      description: Why it failed.
      type: str
slurm:
  description: slurmctld of the host.
  returned: role controller
  type: dict
  contains:
    version:
      description: Its version.
      type: str
    slurmd_port:
      description: SlurmdPort.
      type: int
    slurmctld_port:
      description: SlurmctldPort.
      type: int
    problem:
      description: Why it did not answer.
      type: str
    nodes:
      description: Its nodes.
      type: list
      elements: dict
      contains:
        name:
          description: NodeName.
          type: str
        hostname:
          description: NodeHostName.
          type: str
        address:
          description: NodeAddr.
          type: str
        version:
          description: Version of its slurmd.
          type: str
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import doctor
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

CONNECT = {
    "name": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "required": True},
}
ARGUMENTS = {
    "role": {"type": "str", "choices": ["tray", "controller"], "default": "tray"},
    "backend": {"type": "str", "choices": ["auto", "nvml", "nvidia_smi"], "default": "auto"},
    "nvidia_smi": {"type": "path", "default": "nvidia-smi"},
    "ip": {"type": "path"},
    "timeout": {"type": "float", "default": 20},
    "bin_dir": {"type": "path", "default": ""},
    "conf_dir": {"type": "path", "default": ""},
    "connects": {"type": "list", "elements": "dict", "options": CONNECT, "default": []},
    "fabric_file": {"type": "path", "default": ""},
    "peer_ports": {"type": "list", "elements": "int", "default": []},
    "controllers": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    started = time.time()
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given = module.params
    try:
        if given["role"] == "controller":
            report = doctor.inspect_controller(given["bin_dir"], given["conf_dir"], given["connects"])
        else:
            gpu = (given["backend"], given["nvidia_smi"], given["timeout"], given["ip"])
            report = doctor.inspect_tray(*gpu, given["connects"])
    except NvlinkError as error:
        module.fail_json(msg=f"doctor_facts: {error}")
    times = {"started": started, "ended": time.time()}
    module.exit_json(changed=False, changes=[], findings=[], times=times, **report)


if __name__ == "__main__":
    main()
