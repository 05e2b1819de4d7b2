#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: tray_info
short_description: Everything a tray says of itself, in one visit
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Reads what M(rackscale.nvlink.fabric_facts) and M(rackscale.nvlink.imex_info) read, the channel devices with the
    driver's parameters for them, and the versions of driver, IMEX and slurmd, in one task a tray. The playbook
    C(rackscale.nvlink.verify) asks every tray with it.
  - Each part has its own time limit. A part that cannot be read is V(null) and a finding, and the others are returned
    all the same. The module fails only for a wrong option.
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.facts_module
  - rackscale.nvlink.tray.gpus
  - rackscale.nvlink.tray.imex
attributes:
  platform:
    support: full
    platforms: linux
options:
  imex_config:
    description: The configuration of the IMEX daemon.
    type: path
    default: /etc/nvidia-imex/config.cfg
  imex_record:
    description: The file in which the role C(imex) notes which list it has written.
    type: path
    default: /etc/nvidia-imex/nvlink.json
  imex_ctl:
    description: The program C(nvidia-imex-ctl); looked up in C(PATH) when it has no slash.
    type: path
    default: nvidia-imex-ctl
  imex_timeout:
    description: Seconds that each of its two answers may take, above 0 and up to 600.
    type: float
    default: 10
  slurmd:
    description: The program C(slurmd); looked up in C(PATH) and the usual places when it has no slash.
    type: path
    default: slurmd
seealso:
  - module: rackscale.nvlink.fabric_facts
  - module: rackscale.nvlink.imex_info
  - module: rackscale.nvlink.verify
"""

EXAMPLES = r"""
- name: Ask every tray for everything
  rackscale.nvlink.tray_info:

- name: Show the clique and the version of IMEX
  ansible.builtin.debug:
    msg: >-
      {{ ansible_facts.nvlink_tray.fabric.clique }} runs IMEX {{ ansible_facts.nvlink_tray.versions.imex }}
"""

RETURN = r"""
ansible_facts:
  description: What the tray says. Unknown is V(null), never a guess.
  returned: success
  type: dict
  contains:
    nvlink_tray:
      description: All parts of the tray.
      returned: success
      type: dict
      contains:
        observed_at:
          description: When it was read, in UTC.
          returned: success
          type: str
          sample: "2026-11-21T05:00:00Z"
        fabric:
          description: As C(nvlink_fabric) of M(rackscale.nvlink.fabric_facts).
          returned: success
          type: dict
        imex:
          description: As C(nvlink_imex) of M(rackscale.nvlink.imex_info).
          returned: success
          type: dict
        channels:
          description: IMEX channels.
          returned: success
          type: dict
          contains:
            major:
              description: The major number of channel devices in this boot, V(null) where the driver offers none.
              returned: success
              type: int
              sample: 234
            devices:
              description: The channel devices, each with C(name), C(major), C(minor) and C(mode).
              returned: success
              type: list
              elements: dict
              sample: [{name: channel0, major: 234, minor: 0, mode: "0666"}]
            parameters:
              description: The driver's C(ImexChannelCount) and C(CreateImexChannel0) as it runs, V(null) if unknown.
              returned: success
              type: dict
              sample: {ImexChannelCount: 2048, CreateImexChannel0: 1}
        versions:
          description: Versions, each V(null) where there is none.
          returned: success
          type: dict
          contains:
            driver:
              description: The loaded driver's.
              returned: success
              type: str
              sample: 580.173.02
            imex:
              description: The IMEX daemon's, or its program's where it does not run.
              returned: success
              type: str
              sample: 580.173.02
            imex_package:
              description: The installed package's.
              returned: success
              type: str
              sample: 580.173.02-1
            slurmd:
              description: The installed slurmd's.
              returned: success
              type: str
              sample: 25.11.2
            kernel:
              description: The running kernel's release.
              returned: success
              type: str
              sample: 6.8.0-1042-nvidia-64k
        findings:
          description: The findings of all parts.
          returned: success
          type: list
          elements: dict
          contains:
            code:
              description: The reason code.
              returned: success
              type: str
              sample: gpu_lost
            severity:
              description: One of V(error), V(warning) and V(info).
              returned: success
              type: str
              sample: error
            message:
              description: One sentence that names the remedy.
              returned: success
              type: str
              sample: GPU 2 is lost, it has fallen off the bus; drain the tray and reboot it.
            part:
              description: The part that it is about, V(fabric), V(imex), V(channels) or V(versions).
              returned: success
              type: str
              sample: fabric
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import tray_info
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.fabric_facts import BACKENDS
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, survey


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "backend": {"type": "str", "choices": list(BACKENDS), "default": "auto"},
            "nvidia_smi": {"type": "path", "default": "nvidia-smi"},
            "ip": {"type": "path"},
            "timeout": {"type": "float", "default": 20},
            "imex_config": {"type": "path", "default": files.CONFIG_FILE},
            "imex_record": {"type": "path", "default": files.RECORD_FILE},
            "imex_ctl": {"type": "path", "default": "nvidia-imex-ctl"},
            "imex_timeout": {"type": "float", "default": 10},
            "prolog_files": {"type": "list", "elements": "str", "default": list(survey.PROLOG_FILES)},
            "proc_devices": {"type": "path", "default": survey.PROC_DEVICES},
            "slurmd": {"type": "path", "default": "slurmd"},
        },
        supports_check_mode=True,
    )
    try:
        told = tray_info.gather(tray_info.Options(**module.params))
    except NvlinkError as error:
        module.fail_json(msg=f"tray_info: {error}")
    module.exit_json(changed=False, ansible_facts={"nvlink_tray": told})


if __name__ == "__main__":
    main()
