# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's real control plane: its API, its failures, and the stand-ins for the driver's pods."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from nvlab import linux, network, paths, scenario
from nvlab.kubernetes import chart, domains, driver, nodes, plane, users
from nvlab.kubernetes.api import ApiError
from nvlab.kubernetes.plane import ControlPlane

from .commands import ansible, environment
from .conftest import LabFactory, lab_command
from .test_verify_kubernetes import FOUR, fabric, verify

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes]

CLIQUES = f"apis/{domains.VERSION}/computedomaincliques"
CLAIMS = f"{domains.RESOURCE}/resourceclaims"
DEFAULT = f"apis/{domains.VERSION}/namespaces/default/computedomains"
DEPLOYMENTS = "apis/apps/v1/namespaces/default/deployments"
ONLY_DOMAINS = ("--set", "resources.gpus.enabled=false")
DOMAIN = {
    "apiVersion": domains.VERSION,
    "kind": "ComputeDomain",
    "metadata": {"name": "work"},
    "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "work-channel"}}},
}
# Prints the observations of a source, or its error message.
OBSERVE = """
import json, sys
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources
try:
    result = sources.observe("kubernetes", json.loads(sys.argv[1]), "2026-11-21T05:00:00Z")
except NvlinkError as error:
    sys.exit(str(error))
print(json.dumps({row.tray: row.identity for row in result.observations}))
"""
Found = TypeVar("Found")


def until(what: str, condition: Callable[[], Found], seconds: float = 30.0) -> Found:
    """Wait until `condition` returns something true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.05)
    return found


@pytest.fixture
def trays(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the Nodes of four trays in two cliques, and a driver that does nothing unusual."""
    plane.add_trays(control_plane, scenario.parse(FOUR))
    yield control_plane
    (control_plane.directory / driver.FILE).unlink(missing_ok=True)
    for name in names(control_plane):
        control_plane.api().delete(f"{nodes.PATH}/{name}")


@pytest.fixture
def release(trays: ControlPlane, tmp_path: Path) -> Iterator[ControlPlane]:
    """The newest chart, for ComputeDomains alone, with its pods running."""
    folder = chart.folder(tmp_path)
    trays.helm("install", "dra", folder, "--namespace", "dra", "--create-namespace", *ONLY_DOMAINS)
    until("a slice for each tray", lambda: len(slices(trays)) == 4)
    until("the controller", lambda: available(trays))
    yield trays
    trays.helm("uninstall", "dra", "--namespace", "dra", check=False)
    until("no slices", lambda: not slices(trays))


def names(running: ControlPlane) -> list[str]:
    return [node["metadata"]["name"] for node in running.api().items(nodes.PATH)]


def slices(running: ControlPlane) -> list[str]:
    return sorted(row["metadata"]["name"] for row in running.api().items(domains.SLICES))


def available(running: ControlPlane) -> bool:
    rows = running.api().items("apis/apps/v1/namespaces/dra/deployments")
    return bool(rows) and all(row["status"].get("availableReplicas") for row in rows)


def label(running: ControlPlane, node: str) -> str | None:
    found: str | None = running.api().get(f"{nodes.PATH}/{node}")["metadata"]["labels"].get(nodes.CLIQUE)
    return found


