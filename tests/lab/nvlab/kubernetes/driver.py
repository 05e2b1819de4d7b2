# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in for the pods of the DRA driver and GPU Feature Discovery, since no pod of the lab really runs.

Everything else is real: the chart's release, the DaemonSet controller and the scheduler that place the pods, the
claims that the scheduler allocates. kwok marks a pod as running; this process reads those pods and changes the API as
the programs in them do in release 0.5 of the driver.

- A pod of the kubelet plugin publishes ResourceSlices for its node, and writes nvidia.com/gpu.clique if it is
  configured to. It ends where its GPUs are not all in one clique; its slices and its label go with it.
- The controller gives a ComputeDomain its finalizer, its DaemonSet and its claim templates, and takes them back.
- A claim for a channel labels its node, so that the domain's DaemonSet puts a daemon there, which enters itself into
  the ComputeDomainClique.

It runs in rounds. NODE_FAULTS and CLUSTER_FAULTS list what it does otherwise after `lab kubernetes fault`.
Run as a file: ``driver.py DIRECTORY``, the control plane's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from nvlab import paths, state
from nvlab.errors import LabError
from nvlab.kubernetes import domains, nodes
from nvlab.kubernetes.api import Api, ApiError

PERIOD = 0.3
FILE = "driver.json"
# The clique of the GPUs of a node without a tray in the lab.
REPORTED_CLIQUE = "nvlink-lab/clique"
# The driver sets no field manager, so the API server uses the name of its program.
PLUGIN = "compute-domain-kubelet-plugin"
WRITTEN_BY_PLUGIN = "nvlink-lab/clique-written-by-plugin"
# not_ready: the domain's daemon never becomes READY.
NODE_FAULTS = {"daemon": ("ok", "not_ready")}
# gfd off: GPU Feature Discovery writes no label. paused: the stand-in does nothing.
CLUSTER_FAULTS = {"gfd": ("on", "off"), "paused": ("false", "true")}


def read_faults(directory: Path) -> dict[str, Any]:
    """{"cluster": {KEY: VALUE}, "nodes": {NODE: {KEY: VALUE}}}, defaults for missing keys."""
    try:
        faults: dict[str, Any] = json.loads((directory / FILE).read_text())
    except FileNotFoundError:
        return {"cluster": {}, "nodes": {}}
    return faults


def set_faults(directory: Path, node: str | None, settings: Mapping[str, str]) -> None:
    """Set faults of one node, or (None) of the cluster."""
    allowed: Mapping[str, tuple[str, ...]] = CLUSTER_FAULTS if node is None else NODE_FAULTS
    for key, value in settings.items():
        if key not in allowed:
            raise LabError(
                f"{key}: not a fault of {'the cluster' if node is None else 'a node'}, use {', '.join(allowed)}."
            )
        if value not in allowed[key]:
            raise LabError(f"{key}={value}: use one of {', '.join(allowed[key])}.")
    with state.locked(directory):
        faults = read_faults(directory)
        target = faults["cluster"] if node is None else faults["nodes"].setdefault(node, {})
        target.update(settings)
        state.write_atomically(directory / FILE, json.dumps(faults, indent=1, sort_keys=True) + "\n")


