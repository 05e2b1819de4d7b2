#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: doctor
short_description: "[INTERNAL] Inspect whether a site can run, or capture what its tools answer in a support bundle"
version_added: 1.0.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - The playbook doctor checks the controller and the inventory, inspects trays and Slurm controllers, and evaluates
    what they reported.
  - Its tag C(capture) makes a support bundle of what the tools of trays and Slurm controllers answer, and anonymises
    it on the Ansible controller. It sends nothing anywhere. A bundle without the answer of any tray is not written.
  - Each step is one task. It changes nothing but O(path), and does not refresh a package manager's cache.
notes:
  - Used by the playbooks of this collection alone; its options may change in any release.
options:
  step:
    description:
      - V(plan) returns what the hosts are to inspect.
      - V(inspect) reads on a host the user, Python, driver and NVML, the IMEX package, the clock and, on the Slurm
        controller, the version and ports of slurmctld. It opens TCP connections to the given ports of other
        hosts, all at once and at most 160, and closes them. A host that cannot be reached or on which it fails does not
        fail the task; RV(problem) has the reason.
      - V(evaluate) checks the controller and the inventory, and what V(inspect) has returned.
      - V(plan_capture) checks O(path) and the number of trays, before a host is asked, and returns which hosts to ask.
      - V(capture) reads on a tray NVML with the bytes of each version of its fabric struct, C(nvidia-smi -q -x) and
        C(nvidia-imex-ctl), on a Slurm controller C(scontrol show topology) and C(scontrol show config). Each answer has
        a time limit and at most 2 MiB. One that fails has a RV(outputs[].problem), and the others are returned.
      - V(write_capture) writes the bundle.
    type: str
    choices: [plan, inspect, evaluate, plan_capture, capture, write_capture]
    required: true
  fabric_file:
    description: Path of the fabric file; empty where none is set.
    type: path
    default: ''
  trays:
    description: Inventory names of the trays. Required with the steps on the Ansible controller.
    type: list
    elements: str
  pattern:
    description: The site's own pattern of O(trays); leave it out for the groups C(trays) and C(nvlink).
    type: str
  controllers:
    description: Hosts that run slurmctld. With O(step=inspect) each tray connects to their slurmctld.
    type: list
    elements: str
    default: []
  fail:
    description: Whether the playbook fails where a check has an error.
    type: bool
    default: true
  path:
    description:
      - With O(step=evaluate) the file to write the result to as JSON, empty for none.
      - With O(step=plan_capture) and O(step=write_capture) the bundle, whose name ends with C(.tar.gz). The mapping
        table is next to it.
    type: path
    default: ''
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
  imex_ctl:
    description: As in M(rackscale.nvlink.fabric_facts).
    type: path
    default: nvidia-imex-ctl
  imex_config_file:
    description: As in M(rackscale.nvlink.fabric_facts).
    type: path
    default: /etc/nvidia-imex/config.cfg
  timeout:
    description: Seconds for one GPU backend, above 0 and up to 3600; with O(step=capture) for each answer, up to 600.
    type: float
    default: 20
  logs:
    description:
      - With O(step=capture) on a tray, whether the outputs also have the end of the kernel's log, that of IMEX and the
        counters of the links, for the evidence of an incident. A bundle never has them.
    type: bool
    default: false
    version_added: 1.1.0
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
  peer_ports:
    description: Ports of the tray's neighbours to connect to.
    type: list
    elements: int
    default: []
  tray_reading:
    description:
      - V(ansible) takes what trays returned with O(step=inspect). With V(ssh) the step V(evaluate) inspects those of
        O(hosts) itself, from one process, by C(ssh) with the options that Ansible's connection plugin C(ssh) has.
    type: str
    choices: [ansible, ssh]
    default: ansible
  hosts:
    description: The hosts of this run, of which O(trays) are inspected with O(tray_reading=ssh).
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - With O(step=evaluate) it writes O(path) in check mode, too, since that is a report of this run.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - Each run makes a bundle of what the hosts answer then.
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Plan what the hosts inspect
  rackscale.nvlink.doctor:
    step: plan
    trays: "{{ groups['trays'] }}"