def observe(running: ControlPlane, kubeconfig: Path, **options: Any) -> Any:
    """The observations of the source kubernetes, {tray: identity}, or its error message."""
    given = json.dumps({"kubeconfig": str(kubeconfig), "timeout": 5, **options})
    done = running.run(
        "env",
        f"PYTHONPATH={environment()['ANSIBLE_COLLECTIONS_PATH']}",
        sys.executable,
        "-c",
        OBSERVE,
        given,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def test_every_process_runs_and_nodes_stay_alive(trays: ControlPlane) -> None:
    parts = trays.components()
    assert set(parts) == set(plane.COMPONENTS)
    assert all(entry["running"] for entry in parts.values())
    assert sum(entry["memory_mb"] for entry in parts.values()) < 1500
    version = json.loads(trays.kubectl("version", "--output=json"))
    assert version["serverVersion"]["gitVersion"] == f"v{trays.version}"
    assert "resource.k8s.io/v1" in trays.kubectl("api-versions").split()
    leases = "apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    until("kwok renews the nodes' leases", lambda: len(trays.api().items(leases)) == 4)
    assert trays.kubectl("get", "nodes", "--no-headers").count(" Ready ") == 4


def test_an_api_server_that_stops_in_the_middle_comes_back_with_everything(trays: ControlPlane) -> None:
    before = names(trays)
    trays.stop("kube-apiserver")
    assert not trays.components()["kube-apiserver"]["running"]
    refused = trays.run("kubectl", "get", "nodes", check=False)
    assert refused.returncode != 0
    assert "refused" in refused.stderr
    trays.start("kube-apiserver")
    assert names(trays) == before


@pytest.mark.parametrize(
    ("make_kubeconfig", "text"),
    [
        (users.expired, "Unauthorized"),
        (users.wrong_authority, "certificate signed by unknown authority"),
        (users.unreachable, "refused"),
        (users.broken, "error loading config file"),
    ],
)
def test_kubectl_is_refused_as_a_site_would_be(
    trays: ControlPlane, make_kubeconfig: Callable[[ControlPlane], Path], text: str
) -> None:
    refused = trays.run("kubectl", "--kubeconfig", make_kubeconfig(trays), "get", "nodes", check=False)
    assert refused.returncode != 0
    assert text in refused.stderr


def test_a_user_may_do_what_its_rules_allow_and_nothing_else(trays: ControlPlane) -> None:
    reader = users.user(trays, "reader", [users.rule("", ["nodes"], ["get", "list"])])
    assert trays.kubectl("--kubeconfig", reader, "get", "nodes", "--output=name").count("node/") == 4
    refused = trays.run("kubectl", "--kubeconfig", reader, "label", "node", "r01t01", "a=b", check=False)
    assert 'cannot patch resource "nodes"' in refused.stderr


def test_the_source_reads_a_real_api_page_by_page(trays: ControlPlane) -> None:
    observed = observe(trays, trays.kubeconfig)
    assert observed == observe(trays, trays.kubeconfig, page_size=1) == observe(trays, trays.kubeconfig, page_size=3)
    cliques = {tray: f"{identity[0]}.{identity[1]}" for tray, identity in observed.items()}
    assert cliques == {name: label(trays, name) for name in names(trays)}
    assert len(set(cliques.values())) == 2


@pytest.mark.parametrize(
    ("make_kubeconfig", "text"),
    [
        (users.expired, "HTTP 401"),
        (lambda running: users.user(running, "no-list", [users.rule("", ["nodes"], ["get"])]), "verb list on nodes"),
        (users.wrong_authority, "certificate that is not accepted"),
        (users.unreachable, "refuses the connection"),
        (users.broken, "is not valid YAML"),
    ],
)
def test_the_source_is_refused_in_one_sentence_without_a_secret(
    trays: ControlPlane, make_kubeconfig: Callable[[ControlPlane], Path], text: str
) -> None:
    kubeconfig = make_kubeconfig(trays)
    sentence = observe(trays, kubeconfig)
    assert isinstance(sentence, str)
    assert text in sentence
    assert "\n" not in sentence
    secrets = re.findall(r"(?m)^\s*(?:token|client-key-data|client-certificate-data): (\S+)", kubeconfig.read_text())
    assert not [secret for secret in secrets if secret in sentence or secret[:40] in sentence]


def test_the_source_names_an_api_server_that_stopped(trays: ControlPlane) -> None:
    trays.stop()
    try:
        assert "refuses the connection" in observe(trays, trays.kubeconfig)
    finally:
        trays.start()


@pytest.mark.parametrize("major", ["4", "3"])
def test_both_helms_install_upgrade_and_uninstall_the_chart(trays: ControlPlane, tmp_path: Path, major: str) -> None:
    folder = chart.folder(tmp_path)
    common = ("dra", folder, "--namespace", "dra", "--create-namespace")
    refused = trays.helm("install", *common, major=major, check=False)
    assert refused.returncode != 0
    assert "gpuResourcesEnabledOverride=true" in refused.stderr
    trays.helm("install", *common, *ONLY_DOMAINS, major=major)
    pods = "{.items[0].status.numberReady}"
    until("pods", lambda: trays.kubectl("get", "ds", "-n", "dra", "-o", f"jsonpath={pods}") == "4")
    until("slices of domains", lambda: len(slices(trays)) == 4)
    trays.helm("upgrade", *common, "--set", "gpuResourcesEnabledOverride=true", major=major)
    until("slices of GPUs too", lambda: len(slices(trays)) == 8)
    trays.helm("uninstall", "dra", "--namespace", "dra", major=major)
    until("no slices", lambda: not slices(trays))


@pytest.mark.parametrize("major", ["4", "3"])
def test_the_registry_serves_charts_by_their_exact_version(
    control_plane: ControlPlane, tmp_path: Path, major: str
) -> None:
    reference = control_plane.publish(chart.folder(tmp_path))
    assert control_plane.publish(chart.folder(tmp_path, "25.12.0")).endswith(chart.OLD_NAME)
    trusting = ("--ca-file", control_plane.authority)
    version = yaml.safe_load((chart.folder(tmp_path / "again") / "Chart.yaml").read_text())["version"]
    shown = control_plane.helm("show", "chart", reference, "--version", version, *trusting, major=major).stdout
    assert yaml.safe_load(shown)["version"] == version
    wrong = control_plane.helm("show", "chart", reference, "--version", "9.9.9", *trusting, major=major, check=False)
    assert wrong.returncode != 0
    untrusted = control_plane.helm("show", "chart", reference, "--version", version, major=major, check=False)
    assert "certificate" in untrusted.stderr
    repository = "https://198.51.100.3:5443/repository"
    old = ("show", "chart", chart.OLD_NAME, "--repo", repository, "--version", "25.12.0", *trusting)
    assert yaml.safe_load(control_plane.helm(*old, major=major).stdout)["name"] == chart.OLD_NAME


def test_programs_outside_the_labs_network_reach_it_too(trays: ControlPlane, tmp_path: Path) -> None:
    def kubectl(kubeconfig: Path) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "--kubeconfig", kubeconfig, "get", "nodes", "--output=name"]
        return subprocess.run(command, env=trays.environment(), capture_output=True, text=True, check=False)

    assert kubectl(trays.outside).stdout.count("node/") == 4
    assert "Unauthorized" in kubectl(users.outside(trays, users.expired(trays))).stderr
    assert "unknown authority" in kubectl(users.outside(trays, users.wrong_authority(trays))).stderr
    assert "refused" in kubectl(users.outside(trays, users.unreachable(trays))).stderr
    trays.publish(chart.folder(tmp_path))
    reference = f"oci://{trays.outside_address('registry')}/charts/{chart.NAME}"
    command = ["helm", "pull", reference, "--ca-file", trays.authority, "--destination", tmp_path]
    subprocess.run(command, env=trays.environment(), check=True, capture_output=True)
    assert [*tmp_path.glob("*.tgz")]


