# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe: the archive of modules that the source ssh sends to a tray's Python, which prints the facts of that tray.

It is a zip of the sources of module_utils that gpu/probe.py imports, so a tray needs only Python 3.9 with its standard
library. The archive stays in the tray's memory; no file is written there.
"""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import probe
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.probe import BEGIN, END
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import json_document
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.fanout import MAX_OUTPUT

MODULES = (
    *("child", "errors", "host_findings", "interfaces", "text"),
    *("gpu.constants", "gpu.facts", "gpu.nvidia_smi", "gpu.nvml", "gpu.probe", "gpu.readings"),
)
"""What gpu/probe.py imports of module_utils, with itself; a unit test compares them."""
PACKAGE = "ansible_collections.rackscale.nvlink.plugins.module_utils"

# 8 is MFD_NOEXEC_SEAL. Kernels with this sysctl know the flag, and may require it.
_MEMFD_FLAGS = 'os.MFD_CLOEXEC|8*os.path.exists("/proc/sys/vm/memfd_noexec")'
# Reads the archive from standard input. No character that a shell would interpret within single quotes.
BOOTSTRAP = (
    f'import os,sys;n=os.memfd_create("nvlink-probe",{_MEMFD_FLAGS});os.write(n,sys.stdin.buffer.read());'
    f'sys.path.insert(0,"/proc/self/fd/%d"%n);from {PACKAGE}.gpu import probe;probe.main(sys.argv[1:])'
)


def arguments(backend: str, nvidia_smi: str, timeout: float, limit: int) -> list[str]:
    """The arguments of a tray's Python; the probe ends itself after `limit` seconds."""
    # -I and -S: the tray's environment, site-packages and home directory are ignored.
    return ["-I", "-S", "-c", BOOTSTRAP, backend, nvidia_smi, str(timeout), str(limit)]


@functools.cache
def archive() -> bytes:
    """The zip that a tray's Python imports the modules from."""
    directory = Path(probe.__file__).parents[1]
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        folder = PurePosixPath(PACKAGE.replace(".", "/"))
        for package in (folder / "gpu", folder, *folder.parents[:-1]):
            file.writestr(zipfile.ZipInfo(f"{package}/__init__.py"), b"")
        # Without modification times, so that equal sources give equal bytes.
        for name in MODULES:
            path = f"{name.replace('.', '/')}.py"
            file.writestr(zipfile.ZipInfo(f"{folder}/{path}"), (directory / path).read_bytes(), zipfile.ZIP_DEFLATED)
    return written.getvalue()


def facts_in(output: bytes) -> dict[str, Any] | None:
    """The facts in the output of a tray; None if there are none, or only part of them."""
    begin = output.rfind(BEGIN.encode())
    end = output.find(END.encode(), begin)
    if begin < 0 or end < 0:
        return None
    try:
        facts = json_document(output[begin + len(BEGIN) : end], MAX_OUTPUT)
    except (ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None