- name: Inspect the tray
  rackscale.nvlink.doctor:
    step: inspect
    peer_ports: [22, 50000]
"""

RETURN = r"""
changes:
  description: The files of the bundle that were or would be written; empty with the other steps.
  returned: always
  type: list
  elements: str
findings:
  description: With O(step=capture) the findings of M(rackscale.nvlink.fabric_facts), and answers that were dropped.
  returned: always
  type: list
  elements: dict
ready:
  description: Whether the controller has what it needs to ask hosts.
  returned: with O(step=plan)
  type: bool
controllers:
  description: The Slurm controllers to ask.
  returned: with O(step=plan) and O(step=plan_capture)
  type: list
  elements: str
sample:
  description: Trays to which the Slurm controllers connect, as O(connects).
  returned: with O(step=plan)
  type: list
  elements: dict
groups:
  description: Address of each tray, a mapping a clique; one of all trays where there is no fabric file.
  returned: with O(step=plan)
  type: list
  elements: dict
with_imex:
  description: Whether the site runs IMEX as a service on trays.
  returned: with O(step=plan)
  type: bool
verdict:
  description: The content of O(path).
  returned: with O(step=evaluate)
  type: dict
  sample: {"ok": false, "summary": "...", "checks": [{"name": "ssh", "status": "error", "hosts": "r01t[01-18]",
    "message": "..."}]}
text:
  description: The checks and the summary to print.
  returned: with O(step=evaluate) and O(step=write_capture)
  type: list
  elements: str
failure:
  description: The summary where the playbook fails, else empty.
  returned: with O(step=evaluate)
  type: str
problem:
  description: Why the host did not answer.
  returned: with O(step=inspect), on failure
  type: str
clock:
  description: The host's clock minus the controller's in seconds, at least C(low) and at most C(high).
  returned: with O(step=inspect)
  type: dict
  sample: {"low": -0.8, "high": 0.1}
times:
  description: The host's clock at the start and the end of the module.
  returned: with O(step=inspect)
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
  returned: with O(step=inspect)
  type: str
user:
  description: The user that the module runs as.
  returned: with O(step=inspect)
  type: str
root:
  description: Whether that is root.
  returned: with O(step=inspect)
  type: bool
ansible_facts:
  description: What M(rackscale.nvlink.fabric_facts) returns with C(gather_subset=[gpu, versions]).
  returned: with O(step=inspect) and O(role=tray)
  type: dict
imex:
  description: The IMEX package.
  returned: with O(step=inspect) and O(role=tray)
  type: dict
  contains:
    program:
      description: Whether the daemon's program exists.
      type: bool
    candidate:
      description: >-
        Version of the package that the package manager offers for the loaded driver, where none is installed.
      type: str
    offered:
      description: Other versions that it offers.
      type: list
      elements: str
connects:
  description: Results of the connections.
  returned: with O(step=inspect)
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
    reason:
      description: Why the port cannot be reached; empty where it can.
      type: str
slurm:
  description: slurmctld of the host.
  returned: with O(step=inspect) and O(role=controller)
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
    limits:
      description: Cases of the finding C(slurm_feature_limited).
      type: list
      elements: str
    problem:
      description: Why it did not answer.
      type: str
versions:
  description: Versions of the software on the host, each V(null) where there is none.
  returned: with O(step=capture)
  type: dict
  contains:
    driver:
      description: The loaded driver's version.
      type: str
    imex:
      description: The version of IMEX.
      type: str
    imex_package:
      description: The version of its package.
      type: str
    slurmd:
      description: The version of the installed slurmd.
      type: str
    slurmctld:
      description: The version of the installed slurmctld.
      type: str
    kernel:
      description: The release of the running kernel.
      type: str
