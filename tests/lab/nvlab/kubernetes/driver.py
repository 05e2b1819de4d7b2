# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in for the pods of the DRA driver, since no pod of the lab really runs.

Everything else is real: the chart's release, the DaemonSet controller and the scheduler that place the pods, the
claims that the scheduler allocates. kwok marks a pod as running; this process reads those pods and changes the API as
the programs in them do in release 0.5 of the driver.

- A pod of the kubelet plugin publishes ResourceSlices for its node; they go with it. The node's label
  nvidia.com/gpu.clique stays as plane.py or a test made it.
- The controller gives a ComputeDomain its DaemonSet and its claim templates, and takes them back.
- A claim for a channel labels its node, so that the domain's DaemonSet puts a daemon there, which enters itself into
  the ComputeDomainClique.

It runs in rounds. Run as a file: ``driver.py DIRECTORY``, the control plane's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from nvlab import paths
from nvlab.kubernetes import domains, nodes
from nvlab.kubernetes.api import Api, ApiError

PERIOD = 0.3
# The driver sets no field manager, so the API server uses the name of its program.
PLUGIN = "compute-domain-kubelet-plugin"


class Driver:
    """One round reads everything and does what is due; what the API server rejects is due again."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._uids: dict[str, str] = {}

    def round(self) -> None:
        known = self.known()
        releases = list(self._releases())
        for release in releases:
            self._plugins(release, known)
        self._after_plugins(releases)
        for release in releases:
            if release["controller"]:
                domains.reconcile(self, release, known)

    # Nodes and their labels.

    def known(self) -> list[dict[str, Any]]:
        """All Nodes; only exactly these are changed later, not others of the same name."""
        found = self.api.items(nodes.PATH)
        self._uids = {node["metadata"]["name"]: node["metadata"]["uid"] for node in found}
        return found

    def label(self, node: str, labels: Mapping[str, str | None]) -> None:
        """ApiError 422 if the Node was replaced since known(), since a UID is immutable."""
        body = {"metadata": {"uid": self._uids[node], "labels": labels}}
        self.api.patch(f"{nodes.PATH}/{node}?fieldManager={PLUGIN}", body)

    # The release, found by its containers' names, which both chart names share.

    def _releases(self) -> Iterator[dict[str, Any]]:
        deployments = self.api.items("apis/apps/v1/deployments")
        for row in self.api.items("apis/apps/v1/daemonsets"):
            containers = {part["name"]: part for part in row["spec"]["template"]["spec"]["containers"]}
            if not {"compute-domains", "gpus"} & set(containers):
                continue
            namespace = row["metadata"]["namespace"]
            environment = {
                entry["name"]: entry.get("value", "") for part in containers.values() for entry in part.get("env", [])
            }
            yield {
                "namespace": namespace,
                "set": row,
                "domains": "compute-domains" in containers,
                "gpus": "gpus" in containers,
                "host_managed": environment.get("IMEX_MODE") == "hostManaged",
                "image": row["spec"]["template"]["spec"]["containers"][0]["image"],
                "controller": any(_is_controller(one, namespace) for one in deployments),
            }

    def pods(self, namespace: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """The running pods of a label selector that have a node and are not being deleted."""
        selector = ",".join(f"{key}%3D{value}" for key, value in labels.items())
        found = self.api.items(f"api/v1/namespaces/{namespace}/pods?labelSelector={selector}")
        return [pod for pod in found if pod["status"].get("phase") == "Running" and _is_kept(pod)]

    # The kubelet plugin.

    def _plugins(self, release: dict[str, Any], known: list[dict[str, Any]]) -> None:
        slices = {row["metadata"]["name"]: row for row in self.api.items(domains.SLICES)}
        by_name = {node["metadata"]["name"]: node for node in known}
        release["nodes"] = set()
        for pod in self.pods(release["namespace"], release["set"]["spec"]["selector"]["matchLabels"]):
            node = by_name.get(pod["spec"]["nodeName"])
            if node is None:
                continue
            release["nodes"].add(node["metadata"]["name"])
            self._publish(_of_pod(release, pod), node, slices)

    def _publish(self, release: Mapping[str, Any], node: Mapping[str, Any], slices: Mapping[str, Any]) -> None:
        wanted = []
        if release["domains"]:
            wanted.append(domains.domain_slice(node, release["host_managed"]))
        if release["gpus"]:
            wanted.append(domains.gpu_slice(node))
        for row in wanted:
            there = slices.get(row["metadata"]["name"])
            if there is None:
                self.api.create(domains.SLICES, row)
            elif [one["name"] for one in there["spec"].get("devices", [])] != [
                one["name"] for one in row["spec"]["devices"]
            ]:
                there["spec"]["devices"] = row["spec"]["devices"]
                there["spec"]["pool"]["generation"] += 1
                self.api.request("PUT", f"{domains.SLICES}/{row['metadata']['name']}", there)

    def _after_plugins(self, releases: list[dict[str, Any]]) -> None:
        """Remove what a plugin removes at its end, its slices."""
        domains_on = {name for release in releases if release["domains"] for name in release["nodes"]}
        gpus_on = {name for release in releases if release["gpus"] for name in release["nodes"]}
        for row in self.api.items(domains.SLICES):
            on = {domains.DOMAIN_DRIVER: domains_on, domains.GPU_DRIVER: gpus_on}.get(row["spec"]["driver"])
            if on is not None and row["spec"].get("nodeName") not in on:
                self.api.delete(f"{domains.SLICES}/{row['metadata']['name']}")


def _of_pod(release: Mapping[str, Any], pod: Mapping[str, Any]) -> dict[str, Any]:
    """The release with the programs of a pod, which may be of an older revision."""
    names = {part["name"] for part in pod["spec"]["containers"]}
    return {**release, "domains": "compute-domains" in names, "gpus": "gpus" in names}


def _is_kept(pod: Mapping[str, Any]) -> bool:
    return "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]


def _is_controller(row: Mapping[str, Any], namespace: str) -> bool:
    names = {part["name"] for part in row["spec"]["template"]["spec"]["containers"]}
    here: bool = row["metadata"]["namespace"] == namespace
    return here and "compute-domain" in names and row["status"].get("availableReplicas", 0) > 0


def main(directory: Path) -> None:
    from nvlab import network
    from nvlab.addresses import KUBERNETES_ADDRESS

    name = directory.parent.name
    driver = Driver(Api(network.file_of(name), KUBERNETES_ADDRESS, 6443, directory / "pki"))
    while paths.state_of(name).is_dir():
        try:
            driver.round()
        except ApiError as error:
            # The object changed, or the API server is unreachable: the next round tries again.
            if error.status not in (0, 404, 409, 503):
                print(f"driver: {error}", flush=True)
        time.sleep(PERIOD)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
