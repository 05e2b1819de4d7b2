# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook kubernetes on trays of the lab that are nodes: IMEX is run by the driver or by the trays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from nvlab import imex
from nvlab.kubernetes import chart, domains, programs
from nvlab.kubernetes.plane import ControlPlane

from . import pages
from .commands import ansible
from .conftest import RunningLab, lab_command, running_lab
from .test_dra_driver_role import LABELLED, printed
from .workloads import DOMAIN, until, with_helm

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long]

TRAYS = [f"r01t{number:02d}" for number in range(1, 5)]
# The lab's kernel has no IMEX channels.
DEVICES = "/root/devices"


class Racks:
    """Trays without IMEX, their control plane, and the site's playbook."""

    def __init__(self, lab: RunningLab, folder: Path) -> None:
        self.lab, self.cluster = lab, ControlPlane(lab.name)
        self.fabric, self.folder = folder / "fabric.json", folder
        for tray in TRAYS:
            self.devices(tray, "4 nvidia-caps-imex-channels")

    def devices(self, tray: str, row: str) -> None:
        """Let a tray's kernel have this device."""
        self.lab.exec(tray, "sh", "-c", f"printf 'Character devices:\\n  {row}\\n' > {DEVICES}")

    def discover(self) -> None:
        given = {"fabric_file": str(self.fabric), "fabric_accept": "gates"}
        self._ansible("rackscale.nvlink.discover", given)

    def run(self, *options: str, check: bool = True, **variables: Any) -> subprocess.CompletedProcess[str]:
        return self._ansible("rackscale.nvlink.kubernetes", {**self.variables(), **variables}, *options, check=check)

    def variables(self) -> dict[str, Any]:
        """The variables of the site."""
        return {
            "fabric_file": str(self.fabric),
            "dra_driver_tray_hosts": "trays",
            "dra_driver_trays": TRAYS,
            "dra_driver_kubeconfig": str(self.cluster.kubeconfig),
            "dra_driver_helm": str(programs.helm()),
            "dra_driver_chart": str(chart.CHART),
            "dra_driver_values": {**LABELLED, "altProcDevices": DEVICES},
            "dra_driver_wait": 60,
            "k8s_topology_kubeconfig": str(self.cluster.kubeconfig),
        }

    def _ansible(
        self, playbook: str, given: dict[str, Any], *options: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        arguments = ["-i", self.lab.inventory, playbook, "-e", json.dumps(given), *options]
        return ansible("ansible-playbook", *arguments, check=check, timeout=600, **with_helm(self.folder))

    def start_imex(self) -> None:
        """Let each tray run IMEX with a list of its own, without this collection."""
        for tray, row in json.loads(self.fabric.read_text())["trays"].items():
            list_file = f"echo {row['imex_address']} > /etc/nvidia-imex/nodes_config.cfg"
            self.lab.exec(tray, "sh", "-c", f"{list_file} && systemctl enable --now nvidia-imex.service")

    def imex(self, owner: str) -> None:
        """Configure IMEX by the role."""
        given = {"imex_hosts": "trays", "imex_owner": owner, "imex_fabric_file": str(self.fabric)}
        self._ansible("rackscale.nvlink.imex", given)

    def record(self) -> str:
        """The owner that the role imex has recorded on every tray; empty without a record."""
        read = "cat /etc/nvidia-imex/nvlink.json 2>/dev/null || echo '{}'"
        found = {json.loads(self.lab.exec(tray, "sh", "-c", read).stdout).get("owner", "") for tray in TRAYS}
        (owner,) = found
        return str(owner)

    def units(self) -> set[str]:
        """The states of nvidia-imex.service on the trays."""
        show = ("systemctl", "show", "--property=LoadState,ActiveState", "--value", "nvidia-imex.service")
        return {" ".join(self.lab.exec(tray, *show).stdout.split()) for tray in TRAYS}

    def mode(self) -> str:
        """The IMEX mode of the installed driver."""
        rows = self.cluster.api().items(f"apis/apps/v1/namespaces/{chart.NAME}/daemonsets")
        plugin = next(row for row in rows if row["metadata"]["name"].endswith("-kubelet-plugin"))
        container = plugin["spec"]["template"]["spec"]["containers"][0]
        return next(str(entry["value"]) for entry in container["env"] if entry["name"] == "IMEX_MODE")

    def live(self) -> None:
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(DOMAIN))
        until("the ComputeDomain is Ready", lambda: self.cluster.api().items(domains.DOMAINS)[0].get("status"))

    def end(self) -> None:
        self.cluster.kubectl("delete", "computedomain", "work", "--timeout=60s")


@pytest.fixture
def racks(tmp_path: Path) -> Iterator[Racks]:
    with running_lab(tmp_path, "kubernetes.yml") as lab:
        lab_command("packages", "--name", lab.name, str(imex.packages()))
        yield Racks(lab, tmp_path)


