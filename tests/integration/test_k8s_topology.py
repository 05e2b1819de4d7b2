# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""k8s_topology on a real API server: its rules, field managers and rejections.

The CustomResourceDefinitions are Kueue's own, and the other schedulers' own where ../shared has them, else small ones
with the same rules.
No scheduler runs: what they make of the objects is theirs.
"""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.http import HttpError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import KubernetesError, cliques, objects
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels as k8s_labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import Kind, connect
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.topology import (
    NAMES_OF_LEVELS,
    DesiredState,
    Plan,
    Planner,
    without,
)
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from nvlab.kubernetes import certificates, programs, users
from nvlab.kubernetes.api import Api
from nvlab.kubernetes.plane import ControlPlane

from .commands import ansible
from .conftest import CHECKOUT, OLDEST_KUBERNETES
from .workloads import until

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes]

REAL = CHECKOUT.parent / "shared" / "crds"
CRDS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DAEMON_SETS = "apis/apps/v1/namespaces/default/daemonsets"
NODES = "api/v1/nodes"
KAI = "apis/kai.scheduler/v1alpha1/topologies"
HYPER_NODES = "apis/topology.volcano.sh/v1alpha1/hypernodes"
GROVE = "apis/grove.io/v1alpha1/clustertopologybindings"
FABRIC = fabrics.fabric(racks=2, trays=2)
TOPOLOGY = cliques.describe(FABRIC)
TEXTS = {node: clique.text for clique in TOPOLOGY.cliques for node in clique.nodes}
ZONE = cliques.Level("topology.kubernetes.io/zone", "zone")
CLIQUE, MANAGED_BY = cliques.CLIQUE, cliques.MANAGED_BY
STRING = {"type": "string"}
LABELS = "self.map(l, l.nodeLabel) == oldSelf.map(l, l.nodeLabel)"
# group, version, kind, plural, rule for spec.levels
SMALL = [
    ("kai.scheduler", "v1alpha1", "Topology", "topologies", LABELS),
    ("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes"),
    ("grove.io", "v1alpha1", "ClusterTopologyBinding", "clustertopologybindings"),
]


class Site:
    """The control plane, and the collection's client of it."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.api = plane, plane.api()
        self.cluster = connect({"kubeconfig": str(plane.kubeconfig)}, "k8s_topology")

    def plan(self, topology: cliques.Topology = TOPOLOGY, apply: bool = False, **more: Any) -> Plan:
        plan = Planner(self.cluster, topology, DesiredState(**more)).plan()
        if apply and not plan.blockers:
            plan.apply()
        return plan

    def apply(self, topology: cliques.Topology = TOPOLOGY, **more: Any) -> Plan:
        return self.plan(topology, apply=True, **more)

    def labels(self, node: str) -> dict[str, str]:
        found: dict[str, str] = self.api.get(f"{NODES}/{node}")["metadata"]["labels"]
        return found

    def levels(self) -> list[str]:
        return [row["nodeLabel"] for row in self.api.get(f"{KAI}/nvlink")["spec"]["levels"]]


def steps(plan: Plan) -> list[tuple[str, str]]:
    return [(change.step.action, change.step.what) for change in plan.changes]


def codes(plan: Plan) -> list[str]:
    return [row["code"] for row in plan.findings]


@functools.cache
def definitions() -> list[dict[str, Any]]:
    """Those of the schedulers; each test gets them unchanged."""
    theirs = [path for path in programs.definitions() if path.name.startswith(("kueue.x-k8s.io_t", "kueue.x-k8s.io_r"))]
    if REAL.is_dir():
        theirs += [path for name in ("kai", "topology.volcano", "grove") for path in sorted(REAL.glob(f"{name}*.yaml"))]
        return [read(path) for path in theirs]
    return [*map(read, theirs), *(small(*row) for row in SMALL)]


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return found


