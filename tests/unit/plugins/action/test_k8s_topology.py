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
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.topology import KINDS, STOPS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics, http_servers, runai_standin

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


def empty_cluster(asked: http_servers.Asked, reply: http_servers.Reply) -> None:
    """An API server without schedulers and nodes."""
    answers: dict[str, Any] = {
        "/apis": {"groups": []},
        "/api/v1/nodes": {"items": []},
        "/apis/apps/v1/daemonsets": {"items": []},
    }
    found = answers.get(asked.target.partition("?")[0])
    reply.json(found or {"kind": "Status", "message": "not found"}, 200 if found and asked.method == "GET" else 404)


def test_runai_is_told_after_the_plan_and_its_token_is_nowhere(
    tmp_path: Path, run_action: RunAction, monkeypatch: pytest.MonkeyPatch
) -> None:
    http_servers.ask_directly(monkeypatch)
    standin = runai_standin.Standin()
    token = tmp_path / "token"
    token.write_text(f"{runai_standin.SECRET}\n")
    with http_servers.served(empty_cluster) as api, http_servers.served(standin.answer) as server:
        options = {
            "fabric_file": write(tmp_path),
            "api": {"api_url": api.url, "token": SECRET},
            "runai": {"url": server.url, "cluster_id": runai_standin.CLUSTER, "token_file": str(token)},
        }
        looked = run_action(ActionModule, check=True, diff=True, **options)
        assert standin.changes == []
        done = run_action(ActionModule, diff=True, **options)
        again = run_action(ActionModule, **options)
    assert [row["action"] for row in looked["plan"]] == ["create", "create"]
    assert (looked["plan"], looked["diff"]) == (done["plan"], done["diff"])
    assert (done["changed"], again["changed"]) == (True, False)
    assert [method for method, _path, _body in standin.changes] == ["POST", "POST"]
    assert [row["code"] for row in done["findings"]] == ["k8s_node_missing"]
    assert SECRET not in str([looked, done, again])
    assert runai_standin.SECRET not in str([looked, done, again])
