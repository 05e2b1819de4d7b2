# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of the documentation, run unchanged on racks of the lab."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from . import pages
from .conftest import SCENARIOS, RunningLab, lab_command, running_lab

sys.path.insert(0, str(pages.CHECKOUT / "tests" / "lab"))
from nvlab import imex

# The pages that this module follows: in a folder with hosts.yml alone, and in one with a fabric file.
FROM_NOTHING = ("README.md", "docs/quick-start.md")
READ_A_VERDICT = ("docs/report.md", "docs/monitoring.md")
LONG = ("docs/doctor.md", "docs/capture.md", "docs/imex-domain.md", *READ_A_VERDICT, "docs/mission-control.md")
WITH_A_FABRIC = ("docs/imex.md", *(pytest.param(page, marks=pytest.mark.long) for page in LONG))
DISCOVER = "ansible-playbook -i hosts.yml rackscale.nvlink.discover -e fabric_accept=gates"
VERIFY = (
    "ansible-playbook -i hosts.yml -i cluster.nvlink.yml rackscale.nvlink.verify"
    " -e verdict_file=$PWD/verdict.json -e verify_fail=false"
)
WITHOUT_BLOCKS = (
    "cd /etc/slurm && rm -f topology.yaml* nvlink_topology.conf*"
    " && sed -i /nvlink_topology/d slurm.conf && systemctl restart slurmctld"
)
SLURM = "ansible-playbook -i hosts.yml -i cluster.nvlink.yml rackscale.nvlink.slurm"


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Four trays with Slurm 26.05 and a repository that has nvidia-imex."""
    folder = tmp_path_factory.mktemp("lab")
    scenario = folder / "jobs.yml"
    scenario.write_text(yaml.safe_dump({**yaml.safe_load((SCENARIOS / "jobs.yml").read_text()), "suite": "forky"}))
    with running_lab(folder, scenario) as running:
        lab_command("packages", "--name", running.name, str(imex.packages()))
        yield running


@pytest.fixture(scope="module")
def configured(racks: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fabric file whose blocks slurmctld runs."""
    shell = pages.Shell(tmp_path_factory.mktemp("configured"))
    (shell.folder / "hosts.yml").write_text(racks.inventory.read_text())
    (shell.folder / "group_vars").mkdir()
    for name in ("cluster.nvlink.yml", "group_vars/all.yml"):
        (shell.folder / name).write_text(pages.files("docs/quick-start.md")[name])
    shell.type(DISCOVER)
    shell.type(SLURM)
    return shell.folder


@pytest.fixture
def shell(racks: RunningLab, tmp_path: Path) -> pages.Shell:
    """A shell in a folder with the inventory of the lab."""
    (tmp_path / "hosts.yml").write_text(racks.inventory.read_text())
    return pages.Shell(tmp_path)


@pytest.mark.lab
@pytest.mark.parametrize("page", FROM_NOTHING)
def test_the_commands_of_a_page_configure_blocks_in_slurm(racks: RunningLab, shell: pages.Shell, page: str) -> None:
    racks.exec("ctl", "sh", "-c", WITHOUT_BLOCKS)
    shell.type("git init -q")
    shell.follow(page)
    assert shell.astray == []
    assert shell.type("ansible-inventory -i cluster.nvlink.yml --graph").stdout.count("@nvlink_clique_") == 2
    assert "r01a" in racks.exec("ctl", "scontrol", "show", "topology").stdout
    # The lab's slurm.conf names scripts of the site, and no job starts where it has none.
    scripts = ("/etc/slurm/prolog.d/site", "/etc/slurm/epilog.d/site", "/usr/local/libexec/nvlink-imex-job")
    for script, number in itertools.product(scripts, range(1, 5)):
        racks.exec(f"r01t{number:02}", "install", "-D", "/usr/bin/true", script)
    for command in re.findall(r"^ctl\$ (.*)", (pages.CHECKOUT / page).read_text(), re.MULTILINE):
        shell.reported += f"ctl$ {command}\n" + racks.exec("ctl", *command.split()).stdout
        if command.startswith("srun"):
            assert set(shell.reported.split()[-2:]) in ({"r01t01", "r01t02"}, {"r01t03", "r01t04"}), "not in one block"
    assert shell.missing(page) == [], shell.reported
    if page == "README.md":
        shell.more.update(ANSIBLE_STDOUT_CALLBACK="default", ANSIBLE_VERBOSITY="1")
        shell.type(f"{SLURM} --check -e slurm_topology_rehearse=always")
        assert shell.missing("docs/rehearsal.md") == [], shell.reported


@pytest.mark.lab
@pytest.mark.parametrize("page", WITH_A_FABRIC)
def test_the_commands_of_a_page_run_with_a_fabric_file(configured: Path, tmp_path: Path, page: str) -> None:
    shell = pages.Shell(tmp_path)
    shutil.copytree(configured, shell.folder, dirs_exist_ok=True)
    if page in READ_A_VERDICT:
        shell.type(VERIFY)
    shell.follow(page)


def test_the_log_of_a_pod_is_what_its_command_prints(tmp_path: Path) -> None:
    """In a folder that has the channel as a container has it; the lab starts no containers."""
    page = "docs/quick-start-kubernetes.md"
    _domain, job = yaml.safe_load_all(pages.files(page)["compute-domain.yaml"])
    (container,) = job["spec"]["template"]["spec"]["containers"]
    channel = tmp_path / "dev/nvidia-caps-imex-channels/channel0"
    channel.parent.mkdir(parents=True)
    channel.touch()
    command = [part.replace("/dev/", f"{tmp_path}/dev/") for part in container["command"]]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"\n$ kubectl logs job/{job['metadata']['name']}\n{log}```\n" in (pages.CHECKOUT / page).read_text()


@pytest.mark.parametrize("page", pages.pages())
def test_every_documented_command_is_tested(page: str) -> None:
    """A new command in a page fails here until some test follows that page."""
    commands = [command for command in pages.commands(page) if command not in pages.RUN_BY]
    tests = (pages.CHECKOUT / "tests" / "integration").glob("test_*.py")
    assert not commands or any(f'"{page}"' in test.read_text() for test in tests), f"no test follows {page}: {commands}"