def serve(api: Api, rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Apply definitions and wait until they are served; (kind, path of its objects, in the namespace default)."""
    found = []
    for row in rows:
        api.apply(f"{CRDS}/{row['metadata']['name']}", row)
        spec, (version,) = row["spec"], [one["name"] for one in row["spec"]["versions"] if one["storage"]]
        place = "namespaces/default/" if spec["scope"] == "Namespaced" else ""
        found.append((spec["names"]["kind"], f"apis/{spec['group']}/{version}/{place}{spec['names']['plural']}"))
    for kind, path in found:
        until(f"the server serves {path}", functools.partial(api.find, path))
        until(f"the server publishes the schema of {kind}", functools.partial(is_published, api, kind, path))
    return found


def is_published(api: Api, kind: str, path: str) -> bool:
    """Whether the schema is, some moments after the kind is served: before, no field of an object counts as unknown."""
    group_version = "/".join(path.split("/")[:3])
    return f"'kind': '{kind}'" in str(api.find(f"openapi/v3/{group_version}"))


def small(group: str, version: str, kind: str, plural: str, rule: str = "") -> dict[str, Any]:
    """A definition that accepts any field."""
    level = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"nodeLabel": STRING}}
    levels: dict[str, Any] = {"type": "array", "maxItems": 16, "items": level}
    if rule:
        levels["x-kubernetes-validations"] = [{"rule": rule, "message": "nodeLabel structure is immutable"}]
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"levels": levels}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    served = [{"name": version, "served": True, "storage": True, "schema": schema}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": {"kind": kind, "plural": plural}, "versions": served},
    }


@pytest.fixture(scope="module")
def served(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with the schedulers' CRDs."""
    serve(control_plane.api(), definitions())
    return control_plane


@pytest.fixture
def site(served: ControlPlane) -> Iterator[Site]:
    """The nodes of two racks of two trays, without clique labels and objects."""
    made = Site(served)
    for name in TEXTS:
        labels = {"nvidia.com/gpu.present": "true", "kubernetes.io/hostname": name}
        made.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    yield made
    for row in made.api.items(NODES):
        made.api.delete(f"{NODES}/{row['metadata']['name']}")
    for row in made.api.items(DAEMON_SETS):
        made.api.delete(f"{DAEMON_SETS}/{row['metadata']['name']}")
    # A test may have changed the definitions.
    for _kind, path in serve(made.api, definitions()):
        for row in made.api.items(path):
            made.api.delete(f"{path}/{row['metadata']['name']}")


def daemon_set(site: Site, name: str, **container: Any) -> None:
    """A DaemonSet that the controller schedules on all nodes, which are not ready: nobody else's status would last."""
    labels = {"app": name}
    containers = [{"name": "main", "image": "example.org/x:1", **container}]
    spec = {"containers": containers, "tolerations": [{"operator": "Exists"}]}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }
    site.api.create(DAEMON_SETS, body)
    path = f"{DAEMON_SETS}/{name}"
    until(f"{name} is scheduled", lambda: site.api.get(path)["status"]["desiredNumberScheduled"] == len(TEXTS))


def managers(site: Site, node: str, key: str) -> tuple[str, ...]:
    return k8s_labels.managers(site.api.get(f"{NODES}/{node}"), ("metadata", "labels", key))


def label(site: Site, node: str, values: dict[str, str | None], manager: str = "nfd-master") -> None:
    site.api.patch(f"{NODES}/{node}?fieldManager={manager}", {"metadata": {"labels": values}})


def test_a_fresh_cluster_gets_labels_and_objects_once(site: Site) -> None:
    preview = site.plan()
    assert preview.schedulers == ["kai", "kueue", "volcano", "grove"]
    assert preview.writer == "collection"
    assert all(CLIQUE not in site.labels(node) for node in TEXTS)
    assert site.api.find(f"{KAI}/nvlink") is None
    actions.begin()
    done = site.apply()
    assert steps(done) == steps(preview)
    rows = actions.done()
    assert len(rows) == len(done.done)
    assert {row.split()[0] for row in rows} == {"PATCH"}
    assert all(any(f"/nodes/{node} (HTTP 200)" in row for row in rows) for node in TEXTS)
    assert {action for action, _what in steps(done)} == {"create", "update"}
    assert done.findings == []
    assert {node: site.labels(node)[CLIQUE] for node in TEXTS} == TEXTS
    assert site.levels() == [CLIQUE, "kubernetes.io/hostname"]
    # Grove uses our Topology rather than make one of its own for KAI.
    own = {"schedulerName": "kai-scheduler", "topologyReference": "nvlink"}
    assert site.api.get(f"{GROVE}/nvlink")["spec"]["schedulerTopologyBindings"] == [own]
    actions.begin()
    again = site.apply()
    assert (steps(again), again.findings, actions.done()) == ([], [], [])