def test_a_node_without_the_labels_of_feature_discovery_gets_no_plugin(release: ControlPlane) -> None:
    gone = dict.fromkeys([*nodes.NFD, "nvidia.com/gpu.present"])
    release.api().patch(f"{nodes.PATH}/r01t04", {"metadata": {"labels": gone}})
    until("the slice goes with the pod", lambda: len(slices(release)) == 3)
    assert not [name for name in slices(release) if name.startswith("r01t04")]


def test_the_charts_admission_policy_matches_no_pod(release: ControlPlane) -> None:
    """It is meant to keep a plugin to its own node's slices, and names an account that no pod runs as."""
    name = "{.items[0].spec.template.spec.serviceAccountName}"
    account = release.kubectl("get", "daemonsets", "-n", "dra", "-o", f"jsonpath={name}")
    policy = "{.items[0].spec.matchConditions[0].expression}"
    condition = release.kubectl("get", "validatingadmissionpolicies", "-o", f"jsonpath={policy}")
    assert f'"system:serviceaccount:dra:{account.removesuffix("-kubeletplugin")}"' in condition
    # No token of a pod on a node, so the policy would refuse this if it were evaluated.
    one = slices(release)[0]
    release.kubectl("delete", "resourceslice", one, "--as", f"system:serviceaccount:dra:{account}")
    until("the plugin publishes it again", lambda: one in slices(release))


