# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the artifact from this (used) checkout, install it alone into an empty path and run the demo from there.

Only meta, plugins, roles and playbooks stay in the installed collection, because it must work without the rest. No
other collection is there, and every playbook loads. Before, antsibull-docs checks what documents the artifact.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import partial
from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

CHECKOUT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LINT_DOCS = "lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs=self"
RUNTIME_FOLDERS = {"meta", "plugins", "roles", "playbooks"}
# `ansible-galaxy collection verify` reads these, too.
MANIFEST_FILES = {"MANIFEST.json", "FILES.json"}
MAX_BYTES = 2 * 1024 * 1024
# Relative to the root of the artifact.
NEVER_SHIPPED = (
    ".venv",
    "build",
    "tests",
    "molecule",
    ".git",
    ".ansible",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
)
# Galaxy lists what meta/extensions.yml names.
EXTENSIONS = ("meta/extensions.yml", "extensions/eda/rulebooks/repair.yml")
DEMO_FILES = (
    "fabric.json",
    "slurm/topology.yaml",
    "slurm/topology.conf",
    "imex/r01/nodes_config.cfg",
    "imex/r02a/nodes_config.cfg",
    "imex/r02b/nodes_config.cfg",
    "report/index.html",
)


def run(tool: str, *arguments: str | Path, environment: dict[str, str] | None = None, cwd: Path = CHECKOUT) -> str:
    command = [str(BIN / tool), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        sys.exit(f"artifact: {tool} {arguments[0]} failed with exit status {done.returncode}.")
    return done.stdout


def build(folder: Path) -> Path:
    """The artifact, built from the checkout into a folder."""
    run("ansible-galaxy", "collection", "build", "--force", "--output-path", folder)
    return next(folder.glob("rackscale-nvlink-*.tar.gz"))


def unpack(artifact: Path, root: Path) -> Path:
    """The collection of an artifact, unpacked where Ansible finds it below root."""
    collection = root / "ansible_collections" / "rackscale" / "nvlink"
    collection.mkdir(parents=True)
    with tarfile.open(artifact) as archive:
        archive.extractall(collection, filter="data")
    return collection


def check_contents(artifact: Path) -> None:
    with tarfile.open(artifact) as archive:
        names = archive.getnames()
    unwanted = [name for name in names if name.split("/")[0] in NEVER_SHIPPED or "__pycache__" in name]
    if unwanted:
        sys.exit(f"artifact: contains {summarize(unwanted)}; add them to build_ignore in galaxy.yml.")
    if missing := [name for name in EXTENSIONS if name not in names]:
        sys.exit(f"artifact: does not contain {summarize(missing)}; remove them from build_ignore in galaxy.yml.")
    size = artifact.stat().st_size
    if size > MAX_BYTES:
        sys.exit(f"artifact: has {size} bytes, more than {MAX_BYTES}; add unused files to build_ignore in galaxy.yml.")
    print(f"artifact: {len(names)} files, {size} bytes")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rackscale-nvlink-") as scratch_name:
        scratch = Path(scratch_name)
        artifact = build(scratch)
        check_contents(artifact)

        installed = scratch / "installed"
        environment = dict(
            os.environ,
            HOME=str(scratch / "home"),
            ANSIBLE_HOME=str(scratch / "home"),
            ANSIBLE_COLLECTIONS_PATH=str(installed),
            # Else Ansible finds those of this environment.
            ANSIBLE_COLLECTIONS_SCAN_SYS_PATH="false",
        )
        (scratch / "home").mkdir()
        alone = partial(run, environment=environment, cwd=scratch)
        alone("ansible-galaxy", "collection", "install", "--force", artifact, "-p", installed)
        alone("ansible-galaxy", "collection", "verify", "--offline", "rackscale.nvlink")
        collection = installed / "ansible_collections" / "rackscale" / "nvlink"
        alone("antsibull-docs", *LINT_DOCS.split(), collection)
        for entry in collection.iterdir():
            if entry.is_dir() and entry.name not in RUNTIME_FOLDERS:
                shutil.rmtree(entry)
            elif entry.is_file() and entry.name not in MANIFEST_FILES:
                entry.unlink()

        documented = json.loads(alone("ansible-doc", "--json", "rackscale.nvlink.fabric_facts"))
        origin = Path(documented["rackscale.nvlink.fabric_facts"]["doc"]["filename"])
        if collection not in origin.parents:
            sys.exit(f"artifact: Ansible loaded the collection from {origin} instead of the installed artifact.")

        playbooks = sorted(path.stem for path in (collection / "playbooks").glob("*.yml"))
        loaded = [f"rackscale.nvlink.{name}" for name in playbooks]
        alone("ansible-playbook", "--syntax-check", "-i", "localhost,", *loaded)

        demo = scratch / "demo"
        inventory = collection / "playbooks" / "files" / "demo.nvlink.yml"
        alone("ansible-playbook", "-i", inventory, "rackscale.nvlink.demo", "-e", f"demo_dir={demo}")
        missing = [name for name in DEMO_FILES if not (demo / name).is_file()]
        if missing:
            sys.exit(f"artifact: the demo did not write {', '.join(missing)}.")


if __name__ == "__main__":
    main()
