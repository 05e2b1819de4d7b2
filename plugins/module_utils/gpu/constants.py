# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers of NVML, the words of the facts for them, and the texts of nvidia-smi: one table for both backends.

Numbers after nvml.h (CUDA 13.5); texts after real captures and nvidia-smi(1). Each table maps a number to (word, text).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

ZERO_UUID = "00000000-0000-0000-0000-000000000000"

STATES: dict[int, tuple[str, str]] = {
    0: ("not_supported", "Not Supported"),
    1: ("not_started", "Not Started"),
    2: ("in_progress", "In Progress"),
    3: ("completed", "Completed"),
}

# nvmlReturn_t. The words are the constants' own, but for 999, which every tool calls "Unknown Error".
STATUSES: dict[int, tuple[str, str]] = {
    0: ("success", "Success"),
    1: ("uninitialized", "Uninitialized"),
    2: ("invalid_argument", "Invalid Argument"),
    3: ("not_supported", "Not Supported"),
    4: ("no_permission", "Insufficient Permissions"),
    5: ("already_initialized", "Already Initialized"),
    6: ("not_found", "Not Found"),
    7: ("insufficient_size", "Insufficient Size"),
    8: ("insufficient_power", "Insufficient External Power"),
    9: ("driver_not_loaded", "Driver Not Loaded"),
    10: ("timeout", "Timeout"),
    11: ("irq_issue", "Interrupt Request Issue"),
    12: ("library_not_found", "NVML Shared Library Not Found"),
    13: ("function_not_found", "Function Not Found"),
    14: ("corrupted_inforom", "Corrupted infoROM"),
    15: ("gpu_is_lost", "GPU is lost"),
    16: ("reset_required", "GPU requires reset"),
    17: ("operating_system", "GPU access blocked by the operating system"),
    18: ("lib_rm_version_mismatch", "Driver/library version mismatch"),
    19: ("in_use", "In use by another client"),
    20: ("memory", "Insufficient Memory"),
    21: ("no_data", "No data"),
    22: ("vgpu_ecc_not_supported", "vGPU ECC not supported"),
    23: ("insufficient_resources", "Insufficient Resources"),
    24: ("freq_not_supported", "Frequency not supported"),
    25: ("argument_version_mismatch", "Argument version mismatch"),
    26: ("deprecated", "Requested functionality has been deprecated"),
    27: ("not_ready", "Not Ready"),
    28: ("gpu_not_found", "GPU not found"),
    29: ("invalid_state", "Invalid state"),
    30: ("reset_type_not_supported", "Reset type not supported"),
    999: ("unknown_error", "Unknown Error"),
}

SUMMARIES: dict[int, tuple[str, str]] = {
    1: ("healthy", "Healthy"),
    2: ("unhealthy", "Unhealthy"),
    3: ("limited_capacity", "Limited Capacity"),
}

INCORRECT_CONFIGURATIONS: dict[int, tuple[str, str]] = {
    1: ("none", "None"),
    2: ("incorrect_sysguid", "Incorrect SystemGuid"),
    3: ("incorrect_chassis_sn", "Incorrect Chassis Serial Number"),
    4: ("no_partition", "No Partition"),
    5: ("insufficient_nvlinks", "Insufficient Nvlink Resources"),
    6: ("incompatible_gpu_fw", "Incompatible GPU Firmware"),
    7: ("invalid_location", "Invalid Location"),
    8: ("gpu_state_invalid", "GPU State Invalid"),
}

# nvidia-smi prints Reset and Reboot for the first two; the texts of the newer ones are inferred from the constants.
RECOVERY_ACTIONS: dict[int, tuple[str, str]] = {
    0: ("none", "None"),
    1: ("gpu_reset", "Reset"),
    2: ("node_reboot", "Reboot"),
    3: ("drain_p2p", "Drain P2P"),
    4: ("drain_and_reset", "Drain and Reset"),
    5: ("recover_imex_domain", "Recover IMEX Domain"),
    6: ("bus_reset", "Bus Reset"),
    7: ("system_reboot", "System Reboot"),
}

# Row -> (shift, width mask) in NVML's health mask. True is 1 and False is 2 for all rows but incorrect_configuration.
# pynvml's own width constants are wrong in releases 12.570 to 13.580.82, so none of them is used.
HEALTH_BITS: dict[str, tuple[int, int]] = {
    "degraded_bandwidth": (0, 0x3),
    "route_recovery": (2, 0x3),
    "route_unhealthy": (4, 0x3),
    "access_timeout_recovery": (6, 0x3),
    "incorrect_configuration": (8, 0xF),
    "partition_assigned": (12, 0x3),
    # GFM_STATE (global fabric manager) of CUDA 13.4 and newer: 1 is connected, 2 disconnected.
    "fabric_manager_connected": (14, 0x3),
}

# Kinds of operation of the cliques of nvmlGpuFabricInfo_v4_t; the clique of the facts is the first of unicast_pointer.
# Hopper reports the first two kinds, Blackwell and Rubin all (nvmlDeviceGetGpuFabricInfo_v4). The texts are those of
# nvidia-smi 615.23 on a Vera Rubin tray (NVIDIA/k8s-test-infra, testdata/hardware/qx-vrnvl72.xml).
UNICAST_POINTER = "unicast_pointer"
CLIQUE_TYPES: dict[int, tuple[str, str]] = {
    0: (UNICAST_POINTER, "Unicast Pointer"),
    1: ("multicast_pointer", "Multicast Pointer"),
    2: ("unicast_logical_endpoint", "Unicast LE"),
    3: ("multicast_logical_endpoint", "Multicast LE"),
}
MAX_CLIQUES = 64

_ALIASES = {
    # Other spellings of the same value, and texts of other releases.
    "incorrectsysguid": "incorrect_sysguid",
    "incorrectsystemguid": "incorrect_sysguid",
    "insufficientnvlinks": "insufficient_nvlinks",
    "gpurequiresrestart": "reset_required",
    "unknown": "unknown_error",
}


def _plain(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())


def word_of_text(table: Mapping[int, tuple[str, str]], text: str) -> str | None:
    """The word for a tool's text, whatever its case and punctuation; None for a text that the table does not know."""
    plain = _plain(text)
    known = {word for word, _text in table.values()}
    for word, official in table.values():
        if plain in (_plain(official), _plain(word)):
            return word
    alias = _ALIASES.get(plain)
    return alias if alias in known else None