def test_a_plugin_that_crashes_is_not_ready_and_publishes_nothing(release: ControlPlane) -> None:
    driver.set_faults(release.directory, "r01t03", {"plugin": "crash"})
    until("the slice goes", lambda: len(slices(release)) == 3)
    ready = "{.items[0].status.numberReady}"
    until(
        "the DaemonSet reports it", lambda: release.kubectl("get", "ds", "-n", "dra", "-o", f"jsonpath={ready}") == "3"
    )
    assert "CrashLoopBackOff" in release.kubectl("get", "pods", "-n", "dra")
    driver.set_faults(release.directory, "r01t03", {"plugin": "silent"})
    until("it is ready", lambda: release.kubectl("get", "ds", "-n", "dra", "-o", f"jsonpath={ready}") == "4")
    assert len(slices(release)) == 3
    driver.set_faults(release.directory, "r01t03", {"plugin": "ok"})
    until("the slice comes back", lambda: len(slices(release)) == 4)


def workload(replicas: int, trays: list[str]) -> dict[str, Any]:
    """A Deployment whose pods claim a channel on some trays."""
    only = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": trays}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only]}}}
    container = {"name": "work", "image": "work", "resources": {"claims": [{"name": "channel"}]}}
    claims = [{"name": "channel", "resourceClaimTemplateName": "work-channel"}]
    pod = {"affinity": affinity, "containers": [container], "resourceClaims": claims}
    labels = {"app": "work"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "work"}, "spec": spec}


def test_a_compute_domain_lives_and_ends_as_with_the_driver(release: ControlPlane) -> None:
    api = release.api()
    uid = api.create(DEFAULT, DOMAIN)["metadata"]["uid"]
    template = f"{domains.RESOURCE}/namespaces/default/resourceclaimtemplates/work-channel"
    until("the claim template", lambda: api.find(template))
    # Empty, and yet Ready: the status that the driver sets for numNodes 0.
    until("the status", lambda: api.get(f"{DEFAULT}/work").get("status") == {"status": "Ready"})
    api.create(DEPLOYMENTS, workload(3, ["r01t01", "r01t02", "r01t03"]))
    rows = until("a clique each", lambda: [row for row in [cliques(release)] if sum(map(len, row.values())) == 3][:1])[
        0
    ]
    assert rows == {
        f"{uid}.{label(release, 'r01t01')}": {"r01t01": "Ready", "r01t02": "Ready"},
        f"{uid}.{label(release, 'r01t03')}": {"r01t03": "Ready"},
    }
    assert api.get(f"{nodes.PATH}/r01t01")["metadata"]["labels"][domains.KEY] == uid
    driver.set_faults(release.directory, "r01t02", {"daemon": "not_ready"})
    until("NotReady", lambda: api.get(f"{DEFAULT}/work")["status"]["status"] == "NotReady")
    driver.set_faults(release.directory, "r01t02", {"daemon": "ok"})
    until("Ready", lambda: api.get(f"{DEFAULT}/work")["status"]["status"] == "Ready")
    # Without the controller its finalizer keeps the domain.
    driver.set_faults(release.directory, None, {"controller": "stopped"})
    time.sleep(2 * driver.PERIOD)
    api.delete(f"{DEPLOYMENTS}/work")
    api.delete(f"{DEFAULT}/work")
    until("no claim of the workload", lambda: not api.items(f"{domains.RESOURCE}/namespaces/default/resourceclaims"))
    assert api.get(f"{DEFAULT}/work")["metadata"]["finalizers"] == [domains.KEY]
    driver.set_faults(release.directory, None, {"controller": "ok"})
    until(
        "the domain is gone",
        lambda: not api.items(domains.DOMAINS) and not api.items(CLIQUES) and not api.items(CLAIMS),
    )
    assert domains.KEY not in api.get(f"{nodes.PATH}/r01t01")["metadata"]["labels"]
    assert api.find(template) is None


