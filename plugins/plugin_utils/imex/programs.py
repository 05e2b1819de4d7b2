# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of this collection that stay on a tray: the check at boot, and that of IMEX per job.

That of IMEX per job is one zip file that Python runs, with the prolog and all modules that it imports under their own
names: one atomic write replaces it, and a program that has started has imported everything.
"""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path, PurePosixPath

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, reporting
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import main
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import probe

# -I and -S: Python imports no file of a user or of the site.
_MAIN = """\
import os
import sys

# slurmd may have none: then other users could write to what this program creates.
os.umask(0o022)
from {module} import main

sys.exit(main(sys.argv[1:], dict(os.environ)))
"""


def check_at_boot() -> str:
    """The text of the check at boot, by the system's Python: that of Ansible may be removed later."""
    return f"#!{reporting.PYTHON} -I\n{Path(boot.__file__).read_text(encoding='utf-8')}"


@functools.cache
def of_job(python: str) -> bytes:
    """The content of the program of IMEX per job, equal for equal sources."""
    folder = PurePosixPath(probe.PACKAGE.replace(".", "/"))
    sources = probe.sources_of("imex/prolog/main")
    members = {"__main__.py": _MAIN.format(module=main.__name__).encode()}
    members |= {str(folder / path): source for path, source in sources.items()}
    # Python before 3.13 finds no package in a zip file without this.
    members |= {f"{parent}/__init__.py": b"" for path in [*members] for parent in PurePosixPath(path).parents[:-1]}
    packed = io.BytesIO(f"#!{python} -IS\n".encode())
    packed.seek(0, io.SEEK_END)
    with zipfile.ZipFile(packed, "a") as archive:
        for path, source in sorted(members.items()):
            archive.writestr(zipfile.ZipInfo(path), source)
    return packed.getvalue()
