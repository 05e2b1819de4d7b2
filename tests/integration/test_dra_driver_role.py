# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role dra_driver on a real control plane, with a stand-in for the driver's own pods."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import checks, device_plugins, versions
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import Plan, Tray
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.dra import dra_cluster as world
from nvlab import paths, scenario
from nvlab.kubernetes import chart, domains, driver, nodes, plane, programs, registry, users
from nvlab.kubernetes.plane import ControlPlane

from .commands import ansible
from .conftest import NEWEST_KUBERNETES, OLDEST_KUBERNETES
from .workloads import CLAIMS, DEPLOYMENTS, DOMAIN, FOUR, ONLY_DOMAINS, until, workload

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes]

TRAYS = [f"r01t{number:02d}" for number in range(1, 5)]
FACTS = {
    "nvlink_fabric": world.fabric(),
    "nvlink_imex": world.imex(),
    "dra_driver_root_files": world.root_files(),
}
NAME = chart.NAME
CRD = "apis/apiextensions.k8s.io/v1/customresourcedefinitions/computedomains.resource.nvidia.com"
DAEMON_SETS = f"apis/apps/v1/namespaces/{NAME}/daemonsets"
HELM_DIFF = paths.LAB / "kubernetes" / "helm-diff"
LABELLED = {"kubeletPlugin": {"containers": {"computeDomains": {"gpuCliqueLabelEnabled": True}}}}
PLAY = [{"hosts": "localhost", "gather_facts": False, "roles": [{"role": "rackscale.nvlink.dra_driver"}]}]
IMEX = {"ansible.builtin.import_role": {"name": "rackscale.nvlink.dra_driver", "tasks_from": "imex"}}


