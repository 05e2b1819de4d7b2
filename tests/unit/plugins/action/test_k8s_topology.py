# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of k8s_topology and what it says of them; the integration test of that name has a real API server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible_collections.rackscale.nvlink.plugins.action.k8s_topology import ActionModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.modules import k8s_topology as documented
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.k8s_topology import KINDS, STOPS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

RunAction = Callable[..., dict[str, Any]]
SECRET = "kubernetes-token-that-nobody-may-see"


def write(tmp_path: Path, clusters: tuple[str, ...] = ()) -> str:
    fabric = fabrics.fabric(racks=1, trays=2, split=())
    trays: Any = {
        name: {**row, **({"kubernetes_cluster": clusters[0]} if clusters else {})} for name, row in fabric.trays.items()
    }
    made: Any = {"kubernetes": {name: {} for name in clusters}} if clusters else {}
    file = tmp_path / "fabric.json"
    file.write_bytes(fabric_file.serialise(model.Fabric(fabric.domains, fabric.cliques, trays, [], made)))
    return str(file)


@pytest.mark.parametrize(
    ("clusters", "options", "words"),
    [
        ((), {"cluster": "east"}, "has no Kubernetes clusters"),
        (("east", "west"), {}, "set cluster to one of east, west"),
        (("east", "west"), {"cluster": "eats"}, "did you mean east"),
        ((), {"api": {}}, "kubeconfig or api_url must be set"),
        ((), {"api": {"kubeconfg": "/x"}}, "did you mean kubeconfig"),
        ((), {"api": {"kubeconfig": "/nowhere/config"}}, "cannot be read"),
        ((), {"api": {"api_url": f"https://x:{SECRET}@api.example.org"}}, "holds a user name or password"),
        ((), {"api": {"api_url": "http://127.0.0.1:9", "token": SECRET, "timeout": 1}}, "refuses the connection"),
        ((), {"name": "Not_A_Name"}, "cannot name an object"),
        ((), {"levels_above": [{"label": "x y", "name": "zone"}]}, "no label key"),
        ((), {"flavor_labels": {}}, "flavor_labels: is empty"),
        ((), {"schedulers": ["slurm"]}, "schedulers"),
        ((), {"clique_label": "both"}, "clique_label"),
    ],
)
def test_what_a_person_wrote_wrongly_is_one_sentence(
    tmp_path: Path,
    run_action: RunAction,
    monkeypatch: pytest.MonkeyPatch,
    clusters: tuple[str, ...],
    options: dict[str, Any],
    words: str,
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    given = {"fabric_file": write(tmp_path, clusters), "api": {"api_url": "http://127.0.0.1:9"}, **options}
    with pytest.raises(AnsibleError, match=words) as caught:
        run_action(ActionModule, **given)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_check_mode_before_anything_was_accepted(tmp_path: Path, run_action: RunAction) -> None:
    given = {"fabric_file": str(tmp_path / "fabric.json"), "api": {"api_url": "http://127.0.0.1:9"}}
    result = run_action(ActionModule, check=True, **given)
    assert (result["changed"], result["plan"]) == (False, [])
    assert "discover and accept it first" in result["warnings"][0]
    with pytest.raises(AnsibleError):
        run_action(ActionModule, **given)


def test_every_scheduler_that_is_applied_is_documented_and_rendered() -> None:
    options = yaml.safe_load(documented.DOCUMENTATION)["options"]
    assert options["schedulers"]["choices"] == ["auto", *KINDS]
    assert set(KINDS) <= set(schedulers.SCHEDULERS)
    assert options["flavor_labels"]["default"] == {schedulers.GPU_PRESENT: "true"}


def test_what_stops_is_an_error_of_the_catalogue() -> None:
    assert {CATALOGUE[code].severity for code in STOPS} == {"error"}
