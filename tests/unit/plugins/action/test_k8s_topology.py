# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of k8s_topology and their errors; the integration test of that name has a real API server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible_collections.rackscale.nvlink.plugins.action.k8s_topology import ActionModule
from ansible_collections.rackscale.nvlink.plugins.modules import k8s_topology as documented
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import cliques, objects
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.topology import KINDS
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients import http_servers
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.kubernetes import runai_standin

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
        ((), {"kubernetes_cluster": "east"}, "has no Kubernetes clusters"),
        (("east", "west"), {}, "set k8s_topology_kubernetes_cluster to east, west"),
        (("east", "west"), {"kubernetes_cluster": "eats"}, "did you mean east"),
        ((), {"api": {}}, "kubeconfig or api_url must be set"),
        ((), {"api": {"kubeconfg": "/x"}}, "did you mean kubeconfig"),
        (
            (),
            {"api": {"api_url": f"https://x:{SECRET}@api.example.org"}},
            "api_url is not a valid http or https address, or holds a password",
        ),
        (
            (),
            {"api": {"api_url": "http://127.0.0.1:9", "token": SECRET, "timeout": 1}},
            r"cannot be reached \(Connection refused\), 3 times; check",
        ),
        ((), {"name": "Not_A_Name"}, "is not an object name"),
        ((), {"flavor_labels": {}}, "flavor_labels: is empty"),
    ],
)
def test_a_wrong_option_fails_with_one_sentence(
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


def test_check_mode_without_a_fabric_file(tmp_path: Path, run_action: RunAction) -> None:
    given = {"fabric_file": str(tmp_path / "fabric.json"), "api": {"api_url": "http://127.0.0.1:9"}}
    result = run_action(ActionModule, check=True, **given)
    assert (result["changed"], result["changes"]) == (False, [])
    assert "run discover and accept first" in result["warnings"][0]
    with pytest.raises(AnsibleError):
        run_action(ActionModule, **given)


def test_every_supported_scheduler_is_documented_and_rendered() -> None:
    options = yaml.safe_load(documented.DOCUMENTATION)["options"]
    assert options["schedulers"]["choices"] == ["auto", *KINDS]
    assert set(KINDS) <= set(objects.SCHEDULERS)
    assert options["flavor_labels"]["default"] == {cliques.GPU_PRESENT: "true"}


def empty_cluster(request: http_servers.Request, reply: http_servers.Reply) -> None:
    """An API server without schedulers and nodes."""
    answers: dict[str, Any] = {
        "/apis": {"groups": []},
        "/api/v1/nodes": {"items": []},
        "/apis/apps/v1/daemonsets": {"items": []},
    }
    found = answers.get(request.target.partition("?")[0])
    reply.json(found or {"kind": "Status", "message": "not found"}, 200 if found and request.method == "GET" else 404)


@pytest.mark.core
def test_runai_is_configured_without_showing_its_token(tmp_path: Path, run_action: RunAction) -> None:
    standin = runai_standin.Standin()
    token = tmp_path / "token"
    token.write_text(f"{runai_standin.SECRET}\n")
    with http_servers.served(empty_cluster) as api, http_servers.served(standin.answer) as server:
        options = {
            "fabric_file": write(tmp_path),
            "api": {"api_url": api.url, "token": SECRET},
            "runai": {"url": server.url, "cluster_id": runai_standin.CLUSTER, "token_file": str(token)},
        }
        checked = run_action(ActionModule, check=True, diff=True, **options)
        assert standin.changes == []
        done = run_action(ActionModule, diff=True, **options)
        again = run_action(ActionModule, **options)
    assert [row["action"] for row in checked["changes"]] == ["create", "create"]
    assert (checked["changes"], checked["diff"]) == (done["changes"], done["diff"])
    assert (done["changed"], again["changed"]) == (True, False)
    posts = [f"POST {server.url}/api/v1/{name} (HTTP 201)" for name in ("network-topologies", "node-pools")]
    assert (checked["actions"], done["actions"], again["actions"]) == ([], posts, [])
    (_post, _path, topology), (_post2, _path2, pool) = standin.changes
    levels = ["nvidia.com/gpu.clique", "kubernetes.io/hostname"]
    assert topology == {"name": "nvlink", "clusterId": runai_standin.CLUSTER, "levels": levels}
    assert (pool["networkTopologyId"], pool["labelKey"], pool["labelValue"]) == ("id-1", cliques.GPU_PRESENT, "true")
    assert [row["code"] for row in done["findings"]] == ["k8s_node_missing"]
    assert SECRET not in str([checked, done, again])
    assert runai_standin.SECRET not in str([checked, done, again])
