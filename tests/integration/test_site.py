# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of a run of the playbook site; test_day_two.py tests what the phases do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .commands import ansible, unreachable

CHECKOUT = Path(__file__).resolve().parents[2]
INVENTORY = "plugin: rackscale.nvlink.fabric\nsources: [fabric_file]\nfabric_file: fabric.json\n"
SHARED = ["Check the run", "Verify and report"]
COMPARE, RENDER = "Compare all layers with the fabric file", "Render"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The inventory of a rack of two trays and a Slurm controller, all unreachable."""
    folder = tmp_path
    (folder / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=2, split=())))
    (folder / "cluster.nvlink.yml").write_text(INVENTORY)
    (folder / "hosts.yml").write_text("slurm_controller: {hosts: {ctl: {}}}\n")
    variables = folder / "group_vars"
    variables.mkdir()
    (variables / "all.json").write_text(json.dumps(unreachable(folder)))
    return folder


def site(
    folder: Path,
    *phases: str,
    arguments: Sequence[str] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
    **more: object,
) -> str:
    """The output of a run of these phases."""
    given = {"fabric_file": str(folder / "fabric.json"), **more}
    tags = ("--tags", ",".join(phases)) if phases else ()
    variables = {name: value for name, value in given.items() if value is not None}
    done = ansible(
        "ansible-playbook",
        *("-i", folder / "cluster.nvlink.yml", "-i", folder / "hosts.yml", "rackscale.nvlink.site"),
        *("-e", json.dumps(variables), *tags, *arguments),
        check=False,
        **settings,
    )
    return done.stdout + " ".join(done.stderr.split())


def plays(output: str) -> dict[str, list[str]]:
    """The plays of a run that had a task, in their order, each with its tasks but the one that ends a play.

    Without tasks that the first host skipped.
    """
    found = re.findall(r"^PLAY \[(.+?)\] \**\n(.*?)(?=^PLAY )", output, re.MULTILINE | re.DOTALL)
    task = re.compile(r"^TASK \[(?!End the play)(?:\S+ : )?(.+?)\] \**$(?!\nskipping: )", re.MULTILINE)
    tasks = [(name, task.findall(rest)) for name, rest in found]
    return {name: of_play for name, of_play in tasks if of_play}


def test_only_trays_are_asked_and_the_fabric_file_of_the_inventory_is_enough(folder: Path) -> None:
    """The groups trays and nvlink: a new tray is asked, and a login host is not; each phase knows the file."""
    (folder / "hosts.yml").write_text("trays: {hosts: {new: {}}}\nlogin: {hosts: {front: {}}}\n")
    output = site(folder, "discover", fabric_file=None)
    asked = set(re.findall(r"fatal: \[(\w+)\]: UNREACHABLE", output))
    assert asked == {"new", "r01t01", "r01t02"}, output
    assert "no tray answered: 3 trays (new,r01t[01-02])" in output
    # A discovery without answers ends the run.
    output = site(folder, "verify", "report", fabric_file=None)
    assert {COMPARE, RENDER} <= set(plays(output)[SHARED[1]])
    assert "is not set" not in output


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        pytest.param("existing", {"Configure block topology and tiers of Slurm"}, marks=pytest.mark.long),
        # The controller is unreachable, so the run ends there.
        ("managed", {"Prepare the Slurm controllers"}),
    ],
)
def test_a_group_variable_of_the_controller_selects_managed_slurm(folder: Path, mode: str, expected: set[str]) -> None:
    (folder / "group_vars" / "slurm_controller.json").write_text(json.dumps({"site_slurm": mode}))
    assert set(plays(site(folder, "slurm"))) - set(SHARED) == expected


@pytest.fixture
def alone(folder: Path) -> dict[str, str]:
    """The settings of a run to which no other collection is installed."""
    collections = folder / "collections"
    (collections / "ansible_collections" / "rackscale").mkdir(parents=True)
    (collections / "ansible_collections" / "rackscale" / "nvlink").symlink_to(CHECKOUT)
    return {"ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false"}


@pytest.mark.parametrize(
    ("variables", "needs"),
    [
        ({"site_slurm": "existing"}, None),
        ({"site_slurm": "managed", "slurm_accounting": False}, None),
        ({"site_slurm": "managed"}, "ansible.mariadb is not installed and site_slurm"),
    ],
)
def test_site_needs_another_collection_only_for_what_it_does(
    folder: Path, alone: dict[str, str], variables: dict[str, object], needs: str | None
) -> None:
    output = site(folder, "slurm", settings=alone, **variables)
    assert ("fatal: [ctl]: UNREACHABLE" in output) == (needs is None), output
    assert needs is None or needs in output


@pytest.mark.parametrize(
    ("role", "start", "needs"),
    [
        ("slurm", "controller", "slurm_accounting needs the collection ansible.mariadb: {}'ansible.mariadb:>=6.0.0'"),
        ("imex", "certificates", "imex_tls ca needs the collection community.crypto: {}'community.crypto:>=3.0.0'"),
        ("dra_driver", "imex", "dra_driver needs the collection kubernetes.core: {}'kubernetes.core:>=6.5.0'"),
        (
            "dra_driver",
            "main",
            "dra_driver needs the collection kubernetes.core: {}'kubernetes.core:>=6.5.0' --upgrade",
        ),
    ],
)
def test_a_role_names_the_command_that_installs_what_it_lacks(
    folder: Path, alone: dict[str, str], role: str, start: str, needs: str
) -> None:
    task = {"ansible.builtin.include_role": {"name": f"rackscale.nvlink.{role}", "tasks_from": start}}
    variables = {"slurm_controllers": ["localhost"], "slurm_cluster_name": "nvl", "fabric_file": "fabric.json"}
    play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": [task]}
    (folder / "own.json").write_text(json.dumps([play]))
    if "upgrade" in needs:
        old = folder / "collections" / "ansible_collections" / "kubernetes" / "core"
        old.mkdir(parents=True)
        (old / "galaxy.yml").write_text("version: 5.0.0\n")
    done = ansible("ansible-playbook", folder / "own.json", check=False, **alone)
    assert done.returncode == 2
    assert needs.format("ansible-galaxy collection install ") in done.stdout + done.stderr


@pytest.mark.core
def test_a_limit_on_trays_and_localhost_runs_every_phase_that_it_allows(folder: Path) -> None:
    output = site(folder, "slurm", "report", arguments=("--limit", "r01t01,localhost"))
    assert "--limit excludes slurm_controller, so Slurm is not configured; add it to the limit." in output
    assert list(plays(output)) == SHARED
    assert RENDER in plays(output)[SHARED[1]]


def test_facts_of_a_tray_decide_nothing(folder: Path, tmp_path: Path) -> None:
    """A poisoned cache: the first tray chooses other phases, and one that stops the run."""
    cache = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "cache")}
    inventory = ("-i", folder / "cluster.nvlink.yml", "-i", folder / "hosts.yml")
    facts = {"site_slurm": "managed", "dra_driver_shape": "all_dra", "fabric_sources": ["simulation"]}
    ansible("ansible", "r01t01", *inventory, "-m", "set_fact", "-a", json.dumps({**facts, "cacheable": True}), **cache)
    given = ("-e", f"fabric_file={folder / 'fabric.json'}")
    done = ansible("ansible-playbook", *inventory, "rackscale.nvlink.site", *given, check=False, **cache)
    assert "Observe the trays" in plays(done.stdout), done.stdout
    # No tray answers, so discover would end the run.
    skipped = ("--skip-tags", "discover")
    done = ansible("ansible-playbook", *inventory, "rackscale.nvlink.site", *given, *skipped, check=False, **cache)
    assert "Configure block topology and tiers of Slurm" in plays(done.stdout), done.stdout


def test_a_phase_that_the_tags_exclude_runs_no_task(folder: Path) -> None:
    chosen = plays(site(folder, "quick", "report"))
    # Ansible prints the name of a play without tasks too. No role validates its arguments either.
    assert list(chosen) == SHARED
    assert {COMPARE, RENDER} <= set(chosen[SHARED[1]])
