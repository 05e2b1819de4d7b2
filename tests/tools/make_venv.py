# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make a virtual environment from uv.lock in which this checkout is the installed collection rackscale.nvlink.

Runs on any Python 3.9 or later with nothing installed. The environment gets the newest Python of the machine that
ansible-core supports; the lock file picks the ansible-core release that fits that Python. Collections that ours depends
on come out of the pinned `ansible` wheel, which the package index has even where Galaxy cannot be reached.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rackscale.nvlink"
UV_VERSION = "0.13.8"
# Of the wheels on PyPI for Linux; uv checks the hashes of uv.lock for everything else.
UV_SHA256 = (
    "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984",  # manylinux_2_17_x86_64
    "0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d",  # manylinux_2_17_aarch64
    "5337c30bb893b4f9ce0ceb921ba2da0d13f649da644f40ad3bef84083bef0203",  # manylinux_2_28_aarch64
)
# Newest first; 3.14 stays out until the newest ansible-core of the lock file and ansible-test both run on it.
PYTHONS = ("3.13", "3.12")
ANSIBLE_WHEEL = "ansible==14.5.0"
ANSIBLE_SHA256 = ("245623ccc2d31d0f6f4bdb63168d550cad305fb032cc43d96e8f61ce8ab0ba84",)
# Those of galaxy.yml; a test runs the callbacks of ansible.posix.
COLLECTIONS = ("ansible.mariadb", "ansible.posix", "community.crypto", "kubernetes.core")


def run(command: list[str | Path], **kwargs: object) -> str:
    """Run a command and give its output; its own words end the run when it fails."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False, **kwargs)
    if done.returncode:
        sys.exit(f"make_venv: `{' '.join(str(part) for part in command)}` failed with exit status {done.returncode}.")
    return done.stdout.strip()


def pip(python: str | Path, command: str, folder: str, option: str, requirement: str, sha256: tuple[str, ...]) -> None:
    """Install or download one wheel into a folder; pip fails for a file with none of these hashes."""
    listing = Path(folder) / "requirements.txt"
    listing.write_text(" ".join([requirement, *(f"--hash=sha256:{value}" for value in sha256)]) + "\n")
    options = ["--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--require-hashes"]
    # Older releases of pip do not know these as options. The folder is our own, so pip may be run by root.
    quiet = {"PIP_ROOT_USER_ACTION": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run([python, "-m", "pip", command, "-q", *options, option, folder, "-r", listing], env={**os.environ, **quiet})
    listing.unlink()


def find_uv() -> Path:
    """The pinned uv: installed once into the cache by whichever pip the machine has."""
    home = CACHE / f"uv-{UV_VERSION}"
    uv = home / "bin" / "uv"
    if uv.exists():
        return uv
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        if os.geteuid() or not shutil.which("apt-get"):
            sys.exit(
                "make_venv: this Python has no pip: install it (Debian: apt-get install python3-pip) and try again."
            )
        run(["apt-get", "update", "-qq"])
        run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", "python3-pip"])
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        pip(sys.executable, "install", scratch, "--target", f"uv=={UV_VERSION}", UV_SHA256)
        if not home.exists():
            shutil.copytree(scratch, home)
    return uv


def find_python(uv: Path, wanted: str | None) -> str:
    """The newest fitting interpreter, also among those of pyenv, whose shims do not answer for every version."""
    versions = (wanted,) if wanted else PYTHONS
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in versions:
        candidates = [*sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True), f"/usr/bin/python{version}"]
        found = subprocess.run(
            [str(uv), "python", "find", "--system", "--no-project", "--no-python-downloads", version],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not found.returncode:
            candidates.insert(0, found.stdout.strip())
        for candidate in candidates:
            if Path(candidate).exists():
                probe = subprocess.run([str(candidate), "-c", "import venv"], capture_output=True, check=False)
                if not probe.returncode:
                    return str(candidate)
    sys.exit(f"make_venv: no Python {' or '.join(versions)} on this machine: install one of them and try again.")


def dependencies(python: Path) -> Path:
    """The needed collections, unpacked once into the cache from the pinned `ansible` wheel."""
    home = CACHE / "-".join(["collections", ANSIBLE_WHEEL.replace("==", "-"), *COLLECTIONS])
    if home.exists():
        return home
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        pip(python, "download", scratch, "--dest", ANSIBLE_WHEEL, ANSIBLE_SHA256)
        wheel = next(Path(scratch).glob("ansible-*.whl"))
        wanted = tuple(f"ansible_collections/{name.replace('.', '/')}/" for name in COLLECTIONS)
        unpacked = Path(scratch) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked, [name for name in archive.namelist() if name.startswith(wanted)])
        wheel.unlink()
        try:
            unpacked.rename(home)
        except OSError:  # another run was first
            if not home.exists():
                raise
    return home


def install_collections(python: Path) -> Path:
    """Put the dependencies and a link to this checkout where ansible looks beside its own package."""
    site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))
    root = site / "ansible_collections"
    shutil.copytree(dependencies(python) / "ansible_collections", root, dirs_exist_ok=True)
    (root / "rackscale").mkdir(parents=True, exist_ok=True)
    link = root / "rackscale" / "nvlink"
    if link.is_symlink():
        link.unlink()
    link.symlink_to(CHECKOUT)
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=CHECKOUT / ".venv", help="where to make it (default: ./.venv)")
    parser.add_argument("--python", choices=PYTHONS, help="this Python and no other")
    options = parser.parse_args()
    options.venv = options.venv.absolute()
    uv = find_uv()
    interpreter = find_python(uv, options.python)
    environment = dict(os.environ, UV_PROJECT_ENVIRONMENT=str(options.venv), UV_PYTHON_DOWNLOADS="never")
    # The machine's own certificates, for a site whose proxy signs what comes from outside.
    environment["UV_SYSTEM_CERTS"] = "1"
    environment.pop("VIRTUAL_ENV", None)
    print(f"{options.venv.name}: download and install the packages of uv.lock (minutes the first time)", flush=True)
    run([uv, "sync", "--quiet", "--frozen", "--python", interpreter], cwd=CHECKOUT, env=environment)
    python = options.venv / "bin" / "python"
    root = install_collections(python)
    core = run([python, "-c", "import ansible.release as r, platform; print(r.__version__, platform.python_version())"])
    print("{}: ansible-core {}, Python {}, collections in {}".format(options.venv.name, *core.split(), root))


if __name__ == "__main__":
    main()
