# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify a site that has Kubernetes alone, on a real API server: each fault is one failure in its layer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from nvlab import scenario
from nvlab.kubernetes import domains, driver, nodes, plane
from nvlab.kubernetes.plane import ControlPlane

from .commands import ansible
from .conftest import CHECKOUT, OLDEST_KUBERNETES
from .workloads import FOUR

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long]

LABEL = "nvidia.com/gpu.clique"
CRDS = CHECKOUT / "tests" / "lab" / "kubernetes" / "chart" / "crds"
CHANNEL = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "compute-domain-default-channel.nvidia.com"},
    "spec": {"selectors": [{"cel": {"expression": "false"}}]},
}
Failures = list[tuple[str, str, list[str]]]


def fabric(texts: dict[str, str]) -> Fabric:
    """Four trays in two cliques. texts: tray -> the text of its clique."""
    made = fabrics.fabric(racks=1, trays=4, split=(1,))
    made.domains["r01"]["cluster_uuid"] = texts["r01t01"].partition(".")[0]
    assert {tray: made.clique_text(row["clique"]) for tray, row in made.trays.items()} == texts
    return made


def verify(running: ControlPlane, folder: Path, **more: Any) -> tuple[Failures, dict[str, Any]]:
    """The failures of the playbook verify for folder/fabric.json, which queries no tray; and the verdict."""
    given = {
        "fabric_file": str(folder / "fabric.json"),
        "verdict_file": str(folder / "verdict.json"),
        "verify_kubeconfig": str(running.outside),
        **more,
    }
    command = ("-i", "localhost,", "rackscale.nvlink.verify", "--tags", "quick", "-e", json.dumps(given))
    local = json.dumps({"ansible_connection": "local"})
    done = ansible("ansible-playbook", *command, "-e", local, check=False)
    assert (folder / "verdict.json").exists(), done.stdout + done.stderr
    verdict = json.loads((folder / "verdict.json").read_text())
    assert (done.returncode == 0) is verdict["ok"], done.stdout + done.stderr
    return [(row["layer"], row["code"], row["trays"]) for row in verdict["failures"]], verdict


class Site:
    """Four nodes with their clique's label, ResourceSlices and a ComputeDomainClique, and a fabric file of them."""

    def __init__(self, running: ControlPlane, folder: Path) -> None:
        self.running, self.folder = running, folder
        plane.add_trays(running, scenario.parse(FOUR))
        self.texts = {
            node["metadata"]["name"]: str(node["metadata"]["labels"][LABEL]) for node in running.api().items(nodes.PATH)
        }
        # The stand-in for the driver would repair the faults of a test.
        driver.set_faults(running.directory, None, {"paused": "true"})
        (folder / "fabric.json").write_bytes(fabric_file.serialise(fabric(self.texts)))

    def apply(self, *documents: dict[str, Any]) -> None:
        file = self.folder / "objects.yml"
        file.write_text(yaml.safe_dump_all(documents))
        self.running.kubectl("apply", "-f", str(file))

    def publish(self) -> None:
        """Write the objects of the driver's plugin and of a ComputeDomain's daemons."""
        self.running.kubectl("apply", "-f", str(CRDS))
        known = self.running.api().items(nodes.PATH)
        self.apply(*(domains.domain_slice(node, False) for node in known), self.clique("r01t01", "r01t02"))

    def clique(self, *trays: str) -> dict[str, Any]:
        text = self.texts["r01t01"]
        daemons = [
            {"nodeName": tray, "ipAddress": "10.0.0.1", "cliqueID": text, "index": at, "status": "Ready"}
            for at, tray in enumerate(trays)
        ]
        metadata = {"name": "training", "namespace": "default"}
        return {"apiVersion": domains.VERSION, "kind": "ComputeDomainClique", "metadata": metadata, "daemons": daemons}


@pytest.fixture
def site(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    made = Site(control_plane, tmp_path)
    made.publish()
    yield made
    control_plane.kubectl("delete", "resourceslices,deviceclasses", "--all")
    control_plane.kubectl("delete", "-f", str(CRDS), "--ignore-not-found")
    for name in made.texts:
        control_plane.kubectl("delete", "node", name, "--ignore-not-found")
    (control_plane.directory / driver.FILE).unlink(missing_ok=True)


@OLDEST_KUBERNETES
def test_a_site_with_kubernetes_alone_is_verified_by_it(site: Site) -> None:
    found, verdict = verify(site.running, site.folder)
    assert found == []
    checked = {layer for layer, state in verdict["layers"].items() if state == "checked"}
    assert checked == {"fabric_file", "kubernetes"}

    steps: list[tuple[Callable[[], Any], tuple[str, list[str]]]] = [
        (lambda: label(site, "r01t03", site.texts["r01t01"]), ("k8s_clique_label_wrong", ["r01t03"])),
        (lambda: site.apply(site.clique("r01t01", "r01t02", "r01t04")), ("dra_node_outdated", ["r01t04"])),
        (
            lambda: site.running.kubectl("delete", "resourceslice", f"r01t01-{domains.DOMAIN_DRIVER}"),
            ("dra_node_outdated", ["r01t01"]),
        ),
        # Without the driver's DeviceClasses its controller is not expected.
        (lambda: site.apply(CHANNEL), ("dra_plugin_unready", [])),
        (lambda: site.running.kubectl("label", "node", "r01t02", f"{domains.KEY}=0b1c"), ("dra_domain_leftovers", [])),
    ]
    expected = []
    for step, (code, trays) in steps:
        step()
        expected.append(("kubernetes", code, trays))
        found, _verdict = verify(site.running, site.folder)
        assert sorted(found) == sorted(expected)


def label(site: Site, node: str, text: str) -> None:
    site.running.kubectl("label", "node", node, "--overwrite", f"{LABEL}={text}")