class Driver:
    """One round reads everything and does what is due; what the API server rejects is due again."""

    def __init__(self, api: Api, directory: Path) -> None:
        self.api = api
        self._directory = directory
        self._hosts = directory.parent / "hosts"
        self._uids: dict[str, str] = {}
        self._faults: dict[str, Any] = {"cluster": {}, "nodes": {}}

    def fault(self, key: str, node: str | None = None) -> str:
        faults = self._faults["cluster"] if node is None else self._faults["nodes"].get(node, {})
        return str(faults.get(key, ""))

    def round(self) -> None:
        self._faults = read_faults(self._directory)
        if self.fault("paused") == "true":
            return
        known = self.known()
        if self.fault("gfd") != "off":
            for node in known:
                self._feature_discovery(node)
        releases = list(self._releases())
        for release in releases:
            self._plugins(release, known)
        self._after_plugins(releases, known)
        for release in releases:
            if release["controller"]:
                domains.reconcile(self, release, known)

    # Nodes and their labels.

    def known(self) -> list[dict[str, Any]]:
        """All Nodes; only exactly these are changed later, not others of the same name."""
        found = self.api.items(nodes.PATH)
        self._uids = {node["metadata"]["name"]: node["metadata"]["uid"] for node in found}
        return found

    def _change(self, node: str, manager: str = PLUGIN, **metadata: Mapping[str, str | None]) -> None:
        """ApiError 422 if the Node was replaced since known(), since a UID is immutable."""
        body = {"metadata": {"uid": self._uids[node], **metadata}}
        self.api.patch(f"{nodes.PATH}/{node}?fieldManager={manager}", body)

    def gpus(self, node: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """The fabric of a node's GPUs without lost ones; None for a node without a tray in the lab."""
        try:
            hardware = json.loads((self._hosts / node["metadata"]["name"] / "hardware.json").read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return [gpu for gpu in hardware["facts"]["gpus"] if gpu["index"] not in hardware["lost"]]

    def clique(self, node: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """(clique, reason why the plugin exits instead) of a node, by the plugin's rules."""
        gpus = self.gpus(node)
        if gpus is not None:
            return nodes.driver_clique(gpus)
        metadata = node["metadata"]
        reported = metadata.get("annotations", {}).get(REPORTED_CLIQUE, metadata["labels"].get(nodes.CLIQUE, ""))
        return reported, None

    def _feature_discovery(self, node: Mapping[str, Any]) -> None:
        labels = node["metadata"]["labels"]
        gpus, reported = self.gpus(node), node["metadata"].get("annotations", {}).get(REPORTED_CLIQUE)
        if gpus is None and reported is None:
            return  # a node that has the labels with which it was made
        wanted = nodes.gfd_clique(gpus) if gpus is not None else reported or labels.get(nodes.CLIQUE)
        if wanted != labels.get(nodes.CLIQUE):
            self.label(node["metadata"]["name"], {nodes.CLIQUE: wanted}, "nfd-master")

    def label(self, node: str, labels: Mapping[str, str | None], manager: str = PLUGIN) -> None:
        self._change(node, manager, labels=labels)

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
                "writes_label": environment.get("GPU_CLIQUE_LABEL_ENABLED") == "true",
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
            name = node["metadata"]["name"]
            if not nodes.is_ready(node):
                release["nodes"].add(name)  # what its plugin has published stays
                continue
            clique, reason = self.clique(node)
            if reason and release["domains"]:
                self.unready(pod, reason, "CrashLoopBackOff")
                continue
            release["nodes"].add(name)
            self.ready(pod)
            self._publish(_of_pod(release, pod), node, slices)
            if release["writes_label"] and clique and node["metadata"]["labels"].get(nodes.CLIQUE) != clique:
                self.label(name, {nodes.CLIQUE: clique})
            if release["writes_label"] and WRITTEN_BY_PLUGIN not in node["metadata"].get("annotations", {}):
                # Without a tray nothing else has the clique after the label is removed.
                kept = {WRITTEN_BY_PLUGIN: "true", **({REPORTED_CLIQUE: clique} if clique else {})}
                self._change(name, annotations=kept)

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

    def _after_plugins(self, releases: list[dict[str, Any]], known: list[dict[str, Any]]) -> None:
        """Remove what a plugin removes at its end: its slices, and the label if it wrote it."""
        domains_on = {name for release in releases if release["domains"] for name in release["nodes"]}
        gpus_on = {name for release in releases if release["gpus"] for name in release["nodes"]}
        for row in self.api.items(domains.SLICES):
            on = {domains.DOMAIN_DRIVER: domains_on, domains.GPU_DRIVER: gpus_on}.get(row["spec"]["driver"])
            if on is not None and row["spec"].get("nodeName") not in on:
                self.api.delete(f"{domains.SLICES}/{row['metadata']['name']}")
        writing = {name for release in releases if release["writes_label"] for name in release["nodes"]}
        for node in known:
            name, metadata = node["metadata"]["name"], node["metadata"]
            if name not in writing and WRITTEN_BY_PLUGIN in metadata.get("annotations", {}):
                self._change(name, labels={nodes.CLIQUE: None}, annotations={WRITTEN_BY_PLUGIN: None})

    # Pods with failing containers.

    def unready(self, pod: dict[str, Any], reason: str, waiting: str) -> None:
        if not is_ready(pod):
            return
        status = pod["status"]
        for row in status["conditions"]:
            if row["type"] in ("Ready", "ContainersReady"):
                row.update(status="False", reason="ContainersNotReady", message=reason)
        for row in status["containerStatuses"]:
            row.update(
                ready=False, started=False, restartCount=3, state={"waiting": {"reason": waiting, "message": reason}}
            )
        self._put_status(pod)

    def ready(self, pod: dict[str, Any]) -> None:
        if is_ready(pod):
            return
        for row in pod["status"]["conditions"]:
            if row["type"] in ("Ready", "ContainersReady"):
                row.update(status="True", reason="", message="")
        for row in pod["status"]["containerStatuses"]:
            row.update(ready=True, started=True, state={"running": {"startedAt": pod["status"]["startTime"]}})
        self._put_status(pod)

    def _put_status(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        self.api.request("PUT", f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status", pod)


def _of_pod(release: Mapping[str, Any], pod: Mapping[str, Any]) -> dict[str, Any]:
    """The release with the programs of a pod, which may be of an older revision."""
    names = {part["name"] for part in pod["spec"]["containers"]}
    return {**release, "domains": "compute-domains" in names, "gpus": "gpus" in names}


def is_ready(pod: Mapping[str, Any]) -> bool:
    return any(row["type"] == "Ready" and row["status"] == "True" for row in pod["status"].get("conditions", []))


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
    driver = Driver(Api(network.file_of(name), KUBERNETES_ADDRESS, 6443, directory / "pki"), directory)
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
