# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook site finds in an inventory before it touches a host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import site
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.site import Inventory

from .fabrics import fabric

TWO = fabric(racks=1, trays=2, split=())
WELL = Inventory({"r01t01": "10.0.0.1", "r01t02": "10.0.0.2"}, ["ctl"], {})


@pytest.mark.parametrize(
    ("controllers", "variables", "expected"),
    [
        (["ctl"], {}, "discover slurm imex verify report"),
        ([], {}, "discover verify report"),
        ([], {"imex_owner": "domain"}, "discover imex verify report"),
        ([], {"dra_driver_shape": "compute_domains"}, "discover kubernetes verify report"),
        (["ctl"], {"k8s_topology_schedulers": ["kai"]}, "discover slurm imex kubernetes verify report"),
    ],
)
def test_a_site_has_the_phases_that_its_inventory_speaks_of(
    controllers: list[str], variables: dict[str, Any], expected: str
) -> None:
    assert site.phases(Inventory(WELL.trays, controllers, variables)) == expected.split()


def test_a_sound_inventory_has_no_problem() -> None:
    assert site.problems(WELL, site.phases(WELL), TWO) == []
    assert site.warnings(WELL, site.phases(WELL), TWO) == []


def test_everything_is_told_at_once() -> None:
    broken = Inventory({"r01t01": "10.0.0.1", "r01t02": "10.0.0.1"}, [], {"imex_owner": "domian", "site_slurm": "new"})
    assert site.problems(broken, ["slurm", "kubernetes", "varify"], TWO) == [
        "site_phases: 'varify' is no phase; did you mean verify?",
        "slurm_controller: is empty; put the host of slurmctld into this group, or leave slurm out of site_phases",
        "dra_driver_kubeconfig: there is no such file on the controller; name the cluster's kubeconfig",
        "ansible_host: r01t01, r01t02 have the same address 10.0.0.1; give each tray its own",
        "imex_owner: 'domian' is no owner; did you mean domain?",
        "site_slurm: 'new' must be existing or managed",
    ]


def test_imex_is_given_to_one_owner_in_a_run() -> None:
    """By its own phase and by that of the DRA driver in turn, it would change hands twice a run."""
    driver = replace(WELL, variables={"dra_driver_shape": "compute_domains"}, kubeconfig=True)
    assert "leave imex out" in site.problems(driver, ["imex", "kubernetes"], TWO)[0]
    assert site.problems(driver, site.phases(driver), TWO) == []
    labels = replace(driver, variables={"k8s_topology_schedulers": ["kai"]})
    assert site.problems(labels, ["imex", "kubernetes"], TWO) == []


def test_a_controller_is_no_tray_and_a_site_has_trays() -> None:
    both = replace(WELL, trays={**WELL.trays, "ctl": "10.0.0.9"})
    assert "ctl would be asked as trays too" in site.problems(both, ["slurm"], None)[0]
    assert "matches no host" in site.problems(replace(WELL, trays={}), ["discover"], None)[0]


def test_a_tray_without_an_address_stops_imex_by_its_service_alone() -> None:
    TWO.trays["r01t02"]["imex_address"] = None
    try:
        assert "none of r01t02" in site.problems(WELL, ["imex"], TWO)[0]
        assert site.problems(replace(WELL, variables={"imex_owner": "none"}), ["imex"], TWO) == []
    finally:
        TWO.trays["r01t02"]["imex_address"] = "10.0.1.2"


def test_a_limit_says_what_it_leaves_out() -> None:
    wanted = site.phases(WELL)
    told = site.warnings(replace(WELL, limit=["r01t01"]), wanted, TWO)
    assert [line.split(",")[0] for line in told] == [
        "The limit leaves slurm_controller out",
        "The limit leaves localhost out",
    ]
    assert site.warnings(replace(WELL, limit=["r01t01", "ctl", "localhost"]), wanted, TWO) == []
    lost = replace(WELL, trays={"r01t01": "10.0.0.1"})
    assert "r01t02: in the fabric file and not in the inventory" in site.warnings(lost, wanted, TWO)[0]


@pytest.mark.parametrize(
    ("run", "skip", "expected"),
    [
        (["all"], [], "discover slurm kubernetes verify"),
        (["slurm", "verify"], [], "slurm verify"),
        (["all"], ["discover", "tiers"], "slurm kubernetes verify"),
        (["slurm", "verify"], ["verify"], "slurm"),
        (["tagged"], [], "discover slurm kubernetes verify"),
        # A part of a phase needs the phase; the rest of it Ansible leaves out.
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
    assert site.tagged(["discover", "slurm", "kubernetes", "verify"], run, skip) == expected.split()


def test_a_tag_that_leads_nowhere_is_told() -> None:
    def told(*tags: str) -> list[str]:
        return site.warnings(replace(WELL, tags=tags), site.tagged(["slurm", "verify"], tags, ()), TWO)

    assert told("all") == told("slurm", "tiers") == told("ours") == []
    assert told("slrum") == ["--tags: 'slrum' is no phase; did you mean slurm?"]
    assert told("imex") == ["--tags: this site has no phase imex, so nothing is done for it."]


def test_a_site_that_only_tells_schedulers_gets_no_driver() -> None:
    """The driver would take IMEX, which the phase imex has just given to the trays."""
    labels = replace(WELL, variables={"k8s_topology_schedulers": ["kai"]})
    assert not site.driver(labels)
    assert "k8s_topology_kubeconfig: there is no such file" in site.problems(labels, ["kubernetes"], TWO)[0]
    both = replace(labels, variables={**labels.variables, "dra_driver_shape": "compute_domains"})
    assert site.driver(both)
    # Where the site names the phase and nothing else, the role's own default is meant.
    assert site.driver(WELL)
