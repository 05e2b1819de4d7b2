# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe: the archive of modules that the source ssh sends to a tray's Python, which prints the facts of that tray.

It is a zip of the files of module_utils that gpu/probe.py imports, each as source and as byte code of this Python, so a
tray needs only Python 3.9 with its standard library. The archive stays in the tray's memory; no file is written there.
"""

from __future__ import annotations

import ast
import functools
import io
import py_compile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import probe
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.probe import BEGIN, END
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.fanout import MAX_OUTPUT
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import json_document

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
    """The zip that a tray's Python imports the modules from. A tray with another version of Python uses the source."""
    directory = Path(probe.__file__).parents[1]
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file, tempfile.TemporaryDirectory() as scratch:
        compiled = Path(scratch, "compiled")

        def add(path: str, content: bytes) -> None:
            file.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)

        for package in _packages(f"{PACKAGE}.gpu"):
            add(f"{package}/__init__.py", b"")
        for name in modules():
            source = directory / f"{name.replace('.', '/')}.py"
            path = f"{PACKAGE}.{name}".replace(".", "/")
            # Unchecked, because the archive has no modification times to compare.
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(str(source), str(compiled), f"{path}.py", True, 2, mode)
            add(f"{path}.pyc", compiled.read_bytes())
            add(f"{path}.py", source.read_bytes())
    return written.getvalue()


@functools.cache
def modules() -> tuple[str, ...]:
    """The names within module_utils, as `gpu.nvml`, of the modules that the probe needs."""
    directory = Path(probe.__file__).parents[1]
    found: set[str] = set()
    waiting = {probe.__name__}
    while waiting:
        name = waiting.pop().removeprefix(f"{PACKAGE}.")
        path = directory / f"{name.replace('.', '/')}.py"
        if name not in found and path.is_file():
            found.add(name)
            waiting.update(_imported(ast.parse(path.read_bytes())))
    return tuple(sorted(found))


def _imported(tree: ast.Module) -> Iterator[str]:
    """The names of PACKAGE that a source imports: modules, and names in modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _packages(name: str) -> list[str]:
    """The paths of a package and of all packages above it."""
    parts = name.split(".")
    return ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]


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
