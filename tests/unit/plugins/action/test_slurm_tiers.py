# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of slurm_tiers: its options and what it passes to the host; the rest is in tests/integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.rackscale.nvlink.plugins.action.slurm_tiers import ActionModule
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_tiers import ARGUMENT_SPEC, CLUSTERS
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

TIERS = [{"name": "gold", "all": True, "segment": {"max": 2}, "allow_groups": ["wheel"]}]


def fabric_file(tmp_path: Path, *clusters: str) -> str:
    """A fabric file of one clique whose trays are in these Slurm clusters, one in each."""
    made = fabrics.fabric(racks=1, trays=2, split=()).as_dict()
    for name, tray in zip(clusters, made["trays"].values(), strict=False):
        tray["slurm_cluster"] = name
    block = made["cliques"]["r01"]["block"]
    made["clusters"] = {"slurm": {name: {"blocks": {"r01": block}} for name in clusters}} if clusters else {}
    (tmp_path / "fabric.json").write_text(json.dumps(made))
    return str(tmp_path / "fabric.json")


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of the module on the host."""
    given: dict[str, Any] = {}

    def execute(_self: ActionModule, module_name: str, module_args: dict[str, Any], **_more: Any) -> dict[str, Any]:
        assert module_name == "rackscale.nvlink.slurm_tiers"
        given.update(module_args)
        return {}

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    return given


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "missing: fabric_file, tiers|missing: tiers, fabric_file"),
        ({"tiers": [{}], "fabric_file": "f.json"}, r"^tiers\[0\] \(\w+\) has no name, add it\.$"),
        (
            {"tiers": [{"name": "a", "groups": ["x"]}], "fabric_file": "f.json"},
            r"^tiers\[0\] \(\w+\) has the unknown key 'groups'",
        ),
        ({"tiers": [], "fabric_file": "/nowhere/fabric.json"}, "/nowhere/fabric.json: cannot be read"),
    ],
)
def test_a_wrong_option_is_named(run_action: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleError, match=sentence):
        run_action(ActionModule, **options)


def test_an_unknown_cluster_is_named(run_action: Any, tmp_path: Path) -> None:
    with pytest.raises(AnsibleError, match=r"has no Slurm cluster 'alhpa'; did you mean alpha\?"):
        run_action(ActionModule, tiers=TIERS, fabric_file=fabric_file(tmp_path, "alpha", "beta"), cluster="alhpa")


@pytest.mark.core
@pytest.mark.parametrize(
    ("clusters", "cluster", "nodes"),
    [
        ((), None, {"": ["r01t01", "r01t02"]}),
        (("alpha", "beta"), "beta", {"beta": ["r01t02"]}),
        (("alpha", "beta"), None, {"alpha": ["r01t01"], "beta": ["r01t02"]}),
    ],
)
def test_the_host_gets_the_blocks_of_the_cluster_or_of_all(
    run_action: Any,
    passed: dict[str, Any],
    tmp_path: Path,
    clusters: tuple[str, ...],
    cluster: str | None,
    nodes: dict[str, list[str]],
) -> None:
    options = {"cluster": cluster} if cluster else {}
    run_action(ActionModule, tiers=TIERS, fabric_file=fabric_file(tmp_path, *clusters), conf_dir="~/slurm", **options)
    assert passed["conf_dir"] == "~/slurm", "expanded on the host"
    checked = ArgumentSpecValidator({**ARGUMENT_SPEC, "clusters": CLUSTERS}).validate(passed)
    assert not checked.error_messages
    options = checked.validated_parameters
    assert {row["name"]: row["blocks"][0]["nodes"] for row in options["clusters"]} == nodes
    assert options["tiers"][0]["state"] == "up", "defaults are filled in"
    assert options["rehearse"] == "auto"


def test_state_absent_needs_no_fabric_file(run_action: Any, passed: dict[str, Any]) -> None:
    run_action(ActionModule, state="absent", timeout=5)
    assert passed == {"state": "absent", "timeout": 5}
