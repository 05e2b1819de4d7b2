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
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import checks, device_plugins
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.dra import dra_cluster as world
from nvlab import scenario
from nvlab.kubernetes import chart, domains, nodes, plane, programs, users
from nvlab.kubernetes.plane import ControlPlane

from .commands import ansible
from .conftest import NEWEST_KUBERNETES, OLDEST_KUBERNETES
from .test_k8s_topology import serve, small
from .workloads import CLAIMS, DEPLOYMENTS, DOMAIN, FOUR, ONLY_DOMAINS, until, with_helm, workload

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
LABELLED = {"kubeletPlugin": {"containers": {"computeDomains": {"gpuCliqueLabelEnabled": True}}}}
PLAY = [{"hosts": "localhost", "gather_facts": False, "roles": [{"role": "rackscale.nvlink.dra_driver"}]}]
IMEX = {"ansible.builtin.import_role": {"name": "rackscale.nvlink.dra_driver", "tasks_from": "imex"}}


class Site:
    """A control plane with four trays, and a site's playbook for it."""

    def __init__(self, running: ControlPlane, folder: Path) -> None:
        self.running, self.folder = running, folder
        self.chart = chart.newest(folder)
        self.version = yaml.safe_load((self.chart / "Chart.yaml").read_text())["version"]
        self.helm = "4"
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
            "dra_driver_kubeconfig": str(self.running.kubeconfig),
            "dra_driver_helm": str(programs.helm(self.helm)),
            "dra_driver_chart": str(self.chart),
            "dra_driver_chart_version": self.version,
            "dra_driver_values": LABELLED,
            "dra_driver_wait": 60,
            **variables,
        }
        file = self.folder / f"given-{time.monotonic_ns()}.json"
        file.write_text(json.dumps(given))
        inventory = ("--inventory", self.folder / "inventory.yml")
        own = {"SSL_CERT_FILE": str(self.running.authority), "TMPDIR": str(self.folder)}
        return ansible(
            "ansible-playbook", *inventory, "--extra-vars", f"@{file}", *arguments, self.folder / play,
            check=check, **with_helm(self.folder), **own,
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
        until("the daemons", lambda: len(self.daemons()) == len(trays))

    def leave_probe(self) -> None:
        """The ComputeDomain of a probe that was killed."""
        metadata = {
            "name": "nvlink-probe-x",
            "namespace": "default",
            "labels": {"app.kubernetes.io/name": "nvlink-probe"},
        }
        spec = {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "nvlink-probe-x-channel"}}}
        self.running.kubectl("apply", "-f", "-", stdin=json.dumps({**DOMAIN, "metadata": metadata, "spec": spec}))

    def daemons(self) -> list[dict[str, Any]]:
        """The ready daemons of the ComputeDomain."""
        (found,) = self.running.api().items(domains.DOMAINS)
        return [row for row in found.get("status", {}).get("nodes", []) if row["status"] == "Ready"]

    def claims(self) -> dict[str, bool]:
        """UID -> whether it is allocated and reserved, of the workload's claims; those of the daemons come and go."""
        rows = self.running.api().items(CLAIMS)
        mine = [row for row in rows if row["metadata"]["namespace"] == "default"]
        return {row["metadata"]["uid"]: {"allocation", "reservedFor"} <= row.get("status", {}).keys() for row in mine}

    def release(self) -> dict[str, Any] | None:
        done = self.running.helm("list", "--namespace", NAME, "--output", "json", check=False)
        rows = json.loads(done.stdout or "[]")
        return rows[0] if rows else None

    def clear(self) -> None:
        """Delete what a test created."""
        api = self.running.api()
        for row in api.items(DEPLOYMENTS):
            api.delete(f"{DEPLOYMENTS}/{row['metadata']['name']}")
        until("no pods of a workload", lambda: not api.items("api/v1/namespaces/default/pods"))
        for row in api.items(domains.DOMAINS):
            self.running.kubectl("delete", "computedomain", row["metadata"]["name"], "-n", row["metadata"]["namespace"])
        until("no claim template", lambda: not api.items(f"{domains.RESOURCE}/resourceclaimtemplates"))
        self.running.helm("uninstall", NAME, "--namespace", NAME, check=False)
        until("nothing is published", lambda: not api.items(domains.SLICES))
        for row in api.items("apis/apps/v1/daemonsets"):
            metadata = row["metadata"]
            api.delete(f"apis/apps/v1/namespaces/{metadata['namespace']}/daemonsets/{metadata['name']}")
        # A pod that ends when its node goes stays for good, and the DaemonSet controller, which finds the pods of a
        # DaemonSet by its name, would take it for that of the next release.
        until("no pods at all", lambda: not api.items("api/v1/pods"))
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
    several = f"{site.running.kubeconfig}{os.pathsep}{site.folder / 'more'}"
    again = site.run(dra_driver_kubeconfig=several, dra_driver_values=given)
    assert changed(again) == 0, again.stdout
    assert not [*site.folder.glob("nvlink-chart-*")]

    # What a killed probe has left is deleted by a run, and at the end by the removal.
    site.leave_probe()
    assert changed(site.run(dra_driver_values=given)) == 1
    assert not site.running.api().items(domains.DOMAINS)

    # A value changes under a claim in use.
    site.work("r01t01")
    claims = site.claims()
    beside = site.run("--tags", "probe", check=False, dra_driver_probe=True, dra_driver_values=given)
    assert "ComputeDomains run in the cliques of the probe, such as default/work" in printed(beside)
    done = site.run(dra_driver_values={**given, "logVerbosity": "6"})
    assert (changed(done), verbosity(site), site.claims()) == (1, "6", claims)

    # A fault is reported in check mode, and not fixed.
    site.running.kubectl("delete", "deviceclass", "compute-domain-daemon.nvidia.com")
    checked = site.run("--check", dra_driver_values=given)
    assert "Missing DeviceClass: compute-domain-daemon.nvidia.com;" in printed(checked)
    assert site.running.kubectl("get", "deviceclass", "compute-domain-daemon.nvidia.com", check=False) == ""

    refused = site.run(check=False, dra_driver_state="absent")
    assert refused.returncode != 0
    assert "ComputeDomains exist (default/work)" in printed(refused)
    assert "Pods still use claims of the driver (default/work-" in printed(refused)
    assert (site.release() is None, site.claims()) == (False, claims)
    site.running.kubectl("delete", "deployment", "work", "--timeout=120s")
    site.running.kubectl("delete", "computedomain", "work", "--timeout=120s")
    site.leave_probe()
    assert changed(site.run(dra_driver_state="absent", dra_driver_remove_crds=True)) > 0
    assert (site.release(), crds(site)) == (None, "")


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
    old = chart.before_renaming(site.folder)
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
    site.run(dra_driver_chart=site.running.publish(site.chart))
    release = site.release()
    assert release is not None
    assert release["chart"] == f"{NAME}-{site.version}"
    assert site.claims() == claims
    names = [row["metadata"]["name"] for row in plugins(site)]
    assert names == [f"{chart.OLD_NAME}-kubelet-plugin"]
    assert "numNodes" not in json.dumps(required(site.running.api().get(CRD)))


