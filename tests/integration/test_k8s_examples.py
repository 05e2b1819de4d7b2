# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rendered examples on a real API server, kube-scheduler and StatefulSet controller, with two racks of 18 trays.

The pods that an operator would create of an example are created here from its templates. Those for KAI and Kueue are
validated only: their schedulers do not run.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import cliques
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import workloads
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.render.test_schedulers import pods_of
from nvlab.kubernetes import chart, domains, nodes, programs
from nvlab.kubernetes.api import ApiError
from nvlab.kubernetes.plane import ControlPlane

from .conftest import OLDEST_KUBERNETES
from .test_k8s_topology import read, serve
from .workloads import until

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long, OLDEST_KUBERNETES]

FABRIC = fabrics.fabric(racks=2, trays=18, split=())
TOPOLOGY = cliques.describe(FABRIC)
R01, R02 = (clique.text for clique in TOPOLOGY.cliques)
CLIQUE_OF = {node: clique.text for clique in TOPOLOGY.cliques for node in clique.nodes}
CLAIMS = f"{domains.RESOURCE}/namespaces/default/resourceclaims"
NAMESPACE = "namespaces/default"
PODS = f"api/v1/{NAMESPACE}/pods"
PATHS = {
    "ComputeDomain": f"apis/{domains.VERSION}/{NAMESPACE}/computedomains",
    "Deployment": f"apis/apps/v1/{NAMESPACE}/deployments",
    "Job": f"apis/batch/v1/{NAMESPACE}/jobs",
    "PodTemplate": f"api/v1/{NAMESPACE}/podtemplates",
    "Service": f"api/v1/{NAMESPACE}/services",
    "StatefulSet": f"apis/apps/v1/{NAMESPACE}/statefulsets",
}
STRICT = "?dryRun=All&fieldValidation=Strict"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """The trays of FABRIC with the taint that GPU nodes have, a node of the control plane, and the driver."""
    api = control_plane.api()
    trays = list(nodes.of_fleet(2, control_plane.version))
    assert [row["metadata"]["name"] for row in trays] == list(CLIQUE_OF)
    for row in trays:
        row["metadata"]["labels"][nodes.CLIQUE] = CLIQUE_OF[row["metadata"]["name"]]
        row["spec"]["taints"] = [TAINT]
    head = copy.deepcopy(trays[0])
    head["metadata"]["name"] = "cp1"
    head["metadata"]["labels"] = {
        "kubernetes.io/hostname": "cp1",
        nodes.KEPT_ALIVE: "true",
        "node-role.kubernetes.io/control-plane": "",
    }
    head["spec"] = {"providerID": "nvlink-lab://cp1"}
    for part in ("capacity", "allocatable"):
        del head["status"][part]["nvidia.com/gpu"]
    api.create_all(nodes.PATH, [*trays, head])
    folder = chart.newest(tmp_path_factory.mktemp("chart"))
    options = ("--namespace", "dra", "--create-namespace", "--set", "resources.gpus.enabled=false")
    control_plane.helm("install", "dra", folder, *options)
    until("a slice for each tray", lambda: len(api.items(domains.SLICES)) == len(CLIQUE_OF))
    return control_plane


@pytest.fixture
def api(cluster: ControlPlane) -> Iterator[Any]:
    """The API; afterwards no pod, claim or ComputeDomain is left."""
    made = cluster.api()
    yield made
    for kind in ("StatefulSet", "Deployment", "Service"):
        for row in made.items(PATHS[kind]):
            if row["metadata"]["name"] != "kubernetes":
                made.delete(f"{PATHS[kind]}/{row['metadata']['name']}")
    made.delete(PODS)
    for row in made.items(PATHS["ComputeDomain"]):
        made.delete(f"{PATHS['ComputeDomain']}/{row['metadata']['name']}")
    until("no claim", lambda: not made.items(CLAIMS))
    until("no ComputeDomain", lambda: not made.items(domains.DOMAINS))


def objects(name: str, *kinds: str) -> list[dict[str, Any]]:
    """The objects of an example, all or those of some kinds, as they stand in its file."""
    text = workloads.render(FABRIC, model.State())[f"kubernetes/example-{name}.yaml"]
    return [row for row in yaml.safe_load_all(text) if not kinds or row["kind"] in kinds]


