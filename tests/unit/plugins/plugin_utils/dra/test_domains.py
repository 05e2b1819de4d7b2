# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a running driver beyond its pods: labels, ComputeDomains, probes, alarms, upgrades."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    chart_values,
    checks,
    domains,
    dry_run,
    stranded,
    upgrade,
)
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.dra import dra_cluster as world

OTHER = f"{world.UUID}.7"
CLIQUE = "nvidia.com/gpu.clique"


def messages(cluster: dict[str, Any], trays: Any = None, **more: Any) -> list[tuple[str, str]]:
    found = checks.check(cluster, world.trays() if trays is None else trays, world.plan(**more))
    assert all(row["message"].endswith(".") and "\n" not in row["message"] for row in found)
    return [(row["code"], row["message"]) for row in found]


def label(cluster: dict[str, Any], key: str, value: str | None, node: int = 0) -> None:
    labels = cluster["nodes"][node]["metadata"]["labels"]
    labels.pop(key, None)
    labels.update({key: value} if value else {})


def dcgm(count: int = 2) -> Any:
    containers = [{"name": "exporter", "image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.0"}]
    name = "nvidia-dcgm-exporter"
    return world.daemon_set(name, "", namespace="gpu-operator", annotations={}, containers=containers, count=count)


def without_daemons(key: str | None) -> world.Change:
    """No daemon has joined, and the first node's label names this domain."""
    return lambda cluster: (cluster["compute_domain_cliques"].clear(), label(cluster, world.KEY, key))


NOT_READY = world.members(r01t01="NotReady", r01t02="Ready")
TWO_CLIQUES = [world.members(r01t01="Ready"), world.members(clique=OTHER, r01t02="Ready")]
# Its daemon's entry stays Ready, since no other writes it.
LOST = [{"type": "Ready", "status": "Unknown"}]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (lambda cluster: label(cluster, CLIQUE, None), "k8s_clique_label_wrong", "is missing on r01t01"),
        (lambda cluster: label(cluster, CLIQUE, OTHER), "k8s_clique_label_wrong", f"GPUs report {world.CLIQUE}"),
        (
            lambda cluster: cluster["compute_domain_cliques"][0]["daemons"].pop(0),
            "dra_plugin_unready",
            "jobs/cd has 1 of 2 daemons ready: on node r01t01 no daemon has joined",
        ),
        (
            without_daemons(None),
            "dra_plugin_unready",
            "0 of 2 daemons ready: on node r01t01 the plugin has not set the",
        ),
        (without_daemons("uid-of-another"), "dra_plugin_unready", "names another ComputeDomain (uid-of-another)"),
        (
            lambda cluster: cluster["nodes"][0]["status"].update(conditions=LOST),
            "dra_plugin_unready",
            "has 1 of 2 daemons ready: on node r01t01 the kubelet does not report Ready",
        ),
        (world.put(compute_domain_cliques=[NOT_READY]), "dra_plugin_unready", "on node r01t01 the daemon is NotReady"),
        (world.put(compute_domain_cliques=TWO_CLIQUES), "dra_domain_spans", "spans 2 cliques"),
        (
            lambda cluster: cluster["compute_domain_cliques"][0]["daemons"][1].update(cliqueID=""),
            "dra_clique_unknown",
            "find no clique on r01t02",
        ),
        (
            lambda cluster: (cluster.update(compute_domains=[], claims=[]), label(cluster, world.KEY, None, 1)),
            "dra_domain_leftovers",
            "Leftovers of the deleted ComputeDomain uid-cd block others: ComputeDomainClique",
        ),
        (
            world.put(compute_domains=[world.domain(deleted="2026-11-21T11:30:00Z")]),
            "dra_domain_stuck",
            "in deletion since 11:30 UTC (remaining: ComputeDomainClique",
        ),
        (lambda cluster: cluster["daemon_sets"].append(dcgm()), "dra_dcgm_imex", "nvidia-dcgm-exporter runs DCGM"),
    ],
)
def test_each_fault_has_its_finding(change: world.Change, code: str, words: str) -> None:
    found = messages(world.changed_by(change, world.working()))
    assert found[0][0] == code
    assert words in found[0][1]
    # A domain that is evaluated there is one of a node of another as well, whose UID then is of none that lives.
    assert {other for other, _words in found} <= {code, "dra_domain_leftovers"}


def test_a_member_without_a_slice_is_not_ready_before_its_plugin_is() -> None:
    """As between the start of a kubelet, which removes the slices of its node, and that of the plugin."""
    cluster = world.working()
    cluster["slices"] = [row for row in cluster["slices"] if row["spec"]["nodeName"] != "r01t01"]
    reasons = domains.Channels(cluster).pending(cluster["compute_domains"][0])
    assert reasons == {"r01t01": "the plugin has published no ResourceSlice"}


