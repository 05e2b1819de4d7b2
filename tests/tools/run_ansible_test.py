# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run `ansible-test sanity` on the built artifact, or `ansible-test units` on a copy of the checkout.

ansible-test wants to stand in .../ansible_collections/rackscale/nvlink of a git work tree, and fetches a script that
installs pip from a host that a closed site cannot reach. The copy gives it the first, the package index the second.
The artifact has no tests, so no list of what the sanity tests are to ignore.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from artifact import build, unpack

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
    """Copy what git knows or would add."""
    target.mkdir(parents=True)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=CHECKOUT, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        source = CHECKOUT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def make_repository(target: Path) -> None:
    for command in (["git", "init", "--quiet"], ["git", "add", "--all"]):
        subprocess.run(command, cwd=target, check=True)


def place_bootstrap(ansible_test: list[str], where: dict[str, Any]) -> None:
    """Put our script where ansible-test, when its download fails, says that one may be placed by hand.

    Its message is the only public source of the pip that it pins. Where the download succeeds, nothing is missing.
    """
    prime = [*ansible_test, "--prime-venvs", "--test", "ansible-doc"]
    said = subprocess.run(prime, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **where).stdout
    path = re.search(r"bootstrap script can be manually downloaded and saved to: (\S+)", said)
    if path is None:
        return
    script = Path(path.group(1))
    version = script.stem.removeprefix("get_pip_").replace("_", ".")
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(SCRATCH), f"pip=={version}"]
    subprocess.run(fetch, check=True)
    script.write_text(BOOTSTRAP.format(wheel=str(next(SCRATCH.glob(f"pip-{version}-*.whl")))))


def main() -> int:
    command = sys.argv[1]
    root = SCRATCH / command
    collection = root / "ansible_collections" / "rackscale" / "nvlink"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    if command == "sanity":
        unpack(build(root), root)
    else:
        copy_checkout(collection)
    make_repository(collection)
    home = SCRATCH / "home"
    home.mkdir(exist_ok=True)
    environment = dict(os.environ, HOME=str(home))
    # ansible-test sets its own paths and refuses to run beside a foreign one.
    environment.pop("ANSIBLE_COLLECTIONS_PATH", None)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    program = str(Path(sys.executable).parent / "ansible-test")
    run = [program, command, "--local", "--python", version, "--color", "no"]
    where = {"cwd": collection, "env": environment, "check": False}
    # Only sanity tests have environments of their own.
    if command == "sanity":
        place_bootstrap(run, where)
    return subprocess.run([*run, *sys.argv[2:]], **where).returncode


if __name__ == "__main__":
    sys.exit(main())
