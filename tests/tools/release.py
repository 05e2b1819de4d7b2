# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make what a release publishes, in build/release, and its notes in build/release.md.

The artifact, a list of the controller's libraries with their hashes and their bill of materials (CycloneDX), both from
uv.lock, and SHA256SUMS. TAG, where it is set, is the git tag that is released. With a folder as argument: artifact and
list alone, in that folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import tomllib
import yaml
from make_venv import find_uv

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import ages

CHECKOUT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def galaxy_version(checkout: Path) -> str:
    return str(yaml.safe_load((checkout / "galaxy.yml").read_text("utf-8"))["version"])


def check_version(checkout: Path, tag: str) -> str:
    """The version, which galaxy.yml, pyproject.toml, uv.lock, the changelog and the tag have in common."""
    version = galaxy_version(checkout)
    project = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    if project != version:
        sys.exit(f"release: pyproject.toml has version {project}, galaxy.yml {version}: make them equal.")
    packages = tomllib.loads((checkout / "uv.lock").read_text("utf-8"))["package"]
    if version not in [row["version"] for row in packages if row["name"] == "rackscale-nvlink"]:
        sys.exit(f"release: uv.lock has another version than {version} for the bill of materials: run `uv lock`.")
    if tag and tag != f"v{version}":
        sys.exit(f"release: the tag is {tag}, galaxy.yml has {version}: tag v{version}, or change galaxy.yml.")
    changelog = checkout / "changelogs" / "changelog.yaml"
    releases = yaml.safe_load(changelog.read_text("utf-8"))["releases"] if changelog.exists() else {}
    if version not in releases:
        sys.exit(
            f"release: the changelog has no {version}: run `antsibull-changelog release` and commit what it writes."
        )
    return version


def check_figures() -> None:
    """No table of the performance page is much older than its code."""
    if old := ages.old(list(ages.ages())):
        sys.exit(f"release: the tables {', '.join(old)} are old: measure again with `tests/bench/run.py --write`.")


def run(*command: str | Path) -> None:
    subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.DEVNULL)


def export(form: str, target: Path) -> None:
    """The libraries of uv.lock that a controller needs."""
    options = "export --frozen --no-dev --no-annotate --no-header --quiet"
    run(find_uv(), *options.split(), "--format", form, "-o", target)


def build(folder: Path) -> None:
    """The artifact, and the list for a controller without internet access (docs/offline.md)."""
    run(BIN / "ansible-galaxy", "collection", "build", "--force", "--output-path", folder)
    export("requirements.txt", folder / f"rackscale-nvlink-{galaxy_version(CHECKOUT)}-requirements.txt")


def main() -> None:
    if sys.argv[1:]:
        build(Path(sys.argv[1]))
        print(f"{sys.argv[1]}/rackscale-nvlink-{galaxy_version(CHECKOUT)}.tar.gz is the artifact.")
        return
    check_figures()
    version = check_version(CHECKOUT, os.environ.get("TAG", ""))
    folder = CHECKOUT / "build" / "release"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    build(folder)
    export("cyclonedx1.5", folder / f"rackscale-nvlink-{version}.cdx.json")
    notes = folder.with_suffix(".md")
    run(BIN / "antsibull-changelog", "generate", "--only-latest", "--output-format", "md", "--output", notes)
    files = sorted(folder.iterdir())
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums, end="")


if __name__ == "__main__":
    main()
