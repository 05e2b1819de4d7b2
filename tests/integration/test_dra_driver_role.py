# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role dra_driver on a real control plane, with a stand-in for the driver's own pods."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.placing import DEFAULT_LABELS
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import dra_cluster as world
from nvlab import scenario
from nvlab.kubernetes import chart, domains, driver, nodes, plane, programs, registry, users
from nvlab.kubernetes.plane import ControlPlane

from .commands import ansible

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes]

TRAYS = [f"r01t{number:02d}" for number in range(1, 5)]
FOUR = {"racks": [{"trays": 4, "cliques": [{"id": 1, "trays": [1, 2]}, {"id": 2, "trays": [3, 4]}]}]}
NAME = chart.NAME
CRD = "apis/apiextensions.k8s.io/v1/customresourcedefinitions/computedomains.resource.nvidia.com"
DAEMON_SETS = f"apis/apps/v1/namespaces/{NAME}/daemonsets"
LABELLED = {"kubeletPlugin": {"containers": {"computeDomains": {"gpuCliqueLabelEnabled": True}}}}
PLAY = [{"hosts": "localhost", "gather_facts": False, "roles": [{"role": "rackscale.nvlink.dra_driver"}]}]


class Site:
    """A control plane with four trays, and a site's playbook for it."""

    def __init__(self, running: ControlPlane, folder: Path) -> None:
        self.running, self.folder = running, folder
        self.chart = chart.folder(folder)
        (folder / "play.yml").write_text(yaml.safe_dump(PLAY))
        said = {"nvlink_fabric": world.fabric(), "nvlink_imex": world.imex(), "dra_driver_root_found": True}
        hosts = {name: dict(said) for name in TRAYS}
        (folder / "inventory.yml").write_text(yaml.safe_dump({"nvlink": {"hosts": hosts}}))

    def run(self, *arguments: str, check: bool = True, **variables: Any) -> subprocess.CompletedProcess[str]:
        given = {
            "dra_driver_kubeconfig": str(self.running.outside),
            "dra_driver_helm": str(programs.helm()),
            "dra_driver_chart": str(self.chart),
            "dra_driver_values": LABELLED,
            "dra_driver_wait": 60,
            **variables,
        }
        file = self.folder / "given.json"
        file.write_text(json.dumps(given))
        # kubernetes.core.helm calls one of its own return values deprecated at every use.
        trust = {"SSL_CERT_FILE": str(self.running.authority)}
        quiet = {"ANSIBLE_DEPRECATION_WARNINGS": "false"}
        homes = {f"HELM_{kind}_HOME": str(self.folder / f"helm-{kind}") for kind in ("CACHE", "CONFIG", "DATA")}
        proxies = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
        inventory = ("--inventory", self.folder / "inventory.yml")
        return ansible(
            "ansible-playbook", *inventory, "--extra-vars", f"@{file}", *arguments, self.folder / "play.yml",
            check=check,
            **homes, **proxies, **quiet, **trust,
        )  # fmt: skip

    def release(self) -> dict[str, Any] | None:
        done = self.running.helm("list", "--namespace", NAME, "--output", "json", check=False)
        rows = json.loads(done.stdout or "[]")
        return rows[0] if rows else None

    def clear(self) -> None:
        """Take away what a test made."""
        api = self.running.api()
        (self.running.directory / driver.FILE).unlink(missing_ok=True)
        for row in api.items(domains.DOMAINS):
            self.running.kubectl("delete", "computedomain", row["metadata"]["name"], "-n", row["metadata"]["namespace"])
        self.running.helm("uninstall", NAME, "--namespace", NAME, check=False)
        self.running.kubectl("delete", "crd", "--all", "--ignore-not-found")
        for row in api.items(nodes.PATH):
            api.delete(f"{nodes.PATH}/{row['metadata']['name']}")