def test_a_person_deletes_an_object_whose_immutable_field_changes(site: Site) -> None:
    site.apply()
    wider = cliques.describe(FABRIC, settings=cliques.TopologySettings(levels_above=(ZONE,)))
    # Kueue 0.17 has more immutable fields than its next releases.
    relabelled = cliques.describe(FABRIC, settings=cliques.TopologySettings(flavor_labels={"a": "b"}))
    for topology, words in ((wider, ["spec.levels", "spec.levels"]), (relabelled, ["spec: "])):
        found = [row["message"] for row in site.apply(topology).findings if row["code"] == "jobs_running"]
        assert len(found) == len(words)
        assert all(re.search(f"created again [(]{word}.*mutable.*: ", row) for word, row in zip(words, found))
    assert site.levels() == [level.label for level in TOPOLOGY.levels]
    for path in (KAI, "apis/kueue.x-k8s.io/v1beta2/resourceflavors", "apis/kueue.x-k8s.io/v1beta2/topologies"):
        site.api.delete(f"{path}/nvlink")
    made = [what for action, what in steps(site.apply(wider)) if action == "create"]
    assert {"Topology nvlink of kai.scheduler", "Topology nvlink of kueue.x-k8s.io"} <= set(made)
    assert site.levels() == [level.label for level in wider.levels]
    assert steps(site.apply(wider)) == []


def test_nothing_is_written_where_the_server_rejects_an_object(site: Site) -> None:
    broken = cliques.Topology(None, TOPOLOGY.cliques, tuple(cliques.Level(f"l{n}", f"l{n}") for n in range(17)))
    with pytest.raises(HttpError, match="HTTP 422"):
        site.apply(broken, names=("kai",))
    assert site.api.find(f"{KAI}/nvlink") is None
    assert all(CLIQUE not in site.labels(node) for node in TEXTS)


def test_unmanaged_objects_are_reported_and_not_changed(site: Site) -> None:
    foreign = {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "nvlink"}}
    site.api.create(KAI, {**foreign, "spec": {"levels": [{"nodeLabel": "example.org/row"}]}})
    plan = site.apply()
    assert codes(plan) == ["object_unmanaged"]
    assert site.levels() == ["example.org/row"]
    # Nothing at all was written.
    assert site.api.items(HYPER_NODES) == []
    assert CLIQUE not in site.labels("r01t01")
    site.apply(cliques.describe(FABRIC, settings=cliques.TopologySettings("cliques")))
    removed = site.apply(cliques.describe(FABRIC, settings=cliques.TopologySettings("cliques")), present=False)
    assert {action for action, what in steps(removed) if "Node" not in what.split()[0]} == {"delete"}
    assert site.levels() == ["example.org/row"]
    assert site.api.items(HYPER_NODES) == []
    assert CLIQUE not in site.labels("r01t01")


