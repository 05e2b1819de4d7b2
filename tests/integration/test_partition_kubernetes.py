# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook partition where trays are nodes of a Kubernetes cluster: a real API server and controllers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import CLIQUE
from nvlab import scenario
from nvlab.kubernetes import nodes, plane
from nvlab.kubernetes.plane import ControlPlane

from .conftest import NEWEST_KUBERNETES
from .partition_site import PartitionSite
from .test_dra_driver_role import TRAYS, Site
from .workloads import FOUR, until

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long]

ANNOTATION = "rackscale.nvlink/partition"


@pytest.fixture
def cluster(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    plane.add_trays(control_plane, scenario.parse(FOUR))
    made = Site(control_plane, tmp_path)
    yield made
    made.clear()


@pytest.fixture
def site(cluster: Site, tmp_path: Path) -> Iterator[PartitionSite]:
    made = PartitionSite(tmp_path / "site", racks=1, trays_per_rack=4)
    made.create()
    made.start()
    kubeconfig = str(cluster.running.kubeconfig)
    api: dict[str, Any] = dict.fromkeys(("verify_kubeconfig", "k8s_topology_kubeconfig"), kubeconfig)
    api["k8s_topology_enabled"] = "true"
    # Jobs are known here.
    api["partition_override"] = []
    made.variables = {"nvlink_partitions": {"r01": [2, 2]}, "partition_wait": 30, **api}
    yield made
    made.stop()


def cordoned(cluster: Site) -> dict[str, str]:
    """Cordoned tray -> the change for which it is, empty where somebody else has cordoned it."""
    found = {}
    for tray in TRAYS:
        node = cluster.running.api().get(f"{nodes.PATH}/{tray}")
        note = node["metadata"].get("annotations", {}).get(ANNOTATION, "")
        assert not note or node["spec"].get("unschedulable")
        if node["spec"].get("unschedulable"):
            found[tray] = note
    return found


def write_label(cluster: Site, tray: str, label: str) -> None:
    cluster.running.api().patch(f"{nodes.PATH}/{tray}", {"metadata": {"labels": {CLIQUE: label}}})


def follow(cluster: Site, site: PartitionSite, new: dict[str, str]) -> None:
    """Write these labels some seconds after the GPUs have changed, as GPU Feature Discovery does."""
    until("the return", lambda: any(line["step"] == "return" for line in site.journal))
    time.sleep(3)
    for tray, label in new.items():
        write_label(cluster, tray, label)


@NEWEST_KUBERNETES
def test_nodes_are_cordoned_while_their_partitions_change(cluster: Site, site: PartitionSite) -> None:
    kubectl, api = cluster.running.kubectl, cluster.running.api()
    cluster.install()
    cluster.work(*TRAYS[2:])
    before = site.everything
    # A ComputeDomain with a pod on two trays: IMEX is the driver's, and nobody but a person ends it.
    sentence = site.refused("--check")
    assert "jobs run on 2 trays (r01t[03-04]) of NVLink domain r01" in sentence
    assert "ComputeDomains use 2 trays (r01t[03-04])" in sentence
    assert "ComputeDomain default/work" in site.text
    assert "pod default/work-" in site.text
    assert (site.everything, cordoned(cluster)) == (before, {})
    api.delete("apis/apps/v1/namespaces/default/deployments/work")
    until("no pods", lambda: not api.items("api/v1/namespaces/default/pods"))
    kubectl("delete", "computedomain", "work")
    until(
        "no daemons",
        lambda: not any(cluster.daemons() for _row in api.items("apis/resource.nvidia.com/v1beta1/computedomains")),
    )

    kubectl("cordon", *TRAYS[2:])
    # An earlier change, at whose end this one did not answer, has left it so.
    kubectl("annotate", "node", TRAYS[2], f"{ANNOTATION}=000000000000")
    sha = site.plan()
    assert site.killed(lambda lines: bool(lines) and lines[-1]["step"] == "imex", partition_plan=sha)
    change = site.journal[-1]["incident"]
    assert cordoned(cluster) == {**dict.fromkeys(TRAYS[:3], change), TRAYS[3]: ""}
    # The labels are those of before until their writer looks again.
    new = {tray: api.get(f"{nodes.PATH}/{tray}")["metadata"]["labels"][CLIQUE] for tray in TRAYS}
    for tray, label in new.items():
        write_label(cluster, tray, f"{label.partition('.')[0]}.32766")
    begun = threading.Thread(target=follow, args=(cluster, site, new))
    begun.start()
    site.partition(partition_plan=sha)
    begun.join()
    assert cordoned(cluster) == {TRAYS[3]: ""}, "a person has cordoned it"
    assert sorted(site.cliques.values()) == [TRAYS[:2], TRAYS[2:]]
    assert "changed=1" not in site.partition()
