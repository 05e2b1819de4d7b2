# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's real control plane, and that its stand-in for the driver's pods does what the driver does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from nvlab import scenario
from nvlab.kubernetes import chart, domains, driver, nodes, plane
from nvlab.kubernetes.api import ApiError
from nvlab.kubernetes.plane import ControlPlane

from .conftest import NEWEST_KUBERNETES, OLDEST_KUBERNETES

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long]

FOUR = {"racks": [{"trays": 4, "cliques": [{"id": 1, "trays": [1, 2]}, {"id": 2, "trays": [3, 4]}]}]}

CLIQUES = f"apis/{domains.VERSION}/computedomaincliques"
CLAIMS = f"{domains.RESOURCE}/resourceclaims"
DEFAULT = f"apis/{domains.VERSION}/namespaces/default/computedomains"
DEPLOYMENTS = "apis/apps/v1/namespaces/default/deployments"
ONLY_DOMAINS = ("--set", "resources.gpus.enabled=false")
DOMAIN = {
    "apiVersion": domains.VERSION,
    "kind": "ComputeDomain",
    "metadata": {"name": "work", "namespace": "default"},
    "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "work-channel"}}},
}
Found = TypeVar("Found")


def until(what: str, condition: Callable[[], Found], seconds: float = 120.0) -> Found:
    """Wait until `condition` returns something true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.1)
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
    yield trays
    trays.helm("uninstall", "dra", "--namespace", "dra", check=False)
    until("no slices", lambda: not slices(trays))


def names(running: ControlPlane) -> list[str]:
    return [node["metadata"]["name"] for node in running.api().items(nodes.PATH)]


def slices(running: ControlPlane) -> list[str]:
    return sorted(row["metadata"]["name"] for row in running.api().items(domains.SLICES))


def label(running: ControlPlane, node: str) -> str | None:
    found: str | None = running.api().get(f"{nodes.PATH}/{node}")["metadata"]["labels"].get(nodes.CLIQUE)
    return found


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


@NEWEST_KUBERNETES
def test_a_compute_domain_lives_and_ends_as_with_the_driver(release: ControlPlane) -> None:
    api = release.api()
    uid = api.create(DEFAULT, DOMAIN)["metadata"]["uid"]
    template = f"{domains.RESOURCE}/namespaces/default/resourceclaimtemplates/work-channel"
    until("the claim template", lambda: api.find(template))
    # Empty, and yet Ready: the status that the driver sets for numNodes 0.
    until("the status", lambda: api.get(f"{DEFAULT}/work").get("status") == {"status": "Ready"})
    api.create(DEPLOYMENTS, workload(3, ["r01t01", "r01t02", "r01t03"]))
    expected = {
        f"{uid}.{label(release, 'r01t01')}": {"r01t01": "Ready", "r01t02": "Ready"},
        f"{uid}.{label(release, 'r01t03')}": {"r01t03": "Ready"},
    }
    until("a clique each", lambda: cliques(release) == expected)
    assert api.get(f"{nodes.PATH}/r01t01")["metadata"]["labels"][domains.KEY] == uid
    driver.set_faults(release.directory, "r01t02", {"daemon": "not_ready"})
    until("NotReady", lambda: api.get(f"{DEFAULT}/work")["status"]["status"] == "NotReady")
    driver.set_faults(release.directory, "r01t02", {"daemon": "ok"})
    until("Ready", lambda: api.get(f"{DEFAULT}/work")["status"]["status"] == "Ready")
    # Without the controller its finalizer keeps the domain.
    driver.set_faults(release.directory, None, {"controller": "stopped"})
    driver.set_faults(release.directory, "r01t04", {"plugin": "crash"})
    until("the stand-in has read both faults", lambda: len(slices(release)) == 3)
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


def cliques(running: ControlPlane) -> dict[str, dict[str, str]]:
    rows = running.api().items(CLIQUES)
    return {row["metadata"]["name"]: {one["nodeName"]: one["status"] for one in row["daemons"]} for row in rows}


@OLDEST_KUBERNETES
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