def test_a_partition_change_moves_labels_and_hyper_nodes_and_absent_removes_them(site: Site) -> None:
    site.apply()
    assert {row["metadata"]["name"] for row in site.api.items(HYPER_NODES)} == {
        "nvlink-r01",
        "nvlink-r02a",
        "nvlink-r02b",
    }
    whole = cliques.describe(fabrics.fabric(racks=2, trays=2, split=()))
    done = site.apply(whole)
    assert ("delete", "HyperNode nvlink-r02a of topology.volcano.sh") in steps(done)
    assert {row["metadata"]["name"] for row in site.api.items(HYPER_NODES)} == {"nvlink-r01", "nvlink-r02"}
    assert site.labels("r02t02")[CLIQUE] == whole.cliques[1].text
    # KAI's Topology names the label only, so it need not be made anew.
    assert not any("kai.scheduler" in what for _action, what in steps(done))
    # All of it is removed, whatever else writes the label.
    daemon_set(site, "gfd", command=["gpu-feature-discovery"])
    daemon_set(site, "plugin", env=[{"name": "GPU_CLIQUE_LABEL_ENABLED", "value": "true"}])
    label(site, "r01t01", {CLIQUE: TEXTS["r01t01"], "x": "y"})
    gone = site.apply(whole, present=False)
    assert (gone.blockers, site.api.items(HYPER_NODES), site.api.find(f"{KAI}/nvlink")) == ([], [], None)
    assert all(CLIQUE not in site.labels(node) for node in TEXTS)


def test_a_later_writer_takes_the_label_over_without_a_gap(site: Site) -> None:
    site.apply()
    daemon_set(site, "gfd", command=["gpu-feature-discovery"])
    # Not there yet on any node: nothing may go.
    assert site.apply().changes == []
    assert {node: site.labels(node)[CLIQUE] for node in TEXTS} == TEXTS
    # It writes another value first and then ours, as after a partition change; then the label is its own.
    label(site, "r01t01", {CLIQUE: "00000009-1111-4222-8333-444444444444.1"})
    label(site, "r01t01", {CLIQUE: TEXTS["r01t01"]})
    site.api.apply(
        f"{NODES}/r01t02",
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "r01t02", "labels": {CLIQUE: TEXTS["r01t02"]}}},
        "nfd-master",
    )
    released = site.apply()
    assert steps(released) == [("update", "Node r01t02")]
    node = site.api.get(f"{NODES}/r01t02")
    assert (k8s_labels.managers(node, ("metadata", "labels", CLIQUE)), site.labels("r01t02")[CLIQUE]) == (
        ("nfd-master",),
        TEXTS["r01t02"],
    )
    assert site.apply().changes == []


def test_a_label_of_an_unknown_program_is_taken_over_only_by_choice(site: Site) -> None:
    label(site, "r01t01", {CLIQUE: "by-hand.1"}, "kubectl-label")
    # After a takeover the right one has two owners, which must not be reported in every run.
    label(site, "r01t02", {CLIQUE: TEXTS["r01t02"]}, "kubectl-label")
    left = site.apply()
    assert (left.writer, "k8s_clique_label_unknown_writer" in codes(left)) == ("unknown", True)
    assert site.labels("r01t01")[CLIQUE] == "by-hand.1"
    taken = site.apply(label_writer="collection")
    assert "kubectl-label" in next(row["message"] for row in taken.findings)
    (shared,) = [change for change in taken.changes if change.node == "r01t02"]
    assert (shared.step.why, shared.before) == (f"own {CLIQUE}: {TEXTS['r01t02']}, which is already set", shared.after)
    assert {node: site.labels(node)[CLIQUE] for node in TEXTS} == TEXTS
    assert managers(site, "r01t01", CLIQUE) == (k8s_labels.CLIQUE_MANAGER,)
    again = site.apply()
    assert (steps(again), again.findings) == ([], [])


def test_a_deleted_node_is_not_created_again(site: Site) -> None:
    plan = site.plan()
    site.api.delete(f"{NODES}/r01t01")
    with pytest.raises(NvlinkError, match="r01t01"):
        plan.apply()
    assert site.api.find(f"{NODES}/r01t01") is None
    assert codes(site.apply()) == ["k8s_node_missing"]
    assert steps(site.apply()) == []