class Site:
    """A control plane with four trays, and a site's playbook for it."""

    def __init__(self, running: ControlPlane, folder: Path) -> None:
        self.running, self.folder = running, folder
        self.chart = chart.folder(folder)
        self.version = yaml.safe_load((self.chart / "Chart.yaml").read_text())["version"]
        self.helm = "4"
        self.plugins: Path | None = None
        (folder / "play.yml").write_text(yaml.safe_dump(PLAY))
        (folder / "imex.yml").write_text(yaml.safe_dump([{"hosts": "localhost", "tasks": [IMEX]}]))
        hosts = {}
        for node in nodes.of_scenario(scenario.parse(FOUR), running.version):
            clique = node["metadata"]["labels"][nodes.CLIQUE]
            hosts[node["metadata"]["name"]] = {**FACTS, "nvlink_fabric": world.fabric(clique=clique)}
        (folder / "inventory.yml").write_text(yaml.safe_dump({"nvlink": {"hosts": hosts}}))

    def run(
        self, *arguments: str, check: bool = True, play: str = "play.yml", **variables: Any
    ) -> subprocess.CompletedProcess[str]:
        given = {
            "dra_driver_kubeconfig": str(self.running.outside),
            "dra_driver_helm": str(programs.helm(self.helm)),
            "dra_driver_chart": str(self.chart),
            "dra_driver_chart_version": self.version,
            "dra_driver_values": LABELLED,
            "dra_driver_wait": 60,
            **variables,
        }
        file = self.folder / f"given-{time.monotonic_ns()}.json"
        file.write_text(json.dumps(given))
        # kubernetes.core.helm warns about one of its own return values at every use.
        trust = {"SSL_CERT_FILE": str(self.running.authority)}
        quiet = {"ANSIBLE_DEPRECATION_WARNINGS": "false"}
        quiet["TMPDIR"] = str(self.folder)
        homes = {f"HELM_{kind}_HOME": str(self.folder / f"helm-{kind}") for kind in ("CACHE", "CONFIG", "DATA")}
        if self.plugins:
            homes["HELM_PLUGINS"] = str(self.plugins)
        proxies = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
        inventory = ("--inventory", self.folder / "inventory.yml")
        return ansible(
            "ansible-playbook", *inventory, "--extra-vars", f"@{file}", *arguments, self.folder / play,
            check=check,
            **homes, **proxies, **quiet, **trust,
        )  # fmt: skip

    def install(self) -> None:
        """Install the release of the role by Helm alone, which is faster."""
        values = self.folder / "values.json"
        values.write_text(json.dumps(world.LABELLED))
        common = (NAME, self.chart, "--namespace", NAME, "--create-namespace", "--values", values)
        self.running.helm("install", *common)
        until("the ResourceSlices", lambda: len(self.running.api().items(domains.SLICES)) == len(TRAYS))

    def work(self, *trays: str) -> None:
        """A ComputeDomain whose workload has a channel on these trays."""
        self.running.kubectl("apply", "-f", "-", stdin=json.dumps(DOMAIN))
        template = f"{domains.RESOURCE}/namespaces/default/resourceclaimtemplates/work-channel"
        until("the claim template", lambda: self.running.api().find(template))
        self.running.api().create(DEPLOYMENTS, workload(len(trays), list(trays)))
        until("the claims in use", lambda: len(self.claims()) == len(trays))
        until("the daemons", lambda: not self.findings("dra_plugin_unready"))

    def claims(self) -> dict[str, bool]:
        """UID -> whether it is allocated and reserved, of the workload's claims; those of the daemons come and go."""
        rows = self.running.api().items(CLAIMS)
        mine = [row for row in rows if row["metadata"]["namespace"] == "default"]
        return {row["metadata"]["uid"]: {"allocation", "reservedFor"} <= row.get("status", {}).keys() for row in mine}

    def findings(self, *codes: str) -> list[str]:
        """The findings of the checks with these codes (all of them without any), as sentences."""
        given = {"kubeconfig": str(self.running.outside), "context": "", "timeout": 20}
        snapshot = Reader(login.of_kubeconfig(given, "test")).snapshot()
        inventory = yaml.safe_load((self.folder / "inventory.yml").read_text())["nvlink"]["hosts"]
        trays = {
            name: Tray(name, facts["nvlink_fabric"], facts["nvlink_imex"], True) for name, facts in inventory.items()
        }
        plan = Plan(world.LABELLED, versions.pinned("0.5.0"), NAME, NAME)
        found = checks.check(snapshot, trays, plan)
        return [row["message"] for row in found if not codes or row["code"] in codes]

    def release(self) -> dict[str, Any] | None:
        done = self.running.helm("list", "--namespace", NAME, "--output", "json", check=False)
        rows = json.loads(done.stdout or "[]")
        return rows[0] if rows else None

    def clear(self) -> None:
        """Delete what a test created."""
        api = self.running.api()
        (self.running.directory / driver.FILE).unlink(missing_ok=True)
        for row in api.items(DEPLOYMENTS):
            api.delete(f"{DEPLOYMENTS}/{row['metadata']['name']}")
        until("no pods of a workload", lambda: not api.items("api/v1/namespaces/default/pods"))
        for row in api.items(domains.DOMAINS):
            self.running.kubectl("delete", "computedomain", row["metadata"]["name"], "-n", row["metadata"]["namespace"])
        self.running.helm("uninstall", NAME, "--namespace", NAME, check=False)
        until("nothing is published", lambda: not api.items(domains.SLICES))
        self.running.kubectl("delete", "crd", "--all", "--ignore-not-found")
        for row in api.items(nodes.PATH):
            api.delete(f"{nodes.PATH}/{row['metadata']['name']}")


