# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod or a ComputeDomain waits, by the cluster of the driver's tests after one change."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import sentences
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.explain import kubernetes
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.dra import dra_cluster as world

LABEL = "nvidia.com/gpu.clique"
SICK = {"r01t02": {"state": "unhealthy", "reason": "GPU 2 is lost", "since": "", "code": "gpu_lost", "remedy": ""}}
OTHER = f"{world.UUID}.7"


def domain(name: str = "cd", **metadata: Any) -> dict[str, Any]:
    made = world.domain(name)
    made["metadata"].update(metadata)
    return {**made, "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": f"{name}-channel"}}}}


def template(name: str = "cd", namespace: str = "jobs") -> dict[str, Any]:
    return {"metadata": {"name": f"{name}-channel", "namespace": namespace, "labels": {world.KEY: f"uid-{name}"}}}


def pod(
    name: str = "new", of: str | None = "cd", gpus: int = 0, node: str | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod of the domain `of`: one that waits, or one that is ready on a node."""
    metadata = {"namespace": spec.pop("namespace", "jobs"), "name": name, "uid": f"uid-{name}", "labels": {"job": of}}
    metadata["annotations"] = spec.pop("annotations", {})
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
    claims = [{"name": "channel", "resourceClaimTemplateName": f"{of}-channel"}] if of else []
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    spec = {
        "schedulerName": "default-scheduler",
        "resourceClaims": claims,
        "containers": [{"resources": limits}],
        **spec,
    }
    status = {"phase": "Running" if node else "Pending"}
    status["conditions"] = [{"type": "Ready", "status": "True"}] if node else [said]
    return {"metadata": metadata, "spec": {**spec, "nodeName": node}, "status": status}


def claim(user: str, node: str, of: str) -> dict[str, Any]:
    made = world.claim(f"{user}-channel", node=node, of=of)
    made["status"]["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"uid-{user}"}]
    return made


def taken(of: str, *nodes: str) -> dict[str, Any]:
    """The pods of a domain on nodes, with what they hold there."""
    return {
        "pods": [pod(f"{of}-{node}", of, node=node) for node in nodes],
        "claims": [claim(f"{of}-{node}", node, of) for node in nodes],
        "compute_domain_cliques": [world.members(of, **dict.fromkeys(nodes, "Ready"))],
    }


def cluster(*held: dict[str, Any], count: int = 2, **lists: Any) -> dict[str, Any]:
    """Trays of one clique with the domains cd and other, and the pod new of cd, which waits."""
    made = {**world.installed(), "workloads": [], "pod_groups": [], "pods": [pod()]}
    made["nodes"] = [world.node(name, labels={LABEL: world.CLIQUE}) for name in world.names(count)]
    made["slices"] = [world.slices(name) for name in world.names(count)]
    made["compute_domains"] = [domain(), domain("other")]
    made["claim_templates"] = [template(), template("other")]
    made |= lists
    for row in held:
        for key, rows in row.items():
            made[key] = [*made[key], *rows]
    for node in made["nodes"]:
        owner = next((one for one in made["claims"] if node["metadata"]["name"] in str(one["status"])), None)
        if owner:
            uid = owner["spec"]["devices"]["config"][0]["opaque"]["parameters"]["domainID"]
            node["metadata"]["labels"][world.KEY] = uid
    return made


def explained(given: dict[str, Any], name: str = "new", namespace: str = "jobs") -> sentences.Answer:
    answer = kubernetes.of_object(given, "pod", f"{namespace}/{name}", SICK, lambda _node: True)
    assert sentences.as_dict(answer)["sentence"] == answer.sentence
    return answer


def of_domain(given: dict[str, Any], name: str = "cd") -> sentences.Answer:
    return kubernetes.of_object(given, "compute_domain", f"jobs/{name}", {}, lambda _node: True)


def changed(given: dict[str, Any], node: int, **parts: Any) -> dict[str, Any]:
    given["nodes"][node].update(parts)
    return given


def unlabelled(given: dict[str, Any], **lists: Any) -> dict[str, Any]:
    del given["nodes"][0]["metadata"]["labels"][LABEL]
    return {**given, **lists}


def selecting(**more: Any) -> list[dict[str, Any]]:
    return [pod(nodeSelector={LABEL: world.CLIQUE}, **more)]


PLAIN = [pod(f"plain-{node}", None, 4, node) for node in world.names()]
WITH_GPUS = {"capacity": {"nvidia.com/gpu": "4"}}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
IDLE = {**world.controller(0), "spec": {**world.controller()["spec"], "replicas": 0}}
ELSEWHERE = {"pods": [pod(namespace="team")]}

SITUATIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "both trays hold a pod of this domain": (
        cluster(taken("cd", "r01t01", "r01t02")),
        "never",
        "2 of 2 trays with a pod of its ComputeDomain, one a tray (r01t[01-02])",
    ),
    "trays of another domain": (
        cluster(taken("other", "r01t01", "r01t02")),
        "jobs",
        "2 of 2 trays of ComputeDomain jobs/other until pods jobs/other-r01t01, jobs/other-r01t02 end (r01t[01-02])",
    ),
    "the tray that is not its own": (
        cluster(taken("cd", "r01t01"), taken("other", "r01t02")),
        "jobs",
        "1 of 2 trays of ComputeDomain jobs/other until pod jobs/other-r01t02 ends (r01t02)",
    ),
    "no label, with its writer": (
        unlabelled(cluster(taken("cd", "r01t02"), pods=selecting()), daemon_sets=[world.gfd()]),
        "operator",
        f"1 of 2 trays without the label {LABEL}, which GPU Feature Discovery writes here (r01t01)",
    ),
    "no label and no writer": (
        unlabelled(cluster(taken("cd", "r01t02"), pods=selecting())),
        "operator",
        f"1 of 2 trays without the label {LABEL}, which no known program writes here (r01t01)",
    ),
    "the controller at 0 replicas": (
        cluster(deployments=[IDLE], claim_templates=[]),
        "operator",
        "the driver's controller has no available replica (dra-driver-nvidia-gpu/dra-driver-nvidia-gpu-controller),"
        " so no ComputeDomain starts or ends; scale it up, or see kubectl describe",
    ),
    "taint and cordon": (
        changed(
            changed(cluster(), 0, spec={"taints": [{"key": "repair", "effect": "NoSchedule"}]}),
            1,
            spec={
                "unschedulable": True,
                "taints": [CORDON],
            },
        ),
        "operator",
        "1 of 2 trays with the taint repair:NoSchedule (r01t01); 1 of 2 trays cordoned (r01t02)",
    ),
    "GPUs of plain pods": (
        changed(changed(cluster({"pods": PLAIN}, pods=[pod(gpus=4)]), 0, status=WITH_GPUS), 1, status=WITH_GPUS),
        "jobs",
        "2 of 2 trays with GPUs in use by pods jobs/plain-r01t01, jobs/plain-r01t02 (r01t[01-02])",
    ),
    "a deleted domain": (
        cluster(taken("other", "r01t01", "r01t02"), compute_domains=[domain()]),
        "jobs",
        "2 of 2 trays of deleted ComputeDomain uid-other until pods jobs/other-r01t01, jobs/other-r01t02 end"
        " (r01t[01-02])",
    ),
    "no tray has its labels": (
        cluster(pods=[pod(nodeSelector={"pool": "gold"})]),
        "never",
        "none of 2 trays has the labels that it selects",
    ),
    "no tray is known": (cluster(nodes=[]), "kubernetes", "default-scheduler says 0/2 nodes are available"),
    "the scheduler has not tried": (cluster(), "kubernetes", "default-scheduler says 0/2 nodes are available"),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_pod_waits_for_what_keeps_its_trays(name: str) -> None:
    given, word, cause = SITUATIONS[name]
    answer = explained(given)
    assert (answer.waits_for, answer.sentence.partition(": ")[2]) == (word, f"{cause}.")


def test_a_claim_template_of_another_namespace_is_named() -> None:
    answer = explained(cluster(**ELSEWHERE), namespace="team")
    assert answer.waits_for == "never"
    assert answer.sentence == (
        "Pod team/new never starts as it is: the claim template cd-channel is in namespace jobs, not in team."
    )
    # Nothing is known to be missing where the account may not list templates.
    unread = ["The account may not list resourceclaimtemplates; x"]
    assert (
        explained(cluster(**ELSEWHERE, claim_templates=[], not_readable=unread), namespace="team").waits_for
        == "kubernetes"
    )


def test_a_daemon_that_is_not_ready_is_named_with_its_node_and_unit() -> None:
    given = cluster(taken("cd", "r01t01"))
    given["compute_domain_cliques"] = [world.members("cd", r01t01="NotReady")]
    given["pods"][-1]["status"]["conditions"] = []
    for answer in (explained(given, "cd-r01t01"), of_domain(given | {"pods": []})):
        assert answer.waits_for == "operator"
        assert "has 0 of 1 daemon ready: on node r01t01 the daemon is NotReady;" in answer.sentence
        assert answer.sentence.endswith(" and keep nvidia-imex.service masked there.")


def test_a_domain_in_two_cliques_says_where_nvlink_ends() -> None:
    given = cluster(taken("cd", "r01t01", "r01t02"))
    given["compute_domain_cliques"] = [world.members("cd", r01t01="Ready"), world.members("cd", OTHER, r01t02="Ready")]
    answer = of_domain({**given, "pods": given["pods"][1:]})
    assert (answer.kind, answer.waits_for) == ("compute_domain", "nothing")
    assert "spans 2 cliques without NVLink between r01t01, r01t02;" in answer.sentence
    assert "waits for nothing: it runs on r01t01; ComputeDomain jobs/cd spans" in explained(given, "cd-r01t01").sentence


def test_a_domain_in_deletion_is_held_by_a_living_pod_or_by_the_controller() -> None:
    gone = [domain(deletionTimestamp="2026-11-21T11:00:00Z")]
    held = of_domain(cluster(taken("cd", "r01t01"), compute_domains=gone))
    assert held.waits_for == "jobs"
    assert "held by pod jobs/cd-r01t01" in held.sentence
    stuck = of_domain(cluster(compute_domains=gone, deployments=[IDLE]))
    assert stuck.waits_for == "operator"
    assert "no available replica" in stuck.sentence


def test_pods_of_a_clique_wait_there_for_each_other() -> None:
    term = {"topologyKey": LABEL, "labelSelector": {"matchLabels": {"job": "cd"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    given = cluster(taken("cd", "r01t01"), count=2, pods=[pod(affinity=affinity)])
    given["nodes"][1]["metadata"]["labels"][LABEL] = OTHER
    answer = explained(given)
    assert answer.waits_for == "never"
    assert "1 of 1 tray with a pod of its ComputeDomain, one a tray (r01t01)" in answer.sentence


def kueue(message: str, owner: str = "Pod") -> dict[str, Any]:
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
    metadata = {"name": "w", "namespace": "jobs", "ownerReferences": [{"kind": owner, "uid": "uid-new"}]}
    return {"metadata": metadata, "status": {"conditions": [condition]}}


def test_kueue_has_no_domain_at_a_level_where_trays_lack_its_label() -> None:
    message = f"couldn't assign flavors to pod set main: no topology domains at level: {LABEL}"
    gated = [pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])]
    given = unlabelled(cluster(pods=gated, workloads=[kueue(message)]))
    # The tray with the label is not of the flavor: Kueue's own words.
    said = explained(given)
    assert said.waits_for == "kubernetes"
    assert message in said.sentence
    answer = explained(changed(given, 1, spec={"unschedulable": True}))
    assert answer.waits_for == "operator"
    assert answer.sentence.partition(": ")[2] == (
        f"Kueue has no topology domain at level {LABEL}: 1 of 2 trays are without the label {LABEL}, which no known"
        " program writes here (r01t01), r01t02 cordoned."
    )
    # A pod with a gate waits for no tray yet.
    assert explained(cluster(taken("other", "r01t01", "r01t02"), pods=gated)).waits_for == "kubernetes"


def gang(need: int) -> dict[str, Any]:
    condition = {"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True", "message": "12 cannot"}
    spec = {"minMember": need, "topologyConstraint": {"requiredTopologyLevel": LABEL}}
    metadata = {"name": "pg", "namespace": "jobs"}
    return {"metadata": metadata, "spec": spec, "status": {"schedulingConditions": [condition]}}


def test_a_gang_of_17_waits_for_the_one_tray_that_is_taken() -> None:
    pods = [pod(schedulerName="kai-scheduler", annotations={"pod-group-name": "pg"})]
    answer = explained(cluster(taken("other", "r01t05"), count=17, pods=pods, pod_groups=[gang(17)]))
    assert answer.waits_for == "jobs"
    assert (
        "it needs 17 trays in one clique, and 16 of 17 trays that it may use are free; 1 of 17 trays of ComputeDomain"
        in answer.sentence
    )
    free = explained(cluster(count=18, pods=pods, pod_groups=[gang(17)]))
    assert (free.waits_for, "kai-scheduler says 12 cannot" in free.sentence) == ("kubernetes", True)
    assert explained(cluster(count=16, pods=pods, pod_groups=[gang(17)])).waits_for == "never"


def test_all_that_waits_is_counted_by_its_cause() -> None:
    given = cluster(taken("other", "r01t01", "r01t02"), pods=[pod("a"), pod("b"), pod("web", None)])
    given["workloads"] = [kueue("no quota", "Job")]
    answer = kubernetes.waiting(given)
    assert (answer.kind, answer.waits_for) == ("queue", "jobs")
    assert answer.sentence == "3 wait in Kubernetes."
    assert answer.evidence[0].what.startswith("wait for other pods to end: 2 of 2 trays of ComputeDomain jobs/other")
    assert [(row.count, row.of, row.names) for row in answer.evidence] == [
        (2, 3, ("pod jobs/a", "pod jobs/b")),
        (1, 3, ("Workload jobs/w",)),
    ]
    assert kubernetes.waiting(cluster(pods=[])).waits_for == "nothing"


def test_a_change_is_shown_only_if_the_api_server_accepts_it() -> None:
    given = SITUATIONS["taint and cordon"][0]
    assert kubernetes.of_object(given, "pod", "jobs/new", {}, lambda _node: False).change is None
    answer = kubernetes.of_object(given, "pod", "jobs/new", SICK, lambda node: node == "r01t02")
    assert answer.evidence[2] == sentences.Row("unhealthy by verify: GPU 2 is lost", 1, 2, ("r01t02",))
    assert answer.change == ("It could start after kubectl uncordon r01t02", "kubectl uncordon r01t02 --dry-run=server")
    # A tray that something else keeps too would not be free by that.
    tainted = {"unschedulable": True, "taints": [CORDON, {"key": "repair", "effect": "NoSchedule"}]}
    assert explained(changed(cluster(count=1), 0, spec=tainted)).change is None
    theirs = changed(cluster(taken("other", "r01t01"), count=1), 0, spec={"unschedulable": True, "taints": [CORDON]})
    assert explained(theirs).change is None
    # A gang of two has no room by that alone.
    pods = [pod(annotations={"pod-group-name": "pg"})]
    assert explained({**given, "pods": pods, "pod_groups": [gang(2)]}).change is None


def test_words_of_users_have_no_line_and_no_escape_code_of_their_own() -> None:
    evil = "x\x1b[2J\nPod is fine\u202e"
    given = cluster(taken("other", "r01t01", "r01t02"), pods=[pod(evil)])
    given["claims"][0]["status"]["reservedFor"][0]["name"] = evil
    said = cluster()
    said["pods"][0]["status"]["conditions"][0]["message"] = evil * 100
    answers = [explained(given, evil), explained(said), kubernetes.waiting(given)]
    answers += [explained(cluster(pods=[pod(schedulingGates=[{"name": "g"}])], workloads=[kueue(evil)]))]
    for answer in answers:
        words = [answer.sentence, answer.subject, *(part for row in answer.evidence for part in (row.what, *row.names))]
        assert all(word.isprintable() for word in words)
        assert len(answer.sentence) < 1000


def test_what_could_not_be_read_is_no_reason() -> None:
    unread = [f"The account may not list {name}; x" for name in ("pods", "computedomains")]
    given = cluster(taken("other", "r01t01", "r01t02"), not_readable=unread)
    assert explained(given).waits_for == "kubernetes"
    for kind, words in (("pod", "may not list pods"), ("compute_domain", "may not list computedomains")):
        with pytest.raises(NvlinkError, match=words):
            kubernetes.of_object(given, kind, "jobs/no", {}, lambda _node: True)
    with pytest.raises(NvlinkError, match="Pod jobs/no is not in the cluster, or has ended: name one"):
        explained(cluster(), "no")