@pytest.mark.parametrize(
    "change",
    [
        lambda cluster: None,
        lambda cluster: cluster["daemon_sets"].append(dcgm(count=0)),
        # It is being deleted for a minute only.
        world.put(compute_domains=[world.domain(deleted="2026-11-21T11:59:00Z")]),
        # Without readable ComputeDomains every object would count as left over.
        world.put(compute_domains=[], not_readable=["The account may not list computedomains; allow it"]),
    ],
)
def test_a_correct_state_has_no_finding(change: world.Change) -> None:
    assert messages(world.changed_by(change, world.working())) == []


def test_a_label_is_compared_only_with_known_gpus_and_without_an_external_writer() -> None:
    wrong = world.changed_by(lambda cluster: label(cluster, CLIQUE, OTHER), world.installed())
    assert messages(wrong, {}) == []
    assert messages(wrong, external_label_writer=True) == []
    found = messages(world.installed(), world.trays(fabric=world.fabric(attached=False, clique=None)))
    assert [code for code, _words in found] == ["k8s_clique_label_wrong"] * 2
    assert "its GPUs are in no clique" in found[0][1]


# The nodes for a probe.


def test_free_nodes_are_those_without_a_compute_domain_by_clique() -> None:
    cluster = world.installed()
    label(cluster, CLIQUE, OTHER, 1)
    assert stranded.free_nodes(cluster, world.trays()) == {OTHER: ["r01t02"], world.CLIQUE: ["r01t01"]}
    label(cluster, world.KEY, "uid-other")
    assert stranded.free_nodes(cluster, world.trays()) == {OTHER: ["r01t02"]}
    trays = {"r09t01": replace(world.trays()["r01t01"], node="r09t01")}
    assert stranded.free_nodes(cluster, trays) == {}


def test_compute_domains_beside_free_nodes_of_their_clique_are_named() -> None:
    cluster = world.installed()
    assert stranded.beside(cluster, world.trays()) == {}
    label(cluster, world.KEY, "uid-cd")
    cluster["compute_domains"] = [world.domain()]
    assert stranded.beside(cluster, world.trays()) == {world.CLIQUE: ["jobs/cd"]}
    label(cluster, CLIQUE, OTHER, 1)
    assert stranded.beside(cluster, world.trays()) == {}


# The upgrade from 25.x.

NEW = "kind: DaemonSet\napiVersion: apps/v1\nmetadata:\n  name: nvidia-dra-driver-gpu-kubelet-plugin\n"
OLD = f"{NEW}---\nkind: ConfigMap\napiVersion: v1\nmetadata:\n  name: mps-script\n---\n"


class Tagged(str):
    """A string as Ansible makes arguments of: of a class of its own."""


def drops(old: Any, own: Any = None, manifest: str = NEW) -> list[str]:
    new = chart_values.build("compute_domains", own or {}, "v1", True)
    rows = [dry_run.documents(Tagged(text))[0] for text in (manifest, NEW)]
    found = upgrade.compare(old, new, *rows, world.CHART)
    assert {row["code"] for row in found} <= {"dra_upgrade_drops"}
    return [row["message"] for row in found]


def test_a_value_that_is_set_again_is_not_dropped() -> None:
    own = {"kubeletPlugin": {"tolerations": [{"operator": "Exists"}]}}
    assert drops({"resources": {"gpus": {"enabled": False}}, **own}, own) == []
    assert drops({}) == []


@pytest.mark.parametrize(
    ("old", "words"),
    [
        ({"logVerbosity": "secret"}, "sets logVerbosity, which is dropped; add it to values"),
        ({"controller": {"affinity": {"x": "secret"}}}, "sets controller.affinity, which is dropped; add it"),
        ({"resources": {"gpus": {"enabled": True}}}, "sets resources.gpus.enabled, which gets another value"),
        ({"kubeletPlugin": {"priority": 1}}, "sets kubeletPlugin.priority, which is dropped; the new chart has no"),
        ({1: "secret"}, "sets 1, which is dropped; the new chart has no"),
        ({"image": {"tag": "v25.12.0"}}, "sets image.tag, which is dropped; remove it"),
    ],
)
def test_each_dropped_key_is_named_without_its_value(old: Any, words: str) -> None:
    found = drops(old)
    assert len(found) == 1
    assert words in found[0]
    assert "secret" not in found[0]
    assert "v25.12.0" not in found[0]


def test_removed_objects_are_named() -> None:
    assert drops({}, manifest=OLD) == ["The upgrade removes ConfigMap/mps-script; check that nothing else names them."]