def test_fields_that_an_older_release_lacks_are_left_out(site: Site) -> None:
    """KAI until 0.16 and Volcano until 1.13, to which the API server answers 500 for each of these fields."""
    older = [without(row, NAMES_OF_LEVELS) for row in definitions()]
    kinds = [Kind("kai.scheduler/v1alpha1", "Topology", "topologies")]
    kinds.append(Kind("topology.volcano.sh/v1alpha1", "HyperNode", "hypernodes"))

    def undeclared() -> bool:
        return all(site.cluster.undeclared(kind, NAMES_OF_LEVELS) == set(NAMES_OF_LEVELS) for kind in kinds)

    for row in older:
        site.api.apply(f"{CRDS}/{row['metadata']['name']}", row)
    until("the schemas are published", undeclared)
    body = {**objects.made("kai", TOPOLOGY)[0], "apiVersion": kinds[0].api}
    if REAL.is_dir():  # a definition of this test's own accepts fields that it does not declare
        with pytest.raises(HttpError, match=r"HTTP 500: .*alias: field not declared in schema\)"):
            site.cluster.apply(kinds[0], body, "test", dry_run=True)
    site.apply()
    assert site.levels() == [level.label for level in TOPOLOGY.levels]
    assert {row["spec"]["tier"] for row in site.api.items(HYPER_NODES)} == {1}
    assert site.apply().changes == []


def test_kueue_without_topologies_gets_no_flavor_that_names_one(site: Site) -> None:
    """Kueue 0.13 has its Topology in v1alpha1 alone."""
    site.api.delete(f"{CRDS}/topologies.kueue.x-k8s.io")
    until("no Topology is served", lambda: not site.api.find("apis/kueue.x-k8s.io/v1beta2/topologies"))
    assert "kueue" not in site.plan().schedulers
    plan = site.apply(names=("kai", "kueue"))
    assert codes(plan) == ["k8s_scheduler_missing"]
    assert "does not serve Topology and ResourceFlavor of kueue" in plan.findings[0]["message"]
    assert site.api.find(f"{KAI}/nvlink") is None


def test_labels_of_an_old_topograph_are_reported_and_stay(site: Site) -> None:
    old = "network.topology.nvidia.com/leaf"
    label(site, "r01t02", {old: "s1"}, "topograph")
    assert [row["message"] for row in site.apply().findings if row["code"] == "k8s_topograph_deprecated"] == [
        "Labels of Topograph 0.5 or older (network.topology.nvidia.com/) are on r01t02; let Topograph 1.0 write its "
        "labels, then remove the old ones when nothing names them."
    ]
    assert site.labels("r01t02")[old] == "s1"


def test_slinky_gets_its_annotations_next_to_the_label(site: Site) -> None:
    serve(site.api, [small("slinky.slurm.net", "v1beta1", "NodeSet", "nodesets")])
    try:
        site.apply()
        metadata = site.api.get(f"{NODES}/r02t02")["metadata"]
        assert metadata["annotations"][cliques.SLINKY] == "nvlink:r02b"
        assert metadata["labels"][CLIQUE] == TEXTS["r02t02"]
        assert site.apply().changes == []
        site.api.patch(f"{NODES}/r02t02?fieldManager=someone", {"metadata": {"annotations": {cliques.SLINKY: "a:b"}}})
        assert codes(site.plan()) == ["object_unmanaged"]
        # One that is created between the read and the write is not overwritten either; the server names its manager.
        site.api.patch(f"{NODES}/r02t02?fieldManager=someone", {"metadata": {"annotations": {cliques.SLINKY: None}}})
        plan = site.plan()
        metadata = {"name": "r02t02", "annotations": {cliques.SLINKY: "a:b"}}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        site.api.apply(f"{NODES}/r02t02", body, "someone")
        with pytest.raises(KubernetesError, match=r'"someone".*; resolve the conflict with the other writer'):
            plan.apply()
        assert site.api.get(f"{NODES}/r02t02")["metadata"]["annotations"][cliques.SLINKY] == "a:b"
    finally:
        site.api.delete(f"{CRDS}/nodesets.slinky.slurm.net")
    # Slinky is gone, and what was written for it goes all the same; what is somebody else's stays.
    site.apply(present=False)
    left = {row["metadata"]["name"]: row["metadata"].get("annotations", {}) for row in site.api.items(NODES)}
    assert [name for name, annotations in left.items() if cliques.SLINKY in annotations] == ["r02t02"]