@pytest.fixture
def site(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    plane.add_trays(control_plane, scenario.parse(FOUR))
    made = Site(control_plane, tmp_path)
    yield made
    made.clear()


def changed(done: subprocess.CompletedProcess[str]) -> int:
    recap = done.stdout.rpartition("PLAY RECAP")[2]
    return int(recap.partition("changed=")[2].split()[0])


def test_a_fresh_install_is_looked_at_first_and_done_once(site: Site) -> None:
    virgin = site.run("--check", "--diff")
    assert changed(virgin) > 0
    assert site.release() is None
    assert site.running.kubectl("get", "crd", "--no-headers", check=False).strip() == ""

    done = site.run()
    assert changed(done) > 0
    release = site.release()
    assert release is not None
    assert (release["chart"], release["status"]) == (f"{NAME}-0.5.0", "deployed")
    owners = {row["manager"] for row in site.running.api().get(CRD)["metadata"]["managedFields"]}
    assert "rackscale.nvlink" in owners

    again = site.run()
    assert changed(again) == 0, again.stdout


def test_a_release_of_25_12_is_upgraded_and_keeps_its_names_and_claims(site: Site) -> None:
    old = chart.folder(site.folder / "old", "25.12.0")
    values = ("--set", "resources.gpus.enabled=false")
    site.running.helm("install", NAME, old, "--namespace", NAME, "--create-namespace", *values)
    assert "numNodes" in json.dumps(required(site.running.api().get(CRD)))
    looked = site.run("--check")
    assert "dra_release_old" in looked.stderr
    assert "dra_crd_stale" in looked.stderr

    # From a registry, as a mirror has it.
    reference = site.running.publish(site.chart).replace(*addresses(site.running))
    site.run(dra_driver_chart=reference)
    release = site.release()
    assert release is not None
    assert release["chart"] == f"{NAME}-0.5.0"
    names = [row["metadata"]["name"] for row in site.running.api().items(DAEMON_SETS)]
    assert names == [f"{chart.OLD_NAME}-kubelet-plugin"]
    assert "numNodes" not in json.dumps(required(site.running.api().get(CRD)))


def addresses(running: ControlPlane) -> tuple[str, str]:
    """The registry's address in the lab's network, and outside it."""
    return f"{plane.KUBERNETES_ADDRESS}:{registry.PORT}", running.outside_address("registry")


def required(crd: dict[str, Any]) -> Any:
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec.get("required")


def test_what_stands_against_an_install_stops_it_before_anything_is_changed(site: Site) -> None:
    site.running.kubectl("label", "nodes", "--all", "--overwrite", *[f"{key}-" for key in DEFAULT_LABELS])
    done = site.run(check=False, dra_driver_values={**LABELLED, "nvidiaCtkPath": "/x", "logVerbosty": "4"})
    assert done.returncode != 0
    said = " ".join(f"{done.stdout} {done.stderr}".split())
    assert "The driver would not run on node r01t01: it has none of the labels" in said
    assert (
        "dra_driver_values, logVerbosty: the chart has no such key, and Helm would not say so; write logVerbosity."
        in said
    )
    assert "nvidiaCtkPath: the chart refuses it since 25.3" in said
    assert site.release() is None
    assert site.running.kubectl("get", "crd", "--no-headers", check=False).strip() == ""


def test_a_second_release_and_a_foreign_manager_are_told_and_left_alone(site: Site) -> None:
    site.running.helm(
        "install",
        "other",
        site.chart,
        "--namespace",
        "other",
        "--create-namespace",
        "--set",
        "resources.gpus.enabled=false",
    )
    crd = yaml.safe_dump(site.running.api().get(CRD) | {"metadata": {"name": CRD.rpartition("/")[2]}, "status": None})
    apply = ("apply", "--server-side", "--field-manager", "argocd-controller", "--force-conflicts", "-f", "-")
    site.running.kubectl(*apply, stdin=crd)
    try:
        done = site.run(check=False)
        said = " ".join(f"{done.stdout} {done.stderr}".split())
        assert done.returncode != 0
        assert "The Helm release other in namespace other has the driver's DeviceClasses" in said
        assert "is managed by argocd-controller" in said
        assert site.release() is None
    finally:
        site.running.helm("uninstall", "other", "--namespace", "other")


def test_the_driver_goes_only_when_nothing_lives_and_comes_back(site: Site) -> None:
    site.run()
    domain = {
        "apiVersion": domains.VERSION,
        "kind": "ComputeDomain",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "train-channel"}}},
    }
    site.running.kubectl("apply", "-f", "-", stdin=json.dumps(domain))
    refused = site.run(check=False, dra_driver_state="absent")
    assert refused.returncode != 0
    assert "ComputeDomains live (default/train)" in " ".join(refused.stdout.split())
    assert site.release() is not None
    # Nor does IMEX change hands under it.
    changing = site.run("--check", check=False, dra_driver_shape="host_managed")
    assert "IMEX cannot change hands while ComputeDomains live (default/train)" in " ".join(
        f"{changing.stdout} {changing.stderr}".split()
    )

    site.running.kubectl("delete", "computedomain", "train", "--timeout=60s")
    gone = site.run(dra_driver_state="absent", dra_driver_remove_crds=True)
    assert changed(gone) > 0
    assert site.release() is None
    assert site.running.kubectl("get", "crd", "--no-headers", check=False).strip() == ""


def test_gpu_operators_own_driver_is_judged_and_not_installed(site: Site) -> None:
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
    done = site.run("--tags", "preflight,crds,release", dra_driver_shape="gpu_cluster")
    assert changed(done) == 0
    assert site.release() is None
    refused = site.run("--tags", "preflight", check=False)
    assert "GPU Operator's GPUCluster gpu-cluster brings the driver" in " ".join(refused.stdout.split())


@pytest.mark.parametrize("fault", ["expired", "unreachable"])
def test_credentials_that_do_not_serve_are_one_sentence_without_a_secret(site: Site, fault: str) -> None:
    kubeconfig: Path = getattr(users, fault)(site.running)
    done = site.run(check=False, dra_driver_kubeconfig=str(kubeconfig), dra_driver_timeout=3)
    assert done.returncode != 0
    said = f"{done.stdout}{done.stderr}"
    assert "dra_driver" in said
    assert "Traceback" not in said
    for row in yaml.safe_load(kubeconfig.read_text())["users"]:
        assert not row["user"].get("token") or row["user"]["token"] not in said


def test_a_missing_right_is_named(site: Site) -> None:
    rules = [users.rule("", ["nodes"], ["list"]), users.rule("resource.k8s.io", ["deviceclasses"], ["list"])]
    kubeconfig = users.user(site.running, "poor", rules)
    text = kubeconfig.read_text().replace(site.running.server, f"https://{site.running.outside_address()}")
    (site.folder / "poor.kubeconfig").write_text(text)
    done = site.run(
        "--check", "--tags", "preflight", check=False, dra_driver_kubeconfig=str(site.folder / "poor.kubeconfig")
    )
    said = " ".join(done.stderr.split())
    assert "The account may not list daemonsets; allow it the verb list in all namespaces." in said
