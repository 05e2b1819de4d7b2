# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DRA driver's preflight and checks: a correct cluster has no findings, and each fault has its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    checks,
    crds,
    device_plugins,
    node_selection,
    preflight,
    role_phases,
    stranded,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import LISTS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.dra import dra_cluster as world
from hypothesis import given
from hypothesis import strategies as st

DOMAINS = "computedomains.resource.nvidia.com"


def codes(found: list[dict[str, Any]]) -> list[str]:
    for row in found:
        assert row["message"].endswith(".")
        assert "\n" not in row["message"]
    return [row["code"] for row in found]


def test_a_correct_cluster_has_no_finding() -> None:
    assert preflight.preflight(world.empty(), world.trays(), world.plan()) == []
    assert preflight.preflight(world.installed(), world.trays(), world.plan()) == []
    assert checks.check(world.installed(), world.trays(), world.plan()) == []


def add(key: str, *items: Any) -> world.Change:
    return lambda cluster: cluster[key].extend(items)


def first_node(**more: Any) -> world.Change:
    return lambda cluster: cluster["nodes"].__setitem__(0, world.node("r01t01", **more))


def domains_crd(**more: Any) -> world.Change:
    return lambda cluster: cluster["crds"].update({DOMAINS: world.crd(DOMAINS, **more)})


OLD_RELEASE = {"meta.helm.sh/release-name": "old", "meta.helm.sh/release-namespace": "nvidia-dra"}
IMEX = world.daemon_set("nvidia-imex", "", namespace="kube-system", annotations={})
STATIC = {"name": "IMEX_CHANNEL_IDS", "value": "[0]"}
CHANNELS = world.daemon_set("plugin", "", annotations={}, containers=[{"env": [STATIC]}])
POLICY = {"metadata": {"name": "n", "namespace": world.NAMESPACE}}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (world.put(version="v1.31.9"), "dra_kubernetes_too_old", "needs 1.32"),
        (world.put(version="v1.34.1+k3s1"), "release_old", "1.34.2"),
        (world.put(groups={"apps": ["v1"]}), "dra_kubernetes_too_old", "not serve resource.k8s.io"),
        (
            lambda cluster: (world.put(groups={"apps": ["v1"]})(cluster), first_node(kubelet="v1.33.9")(cluster)),
            "dra_kubernetes_too_old",
            "not serve resource.k8s.io",
        ),
        (first_node(kubelet="v1.33.9"), "dra_kubernetes_too_old", "kubelet v1.33.9 of r01t01 cannot read the Resource"),
        (add("not_readable", "The account may not list x; allow it"), "dra_not_readable", "may not list x"),
        (lambda cluster: cluster["nodes"].pop(), "dra_node_not_selected", "Tray r01t02 should be node r01t02"),
        (
            lambda cluster: cluster["nodes"][0]["metadata"].update(labels={}),
            "dra_node_not_selected",
            "nvidia.com/gpu.present",
        ),
        (first_node(taints=[{"key": "x", "effect": "NoSchedule"}]), "dra_node_not_selected", "taint x:NoSchedule"),
        (first_node(runtime="containerd://1.7.28"), "dra_node_setup", "enable_cdi"),
        (first_node(runtime="cri-o://1.26.4"), "dra_node_setup", "CRI-O 1.27"),
        (first_node(runtime="docker://28.0.1"), "dra_node_setup", "has no CDI"),
        (add("daemon_sets", world.gfd()), "k8s_clique_label_writers", "by GPU Feature Discovery and the DRA driver"),
        (add("gpu_clusters", {"metadata": {"name": "gpus"}}), "dra_other_install", "GPUCluster gpus"),
        (
            add("device_classes", world.device_class("gpu.nvidia.com", OLD_RELEASE)),
            "dra_other_install",
            "The Helm release old in namespace nvidia-dra",
        ),
        (add("device_classes", world.device_class("gpu.nvidia.com", {})), "dra_other_install", "other than Helm"),
        (domains_crd(stale=True), "dra_crd_stale", "contains numNodes"),
        (domains_crd(managers=("helm", "argocd-controller")), "dra_other_install", "managed by argocd-controller"),
        (add("releases", world.secret(1, "pending-install")), "dra_release_failed", "helm uninstall"),
        (
            add("releases", world.secret(9, "deployed"), world.secret(10, "pending-upgrade")),
            "dra_release_failed",
            "helm rollback",
        ),
        (add("network_policies", POLICY), "dra_network_policy", "TCP 50000 and 50005"),
        (add("daemon_sets", IMEX), "imex_two_owners", "kube-system/nvidia-imex runs its own IMEX"),
        (add("daemon_sets", CHANNELS), "imex_two_owners", "imex.channelIDs"),
    ],
)
def test_each_fault_of_a_cluster_has_its_finding(change: Callable[..., Any], code: str, words: str) -> None:
    found = preflight.preflight(world.changed_by(change), world.trays(), world.plan())
    assert codes(found) == [code]
    assert words in found[0]["message"]