@pytest.fixture
def site(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    plane.add_trays(control_plane, scenario.parse(FOUR))
    made = Site(control_plane, tmp_path)
    yield made
    made.clear()


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a run, on one line."""
    return " ".join(f"{done.stdout} {done.stderr}".split())


def changed(done: subprocess.CompletedProcess[str]) -> int:
    recap = done.stdout.rpartition("PLAY RECAP")[2]
    return int(recap.partition("changed=")[2].split()[0])


def crds(site: Site) -> str:
    return site.running.kubectl("get", "crd", "--no-headers", check=False).strip()


@OLDEST_KUBERNETES
def test_the_driver_is_installed_once_used_and_removed_when_unused(site: Site) -> None:
    # Neither the namespace nor the CRDs exist.
    virgin = site.run("--check", "--diff")
    assert changed(virgin) > 0
    failed = site.run(check=False, dra_driver_values={**LABELLED, "nvidiaCtkPath": "/x"})
    assert failed.returncode != 0
    assert "nvidiaCtkPath" in printed(failed)
    assert (site.release(), crds(site)) == (None, "")

    # Before the owner of IMEX changes, in a run that may end with that.
    site.run(play="imex.yml")
    assert not [*site.folder.glob("nvlink-chart-*")]

    # With a probe in each clique, which leaves nothing. Without quotes the tag would be a number for Helm.
    given = {**LABELLED, "image": {"tag": "1234e56"}}
    assert changed(site.run(dra_driver_probe=True, dra_driver_values=given)) > 0
    assert plugins(site)[0]["spec"]["template"]["spec"]["containers"][0]["image"].endswith(":1234e56")
    release = site.release()
    assert release is not None
    assert (release["chart"], release["status"]) == (f"{NAME}-{site.version}", "deployed")
    assert "rackscale.nvlink" in {row["manager"] for row in site.running.api().get(CRD)["metadata"]["managedFields"]}
    assert not site.running.api().items(domains.DOMAINS)
    assert not site.running.api().items(CLAIMS)
    (site.folder / "more").write_text("{apiVersion: v1, kind: Config}")
    several = f"{site.running.outside}{os.pathsep}{site.folder / 'more'}"
    again = site.run(dra_driver_kubeconfig=several, dra_driver_values=given)
    assert changed(again) == 0, again.stdout
    assert not [*site.folder.glob("nvlink-chart-*")]

    # A value changes under a claim in use.
    site.work("r01t01")
    claims = site.claims()
    beside = site.run("--tags", "probe", check=False, dra_driver_probe=True, dra_driver_values=given)
    assert "ComputeDomains run in the cliques of the probe, such as default/work" in printed(beside)
    done = site.run(dra_driver_values={**given, "logVerbosity": "6"})
    assert (changed(done), verbosity(site), site.claims()) == (1, "6", claims)

    refused = site.run(check=False, dra_driver_state="absent")
    assert refused.returncode != 0
    assert "ComputeDomains exist (default/work)" in printed(refused)
    assert "Pods still use claims of the driver (default/work-" in printed(refused)
    assert (site.release() is None, site.claims()) == (False, claims)
    site.running.kubectl("delete", "deployment", "work", "--timeout=120s")
    site.running.kubectl("delete", "computedomain", "work", "--timeout=120s")
    assert changed(site.run(dra_driver_state="absent", dra_driver_remove_crds=True)) > 0
    assert (site.release(), crds(site)) == (None, "")


@pytest.mark.long
@OLDEST_KUBERNETES
def test_helm_diff_shows_a_changed_value(site: Site) -> None:
    site.plugins = site.folder / "plugins"
    shutil.copytree(HELM_DIFF, site.plugins / "diff")
    site.install()
    checked = site.run("--check", "--diff", "--tags", "release", dra_driver_values={**LABELLED, "logVerbosity": "6"})
    assert (changed(checked), verbosity(site)) == (1, "4")
    assert 'value: "6"' in checked.stdout


def verbosity(site: Site) -> str | None:
    row = plugins(site)[0]["spec"]["template"]["spec"]["containers"][0]
    found: str | None = next(entry["value"] for entry in row["env"] if entry["name"] == "LOG_VERBOSITY")
    return found


def plugins(site: Site) -> list[dict[str, Any]]:
    """The DaemonSets of the kubelet plugin; a ComputeDomain has one of its own there."""
    rows = site.running.api().items(DAEMON_SETS)
    return [row for row in rows if row["metadata"]["name"].endswith(checks.PLUGIN)]


@pytest.mark.long
@NEWEST_KUBERNETES
def test_helm_3_works_too(site: Site) -> None:
    """The newest Kubernetes differs as little to the role, so one test shows both."""
    site.helm = "3"
    assert changed(site.run()) > 0
    assert changed(site.run()) == 0
    assert changed(site.run(dra_driver_state="absent")) == 1
    assert site.release() is None


@pytest.mark.long
@OLDEST_KUBERNETES
def test_a_release_of_25_12_is_upgraded_and_keeps_its_names_and_claims(site: Site) -> None:
    old = chart.folder(site.folder / "old", "25.12.0")
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-the-old-chart"}}
    (old / "templates" / "gone.yaml").write_text(yaml.safe_dump(gone))
    values = (*ONLY_DOMAINS, "--set-string", "logVerbosity=secret")
    site.running.helm("install", NAME, old, "--namespace", NAME, "--create-namespace", *values)
    site.work("r01t01", "r01t02")
    claims = site.claims()
    assert list(claims.values()) == [True, True]
    assert "numNodes" in json.dumps(required(site.running.api().get(CRD)))
    checked = site.run("--check")
    assert "dra_release_old" in checked.stderr
    assert "dra_crd_stale" in checked.stderr
    assert "The old release sets logVerbosity, which is dropped" in printed(checked)
    assert "The upgrade removes ConfigMap/of-the-old-chart" in printed(checked)
    assert "secret" not in printed(checked)

    # From a registry, as a mirror has it.
    reference = site.running.publish(site.chart).replace(*addresses(site.running))
    site.run(dra_driver_chart=reference)
    release = site.release()
    assert release is not None
    assert release["chart"] == f"{NAME}-{site.version}"
    assert site.claims() == claims
    names = [row["metadata"]["name"] for row in plugins(site)]
    assert names == [f"{chart.OLD_NAME}-kubelet-plugin"]
    assert "numNodes" not in json.dumps(required(site.running.api().get(CRD)))


def addresses(running: ControlPlane) -> tuple[str, str]:
    """The registry's address in the lab's network, and outside it."""
    return f"{plane.KUBERNETES_ADDRESS}:{registry.PORT}", running.outside_address("registry")


def required(crd: dict[str, Any]) -> Any:
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec.get("required")


@pytest.mark.long
@OLDEST_KUBERNETES
def test_each_fault_of_a_running_driver_is_reported_in_check_mode_and_not_fixed(site: Site) -> None:
    """Faults of the driver's stand-in: pods, labels, daemons, leftovers."""
    site.install()
    site.work("r01t01", "r01t03")
    until("nothing but the two cliques", lambda: [row for row in site.findings() if "spans 2 cliques" not in row] == [])
    driver.set_faults(site.running.directory, "r01t03", {"daemon": "not_ready"})
    until("the daemon is not ready", lambda: site.findings("dra_plugin_unready"))
    site.running.kubectl("label", "node", "r01t02", f"{domains.KEY}=0b1c")
    driver.set_faults(site.running.directory, None, {"gfd": "off", "paused": "true"})
    site.running.kubectl("label", "node", "r01t04", "--overwrite", f"{nodes.CLIQUE}=other.7")
    site.running.kubectl("delete", "deviceclass", "compute-domain-daemon.nvidia.com")
    checked = site.run("--check", check=False)
    assert checked.returncode != 0
    for text in (
        "Missing DeviceClass: compute-domain-daemon.nvidia.com;",
        "on node r01t03 the daemon is NotReady",
        f"The label {nodes.CLIQUE} of node r01t04 is other.7, but its GPUs report",
        "Leftovers of the deleted ComputeDomain 0b1c block others: the label of node r01t02",
    ):
        assert text in printed(checked), text
    assert site.running.kubectl("get", "deviceclass", "compute-domain-daemon.nvidia.com", check=False) == ""


@pytest.mark.long
@OLDEST_KUBERNETES
def test_a_rejection_by_chart_or_api_server_is_reported_and_the_next_run_continues(site: Site) -> None:
    # Where the namespace does not exist, the API server's refusal is the only finding.
    port = {"kubeletPlugin": {"containers": {"computeDomains": {"healthcheckPort": 70000}}}}
    wrong = printed(site.run("--check", check=False, dra_driver_values=port, dra_driver_external_label_writer=True))
    assert "The API server would refuse DaemonSet dra-driver-nvidia-gpu-kubelet-plugin (" in wrong
    assert "Invalid value: 70000: must be between 1 and 65535, inclusive); correct values." in wrong
    assert "more error" not in wrong
    broken = copy_of(site, "broken", '{{ fail "no such luck" }}')
    refused = copy_of(site, "refused", yaml.safe_dump({**CONFIG_MAP, "metadata": {"name": "No_Name"}}))
    typo = {**LABELLED, "logVerbosty": "6"}
    for options, words in (
        ({"dra_driver_chart": str(broken)}, "no such luck"),
        ({"dra_driver_chart": str(refused)}, "The API server would refuse ConfigMap No_Name"),
        ({"dra_driver_values": typo}, "logVerbosty: changes nothing that the chart renders; write logVerbosity"),
        ({"dra_driver_chart": "oci://127.0.0.1:9/charts/none"}, "oci://127.0.0.1:9/charts/none"),
    ):
        failed = site.run(check=False, **options)
        assert failed.returncode != 0
        assert words in printed(failed)
    assert (site.release(), crds(site)) == (None, "")
    # A key that only the templates read.
    own = copy_of(site, "own", f"{{{{ if .Values.siteKey }}}}{yaml.safe_dump({**CONFIG_MAP, **NAMED})}{{{{ end }}}}")
    site.run(dra_driver_chart=str(own), dra_driver_values={**LABELLED, "siteKey": True})
    release = site.release()
    assert release is not None
    assert release["status"] == "deployed"


NAMED = {"metadata": {"name": "of-the-site"}}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


def copy_of(site: Site, name: str, template: str) -> Path:
    """The chart with a template more."""
    made = site.folder / name
    shutil.copytree(site.chart, made)
    (made / "templates" / "more.yaml").write_text(template)
    return made


@pytest.mark.long
@OLDEST_KUBERNETES
def test_an_api_server_that_stops_during_helm_leaves_a_run_that_can_continue(site: Site) -> None:
    """It stops when Helm has begun, and comes back later."""
    begun = f"api/v1/namespaces/{NAME}/secrets"
    try:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(site.run, check=False, dra_driver_wait=10)
            until("Helm's record of its work", lambda: site.running.api().items(begun), 60.0)
            site.running.stop()
            cut_off = running.result()
    finally:
        if not site.running.components()["kube-apiserver"]["running"]:
            site.running.start()
    assert cut_off.returncode != 0
    assert "Traceback" not in printed(cut_off)
    again = site.run(check=False)
    remedy = re.search(
        r"was interrupted \(pending-install\); Helm rejects every change until you run helm (.*?)\.", printed(again)
    )
    assert again.returncode != 0
    assert remedy, printed(again)
    site.running.helm(*remedy.group(1).split())
    site.run()
    release = site.release()
    assert release is not None
    assert release["status"] == "deployed"


@pytest.mark.long
@OLDEST_KUBERNETES
def test_the_driver_of_gpu_operator_is_checked_and_not_installed(site: Site) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gpuclusters.nvidia.com"},
        "spec": {
            "group": "nvidia.com",
            "scope": "Cluster",
            "names": {"kind": "GPUCluster", "plural": "gpuclusters"},
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
        },
    }
    site.running.kubectl("apply", "-f", "-", stdin=json.dumps(definition))
    site.running.kubectl("wait", "--for=condition=Established", "crd/gpuclusters.nvidia.com", "--timeout=30s")
    theirs = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "gpu-cluster"}}
    site.running.kubectl("apply", "-f", "-", stdin=json.dumps(theirs))
    # With a GPUCluster no device plugin gives the nodes GPUs.
    none = {"nvidia.com/gpu": "0"}
    for node in site.running.api().items(nodes.PATH):
        path = f"{nodes.PATH}/{node['metadata']['name']}/status"
        site.running.api().patch(path, {"status": {"capacity": none, "allocatable": none}})
    done = site.run("--tags", "preflight,crds,release", dra_driver_shape="gpu_cluster", dra_driver_values={})
    assert changed(done) == 0
    assert site.release() is None


