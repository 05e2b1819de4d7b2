#!/usr/bin/python
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_facts
short_description: Read NVLink fabric, IMEX, channel, version, link and serial number facts of a compute tray
version_added: 1.0.0
author:
  - rackscale.nvlink contributors (@rackscale)
description:
  - Reads from the GPUs of a compute tray (host) its NVLink domain and clique, its position in the chassis and the
    health of its fabric. O(gather_subset) adds the state of the IMEX daemon, the IMEX channel devices, the
    installed versions, the NVLinks with their error counters, and the serial numbers of other parts.
  - A faulty tray does not fail the task. A missing driver, a lost GPU, a library or daemon that hangs, or output that
    cannot be parsed is a finding with its remedy, its value is V(null), and the module returns normally. A subset that
    cannot be read at all is V(null) and a finding, and the others are returned. Only a wrong option fails the task.
  - NVML, C(nvidia-smi) and C(nvidia-imex-ctl) can hang in the driver, so each runs in a child process that is killed at
    its time limit.
  - Of the output of C(nvidia-imex-ctl -N -j) only the tray's own row is used, because the rows of peers that do not
    respond are filled in from the list. Run the module on all trays of a clique to know the state of its IMEX domain.
requirements:
  - The NVIDIA driver with C(libnvidia-ml.so.1) or C(nvidia-smi).
  - The Python package C(nvidia-ml-py) is used where it is installed, and optional; without it the module loads the
    driver's library itself.
extends_documentation_fragment:
  - rackscale.nvlink.attributes
  - rackscale.nvlink.attributes.facts_module
attributes:
  platform:
    support: full
