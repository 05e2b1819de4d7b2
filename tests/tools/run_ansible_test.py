# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run `ansible-test sanity` or `ansible-test units` on a copy of the checkout.

ansible-test wants to stand in .../ansible_collections/rackscale/nvlink of a git work tree, and fetches a script that
installs pip from a host that a closed site cannot reach. The copy gives it the first, the package index the second.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SCRATCH = CHECKOUT / "build" / "ansible-test"

# ansible-test runs this in place of the script that it would download; arguments as of pip's get-pip.py.
BOOTSTRAP = """\
import sys
sys.path.insert(0, {wheel!r})
from pip._internal.cli.main import main
sys.exit(main(["install", *(word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel"))]))
"""


def copy_checkout(target: Path) -> None:
    """Copy what git knows or would add into a repository of its own."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=CHECKOUT, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        source = CHECKOUT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    for command in (["git", "init", "--quiet"], ["git", "add", "--all"]):
        subprocess.run(command, cwd=target, check=True)


def place_bootstrap(home: Path) -> None:
    """Put the bootstrap script where ansible-test looks for a cached download of it."""
    from ansible_test._internal.host_configs import VirtualPythonConfig
    from ansible_test._internal.python_requirements import get_venv_packages  # the pip that this release pins

    version = get_venv_packages(VirtualPythonConfig(version=f"{sys.version_info[0]}.{sys.version_info[1]}"))["pip"]
    wheels = home / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(wheels), f"pip=={version}"]
    subprocess.run(fetch, check=True)
    cache = home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    script = BOOTSTRAP.format(wheel=str(next(wheels.glob(f"pip-{version}-*.whl"))))
    (cache / f"get_pip_{version.replace('.', '_')}.py").write_text(script)


def main() -> int:
    command = sys.argv[1]
    root = SCRATCH / command
    collection = root / "ansible_collections" / "rackscale" / "nvlink"
    copy_checkout(collection)
    home = SCRATCH / "home"
    place_bootstrap(home)
    environment = dict(os.environ, HOME=str(home))
    # ansible-test sets its own paths and refuses to run beside a foreign one.
    environment.pop("ANSIBLE_COLLECTIONS_PATH", None)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    options = ["--local", "--python", version, "--color", "no", *sys.argv[2:]]
    return subprocess.run(
        [str(Path(sys.executable).parent / "ansible-test"), command, *options],
        cwd=collection,
        env=environment,
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