def required(crd: dict[str, Any]) -> Any:
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec.get("required")


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
    typo = {**LABELLED, "logVerbosty": "6"}
    for options, words in (
        ({"dra_driver_chart": str(broken)}, "no such luck"),
        ({"dra_driver_values": typo}, "logVerbosty: changes nothing that the chart renders; write logVerbosity"),
        ({"dra_driver_chart": "oci://127.0.0.1:9/charts/none"}, "oci://127.0.0.1:9/charts/none"),
    ):
        failed = site.run(check=False, **options)
        assert failed.returncode != 0
        assert words in printed(failed)
    assert (site.release(), crds(site)) == (None, "")
    # A key that only the templates read.
    own = copy_of(site, "own", f"{{{{ if .Values.siteKey }}}}{yaml.safe_dump(CONFIG_MAP)}{{{{ end }}}}")
    site.run(dra_driver_chart=str(own), dra_driver_values={**LABELLED, "siteKey": True})
    release = site.release()
    assert release is not None
    assert release["status"] == "deployed"


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-the-site"}}


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
            until("Helm's record of its work", lambda: site.running.api().items(begun))
            site.running.stop()
            cut_off = running.result()
    finally:
        if not site.running.is_running("kube-apiserver"):
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
    ((_kind, path),) = serve(site.running.api(), [small("nvidia.com", "v1alpha1", "GPUCluster", "gpuclusters")])
    theirs = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "gpu-cluster"}}
    site.running.api().create(path, theirs)
    # With a GPUCluster no device plugin gives the nodes GPUs.
    for name in TRAYS:
        without_gpus(site, name)
    done = site.run("--tags", "preflight,crds,release", dra_driver_shape="gpu_cluster", dra_driver_values={})
    assert changed(done) == 0
    assert site.release() is None