options:
  gather_subset:
    description:
      - The facts to read. V(gpu) returns RV(ansible_facts.nvlink_fabric), V(imex) RV(ansible_facts.nvlink_imex),
        V(channels) RV(ansible_facts.nvlink_channels), V(versions) RV(ansible_facts.nvlink_versions), V(links)
        RV(ansible_facts.nvlink_links) and V(serials) RV(ansible_facts.nvlink_serials); V(all) is every subset.
      - A name with C(!) in front excludes that subset. A list of exclusions alone means all other subsets.
      - V(links) calls NVML a second time (O(timeout) applies to it again) and reads the kernel log by C(journalctl) for
        at most 10 seconds, which needs C(become) or the group C(systemd-journal). With O(backend=nvidia_smi) the links
        are V(null).
      - V(serials) needs C(become), because the kernel shows serial numbers to root only.
    type: list
    elements: str
    choices:
      [all, gpu, imex, channels, versions, links, serials, '!gpu', '!imex', '!channels', '!versions', '!links',
       '!serials']
    default: [gpu]
  backend:
    description:
      - The interface that the GPU facts are read from. Both backends give the same facts for the same tray.
      - V(auto) reads NVML, and C(nvidia-smi) where NVML cannot be used; a finding then gives the reason.
    type: str
    choices: [auto, nvml, nvidia_smi]
    default: auto
  nvidia_smi:
    description:
      - The program C(nvidia-smi); looked up in C(PATH) when it has no slash.
    type: path
    default: nvidia-smi
  ip:
    description:
      - A program that prints what iproute2's C(ip -j address show) prints; looked up in C(PATH) when it has no slash.
      - Needed only where the addresses that the C library returns are not the tray's own, as in a container or a
        simulation.
    type: path
  timeout:
    description:
      - Seconds for one GPU backend, above 0 and up to 3600; of NVML, for each of its calls, and three times as much for
        all of them (C(driver_slow)).
      - With O(backend=auto), C(nvidia-smi) gets the same time again where NVML has failed, and a quarter of it where
        NVML has hung.
    type: float
    default: 20
  imex_config_file:
    description:
      - The configuration file of the IMEX daemon, which names its node list and its log.
      - Used by the subsets V(imex) and V(versions), as are all options of IMEX.
    type: path
    default: /etc/nvidia-imex/config.cfg
  imex_record_file:
    description:
      - The file in which the role P(rackscale.nvlink.imex#role) records the node list that it wrote last, with the
        list's generation.
    type: path
    default: /etc/nvidia-imex/nvlink.json
  imex_ctl:
    description: The program C(nvidia-imex-ctl); looked up in C(PATH) when it has no slash.
    type: path
    default: nvidia-imex-ctl
  imex_timeout:
    description:
      - Seconds for each of at most three calls of C(nvidia-imex-ctl), above 0 and up to 600. Where the query of its
        state hangs, the one of the domain is left out.
    type: float
    default: 10
  prolog_files:
    description:
      - Glob patterns of Slurm prolog files, besides those that the C(slurm.conf) of the running slurmd names as
        C(Prolog) or C(Epilog). A prolog that mentions C(nvidia-imex) is an owner of IMEX.
    type: list
    elements: str
    default:
      - /etc/slurm/*prolog*
      - /etc/slurm/prolog.d/*
      - /etc/slurm/prolog_slurmd.d/*
      - /opt/slurm/etc/prolog.d/*
  proc_devices:
    description: The file in which the kernel lists the major numbers of devices.
    type: path
    default: /proc/devices
  slurmd:
    description:
      - The program C(slurmd), for the subset V(versions); looked up in C(PATH) and the usual folders when it has no
        slash.
    type: path
    default: slurmd
seealso:
  - module: rackscale.nvlink.verify
"""

EXAMPLES = r"""
- name: Read the NVLink fabric facts of every tray
  rackscale.nvlink.fabric_facts:

- name: Show the clique of this tray
  ansible.builtin.debug:
    msg: "{{ ansible_facts.nvlink_fabric.clique }}"

- name: Read nvidia-smi only, for at most a minute
  rackscale.nvlink.fabric_facts:
    backend: nvidia_smi
    nvidia_smi: /opt/nvidia/bin/nvidia-smi
    timeout: 60

- name: Read the state of IMEX only
  rackscale.nvlink.fabric_facts:
    gather_subset: imex

- name: Stop where IMEX of a tray is not ready
  ansible.builtin.assert:
    that: ansible_facts.nvlink_imex.ready
    fail_msg: "{{ ansible_facts.nvlink_imex.reason }}"

- name: Show the peers that this tray is not connected to
  ansible.builtin.debug:
    msg: "{{ ansible_facts.nvlink_imex.peers | rejectattr('connection', 'eq', 'connected') | map(attribute='host') }}"

- name: Show the links that have had a recovery or an error
  rackscale.nvlink.fabric_facts:
    gather_subset: links
  become: true

- name: Read everything except the channel devices
  rackscale.nvlink.fabric_facts:
    gather_subset: [all, '!channels']
"""

RETURN = r"""
ansible_facts:
  description: The facts of the tray. Unknown is V(null), never a guess.
  returned: success
  type: dict
  contains:
    nvlink_fabric:
      description: The NVLink fabric as the GPUs of this tray report it.
      returned: with the subset V(gpu)
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
          description: The backend that the facts are from, V(nvml) or V(nvidia_smi), V(null) if none did.
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
          description: The tray's clique ID, V(null) if it is not attached. It is unique within its NVLink domain only.
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
          description: The number of GPUs, V(null) if they could not be read.
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
              description: The index of the GPU in NVML and nvidia-smi; it is not a position in the tray.
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
              description:
                - The GUID under which the NVLink switches know the GPU, as hexadecimal text; nvidia-smi prints it as
                  GPU Fabric GUID. Null where the driver has none, as before Blackwell.
              returned: success
              type: str
              sample: "0x0a1b2c3d4e5f6071"
            pdi:
              description:
                - The Per-Device Identifier, as hexadecimal text. It equals the GPU's C(fabric_guid) on GB200 and GB300,
                  not on HGX B200 and VR200.
              returned: success
              type: str
              sample: "0x0a1b2c3d4e5f6071"
            mig_enabled:
              description: Whether MIG mode is on, which disables NVLink between GPUs.
              returned: success
              type: bool
              sample: false
            recovery_action:
              description:
                - The recovery action that the driver reports. One of V(none), V(gpu_reset), V(node_reboot),
                  V(drain_p2p), V(drain_and_reset), V(recover_imex_domain), V(bus_reset) and V(system_reboot).
              returned: success
              type: str
              sample: none
            fabric:
              description: The fabric as this GPU reports it.
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
                    - The status that the fabric manager reported, V(success) or the NVML error in snake_case such as
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
                cliques:
                  description:
                    - The IDs of the GPU's cliques by kind of operation; the clique ID above is the first one of
                      unicast pointers.
                    - Reported by drivers of R615 and newer, else V(null).
                  returned: success
                  type: dict
                  contains:
                    unicast_pointer:
                      description: Access by pointers to one GPU.
                      returned: success
                      type: list
                      elements: int
                      sample: [32766]
                    multicast_pointer:
                      description: Access by pointers to several GPUs at once.
                      returned: success
                      type: list
                      elements: int
                      sample: [32766]
                    unicast_logical_endpoint:
                      description: Access by a logical endpoint of one GPU.
                      returned: success
                      type: list
                      elements: int
                      sample: [32766]
                    multicast_logical_endpoint:
                      description: Access by a logical endpoint of several GPUs.
                      returned: success
                      type: list
                      elements: int
                      sample: [32766]
                health:
                  description: The rows of the fabric's health, each V(null) where the driver does not report it.
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
                    fabric_manager_connected:
                      description:
                        - Whether the GPU is connected to the global fabric manager. Reported by drivers of CUDA 13.4
                          and newer.
                      returned: success
                      type: bool
                      sample: true
        findings:
          description: The problems found. Empty when there are none.
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
              description: One sentence with the remedy.
              returned: success
              type: str
              sample: GPU 2 is lost, it has fallen off the bus; drain the tray and reboot it.
            gpu:
              description: The index of the GPU, V(null) where it is about the tray.
              returned: success
              type: int
              sample: 2
    nvlink_imex:
      description: IMEX as this tray reports it, V(null) if it could not be read.
      returned: with the subset V(imex)
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
        installed:
          description: Whether the program C(nvidia-imex) is installed.
          returned: success
          type: bool
          sample: true
        package:
          description: The package of that program, V(null) where no package manager lists one.
          returned: success
          type: dict
          contains:
            name:
              description: The package's name.
              returned: success
              type: str
              sample: nvidia-imex
            version:
              description: The package's version.
              returned: success
              type: str
              sample: 580.173.02-1
        control_tool:
          description: Whether C(nvidia-imex-ctl) can be run, with or without a running daemon.
          returned: success
          type: bool
          sample: true
        version:
          description: The version of the running daemon, else of the installed program.
          returned: success
          type: str
          sample: 580.173.02
        driver_version:
          description: The version of the loaded driver, which must be the same.
          returned: success
          type: str
          sample: 580.173.02
        running:
          description: Whether an IMEX daemon runs, whoever started it.
          returned: success
          type: bool
          sample: true
        state:
          description:
            - The daemon's state. One of V(initializing), V(starting_auth_server), V(waiting_for_peers),
              V(waiting_for_recovery), V(init_gpu), V(ready), V(shutting_down) and V(unavailable).
          returned: success
          type: str
          sample: ready
        domain_state:
          description:
            - The state of the IMEX domain as C(nvidia-imex-ctl) of this tray reports it, V(up), V(degraded) or V(down).
          returned: success
          type: str
          sample: up
        ready:
          description: Whether the daemon runs and its state is ready. A ready daemon can have lost all its peers.
          returned: success
          type: bool
          sample: true
        peers:
          description: The other members of the list as this tray's own row reports them, in the list's order.
          returned: success
          type: list
          elements: dict
          contains:
            id:
              description: Its index in the list, from 0.
              returned: success
              type: int
              sample: 1
            host:
              description: Its line in the list.
              returned: success
              type: str
              sample: 198.51.100.12
            connection:
              description:
                - One of V(connected), V(never_connected), V(recovering), V(disconnected), V(invalid),
                  V(authenticating), V(version_mismatch), V(map_mismatch) and V(authentication_error), or a word of a
                  newer release.
              returned: success
              type: str
              sample: connected
            state:
              description:
                - Its state as this tray's C(nvidia-imex-ctl) shows it, V(unavailable) for a peer that does not answer.
                  Of all others, its own tray knows more.
              returned: success
              type: str
              sample: ready
        unit:
          description: The state of C(nvidia-imex.service) in systemd, V(null) without systemd.
          returned: success
          type: dict
          contains:
            load:
              description: V(loaded), V(not-found) or V(masked).
              returned: success
              type: str
              sample: loaded
            active:
              description: V(active), V(inactive), V(failed), V(activating) or V(deactivating).
              returned: success
              type: str
              sample: active
            sub:
              description: The substate.
              returned: success
              type: str
              sample: running
            enabled:
              description: V(enabled), V(disabled), V(masked) or another state of systemd, V(null) without a unit.
              returned: success
              type: str
              sample: enabled
            main_pid:
              description: The process ID of the daemon.
              returned: success
              type: int
              sample: 812
            result:
              description: Why it has failed, else V(success).
              returned: success
              type: str
              sample: success
        config:
          description: The configuration of the daemon.
          returned: success
          type: dict
          contains:
            path:
              description: Its file.
              returned: success
              type: str
              sample: /etc/nvidia-imex/config.cfg
            sha256:
              description: The hash of the file, V(null) if there is none.
              returned: success
              type: str
              sample: 5f1d...
            settings:
              description: Its settings. A value of a TLS key that is neither a path nor a name is V(null).
              returned: success
              type: dict
              sample: {SERVER_PORT: "50000"}
            unknown_keys:
              description: Keys that this collection does not know and does not change.
              returned: success
              type: list
              elements: str
              sample: []
        nodes:
          description: The list of the IMEX domain's members, C(nodes_config.cfg).
          returned: success
          type: dict
          contains:
            path:
              description: Its file.
              returned: success
              type: str
              sample: /etc/nvidia-imex/nodes_config.cfg
            sha256:
              description: The hash of the file, equal on all members of a domain, V(null) if there is none.
              returned: success
              type: str
              sample: 83bb...
            entries:
              description: Its entries.
              returned: success
              type: list
              elements: str
              sample: [198.51.100.11, 198.51.100.12]
            own_id:
              description: The index, from 0, of the line with an address of this tray, V(null) if there is none.
              returned: success
              type: int
              sample: 0
            changed_at:
              description: When it was written, in seconds since 1970.
              returned: success
              type: float
              sample: 1795237200.0
            generation:
              description: The generation of the clique's list that the role C(imex) wrote last.
              returned: success
              type: int
              sample: 3
            clique:
              description: The clique that it was written for.
              returned: success
              type: str
              sample: r01
            recorded_owner:
              description: The owner of IMEX as the role C(imex) set it last.
              returned: success
              type: str
              sample: domain
            read_sha256:
              description: The hash of the list that the daemon has read, which may have been edited since. Null where
                that is unknown.
              returned: success
              type: str
              sample: 83bb...
            recorded_sha256:
              description: The hash of the list as the role C(imex) wrote it.
              returned: success
              type: str
              sample: 83bb...
        persist_file:
          description: Whether a persist file exists. Without a running daemon it is left from an unclean stop.
          returned: success
          type: bool
          sample: false
        channels:
          description: The IMEX channels.
          returned: success
          type: dict
          contains:
            major:
              description: Their major number in this boot, V(null) if the driver offers none.
              returned: success
              type: int
              sample: 234
            devices:
              description: The channel devices.
              returned: success
              type: list
              elements: dict
              contains:
                name:
                  description: The device's name.
                  returned: success
                  type: str
                  sample: channel0
                major:
                  description: Its major number.
                  returned: success
                  type: int
                  sample: 234
                minor:
                  description: Its minor number, the channel.
                  returned: success
                  type: int
                  sample: 0
                mode:
                  description: Its mode.
                  returned: success
                  type: str
                  sample: "0666"
        owners:
          description:
            - The owners of IMEX, which run it now or will at the next boot or job. More than one is an error.
          returned: success
          type: list
          elements: dict
          contains:
            owner:
              description:
                - V(service) is nvidia-imex.service, V(prolog) a Slurm prolog, V(driver) the Kubernetes DRA driver and
                  V(foreign) anything else.
              returned: success
              type: str
              sample: service
            why:
              description: The evidence for it.
              returned: success
              type: str
              sample: nvidia-imex.service is enabled
            pid:
              description: Its process ID, V(null) if none runs now.
              returned: success
              type: int
              sample: 812
        reason:
          description: The first error among the findings in one sentence, V(null) if there is none.
          returned: success
          type: str
          sample: null
        findings:
          description: The problems found. Empty when there are none.
          returned: success
          type: list
          elements: dict
          contains:
            code:
              description: The reason code.
              returned: success
              type: str
              sample: imex_list_differs
            severity:
              description: One of V(error), V(warning) and V(info).
              returned: success
              type: str
              sample: error
            message:
              description: One sentence with the remedy.
              returned: success
              type: str
              sample: nvidia-imex is not installed; the imex role installs it.
    nvlink_channels:
      description: The IMEX channel devices, V(null) if they could not be read.
      returned: with the subset V(channels)
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
          description: C(ImexChannelCount) and C(CreateImexChannel0) of the loaded driver, V(null) if unknown.
          returned: success
          type: dict
          sample: {ImexChannelCount: 2048, CreateImexChannel0: 1}
        findings:
          description: Always empty; what is wrong with channels is among the findings of the subset V(imex).
          returned: success
          type: list
          elements: dict
          sample: []
    nvlink_versions:
      description: Versions of the software on the tray, each V(null) where there is none.
      returned: with the subset V(versions)
      type: dict
      contains:
        driver:
          description: The loaded driver's version.
          returned: success
          type: str
          sample: 580.173.02
        imex:
          description: The version of the running IMEX daemon, else of its installed program.
          returned: success
          type: str
          sample: 580.173.02
        imex_package:
          description: The version of the installed package of IMEX.
          returned: success
          type: str
          sample: 580.173.02-1
        slurmd:
          description: The version of the installed C(slurmd).
          returned: success
          type: str
          sample: 25.11.2
        kernel:
          description: The release of the running kernel.
          returned: success
          type: str
          sample: 6.8.0-1042-nvidia-64k
        findings:
          description: Why the version of IMEX could not be read, where it was read for this subset alone.
          returned: success
          type: list
          elements: dict
          sample: []
    nvlink_links:
      description: The NVLinks of the GPUs as NVML reports them, and the NVLink errors in the kernel log.
      returned: with the subset V(links)
      type: dict
      contains:
        observed_at:
          description: When it was read, in UTC.
          returned: success
          type: str
          sample: "2026-11-21T05:00:00Z"
        gpus:
          description: The GPUs, by index, V(null) if NVML could not be read.
          returned: success
          type: list
          elements: dict
          contains:
            index:
              description: The index of the GPU in NVML.
              returned: success
              type: int
              sample: 0
            uuid:
              description: The UUID of the GPU.
              returned: success
              type: str
              sample: GPU-3d1c5f7e-9a2b-4c6d-8e0f-112233445566
            pci_bus_id:
              description: The PCI address.
              returned: success
              type: str
              sample: "00000008:01:00.0"
            link_count:
              description: The number of its NVLinks, V(null) where the GPU has none or could not be read.
              returned: success
              type: int
              sample: 18
            links:
              description: Its links, by number from 0. Links of one state and speed are one row.
              returned: success
              type: list
              elements: dict
              contains:
                state:
                  description: One of V(inactive), V(active), V(sleep) and V(active_traffic_disabled).
                  returned: success
                  type: str
                  sample: active
                speed:
                  description: The speed in MB/s, V(null) for an inactive link.
                  returned: success
                  type: int
                  sample: 53125
                links:
                  description: The numbers of the links.
                  returned: success
                  type: list
                  elements: int
                  sample: [0, 1, 2, 3]
            counters:
              description:
                - The links that have a counter other than 0. The counters of a link that is not here are 0, except for
                  those that C(unknown_counters) names.
                - Counters are numbers since the driver was loaded or the GPU was reset.
              returned: success
              type: list
              elements: dict
              contains:
                link:
                  description: The number of the link.
                  returned: success
                  type: int
                  sample: 14
                recoveries:
                  description: How often the link went into recovery, whatever the result.
                  returned: success
                  type: int
                  sample: 505
                recoveries_successful:
                  description: How often the link came back from recovery.
                  returned: success
                  type: int
                  sample: 505
                recoveries_failed:
                  description: How often a recovery failed and the link was declared down.
                  returned: success
                  type: int
                  sample: 0
                malformed_packets:
                  description: Received packets that were malformed.
                  returned: success
                  type: int
                  sample: 0
                buffer_overruns:
                  description: Received packets that were discarded because a buffer was full.
                  returned: success
                  type: int
                  sample: 0
                receive_errors:
                  description: Received packets with an error.
                  returned: success
                  type: int
                  sample: 0
                receive_remote_errors:
                  description: Received packets that the sender had marked as bad.
                  returned: success
                  type: int
                  sample: 0
                receive_general_errors:
                  description: Received packets of which the header does not match.
                  returned: success
                  type: int
                  sample: 0
                integrity_errors:
                  description: How often the local errors exceeded their threshold.
                  returned: success
                  type: int
                  sample: 0
                transmit_discards:
                  description: Packets with an error that were discarded before they were sent.
                  returned: success
                  type: int
                  sample: 0
                effective_errors:
                  description: Errors that remain after error correction.
                  returned: success
                  type: int
                  sample: 0
                symbol_errors:
                  description: Errors in received symbols.
                  returned: success
                  type: int
                  sample: 0
                effective_ber:
                  description: The bit error rate after error correction, V(null) if unknown.
                  returned: success
                  type: float
                  sample: 1.5e-254
                symbol_ber:
                  description: The bit error rate of received symbols, V(null) if unknown.
                  returned: success
                  type: float
                  sample: 1.5e-254
            unknown_counters:
              description: The counters that the driver does not report for each link of this GPU.
              returned: success
              type: list
              elements: str
              sample: []
        xids:
          description:
            - The GPU errors (Xids) that the kernel logged in the last 7 days, and since the boot those after which the
              GPU needs a reset, the newest first, at most 100. The table of them is in docs/verify.md.
            - Lines with the same GPU, Xid, link, boot and C(fatal) are one row. V(null) if the kernel log could not be
              read.
          returned: success
          type: list
          elements: dict
          contains:
            xid:
              description: The number of the Xid, V(0) for a line that has none (C(postRxDetLinkMask failed)).
              returned: success
              type: int
              sample: 149
            gpu:
              description: The index of the GPU, V(null) if no GPU has that PCI address.
              returned: success
              type: int
              sample: 0
            pci_bus_id:
              description: The PCI address in the line, V(null) if it has none.
              returned: success
              type: str
              sample: "00000008:01:00.0"
            link:
              description: The number of the link, V(null) if the line names none.
              returned: success
              type: int
              sample: 14
            fatal:
              description: Whether a line calls it fatal.
              returned: success
              type: bool
              sample: true
            boot:
              description: Whether it was logged since the tray booted.
              returned: success
              type: bool
              sample: true
            action:
              description: The C(recovery_action) to which the newest Xid 154 changed, else V(null).
              returned: success
              type: str
              sample: drain_and_reset
            count:
              description: The number of lines.
              returned: success
              type: int
              sample: 1
            first_at:
              description: When it was logged first, in seconds since 1970 by the tray's clock.
              returned: success
              type: float
              sample: 1795237200.0
            last_at:
              description: When it was logged last, in seconds since 1970 by the tray's clock.
              returned: success
              type: float
              sample: 1795237200.0
        xids_complete:
          description: Whether the kernel log was read to its end in time, V(null) if it could not be read.
          returned: success
          type: bool
          sample: true
        findings:
          description: The problems found. Empty when there are none.
          returned: success
          type: list
          elements: dict
          contains:
            code:
              description: The reason code.
              returned: success
              type: str
              sample: nvlink_links_degraded
            severity:
              description: One of V(error), V(warning) and V(info).
              returned: success
              type: str
              sample: warning
            message:
              description: One sentence with the remedy.
              returned: success
              type: str
              sample: The NVLinks of GPU 2 could not be read (gpu_is_lost, 15); run nvidia-smi nvlink -s on the tray.
            gpu:
              description: The index of the GPU, V(null) where it is about the tray.
              returned: success
              type: int
              sample: 0
    nvlink_serials:
      description: The serial numbers of the tray's parts but GPUs and chassis, from DMI and product data in sysfs.
      returned: with the subset V(serials)
      type: dict
      contains:
        baseboard:
          description: That of the baseboard.
          returned: success
          type: str
          sample: "1580924000321"
        cpus:
          description: Those of the CPUs.
          returned: success
          type: list
          elements: str
          sample: ["0x000000017820B1C8"]
        nics:
          description: The network interfaces of PCI devices, by name.
          returned: success
          type: list
          elements: dict
          contains:
            interface:
              description: The interface.
              returned: success
              type: str
              sample: ibp3s0
            serial:
              description: The serial number of its adapter.
              returned: success
              type: str
              sample: MT2445X00123
        findings:
          description: Values that cannot be used. Empty when there are none.
          returned: success
          type: list
          elements: dict
          contains:
            code:
              description: The reason code.
              returned: success
              type: str
              sample: unusable_value
            severity:
              description: One of V(error), V(warning) and V(info).
              returned: success
              type: str
              sample: warning
            message:
              description: One sentence with the remedy.
              returned: success
              type: str
              sample: sysfs has an unusable serial of the tray.
            gpu:
              description: Always V(null).
              returned: success
              type: int
              sample: null
changes:
  description: Always empty, the module only reads.
  returned: success
  type: list
  elements: str
  sample: []
findings:
  description: The findings of all subsets that were read. Empty when no problem was found.
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
      description: One sentence with the remedy.
      returned: success
      type: str
      sample: GPU 2 is lost, it has fallen off the bus; drain the tray and reboot it.
    part:
      description: The subset that it is about.
      returned: success
      type: str
      sample: gpu
    gpu:
      description: The index of the GPU, V(null) where it is about the tray; only with the subsets V(gpu) and V(links).
      returned: success
      type: int
      sample: 2
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import facts as fabric_facts


def main() -> None:
    defaults = subsets.Options()
    module = AnsibleModule(
        argument_spec={
            "gather_subset": {
                "type": "list",
                "elements": "str",
                "choices": list(subsets.CHOICES),
                "default": list(defaults.gather_subset),
            },
            "backend": {"type": "str", "choices": list(fabric_facts.BACKENDS), "default": defaults.backend},
            "nvidia_smi": {"type": "path", "default": defaults.nvidia_smi},
            "ip": {"type": "path"},
            "timeout": {"type": "float", "default": defaults.timeout},
            "imex_config_file": {"type": "path", "default": defaults.imex_config_file},
            "imex_record_file": {"type": "path", "default": defaults.imex_record_file},
            "imex_ctl": {"type": "path", "default": defaults.imex_ctl},
            "imex_timeout": {"type": "float", "default": defaults.imex_timeout},
            "prolog_files": {"type": "list", "elements": "str", "default": list(defaults.prolog_files)},
            "proc_devices": {"type": "path", "default": defaults.proc_devices},
            "slurmd": {"type": "path", "default": defaults.slurmd},
        },
        supports_check_mode=True,
    )
    try:
        result = subsets.gather(subsets.Options(**module.params))
    except NvlinkError as error:
        module.fail_json(msg=f"fabric_facts: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
