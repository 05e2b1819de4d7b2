# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the tests with the mark `core` on every supported release of ansible-core.

Some 35 tests show what differs between releases: playbooks from end to end, templating, the inventory, action plugins
and the callback. All other tests run on one release, that of the environment, which is left out here.
2.19 runs on the machine's Python 3.11, with the oldest ClusterShell of requirements.txt, for which three of them query
trays over ssh. The releases that need a newer Python run inside the lab's trixie tree (Python 3.13), with libraries
that were resolved for it outside. Each run gets its own overlay of the tree.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from make_venv import CACHE, CHECKOUT, dependencies, find_uv, run

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import image

MACHINE_CORE, MACHINE_PYTHON = "2.19", "3.11"
TREE_PYTHON = "3.13"
TREE_CORES = ("2.20.10", "2.21.5", "2.22.0rc1")
# Only the files with the mark, since collecting all tests takes about as long as running these.
FILES = sorted(
    str(path.relative_to(CHECKOUT))
    for path in (CHECKOUT / "tests").rglob("test_*.py")
    if "pytest.mark.core" in path.read_text()
)
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "core", *FILES)

# Runs as root in a mount namespace of its own, so that every mount goes when it ends.
ENTER_TREE = r"""
set -euo pipefail
base=$1 scratch=$2 checkout=$3 libraries=$4; shift 4
mount --make-rprivate /
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch"/upper "$scratch"/work "$scratch"/root
mount -t overlay overlay -o "lowerdir=$base,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
cd "$scratch/root"
mkdir -p opt/checkout opt/libraries
mount --bind "$checkout" opt/checkout
mount -o remount,bind,ro opt/checkout
mount --bind "$libraries" opt/libraries
mount -t proc proc proc
mount --rbind /dev dev
mkdir -p opt/collections
cp -r opt/libraries/ansible_collections opt/collections/
mkdir -p opt/collections/ansible_collections/rackscale
ln -s /opt/checkout opt/collections/ansible_collections/rackscale/nvlink
exec chroot . /usr/bin/env -i -C /opt/checkout "$@"
"""


def libraries_for(core: str) -> Path:
    """The locked libraries with this ansible-core, resolved for the tree's Python and cached by their list."""
    uv = find_uv()
    export = ["export", "--frozen", "--no-hashes", "--no-header", "--no-annotate", "--no-dev", "--group", "test"]
    locked = run([uv, *export], cwd=CHECKOUT)
    wanted = [line for line in locked.splitlines() if not line.startswith("ansible-core==")] + [f"ansible-core=={core}"]
    collections = dependencies(Path(sys.executable))
    key = hashlib.sha256("\n".join([TREE_PYTHON, collections.name, *wanted]).encode()).hexdigest()[:16]
    home = CACHE / f"libraries-{core}-{key}"
    if home.exists():
        return home
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        listing = Path(scratch) / "requirements.txt"
        listing.write_text("\n".join(wanted) + "\n")
        target = Path(scratch) / "libraries"
        run([uv, "pip", "install", "-q", "--target", target, "--python-version", TREE_PYTHON, "--only-binary", ":all:",
             "--prerelease", "allow", "-r", listing])  # fmt: skip
        shutil.copytree(collections / "ansible_collections", target / "ansible_collections")
        target.rename(home)
    return home


def in_tree(core: str) -> int:
    base = image.ensure_base("trixie")
    libraries = libraries_for(core)
    environment = [
        "HOME=/root",
        "LANG=C.UTF-8",
        "PATH=/opt/libraries/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH=/opt/collections:/opt/libraries",
        "ANSIBLE_COLLECTIONS_PATH=/opt/collections",
        "ANSIBLE_DEPRECATION_WARNINGS=true",
    ]
    with tempfile.TemporaryDirectory(prefix="rackscale-nvlink-") as scratch:
        arguments = [str(base), scratch, str(CHECKOUT), str(libraries), *environment, "python3", *PYTEST]
        command = ["unshare", "--mount", "--fork", "--kill-child", "bash", "-c", ENTER_TREE, "cores", *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def oldest_clustershell(python: str) -> Path:
    """A folder with the oldest ClusterShell that requirements.txt lets in, fit for a Python; cached by its version."""
    line = next(
        row for row in (CHECKOUT / "requirements.txt").read_text().splitlines() if row.startswith("ClusterShell")
    )
    version = line.partition(">=")[2]
    home = CACHE / f"clustershell-{version}-{python}"
    if not home.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            target = Path(scratch) / "libraries"
            run([find_uv(), "pip", "install", "-q", "--target", target, "--python-version", python, "--no-deps",
                 f"ClusterShell=={version}"], env={**os.environ, "UV_SYSTEM_CERTS": "1"})  # fmt: skip
            target.rename(home)
    return home


def on_machine() -> int:
    venv = CHECKOUT / "build" / f"venv-{MACHINE_PYTHON}"
    make = [
        sys.executable,
        str(CHECKOUT / "tests/tools/make_venv.py"),
        "--venv",
        str(venv),
        "--python",
        MACHINE_PYTHON,
        "--tests-only",
    ]
    subprocess.run(make, check=True)
    site = venv / "lib" / f"python{MACHINE_PYTHON}" / "site-packages"
    environment = dict(
        os.environ,
        PATH=f"{venv}/bin{os.pathsep}{os.environ['PATH']}",
        ANSIBLE_COLLECTIONS_PATH=str(site),
        PYTHONPATH=str(oldest_clustershell(MACHINE_PYTHON)),
    )
    command = [str(venv / "bin" / "python"), *PYTEST]
    return subprocess.run(command, cwd=CHECKOUT, env=environment, check=False).returncode


def main() -> int:
    failed = []
    here = importlib.metadata.version("ansible-core")
    releases = [core for core in (MACHINE_CORE, *TREE_CORES) if not here.startswith(core)]
    for core in releases:
        print(f"== ansible-core {core}", flush=True)
        if on_machine() if core == MACHINE_CORE else in_tree(core):
            failed.append(core)
    print(f"{len(releases) - len(failed)} releases passed, failed: {', '.join(failed) or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
