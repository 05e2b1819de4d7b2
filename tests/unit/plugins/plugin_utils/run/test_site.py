# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Phases of the playbook site and errors of its inventory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import inventory
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import site
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.site import Inventory

from ..fabrics import HostVars, fabric

TWO = fabric(racks=1, trays=2, split=())
WELL = Inventory({"r01t01": "10.0.0.1", "r01t02": "10.0.0.2"}, ["ctl"], {})
OWNED = replace(WELL, variables={"imex_owner": "domain"})


def found(given: Inventory, phases: list[str], of: Fabric | None) -> list[str]:
    return list(site.problems(given, phases, of))


@pytest.mark.parametrize(
    ("controllers", "variables", "expected"),
    [
        # Nobody asked for IMEX, which another program may manage.
        (["ctl"], {}, "discover slurm verify report"),
        (["ctl"], {"imex_owner": "job"}, "discover slurm imex verify report"),
        ([], {}, "discover verify report"),
        ([], {"imex_owner": "domain"}, "discover imex verify report"),
        ([], {"dra_driver_shape": "compute_domains"}, "discover kubernetes verify report"),
        (["ctl"], {"k8s_topology_schedulers": ["kai"]}, "discover slurm kubernetes verify report"),
        # The phases imex and kubernetes together would change the owner twice a run.
        ([], {"dra_driver_shape": "compute_domains", "imex_owner": "domain"}, "discover kubernetes verify report"),
        ([], {"k8s_topology_schedulers": ["kai"], "imex_owner": "none"}, "discover imex kubernetes verify report"),
    ],
)
def test_the_inventory_decides_the_default_phases(
    controllers: list[str], variables: dict[str, Any], expected: str
) -> None:
    assert site.default_phases(Inventory(WELL.trays, controllers, variables)) == expected.split()


def test_all_problems_are_reported_at_once() -> None:
    both = {"r01t01": "10.0.0.1", "r01t02": "10.0.0.1"}
    broken = Inventory(both, [], {"imex_owner": "domian"}, slurm="new", misplaced={"site_accept"})
    assert found(broken, ["kubernetes", "verify"], TWO) == [
        "k8s_topology_kubeconfig: no such file on the controller; set it to the kubeconfig of the cluster",
        "ansible_host: r01t01, r01t02 have the same address 10.0.0.1; give each tray its own",
        "imex_owner: 'domian' is not one of its values; did you mean domain?",
        "site_slurm: 'new' is not one of its values; use one of existing, managed",
        "site_accept: set for trays and not for localhost, where it is read; set it for the group all",
    ]


def test_a_controller_is_no_tray_and_trays_are_required() -> None:
    both = replace(WELL, trays={**WELL.trays, "ctl": "10.0.0.9"})
    assert "ctl of group slurm_controller would be a tray too" in found(both, ["slurm"], None)[0]
    none = replace(WELL, trays={}, groups=["all", "trays"])
    demand = "put the trays into the group trays, or set site_tray_hosts to their pattern"
    assert demand in found(none, ["discover"], None)[0]
    wrong = replace(none, pattern="tryas")
    assert found(wrong, ["verify"], None) == ["site_tray_hosts: 'tryas' matches no host; did you mean trays?"]
    assert "set it to the pattern" in found(replace(none, pattern="gpu0"), ["verify"], None)[0]


@pytest.mark.parametrize(("path", "misplaced"), [("/srv/fabric.json", set()), ("/srv/other.json", {"fabric_file"})])
def test_a_fabric_file_of_trays_that_the_inventory_reads_too_is_not_misplaced(path: str, misplaced: set[str]) -> None:
    hosts = HostVars(localhost={"nvlink_fabric_file": "/srv/fabric.json"}, r01t01={"fabric_file": path})
    options = {"trays": ["r01t01"], "controllers": [], "pattern": None}
    assert inventory.read(options, {"hostvars": hosts, "groups": {}}).misplaced == misplaced


@pytest.mark.parametrize(("name", "problem"), [("a", ""), ("c", site.NO_KUBECONFIG)])
def test_one_of_several_kubeconfig_files_is_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, problem: str
) -> None:
    (tmp_path / "a").touch()
    monkeypatch.setenv("KUBECONFIG", f"/nowhere/b:{tmp_path}/{name}")
    options = {"trays": [], "controllers": [], "pattern": None}
    found = inventory.read(options, {"hostvars": HostVars(localhost={}), "groups": {}})
    assert found.kubeconfig == problem


def test_a_tray_without_an_imex_address_is_a_problem_of_the_service_alone() -> None:
    TWO.trays["r01t02"]["imex_address"] = None
    try:
        assert "r01t02 lacks one" in found(OWNED, ["imex"], TWO)[0]
        assert found(replace(WELL, variables={"imex_owner": "none"}), ["imex"], TWO) == []
    finally:
        TWO.trays["r01t02"]["imex_address"] = "10.0.1.2"


def test_a_limit_without_the_controllers_of_a_managed_slurm_is_a_problem() -> None:
    managed = replace(OWNED, slurm="managed", limit=["r01t01", "localhost"])
    assert found(managed, ["imex"], TWO) == []
    problems = found(managed, ["slurm"], TWO)
    assert [line.partition(";")[0] for line in problems] == [
        "--limit: excludes ctl, without which Slurm is not installed"
    ]
    assert found(replace(managed, limit=["r01t01", "ctl", "localhost"]), ["slurm"], TWO) == []
    missing = replace(WELL, trays={"r01t01": "10.0.0.1"})
    [warned] = site.warnings(missing, site.default_phases(WELL), TWO)
    assert "r01t02: in the fabric file and not in the inventory" in warned


@pytest.mark.parametrize(
    ("run", "skip", "expected"),
    [
        (["all"], [], "discover slurm kubernetes verify"),
        (["slurm", "verify"], [], "slurm verify"),
        (["all"], ["discover", "tiers"], "slurm kubernetes verify"),
        (["slurm", "verify"], ["verify"], "slurm"),
        (["tagged"], [], "discover slurm kubernetes verify"),
        # A part of a phase selects the phase; Ansible leaves out the rest of it.
        (["tiers"], [], "slurm"),
        (["topology", "quick"], [], "kubernetes verify"),
        (["report"], [], ""),
        (["always"], [], ""),
        (["all"], ["all"], ""),
        # The tag of a playbook that imports this one.
        (["ours"], [], "discover slurm kubernetes verify"),
        (["ours", "slurm"], [], "slurm"),
    ],
)
def test_tags_choose_among_the_phases(run: list[str], skip: list[str], expected: str) -> None:
    assert site.select_by_tags(["discover", "slurm", "kubernetes", "verify"], run, skip) == expected.split()


def test_an_unused_tag_is_a_warning() -> None:
    def warnings(*tags: str) -> list[str]:
        return site.warnings(replace(WELL, tags=tags), site.select_by_tags(["slurm", "verify"], tags, ()), TWO)

    assert warnings("all") == warnings("slurm", "tiers") == warnings("ours") == []
    assert warnings("imex") == [
        "--tags: phase imex does not apply to this inventory (imex_owner is not set) and is skipped."
    ]
    assert warnings("kubernetes") == ["--tags: phase kubernetes does not apply to this inventory and is skipped."]


@pytest.mark.parametrize(("slurm", "playbook"), [("managed", "slurm_bringup"), ("existing", "slurm")])
def test_a_phase_has_the_variables_of_its_playbook(slurm: str, playbook: str) -> None:
    assert site.playbooks(replace(WELL, slurm=slurm), ["slurm", "imex"]) == [playbook, "rollout"]
