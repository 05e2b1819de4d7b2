# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source topograph with NVIDIA Topograph 1.0 itself, which runs on the Slurm controller as a site's service.

TOPOGRAPH names its program; the lab has none of its own.
It reads the trays by Debian's pdsh over ssh, the nodes from slurmctld, and the API server with the account of a pod.
nvidia-smi is the lab's. Two more programs of the trays are stand-ins: `sudo` only runs its command, as the caller is
root, and `ibnetdiscover` prints one leaf switch with a port of each tray: it looks at no fabric and takes no option.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from nvlab import host, paths
from nvlab.addresses import CONTROLLER, CONTROLLER_ADDRESS
from nvlab.kubernetes import nodes, programs, users
from nvlab.kubernetes.plane import ControlPlane

from .commands import ansible
from .conftest import CHECKOUT, SCENARIOS, RunningLab, running_lab
from .test_kubernetes_lab import until

PROGRAM = os.environ.get("TOPOGRAPH", "")
MISSING = "NVIDIA Topograph is not next to the checkout: TOPOGRAPH names no program"
pytestmark = [
    pytest.mark.lab,
    pytest.mark.kubernetes,
    pytest.mark.minutes,
    # The Go module proxy refuses this module, so the lab cannot build it as it builds the programs of Kubernetes.
    pytest.mark.skipif(not os.access(PROGRAM, os.X_OK), reason=MISSING),
]

PORT = 49021
CONFIG = {"http": {"port": PORT, "ssl": False}, "requestAggregationDelay": "1s"}
TRAYS = ("r01t01", "r01t02", "r01t03", "r01t04")
QUERY = ("nvidia-smi", "--query-gpu=fabric.clusterUuid,fabric.cliqueId", "--format=csv,noheader")
# What Topograph's chart grants to the provider dra with the engine slinky.
RULES = [
    users.rule("", ["nodes", "pods"], ["get", "list"]),
    users.rule("", ["configmaps"], ["get", "create", "update"]),
]
SETUP = f"""\
set -e
cd {host.SHARED_PLACE}
cp --recursive --no-clobber pdsh/. /
install -D -m 600 key ~root/.ssh/id_ed25519
printf 'StrictHostKeyChecking accept-new\\nLogLevel ERROR\\n' >~root/.ssh/config
install -D --target-directory=/run/secrets/kubernetes.io/serviceaccount token ca.crt
systemd-run --quiet --unit=topograph --setenv=KUBERNETES_SERVICE_HOST="$1" --setenv=KUBERNETES_SERVICE_PORT="$2" \\
    "$PWD/topograph" -c "$PWD/topograph.yaml"
"""
INSTALL = 'printf "%s" "$2" >"$1" && chmod 755 "$1"'
SUDO = '#!/bin/sh\nexec "$@"\n'
IBNETDISCOVER = "/usr/local/sbin/ibnetdiscover"
SLURMD = {"app.kubernetes.io/component": "worker"}
NO_FABRIC = (
    "has no topology (cannot determine blockSizes: topology contains no blocks); run sudo ibnetdiscover on a node: "
)


class Site(NamedTuple):
    racks: RunningLab
    plane: ControlPlane

    def inventory(self, folder: Path, options: Mapping[str, Any], check: bool = True) -> Any:
        """The clique of each tray (None without one) by the inventory plugin, or the message of its failure."""
        file = folder / "live.nvlink.yml"
        file.write_text(
            yaml.safe_dump({"plugin": "rackscale.nvlink.fabric", "sources": ["topograph"], "topograph": dict(options)})
        )
        done = ansible("ansible-inventory", "-i", file, "--list", check=check, inside=self.plane.inside(()))
        if done.returncode:
            return " ".join(done.stderr.split())
        return {tray: row.get("nvlink_clique") for tray, row in json.loads(done.stdout)["_meta"]["hostvars"].items()}

    def refused(self, folder: Path, **options: Any) -> str:
        """The message of a request that Topograph rejects."""
        message = self.inventory(folder, asked(**options), check=False)
        assert isinstance(message, str), message
        return message

    def reported(self, tray: str) -> str:
        """The clique that all GPUs of a tray report."""
        (line,) = set(self.racks.exec(tray, *QUERY).stdout.splitlines())
        return line.replace(", ", ".")


