# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook explain on a real API server, scheduler and DaemonSet controller; the driver's pods are a stand-in.

What it prints of each situation is that of docs/explain.md.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.explain import kubernetes
from nvlab import scenario
from nvlab.kubernetes import domains, nodes, plane, users
from nvlab.kubernetes.plane import ControlPlane

from .commands import ansible
from .conftest import CHECKOUT, NEWEST_KUBERNETES
from .test_dra_driver_role import NAME, TRAYS, Site
from .workloads import DOMAIN, FOUR, until, workload

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long]

PODS = "api/v1/namespaces/{}/pods"
TEMPLATES = f"{domains.RESOURCE}/namespaces/default/resourceclaimtemplates"
CONTROLLER = f"deployment/{NAME}-controller"
FIRST, SECOND = TRAYS[:2], TRAYS[2:]
FAILED = {
    "code": "recovery_action",
    "severity": "error",
    "layer": "hardware",
    "clique": "a",
    "cause": "",
    "action": "reboot",
}
FABRIC = {
    "schema_version": 1,
    "domains": {
        "r01": {"cluster_uuid": "9f3c0000-0000-4000-8000-000000000001", "chassis_serials": [], "expected_trays": 4}
    },
    "cliques": {
        name: {"domain": "r01", "clique_id": number, "block": {"name": name, "position": number}}
        for number, name in enumerate("ab")
    },
    "trays": {
        tray: {
            "clique": "a" if tray in FIRST else "b",
            "tray_index": None,
            "gpu_uuids": [],
            "imex_address": None,
            "slurm_node": tray,
            "kubernetes_node": tray,
            "why": "a test",
        }
        for tray in TRAYS
    },
    "overrides": [],
}
QUESTION = re.compile(
    r"\$ ansible-playbook -i hosts.yml rackscale.nvlink.explain -e (explain_(?:pod|compute_domain)=\S+)"
)