# Rejected credentials -> the text of the message.
@pytest.mark.long
@OLDEST_KUBERNETES
def test_a_missing_right_is_named(site: Site) -> None:
    rules = [users.rule("", ["nodes"], ["list"]), users.rule("resource.k8s.io", ["deviceclasses"], ["list"])]
    options = {"dra_driver_kubeconfig": account(site, "poor", rules), "dra_driver_shape": "all_dra"}
    done = site.run("--check", "--tags", "preflight", check=False, **options)
    assert "The account may not list daemonsets; give it the verb list in all namespaces." in printed(done)
    assert "which is needed to know whether a device plugin allocates the GPUs too." in printed(done)
    # An account without the right to write stops at the first write.
    reader = account(site, "reader", [users.rule("*", ["*"], ["get", "list"])])
    refused = site.run("--tags", "crds", check=False, dra_driver_kubeconfig=reader)
    assert refused.returncode != 0
    assert 'cannot patch resource \\"customresourcedefinitions\\"' in printed(refused)
    assert site.release() is None
    # A rejected login is one sentence, and no secret of the kubeconfig is in the output.
    expired = users.expired(site.running)
    stopped = site.run("-vvv", check=False, dra_driver_kubeconfig=str(users.outside(site.running, expired)))
    assert "rejects the credentials" in printed(stopped)
    assert "Traceback" not in printed(stopped)
    assert users.token_of(expired) not in stopped.stdout + stopped.stderr