nvml:
  description: What NVML returned.
  returned: with O(step=capture) and O(role=tray)
  type: dict
  contains:
    problem:
      description: Why NVML could not be read, V(null) if it could.
      type: str
    driver_version:
      description: The driver's version.
      type: str
    count:
      description: Number of GPUs that NVML counts.
      type: int
    gpus:
      description: The GPUs.
      type: list
      elements: dict
      contains:
        index:
          description: Its index.
          type: int
        code:
          description: NVML's return code of the first call, 0 if it succeeded.
          type: int
        uuid:
          description: Its UUID.
          type: str
        name:
          description: Its name.
          type: str
        pci_bus_id:
          description: Its PCI bus ID.
          type: str
        module_id:
          description: Its module ID.
          type: int
        mig:
          description: The MIG mode, 1 if enabled.
          type: int
        recovery_action:
          description: The number of the recovery action.
          type: int
        pdi:
          description: The platform device identifier in hexadecimal.
          type: str
        platform:
          description: The platform information.
          type: dict
          contains:
            fabric_guid:
              description: The GUID of the GPU in hexadecimal.
              type: str
            chassis_serial:
              description: The chassis serial number.
              type: str
            slot_number:
              description: The slot number.
              type: int
            tray_index:
              description: The tray index.
              type: int
            host_id:
              description: The host ID.
              type: int
        structs:
          description: The answer to each version of the fabric call.
          type: list
          elements: dict
          contains:
            version:
              description: The version of the struct.
              type: int
            code:
              description: NVML's return code.
              type: int
            bytes:
              description: The struct in hexadecimal, empty unless the code is 0.
              type: str
outputs:
  description: What programs printed.
  returned: with O(step=capture)
  type: list
  elements: dict
  contains:
    name:
      description: The name of its file in the bundle.
      type: str
    problem:
      description:
        - Why it is no whole answer, C(no answer in time), C(not started), C(exit NUMBER), C(too long) or C(failed);
          V(null) if it is.
      type: str
    parts:
      description: The output in parts of at most 8192 characters.
      type: list
      elements: str
trays:
  description: The trays to ask.
  returned: with O(step=plan_capture)
  type: list
  elements: str
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import capture, inspection
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

ON_HOST = {"inspect": inspection.answer, "capture": capture.read}
"""Step -> its function of the options; the action plugin does the other steps on the controller."""
CONNECT = {
    "name": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "required": True},
}
ARGUMENTS: dict[str, Specification] = {
    "step": {
        "type": "str",
        "choices": ["plan", "inspect", "evaluate", "plan_capture", "capture", "write_capture"],
        "required": True,
    },
    "fabric_file": {"type": "path", "default": ""},
    "trays": {"type": "list", "elements": "str"},
    "pattern": {"type": "str"},
    "controllers": {"type": "list", "elements": "str", "default": []},
    "fail": {"type": "bool", "default": True},
    "path": {"type": "path", "default": ""},
    "role": {"type": "str", "choices": ["tray", "controller"], "default": "tray"},
    "backend": {"type": "str", "choices": ["auto", "nvml", "nvidia_smi"], "default": "auto"},
    "nvidia_smi": {"type": "path", "default": "nvidia-smi"},
    "ip": {"type": "path"},
    "imex_ctl": {"type": "path", "default": "nvidia-imex-ctl"},
    "imex_config_file": {"type": "path", "default": "/etc/nvidia-imex/config.cfg"},
    "timeout": {"type": "float", "default": 20},
    "logs": {"type": "bool", "default": False},
    "bin_dir": {"type": "path", "default": ""},
    "conf_dir": {"type": "path", "default": ""},
    "connects": {"type": "list", "elements": "dict", "options": CONNECT, "default": []},
    "peer_ports": {"type": "list", "elements": "int", "default": []},
    "tray_reading": {"type": "str", "choices": ["ansible", "ssh"], "default": "ansible"},
    "hosts": {"type": "list", "elements": "str", "default": []},
}
REQUIRED_IF = [("step", step, ("trays",)) for step in ("plan", "evaluate", "plan_capture", "write_capture")]


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, required_if=REQUIRED_IF, supports_check_mode=True)
    try:
        found = ON_HOST[module.params["step"]](module.params)
    except NvlinkError as error:
        module.fail_json(msg=f"doctor: {error}")
    module.exit_json(**{"changed": False, "changes": [], **found})


if __name__ == "__main__":
    main()