def test_a_compute_domain_follows_its_workload_and_a_node_that_reboots(release: ControlPlane, tmp_path: Path) -> None:
    """It grows, shrinks, gets a lost daemon back, and a node that was off joins it again; verify names that node."""
    api = release.api()
    (tmp_path / "fabric.json").write_text(json.dumps(fabric({name: label(release, name) for name in names(release)})))
    uid = api.create(DEFAULT, DOMAIN)["metadata"]["uid"]
    pair, clique = ["r01t01", "r01t02"], f"{uid}.{label(release, 'r01t01')}"
    api.create(DEPLOYMENTS, workload(1, pair))

    def members() -> dict[str, str]:
        return cliques(release).get(clique, {})

    def daemons() -> set[str]:
        found = api.items(f"api/v1/namespaces/dra/pods?labelSelector={domains.KEY}%3D{uid}")
        return {pod["metadata"]["uid"] for pod in found if driver.is_ready(pod)}

    def scale(replicas: int) -> None:
        api.patch(f"{DEPLOYMENTS}/work", {"spec": {"replicas": replicas}})
        until(f"{replicas} of {len(pair)} nodes", lambda: list(members().values()) == ["Ready"] * replicas)

    for replicas in (1, 2, 1, 2):
        scale(replicas)
        labelled = [name for name in pair if domains.KEY in api.get(f"{nodes.PATH}/{name}")["metadata"]["labels"]]
        assert sorted(members()) == labelled
    before = daemons()
    release.kubectl("delete", "pod", "-n", "dra", "--field-selector=spec.nodeName=r01t02", "-l", f"{domains.KEY}={uid}")
    until("another daemon", lambda: len(daemons()) == len(daemons() - before) + 1 == len(pair))
    until("all are Ready", lambda: members() == dict.fromkeys(pair, "Ready"))

    boot = api.get(f"{nodes.PATH}/r01t02")["status"]["nodeInfo"]["bootID"]
    driver.set_faults(release.directory, "r01t02", {"power": "off"})
    until("the node is lost", lambda: not nodes.is_ready(api.get(f"{nodes.PATH}/r01t02")))
    # The domain does not report it, so verify reads the node.
    assert (members(), api.get(f"{DEFAULT}/work")["status"]["status"]) == (dict.fromkeys(pair, "Ready"), "Ready")
    found, _verdict = verify(release, tmp_path)
    assert found == [("kubernetes", "node_not_ready", ["r01t02"])]
    driver.set_faults(release.directory, "r01t02", {"power": "on"})
    asked = time.monotonic()
    stages = {
        "node": lambda: _schedulable(api.get(f"{nodes.PATH}/r01t02"), boot),
        "plugin": lambda: f"r01t02-{domains.DOMAIN_DRIVER}" in slices(release),
        "label": lambda: f"{uid}.{label(release, 'r01t02')}" == clique,
        "daemon": lambda: members().get("r01t02") == "Ready",
        "domain": lambda: api.get(f"{DEFAULT}/work")["status"]["status"] == "Ready",
    }
    for stage, reached in stages.items():
        until(stage, reached)
        print(f"{stage}: {time.monotonic() - asked:.1f} s after the reboot")
    assert members() == dict.fromkeys(pair, "Ready")
    found, _verdict = verify(release, tmp_path)
    assert found == []
    api.delete(f"{DEPLOYMENTS}/work")
    api.delete(f"{DEFAULT}/work")
    until("the domain is gone", lambda: not api.items(domains.DOMAINS) and not api.items(CLIQUES))