def account(site: Site, name: str, rules: list[dict[str, list[str]]]) -> str:
    """The kubeconfig file of a service account."""
    return str(users.outside(site.running, users.user(site.running, name, rules)))


DEVICE_PLUGIN = "nvidia-device-plugin-daemonset"


def device_plugin() -> dict[str, Any]:
    """GPU Operator's DaemonSet."""
    labels = {"app": DEVICE_PLUGIN}
    container = {"name": "nvidia-device-plugin", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.19.0"}
    pod = {"nodeSelector": {device_plugins.DEPLOY: "true"}, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": DEVICE_PLUGIN},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


class Kubelets(threading.Thread):
    """Sets the GPUs in the capacity of a node by whether a pod of the device plugin is on it, without the grace time.

    twice: nodes that had GPUs of both the device plugin and DRA at one time.
    """

    def __init__(self, running: ControlPlane) -> None:
        super().__init__()
        self._api, self._ends = running.api(), threading.Event()
        self.twice: set[str] = set()

    def run(self) -> None:
        while not self._ends.wait(0.3):
            pods = self._api.items("api/v1/namespaces/default/pods")
            on = {row["spec"].get("nodeName") for row in pods if row["metadata"]["name"].startswith(DEVICE_PLUGIN)}
            self.twice |= on & self.by_dra()
            for node in self._api.items(nodes.PATH):
                name, amount = node["metadata"]["name"], "4" if node["metadata"]["name"] in on else "0"
                if node["status"]["capacity"].get(device_plugins.GPU) != amount:
                    gpus = {device_plugins.GPU: amount}
                    self._api.patch(f"{nodes.PATH}/{name}/status", {"status": {"capacity": gpus, "allocatable": gpus}})

    def ends(self) -> None:
        self._ends.set()
        self.join()

    def by_dra(self) -> set[str]:
        rows = (row["spec"] for row in self._api.items(domains.SLICES))
        return {row["nodeName"] for row in rows if row["driver"] == domains.GPU_DRIVER}


@pytest.mark.long
@OLDEST_KUBERNETES
def test_the_gpus_of_a_device_plugin_move_to_dra_first_on_a_part_of_the_nodes(site: Site) -> None:
    """By the steps of docs/dra-driver.md; a node with a device plugin is refused at every step."""
    label, kubectl = "example.com/dra", site.running.kubectl
    first, rest = TRAYS[:2], TRAYS[2:]
    plugin = {"kubeletPlugin": {**LABELLED["kubeletPlugin"], "nodeSelector": {label: "true"}}}
    given = {"dra_driver_shape": "all_dra", "dra_driver_values": plugin}
    kubectl("label", "nodes", "--all", f"{device_plugins.DEPLOY}=true")
    site.running.api().create("apis/apps/v1/namespaces/default/daemonsets", device_plugin())
    kubelets = Kubelets(site.running)
    kubelets.start()

    def leave(names: list[str]) -> None:
        kubectl("drain", "--ignore-daemonsets", *names)
        kubectl("label", "--overwrite", "nodes", *names, f"{device_plugins.DEPLOY}=false")
        capacity = r"jsonpath={.status.capacity.nvidia\.com/gpu}=0"
        kubectl("wait", "--timeout=60s", f"--for={capacity}", *(f"node/{name}" for name in names))
        kubectl("label", "nodes", *names, f"{label}=true")

    def run(names: list[str], check: bool = True) -> subprocess.CompletedProcess[str]:
        return site.run(check=check, dra_driver_trays=names, **given)

    try:
        refused = run(first, check=False)
        assert "nvidia-device-plugin-daemonset allocates the GPUs of r01t01, r01t02, and so would" in printed(refused)
        assert site.release() is None
        leave(first)
        run(first)
        kubectl("uncordon", *first)
        assert kubelets.by_dra() == set(first)
        assert "allocates the GPUs of r01t03, r01t04, and so would" in printed(run(TRAYS, check=False))
        leave(rest)
        run(TRAYS)
        kubectl("uncordon", *rest)
        assert kubelets.by_dra() == set(TRAYS)
        assert changed(run(TRAYS)) == 0
    finally:
        kubelets.ends()
    assert kubelets.twice == set()