@pytest.mark.parametrize(
    ("tray", "code", "words"),
    [
        (
            {"fabric": world.fabric(driver_version="570.124.06"), "imex": world.imex(version="570.124.06")},
            "dra_driver_unsuitable",
            "570.158.01",
        ),
        ({"fabric": None}, "dra_not_readable", "no GPU facts of r01t01"),
        ({"imex": world.imex(version="580.82.07")}, "imex_version_mismatch", "IMEX 580.82.07 and driver 580.173.02"),
        ({"imex": world.imex(channels={"major": None})}, "dra_driver_unsuitable", "nvidia-caps-imex-channels"),
        (
            {
                "fabric": world.fabric(
                    attached=False, clique=None, findings=[{"code": "gpu_lost", "message": "GPU 2 is lost; reboot."}]
                )
            },
            "dra_clique_unknown",
            "GPU 2 is lost; reboot.",
        ),
        (
            {"fabric": world.fabric(gpus=[{"index": 3, "fabric": {"health": {"summary": "unhealthy"}}}])},
            "fabric_degraded",
            "GPU 3 of tray r01t01",
        ),
        ({"imex": world.imex(unit={"load": "loaded", "active": "active"})}, "imex_unit_down", "driver_managed"),
        ({"imex": world.imex(unit={"load": "loaded", "active": "inactive"})}, "imex_unit_down", "not masked"),
        (
            {"imex": world.imex(owners=[{"owner": "prolog", "why": "a prolog of Slurm starts it"}])},
            "imex_two_owners",
            "a prolog of Slurm",
        ),
        ({"root": False}, "dra_node_setup", "below /"),
    ],
)
def test_each_fault_of_a_tray_has_its_finding(tray: dict[str, Any], code: str, words: str) -> None:
    found = preflight.preflight(world.empty(), world.trays(1, **tray), world.plan())
    assert codes(found) == [code]
    assert words in found[0]["message"]


@pytest.mark.parametrize(
    ("imex", "words"),
    [
        (world.hosts_imex(), None),
        (world.imex(), "nvidia-imex.service is inactive"),
        (world.hosts_imex(config={"settings": {}}), "IMEX_CMD_ENABLED=1"),
        (world.hosts_imex(config={"settings": {"IMEX_CMD_ENABLED": "1"}}), "IMEX_CMD_UNIX_DOMAIN_PATH="),
        (world.hosts_imex(ready=False), "not READY"),
    ],
)
def test_host_managed_needs_a_running_service_with_its_socket(imex: dict[str, Any], words: str | None) -> None:
    plan = world.plan(shape="host_managed", external_label_writer=True)
    found = preflight.preflight(world.empty(), world.trays(1, imex=imex), plan)
    assert codes(found) == (["imex_unit_down"] if words else [])
    assert (words or "") in (found[0]["message"] if found else "")


def test_two_drivers_in_a_clique_are_an_error_of_the_clique() -> None:
    trays = world.trays()
    trays["r01t02"] = world.tray("r01t02", world.fabric(driver_version="580.95.05"), world.imex(version="580.95.05"))
    found = preflight.preflight(world.empty(), trays, world.plan())
    assert codes(found) == ["dra_driver_unsuitable"]
    assert found[0]["clique"] == world.CLIQUE


