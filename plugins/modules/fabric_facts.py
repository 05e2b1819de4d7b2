#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_facts
short_description: What a tray's GPUs say of their NVLink fabric
version_added: 0.1.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Reads from the GPUs of a host which NVLink domain and clique they are in, where the tray stands in its chassis, and
    how healthy its fabric is.
  - A tray in trouble is no failed task. A missing driver, a lost GPU, a hanging library or broken output is a finding
    with its remedy, its value is V(null), and the module returns normally. The module fails only for a wrong option.
  - NVML is read in a child process that is killed at O(timeout), so that a driver that hangs in the kernel holds up
    neither the module nor the play.
requirements:
  - The NVIDIA driver with C(libnvidia-ml.so.1) or C(nvidia-smi).
  - The Python package C(nvidia-ml-py) is used where it is installed and not needed; without it the module loads the
    driver's library itself.
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.facts_module
  - rackscale.nvlink.tray.gpus
attributes:
  platform:
    support: full
"""

EXAMPLES = r"""
- name: Ask every tray what its GPUs say
  rackscale.nvlink.fabric_facts:

- name: Show the clique that this tray is in
  ansible.builtin.debug:
    msg: "{{ ansible_facts.nvlink_fabric.clique }}"

- name: Ask nvidia-smi alone, for at most a minute
  rackscale.nvlink.fabric_facts:
    backend: nvidia_smi
    nvidia_smi: /opt/nvidia/bin/nvidia-smi
    timeout: 60
