#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_capture
short_description: "[INTERNAL] Read what the tools of a tray or a Slurm controller answer, for a support bundle"
version_added: 0.1.0
author: rackscale.nvlink contributors (@rackscale)
description:
  - Reads on a tray NVML with the bytes of each version of its fabric struct, C(nvidia-smi -q -x) and
    C(nvidia-imex-ctl), on a Slurm controller C(scontrol show topology) and C(scontrol show config).
  - Each answer has a time limit and at most 2 MiB. One that fails has a RV(outputs[].problem), and the others are
    returned.
  - Nothing is anonymised; M(rackscale.nvlink.capture_bundle) does so on the Ansible controller.
notes:
  - Used by the playbooks of this collection alone; its options may change in any release.
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.info_module
attributes:
  platform:
    support: full
    platforms: linux
options:
  role:
    description: What the host is.
    type: str
    choices: [tray, controller]
    default: tray
  nvidia_smi:
    description: As in M(rackscale.nvlink.fabric_facts).
    type: path
    default: nvidia-smi
  imex_ctl:
    description: As in M(rackscale.nvlink.fabric_facts).
    type: path
    default: nvidia-imex-ctl
  imex_config_file:
    description: As in M(rackscale.nvlink.fabric_facts).
    type: path
    default: /etc/nvidia-imex/config.cfg
  timeout:
    description: Seconds for each answer, above 0 and up to 600.
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
"""

EXAMPLES = r"""
- name: Read what the tools of the tray answer
  rackscale.nvlink.fabric_capture:
"""

RETURN = r"""
changes:
  description: Always empty.
  returned: always
  type: list
  elements: str
names:
  description: The host's own name, its addresses and the entries of its IMEX list, which a bundle must not have.
  returned: success
  type: list
  elements: str
versions:
  description: Versions of the software on the host, each V(null) where there is none.
  returned: success
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
findings:
  description: The findings of M(rackscale.nvlink.fabric_facts), and answers that were dropped.
  returned: always
  type: list
  elements: dict
nvml:
  description: What NVML returned.
  returned: role tray
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
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name of its file in the bundle.
      type: str
    command:
      description: The command.
      type: str
    problem:
      description: Why it is no whole answer, V(null) if it is.
      type: str
    parts:
      description: The output in parts of at most 8192 characters.
      type: list
      elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import capture, subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm

ARGUMENTS = {
    "role": {"type": "str", "choices": ["tray", "controller"], "default": "tray"},
    "nvidia_smi": {"type": "path", "default": "nvidia-smi"},
    "imex_ctl": {"type": "path", "default": "nvidia-imex-ctl"},
    "imex_config_file": {"type": "path", "default": "/etc/nvidia-imex/config.cfg"},
    "timeout": {"type": "float", "default": 20},
    "bin_dir": {"type": "path", "default": ""},
    "conf_dir": {"type": "path", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given = module.params
    try:
        if given["role"] == "controller":
            found = capture.of_controller(Slurm(given["bin_dir"], given["timeout"], given["conf_dir"]))
        else:
            programs = {name: given[name] for name in ("nvidia_smi", "imex_ctl", "imex_config_file")}
            options = subsets.Options(timeout=given["timeout"], imex_timeout=given["timeout"], **programs)
            found = capture.of_tray(options)
    except NvlinkError as error:
        module.fail_json(msg=f"fabric_capture: {error}")
    module.exit_json(changed=False, changes=[], **found)


if __name__ == "__main__":
    main()