@pytest.mark.long
@OLDEST_KUBERNETES
def test_a_missing_right_is_named_and_a_rejected_login_shows_no_secret(site: Site) -> None:
    # An account without the right to write stops before the first write.
    reader = users.user(site.running, "reader", [users.rule("*", ["*"], ["get", "list"])])
    refused = site.run("--tags", "crds", check=False, dra_driver_kubeconfig=str(reader))
    assert refused.returncode != 0
    assert "The API server did not check" in printed(refused)
    assert "cannot patch resource" in printed(refused)
    assert (site.release(), crds(site)) == (None, "")
    unknown = users.unknown(site.running)
    stopped = site.run("-vvv", check=False, dra_driver_kubeconfig=str(unknown))
    assert "rejects the credentials" in printed(stopped)
    assert "Traceback" not in printed(stopped)
    assert users.token_of(unknown) not in stopped.stdout + stopped.stderr


def device_plugin() -> dict[str, Any]:
    """GPU Operator's DaemonSet."""
    labels = {"app": "nvidia-device-plugin"}
    container = {"name": "nvidia-device-plugin", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.19.0"}
    pod = {"nodeSelector": {device_plugins.DEPLOY: "true"}, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-device-plugin-daemonset"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


@pytest.mark.long
@OLDEST_KUBERNETES
def test_the_gpus_of_a_device_plugin_move_to_dra_first_on_a_part_of_the_nodes(site: Site) -> None:
    """By the steps of docs/dra-driver.md; a node with a device plugin is refused at every step."""
    label, kubectl, api = "example.com/dra", site.running.kubectl, site.running.api()
    first, rest = TRAYS[:2], TRAYS[2:]
    plugin = {"kubeletPlugin": {**LABELLED["kubeletPlugin"], "nodeSelector": {label: "true"}}}
    given = {"dra_driver_shape": "all_dra", "dra_driver_values": plugin}
    kubectl("label", "nodes", "--all", f"{device_plugins.DEPLOY}=true")
    api.create("apis/apps/v1/namespaces/default/daemonsets", device_plugin())

    def leave(names: list[str]) -> None:
        kubectl("label", "--overwrite", "nodes", *names, f"{device_plugins.DEPLOY}=false", f"{label}=true")
        for name in names:
            without_gpus(site, name)

    def by_dra() -> set[str]:
        rows = (row["spec"] for row in api.items(domains.SLICES))
        return {row["nodeName"] for row in rows if row["driver"] == domains.GPU_DRIVER}

    refused = site.run(check=False, dra_driver_trays=first, **given)
    assert "nvidia-device-plugin-daemonset allocates the GPUs of r01t01, r01t02, and so would" in printed(refused)
    assert site.release() is None
    leave(first)
    site.run(dra_driver_trays=first, **given)
    assert by_dra() == set(first)
    refused = site.run(check=False, dra_driver_trays=TRAYS, **given)
    assert "allocates the GPUs of r01t03, r01t04, and so would" in printed(refused)
    assert by_dra() == set(first)
    leave(rest)
    site.run(dra_driver_trays=TRAYS, **given)
    assert by_dra() == set(TRAYS)
    assert changed(site.run(dra_driver_trays=TRAYS, **given)) == 0


def without_gpus(site: Site, node: str) -> None:
    """As a kubelet writes it once no device plugin gives the node GPUs."""
    none = {device_plugins.GPU: "0"}
    site.running.api().patch(f"{nodes.PATH}/{node}/status", {"status": {"capacity": none, "allocatable": none}})
