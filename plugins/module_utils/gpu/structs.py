# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML's fabric structs as bytes, for support bundles: as the driver fills them, whatever nvml.py makes of them."""

from __future__ import annotations

import ctypes
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.nvml import (
    FabricInfoV2,
    FabricInfoV3,
    FabricInfoV4,
    device,
    opened,
    query,
    version_word,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import Raw

# Version of the struct -> (function, struct), the newest first. Only the latter two have a version word.
VERSIONS = {
    4: ("nvmlDeviceGetGpuFabricInfo_v4", FabricInfoV4),
    3: ("nvmlDeviceGetGpuFabricInfoV", FabricInfoV3),
    2: ("nvmlDeviceGetGpuFabricInfoV", FabricInfoV2),
}


def query_raw(given: Any = None) -> Raw:
    """As nvml.query(), and under ``structs`` of each GPU the answer to each version of the fabric call.

    One answer is ``{"version", "code", "bytes"}``: NVML's return code, and the struct in hexadecimal, empty unless the
    code is SUCCESS. A GPU without a handle has none. Runs in the child; ``given`` is an opened library.
    """
    library, _count, error = opened(given)
    if library is None:
        return {"error": error}
    found = query(library)
    for gpu in found.get("gpus", ()):
        gpu["structs"] = _answers(library, gpu["index"])
    return found


def _answers(library: Any, index: int) -> list[Raw]:
    gpu, call = device(library, index)
    rows: list[Raw] = []
    if call is None:
        return rows
    for version, (name, struct) in VERSIONS.items():
        info = struct() if version == 4 else struct(version=version_word(struct, version))
        filled = bytes(info).hex() if call(name, ctypes.byref(info)) else ""
        rows.append({"version": version, "code": gpu["codes"][-1], "bytes": filled})
    return rows