def create(api: Any, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        api.create(PATHS[row["kind"]], row)


def create_pods(api: Any, name: str, template: dict[str, Any], count: int, start: int = 0) -> list[str]:
    """Pods of a template, as an operator creates them; their names."""
    made = []
    for index in range(start, start + count):
        pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
        pod["metadata"] = {**pod["metadata"], "name": f"{name}-{index}"}
        api.create(PODS, pod)
        made.append(pod["metadata"]["name"])
    return made


def placed(api: Any, prefix: str, count: int) -> list[str]:
    """The nodes of the pods whose names begin with `prefix`, once all `count` of them run."""

    def running() -> list[str]:
        rows = [row for row in api.items(PODS) if row["metadata"]["name"].startswith(prefix)]
        return [row["spec"]["nodeName"] for row in rows if row["status"].get("phase") == "Running"]

    found = until(f"{count} pods {prefix}*", lambda: (found := running()) and len(found) == count and found)
    assert len(set(found)) == count, "two pods on one tray"
    return found


def cliques_of(trays: list[str]) -> Counter[str]:
    return Counter(CLIQUE_OF[tray] for tray in trays)


def test_the_stateful_set_runs_in_its_clique(api: Any) -> None:
    create(api, objects("statefulset"))
    assert cliques_of(placed(api, "nvlink-service-", 2)) == {R01: 2}


def test_each_index_of_a_job_larger_than_a_clique_is_in_one_clique(api: Any) -> None:
    """And both balanced halves fit, since each is of 16 of the 18 trays."""
    create(api, objects("jobset", "ComputeDomain"))
    (job_set,) = objects("jobset", "JobSet")
    for part in job_set["spec"]["replicatedJobs"]:
        spec = part["template"]["spec"]
        assert spec["parallelism"] == 16
        create_pods(api, f"nvlink-{part['name']}", spec["template"], spec["parallelism"])
    assert cliques_of(placed(api, "nvlink-index-0-", 16)) == {R01: 16}
    assert cliques_of(placed(api, "nvlink-index-1-", 16)) == {R02: 16}


def test_nvbandwidth_covers_each_clique_and_the_negative_test_two(api: Any) -> None:
    create(api, objects("nvbandwidth", "ComputeDomain"))
    for row in objects("nvbandwidth", "MPIJob"):
        worker = row["spec"]["mpiReplicaSpecs"]["Worker"]
        create_pods(api, f"{row['metadata']['name']}-worker", worker["template"], worker["replicas"])
        launcher = row["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
        create_pods(api, f"launcher-{row['metadata']['name']}", launcher, 1)
    assert cliques_of(placed(api, "nvbandwidth-nvlink-r01-worker-", 18)) == {R01: 18}
    assert cliques_of(placed(api, "nvbandwidth-nvlink-r02-worker-", 18)) == {R02: 18}
    assert placed(api, "launcher-nvbandwidth-nvlink-r01", 1) == ["cp1"]
    api.delete(PODS)
    until("no pod", lambda: not api.items(PODS))
    create(api, objects("two-cliques", "ComputeDomain"))
    (row,) = objects("two-cliques", "MPIJob")
    create_pods(api, "across", row["spec"]["mpiReplicaSpecs"]["Worker"]["template"], 2)
    assert cliques_of(placed(api, "across-", 2)) == {R01: 1, R02: 1}


def test_the_server_accepts_every_object_of_the_examples(api: Any) -> None:
    """Strictly, by the operators' own definitions, so an unknown field is an error; pods also as PodTemplates."""
    served = {**PATHS, **dict(serve(api, [read(path) for path in programs.definitions()]))}
    rows = [row for name in workloads.WORKLOADS for row in objects(name)]
    # No module has KAI's queues.
    assert {row["kind"] for row in rows} - served.keys() == {"Queue"}
    for row in rows:
        if row["kind"] in served:
            api.create(f"{served[row['kind']]}{STRICT}", row)
    typo = {**objects("jobset", "JobSet")[0], "spec": {"replicatedJob": []}}
    with pytest.raises(ApiError, match=r'unknown field "spec\.replicatedJob"'):
        api.create(f"{served['JobSet']}{STRICT}", typo)
    templates = [template for row in rows for template in pods_of(row)]
    assert len(templates) > 10
    for index, template in enumerate(templates):
        body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": f"t{index}"}, "template": template}
        api.create(f"{PATHS['PodTemplate']}{STRICT}", body)
