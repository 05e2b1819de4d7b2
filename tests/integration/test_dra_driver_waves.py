# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DRA driver in waves on a real control plane: its DaemonSet controller, and a stand-in for the driver's own pods.

The trays of the rollout are local hosts, as in test_rollout.py; the rollout changes the nodes of the same names.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import device_plugins, node_waves
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabrics import fabric
from nvlab import scenario
from nvlab.kubernetes import domains, driver, nodes, plane
from nvlab.kubernetes.plane import ControlPlane

from .commands import unchanged
from .conftest import OLDEST_KUBERNETES
from .test_dra_driver_role import FACTS, NAME, Site, changed, printed, until

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long, OLDEST_KUBERNETES]

RACKS = {"racks": [{"trays": 2}] * 3}
FIRST, SECOND, THIRD = ({f"r{rack:02d}t{tray:02d}" for tray in (1, 2)} for rack in (1, 2, 3))
PODS = f"api/v1/namespaces/{NAME}/pods"


class Fleet(Site):
    """Three racks of two trays, each a clique."""

    def __init__(self, running: ControlPlane, folder: Path) -> None:
        super().__init__(running, folder)
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        hosts = {name: {**FACTS, **local} for name in sorted(FIRST | SECOND | THIRD)}
        self.fabric_file = folder / "fabric.json"
        self.fabric_file.write_text(json.dumps(fabric(racks=3, trays=2, split=()).as_dict()))
        (folder / "inventory.yml").write_text(json.dumps({"nvlink": {"hosts": hosts}}))
        self.progress_file = folder / "fabric.rollout-dra.json"

    def install_restricted(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        # Another writer owns the clique label here, since a local host has no GPUs to compare.
        options = {"dra_driver_values": {}, "dra_driver_external_label_writer": True, "dra_driver_waves": True}
        return self.run(*arguments, **options, **more)

    def rollout(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        play = self.folder / "play.yml"
        kept = play.read_text()
        play.write_text(json.dumps([{"import_playbook": "rackscale.nvlink.rollout"}]))
        try:
            # dra_driver_trays of the site must not widen a wave.
            given = {"rollout_name": "dra", "fabric_file": str(self.fabric_file), "dra_driver_wait": 20, **more}
            given["dra_driver_trays"] = sorted(FIRST | SECOND | THIRD)
            values = {"dra_driver_values": {}, "dra_driver_external_label_writer": True, "dra_driver_waves": True}
            return self.run(*arguments, check=False, **{**values, **given})
        finally:
            play.write_text(kept)

    @property
    def unfinished(self) -> dict[str, str]:
        if not self.progress_file.exists():
            return {}
        return {name: row["state"] for name, row in json.loads(self.progress_file.read_text())["cliques"].items()}

    @property
    def enabled(self) -> set[str]:
        return {row["metadata"]["name"] for row in self.running.api().items(nodes.PATH) if node_waves.is_enabled(row)}

    def pods(self) -> dict[str, str]:
        """Node -> UID of the plugin's pod there."""
        rows = [row for row in self.running.api().items(PODS) if "kubelet-plugin" in row["metadata"]["name"]]
        return {row["spec"]["nodeName"]: row["metadata"]["uid"] for row in rows}

    def published(self) -> set[str]:
        return {row["spec"]["nodeName"] for row in self.running.api().items(domains.SLICES)}


@pytest.fixture
def fleet(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Fleet]:
    plane.add_trays(control_plane, scenario.parse(RACKS))
    made = Fleet(control_plane, tmp_path)
    yield made
    made.clear()


def test_the_canary_is_first_a_failed_clique_stops_the_rollout_and_a_resume_finishes_it(fleet: Fleet) -> None:
    assert changed(fleet.install_restricted()) > 0
    assert (fleet.enabled, fleet.pods(), fleet.published()) == (set(), {}, set())
    again = fleet.install_restricted()
    assert changed(again) == 0
    assert "dra_waves_pending" in printed(again)

    preview = fleet.rollout("--check", "--diff")
    assert (preview.returncode, fleet.enabled) == (0, set()), printed(preview)
    assert "+r01t01: rackscale.nvlink/dra-driver=true" in preview.stdout

    driver.set_faults(fleet.running.directory, "r02t01", {"plugin": "crash"})
    stopped = fleet.rollout(rollout_stop_after=1)
    assert stopped.returncode != 0
    assert fleet.unfinished == {"r02": "failed", "r03": "pending"}
    assert "is not ready: compute-domains CrashLoopBackOff, ordered; see kubectl" in printed(stopped), printed(stopped)
    # The failed node is disabled again, the ready ones stay enabled, and no other clique has started.
    until("no plugin on the node that failed", lambda: "r02t01" not in fleet.pods())
    assert fleet.enabled == {*FIRST, "r02t02"}
    assert fleet.published() == {*FIRST, "r02t02"}

    driver.set_faults(fleet.running.directory, "r02t01", {"plugin": "ok"})
    first = {name: uid for name, uid in fleet.pods().items() if name in FIRST}
    on = fleet.rollout(rollout_resume=str(fleet.progress_file))
    assert (on.returncode, fleet.unfinished) == (0, {}), printed(on)
    assert fleet.enabled == fleet.published() == {*FIRST, *SECOND, *THIRD}
    assert first.items() <= fleet.pods().items()
    assert unchanged(fleet.rollout().stdout)
    assert "dra_waves_pending" not in printed(fleet.install_restricted())


def test_a_running_release_stays_on_all_nodes_and_its_next_value_is_applied_in_waves(fleet: Fleet) -> None:
    fleet.running.helm(
        "install", NAME, fleet.chart, "--namespace", NAME, "--create-namespace", "--set", "resources.gpus.enabled=false"
    )
    until("the slices of all nodes", lambda: len(fleet.published()) == 6)
    before = fleet.pods()
    verbose = {"dra_driver_values": {"logVerbosity": "6"}}
    fleet.run(dra_driver_external_label_writer=True, dra_driver_waves=True, **verbose)
    assert (fleet.enabled, fleet.pods()) == ({*FIRST, *SECOND, *THIRD}, before)

    canary = fleet.rollout("--limit", "r01t01,r01t02,localhost", **verbose)
    now = fleet.pods()
    assert canary.returncode == 0, printed(canary)
    assert {name for name, uid in now.items() if uid != before[name]} == FIRST
    assert "has 4 pods of the old revision" in printed(
        fleet.run(dra_driver_external_label_writer=True, dra_driver_waves=True, **verbose)
    )
    rest = fleet.rollout(**verbose)
    assert rest.returncode == 0, printed(rest)
    assert {name for name, uid in fleet.pods().items() if uid != now[name]} == {*SECOND, *THIRD}

    fleet.run(dra_driver_state="absent", dra_driver_waves=True)
    assert fleet.enabled == set()


DEVICE_PLUGIN = "nvidia-device-plugin-daemonset"
DEVICE_PLUGINS = "apis/apps/v1/namespaces/default/daemonsets"
DEFAULT_PODS = "api/v1/namespaces/default/pods"
GPUS = "nvidia.com/gpu"


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
            pods = [row for row in self._api.items(DEFAULT_PODS) if row["metadata"]["name"].startswith(DEVICE_PLUGIN)]
            on = {row["spec"].get("nodeName") for row in pods}
            slices = self._api.items(domains.SLICES)
            by_dra = {row["spec"]["nodeName"] for row in slices if row["spec"]["driver"] == domains.GPU_DRIVER}
            self.twice |= on & by_dra
            for node in self._api.items(nodes.PATH):
                name, amount = node["metadata"]["name"], "4" if node["metadata"]["name"] in on else "0"
                if node["status"]["capacity"].get(GPUS) != amount:
                    amounts = {GPUS: amount}
                    self._api.patch(
                        f"{nodes.PATH}/{name}/status", {"status": {"capacity": amounts, "allocatable": amounts}}
                    )

    def stop(self) -> None:
        self._ends.set()
        self.join()