def test_a_template_of_a_site_with_another_kind_is_refused(site: Site, tmp_path: Path) -> None:
    own = tmp_path / "kai.yaml.j2"
    own.write_text("---\nkind: Pod\n")
    with pytest.raises(KubernetesError, match="templates, kai: each object must be a Topology with a name"):
        site.apply(replace(TOPOLOGY, templates={"kai": str(own)}))


class Playbook:
    """rackscale.nvlink.kubernetes --tags topology, as a user with the permissions of `rules`."""

    def __init__(self, site: Site, folder: Path, name: str, rules: list[Any]) -> None:
        self._site, self._fabric = site, folder / "fabric.json"
        self._fabric.write_bytes(fabric_file.serialise(FABRIC))
        self.kubeconfig = users.user(site.plane, name, rules)

    def run(self, *more: str, code: int = 0, **variables: Any) -> tuple[int, str]:
        """(changed, output); an exit status other than `code`, or the token in the output, fails the test."""
        given = {"fabric_file": str(self._fabric), "k8s_topology_kubeconfig": str(self.kubeconfig), **variables}
        arguments = ["--inventory", "localhost,", "--tags", "topology", "--extra-vars", json.dumps(given), *more]
        done = ansible("ansible-playbook", "rackscale.nvlink.kubernetes", *arguments, check=False)
        output = done.stdout + done.stderr
        assert users.token_of(self.kubeconfig) not in output
        assert done.returncode == code, output
        return int(re.findall(r"changed=(\d+)", output)[0]), output


def test_the_playbook_changes_once_and_shows_no_secret(site: Site, tmp_path: Path) -> None:
    playbook = Playbook(site, tmp_path, "topology", [users.rule("*", ["*"], ["*"])])
    changed, output = playbook.run("--check", "--diff", "-vvv")
    assert changed == 1
    assert "nodeLabel: nvidia.com/gpu.clique" in output
    assert f"+  nvidia.com/gpu.clique: {TEXTS['r01t01']}" in output
    assert site.api.find(f"{KAI}/nvlink") is None
    assert playbook.run()[0] == 1
    assert site.levels() == [level.label for level in TOPOLOGY.levels]
    assert playbook.run("-vvv")[0] == 0
    daemon_set(site, "gfd", command=["gpu-feature-discovery"])
    label(site, "r01t01", {CLIQUE: "00000009-1111-4222-8333-444444444444.7"})
    changed, output = playbook.run(code=2)
    assert changed == 0
    assert "The label of r01t01 is 00000009-1111-4222-8333-444444444444.7" in output


@pytest.mark.long
@OLDEST_KUBERNETES
def test_a_missing_right_in_the_middle_is_named_and_the_next_run_continues(site: Site, tmp_path: Path) -> None:
    everything = [users.rule("*", ["*"], ["list"])]
    some = {**users.rule("", ["nodes"], ["patch"]), "resourceNames": ["r01t01"]}
    playbook = Playbook(site, tmp_path, "few-nodes", [*everything, some])
    _changed, output = playbook.run(code=2, k8s_topology_schedulers=["kai"])
    assert re.search(r"cannot patch resource .?.topologies.*give the account that permission", output)
    objects = users.rule("kai.scheduler", ["topologies"], ["patch", "create"])
    users.user(site.plane, "few-nodes", [*everything, objects, some])
    changed, output = playbook.run("-v", code=2, k8s_topology_schedulers=["kai"])
    assert changed == 0
    assert re.search(r"cannot patch resource .?.nodes.*give the account that permission", output)
    assert "k8s_apply_incomplete" in output
    assert "run again to continue" in output
    assert site.labels("r01t01")[CLIQUE] == TEXTS["r01t01"]
    assert site.api.find(f"{KAI}/nvlink") is None
    users.user(site.plane, "few-nodes", [*everything, objects, users.rule("", ["nodes"], ["patch"])])
    assert playbook.run(k8s_topology_schedulers=["kai"])[0] == 1
    assert {node: site.labels(node)[CLIQUE] for node in TEXTS} == TEXTS
    assert playbook.run(k8s_topology_schedulers=["kai"])[0] == 0


