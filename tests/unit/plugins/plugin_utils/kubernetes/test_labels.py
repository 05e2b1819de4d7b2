# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.node_names import NodeNames
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import cliques
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels as k8s_labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.labels import CLIQUE, COLLECTION, DRA, GFD
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from hypothesis import given
from hypothesis import strategies as st

TOPOLOGY = cliques.describe(fabrics.fabric(racks=1, trays=4, split=()))
TEXT = TOPOLOGY.cliques[0].text
OTHER = "00000009-1111-4222-8333-444444444444.32766"
FLAVOR = {"nvidia.com/gpu.present": "true"}


def node(name: str, labels: dict[str, str], *managers: str) -> dict[str, Any]:
    fields = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in labels}}}
    rows = [{"manager": manager, "operation": "Apply", "fieldsV1": fields} for manager in managers]
    return {"metadata": {"name": name, "labels": labels, "managedFields": rows}}


def cluster(label: str | None = TEXT, *managers: str, **changed: str | None) -> list[dict[str, Any]]:
    """The four nodes of the topology, all labelled; changed: node -> its own label, None for none."""
    made = []
    for name in TOPOLOGY.cliques[0].nodes:
        value = changed.get(name, label)
        made.append(node(name, {**FLAVOR, **({CLIQUE: value} if value else {})}, *managers))
    return made


def daemon_set(scheduled: int = 4, **container: Any) -> dict[str, Any]:
    spec = {"template": {"spec": {"containers": [{"name": "main", "image": "example.org/x:1", **container}]}}}
    return {"metadata": {"name": "x"}, "spec": spec, "status": {"desiredNumberScheduled": scheduled}}


GFD_RUNS = daemon_set(command=["gpu-feature-discovery"], image="nvcr.io/nvidia/k8s-device-plugin:v0.18.0")
DRA_RUNS = daemon_set(name="compute-domains", env=[{"name": "GPU_CLIQUE_LABEL_ENABLED", "value": "true"}])
DRA_SILENT = daemon_set(name="compute-domains", env=[{"name": "GPU_CLIQUE_LABEL_ENABLED", "value": "false"}])


def codes(found: list[dict[str, Any]]) -> list[str]:
    return [row["code"] for row in found]


@pytest.mark.parametrize(
    ("sets", "running"),
    [
        ([], ()),
        ([GFD_RUNS], (GFD,)),
        ([daemon_set(scheduled=0, name="gpu-feature-discovery")], ()),
        ([DRA_SILENT], ()),
        ([DRA_RUNS, GFD_RUNS], (DRA, GFD)),
        ([{}, {"spec": None}, None, {"status": {"desiredNumberScheduled": 1}}], ()),
    ],
)
def test_running_writers_are_read_from_the_daemon_sets(sets: list[Any], running: tuple[str, ...]) -> None:
    assert k8s_labels.running_writers(sets) == running


@pytest.mark.parametrize(
    ("choice", "sets", "managers", "writer", "found"),
    [
        ("auto", [], (), COLLECTION, []),
        ("auto", [GFD_RUNS], ("nfd-master",), GFD, []),
        ("auto", [DRA_RUNS], ("compute-domain-kubelet-plugin",), DRA, []),
        ("auto", [GFD_RUNS, DRA_RUNS], ("nfd-master",), "multiple", ["k8s_clique_label_writers"]),
        ("auto", [], ("nfd-master",), COLLECTION, ["k8s_clique_label_unknown_writer"]),
        ("auto", [], ("kubectl-label",), "unknown", ["k8s_clique_label_unknown_writer"]),
        ("collection", [], ("kubectl-label",), COLLECTION, ["k8s_clique_label_unknown_writer"]),
        ("collection", [GFD_RUNS], ("nfd-master",), "multiple", ["k8s_clique_label_writers"]),
        ("collection", [], ("rackscale.nvlink-clique",), COLLECTION, []),
        ("auto", [], ("nfd-master", "rackscale.nvlink-clique"), COLLECTION, []),
        ("gfd", [], (), "none", ["k8s_clique_label_writers"]),
        ("dra_driver", [DRA_SILENT], (), "none", ["k8s_clique_label_writers"]),
    ],
)
def test_there_is_one_writer_or_a_finding(
    choice: str, sets: list[Any], managers: tuple[str, ...], writer: str, found: list[str]
) -> None:
    decided, findings = k8s_labels.decide(choice, sets, cluster(TEXT, *managers))
    assert (decided, codes(findings)) == (writer, found)


NODE_LABELS = st.sampled_from([None, TEXT, OTHER])
EVERY = st.fixed_dictionaries(dict.fromkeys(TOPOLOGY.cliques[0].nodes, NODE_LABELS))


