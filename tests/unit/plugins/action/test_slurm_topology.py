# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_topology; the rest is in tests/integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.action.slurm_topology import ActionModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import gates
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fabric_file": "f.json", "blocks": []}, "needs exactly one of fabric_file, blocks and clusters"),
        ({"fabric_file": ["f.json"]}, "option fabric_file: .* is not a path"),
        ({"fabric_file": "/nowhere/fabric.json"}, "/nowhere/fabric.json: cannot be read"),
    ],
)
def test_a_bad_option_is_one_sentence(run_action: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=sentence):
        run_action(ActionModule, **options)


def clustered(tmp_path: Path, *names: str) -> str:
    """A fabric file of one clique whose trays are in these Slurm clusters, one in each."""
    made = fabrics.fabric(racks=1, trays=2, split=()).as_dict()
    for name, tray in zip(names, made["trays"].values(), strict=False):
        tray["slurm_cluster"] = name
    block = made["cliques"]["r01"]["block"]
    made["clusters"] = {"slurm": {name: {"blocks": {"r01": block}} for name in names}}
    (tmp_path / "fabric.json").write_text(json.dumps(made if names else {**made, "clusters": {}}))
    return str(tmp_path / "fabric.json")


@pytest.mark.parametrize(
    ("names", "wanted", "sentence"),
    [
        (("alpha", "beta"), "alhpa", "fabric.json: has no Slurm cluster 'alhpa'; did you mean alpha?"),
        (("alpha", "beta"), ["alpha"], "fabric.json: has no Slurm cluster ['alpha']"),
        ((), "alpha", "fabric.json: has no Slurm clusters; leave the option cluster out"),
    ],
)
def test_a_cluster_that_the_file_lacks_is_one_sentence(
    run_action: Any, tmp_path: Path, names: tuple[str, ...], wanted: Any, sentence: str
) -> None:
    with pytest.raises(AnsibleActionFail) as caught:
        run_action(ActionModule, fabric_file=clustered(tmp_path, *names), cluster=wanted)
    assert sentence in str(caught.value)


@pytest.mark.core
@pytest.mark.parametrize(
    ("names", "wanted", "nodes"),
    [
        ((), None, ["r01t01", "r01t02"]),
        (("alpha",), None, ["r01t01"]),
        (("alpha", "beta"), "beta", ["r01t02"]),
        (("alpha", "beta"), "", {"alpha": ["r01t01"], "beta": ["r01t02"]}),
    ],
)
def test_the_module_receives_the_blocks_of_one_or_of_all_clusters(
    run_action: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], wanted: Any, nodes: Any
) -> None:
    given: dict[str, Any] = {}

    def execute(self: Any, **options: Any) -> dict[str, Any]:
        given.update(options["module_args"])
        return {"changed": False}

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    run_action(ActionModule, fabric_file=clustered(tmp_path, *names), cluster=wanted)
    if isinstance(nodes, dict):
        assert {row["name"]: row["blocks"][0]["nodes"] for row in given["clusters"]} == nodes
    else:
        assert (given["blocks"][0]["nodes"], "clusters" in given) == (nodes, False)


def test_a_broken_fabric_file_is_named(run_action: Any, tmp_path: Path) -> None:
    file = tmp_path / "fabric.json"
    file.write_text('{"schema_version": 7}')
    with pytest.raises(AnsibleActionFail, match=f"{file}: .*schema_version"):
        run_action(ActionModule, fabric_file=str(file))


@pytest.mark.parametrize("msg", ["", gates.STOPPED, "slurmctld was restored."])
def test_findings_of_the_host_fail_the_task(run_action: Any, monkeypatch: pytest.MonkeyPatch, msg: str) -> None:
    rows = [host_finding("slurm_plugin_missing", "unset", key="A", runs="B", want="C"), host_finding("release_old")]
    answer = {"failed": True, "msg": msg} if msg else {}
    monkeypatch.setattr(ActionModule, "_execute_module", lambda *_, **__: {"findings": rows, **answer})
    result = run_action(ActionModule, blocks=[])
    (error, warning), is_plan = result["findings"], msg != "slurmctld was restored."
    assert result["failed"]
    assert result["msg"] == (error["message"] if is_plan else msg)
    assert result.get("warnings", []) == [warning["message"]] * is_plan


def test_check_mode_of_a_new_site_needs_no_fabric_file(run_action: Any) -> None:
    result = run_action(ActionModule, check=True, fabric_file="/nowhere/fabric.json")
    assert result["changed"] is False
    assert result["warnings"][0].startswith("/nowhere/fabric.json: is not there yet")