def _schedulable(node: dict[str, Any], before: str) -> bool:
    """Whether a node has booted since (its boot ID is another, however reachable it was) and takes pods again."""
    return node["status"]["nodeInfo"]["bootID"] != before and nodes.is_ready(node) and not node["spec"].get("taints")


def cliques(running: ControlPlane) -> dict[str, dict[str, str]]:
    rows = running.api().items(CLIQUES)
    return {row["metadata"]["name"]: {one["nodeName"]: one["status"] for one in row["daemons"]} for row in rows}


def test_the_plugin_removes_the_label_that_it_wrote(trays: ControlPlane, tmp_path: Path) -> None:
    driver.set_faults(trays.directory, None, {"gfd": "off"})
    was = label(trays, "r01t01")
    trays.api().patch(
        f"{nodes.PATH}/r01t01",
        {"metadata": {"labels": {nodes.CLIQUE: None}, "annotations": {driver.REPORTED_CLIQUE: was}}},
    )
    writes = "kubeletPlugin.containers.computeDomains.gpuCliqueLabelEnabled=true"
    folder = chart.folder(tmp_path)
    trays.helm("install", "dra", folder, "-n", "dra", "--create-namespace", *ONLY_DOMAINS, "--set", writes)
    until("the label", lambda: label(trays, "r01t01") == was)
    trays.helm("uninstall", "dra", "-n", "dra")
    until("no label", lambda: label(trays, "r01t01") is None and not slices(trays))


def test_the_driver_changes_no_node_that_replaced_one_it_had_read(trays: ControlPlane, tmp_path: Path) -> None:
    """Else a plugin that ends late on a busy machine would remove a label of the next test."""
    made = driver.Driver(trays.api(), tmp_path)
    made.known()
    was = label(trays, "r01t01")
    trays.api().delete(f"{nodes.PATH}/r01t01")
    trays.api().create(nodes.PATH, next(nodes.of_scenario(scenario.parse(FOUR), trays.version)))
    with pytest.raises(ApiError) as raised:
        made.label("r01t01", {nodes.CLIQUE: None})
    assert raised.value.status == 422
    assert label(trays, "r01t01") == was
    made.known()
    made.label("r01t01", {nodes.CLIQUE: None})
    assert label(trays, "r01t01") is None


def test_a_stale_definition_refuses_what_the_newest_accepts(control_plane: ControlPlane, tmp_path: Path) -> None:
    api = control_plane.api()
    for crd in [chart.stale_crd(), *(row for row in chart.crds() if "cliques" in row["metadata"]["name"])]:
        api.apply(f"apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}", crd)
    spec = {"channel": {"resourceClaimTemplate": {"name": "x"}}}
    body = {"apiVersion": domains.VERSION, "kind": "ComputeDomain", "metadata": {"name": "short"}, "spec": spec}
    until("the kind is served", lambda: api.find(DEFAULT))

    def refused() -> str | None:
        try:
            api.create(DEFAULT, body)
        except ApiError as error:
            return str(error)
        api.delete(f"{DEFAULT}/short")
        return None

    assert "numNodes" in until("a refusal", refused)
    for crd in chart.crds():
        api.apply(f"apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}", crd)
    until("it is accepted", lambda: refused() is None)
    until("it is gone", lambda: _without_finalizer(control_plane))


def _without_finalizer(running: ControlPlane) -> bool:
    """Whether no domain is left; without a controller nothing would remove a finalizer."""
    return not running.api().items(domains.DOMAINS)


def test_a_thousand_nodes_are_added_in_seconds_and_removed_completely() -> None:
    with plane.control_plane(components=plane.API_ONLY) as running:
        began = time.monotonic()
        assert plane.add_racks(running, 56) == 1008
        assert time.monotonic() - began < 60
        observed = observe(running, running.kubeconfig, page_size=100)
        assert len(observed) == 1008
        assert len({tuple(identity) for identity in observed.values()}) == 56
        name, state = running.name, paths.state_of(running.name)
        pids = [entry["pid"] for entry in running.components().values()]
        root = linux.cgroup_root()
    assert root is not None
    assert not state.exists()
    assert not network.file_of(name).exists()
    assert not (root / paths.netns_of(name)).exists()
    assert not [pid for pid in pids if linux.start_time(pid)]