@given(live=EVERY, gpus=st.dictionaries(st.sampled_from(TOPOLOGY.cliques[0].nodes), NODE_LABELS))
def test_written_labels_agree_with_the_gpus(live: dict[str, str | None], gpus: dict[str, str | None]) -> None:
    nodes = cluster(**live)
    texts = k8s_labels.to_write(TOPOLOGY, nodes, gpus)
    assert {node for node in gpus if gpus[node] != TEXT}.isdisjoint(texts)
    for row in nodes:
        if row["metadata"]["name"] in texts:
            row["metadata"]["labels"][CLIQUE] = texts[row["metadata"]["name"]]
    left = {row["tray"] for row in k8s_labels.compare(TOPOLOGY, nodes, gpus)}
    assert left.isdisjoint(texts)


@pytest.mark.parametrize(
    ("label", "gpus", "code", "words"),
    [
        (None, {}, "k8s_clique_label_missing", "a minute late"),
        (OTHER, {}, "k8s_clique_label_wrong", "its GPUs are not known: discover, then accept"),
        (OTHER, {"r01t02": OTHER}, "k8s_clique_label_wrong", f"report {OTHER}: discover, then accept"),
        (OTHER, {"r01t02": None}, "k8s_clique_label_wrong", "in no clique: discover, then accept"),
        (OTHER, {"r01t02": TEXT}, "k8s_clique_label_wrong", f"report {TEXT}: restart the label"),
        (TEXT, {"r01t02": OTHER}, "k8s_clique_label_wrong", f"report {OTHER}: discover again, and restart"),
        (TEXT, {"r01t02": None}, "k8s_clique_label_wrong", "are in no clique: discover again, and restart"),
    ],
)
def test_a_wrong_label_is_one_finding(label: str | None, gpus: dict[str, str | None], code: str, words: str) -> None:
    assert k8s_labels.compare(TOPOLOGY, cluster(), dict.fromkeys(TOPOLOGY.cliques[0].nodes, TEXT)) == []
    (found,) = k8s_labels.compare(TOPOLOGY, cluster(r01t02=label), gpus)
    assert (found["code"], found["tray"]) == (code, "r01t02")
    assert words in found["message"]


def test_nodes_that_are_missing_or_unknown_are_findings() -> None:
    nodes = [*cluster()[:-1], node("new", {**FLAVOR, CLIQUE: OTHER}), node("cpu", {})]
    found = k8s_labels.compare(TOPOLOGY, nodes, {})
    assert [(row["code"], row["tray"]) for row in found] == [
        ("k8s_node_missing", "r01t04"),
        ("tray_unplaced", "new"),
    ]


def test_nodes_with_other_names_are_one_finding() -> None:
    nodes = [node(f"{name}.example.com", {**FLAVOR, CLIQUE: TEXT}) for name in TOPOLOGY.cliques[0].nodes]
    found = k8s_labels.compare(TOPOLOGY, nodes, {}, flavored=False)
    assert codes(found) == ["node_renamed"]
    assert found[0]["message"] == (
        "Kubernetes calls r01t01 r01t01.example.com (and 3 more alike): set fabric_kubernetes_node:"
        ' "{{ inventory_hostname }}.example.com" for the group nvlink, then discover and accept again.'
    )


def test_a_label_that_a_kubelet_can_set_is_a_hint_and_stops_nothing() -> None:
    """A node that names another tray as its host would stop the run of all others."""
    claim = node("n1", {CLIQUE: TEXT, "kubernetes.io/hostname": "r01t04"})
    found = k8s_labels.compare(TOPOLOGY, [*cluster()[:-1], claim], {}, flavored=False)
    assert [(row["code"], row["severity"], row["tray"]) for row in found] == [
        ("k8s_node_missing", "warning", "r01t04"),
        ("tray_unplaced", "warning", "n1"),
    ]
    assert found[0]["message"] == (
        "No Node exists for r01t04 of clique r01 (by host name or address: n1); join it, or set fabric_kubernetes_node,"
        " then run discover and accept."
    )


def test_a_node_is_known_by_its_host_name_and_its_addresses() -> None:
    row = node("n1", {"kubernetes.io/hostname": "gb1"})
    assert k8s_labels.names(row) == NodeNames("n1", ("gb1",))
    row["status"] = {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}, None, {"address": {}}]}
    assert k8s_labels.names(row) == NodeNames("n1", ("gb1", "192.0.2.1"))


def test_a_flavor_that_selects_no_node_is_a_finding() -> None:
    nodes = [node(name, {CLIQUE: TEXT}) for name in TOPOLOGY.cliques[0].nodes]
    (found,) = k8s_labels.compare(TOPOLOGY, nodes, {})
    assert found["code"] == "k8s_label_missing"
    assert k8s_labels.compare(TOPOLOGY, nodes, {}, flavored=False) == []
    assert all(name in found["message"] for name in TOPOLOGY.cliques[0].nodes)
