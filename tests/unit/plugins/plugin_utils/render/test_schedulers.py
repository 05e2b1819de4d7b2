# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path
from typing import Any

import jmespath
import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import chart_rules, chart_values, versions
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import (
    KubernetesError,
    cliques,
    objects,
    runai,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import dra, schedulers, workloads
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.workloads import WORKLOADS
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

CLIQUE, HOST = cliques.CLIQUE, cliques.HOSTNAME
# Two cliques of 18 trays.
WHOLE = fabrics.fabric(split=())
R01, R02 = (clique.text for clique in cliques.describe(WHOLE).cliques)


def rendered(fabric: model.Fabric) -> dict[str, str]:
    made: dict[str, str] = {}
    for module in (dra, schedulers, workloads):
        made.update(module.render(fabric, State()))
    return made


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def small() -> model.Fabric:
    return fabrics.fabric(racks=2, trays=4)


def shared_fabric() -> model.Fabric:
    """Rack r01 belongs to cluster east, r02 to cluster west; a third cluster has no tray."""
    fabric = small()
    trays: Any = {
        name: {**tray, "kubernetes_cluster": "east" if name.startswith("r01") else "west"}
        for name, tray in fabric.trays.items()
    }
    clusters: Any = {"kubernetes": {"west": {}, "east": {}, "south": {}}}
    made = model.Fabric(fabric.domains, fabric.cliques, trays, [], clusters)
    assert model.Fabric.from_dict(made.as_dict()) == made
    return made


def test_a_cluster_has_a_file_of_each_scheduler_and_workload() -> None:
    made = rendered(WHOLE)
    topologies = [f"topology-{name}" for name in objects.SCHEDULERS]
    examples = [f"example-{name}" for name in WORKLOADS]
    assert set(made) == {f"kubernetes/{name}.yaml" for name in ("dra-values", *topologies, *examples)}
    assert all(text.startswith(schedulers.HEAD) for text in made.values())
    assert documents(made["kubernetes/dra-values.yaml"]) == [chart_values.of_cliques(cliques.describe(WHOLE))]


def required(terms: Any) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def test_the_objects_of_each_scheduler_name_the_label_of_the_clique() -> None:
    topology = cliques.describe(fabrics.fabric(racks=1, trays=2, split=()))
    member = {"type": "Node", "selector": {"labelMatch": {"matchLabels": {CLIQUE: R01}}}}
    for name, specs in {
        "kai": [{"levels": [{"nodeLabel": CLIQUE, "alias": "nvlink"}, {"nodeLabel": HOST}]}],
        "kueue": [
            {"levels": [{"nodeLabel": CLIQUE}, {"nodeLabel": HOST}]},
            {"nodeLabels": {"nvidia.com/gpu.present": "true"}, "topologyName": "nvlink"},
        ],
        "grove": [{"levels": [{"domain": "rack", "key": CLIQUE}, {"domain": "host", "key": HOST}]}],
        "volcano": [{"tier": 1, "tierName": "nvlink", "members": [member]}],
    }.items():
        rows = objects.made(name, topology)
        assert [row["spec"] for row in rows] == specs
        assert all(row["metadata"]["labels"] == {cliques.MANAGED_BY: cliques.OWNER} for row in rows)
    for name, own in {
        "slinky": {"annotations": {cliques.SLINKY: "nvlink:r01"}},
        "topograph": {"labels": {"accelerator.topograph.run/domain": R01}},
    }.items():
        metadata = [row["metadata"] for row in objects.made(name, topology)]
        assert metadata == [{"name": "r01t01", **own}, {"name": "r01t02", **own}]
    requests = [(row["method"], row["path"]) for row in objects.made("runai", topology)]
    assert requests == [("POST", runai.TOPOLOGIES), ("POST", runai.POOLS)]
    assert objects.made("lws", topology) == [{"metadata": {"annotations": EXCLUSIVE}}]
    (hint,) = objects.made("pod-affinity", topology)
    pods = {"labelSelector": {"matchLabels": {"app": "your-app"}}, "topologyKey": CLIQUE}
    labelled = {"matchExpressions": [{"key": CLIQUE, "operator": "Exists"}]}
    assert hint["spec"]["affinity"] == {
        "nodeAffinity": required({"nodeSelectorTerms": [labelled]}),
        "podAffinity": required([pods]),
    }


def test_levels_go_from_broad_to_narrow_and_end_at_the_host() -> None:
    zone = cliques.Level("topology.kubernetes.io/zone", "zone")
    topology = cliques.describe(small(), settings=cliques.TopologySettings(levels_above=(zone,)))
    keys = [level.label for level in topology.levels]
    assert keys == ["topology.kubernetes.io/zone", "nvidia.com/gpu.clique", "kubernetes.io/hostname"]
    for name in ("kai", "kueue"):
        assert [row["nodeLabel"] for row in objects.made(name, topology)[0]["spec"]["levels"]] == keys
    (grove,) = objects.made("grove", topology)
    assert [row["domain"] for row in grove["spec"]["levels"]] == ["zone", "rack", "host"]
    assert objects.made("runai", topology)[0]["body"]["levels"] == keys


@pytest.mark.parametrize(
    ("above", "word"),
    [
        ([("no label", "zone")], "not a label key"),
        ([("zone", "Zone")], "not a level name"),
        ([("nvidia.com/gpu.clique", "zone")], "is used twice"),
        ([("zone", "rack")], "is used twice"),
        ([("a", "zone"), ("b", "zone")], "is used twice"),
        ([("example.org/" + "a" * 52, "zone")], "not a label key of at most 63 characters"),
    ],
)
def test_an_invalid_level_is_rejected(above: list[tuple[str, str]], word: str) -> None:
    settings = cliques.TopologySettings(levels_above=tuple(cliques.Level(*row) for row in above))
    with pytest.raises(KubernetesError, match=word):
        cliques.describe(small(), settings=settings)


def test_clusters_of_one_fabric_get_only_their_own_trays() -> None:
    files = rendered(shared_fabric())
    assert {path.split("/")[1] for path in files} == {"east", "west"}
    east = documents(files["kubernetes/east/topology-slinky.yaml"])
    assert [row["metadata"]["name"] for row in east] == ["r01t01", "r01t02", "r01t03", "r01t04"]
    assert [row["metadata"]["name"] for row in documents(files["kubernetes/west/topology-volcano.yaml"])] == [
        "nvlink-r02a",
        "nvlink-r02b",
    ]
    # One clique there, so nothing can go across two.
    assert "kubernetes/east/example-two-cliques.yaml" not in files


def test_two_cliques_with_one_name_in_kubernetes_are_a_finding() -> None:
    fabric = small()
    renamed: Any = {
        "r02_a" if name == "r02a" else "R02-A" if name == "r02b" else name: row for name, row in fabric.cliques.items()
    }
    new = {"r02a": "r02_a", "r02b": "R02-A"}
    trays: Any = {name: {**row, "clique": new.get(row["clique"], row["clique"])} for name, row in fabric.trays.items()}
    bent = model.Fabric(fabric.domains, renamed, trays, [])
    (found,) = schedulers.findings(bent, State())
    assert (found["code"], found["clique"]) == ("name_conflict", "R02-A")
    assert [row["metadata"]["name"] for row in objects.made("volcano", cliques.describe(bent))] == [
        "nvlink-r01",
        "nvlink-r02-a",
    ]


def test_a_site_replaces_a_template(tmp_path: Path) -> None:
    own = tmp_path / "kai.yaml.j2"
    own.write_text('{% from "_parts.j2" import metadata %}\n---\nkind: Topology\n{{ metadata(name) }}\n')
    topology = cliques.describe(small(), settings=cliques.TopologySettings("on", templates={"kai": str(own)}))
    (found,) = objects.made("kai", topology)
    assert found["metadata"]["name"] == "on"
    for wrong, words in (("{{ nothing }}", "templates, kai: .*is undefined"), ("a: [", "renders no valid YAML")):
        own.write_text(wrong)
        with pytest.raises(KubernetesError, match=words):
            objects.made("kai", topology)
    own.unlink()
    with pytest.raises(KubernetesError, match="No such file"):
        objects.text("kai", topology)


@pytest.mark.parametrize(("trays", "limit"), [(18, None), (36, "36")])
def test_the_limit_is_raised_for_a_clique_above_it(trays: int, limit: str | None) -> None:
    values = chart_values.of_cliques(cliques.describe(fabrics.fabric(racks=1, trays=trays)))
    env = values.get("controller", {}).get("containers", {}).get("computeDomain", {}).get("env", [])
    assert [row["value"] for row in env] == ([limit] if limit else [])
    assert values["resources"] == {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}}


