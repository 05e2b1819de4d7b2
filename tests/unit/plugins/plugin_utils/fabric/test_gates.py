# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gates and the settings of the site; test_identity.py has the scenarios in which each gate objects."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import plan_gates as slurm_gates
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import Site


def test_every_gate_is_in_the_catalogue_as_one() -> None:
    """Those of discovery and those of a running slurmctld's blocks."""
    assert {code for code, row in CATALOGUE.items() if row.sentence[:6] == "gate: "} == {*GATES, *slurm_gates.GATES}


@pytest.mark.parametrize(
    ("observed_at", "old"),
    [
        ("2026-11-21T04:50:00Z", False),
        ("2026-11-21T05:50:00+01:00", False),
        ("2026-11-21T04:49:59Z", True),
        ("2026-13-41T04:49:59Z", True),
    ],
)
def test_an_old_observation_is_an_objection(observed_at: str, old: bool) -> None:
    site = Site(Policy(max_age=600), racks=1, trays_per_rack=1)
    site.facts["r01t01"]["observed_at"] = observed_at
    placement = site.discover()
    assert [row["code"] for row in placement.objections] == ["source_too_old"] * old
    assert placement.gates == ({"r01t01": ["source_too_old"]} if old else {})
    # What changes nothing may be of any age.
    assert site.discover().objections == []


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"override": ("moved_percnt",)}, r"^override: 'moved_percnt' is not a gate; did you mean moved_percent\?$"),
        ({"max_age": 0}, r"^max_age: 0 must be seconds from 1 to "),
        ({"expected": {"hall-a": ()}}, r"^expected: 'hall-a' is not valid in a group name; "),
        ({"expected": {"a": ("t1",), "b": ("t1",)}}, r"^expected: t1 is listed in a and in b; list it once$"),
        ({"imex_networks": ("10.0.0.0/33",)}, r"^imex_network: '10.0.0.0/33' is not a network; "),
        ({"domain_names": {"x": "hall-a"}}, r"^domain_names: 'hall-a' of 'x' is not valid "),
        ({"expected_trays": 0}, r"^expected_trays: 0 must be at least 1"),
        ({"moved_percent": 101}, r"^moved_percent: 101 must be "),
    ],
)
def test_an_invalid_policy_is_rejected(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(NvlinkError, match=message):
        Policy(**policy)
