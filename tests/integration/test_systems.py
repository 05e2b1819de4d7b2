# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Systems that become controllers: Debian 13 from files only, and the Python of Ubuntu 24.04 and RHEL 9."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from . import pages
from .commands import ansible
from .conftest import CHECKOUT, LAB, LabFactory, RunningLab, lab_command

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
sys.path.insert(0, str(CHECKOUT / "tests" / "tools"))
from make_venv import dependencies, find_python, find_uv
from nvlab import imex, paths, trees

pytestmark = [pytest.mark.lab, pytest.mark.long]

FETCH, COLLECTIONS, INSTALL, MORE = pages.scripts("docs/offline.md")
SITE, _DRY_RUN, _AGAIN = pages.scripts("docs/day-two.md")[0].splitlines()
# The lab's names in hosts.yml, ssh's keys, and what an operator sees.
OWN_SITE = f"""
cd cluster && rm fabric.json && cp {trees.SHARED}/hosts.yml .
install -d -m 700 ~/.ssh && install -m 600 {trees.SHARED}/id_ed25519 {trees.SHARED}/known_hosts ~/.ssh
{SITE}
ansible-playbook rackscale.nvlink.verify
"""
# Of Ubuntu 24.04, and of RHEL 9's package python3.12; with it the oldest ansible-core.
PYTHON, CORE = "3.12", "ansible-core==2.20.*"
README_INSTALL = next(block for block in pages._blocks("README.md") if "pip install" in block)


def typed(command: list[str], **settings: str) -> str:
    """What a command printed, which must succeed."""
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def galaxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Galaxy with the collections of the environment: files that answer as its API does."""
    root = tmp_path_factory.mktemp("galaxy")

    def answer(path: str, content: dict[str, Any]) -> None:
        (root / path).mkdir(parents=True)
        (root / path / "index.html").write_text(json.dumps(content))

    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        answer("api", {"available_versions": {"v3": "v3/"}})
        for manifest in dependencies(Path(sys.executable)).glob("ansible_collections/*/*/MANIFEST.json"):
            row = {key: value for key, value in json.loads(manifest.read_text())["collection_info"].items() if value}
            name, version = row["name"], row["version"]
            source = shutil.copytree(manifest.parent, root / name)
            (source / "galaxy.yml").write_text(yaml.safe_dump(row))
            ansible("ansible-galaxy", "collection", "build", source, "--output-path", root)
            file = root / f"{row['namespace']}-{name}-{version}.tar.gz"
            place = f"api/v3/collections/{row['namespace']}/{name}"
            entry = {"version": version, "href": f"/{place}/versions/{version}/"}
            answer(place, {"created_at": "", "updated_at": "", "highest_version": entry})
            answer(f"{place}/versions", {"meta": {"count": 1}, "links": {"next": None}, "data": [entry]})
            sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
            artifact = {"download_url": f"{url}/{file.name}", "artifact": {"sha256": sha256}}
            named = {"namespace": {"name": row["namespace"]}, "collection": {"name": name}}
            answer(f"{place}/versions/{version}", {**entry, **named, **artifact, "metadata": {"dependencies": {}}})
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield url
        server.shutdown()
        thread.join()


def fetch(folder: Path, galaxy: str) -> None:
    """Steps 1 and 2: in the same system, in the machine's network, with the machine's settings of pip."""
    typed(["make", "-C", str(CHECKOUT), "build"])
    for file in CHECKOUT.glob("build/rackscale-nvlink-*"):
        shutil.copy(file, folder)
    settings = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    given = [f"--setenv={key}={value}" for key, value in {**settings, "ANSIBLE_GALAXY_SERVER": galaxy}.items()]
    given += ["--resolv-conf=copy-host", "--bind-ro=/etc/ssl/certs"]
    script = f"cd {trees.SHARED}\n{FETCH}{COLLECTIONS}"
    typed(trees.CONTROLLER.command(["bash", "-ec", script], folder, *given))


def write_site(racks: RunningLab, folder: Path) -> None:
    """The inventory of the lab without the machine's way into it, and the operator's keys."""
    inventory = yaml.safe_load(racks.inventory.read_text())
    inventory["all"]["vars"] = {"ansible_user": "root"}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    state = paths.state_of(racks.name)
    shutil.copy(state / "key", folder / "id_ed25519")
    shutil.copy(state / "known_hosts", folder)


def test_an_empty_debian_without_internet_becomes_a_controller(
    lab: LabFactory, galaxy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(tmp_path, galaxy)
    with lab("four-forky.yml") as racks:
        lab_command("packages", "--name", racks.name, str(imex.packages()))
        write_site(racks, tmp_path)
        # The lab's network has one link and no route out of it.
        assert {line.split()[0] for line in racks.net("cat", "/proc/net/route").stdout.splitlines()[1:]} == {"lab0"}
        begun = time.monotonic()
        script = f"cp -r {trees.SHARED}/[rwc]* . \n{INSTALL}{MORE}{OWN_SITE}"
        command = trees.CONTROLLER.command(["bash", "-ec", f"cd ~\n{script}"], tmp_path)
        printed = typed([sys.executable, str(LAB), "net", "--name", racks.name, "--", *command])
        minutes = (time.monotonic() - begun) / 60
        assert "4 trays in 2 cliques, 4 queried: all layers agree (0 errors" in printed
        assert "kubernetes.core:" in printed
        shown = racks.exec("ctl", "scontrol", "show", "topology").stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["BlockName=r01a", "BlockName=r01b"]
    with capsys.disabled():
        print(f"Debian 13: {minutes:.1f} minutes from an empty host to blocks and a green verify")


def test_the_python_of_ubuntu_and_rhel_leads_from_nothing_to_blocks(lab: LabFactory, tmp_path: Path) -> None:
    """As the README's Install and Configure Slurm have it, with the built artifact in an environment of its own."""
    home, python = tmp_path / "home", tmp_path / "python" / "python3"
    home.mkdir()
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {find_python(find_uv(), PYTHON)} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "oldest.txt").write_text(CORE)
    settings = {
        "HOME": str(home),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        "ANSIBLE_HOME": str(home / ".ansible"),
        "ANSIBLE_COLLECTIONS_PATH": str(home / ".ansible/collections"),
        "PIP_CONSTRAINT": str(tmp_path / "oldest.txt"),
    }
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    typed(["bash", "-ec", f"{README_INSTALL}"], PATH=path, **settings)
    with lab("four-forky.yml") as racks:
        folder = tmp_path / "site"
        folder.mkdir()
        (folder / "hosts.yml").write_text(racks.inventory.read_text())
        shell = pages.Shell(folder, home / "nvlink/bin", **settings)
        assert f"core {CORE[-6:-1]}" in shell.type("ansible-playbook --version").stdout
        assert f"python version = {PYTHON}." in shell.reported
        shell.follow("README.md")
        shown = racks.exec("ctl", "scontrol", "show", "topology").stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["BlockName=r01a", "BlockName=r01b"]