# Examples.


def claims(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["resourceClaimTemplateName"]] if "resourceClaimTemplateName" in value else []
        return own + [name for part in value.values() for name in claims(part)]
    return [name for part in value for name in claims(part)] if isinstance(value, list) else []


def test_long_names_stay_unique_and_fit_into_a_pod_name() -> None:
    fabric = fabrics.fabric(racks=1, trays=4, split=(1,))
    new = {"r01a": "a" * 60 + "1", "r01b": "a" * 60 + "2"}
    cliques: Any = {new[name]: row for name, row in fabric.cliques.items()}
    trays: Any = {name: {**row, "clique": new[row["clique"]]} for name, row in fabric.trays.items()}
    text = rendered(model.Fabric(fabric.domains, cliques, trays, []))["kubernetes/example-nvbandwidth.yaml"]
    names = [job["metadata"]["name"] for job in documents(text) if job["kind"] == "MPIJob"]
    assert len(set(names)) == 2
    assert all(len(f"{name}-worker-17") <= 63 for name in names)


def example(name: str, fabric: model.Fabric, *kinds: str) -> list[Any]:
    rows = documents(rendered(fabric)[f"kubernetes/example-{name}.yaml"])
    return [row for row in rows if not kinds or row["kind"] in kinds]


def pods_of(value: Any) -> list[Any]:
    """All pod templates inside objects."""
    if isinstance(value, list):
        return [found for part in value for found in pods_of(part)]
    if not isinstance(value, dict):
        return []
    if "containers" in value.get("spec", {}):
        return [value]
    return [found for part in value.values() for found in pods_of(part)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_worker_takes_a_whole_tray_and_a_channel_of_a_domain_of_its_file(name: str) -> None:
    rows = example(name, WHOLE)
    domains = [row["spec"] for row in rows if row["kind"] == "ComputeDomain"]
    # An older definition requires numNodes.
    assert all(domain["numNodes"] == 0 for domain in domains)
    channels = {domain["channel"]["resourceClaimTemplate"]["name"] for domain in domains}
    workers = [pod for pod in pods_of(rows) if claims(pod)]
    assert {channel for pod in workers for channel in claims(pod)} == channels
    for pod in workers:
        (container,) = pod["spec"]["containers"]
        assert container["resources"] == {"limits": {"nvidia.com/gpu": 4}, "claims": [{"name": "channel"}]}
        assert pod["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert all(row["metadata"]["labels"][cliques.MANAGED_BY] == cliques.OWNER for row in rows)


EXCLUSIVE = {"leaderworkerset.sigs.k8s.io/exclusive-topology": CLIQUE}
KAI = {"kai.scheduler/topology": "nvlink", "kai.scheduler/topology-required-placement": CLIQUE}
SLICES = {"kueue.x-k8s.io/podset-slice-required-topology": CLIQUE, "kueue.x-k8s.io/podset-slice-size": "16"}
NODES = "affinity.nodeAffinity.*.nodeSelectorTerms[][].matchExpressions[]"
CHANNELS = "resourceClaims[].resourceClaimTemplateName"
PARTS = "spec.replicatedJobs[].template"
PODS = f"{PARTS}.spec.template.spec"
HALVES = [[[16, 16], [16, 16]]]
APART = (
    "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[].labelSelector.matchExpressions[].values"
)
BY_KAI = [["kai-scheduler"] * 2]


def channels(name: str) -> list[list[str]]:
    return [[f"{name}-0-channel", f"{name}-1-channel"]]


def within(*texts: str) -> list[Any]:
    """The requirement on nodes of pods that run in these cliques."""
    return [{"key": CLIQUE, "operator": "In", "values": [*texts]}]


@pytest.mark.parametrize(
    ("name", "kind", "query", "found"),
    [
        ("statefulset", "StatefulSet", f"spec.template.spec.{NODES}", [within(R01)]),
        # IMEX and NCCL connect before the pods are ready.
        ("statefulset", "Service", "spec.publishNotReadyAddresses", [True]),
        # The halves have 16 of 18 trays each, and a ComputeDomain each.
        ("jobset", "JobSet", f"{PARTS}.spec.[completions, parallelism]", HALVES),
        ("jobset", "JobSet", f"{PODS}.{NODES}", [[*within(R01), *within(R02)]]),
        ("jobset", "JobSet", f"{PODS}.{CHANNELS}", channels("nvlink-two-indexes")),
        ("lws", "LeaderWorkerSet", "metadata.annotations", [EXCLUSIVE, EXCLUSIVE]),
        ("lws", "LeaderWorkerSet", "spec.[replicas, leaderWorkerTemplate.size]", [[1, 18], [1, 18]]),
        ("lws", "LeaderWorkerSet", f"spec.leaderWorkerTemplate.workerTemplate.spec.{NODES}.operator", [["Exists"]] * 2),
        (
            "kai",
            "Queue",
            "[metadata.name, spec.parentQueue, spec.resources.gpu.quota]",
            [["nvlink", None, 144], ["nvlink-jobs", "nvlink", 144]],
        ),
        ("kai", "PyTorchJob", "metadata.annotations", [KAI]),
        ("kai", "PyTorchJob", 'metadata.labels."kai.scheduler/queue"', ["nvlink-jobs"]),
        ("kai", "PyTorchJob", "spec.pytorchReplicaSpecs.*.replicas", [[1, 15]]),
        ("kai", "PyTorchJob", "spec.pytorchReplicaSpecs.*.[template.spec.schedulerName][]", BY_KAI),
        ("kai", "JobSet", f"{PARTS}.metadata.annotations", [[KAI, KAI]]),
        ("kai", "JobSet", 'metadata.labels."kai.scheduler/queue"', ["nvlink-jobs"]),
        ("kai", "JobSet", f"{PARTS}.spec.[completions, parallelism]", HALVES),
        ("kai", "JobSet", f"{PODS}.schedulerName", BY_KAI),
        ("kai", "JobSet", f"{PODS}.{CHANNELS}", channels("nvlink-kai-indexes")),
        # A clique with room for both halves gets one of them.
        ("kai", "JobSet", f"{PODS}.{APART}", [[["index-0"], ["index-1"]]]),
        ("kueue", "ClusterQueue", "spec.resourceGroups[].flavors[].resources[].nominalQuota", [[144, 36]]),
        ("kueue", "Job", 'metadata.labels."kueue.x-k8s.io/queue-name"', ["nvlink"]),
        ("kueue", "Job", "spec.[completions, parallelism]", [[16, 16]]),
        ("kueue", "Job", "spec.template.metadata.annotations", [{"kueue.x-k8s.io/podset-required-topology": CLIQUE}]),
        # The halves are slices of one pod set.
        ("kueue", "JobSet", 'metadata.labels."kueue.x-k8s.io/queue-name"', ["nvlink"]),
        ("kueue", "JobSet", f"{PARTS}.spec.[completions, parallelism]", [[[32, 32]]]),
        ("kueue", "JobSet", f"{PARTS}.spec.template.metadata.annotations", [[SLICES]]),
        ("nvbandwidth", "MPIJob", "spec.mpiReplicaSpecs.Worker.replicas", [18, 18]),
        ("nvbandwidth", "MPIJob", f"spec.mpiReplicaSpecs.Worker.template.spec.{NODES}", [within(R01), within(R02)]),
        (
            "nvbandwidth",
            "MPIJob",
            "spec.mpiReplicaSpecs.Launcher.template.spec.containers[].args[3:6]",
            [[["ppr:4:node", "-np", "72"]]] * 2,
        ),
        ("two-cliques", "MPIJob", "spec.mpiReplicaSpecs.Worker.replicas", [2]),
        ("two-cliques", "MPIJob", f"spec.mpiReplicaSpecs.Worker.template.spec.{NODES}", [within(R01, R02)]),
    ],
)
def test_an_example_keeps_its_pods_in_cliques(name: str, kind: str, query: str, found: list[Any]) -> None:
    """kube-scheduler places those pods that it alone schedules in test_k8s_examples.py."""
    assert [jmespath.search(query, row) for row in example(name, WHOLE, kind)] == found


@pytest.mark.parametrize(
    ("fabric", "names"),
    [
        (fabrics.fabric(racks=1, trays=1), ["kai", "kueue", "lws", "statefulset"]),
        (fabrics.fabric(racks=1, trays=4), ["kai", "kueue", "lws", "nvbandwidth", "statefulset"]),
        (fabrics.fabric(racks=0), []),
    ],
    ids=["one tray", "one clique", "no tray"],
)
def test_a_cluster_has_only_the_examples_that_fit(fabric: model.Fabric, names: list[str]) -> None:
    files = [path for path in rendered(fabric) if "/example-" in path]
    assert sorted(files) == [f"kubernetes/example-{name}.yaml" for name in names]


# A cluster whose GPUs the DRA driver allocates.


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_container_claims_the_gpus_that_it_would_request(name: str) -> None:
    fabric, path = fabrics.fabric(racks=3, split=()), f"kubernetes/example-{name}.yaml"
    by_plugin, by_dra = (
        documents(workloads.render(fabric, State(), RenderContext(gpus_by_dra=given))[path]) for given in (False, True)
    )
    templates = {
        row["metadata"]["name"]: row["spec"]["spec"]["devices"]["requests"][0]["exactly"]
        for row in by_dra
        if row["kind"] == "ResourceClaimTemplate"
    }
    requested = 0
    for before, after in zip(pods_of(by_plugin), pods_of(by_dra), strict=True):
        claimed = {row["name"]: row["resourceClaimTemplateName"] for row in after["spec"].get("resourceClaims", [])}
        for old, new in zip(before["spec"]["containers"], after["spec"]["containers"], strict=True):
            number = old.get("resources", {}).get("limits", {}).get("nvidia.com/gpu")
            assert "nvidia.com/gpu" not in new.get("resources", {}).get("limits", {})
            if number is not None:
                requested += 1
                # The channel of the ComputeDomain stays.
                assert {"gpus", "channel"} <= {row["name"] for row in new["resources"]["claims"]}
                assert templates[claimed["gpus"]] == {"deviceClassName": "gpu.nvidia.com", "count": number}
    assert requested > 0
    others = [row["kind"] for row in by_dra if row["kind"] != "ResourceClaimTemplate"]
    assert others == [row["kind"] for row in by_plugin]


@pytest.mark.parametrize("by_dra", [False, True])
def test_the_chart_values_enable_the_plugin_that_the_examples_need(by_dra: bool) -> None:
    made = chart_values.of_cliques(cliques.describe(fabrics.fabric(racks=3, split=()), None), by_dra)
    assert made["resources"]["gpus"]["enabled"] is by_dra
    assert chart_rules.check_start(made, versions.pinned("0.5.0")) == []