def test_trays_of_the_lab_are_nodes_whose_labels_follow_their_gpus(lab: LabFactory) -> None:
    with lab("kubernetes.yml") as racks:
        running = ControlPlane(racks.name)
        assert names(running) == ["r01t01", "r01t02", "r01t03", "r01t04"]
        before = label(running, "r01t02")
        assert before == label(running, "r01t01") != label(running, "r01t03")
        # A tray reaches the API server that its rack's nodes are in.
        probe = (
            "import ssl, urllib.request as u;"
            "print(u.urlopen('https://198.51.100.3:6443/version', context=ssl._create_unverified_context()).status)"
        )
        assert racks.exec("r01t01", "python3", "-c", probe).stdout.strip() == "200"
        driver.set_faults(running.directory, "r01t02", {"label": "stale"})
        racks.set("r01t02", "clique=7")
        racks.set("r01t03", "gpu0.clique=7")
        racks.set("r01t04", "gpu0.state=in_progress")
        until("two cliques on a tray give no label", lambda: label(running, "r01t03") is None)
        assert label(running, "r01t02") == before
        assert label(running, "r01t04") is not None
        driver.set_faults(running.directory, "r01t02", {"label": "ok"})
        until("the label follows", lambda: str(label(running, "r01t02")).endswith(".7"))
        lab_command("kubernetes", "down", "--name", racks.name)
        assert all(entry["ssh"] for entry in racks.status()["hosts"].values())


PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Read the nodes
      kubernetes.core.k8s_info: {{kind: Node, kubeconfig: "{kubeconfig}"}}
      register: found
    - name: Check their number
      ansible.builtin.assert: {{that: found.resources | length == 4}}
    - name: Install the chart
      kubernetes.core.helm:
        kubeconfig: "{kubeconfig}"
        name: dra
        release_namespace: dra
        create_namespace: true
        chart_ref: "{reference}"
        chart_version: "{version}"
        ca_cert: "{authority}"
        values: {{resources: {{gpus: {{enabled: false}}}}}}
"""


def test_kubernetes_core_works_on_it_from_outside(trays: ControlPlane, tmp_path: Path) -> None:
    trays.publish(chart.folder(tmp_path))
    version = yaml.safe_load((chart.folder(tmp_path / "again") / "Chart.yaml").read_text())["version"]
    play = tmp_path / "play.yml"
    reference = f"oci://{trays.outside_address('registry')}/charts/{chart.NAME}"
    values = {"kubeconfig": trays.outside, "reference": reference, "version": version, "authority": trays.authority}
    play.write_text(PLAY.format(**values))
    # The module fetches the chart without its ca_cert, so Helm must trust the authority anyway.
    # The module prints a deprecation warning of its own result in every run.
    more = {"SSL_CERT_FILE": str(trays.authority), "ANSIBLE_DEPRECATION_WARNINGS": "false"}
    more |= {key: value for key, value in trays.environment().items() if key == "PATH" or key.startswith("HELM_")}
    try:
        first = ansible("ansible-playbook", play, **more)
        assert "changed=1 " in first.stdout, first.stdout
        again = ansible("ansible-playbook", play, **more)
        assert "changed=0 " in again.stdout, again.stdout
        plain = f"oci://{trays.outside_address('registry-plain')}/charts/{chart.NAME}"
        play.write_text(PLAY.format(**values).replace(reference, plain) + "        plain_http: true\n")
        third = ansible("ansible-playbook", play, **{**more, "SSL_CERT_FILE": ""})
        assert "changed=0 " in third.stdout, third.stdout
    finally:
        trays.helm("uninstall", "dra", "--namespace", "dra", check=False)
        until("no slices", lambda: not slices(trays))
