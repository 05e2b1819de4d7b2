# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of modules that ask a tray what it is: of its GPUs, and of its IMEX."""

from __future__ import annotations


class ModuleDocFragment:
    GPUS = r"""
options:
  backend:
    description:
      - Where the facts of the GPUs are read from. Both backends give the same facts for the same tray.
      - With V(auto) NVML is read, and C(nvidia-smi) where NVML cannot be used; a finding then says why.
    type: str
    choices:
      - auto
      - nvml
      - nvidia_smi
    default: auto
  nvidia_smi:
    description:
      - The program C(nvidia-smi); looked up in C(PATH) when it has no slash.
    type: path
    default: nvidia-smi
  ip:
    description:
      - A program that answers to C(-j address show) as iproute2's C(ip) does; looked up in C(PATH) when it has no
        slash.
      - Name one where the addresses that the C library tells are not the tray's own, as in a container or a simulation.
    type: path
  timeout:
    description:
      - Seconds that a backend of the GPUs may take, above 0 and up to 3600.
      - With O(backend=auto), C(nvidia-smi) gets as long again where NVML has failed, and a quarter of it where NVML has
        hung.
    type: float
    default: 20
"""
    IMEX = r"""
options:
  prolog_files:
    description: Patterns of Slurm's prolog files. One that speaks of C(nvidia-imex) makes the prolog an owner of IMEX.
    type: list
    elements: str
    default:
      - /etc/slurm/*prolog*
      - /etc/slurm/prolog.d/*
      - /etc/slurm/prolog_slurmd.d/*
      - /opt/slurm/etc/prolog.d/*
  proc_devices:
    description: The file in which the kernel names the major numbers of devices.
    type: path
    default: /proc/devices
"""