def test_a_clique_larger_than_an_imex_domain_is_a_finding_unless_the_limit_is_raised() -> None:
    cluster = {**world.empty(), "nodes": [world.node(name) for name in world.names(20)]}
    assert codes(preflight.preflight(cluster, world.trays(20), world.plan())) == ["dra_clique_size"]
    env = [{"name": "MAX_NODES_PER_IMEX_DOMAIN", "value": "36"}]
    own = {**world.LABELLED, "controller": {"containers": {"computeDomain": {"env": env}}}}
    assert preflight.preflight(cluster, world.trays(20), world.plan(own)) == []


def test_the_clique_label_needs_exactly_one_writer() -> None:
    nobody = world.plan({})
    assert codes(preflight.preflight(world.empty(), world.trays(), nobody)) == ["k8s_clique_label_writers"]
    with_gfd = world.changed_by(add("daemon_sets", world.gfd()))
    assert preflight.preflight(with_gfd, world.trays(), nobody) == []
    idle = copy.deepcopy(with_gfd)
    idle["daemon_sets"][0]["status"]["desiredNumberScheduled"] = 0
    assert codes(preflight.preflight(idle, world.trays(), nobody)) == ["k8s_clique_label_writers"]
    assert preflight.preflight(world.empty(), world.trays(), world.plan({}, external_label_writer=True)) == []


def test_a_release_of_25_12_is_upgraded_and_a_newer_one_not_downgraded() -> None:
    old = {**world.installed(), "daemon_sets": [world.daemon_set(chart="nvidia-dra-driver-gpu-25.12.0")]}
    assert codes(preflight.preflight(old, world.trays(), world.plan())) == ["dra_release_old"]
    assert preflight.keeps_old_name(old, world.plan())
    assert not preflight.keeps_old_name(world.installed(), world.plan())
    newer = {**world.installed(), "daemon_sets": [world.daemon_set(chart="dra-driver-nvidia-gpu-0.6.0")]}
    assert codes(preflight.preflight(newer, world.trays(), world.plan())) == ["dra_release_failed"]


def test_the_owner_of_imex_does_not_change_while_compute_domains_exist() -> None:
    live = {**world.installed(), "compute_domains": [world.domain()]}
    plan = world.plan(shape="host_managed", external_label_writer=True)
    found = preflight.preflight(live, world.trays(imex=world.hosts_imex()), plan)
    assert codes(found) == ["jobs_running"]
    assert "jobs/cd" in found[0]["message"]
    assert preflight.preflight(live, world.trays(), world.plan()) == []
    # The plugin's arguments name the IMEX mode; a missing DeviceClass is another fault.
    live["device_classes"].pop()
    assert preflight.preflight(live, world.trays(), world.plan()) == []
    host = [{"name": "compute-domains", "env": [{"name": "IMEX_MODE", "value": "hostManaged"}]}]
    live["daemon_sets"] = [world.daemon_set(containers=host)]
    assert codes(preflight.preflight(live, world.trays(), world.plan())) == ["jobs_running"]
    live["daemon_sets"] = []
    assert codes(preflight.preflight(live, world.trays(), world.plan())) == ["jobs_running"]


GPU_CLUSTERS = [{"metadata": {"name": "gpu-cluster"}}]


def test_gpu_cluster_leaves_the_chart_to_gpu_operator() -> None:
    plan = world.plan(shape="gpu_cluster")
    assert codes(preflight.preflight(world.empty(), world.trays(), plan)) == ["dra_other_install"]
    theirs = world.put(gpu_clusters=GPU_CLUSTERS)
    assert preflight.preflight(world.changed_by(theirs), world.trays(), plan) == []
    both = world.changed_by(theirs, world.installed())
    assert codes(preflight.preflight(both, world.trays(), plan)) == ["dra_other_install"]


def test_without_trays_the_nodes_are_those_with_gpus() -> None:
    cluster = world.changed_by(add("nodes", {"metadata": {"name": "ctl", "labels": {}}}))
    assert sorted(preflight.expected_nodes(cluster, {})) == world.names()
    assert codes(preflight.preflight({**cluster, "nodes": []}, {}, world.plan())) == ["dra_node_not_selected"]


# --- Where the plugin runs.

BARE = {"metadata": {"name": "n", "labels": {}}}


def tainted(key: str, effect: str = "NoSchedule", **more: str) -> dict[str, Any]:
    return world.node("n", taints=[{"key": key, "effect": effect, **more}])


