# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe: the archive of modules that is sent to a tray's Python, which prints the result of one of them there.

It is a zip of the sources that module_utils/probe.py and that module import, so a tray needs only Python 3.9 with its
standard library. The archive stays in the tray's memory; no file is written there.
"""

from __future__ import annotations

import functools
import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import probe
from ansible_collections.rackscale.nvlink.plugins.module_utils.probe import BEGIN, END
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import json_document
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.fanout import MAX_OUTPUT

PACKAGE = "ansible_collections.rackscale.nvlink.plugins.module_utils"

# What is below the package, and the names. The program of IMEX per job is made for each tray in a process of its own,
# where to parse each file would be most of its task.
_IMPORTS = re.compile(rf"^ *from {re.escape(PACKAGE)}((?:\.\w+)*) import (\([^)]*\)|.*)", re.MULTILINE)
# 8 is MFD_NOEXEC_SEAL. Kernels with this sysctl know the flag, and may require it.
_MEMFD_FLAGS = 'os.MFD_CLOEXEC|8*os.path.exists("/proc/sys/vm/memfd_noexec")'
# Of a program that stays on a host. slurmd may have no umask: others could write to what its program creates.
_MAIN = """\
import os
import sys

os.umask(0o022)
from {package}.{module} import main

sys.exit(main(sys.argv[1:], dict(os.environ)))
"""
# Reads the archive from standard input. No character that a shell would interpret within single quotes.
BOOTSTRAP = (
    f'import os,sys;n=os.memfd_create("nvlink-probe",{_MEMFD_FLAGS});os.write(n,sys.stdin.buffer.read());'
    f'sys.path.insert(0,"/proc/self/fd/%d"%n);from {PACKAGE} import probe;probe.main(sys.argv[1:])'
)


def arguments(module: str, options: Mapping[str, Any], limit: int) -> list[str]:
    """The arguments of a tray's Python, which calls answer() of a module with these options; it ends itself after
    `limit` seconds.
    """
    # -I and -S: the tray's environment, site-packages and home directory are ignored.
    return ["-I", "-S", "-c", BOOTSTRAP, module, json.dumps(options), str(limit)]


@functools.cache
def archive(module: str) -> bytes:
    """The zip that a tray's Python imports this module of module_utils and what it needs from."""
    return _packed(sources_of("probe", module), zipfile.ZIP_DEFLATED)


@functools.cache
def program(python: str, module: str) -> bytes:
    """A zip file that this Python runs: main() of a module of module_utils, with all that it imports.

    Equal for equal sources. One atomic write replaces it, and a program that has started has imported everything.
    """
    main = _MAIN.format(package=PACKAGE, module=module.replace("/", "."))
    # -I and -S: Python imports no file of a user or of the site.
    return _packed(sources_of(module), zipfile.ZIP_STORED, f"#!{python} -IS\n", {"__main__.py": main})


def _packed(
    sources: Mapping[str, bytes], compression: int, first: str = "", main: Mapping[str, str] = MappingProxyType({})
) -> bytes:
    """The zip of sources below PACKAGE, after a first line; equal for equal sources, without modification times."""
    folder = PurePosixPath(PACKAGE.replace(".", "/"))
    members: dict[str, bytes | str] = {**main, **{str(folder / path): source for path, source in sources.items()}}
    # Python before 3.13 finds no package in a zip file without this.
    members |= {f"{parent}/__init__.py": "" for path in [*members] for parent in PurePosixPath(path).parents[:-1]}
    written = io.BytesIO(first.encode())
    written.seek(0, io.SEEK_END)
    with zipfile.ZipFile(written, "a") as file:
        for path, source in sorted(members.items()):
            file.writestr(zipfile.ZipInfo(path), source, compression)
    return written.getvalue()


def sources_of(*modules: str) -> dict[str, bytes]:
    """Path below module_utils -> source, of these modules and of all that they import, in functions too."""
    root = Path(probe.__file__).parent
    found: dict[str, bytes] = {}
    waiting = [f"{module.replace('.', '/')}.py" for module in modules]
    while waiting:
        path = waiting.pop()
        if path not in found and (root / path).is_file():
            found[path] = (root / path).read_bytes()
            for below, names in _IMPORTS.findall(found[path].decode()):
                folder = below.replace(".", "/")
                # The module itself, or each name is one.
                waiting += [f"{folder[1:]}.py", *(f"{folder}/{name}.py"[1:] for name in re.findall(r"\w+", names))]
    return found


def answer_in(output: bytes) -> dict[str, Any] | None:
    """The result in the output of a tray; None if there is none, or only part of it."""
    begin = output.rfind(BEGIN.encode())
    end = output.find(END.encode(), begin)
    if begin < 0 or end < 0:
        return None
    try:
        answer = json_document(output[begin + len(BEGIN) : end], MAX_OUTPUT)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
