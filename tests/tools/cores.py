# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the tests with the mark `core` on every supported release of ansible-core.

Some 35 tests show what differs between releases: playbooks from end to end, templating, the inventory, action plugins
and the callback. All other tests run on one release, that of the environment, which is left out here. Each release gets
an environment of the locked libraries; 2.20 that of Python 3.12, with the oldest ClusterShell of requirements.txt, for
which three of the tests query trays over ssh, and the others the machine's newest Python.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

from make_venv import CHECKOUT, find_python, find_uv, install_collections, run

OLDEST, OLDEST_PYTHON = "2.20.*", "3.12"
CORES = (OLDEST, "2.21.5", "2.22.0rc1")
# Only the files with the mark, since collecting all tests takes about as long as running these.
FILES = sorted(
    str(path.relative_to(CHECKOUT))
    for path in (CHECKOUT / "tests").rglob("test_*.py")
    if "pytest.mark.core" in path.read_text()
)


def environment(core: str) -> Path:
    """An environment of the locked libraries with this ansible-core."""
    uv, venv = find_uv(), CHECKOUT / "build" / f"venv-{core.removesuffix('.*')}"
    export = ["export", "--frozen", "--no-hashes", "--no-header", "--no-annotate", "--no-dev", "--group", "test"]
    own = {"ansible-core": f"ansible-core=={core}"}
    if core == OLDEST:
        listed = (CHECKOUT / "requirements.txt").read_text().splitlines()
        own["clustershell"] = next(row for row in listed if row.startswith("ClusterShell")).replace(">=", "==")
    locked = run([uv, *export], cwd=CHECKOUT).splitlines()
    wanted = [*(line for line in locked if line.partition("==")[0] not in own), *own.values()]
    interpreter = find_python(uv, OLDEST_PYTHON if core == OLDEST else None)
    run([uv, "venv", "--quiet", "--clear", "--python", interpreter, venv])
    listing = venv / "requirements.txt"
    listing.write_text("\n".join(wanted) + "\n")
    python = venv / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--python", python, "--prerelease", "allow", "-r", listing]
    run(install, env={**os.environ, "UV_SYSTEM_CERTS": "1"})
    install_collections(python)
    return venv


def main() -> int:
    failed = []
    here = importlib.metadata.version("ansible-core")
    cores = [core for core in CORES if not here.startswith(core.removesuffix(".*"))]
    for core in cores:
        print(f"== ansible-core {core}", flush=True)
        venv = environment(core)
        settings = {
            **os.environ,
            "PATH": f"{venv}/bin{os.pathsep}{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(next((venv / "lib").glob("python3*")) / "site-packages"),
        }
        tests = [venv / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "core", *FILES]
        if subprocess.run(tests, cwd=CHECKOUT, env=settings, check=False).returncode:
            failed.append(core)
    print(f"{len(cores) - len(failed)} releases passed, failed: {', '.join(failed) or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