@pytest.mark.parametrize(
    ("plugin", "node", "words"),
    [
        ({}, world.node("n"), None),
        # null removes the chart's default, and a mapping is merged with it.
        ({"affinity": None}, BARE, None),
        ({"affinity": {"podAffinity": {}}}, BARE, "none of the labels"),
        ({"tolerations": None}, tainted("nvidia.com/gpu"), "not tolerated"),
        ({"nodeSelector": {"zone": "a"}}, world.node("n"), "zone=a"),
        ({"nodeSelector": {"zone": "a"}}, world.node("n", labels={"zone": "a"}), None),
        ({}, tainted("nvidia.com/gpu"), None),
        ({}, tainted("team", "PreferNoSchedule"), None),
        ({"tolerations": [{"key": "team", "value": "a"}]}, tainted("team", value="b"), "team:NoSchedule"),
        ({"tolerations": [{"operator": "Exists"}]}, tainted("x", "NoExecute"), None),
        ({}, tainted("node.kubernetes.io/not-ready", "NoExecute"), None),
    ],
)
def test_where_the_plugin_runs(plugin: dict[str, Any], node: dict[str, Any], words: str | None) -> None:
    reason = node_selection.why_excluded(node, plugin)
    assert (reason is None) == (words is None)
    assert (words or "") in (reason or "")


@pytest.mark.parametrize(
    ("row", "matches"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "a", "operator": "In", "values": ["2"]}, False),
        ({"key": "b", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "b", "operator": "Exists"}, False),
        ({"key": "b", "operator": "DoesNotExist"}, True),
        ({"key": "a", "operator": "Gt", "values": ["0"]}, True),
        ({"key": "a", "operator": "Lt", "values": ["1"]}, False),
        ({"key": "b", "operator": "Gt", "values": ["0"]}, False),
    ],
)
def test_operators_of_affinity(row: dict[str, Any], matches: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [row]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    reason = node_selection.why_excluded({"metadata": {"labels": {"a": "1"}}}, {"affinity": affinity})
    assert (reason is None) == matches


# --- CRDs.


def test_a_crd_may_be_taken_over_from_an_allowed_manager() -> None:
    live = {DOMAINS: world.crd(DOMAINS, managers=("argocd-controller",))}
    assert codes(crds.evaluate(live)) == ["dra_other_install"]
    assert crds.evaluate(live, managers=["argocd-controller"]) == []


def test_a_stale_crd_of_gpu_operator_is_fixed_by_its_upgrade() -> None:
    cluster = world.installed()
    cluster["crds"][DOMAINS] = world.crd(DOMAINS, stale=True)
    cluster["gpu_clusters"] = GPU_CLUSTERS
    found = preflight.preflight(cluster, world.trays(), world.plan(shape="gpu_cluster"))
    stale = next(row for row in found if row["code"] == "dra_crd_stale")
    assert "upgrade it" in stale["message"]
    assert "tag crds" not in stale["message"]


def test_a_stale_crd_is_found_with_and_without_the_charts() -> None:
    fresh = yaml.safe_load((world.FOLDER / "crds" / "computedomains.yaml").read_text())
    stale = copy.deepcopy(fresh)
    spec = stale["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["numNodes"], spec["required"] = {"type": "integer"}, ["channel", "numNodes"]
    assert crds.evaluate({DOMAINS: fresh}) == crds.evaluate({DOMAINS: fresh}, {DOMAINS: fresh}) == []
    for wanted in (None, {DOMAINS: fresh}):
        assert codes(crds.evaluate({DOMAINS: stale}, wanted)) == ["dra_crd_stale"]


# --- After the install.

CONTROLLER = f"{world.NAMESPACE}/{world.RELEASE}-controller"


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (world.put(daemon_sets=[]), "dra_release_failed", "tag release"),
        (world.put(daemon_sets=[world.daemon_set(count=1)]), "dra_node_not_selected", "1 of 2 nodes"),
        (world.put(daemon_sets=[world.daemon_set(ready=1)]), "dra_plugin_unready", "Of 2 pods"),
        (lambda cluster: cluster["daemon_sets"][0].update(status={}), "dra_plugin_unready", "has not observed"),
        (world.put(deployments=[world.controller(0)]), "dra_plugin_unready", f"no available replica ({CONTROLLER})"),
        (world.put(deployments=[]), "dra_plugin_unready", "there is no Deployment of it"),
        (lambda cluster: cluster["device_classes"].pop(), "dra_release_failed", "compute-domain-daemon.nvidia.com"),
        (lambda cluster: cluster["slices"].pop(), "dra_node_outdated", "no ResourceSlice of"),
        (
            lambda cluster: cluster["slices"].__setitem__(0, world.slices("r01t01", "channel-0")),
            "dra_node_outdated",
            "without channel-0 and daemon-0 on r01t01",
        ),
    ],
)
def test_each_fault_of_an_install_has_its_finding(change: Callable[..., Any], code: str, words: str) -> None:
    found = checks.check(world.changed_by(change, world.installed()), world.trays(), world.plan())
    assert codes(found) == [code]
    assert words in found[0]["message"]


