# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""discover with a hostile tray or a poisoned fact cache: nothing but that tray's own answer changes."""

from __future__ import annotations

import json
import resource
import subprocess
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.tests.lab.nvml import local_trays

from . import hostile
from .commands import ansible
from .test_discover import Site


def proxy(file: Path) -> dict[str, Any]:
    """Facts that run a command on the controller where `fabric_sources` of a tray is read there."""
    options = [f"-oProxyCommand=touch {file}"]
    return {"fabric_sources": [{"ssh": {"hosts": "r01t01", "ssh_options": options}}], "fabric_slurm_node": "stolen"}


def lie(site: Site, tray: str, answer: dict[str, Any]) -> None:
    """Let the Python of a tray add to the results of its modules; discover then finds its own programs there."""
    own = site.hosts[tray]["ansible_python_interpreter"]
    path = hostile.write_python(site.directory / f"{tray}-python", answer, real=own)
    site.hosts[tray]["ansible_python_interpreter"] = str(path)


def codes(site: Site, tray: str) -> list[str]:
    trays = json.loads(site.path.with_name("fabric.state.json").read_text())["trays"]
    return [row["code"] for row in trays[tray]["findings"]]


# An ssh that runs its last argument here.
SSH = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(params=["ansible", "ssh"])
def read(request: pytest.FixtureRequest, site: Site) -> Site:
    """A site whose trays are read in either way."""
    if request.param == "ssh":
        site.variables = {"tray_reading": "ssh", "fabric_facts_backend": "nvidia_smi", "fabric_facts_ip": "ip"}
        ssh = str(local_trays.program(site.directory / "ssh-here", SSH))
        for variables in site.hosts.values():
            variables.update(ansible_connection="ssh", ansible_ssh_executable=ssh)
    return site


@pytest.mark.parametrize(
    ("limit", "more"),
    [
        pytest.param(("--limit", "r01t01,localhost"), {}, marks=pytest.mark.long, id="alone"),
        pytest.param(("-e", "fabric_serial=1"), {}, marks=pytest.mark.long, id="in its batch"),
        pytest.param((), {}, id="first"),
        # Ansible's default in core 2.24.
        pytest.param((), {"ANSIBLE_INJECT_FACT_VARS": "false"}, marks=pytest.mark.long, id="facts are no variables"),
    ],
)
def test_a_tray_sets_neither_a_source_nor_a_name_nor_a_statistic(
    read: Site, tmp_path: Path, limit: tuple[str], more: dict[str, str]
) -> None:
    site = read
    stolen = tmp_path / "stolen"
    lie(site, "r01t01", {"ansible_facts": proxy(stolen), "ansible_stats": {"data": {"owned": True}}})
    output = site.discover(*limit, "-e", "fabric_accept=gates", ANSIBLE_SHOW_CUSTOM_STATS="true", **more)
    assert not stolen.exists()
    statistics = output.partition("CUSTOM STATS")[2]
    assert "fabric_discovered_counts" in statistics
    assert "owned" not in statistics
    fabric = site.fabric()
    assert sorted(fabric["trays"]) == (["r01t01"] if "--limit" in limit else sorted(site.facts))
    assert fabric["trays"]["r01t01"]["slurm_node"] == "r01t01"
    assert codes(site, "r01t01") == ["tray_answer_invalid"]
    assert [name for name in fabric["trays"] if codes(site, name)] == ["r01t01"]


def test_a_tray_without_an_answer_of_its_own_stops_no_other(read: Site, tmp_path: Path) -> None:
    site = read
    stolen = tmp_path / "stolen"
    answer = {"ansible_facts": {**proxy(stolen), "nvlink_fabric": "{{ 1 }}"}, "fabric_targets": [], "failed": "yes"}
    # Ansible shows some of what a module prints before an action has its result.
    said = "\x1b[2J\nlocalhost : ok=1 (forged)"
    shown = {"warnings": [said] * 2000, "deprecations": [{"msg": said}], "_ansible_x": said}
    lie(site, "r01t01", {**answer, **shown})
    output = site.discover("-e", "fabric_accept=gates")
    assert "\x1b" not in output
    assert "forged" not in output
    assert not stolen.exists()
    assert sorted(site.fabric()["trays"]) == ["r01t02", "r02t01", "r02t02"]
    assert site.states()["r01t01"] == "unplaced"


@pytest.mark.long
def test_facts_in_a_cache_set_nothing_and_refuse_their_tray_alone(site: Site, tmp_path: Path) -> None:
    stolen = tmp_path / "stolen"
    site.accept_first()
    before = site.path.read_bytes()
    cache = {
        "ANSIBLE_CACHE_PLUGIN": "jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "cache"),
    }
    facts = json.dumps({**proxy(stolen), "fabric_targets": ["r02t02"], "cacheable": True})
    ansible("ansible", "r01t01", "-i", site.directory / "hosts.yml", "-m", "set_fact", "-a", facts, **cache)
    assert "stolen" in "".join(file.read_text() for file in (tmp_path / "cache").iterdir())
    for arguments in ((), ("--limit", "r01t01,localhost")):
        # Where no other tray answers, nobody does.
        output = site.discover(*arguments, "-e", "fabric_accept=gates", check=not arguments, **cache)
        assert not stolen.exists()
        assert (
            "The facts of r01t01 set fabric_slurm_node, fabric_sources, fabric_targets, which only the site may"
            in output
        )
        assert site.path.read_bytes() == before
        assert site.states() == {**dict.fromkeys(site.facts, "present"), "r01t01": "stale"}
        assert codes(site, "r01t01") == ["tray_facts_foreign", "tray_unreachable"]


def discover_and_measure(site: Site) -> tuple[str, int]:
    """The output of a discovery; also the memory in kB of the largest process below this one."""
    output = site.discover("-e", "fabric_accept=gates")
    return output, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def test_discover_ends_for_a_tray_that_never_answers_and_one_that_never_stops(site: Site) -> None:
    # Only what is not local may run out of memory.
    ssh = local_trays.program(site.directory / "ssh-here", SSH)
    over_ssh = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh), "ansible_pipelining": True}
    for tray, write, seconds in (("r01t02", hostile.write_hang, 5), ("r02t01", hostile.write_flood, 100)):
        own = site.hosts[tray]["ansible_python_interpreter"]
        path = write(site.directory / f"{tray}-python", real=own)
        site.hosts[tray].update(over_ssh, ansible_python_interpreter=str(path), fabric_facts_timeout=seconds)
    # In a process of its own, whose children are those of this run alone.
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        output, memory = pool.submit(discover_and_measure, site).result()
    assert "r01t02 did not answer within 80 seconds" in output
    assert "r02t01 printed more than any answer has" in output
    placed = {name: state for name, state in site.states().items() if state != "unplaced"}
    assert placed == {"r01t01": "present", "r02t02": "present"}
    left = subprocess.run(["pgrep", "-f", str(site.directory / "r01t02-python")], capture_output=True, check=False)
    assert left.stdout == b""
    # In kB; without a limit the worker of r02t01 takes more than 1 GB.
    assert memory < 600_000
