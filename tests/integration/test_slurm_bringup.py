# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a tray's answers and facts change in a run of slurm_bringup: its own line alone. In check mode, on this machine.

tests/integration/test_slurm_role.py has the whole playbook on bare hosts.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster, hardware
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_lines
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from . import hostile
from .commands import ansible

TRAYS = ("r01t01", "r01t02", "r01t03", "r01t04")
ODD, *OTHERS = TRAYS
HONEST: dict[str, Any] = {"hardware": fabrics.GRACE, "channel_count": 2048}


class Site:
    """A controller and four trays on this machine; a tray's answers to slurm_step are those given here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf_dir = folder / "slurm"
        self.conf_dir.mkdir()
        # Kept in each run, so it shows whose folder was read.
        (self.conf_dir / cluster.CONF).write_text(f"{node_lines.HEADER}Include mine.conf\n")
        self.hosts: dict[str, Any] = {"ctl": {"ansible_python_interpreter": sys.executable}}
        (folder / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=len(TRAYS), split=())))
        for tray in TRAYS:
            self.answer(tray, HONEST, "slurm_step")

    def answer(self, tray: str, answer: dict[str, Any], only: str | None = None) -> None:
        python = hostile.write_python(self.folder / f"python-{tray}", answer, only, real=sys.executable)
        self.hosts[tray] = {"ansible_python_interpreter": str(python)}

    def run(self, *arguments: str, plays: list[dict[str, Any]] | None = None, **environment: str) -> str:
        """The output of these plays (slurm_bringup) in check mode, after a play of the site that reads all facts."""
        inventory = {
            "all": {
                "hosts": self.hosts,
                "vars": {
                    "ansible_connection": "local",
                    "fabric_file": str(self.folder / "fabric.json"),
                    "slurm_conf_dir": str(self.conf_dir),
                    "slurm_tray_packages": ["base-files"],
                    # The other tasks of the controllers need systemd and what this package would create.
                    "slurm_controller_packages": ["no-such-package"],
                    "slurm_accounting": False,
                },
                "children": {
                    "slurm_controller": {"hosts": {"ctl": {}}},
                    "nvlink": {"hosts": {tray: {} for tray in TRAYS}},
                },
            }
        }
        (self.folder / "hosts.yml").write_text(json.dumps(inventory))
        facts = {"ansible.builtin.setup": {"gather_subset": ["!all", "!min"]}}
        gather = {"hosts": "nvlink", "gather_facts": False, "tasks": [facts]}
        plays = plays or [{"import_playbook": "rackscale.nvlink.slurm_bringup"}]
        (self.folder / "site.yml").write_text(json.dumps([gather, *plays]))
        done = ansible(
            "ansible-playbook",
            *("-i", self.folder / "hosts.yml", self.folder / "site.yml", "--check", "--diff", *arguments),
            check=False,
            **environment,
        )
        return done.stdout + done.stderr


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of a run in which all trays are honest."""
    files = written(Site(tmp_path_factory.mktemp("honest")).run())
    assert set(files) == set(cluster.NAMES)
    return files


def written(output: str) -> dict[str, str]:
    """The files of slurmctld that a run in check mode would write, by name."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in output.splitlines():
        header = re.fullmatch(r"\+\+\+ after: (\S+)", line)
        if header:
            name = header.group(1)
            assert name not in found, "one run writes a file once"
            found[name] = []
        elif name and line.startswith("+"):
            found[name].append(line[1:])
        elif line.startswith(("TASK", "PLAY")):
            name = ""
    return {name: "".join(f"{line}\n" for line in lines) for name, lines in found.items()}


def failed(output: str) -> dict[str, int]:
    """How many tasks failed on the controller and on each tray."""
    found = re.findall(r"^(\S+) +: .* failed=(\d+)", output, re.MULTILINE)
    return {host: int(count) for host, count in found if host != "localhost"}


# Of no use to anyone but the hosts' own attacker: the folder, the controllers, the settings and the names of its files.
INJECTED = {
    "slurm_conf_dir": "/tmp/elsewhere",  # never made, in check mode
    "slurm_controllers": [ODD],
    "slurm_settings": {"SlurmdUser": "hostile", "Prolog": "/tmp/hostile"},
    "slurm_tray_packages": ["hostile"],
    "slurm_start_drained": list(OTHERS),
    "slurm_fabric_file": "/tmp/hostile.json",
}


# The hostile tray is the first host of the play.
ROLE = {"hosts": "nvlink:slurm_controller", "gather_facts": False, "roles": ["rackscale.nvlink.slurm"]}


@pytest.mark.long
@pytest.mark.parametrize(("plays", "arguments"), [(None, ("-e", "slurm_serial=1")), ([ROLE], ())])
def test_facts_of_a_first_tray_have_no_effect_on_the_controller(
    site: Site, expected: dict[str, str], plays: list[dict[str, Any]] | None, arguments: tuple[str, ...]
) -> None:
    site.answer(ODD, {"ansible_facts": INJECTED, **HONEST}, "setup|slurm_step")
    output = site.run(*arguments, plays=plays, ANSIBLE_INJECT_FACT_VARS="true")
    assert written(output) == expected, output
    assert "Include mine.conf" in output
    assert "hostile" not in "".join(expected.values())
    assert failed(output) == {"ctl": 0, ODD: 1, **dict.fromkeys(OTHERS, 0)}, output
    assert re.search(rf"The facts of {ODD} set slurm_", output)
    assert hardware.parse_nodes(expected[cluster.NODES]) == dict.fromkeys(TRAYS, fabrics.GRACE)


@pytest.mark.long
def test_trays_are_left_as_they_are_where_the_controller_fails(site: Site) -> None:
    broken = hostile.write_python(site.folder / "broken", {"failed": True, "msg": "no space left"}, "modules.setup")
    site.hosts["ctl"] = {"ansible_python_interpreter": str(broken)}
    output = site.run()
    assert output.count("no space left") > 0
    assert "Read the distribution of the tray" not in output
    output = site.run(plays=[ROLE])
    assert failed(output) == {"ctl": 1, **dict.fromkeys(TRAYS, 1)}
    assert "This tray was left as it is, since its Slurm controller failed." in output
    assert written(output) == {}


@pytest.mark.long
def test_a_tray_that_never_answers_fails_alone(site: Site) -> None:
    hang = hostile.write_hang(site.folder / "hang", "slurm_step", real=sys.executable)
    site.hosts[ODD] = {"ansible_python_interpreter": str(hang), "slurm_timeout": 0.01}
    output = site.run()
    assert re.search(rf"{ODD} did not answer within 60.04 seconds", output), output
    assert failed(output) == {"ctl": 0, ODD: 1, **dict.fromkeys(OTHERS, 0)}
    assert set(written(output)) == set(cluster.NAMES)