DRIVERS, HOSTS = ({"masked inactive"}, "driverManaged"), ({"loaded active"}, "hostManaged")


def test_the_owner_of_imex_changes_trays_first_and_never_with_a_compute_domain(racks: Racks) -> None:
    racks.discover()
    racks.run()
    assert (racks.units(), racks.mode()) == DRIVERS
    racks.live()
    refused = racks.run(check=False, dra_driver_shape="host_managed")
    assert refused.returncode != 0
    assert "The owner of IMEX cannot change while ComputeDomains exist (default/work)" in printed(refused)
    assert (racks.units(), racks.mode()) == DRIVERS
    racks.end()
    # What can fail without a change fails before the trays change.
    for more in ({"dra_driver_chart": str(racks.folder / "no-chart")}, {"dra_driver_values": {"logVerbosty": "6"}}):
        broken = racks.run(check=False, dra_driver_shape="host_managed", **more)
        assert broken.returncode != 0
        assert (racks.units(), racks.mode()) == DRIVERS
    racks.devices(TRAYS[1], "1 mem")
    broken = racks.run(check=False, dra_driver_shape="host_managed")
    assert f"Tray {TRAYS[1]} has no nvidia-caps-imex-channels" in printed(broken)
    assert (racks.units(), racks.mode()) == DRIVERS
    racks.devices(TRAYS[1], "4 nvidia-caps-imex-channels")
    for shape, after in (("host_managed", HOSTS), ("compute_domains", DRIVERS)):
        done = racks.run(dra_driver_shape=shape)
        assert (racks.units(), racks.mode()) == after, printed(done)
    again = racks.run()
    assert all("changed=0 " in line for line in again.stdout.partition("PLAY RECAP")[2].splitlines()[1:] if line)


def test_a_failed_installation_leaves_imex_as_it_was(racks: Racks) -> None:
    racks.discover()
    # Of the role imex, which installs the package, and of that alone.
    for owner in ("host_managed", ""):
        racks.imex(owner or "none")
        if not owner:
            racks.start_imex()
        before = racks.units()
        assert before == {"loaded active"}
        # What the API server refuses is found before the trays change.
        plugin = {**LABELLED["kubeletPlugin"], "tolerations": [{"key": "nvidia.com/gpu", "operater": "Exists"}]}
        values = {**racks.variables()["dra_driver_values"], "kubeletPlugin": plugin}
        for options in () if owner else (("--check",), ()):
            refused = racks.run(*options, check=False, dra_driver_values=values, k8s_topology_enabled=False)
            assert refused.returncode != 0
            assert "tolerations[0].operater" in printed(refused), refused.stdout
            assert racks.units() == before
        # What only Helm finds, when no pod of a Deployment can run, restores them.
        failed = racks.run(check=False, dra_driver_chart=str(never_ready(racks.folder)), dra_driver_wait=15)
        assert failed.returncode != 0
        assert "This run has restored IMEX" in printed(failed), failed.stdout
        assert racks.units() == before
        assert racks.record() == owner
        racks.cluster.helm("uninstall", chart.NAME, "--namespace", chart.NAME)


def never_ready(folder: Path) -> Path:
    """The chart with a Deployment for which there is no node."""
    made = folder / "never-ready"
    if not made.exists():
        shutil.copytree(chart.CHART, made)
        pod = {"nodeSelector": {"none": "such"}, "containers": [{"name": "main", "image": "main"}]}
        labels = {"app": "never"}
        spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
        more = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "never"}, "spec": spec}
        (made / "templates" / "never.yaml").write_text(yaml.safe_dump(more))
    return made


def test_the_commands_of_the_kubernetes_pages_run_unchanged(racks: Racks, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of a site: from nothing to a pod, the driver, the schedulers' objects, then their removal."""
    quick_start = "docs/quick-start-kubernetes.md"
    monkeypatch.setenv("PATH", f"{programs.kubectl().parent}{os.pathsep}{os.environ['PATH']}")
    shell = pages.Shell(racks.folder, KUBECONFIG=str(racks.cluster.kubeconfig), **with_helm(racks.folder))
    (racks.folder / "hosts.yml").write_text(racks.lab.inventory.read_text())
    (racks.folder / "group_vars").mkdir()
    # The page's own, with those of the lab. The pages name no hosts: these are in the group nvlink.
    given = {**yaml.safe_load(pages.files(quick_start)["group_vars/all.yml"]), **racks.variables()}
    del given["dra_driver_tray_hosts"]
    (racks.folder / "group_vars" / "all.yml").write_text(json.dumps(given))
    shell.follow(quick_start, keep=("hosts.yml", "group_vars/all.yml"))
    assert shell.missing(quick_start) == []
    for page in ("docs/dra-driver.md", "docs/k8s-topology.md"):
        shell.follow(page, keep=pages.files(page))
    assert racks.units() == {"masked inactive"}
