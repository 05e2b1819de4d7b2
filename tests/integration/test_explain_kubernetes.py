# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod waits, on a real API server, scheduler and DaemonSet controller; the driver's pods are a stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.sentences import Answer
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader, Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.explain import kubernetes
from nvlab import scenario
from nvlab.kubernetes import domains, nodes, plane
from nvlab.kubernetes.plane import ControlPlane

from .conftest import NEWEST_KUBERNETES
from .test_dra_driver_role import NAME, TRAYS, Site
from .workloads import DOMAIN, FOUR, until, workload

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes, pytest.mark.long]

PODS = "api/v1/namespaces/{}/pods"
TEMPLATES = f"{domains.RESOURCE}/namespaces/default/resourceclaimtemplates"
CONTROLLER = f"deployment/{NAME}-controller"


@pytest.fixture
def site(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    plane.add_trays(control_plane, scenario.parse(FOUR))
    made = Site(control_plane, tmp_path)
    yield made
    made.clear()


def read(site: Site) -> Snapshot:
    given = {"kubeconfig": str(site.running.kubeconfig), "context": None, "timeout": 30}
    return Reader(login.of_kubeconfig(given, "explain")).snapshot(queues=True)


def add(site: Site, name: str, trays: list[str], of: str = "work", namespace: str = "default") -> None:
    """A pod that claims a channel of a domain on one of these trays."""
    spec = workload(1, trays)["spec"]["template"]["spec"]
    spec["resourceClaims"][0]["resourceClaimTemplateName"] = f"{of}-channel"
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    site.running.api().create(PODS.format(namespace), body)


def waits(site: Site, name: str, words: str, namespace: str = "default") -> Answer:
    """The answer once it has these words: the scheduler and the driver take their time."""
    answers: list[Answer] = []

    def found() -> bool:
        answers.append(kubernetes.of_pod(read(site), namespace, name))
        return words in answers[-1].sentence

    try:
        until(words, found, 60.0)
    except AssertionError:
        raise AssertionError(f"{words!r} is not in: {answers[-1].sentence}") from None
    return answers[-1]


def accepted(site: Site, arguments: tuple[str, ...]) -> bool:
    done = site.running.kubectl(*arguments, "--dry-run=server", check=False)
    return bool(done.returncode == 0)


def other_domain(name: str) -> dict[str, Any]:
    channel = {"resourceClaimTemplate": {"name": f"{name}-channel"}}
    return {**DOMAIN, "metadata": {"name": name, "namespace": "default"}, "spec": {"numNodes": 0, "channel": channel}}


@NEWEST_KUBERNETES
def test_each_situation_has_its_sentence(site: Site) -> None:
    site.install()
    api, rack = site.running.api(), TRAYS[:2]
    try:
        # Both trays of the clique have a pod of the domain, one a tray.
        site.work(*rack)
        add(site, "third", rack)
        third = waits(site, "third", "2 of 4 trays with a pod of its ComputeDomain, one a tray (r01t[01-02])")
        assert third.waits_for == "never"
        # They are another domain's until its pods end.
        site.running.kubectl("apply", "-f", "-", stdin=json.dumps(other_domain("next")))
        until("the claim template", lambda: api.find(f"{TEMPLATES}/next-channel"))
        add(site, "next", rack, "next")
        following = waits(site, "next", "of ComputeDomain default/work until pods default/work-")
        assert following.waits_for == "jobs"
        # A claim template of another namespace.
        site.running.kubectl("create", "namespace", "team")
        add(site, "stray", rack, namespace="team")
        stray = waits(site, "stray", "the claim template work-channel is in namespace default, not in team", "team")
        assert stray.waits_for == "never"
        # Taint and cordon, by node; the change is one that the API server accepts.
        site.running.kubectl("taint", "node", TRAYS[2], "repair=yes:NoSchedule")
        site.running.kubectl("cordon", TRAYS[3])
        add(site, "closed", TRAYS[2:])
        closed = waits(site, "closed", "cordoned (r01t04)")
        assert closed.waits_for == "operator"
        assert "with the taint repair:NoSchedule (r01t03)" in closed.sentence
        change = kubernetes.confirmed(closed, lambda arguments: accepted(site, arguments)).change
        assert change is not None
        assert change.confirmed_by == "kubectl uncordon r01t04 --dry-run=server"
        # And what the answer names does start the pod.
        site.running.kubectl("uncordon", TRAYS[3])
        waits(site, "closed", "it runs on r01t04")
        # The domain is in both cliques now.
        both = kubernetes.of_compute_domain(read(site), "default", "work")
        assert both.sentence.startswith("ComputeDomain default/work never starts as it is: pod default/third")
        api.delete(f"{PODS.format('default')}/third")
        api.delete(f"{PODS.format('team')}/stray")

        def ends() -> bool:
            sentence = kubernetes.of_compute_domain(read(site), "default", "work").sentence
            return "in 2 cliques: NVLink ends between r01t[01-02] and r01t04" in sentence

        until("both cliques", ends, 60.0)
        assert kubernetes.waiting(read(site)).waits_for == "jobs"
        # Without the label a pod of the clique has no tray: its writer is named.
        api.patch(f"{nodes.PATH}/{TRAYS[2]}", {"metadata": {"labels": {nodes.CLIQUE: None}}})
        site.running.kubectl("taint", "node", TRAYS[2], "repair-")
        spec = workload(1, TRAYS[2:3])["spec"]["template"]["spec"]
        spec["nodeSelector"] = {nodes.CLIQUE: api.get(f"{nodes.PATH}/{TRAYS[3]}")["metadata"]["labels"][nodes.CLIQUE]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "unlabelled"}, "spec": spec}
        api.create(PODS.format("default"), body)
        unlabelled = waits(
            site, "unlabelled", f"without the label {nodes.CLIQUE}, which the DRA driver's plugin writes"
        )
        assert unlabelled.waits_for == "operator"
        # The controller at no replica makes no claim template.
        site.running.kubectl("scale", CONTROLLER, "--replicas=0", "-n", NAME)
        until("no controller", lambda: not replicas(site))
        site.running.kubectl("apply", "-f", "-", stdin=json.dumps(other_domain("late")))
        add(site, "late", rack, "late")
        assert waits(site, "late", "The driver's controller has no available replica").waits_for == "operator"
        site.running.kubectl("scale", CONTROLLER, "--replicas=1", "-n", NAME)
        until("the controller", lambda: replicas(site))
    finally:
        for namespace in ("default", "team"):
            for row in api.items(PODS.format(namespace)):
                if "ownerReferences" not in row["metadata"]:
                    api.delete(f"{PODS.format(namespace)}/{row['metadata']['name']}")
        site.running.kubectl("scale", CONTROLLER, "--replicas=1", "-n", NAME, check=False)
        site.running.kubectl("delete", "namespace", "team", "--ignore-not-found")


def replicas(site: Site) -> list[Any]:
    rows = site.running.api().items(f"apis/apps/v1/namespaces/{NAME}/deployments")
    return [row for row in rows if row.get("status", {}).get("availableReplicas")]