@pytest.fixture
def site(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    plane.add_trays(control_plane, scenario.parse(FOUR))
    made = Site(control_plane, tmp_path)
    yield made
    made.clear()


def play(site: Site, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    given = {
        "verify_kubeconfig": str(site.running.kubeconfig),
        "explain_file": str(site.folder / "answer.json"),
        **more,
    }
    command = ("--inventory", site.folder / "inventory.yml", "rackscale.nvlink.explain", "-e", json.dumps(given))
    return ansible("ansible-playbook", *command, *words, check=False)


def printed(done: subprocess.CompletedProcess[str]) -> list[str]:
    found = re.search(r'"msg": (\[.*?\n    \])', done.stdout, re.DOTALL)
    assert found, done.stdout[-3000:] + done.stderr
    assert "changed=0" in done.stdout
    return [str(line) for line in json.loads(found[1])]


class Story:
    """The questions that were asked, each with what the playbook printed."""

    def __init__(self, site: Site) -> None:
        self.site, self.answers = site, list[tuple[str, ...]]()

    def ask(self, kind: str, subject: str, words: str) -> dict[str, Any]:
        """The answer once it has these words: the scheduler and the driver take their time."""
        given = {"kubeconfig": str(self.site.running.kubeconfig), "context": None, "timeout": 30}
        access, said = login.of_kubeconfig(given, "explain"), [""]

        def is_said() -> bool:
            snapshot = Reader(access).snapshot(queues=True)
            said.append(kubernetes.of_object(snapshot, kind, subject, {}, lambda _node: False).sentence)
            return words in said[-1]

        try:
            until(words, is_said, 60.0)
        except AssertionError:
            raise AssertionError(f"{words!r} is not in: {said[-1]}") from None
        question = f"explain_{kind}={subject}"
        lines = printed(play(self.site, "-e", question, "--check"))
        # Of a Deployment's pods the names are random.
        self.answers.append((question, *(re.sub(r"work-[a-z0-9]+-[a-z0-9]+", "work-*", line) for line in lines)))
        answer: dict[str, Any] = json.loads((self.site.folder / "answer.json").read_text())
        assert (answer["kind"], answer["subject"], answer["sentence"]) == (kind, subject, lines[0])
        return answer


def documented() -> list[tuple[str, ...]]:
    """The questions of docs/explain.md on Kubernetes, each with its answer."""
    text = (CHECKOUT / "docs" / "explain.md").read_text()
    blocks = [tuple(block.replace("\n    ", "\n").strip().splitlines()) for block in re.findall(r"(?:    .*\n)+", text)]
    return [(asked[1], *more) for first, *more in blocks if more and (asked := QUESTION.fullmatch(first))]


def add(site: Site, name: str, trays: list[str], of: str = "work", namespace: str = "default", **more: Any) -> None:
    """A pod that claims a channel of a domain on one of these trays."""
    spec = {**workload(1, trays)["spec"]["template"]["spec"], **more}
    if "resourceClaims" not in more:
        spec["resourceClaims"][0]["resourceClaimTemplateName"] = f"{of}-channel"
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    site.running.api().create(PODS.format(namespace), body)


def domain(site: Site, name: str, **metadata: Any) -> None:
    channel = {"resourceClaimTemplate": {"name": f"{name}-channel"}}
    body = {**DOMAIN, "metadata": {"name": name, "namespace": "default", **metadata}}
    spec = {"numNodes": 0, "channel": channel}
    site.running.kubectl("apply", "-f", "-", stdin=json.dumps({**body, "spec": spec}))


def replicas(site: Site) -> list[Any]:
    rows = site.running.api().items(f"apis/apps/v1/namespaces/{NAME}/deployments")
    return [row for row in rows if row.get("status", {}).get("availableReplicas")]


@NEWEST_KUBERNETES
def test_each_situation_has_its_answer(site: Site) -> None:
    site.install()
    api, kubectl, story = site.running.api(), site.running.kubectl, Story(site)
    try:
        # Both trays of the clique have a pod of the domain, one a tray.
        site.work(*FIRST)
        add(site, "third", FIRST)
        assert story.ask("pod", "default/third", "one a tray")["waits_for"] == "never"
        # They are another domain's until its pods end.
        domain(site, "next")
        until("the claim template", lambda: api.find(f"{TEMPLATES}/next-channel"))
        add(site, "next", FIRST, "next")
        assert story.ask("pod", "default/next", "ComputeDomain default/work")["waits_for"] == "jobs"
        # A claim template of another namespace.
        kubectl("create", "namespace", "team")
        add(site, "stray", FIRST, namespace="team")
        assert story.ask("pod", "team/stray", "not in team")["waits_for"] == "never"
        # Taint and cordon, by node; what the answer names does start the pod, which is in another clique.
        kubectl("taint", "node", TRAYS[2], "repair=yes:NoSchedule")
        kubectl("cordon", TRAYS[3])
        add(site, "closed", SECOND)
        closed = story.ask("pod", "default/closed", "cordoned")
        assert (closed["waits_for"], closed["change"]["confirmed_by"]) == (
            "operator",
            "kubectl uncordon r01t04 --dry-run=server",
        )
        assert api.get(f"{nodes.PATH}/{TRAYS[3]}")["spec"]["unschedulable"] is True
        kubectl("uncordon", TRAYS[3])
        api.delete(f"{PODS.format('default')}/third")
        api.delete(f"{PODS.format('team')}/stray")
        assert story.ask("pod", "default/closed", "spans 2 cliques")["waits_for"] == "nothing"
        story.ask("compute_domain", "default/work", "spans 2 cliques")
        # Without the label a pod of the clique has no tray: its writer is named.
        clique = api.get(f"{nodes.PATH}/{TRAYS[3]}")["metadata"]["labels"][nodes.CLIQUE]
        api.patch(f"{nodes.PATH}/{TRAYS[2]}", {"metadata": {"labels": {nodes.CLIQUE: None}}})
        kubectl("taint", "node", TRAYS[2], "repair-")
        add(site, "unlabelled", SECOND[:1], nodeSelector={nodes.CLIQUE: clique})
        assert story.ask("pod", "default/unlabelled", "without the label")["waits_for"] == "operator"
        # GPUs of plain pods.
        gpus = {"nvidia.com/gpu": "4"}
        api.patch(f"{nodes.PATH}/{TRAYS[2]}/status", {"status": {"capacity": gpus, "allocatable": gpus}})
        container = {"name": "work", "image": "work", "resources": {"limits": gpus}}
        for name in ("notebook", "plain"):
            add(site, name, SECOND[:1], containers=[container], resourceClaims=[])
        assert story.ask("pod", "default/plain", "GPUs in use")["waits_for"] == "jobs"
        # The controller at no replica makes no claim template.
        kubectl("scale", CONTROLLER, "--replicas=0", "-n", NAME)
        until("no controller", lambda: not replicas(site))
        domain(site, "late")
        add(site, "late", FIRST, "late")
        assert story.ask("pod", "default/late", "no available replica")["waits_for"] == "operator"
        kubectl("scale", CONTROLLER, "--replicas=1", "-n", NAME)
        until("the controller", lambda: replicas(site))
        # A deleted domain is held by its pods; the driver's finalizer is the real one's.
        domain(site, "work", finalizers=[domains.KEY])
        kubectl("delete", "computedomain", "work", "--wait=false")
        assert story.ask("compute_domain", "default/work", "in deletion")["waits_for"] == "jobs"
        refusals(site)
    finally:
        print(json.dumps(story.answers, indent=1))
        api.patch(
            f"{domains.DOMAINS.replace('computedomains', 'namespaces/default/computedomains')}/work",
            {"metadata": {"finalizers": None}},
        )
        kubectl("scale", CONTROLLER, "--replicas=1", "-n", NAME, check=False)
        for namespace in ("default", "team"):
            for row in api.items(PODS.format(namespace)):
                if "ownerReferences" not in row["metadata"]:
                    api.delete(f"{PODS.format(namespace)}/{row['metadata']['name']}")
        kubectl("delete", "namespace", "team", "--ignore-not-found")
    shown = documented()
    assert len(shown) == len(set(shown)) == 9
    assert set(shown) <= set(story.answers)


def refusals(site: Site) -> None:
    """One sentence each; and all that waits, with a name that a user has chosen."""
    add(site, "evil", FIRST, schedulerName="x\x1b[2J\nok: all is well")
    lines = printed(play(site))
    assert lines[0].endswith("wait in Kubernetes.")
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("ok: all") for line in lines)
    nobody = str(users.user(site.running, "nobody"))
    for words, more, sentence in (
        ("explain_pod=default/none", {}, "Pod default/none is not in the cluster, or has ended: name one that kubectl"),
        ("explain_pod=none", {}, "explain: 'none' is no NAMESPACE/NAME, such as default/train-0."),
        ("explain_pod=default/late", {"verify_kubeconfig": ""}, "explain: no scheduler is configured: set"),
        ("explain_job=1", {}, "explain: no scheduler is configured: set slurm_controller_hosts"),
        ("explain_pod=default/late", {"verify_kubeconfig": nobody}, "nodes"),
    ):
        done = play(site, "-e", words, **more)
        assert done.returncode == 2
        assert sentence in " ".join(f"{done.stdout} {done.stderr}".split()), (words, done.stdout, done.stderr)


@NEWEST_KUBERNETES
def test_repair_cordons_the_node_of_its_incident_until_it_is_closed(site: Site) -> None:
    """Without Slurm: evidence, ticket and actions aside, the node is what repair takes out of service."""
    faulty, other = FIRST
    api, kubectl = site.running.api(), site.running.kubectl
    files = ("fabric.json", "verdict.json", "fabric.repairs.jsonl")
    fabric, verdict, ledger = (site.folder / name for name in files)
    fabric.write_text(json.dumps(FABRIC))
    kubectl("cordon", other)

    def node(name: str) -> tuple[bool, str]:
        found = api.find(f"api/v1/nodes/{name}") or {}
        annotations = found["metadata"].get("annotations", {})
        return found["spec"].get("unschedulable", False), annotations.get("rackscale.nvlink/repair", "")

    def repair(*trays: str, check: bool = True, **more: Any) -> str:
        rows = [
            {**FAILED, "tray": tray, "trays": [tray], "message": f"{tray}: GPU 0 needs a reboot."} for tray in trays
        ]
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        read = {"checked_at": now, "layers": {"hardware": "checked"}, "trays": 4, "queried": 4, "failures": rows}
        verdict.write_text(json.dumps(read))
        given = {"fabric_file": str(fabric), "verdict_file": str(verdict), "repair_rack_share": 1, **more}
        given["verify_kubeconfig"] = str(site.running.kubeconfig)
        command = ("--inventory", site.folder / "inventory.yml", "rackscale.nvlink.repair", "-e", json.dumps(given))
        done = ansible("ansible-playbook", *command, check=False)
        assert (done.returncode == 0) == check, done.stdout[-3000:] + done.stderr
        return done.stdout

    repair(faulty, other)
    assert node(faulty) == (False, "")
    assert not ledger.exists()
    repair(faulty, other, repair_apply=True)
    cordoned, incident = node(faulty)
    assert cordoned
    assert incident.startswith(f"{faulty}-")
    assert node(other) == (True, ""), "a person has cordoned it"
    time.sleep(1.1)  # a verdict of the same second is none of after the incident
    repair(repair_apply=True)
    assert (node(faulty), node(other)) == ((False, ""), (True, ""))
    closed = {line["incident"] for line in map(json.loads, ledger.read_text().splitlines()) if line["step"] == "close"}
    assert incident in closed
    assert "changed=0" in repair(repair_apply=True)
