# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wave that moves the GPUs of its nodes from a device plugin to DRA, on a server with the fields that it writes.

test_dra_driver_waves.py has a real API server.
"""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.action.dra_driver_phase import ActionModule
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import device_plugins, node_waves
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients import http_servers
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.dra import dra_cluster as world

from .conftest import RunAction

DRIVER = f"/api/v1/namespaces/{world.NAMESPACE}/pods"
REVISIONS = f"/apis/apps/v1/namespaces/{world.NAMESPACE}/controllerrevisions"
UID = "uid-plugin"
OWNED = [{"uid": UID}]


class Cluster:
    """Two nodes with GPUs of a device plugin, which leaves labelled nodes; the driver's pods are of an old revision.

    keeps: nodes on which the device plugin stays. broken: nodes on which the driver does not start.
    """

    def __init__(self) -> None:
        self.nodes = {name: world.node(name) for name in world.names()}
        for name, node in self.nodes.items():
            node["metadata"] |= {"uid": f"uid-{name}"}
            node["metadata"]["labels"] |= {node_waves.LABEL: node_waves.VALUE, "nvidia.com/gpu.clique": world.CLIQUE}
            node["status"]["capacity"] = {device_plugins.GPU: "4"}
        self.owned: dict[str, dict[str, Any]] = {}
        self.revisions = dict.fromkeys(self.nodes, "old")
        self.jobs: dict[str, list[Any]] = {name: [] for name in self.nodes}
        self.keeps: set[str] = set()
        self.broken: set[str] = set()
        self.cordons: list[tuple[str, bool]] = []
        self.programs = ["compute-domains", "gpus"]

    @property
    def by_plugin(self) -> set[str]:
        return {name for name, node in self.nodes.items() if node["status"]["capacity"][device_plugins.GPU] != "0"}

    @property
    def by_dra(self) -> set[str]:
        return {name for name, revision in self.revisions.items() if revision == "new" and name not in self.broken}

    @property
    def cordoned(self) -> set[str]:
        return {name for name, node in self.nodes.items() if node["spec"].get("unschedulable")}

    def answer(self, request: http_servers.Request, reply: http_servers.Reply) -> None:
        path, _mark, query = request.target.partition("?")
        if request.method == "PATCH":
            self._apply(path.rpartition("/")[2], json.loads(request.body))
            reply.json({"metadata": {}})
        elif request.method == "DELETE":
            self.revisions[path.rpartition("plugin-")[2]] = "new"
            reply.json({"metadata": {}})
        else:
            given = dict(urllib.parse.parse_qsl(query))
            found = self._found(path, given.get("fieldSelector", "").partition("=")[2])
            reply.json({"kind": "Status"} if found is None else found, 404 if found is None else 200)

    def _apply(self, name: str, body: dict[str, Any]) -> None:
        """Server-side apply by one manager: what it no longer names is removed."""
        node, labels = self.nodes[name], body["metadata"].get("labels", {})
        for key in self.owned.get(name, {}).keys() - labels.keys():
            del node["metadata"]["labels"][key]
        self.owned[name] = labels
        node["metadata"]["labels"].update(labels)
        node["spec"]["unschedulable"] = "spec" in body
        self.cordons.append((name, "spec" in body))
        left = labels.get(device_plugins.DEPLOY) == "false" and name not in self.keeps
        node["status"]["capacity"][device_plugins.GPU] = "0" if left else "4"

    def _found(self, path: str, node: str) -> Any:
        daemon_set = world.daemon_set(containers=[{"name": name} for name in self.programs])
        daemon_set["metadata"]["uid"] = UID
        daemon_set["spec"]["template"]["spec"]["nodeSelector"] = {node_waves.LABEL: node_waves.VALUE}
        slices = [world.slices(name) for name in self.nodes]
        slices += [world.slices(name, "gpu-0", driver=device_plugins.GPU_DRIVER) for name in self.by_dra]
        groups = {"resource.k8s.io": ["v1"], "apps": ["v1"]}
        rows = [{"name": name, "versions": [{"version": word} for word in words]} for name, words in groups.items()]
        lists = {
            "/api/v1/nodes": list(self.nodes.values()),
            "/api/v1/secrets": [],
            "/api/v1/pods": self.jobs.get(node, []),
            "/apis/apps/v1/daemonsets": [daemon_set],
            "/apis/resource.k8s.io/v1/resourceslices": slices,
            DRIVER: [self._pod(name) for name in self.nodes],
            REVISIONS: [{"metadata": {"labels": {node_waves.HASH: "new"}, "ownerReferences": OWNED}, "revision": 2}],
        }
        if path in lists:
            return {"items": lists[path], "metadata": {}}
        return {"/version": {"gitVersion": "v1.34.4"}, "/apis": {"groups": rows}}.get(path)

    def _pod(self, node: str) -> dict[str, Any]:
        metadata = {"name": f"plugin-{node}", "namespace": world.NAMESPACE, "uid": f"pod-{node}"}
        metadata |= {"labels": {node_waves.HASH: self.revisions[node]}, "ownerReferences": OWNED}
        ready = {"type": "Ready", "status": str(node not in self.broken)}
        return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"conditions": [ready]}}


class Wave:
    def __init__(self, run_action: RunAction, folder: Path) -> None:
        self._run, self._folder = run_action, folder
        self.cluster = Cluster()

    def __call__(self, shape: str = "all_dra", check: bool = False) -> dict[str, Any]:
        with http_servers.served(self.cluster.answer) as server:
            entry = {"name": "x", "cluster": {"server": server.url}, "context": {"cluster": "x", "user": "x"}}
            user = {"name": "x", "user": {"token": "t"}}
            kubeconfig = {"clusters": [entry], "contexts": [entry], "users": [user], "current-context": "x"}
            path = self._folder / "kubeconfig"
            path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **kubeconfig}))
            options = {
                "phase": "enable_nodes",
                "kubeconfig": str(path),
                "shape": shape,
                "trays": world.names(),
                "wait": 0,
            }
            return self._run(ActionModule, check=check, external_label_writer=True, **options)


@pytest.fixture
def wave(run_action: RunAction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wave:
    http_servers.without_proxy(monkeypatch)
    monkeypatch.setattr(node_waves, "GRACE", 0.0)
    return Wave(run_action, tmp_path)


def actions(result: dict[str, Any]) -> set[tuple[str, str]]:
    return {(row["action"], row["node"]) for row in result["changes"]}


@pytest.mark.core
def test_gpus_move_to_dra_and_the_nodes_are_uncordoned(wave: Wave) -> None:
    cluster = wave.cluster
    everything = {(word, name) for word in ("remove_device_plugin", "delete_pod") for name in cluster.nodes}
    assert actions(wave(check=True)) == everything
    assert cluster.cordons == []
    done = wave()
    assert (actions(done), done["failures"]) == (everything, {})
    assert (cluster.by_plugin, cluster.by_dra, cluster.cordoned) == (set(), set(cluster.nodes), set())
    # Several nodes are written at a time.
    first, last = set(cluster.cordons[:2]), set(cluster.cordons[2:])
    assert (first, last) == ({(name, True) for name in cluster.nodes}, {(name, False) for name in cluster.nodes})
    assert wave()["changed"] is False


def test_a_node_whose_pods_keep_their_gpus_is_restored_and_the_others_move(wave: Wave) -> None:
    cluster = wave.cluster
    container = {"resources": {"limits": {device_plugins.GPU: "1"}}}
    pod = {"metadata": {"name": "train", "namespace": "jobs"}, "spec": {"containers": [container]}}
    cluster.jobs["r01t01"] = [pod]
    done = wave()
    assert list(done["failures"]) == ["r01t01"]
    assert "(jobs/train); delete them first; the node is as before." in done["failures"]["r01t01"]
    assert (cluster.by_plugin, cluster.by_dra, cluster.cordoned) == ({"r01t01"}, {"r01t02"}, set())
    assert actions(done) == {("remove_device_plugin", "r01t02"), ("delete_pod", "r01t02")}


def test_a_device_plugin_that_does_not_leave_keeps_the_driver_off(wave: Wave) -> None:
    cluster = wave.cluster
    cluster.keeps = set(cluster.nodes)
    done = wave()
    assert sorted(done["failures"]) == sorted(cluster.nodes)
    assert "still has nvidia.com/gpu; check that no device plugin runs there; the node is" in done["failures"]["r01t01"]
    assert (cluster.by_dra, cluster.cordoned, done["changes"]) == (set(), set(), [])


def test_a_node_on_which_the_new_driver_does_not_start_stays_cordoned_until_it_does(wave: Wave) -> None:
    cluster = wave.cluster
    cluster.broken = {"r01t02"}
    done = wave()
    assert done["failures"]["r01t02"].endswith("; the node stays cordoned.")
    # Nobody allocates its GPUs: the device plugin does not come back next to a driver that may still start.
    assert (cluster.by_plugin, cluster.by_dra, cluster.cordoned) == (set(), {"r01t01"}, {"r01t02"})
    cluster.broken = set()
    assert wave()["failures"] == {}
    assert (cluster.by_dra, cluster.cordoned) == (set(cluster.nodes), set())


def test_a_release_without_gpus_leaves_the_device_plugin_where_it_is(wave: Wave) -> None:
    wave.cluster.programs = ["compute-domains"]
    reason = "allocates no GPUs; install the driver with waves first and this shape."
    assert all(text.endswith(reason) for text in wave()["failures"].values())
    assert (wave.cluster.by_plugin, wave.cluster.cordons) == (set(wave.cluster.nodes), [])


def test_without_gpus_by_dra_the_device_plugin_stays(wave: Wave) -> None:
    done = wave(shape="compute_domains")
    assert done["failures"] == {}
    assert (wave.cluster.by_plugin, wave.cluster.cordons) == (set(wave.cluster.nodes), [])