"""

RETURN = r"""
ansible_facts:
  description: What the tray says. Unknown is V(null), never a guess.
  returned: success
  type: dict
  contains:
    nvlink_fabric:
      description: The NVLink fabric as this tray's GPUs see it.
      returned: success
      type: dict
      contains:
        observed_at:
          description: When it was read, in UTC.
          returned: success
          type: str
          sample: "2026-11-21T05:00:00Z"
        hostname:
          description: The tray's own hostname.
          returned: success
          type: str
          sample: r01t01
        addresses:
          description: The tray's IPv4 and IPv6 addresses without loopback and link-local ones.
          returned: success
          type: list
          elements: dict
          contains:
            interface:
              description: The interface that has the address.
              returned: success
              type: str
              sample: eth0
            address:
              description: The address.
              returned: success
              type: str
              sample: 198.51.100.11
            prefix:
              description: The length of its network's prefix.
              returned: success
              type: int
              sample: 24
        backend:
          description: The backend that gave the facts, V(nvml) or V(nvidia_smi), V(null) if none did.
          returned: success
          type: str
          sample: nvml
        driver_version:
          description: The version of the NVIDIA driver.
          returned: success
          type: str
          sample: 580.173.02
        attached:
          description:
            - Whether the tray is in a multi-node NVLink fabric. It is when it has a GPU, and every GPU has the state
              completed, the status success and a cluster UUID, and all of them agree.
          returned: success
          type: bool
          sample: true
        cluster_uuid:
          description: The UUID of the tray's NVLink domain, V(null) if it is not attached.
          returned: success
          type: str
          sample: 9f3c5a1e-0b7d-4c2e-8f6a-1d2e3f405162
        clique_id:
          description: The tray's clique within its domain, V(null) if it is not attached. Alone it means nothing.
          returned: success
          type: int
          sample: 32766
        clique:
          description: The tray's clique as text, the value of the node label C(nvidia.com/gpu.clique).
          returned: success
          type: str
          sample: 9f3c5a1e-0b7d-4c2e-8f6a-1d2e3f405162.32766
        chassis_serial:
          description: The serial number of the chassis, which all trays of a rack share.
          returned: success
          type: str
          sample: "1820925000123"
        slot_number:
          description: The tray's slot, counted with the switch trays.
          returned: success
          type: int
          sample: 14
        tray_index:
          description: The tray's index among the compute trays of its chassis.
          returned: success
          type: int
          sample: 4
        host_id:
          description: The number of this host within its tray.
          returned: success
          type: int
          sample: 1
        gpu_count:
          description: How many GPUs there are, V(null) if they could not be read.
          returned: success
          type: int
          sample: 4
        gpus:
          description: The GPUs, by index. Of a lost GPU only the index is known.
          returned: success
          type: list
          elements: dict
          contains:
            index:
              description: The index of the GPU in NVML and nvidia-smi, which is no position in the tray.
              returned: success
              type: int
              sample: 0
            uuid:
              description: The UUID of the GPU.
              returned: success
              type: str
              sample: GPU-3d1c5f7e-9a2b-4c6d-8e0f-112233445566
            name:
              description: The product's name.
              returned: success
              type: str
              sample: NVIDIA GB200
            pci_bus_id:
              description: The PCI address.
              returned: success
              type: str
              sample: "00000008:01:00.0"
            module_id:
              description: The position of the GPU on its board.
              returned: success
              type: int
              sample: 2
            fabric_guid:
              description: The GUID under which the NVLink switches know the GPU, as hexadecimal text.
              returned: success
              type: str
              sample: "0x0a1b2c3d4e5f6071"
            mig_enabled:
              description: Whether MIG is on, which turns NVLink between GPUs off.
              returned: success
              type: bool
              sample: false
            recovery_action:
              description:
                - What the driver asks for. One of V(none), V(gpu_reset), V(node_reboot), V(drain_p2p),
                  V(drain_and_reset), V(recover_imex_domain), V(bus_reset) and V(system_reboot).
              returned: success
              type: str
              sample: none
            fabric:
              description: The fabric as this GPU sees it.
              returned: success
              type: dict
              contains:
                state:
                  description: One of V(not_supported), V(not_started), V(in_progress) and V(completed).
                  returned: success
                  type: str
                  sample: completed
                status:
                  description:
                    - The fabric manager's answer, V(success) or the NVML error in snake_case such as
                      V(insufficient_resources). Known only in the state completed.
                  returned: success
                  type: str
                  sample: success
                cluster_uuid:
                  description: The UUID of the NVLink domain, V(null) for one that ends at this host.
                  returned: success
                  type: str
                  sample: 9f3c5a1e-0b7d-4c2e-8f6a-1d2e3f405162
                clique_id:
                  description: The clique within the domain.
                  returned: success
                  type: int
                  sample: 32766
                health:
                  description: The rows of the fabric's health, each V(null) where the driver does not say.
                  returned: success
                  type: dict
                  contains:
                    summary:
                      description: One of V(healthy), V(unhealthy) and V(limited_capacity).
                      returned: success
                      type: str
                      sample: healthy
                    degraded_bandwidth:
                      description: Whether the NVLink bandwidth is degraded.
                      returned: success
                      type: bool
                      sample: false
                    route_recovery:
                      description: Whether a recovery of routes is in progress.
                      returned: success
                      type: bool
                      sample: false
                    route_unhealthy:
                      description: Whether a recovery of routes has failed.
                      returned: success
                      type: bool
                      sample: false
                    access_timeout_recovery:
                      description: Whether a recovery from timed out accesses is in progress.
                      returned: success
                      type: bool
                      sample: false
                    incorrect_configuration:
                      description:
                        - V(none) or its reason. One of V(incorrect_sysguid), V(incorrect_chassis_sn),
                          V(no_partition), V(insufficient_nvlinks), V(incompatible_gpu_fw), V(invalid_location) and
                          V(gpu_state_invalid).
                      returned: success
                      type: str
                      sample: none
                    partition_assigned:
                      description: Whether the GPU is assigned to an NVLink partition.
                      returned: success
                      type: bool
                      sample: true
        findings:
          description: What was noticed. Empty when everything is as it should be.
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
            gpu:
              description: The index of the GPU, V(null) where it is about the tray.
              returned: success
              type: int
              sample: 2
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.fabric_facts import BACKENDS, gather


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "backend": {"type": "str", "choices": list(BACKENDS), "default": "auto"},
            "nvidia_smi": {"type": "path", "default": "nvidia-smi"},
            "ip": {"type": "path"},
            "timeout": {"type": "float", "default": 20},
        },
        supports_check_mode=True,
    )
    options = module.params
    try:
        facts = gather(options["backend"], options["nvidia_smi"], options["timeout"], options["ip"])
    except NvlinkError as error:
        module.fail_json(msg=f"fabric_facts: {error}")
    module.exit_json(changed=False, ansible_facts={"nvlink_fabric": facts})


if __name__ == "__main__":
    main()