def documented() -> list[dict[str, Any]]:
    """The examples of docs/sources.md: a request, and a ConfigMap."""
    text = (CHECKOUT / "docs" / "sources.md").read_text()
    section = text.partition("\n## topograph\n")[2].partition("\n## ")[0]
    return [yaml.safe_load(example)["topograph"] for example in re.findall(r"(?s)```yaml\n(.*?)```", section)]


def asked(**options: Any) -> dict[str, Any]:
    """The documented request, sent to this Topograph, with other options."""
    return {**documented()[0], "url": f"http://{CONTROLLER_ADDRESS}:{PORT}", "poll_interval": 0.2, **options}


def slurm(**params: Any) -> dict[str, Any]:
    return {"name": "slurm", "params": params}


def standin(trays: tuple[str, ...]) -> str:
    """A program that prints one leaf switch and a port of each tray, as ibnetdiscover of rdma-core does."""
    leaf = "S-0000000000000a00"
    lines = [
        "#",
        "# Topology file: generated by the lab",
        "#",
        "",
        f'Switch\t64 "{leaf}"\t\t# "MF0;leaf1:MQM9700/U1" lid 1',
    ]
    hosts = [(number, f"H-000000000000000{number}", f"{tray} mlx5_0") for number, tray in enumerate(trays, 1)]
    lines += [f'[{number}]\t"{guid}"[1](0)\t\t# "{name}" lid {number + 1} 4xNDR' for number, guid, name in hosts]
    for number, guid, name in hosts:
        lines += [
            "",
            f'Ca\t1 "{guid}"\t\t# "{name}"',
            f'[1](0)\t"{leaf}"[{number}]\t\t# lid {number + 1} "leaf1" lid 1 4xNDR',
        ]
    return "\n".join(["#!/bin/sh", "cat <<'END'", *lines, "END", ""])