def test_a_plugin_without_pods_names_the_missing_label() -> None:
    cluster = world.changed_by(world.put(daemon_sets=[world.daemon_set(count=0)]), world.installed())
    for node in cluster["nodes"]:
        node["metadata"]["labels"] = {"nvidia.com/gpu.clique": world.CLIQUE}
    found = checks.check(cluster, world.trays(), world.plan())
    assert codes(found) == ["dra_node_not_selected"]
    assert "r01t01" in found[0]["message"]
    assert "nvidia.com/gpu.present=true" in found[0]["message"]


def test_gpus_by_dra_are_published_too() -> None:
    plan = world.plan(shape="all_dra")
    found = checks.check(world.installed(), world.trays(), plan)
    assert codes(found) == ["dra_release_failed", "dra_node_outdated"]
    cluster = world.changed_by(add("device_classes", world.device_class("gpu.nvidia.com")), world.installed())
    cluster["slices"] += [world.slices(name, "gpu-0", driver="gpu.nvidia.com") for name in world.names()]
    assert checks.check(cluster, world.trays(), plan) == []


def test_claims_are_compared_before_and_after() -> None:
    before = world.changed_by(world.put(claims=[world.claim("a"), world.claim("b")]), world.installed())
    claims = checks.claims(before)
    assert [claim.name for claim in claims] == ["a", "b"]
    assert checks.lost_claims(claims, before) == []
    after = world.changed_by(world.put(claims=[world.claim("a", reserved=False)]), before)
    found = checks.lost_claims(claims, after)
    assert codes(found) == ["dra_plugin_unready"]
    assert "jobs/a was in use before and is no longer reserved" in found[0]["message"]


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "status", "name", "labels", "daemons", "devices", "config", "x"]),
            below,
            max_size=4,
        )
    ),
    max_leaves=10,
)
objects = st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), json, max_size=3)


@given(st.data())
def test_any_answer_of_a_cluster_is_checked_without_an_exception(data: st.DataObject) -> None:
    cluster = world.installed()
    for key in (*LISTS, "nodes", "releases"):
        cluster[key] = [*cluster[key], data.draw(objects)]
    cluster["crds"][DOMAINS] = data.draw(st.none() | objects)
    preflight.preflight(cluster, world.trays(), world.plan())
    preflight.preflight(cluster, {}, world.plan())
    checks.check(cluster, world.trays(), world.plan())
    device_plugins.check(cluster, {}, world.plan(shape="all_dra"))
    checks.blockers(cluster)
    stranded.free_nodes(cluster, {})


def test_equal_findings_of_many_trays_are_one_line() -> None:
    """As of 1,008 trays with three causes."""
    found = [
        finding(code, f"Tray t{number} has {what}.", tray=f"t{number}")
        for number in range(1, 1009)
        for code, what in (("dra_node_setup", "no program"), ("imex_unit_down", "no service"))
    ]
    result = role_phases.messages([*found, finding("dra_node_setup", "Node a is old.", node="a")], True)
    assert result["msg"] == "Tray t[1-1008] has no program. (and 2 more errors, see the warnings)"
    assert result["warnings"] == [
        "imex_unit_down: Tray t[1-1008] has no service.",
        "dra_node_setup: Node a is old.",
    ]