@pytest.mark.long
@OLDEST_KUBERNETES
def test_a_site_with_kubernetes_alone_is_verified_by_it(site: Site, tmp_path: Path) -> None:
    """test_verify.py has each fault of that layer."""
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(FABRIC))

    def verdict(kubeconfig: Path, **more: Any) -> dict[str, Any]:
        files = {"fabric_file": str(tmp_path / "fabric.json"), "verdict_file": str(tmp_path / "verdict.json")}
        given = {**files, "verify_kubeconfig": str(kubeconfig), "ansible_connection": "local", **more}
        command = ("-i", "localhost,", "rackscale.nvlink.verify", "--tags", "quick", "-e", json.dumps(given))
        done = ansible("ansible-playbook", *command, check=False)
        found: dict[str, Any] = json.loads((tmp_path / "verdict.json").read_text())
        assert (done.returncode == 0) is found["ok"], done.stdout + done.stderr
        return {**found, "failures": [(row["layer"], row["code"], row["trays"]) for row in found["failures"]]}

    site.apply()
    right = verdict(site.plane.kubeconfig)
    assert right["failures"] == []
    checked = {layer for layer, state in right["layers"].items() if state == "checked"}
    assert checked == {"fabric_file", "kubernetes"}
    label(site, "r02t01", {CLIQUE: TEXTS["r01t01"]})
    assert verdict(site.plane.kubeconfig)["failures"] == [("kubernetes", "k8s_clique_label_wrong", ["r02t01"])]
    # The administrator's kubeconfig, with a closed port.
    text = site.plane.kubeconfig.read_text().replace(site.plane.address(), "127.0.0.1:9")
    (tmp_path / "unreachable.yml").write_text(text)
    unreachable = verdict(tmp_path / "unreachable.yml", verify_timeout=3)
    assert unreachable["failures"] == [("kubernetes", "k8s_unreachable", [])]


PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - rackscale.nvlink.k8s_topology: {{fabric_file: "{fabric}", api: {{kubeconfig: "{kubeconfig}", timeout: 60}}}}
"""
VERSION = "client.authentication.k8s.io/v1"


def test_an_ansible_worker_logs_in_by_a_plugin_and_leaves_no_key(site: Site, tmp_path: Path) -> None:
    """Workers are forked and end without the exit handlers of Python."""
    pki, fabric, config = site.plane.directory / "pki", tmp_path / "fabric.json", tmp_path / "config"
    fabric.write_bytes(fabric_file.serialise(FABRIC))
    key, certificate = ((pki / f"admin.{kind}").read_text() for kind in ("key", "crt"))
    status = {"clientCertificateData": certificate, "clientKeyData": key}
    (tmp_path / "credential").write_text(
        json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})
    )
    (tmp_path / "plugin").write_text("#!/bin/sh\ncat credential\n")
    (tmp_path / "plugin").chmod(0o755)
    user = {"exec": {"apiVersion": VERSION, "command": "./plugin", "interactiveMode": "Never"}}
    certificates.write_kubeconfig(config, pki, f"https://{site.plane.address()}", user)
    (tmp_path / "play.yml").write_text(PLAY.format(fabric=fabric, kubeconfig=config))
    # Short, since Ansible makes a socket in it.
    with tempfile.TemporaryDirectory(prefix="nvlink-") as scratch:
        done = ansible("ansible-playbook", tmp_path / "play.yml", "--check", "--diff", "-vvv", TMPDIR=scratch)
        assert [path for path in Path(scratch).rglob("*") if path.is_file() or "login" in path.name] == []
    assert "failed=0" in done.stdout, done.stdout
    assert "PRIVATE KEY" not in done.stdout + done.stderr