def install(racks: RunningLab, tray: str, place: str, text: str) -> None:
    racks.exec(tray, "sh", "-c", INSTALL, "sh", place, text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Four trays in two cliques that are nodes of a Slurm and of a Kubernetes, and Topograph on the controller."""
    folder = tmp_path_factory.mktemp("topograph")
    scenario = folder / "topograph.yml"
    scenario.write_text(yaml.safe_dump({**yaml.safe_load((SCENARIOS / "four.yml").read_text()), "kubernetes": True}))
    pdsh = programs.pdsh()
    with running_lab(folder, scenario) as racks:
        running = ControlPlane(racks.name)
        state = paths.state_of(racks.name)
        shared = state / host.SHARED
        shutil.copytree(pdsh, shared / "pdsh", symlinks=True)
        shutil.copy(PROGRAM, shared / "topograph")
        shutil.copyfile(state / "key", shared / "key")
        (shared / "topograph.yaml").write_text(yaml.safe_dump(CONFIG))
        (shared / "token").write_text(users.token_of(users.user(running, "topograph", RULES)))
        shutil.copyfile(running.authority, shared / "ca.crt")
        server, port = running.server.removeprefix("https://").split(":")
        racks.exec(CONTROLLER, "sh", "-c", SETUP, "sh", server, port)
        for tray in TRAYS:
            install(racks, tray, "/usr/local/bin/sudo", SUDO)
            install(racks, tray, IBNETDISCOVER, standin(TRAYS))
        yield Site(racks, running)


def test_the_documented_request_finds_the_cliques_of_the_trays(site: Site, tmp_path: Path) -> None:
    found = site.inventory(tmp_path, asked())
    assert found == {tray: site.reported(tray) for tray in TRAYS}
    assert found["r01t01"] == found["r01t02"] != found["r01t03"] == found["r01t04"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"provider": {"name": "infiniband-bm"}},
            "has no topology (block topology contains no accelerator domains); set provider.params.accelerator: "
            "{source: nvidia-smi}, which Topograph needs since 1.0",
        ),
        ({"provider": {"name": "infiniband"}}, "answered HTTP 400 (unsupported provider infiniband); "),
        ({"engine": slurm(plugin="topology/tree")}, "returns a topology without blocks; "),
        (
            {"engine": slurm(plugin="topology/blocks")},
            'has no topology (unsupported topology plugin "topology/blocks"); ',
        ),
        (
            {"engine": slurm(plugin="topology/block", topologyConfigPath="/etc/slurm/topology.conf")},
            "writes its topology elsewhere; leave out the engine's topologyConfigPath",
        ),
        ({"engine": {"name": "graph"}}, "has no topology (graph engine requires nodes in the request"),
        (
            {"engine": {"name": "graph"}, "nodes": [{"region": "local", "instances": {"r01t01": "r01t01"}}]},
            "returns a topology without blocks; set the engine slurm",
        ),
    ],
)
def test_a_request_that_cannot_be_answered(site: Site, tmp_path: Path, options: dict[str, Any], text: str) -> None:
    assert text in site.refused(tmp_path, **options)


def test_topology_yaml_has_blocks_without_cliques(site: Site, tmp_path: Path) -> None:
    topologies = {"racks": {"plugin": "topology/block", "nodes": ["r01t[01-04]"], "clusterDefault": True}}
    found = site.inventory(tmp_path, asked(engine=slurm(topologies=topologies)))
    assert found == dict.fromkeys(TRAYS)


def test_instances_of_a_simulated_cloud(site: Site, tmp_path: Path) -> None:
    """Their domains are names of the model, so they are trays without a clique."""
    provider = {"name": "nscale-sim", "params": {"modelFileName": "nvl72.yaml"}}
    found = site.inventory(tmp_path, asked(provider=provider, engine={"name": "graph"}))
    assert len(found) == 72
    assert set(found.values()) == {None}


def test_the_config_map_of_the_engine_slinky(site: Site, tmp_path: Path) -> None:
    """With the provider dra, whose domains are the nodes' labels; kwok runs the pods of slurmd."""
    api, names = site.plane.api(), documented()[1]["config_map"]
    namespace = names["namespace"]
    api.create("api/v1/namespaces", {"metadata": {"name": namespace}})
    folder = f"api/v1/namespaces/{namespace}"
    until("the account of pods", lambda: api.find(f"{folder}/serviceaccounts/default"))
    for tray in TRAYS:
        # As its node data broker writes them with this provider.
        annotations = {"topograph.run/instance": tray, "topograph.run/region": "local"}
        api.patch(f"{nodes.PATH}/{tray}", {"metadata": {"annotations": annotations}})
        container = {"name": "slurmd", "image": "slurmd"}
        spec = {"nodeName": tray, "hostname": f"slinky-{tray}", "containers": [container]}
        api.create(f"{folder}/pods", {"metadata": {"name": tray, "labels": SLURMD}, "spec": spec})
    until("pods that run", lambda: all(pod["status"]["phase"] == "Running" for pod in api.items(f"{folder}/pods")))

    params = {
        "namespace": namespace,
        "podSelector": {"matchLabels": SLURMD},
        "plugin": "topology/block",
        "topologyConfigmapName": names["name"],
        "topologyConfigPath": names["key"],
    }
    written = site.refused(tmp_path, provider={"name": "dra"}, engine={"name": "slinky", "params": params})
    assert "writes its topology elsewhere; " in written
    assert "read what the engine slinky writes by config_map" in written
    reader = users.user(site.plane, "reader", [users.rule("", ["configmaps"], ["get"])])
    options = {"kubeconfig": str(reader), "config_map": names, "tray_name": "sub('^slinky-', '', node)"}
    assert site.inventory(tmp_path, options) == {tray: site.reported(tray) for tray in TRAYS}


def test_what_is_silent_and_what_fails(site: Site, tmp_path: Path) -> None:
    """The last test, since it breaks the trays one after the other."""
    cliques = {tray: site.reported(tray) for tray in TRAYS}
    site.racks.stop("r01t04")
    assert site.inventory(tmp_path, asked()) == {tray: cliques[tray] for tray in TRAYS[:3]}

    # A clique is there if one of its nodes is in the answer of ibnetdiscover, and all its nodes are.
    for tray in TRAYS[:3]:
        install(site.racks, tray, IBNETDISCOVER, standin(TRAYS[:1]))
    assert site.inventory(tmp_path, asked()) == {tray: cliques[tray] for tray in TRAYS[:2]}
    for tray in TRAYS[:3]:
        site.racks.exec(tray, "rm", IBNETDISCOVER)
    assert NO_FABRIC in site.refused(tmp_path)

    # One nvidia-smi that prints something else ends the request, which Topograph repeats four times.
    site.racks.set("r01t02", "smi=no_driver")
    message = site.refused(tmp_path)
    assert (
        'failed with HTTP 500 (failed to discover accelerator domains: invalid nvidia-smi output for node "r01t02"'
        in message
    )
