# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify: each fault is one failure, in its layer. The real readers make the evidence; the lab has a story of it."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import gpu_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import formats
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import verify
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import checks, preflight
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import split
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings import lines
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings import table as findings
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import failure, finding, worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE, LAYERS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import (
    correlation,
    junit,
    kubernetes_check,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Controller
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.dra import dra_cluster
from hypothesis import given
from hypothesis import strategies as st

from ..fabrics import LINKS, replace_one
from .verify_world import Change, World

A, B = ["r01t01", "r01t02", "r01t03", "r01t04"], ["r02t01", "r02t02", "r02t03", "r02t04"]
HOME = World()
CLIQUE = "nvidia.com/gpu.clique"


@pytest.fixture
def world() -> World:
    return copy.deepcopy(HOME)


def rows(verdict: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    return [(row["layer"], row["code"], row["trays"]) for row in verdict["failures"]]


def lost_gpu(world: World) -> None:
    world.attach(A[:1], None, None)
    world.report(A[0], "gpu", "gpu_lost", "gpu_lost")
    world.without_slices(A[0], "gpu.nvidia.com")


def fewer_gpus(world: World) -> None:
    world.trays[A[1]]["gpu"]["gpus"].pop()
    world.trays[A[1]]["gpu"]["gpu_count"] = 3
    world.kubernetes["slices"][3]["spec"]["devices"].pop()


def zero_uuid(world: World) -> None:
    world.attach(A[2:3], None, None)
    world.report(A[2], "gpu", "fabric_uuid_zero")


def disagreeing_gpus(world: World) -> None:
    world.trays[A[0]]["gpu"]["attached"] = False
    world.gpus(A[0])[0]["fabric"]["clique_id"] = 7
    world.report(A[0], "gpu", "gpus_disagree")


def unhealthy(world: World) -> None:
    world.gpus(A[3])[1]["fabric"]["health"].update(summary="unhealthy", route_unhealthy=True)
    world.report(A[3], "gpu", "fabric_unhealthy", "fabric_unhealthy")


def moved(world: World) -> None:
    """The node label and the Slurm block already follow the GPUs."""
    world.attach(A[1:2], *world.identity("r02"), labelled=True)
    world.put(A[1], "r02")


def split_per_tray(world: World) -> None:
    for number, tray in enumerate(A[1:], 7):
        world.attach([tray], world.identity("r01")[0], number, labelled=True)


def clique_cut_in_two(world: World) -> None:
    for number, pair in enumerate((A[:2], A[2:]), 1):
        world.attach(pair, world.identity("r01")[0], number)


def two_moved_together(world: World) -> None:
    """A third tray of the clique could not be read."""
    world.attach(A[:2], world.identity("r01")[0], 5)
    world.trays[A[3]]["gpu"] = None


def swapped(world: World) -> None:
    one, other = world.trays[A[0]], world.trays[B[3]]
    one["gpu"], other["gpu"] = other["gpu"], one["gpu"]


def replaced(world: World) -> None:
    for number, gpu in enumerate(world.gpus(B[0])):
        gpu["uuid"] = f"GPU-new-{number}"


def imex_of_another_version(world: World) -> None:
    world.trays[A[0]]["imex"] = world.imex(A[0], world.entries("r01"), version="570.1.1", processes=[], answers={})
    world.versions(A[:1], imex="570.1.1", imex_package="570.1.1-1")


def missing_channel(world: World) -> None:
    world.trays[A[2]]["channels"]["devices"] = []
    world.trays[A[2]]["imex"]["channels"]["devices"] = []


def wrong_driver(world: World) -> None:
    """Its IMEX has the version of its driver, so its peers refuse the connection."""
    world.versions(B[1:2], driver="595.58.03", imex="595.58.03", imex_package="595.58.03-1")
    world.trays[B[1]]["imex"]["version"] = "595.58.03"
    world.connect(B[1], [B[0], *B[2:]], "version_mismatch", both=True)


def unreachable(world: World) -> None:
    """With all consequences on other trays."""
    del world.trays[B[3]]
    world.unreachable[B[3]] = "Connection timed out"
    world.connect(B[3], B[:3], "disconnected")
    for other in B[:3]:
        world.report(other, "imex", "imex_peer_lost", "imex_peer_lost")
    # nvidia-imex-ctl -N waits for the unreachable member until its timeout.
    world.trays[B[0]]["imex"]["peers"] = []
    world.report(B[0], "imex", "imex_timeout")
    world.node(B[3])["status"]["conditions"][0]["status"] = "Unknown"


def leave_out(world: World, *trays: str) -> None:
    """The fabric file gives each tray a clique of its own, with a block that has no nodes."""
    domains, cliques, placed = dict(world.fabric.domains), dict(world.fabric.cliques), dict(world.fabric.trays)
    for number, tray in enumerate(trays, 1):
        clique = cliques[placed[tray]["clique"]]
        name, domain = f"own_{tray}", clique["domain"]
        block: Any = {"name": name, "position": len(cliques)}
        cliques[name] = {"domain": domain, "clique_id": 100 + number, "block": block}
        domains[domain] = {**domains[domain], "tray_partitions": "leave_out"}
        placed[tray] = {**placed[tray], "clique": name}
    world.fabric = replace(world.fabric, domains=domains, cliques=cliques, trays=placed)


def of_slurm(world: World) -> list[tuple[str, str, list[str]]]:
    """The failures of a run that asks slurmctld alone."""
    return rows(world.verdict(quick=True, reports={}, kubernetes=None))


def two_blocks(world: World) -> None:
    world.put(A[0], "r01", "r02")
    world.says("slurm_block_overlap", "r01t01 stands in two blocks.", tray=A[0])


def no_block(world: World) -> None:
    world.put(A[0])
    world.says("tray_unplaced", "Partition gpu has r01t01.")


def other_node_names(world: World) -> None:
    for block in world.blocks:
        block["nodes"] = [f"{node}.example.com" for node in block["nodes"]]


def block_gone(world: World) -> None:
    del world.blocks[1]


def answer_on(world: World, **row: Any) -> None:
    whole = {"partition": "gpu", "nodes": 4, "segment": 0, "block": "", "trays": [], "rehearsed": "", "predicted": True}
    world.info["test_jobs"] = {"planned": 5, "asked": 5, "why": "", "rows": [{**whole, **row}]}


def ignored_segments(world: World) -> None:
    answer_on(world, kind="segments", segment=3, outcome="spread", reason="4 of r01, 2 of r02", rehearsed="placed")


def file_not_loaded(world: World) -> None:
    world.info["file"]["running"] = False
    world.says("slurm_topology_differs")


def no_node(world: World) -> None:
    world.kubernetes["nodes"].remove(world.node(B[2]))
    world.without_slices(B[2])


def daemon_not_ready(world: World) -> None:
    world.kubernetes["compute_domain_cliques"][0]["metadata"] = {"labels": {dra_cluster.KEY: "uid-cd"}}
    world.daemons[1]["status"] = "NotReady"
    world.kubernetes.update(compute_domains=[dra_cluster.domain()], claims=[dra_cluster.claim("work", node=A[1])])


CASES: list[tuple[Change, str, str, list[str]]] = [
    (lost_gpu, "hardware", "gpu_lost", A[:1]),
    (fewer_gpus, "hardware", "gpu_missing", A[1:2]),
    (zero_uuid, "hardware", "fabric_uuid_zero", A[2:3]),
    (disagreeing_gpus, "hardware", "gpus_disagree", A[:1]),
    (unhealthy, "hardware", "fabric_unhealthy", A[3:]),
    (unreachable, "hardware", "tray_unreachable", B[3:]),
    (moved, "fabric_file", "tray_moved", A[1:2]),
    (clique_cut_in_two, "fabric_file", "tray_moved", A),
    (split_per_tray, "fabric_file", "tray_partitions", A[1:]),
    (two_moved_together, "fabric_file", "tray_moved", A[:2]),
    (swapped, "fabric_file", "tray_moved", [A[0], B[3]]),
    (replaced, "fabric_file", "tray_replaced", B[:1]),
    (wrong_driver, "driver", "drivers_differ", B[1:2]),
    (imex_of_another_version, "driver", "imex_version_mismatch", A[:1]),
    (missing_channel, "channels", "imex_channel_missing", A[2:3]),
    (two_blocks, "slurm", "slurm_block_overlap", A[:1]),
    (no_block, "slurm", "slurm_blocks_differ", A[:1]),
    (other_node_names, "slurm", "node_renamed", [*A, *B]),
    (block_gone, "slurm", "slurm_blocks_differ", B),
    (file_not_loaded, "slurm", "slurm_topology_differs", []),
    (ignored_segments, "slurm", "slurm_reconfigure_needed", []),
    (no_node, "kubernetes", "k8s_node_missing", B[2:3]),
    (daemon_not_ready, "kubernetes", "dra_plugin_unready", A[1:2]),
]

# Faults of one statement.
SIMPLE: list[tuple[str, Change, str, str, list[str]]] = [
    ("malformed_imex", lambda w: w.trays[A[1]]["imex"]["peers"][0].pop("host"),
     "hardware", "tray_subset_failed", A[1:2]),
    ("moved_alone", lambda w: w.attach(A[1:2], *w.identity("r02")), "fabric_file", "tray_moved", A[1:2]),
    ("whole_clique_moved", lambda w: w.attach(A, *w.identity("r02")), "fabric_file", "tray_moved", A),
    ("other_clique_id", lambda w: w.attach(A, w.identity("r01")[0], 5), "fabric_file", "clique_id_changed", A),
    ("other_cluster_uuid", lambda w: w.attach(A, "12345678-1234-4234-8234-123456789abc", 5, labelled=True),
     "fabric_file", "domain_uuid_changed", A),
    ("no_majority", lambda w: w.versions(A[:2], driver="595.58.03"), "driver", "drivers_differ", A),
    # A firewall between two trays that are both ready.
    ("blind_pair", lambda w: w.connect(A[0], A[1:2], "never_connected", both=True),
     "imex", "imex_pair_disconnected", A[:2]),
    ("wrong_block", lambda w: w.put(A[0], "r02"), "slurm", "slurm_blocks_differ", A[:1]),
    ("no_imex_facts", lambda w: w.trays[A[0]].update(imex=None, findings=[finding("tray_subset_failed", "x")]),
     "hardware", "tray_subset_failed", A[:1]),
    ("no_place", lambda w: w.trays.update(r09t01=copy.deepcopy(HOME.trays[A[0]])),
     "fabric_file", "acceptance_pending", ["r09t01"]),
    ("package_waits", lambda w: w.versions(B[1:2], imex_package="580.200.01-1"),
     "driver", "imex_restart_pending", B[1:2]),
    ("newer_slurmd", lambda w: w.versions(A[:1], slurmd="26.05.1"), "driver", "slurmd_newer", A[:1]),
    ("renamed_block", lambda w: w.blocks[0].update(name="old"), "slurm", "slurm_blocks_differ", A),
    ("unknown_block", lambda w: w.blocks.append({"name": "r99", "nodes": ["r99t01"]}), "slurm", "tray_unplaced", []),
    ("node_of_no_tray", lambda w: w.blocks[0]["nodes"].append("r99t01"), "slurm", "slurm_node_unclaimed", []),
    # scontrol show topology lists it in its block.
    ("dropped_tray", lambda w: answer_on(w, kind="block", block="r01", outcome="refused", reason="x", trays=A[1:2]),
     "slurm", "slurm_reconfigure_needed", A[1:2]),
    ("refused_whole", lambda w: answer_on(w, kind="all", outcome="refused", reason="x", rehearsed="placed"),
     "slurm", "slurm_reconfigure_needed", []),
    ("no_test_jobs", lambda w: w.info.update(test_jobs={"planned": 5, "asked": 0, "why": "x", "rows": []}),
     "slurm", "slurm_jobs_unanswered", []),
    ("no_topology", lambda w: w.info.update(topology=None), "slurm", "slurm_blocks_differ", []),
    ("qos_by_hand", lambda w: w.of_tiers(changes=["qos gold: Priority 5 -> 1000, MaxWall 60 -> 720"]),
     "tiers", "slurm_tier_differs", []),
    ("database_down", lambda w: w.of_tiers(failed=True, msg="slurmdbd does not answer: see that it runs."),
     "tiers", "slurm_unreachable", []),
    ("stale_label", lambda w: w.labels(B[1]).update({CLIQUE: f"{w.identity('r02')[0]}.7"}),
     "kubernetes", "k8s_clique_label_wrong", B[1:2]),
    ("no_slice", lambda w: w.without_slices(B[0]), "kubernetes", "dra_node_outdated", B[:1]),
    ("compute_domain_in_the_wrong_clique",
     lambda w: w.daemons.append({"nodeName": B[0], "cliqueID": w.fabric.clique_text("r01"), "status": "Ready"}),
     "kubernetes", "dra_node_outdated", B[:1]),
]  # fmt: skip


NOT_READY = {"status": "NotReady", "nodes": [{"name": A[1], "status": "Ready"}]}
PROBE = {"app.kubernetes.io/name": "nvlink-probe"}
IMEX_POD = [{"name": "imex", "image": "site/nvidia-imex:580"}]


def of_plugin(**more: Any) -> Any:
    return lambda w: w.kubernetes.update(daemon_sets=[dra_cluster.daemon_set(count=8, **more)])


def with_domain(**more: Any) -> Any:
    """A ComputeDomain over a node whose daemon is Ready, and what else differs."""

    def change(world: World) -> None:
        daemon_not_ready(world)
        world.kubernetes["compute_domain_cliques"] = [dra_cluster.members(**{A[1]: "Ready"})]
        world.kubernetes["compute_domains"][0].update(more)

    return change


# Each situation that needs no values of the chart: what the role finds, verify finds.
LIVE: list[tuple[Any, str]] = [
    (with_domain(status=NOT_READY), "dra_plugin_unready"),
    (with_domain(status={"nodes": [{"name": A[1], "status": "NotReady"}]}), "dra_plugin_unready"),
    (of_plugin(ready=7), "dra_plugin_unready"),
    (lambda w: w.kubernetes["daemon_sets"][0]["status"].update(desiredNumberScheduled=7), "dra_node_not_selected"),
    (lambda w: w.kubernetes["device_classes"].pop(), "dra_release_failed"),
    (lambda w: w.kubernetes["daemon_sets"].pop(), "dra_release_failed"),
    (lambda w: w.kubernetes["releases"].append(dra_cluster.secret(2, "pending-upgrade")), "dra_release_failed"),
    (lambda w: w.kubernetes.update(deployments=[dra_cluster.controller(0)]), "dra_plugin_unready"),
    (lambda w: w.kubernetes.update(gpu_clusters=[{"metadata": {"name": "gpu-cluster"}}]), "dra_other_install"),
    (lambda w: w.kubernetes["device_classes"].append(dra_cluster.device_class("mig.nvidia.com", {})),
     "dra_other_install"),
    (lambda w: w.kubernetes["daemon_sets"].append(dra_cluster.daemon_set("x", "", annotations={}, containers=IMEX_POD)),
     "imex_two_owners"),
    (lambda w: w.node(A[0])["status"].update(nodeInfo={"containerRuntimeVersion": "containerd://1.6.1"}),
     "dra_node_setup"),
    (lambda w: w.node(A[0])["status"].update(nodeInfo={"kubeletVersion": "v1.33.1"}), "dra_kubernetes_too_old"),
    (lambda w: w.kubernetes.update(version="v1.31.0"), "dra_kubernetes_too_old"),
    (lambda w: w.kubernetes.update(groups={"apps": ["v1"]}), "dra_kubernetes_too_old"),
    (lambda w: w.kubernetes.update(not_readable=["The account may not list secrets; allow it"]), "dra_not_readable"),
    (lambda w: w.trays[A[0]]["imex"].update(unit={"load": "loaded", "active": "active"}), "imex_unit_down"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "code"), LIVE)
def test_what_the_role_finds_without_the_values_of_the_chart_verify_finds(world: World, change: Any, code: str) -> None:
    change(world)
    assert code in {row["code"] for row in world.verdict()["failures"]}
    trays = {
        name: dra_cluster.tray(name, dra_cluster.fabric(), world.trays[name]["imex"]) for name in world.fabric.trays
    }
    plan, snapshot = dra_cluster.plan(), world.kubernetes
    found = [*checks.check(snapshot, trays, plan), *preflight.preflight(snapshot, trays, plan)]
    assert code in {row["code"] for row in found}


def test_two_writers_of_the_label_a_device_plugin_beside_dra_and_a_killed_probe_are_found(world: World) -> None:
    """Which the role refuses by the values, or deletes."""
    env = [{"name": "GPU_CLIQUE_LABEL_ENABLED", "value": "true"}]
    of_plugin(containers=[{"name": "compute-domains", "env": env}])(world)
    world.kubernetes["daemon_sets"] += [dra_cluster.gfd(), dra_cluster.device_plugin()]
    world.kubernetes["device_classes"].append(dra_cluster.device_class("gpu.nvidia.com"))
    left = dra_cluster.domain("nvlink-probe-a")
    left["metadata"]["labels"] = PROBE
    world.kubernetes["compute_domains"] = [dra_cluster.changed(left, 9)]
    found = {row["code"]: row["message"] for row in world.verdict()["failures"]}
    assert {*found} == {"k8s_clique_label_writers", "dra_device_plugin", "dra_domain_leftovers"}
    assert "has left jobs/nvlink-probe-a; run the playbook kubernetes" in found["dra_domain_leftovers"]
    # The probe of a run that goes on.
    world.kubernetes["compute_domains"] = [dra_cluster.changed(left, 1)]
    assert "dra_domain_leftovers" not in {row["code"] for row in world.verdict()["failures"]}


def test_a_compute_domain_or_controller_that_is_starting_is_no_failure(world: World) -> None:
    """The claims of a new pod are allocated before the daemon there joins."""
    daemon_not_ready(world)
    old = world.kubernetes["claims"]
    world.kubernetes["claims"] = [dra_cluster.changed(row, 1) for row in old]
    world.kubernetes["deployments"] = [dra_cluster.changed(dra_cluster.controller(0), 1)]
    verdict = world.verdict()
    assert rows(verdict) == []
    (line,) = kubernetes_check.stranded_lines(verdict["compute_domains"])[:1]
    assert line == "1 claim for channels changed less than 5 minutes ago: starting, not checked (jobs/work)."
    # The role, which repeats its checks, has no such patience.
    assert len(checks.running(world.kubernetes, False)) == 2
    world.kubernetes["claims"] = [dra_cluster.changed(row, 9) for row in old]
    world.kubernetes["deployments"] = [dra_cluster.changed(dra_cluster.controller(0), 9)]
    assert [code for _layer, code, _trays in rows(world.verdict())] == ["dra_plugin_unready"] * 2


@pytest.mark.parametrize(("nodes", "clique"), [(A[:2], "r01"), ([A[0], B[0]], None)])
def test_a_failure_of_several_trays_names_their_clique_where_it_is_one(
    world: World, nodes: list[str], clique: str | None
) -> None:
    """A rollout asks for the failures of a tray or of its clique."""
    claims = [dra_cluster.claim(f"work-{node}", node=node) for node in nodes]
    world.kubernetes.update(compute_domains=[dra_cluster.domain()], claims=claims)
    (row,) = world.verdict()["failures"]
    assert (row["code"], row["tray"], row["clique"], row["trays"]) == ("dra_plugin_unready", None, clique, nodes)


def test_what_the_role_would_change_of_tiers_is_named(world: World) -> None:
    changes = [f"qos {name}: Priority 5 -> 9" for name in "abcdef"]
    world.of_tiers(changes=changes)
    (row,) = world.verdict()["failures"]
    assert row["message"].endswith(f"; the role would change: {', '.join(changes[:5])} and 1 more.")


def test_a_block_that_the_site_leaves_out_is_no_failure(world: World) -> None:
    del world.blocks[1]
    world.info["topology"]["left_out"] = ["r02"]
    assert of_slurm(world) == []


def test_the_verdict_has_the_states_of_the_trays_in_slurm(world: World) -> None:
    world.info["nodes"] = {A[0]: "DRAIN+IDLE: RMA 4711", A[1]: "MIXED", "cpu1": "DOWN"}
    assert world.verdict()["slurm_nodes"] == {A[0]: "DRAIN+IDLE: RMA 4711", A[1]: "MIXED"}
    # Nothing is known of a Slurm that did not answer, nor of nodes that are of another cluster.
    assert world.verdict(slurm=[Controller("ctl", problem="Connection refused")])["slurm_nodes"] is None
    assert world.verdict(slurm=None)["slurm_nodes"] is None
    trays: Any = {name: {**row, "slurm_cluster": "jura"} for name, row in world.fabric.trays.items()}
    blocks = {name: clique["block"] for name, clique in world.fabric.cliques.items()}
    clusters: Any = {"slurm": {"alps": {"blocks": {}}, "jura": {"blocks": blocks}}}
    world.fabric = replace(world.fabric, trays=trays, clusters=clusters)
    assert world.verdict()["slurm_nodes"] == {}


def test_a_block_inside_one_clique_is_right_and_one_of_two_cliques_wrong(world: World) -> None:
    world.fabric = split.applied(world.fabric, {"r01": [2, 2]})
    # slurmctld has not loaded the split yet.
    assert of_slurm(world) == [("slurm", "slurm_blocks_differ", A[2:])]
    world.blocks.append({"name": "r01-2", "nodes": []})
    for tray in A[2:]:
        world.put(tray, "r01-2")
    assert of_slurm(world) == []
    world.put(B[0], "r01-2")
    assert of_slurm(world) == [("slurm", "slurm_blocks_differ", B[:1])]
    # Taken back in the fabric file alone.
    world.put(B[0], "r02")
    world.fabric = split.applied(world.fabric, {})
    assert of_slurm(world) == [("slurm", "slurm_blocks_differ", A[2:])]


def test_a_tray_of_another_slurm_cluster_is_in_no_block_here(world: World) -> None:
    """Its NodeName may be that of a tray of this cluster, too."""
    own = {name: clique["block"] for name, clique in world.fabric.cliques.items()}
    trays: Any = {name: {**row, "slurm_cluster": "alps"} for name, row in world.fabric.trays.items()}
    trays[B[0]].update(slurm_cluster="jura", slurm_node=A[0])
    trays[B[1]].update(slurm_cluster="jura")
    clusters: Any = {"slurm": {"alps": {"blocks": own}, "jura": {"blocks": {"r02": own["r02"]}}}}
    world.fabric = replace(world.fabric, trays=trays, clusters=clusters)
    # No tray has that name any more.
    world.put(B[0])
    assert of_slurm(world) == [("slurm", "slurm_blocks_differ", B[1:2])]
    world.put(B[1])
    assert of_slurm(world) == []
    # Of a cluster that is none of several nothing is known.
    del world.blocks[1]
    for cluster, codes in (("ALPS", ["slurm_blocks_differ"]), ("other", [])):
        world.info["cluster"] = cluster
        assert [code for _layer, code, _trays in of_slurm(world)] == codes
    del clusters["slurm"]["jura"]
    assert [code for _layer, code, _trays in of_slurm(world)] == ["slurm_blocks_differ"]


@given(data=st.data())
def test_every_tray_whose_blocks_differ_is_in_a_failure_and_no_other(data: st.DataObject) -> None:
    world = copy.deepcopy(HOME)
    trays = [*A, *B]
    leave_out(world, *data.draw(st.lists(st.sampled_from(trays), unique=True)))
    desired = {tray: [view.name] for view in world.fabric.slurm_blocks() for tray in view.trays}
    names = st.lists(st.sampled_from(["r01", "r02", "hand_made"]), max_size=2, unique=True)
    running = {tray: data.draw(names) for tray in trays}
    blocks = [{"name": name, "nodes": [t for t in trays if name in running[t]]} for name in ("r01", "r02", "hand_made")]
    world.info["topology"]["blocks"] = [*blocks, {"name": "cpu", "nodes": []}]
    found = {tray for _layer, _code, of in of_slurm(world) for tray in of}
    assert found == {tray for tray in trays if running[tray] != desired.get(tray, [])}


def test_a_short_version_of_a_running_daemon_is_that_of_its_package(world: World) -> None:
    """R570's ctl prints fewer numbers of the version than driver and package have."""
    versions = world.trays[B[1]]["versions"]
    versions["imex"] = versions["imex"].rpartition(".")[0]
    verdict = world.verdict(switches={})
    assert (verdict["ok"], verdict["failures"], set(verdict["layers"].values())) == (True, [], {"checked"})


@pytest.mark.parametrize(
    ("change", "layer", "code", "trays"),
    [pytest.param(*case, id=case[0].__name__) for case in CASES]
    + [pytest.param(*case, id=name) for name, *case in SIMPLE],
)
def test_each_fault_is_one_failure_in_its_layer(
    world: World, change: Change, layer: str, code: str, trays: list[str]
) -> None:
    change(world)
    verdict = world.verdict()
    assert rows(verdict) == [(layer, code, trays)], verdict["failures"]
    row = verdict["failures"][0]
    assert verdict["ok"] is (row["severity"] != "error")
    assert all(row[key] for key in ("message", "remediation"))
    assert row["cause"] != CATALOGUE[code].sentence, "the message says that"
    assert "{" not in row["remediation"]


def test_trays_that_keep_their_block_are_no_failure_of_verify(world: World) -> None:
    domains = {name: {**row} for name, row in world.fabric.domains.items()}
    domains["r01"]["tray_partitions"] = "keep_block"
    world.fabric = replace(world.fabric, domains=domains)
    for number, tray in enumerate(A, 7):
        world.attach([tray], world.identity("r01")[0], number)
    world.kubernetes["nodes"] = []
    verdict = world.verdict(kubernetes=None)
    assert [(row["code"], row["severity"], row["trays"]) for row in verdict["failures"]] == [
        ("tray_partitions", "info", A)
    ]
    assert verdict["ok"] is True


def test_test_jobs_fail_only_where_the_blocks_promise_otherwise(world: World) -> None:
    refused: dict[str, Any] = {"kind": "all", "outcome": "refused", "reason": "not available"}
    for more in ({"rehearsed": "refused"}, {"predicted": False}):
        answer_on(world, **refused, **more)
        assert world.verdict()["failures"] == []
    answer_on(world, **refused)
    assert rows(world.verdict()) == [("slurm", "slurm_reconfigure_needed", [])]
    # A cluster that does what its files say may be meant so.
    answer_on(world, kind="block", block="r01", outcome="refused", reason="not available", rehearsed="refused")
    [row] = world.verdict()["failures"]
    assert (row["severity"], row["cause"]) == (
        "warning",
        "the partition's limits or topology, or SelectType in slurm.conf",
    )
    # One fault is one failure.
    ignored_segments(world)
    world.says("slurm_select_type")
    assert rows(world.verdict()) == [("slurm", "slurm_select_type", [])]
    world.info["findings"] = []
    block_gone(world)
    assert [row[1] for row in rows(world.verdict())] == ["slurm_blocks_differ"]


def test_a_feature_of_slurm_that_is_limited_is_a_warning_of_the_verdict(world: World) -> None:
    world.says("slurm_conf_advice", "The place of other warnings is slurm_topology_info.")
    assert world.verdict()["failures"] == []
    world.says("slurm_feature_limited", "Upgrade to 26.05.")
    [row] = world.verdict()["failures"]
    assert (row["code"], row["severity"], row["message"]) == ("slurm_feature_limited", "warning", "Upgrade to 26.05.")


def test_a_skipped_layer_has_its_reason(world: World) -> None:
    quick = world.verdict(quick=True, reports={})
    assert quick["failures"] == []
    assert quick["queried"] == 0
    reasons = {layer for layer, state in quick["layers"].items() if "--tags quick" in state}
    assert reasons == {findings.HARDWARE, findings.DRIVER, findings.CHANNELS, findings.IMEX}

    only_imex = world.verdict(slurm=None, kubernetes=None)
    assert [layer for layer, state in only_imex["layers"].items() if state != "checked"] == [
        findings.SWITCH,
        findings.SLURM,
        findings.TIERS,
        findings.KUBERNETES,
    ]
    world.tiers = None
    assert "no tiers are defined" in world.verdict()["layers"][findings.TIERS]
    for row in world.trays.values():
        row["imex"].update(installed=False, running=False)
    assert "no queried tray has nvidia-imex" in world.verdict()["layers"][findings.IMEX]


def test_a_controller_or_api_server_that_does_not_answer_is_a_failure(world: World) -> None:
    verdict = world.verdict(
        slurm=[Controller("ctl", problem="Connection refused")],
        kubernetes=None,
        kubernetes_problem="Connection refused",
    )
    assert [row[:2] for row in rows(verdict)] == [("slurm", "slurm_unreachable"), ("kubernetes", "k8s_unreachable")]
    assert verdict["ok"] is False


def test_a_fault_that_two_controllers_report_is_one_failure(world: World) -> None:
    world.put(A[0], "r02")
    pair = [Controller(name, world.info, world.tiers) for name in ("ctl1", "ctl2")]
    assert len(world.verdict(slurm=pair)["failures"]) == 1


def test_required_channels_are_reported_missing_even_if_no_tray_has_them(world: World) -> None:
    verdict = world.verdict(channels=(0, 3))
    assert rows(verdict) == [("channels", "imex_channel_missing", A), ("channels", "imex_channel_missing", B)]
    assert "channel3" in verdict["failures"][0]["message"]


def test_every_code_of_the_tables_is_in_the_catalogue() -> None:
    codes = {*correlation.EXPLAINS, *(code for row in correlation.EXPLAINS.values() for code in row)}
    assert codes <= set(CATALOGUE)
    assert not [code for code, row in correlation.EXPLAINS.items() if code in row], "no code explains itself"
    assert {row.symptom.layer for row in CATALOGUE.values()} == {"", *LAYERS}


def test_a_root_cause_has_the_worst_severity_of_its_consequences(world: World) -> None:
    zero_uuid(world)
    verdict = world.verdict()
    assert CATALOGUE["fabric_uuid_zero"].severity == "warning"
    assert [row["severity"] for row in verdict["failures"]] == ["error"]
    assert verdict["ok"] is False


@pytest.mark.parametrize(("off", "left"), [(A[:3], True), (A, False)])
@pytest.mark.parametrize("trays", [A, []], ids=["all_named", "none_named"])
def test_a_failure_of_several_trays_stays_until_each_has_a_root_cause(
    world: World, off: list[str], left: bool, trays: list[str]
) -> None:
    """One that names no tray is about all of its clique."""
    down = [failure("tray_unreachable", findings.HARDWARE, f"{tray} is off.", tray, "r01") for tray in off]
    pair = failure("imex_pair_disconnected", findings.IMEX, "They do not connect.", None, "r01", trays=trays)
    found = correlation.correlate([*down, pair], world.evidence())
    assert ("imex_pair_disconnected" in [row["code"] for row in found]) is left


def in_progress(world: World, trays: list[str], numbers: range) -> None:
    """What discover finds of these GPUs where the NVLink switches do not answer."""
    for tray in trays:
        notes = [worded(gpu_finding("fabric_in_progress", "", number, host="")) for number in numbers]
        world.trays[tray]["findings"] += [{**note, "part": "gpu"} for note in notes]
        for number in numbers:
            world.gpus(tray)[number]["fabric"].update(state="in_progress", cluster_uuid=None, clique_id=None)
        world.trays[tray]["gpu"].update(attached=False, cluster_uuid=None, clique_id=None, clique=None)


def test_a_fault_of_all_trays_of_a_domain_is_one_failure_of_the_domain(world: World) -> None:
    in_progress(world, A[:3], range(4))
    in_progress(world, A[3:], range(1))
    verdict = world.verdict()
    assert rows(verdict) == [("hardware", "fabric_in_progress", A)]
    [row] = verdict["failures"]
    assert (row["tray"], row["clique"]) == (None, "r01")
    assert row["message"].startswith(
        "All 4 trays (r01t[01-04]) of NVLink domain r01 that answer report this: one of them: r01t01: each of GPUs"
        " [0-3] waits for the fabric manager"
    )
    assert row["remediation"] == "on the NVLink switch: nv show sdn partition"


def test_a_domain_of_two_cliques_is_one_failure_and_one_of_its_cliques_another(world: World) -> None:
    for tray in A:
        world.report(tray, "gpu", "fabric_unhealthy")
    leave_out(world, *A[2:])
    verdict = world.verdict()
    [row] = [row for row in verdict["failures"] if row["code"] == "fabric_unhealthy"]
    assert (row["tray"], row["clique"], row["trays"]) == (None, None, A)
    world.trays[A[3]]["findings"].clear()
    found = [row for row in world.verdict()["failures"] if row["code"] == "fabric_unhealthy"]
    assert [(row["tray"], row["clique"], row["trays"]) for row in found] == [
        (None, "r01", A[:2]),
        (A[2], f"own_{A[2]}", A[2:3]),
    ]


def test_a_run_on_a_few_trays_says_nothing_of_their_domain(world: World) -> None:
    for tray in A[:2]:
        world.report(tray, "gpu", "fabric_unhealthy")
    few = {tray: report for tray, report in world.reports().items() if tray in A[:2]}
    found = world.verdict(reports=few, slurm=None, kubernetes=None)["failures"]
    assert [row["tray"] for row in found] == A[:2]


@pytest.mark.parametrize("trays", [A[:1], A[:2], A[:3]], ids=len)
def test_members_without_a_list_explain_their_connections(world: World, trays: list[str]) -> None:
    for tray in trays:
        gone = {"path": formats.NODES_FILE, "text": None, "changed_at": None}
        world.trays[tray]["imex"] = world.imex(tray, world.entries("r01"), nodes=gone)
        world.connect(tray, [other for other in A if other not in trays], "never_connected")
    assert rows(world.verdict()) == [("imex", "imex_list_unusable", [tray]) for tray in trays]


GARBAGE = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([]) | st.just({}) | st.just([None])


@given(data=st.data())
def test_malformed_facts_of_a_tray_do_not_affect_the_others(data: st.DataObject) -> None:
    world = copy.deepcopy(HOME)
    missing_channel(world)
    world.trays[B[0]]["links"] = copy.deepcopy(LINKS)
    replace_one(data, world.trays[B[0]], data.draw(GARBAGE))
    verdict = world.verdict()
    assert ("channels", "imex_channel_missing", A[2:3]) in rows(verdict)
    assert not {tray for row in verdict["failures"] for tray in row["trays"]} & {A[0], A[1], A[3]}
    ElementTree.fromstring(junit.render(verdict, list(world.fabric.cliques)))


@pytest.mark.parametrize("code", ["tray_answer_invalid", "tray_subset_failed"])
def test_a_part_that_was_dropped_or_is_missing_is_an_error_of_its_tray(world: World, code: str) -> None:
    """Whichever weight and part the tray gives its finding."""
    for tray, part in ((A[0], "gpu"), (A[1], "imex"), (A[2], "links")):
        world.trays[tray][part] = None
        world.trays[tray]["findings"] = [finding(code, "x returned something else.", severity="info")]
    verdict = world.verdict()
    assert (verdict["ok"], rows(verdict)) == (False, [("hardware", code, [tray]) for tray in A[:3]])
    assert {row["severity"] for row in verdict["failures"]} == {"error"}


@given(st.text(), st.text(), st.text())
def test_junit_accepts_any_text(message: str, cause: str, remediation: str) -> None:
    row = {**failure("gpu_lost", "hardware", message, "t1", "c1"), "cause": cause, "remediation": remediation}
    verdict = {"layers": {"hardware": "checked", "slurm": "skipped: none"}, "checked_at": "now", "failures": [row]}
    root = ElementTree.fromstring(junit.render(verdict, ["c1", "c2"]))
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("4", "1", "1")
    found = root.find("testsuite/testcase[@name='c1']/failure")
    assert found is not None
    assert found.get("type") == "gpu_lost"


def test_equal_failures_of_several_trays_are_one_line_with_all_of_them() -> None:
    def printed(*texts: tuple[str, str], code: str = "gpu_lost") -> list[str]:
        found = [failure(code, "hardware", f"{tray}: {text}", tray, tray[:-2]) for tray, text in texts]
        return [line.partition(f"{code}: ")[2] for line in lines.shown(found)[::2]]

    many = [(f"r01t{number:02d}", "Down.") for number in range(1, 18)]
    assert printed(*many[:9], ("r02t01", "Down."), *many[9:]) == ["r01t[01-17]: Down.", "r02t01: Down."]
    # What differs by more than the tray stays apart, such as the name of another tray that begins alike.
    assert printed(("a01", "No route."), ("a01", "Denied.")) == ["a01: No route.", "a01: Denied."]
    assert printed(("a1", "Not a10."), ("a2", "Not a20.")) == ["a1: Not a10.", "a2: Not a20."]
    more = [failure("gpu_lost", "hardware", f"{number} is lost.") for number in range(42)]
    assert (len(lines.shown(more)), lines.shown(more)[-1]) == (81, "2 more failures.")
    # The sentence of a code would say the message again.
    assert lines.shown(more)[1] == f"    next step: {more[0]['remediation']}" != ""
    causes = [failure("tray_unreachable", "hardware", f"{tray}: Off", tray, severity="error") for tray in A]
    assert lines.first_error(causes) == "r01t[01-04]: Off."
    assert lines.first_error([{**row, "severity": "warning"} for row in causes]) == ""


@pytest.mark.parametrize(
    ("code", "is_found", "expected"),
    [
        (
            "gpu_lost",
            True,
            "ansible-playbook rackscale.nvlink.drain -e drain_trays=r01t03,r01t04 -e drain_reason=recovery, then"
            " ansible r01t03,r01t04 --become -m ansible.builtin.reboot, then ansible-playbook rackscale.nvlink.resume"
            " -e resume_trays=r01t03,r01t04",
        ),
        ("node_not_ready", True, "kubectl describe node gb-3.example.com"),
        ("driver_missing", True, "ansible r01t03,r01t04 --become -a 'modprobe nvidia'"),
        (
            "imex_peer_authentication",
            True,
            "when no job runs on clique r01: ansible nvlink_clique_r01 --become -a 'systemctl stop nvidia-imex', then"
            " ansible-playbook rackscale.nvlink.imex -e imex_hosts=nvlink_clique_r01",
        ),
        # A fabric file that the next run would not find is named.
        ("slurm_blocks_differ", True, "ansible-playbook rackscale.nvlink.slurm --diff"),
        ("slurm_blocks_differ", False, "ansible-playbook rackscale.nvlink.slurm -e fabric_file=fabric.json --diff"),
    ],
)
def test_the_next_step_has_the_names_that_its_command_needs(
    world: World, code: str, is_found: bool, expected: str
) -> None:
    for number in (3, 4):
        tray = world.fabric.trays[f"r01t0{number}"]
        tray["slurm_node"], tray["kubernetes_node"] = f"gb-{number}", f"gb-{number}.example.com"
    remedy = functools.partial(verify.remediation, world.evidence(is_found=is_found))
    rows = [failure(code, "hardware", f"{tray} is down.", tray, "r01") for tray in A[2:]]
    assert lines.shown(rows, remedy)[1].endswith(f" next step: {expected}")


def test_the_next_step_for_a_whole_domain_names_all_its_cliques() -> None:
    world = World(racks=2, trays=2)
    trays = [*world.fabric.trays]
    found = failure("imex_channel_slurm_conflict", "channels", "All 4 trays: Both create channels.", trays=trays)
    assert " -e imex_hosts=nvlink_clique_r01,nvlink_clique_r02 " in verify.remediation(world.evidence(), found, trays)


def test_the_verdict_has_the_gpus_that_no_new_compute_domain_can_use() -> None:
    world = World(racks=2, trays=2)
    first, second = world.fabric.cliques
    tray = world.fabric.members[first][0]
    world.node(tray)["metadata"]["labels"]["resource.nvidia.com/computeDomain"] = "uid-train"
    metadata = {"name": "train", "namespace": "jobs", "uid": "uid-train"}
    world.kubernetes["compute_domains"] = [{"metadata": metadata}]
    world.kubernetes["pods"] = [
        {"spec": {"nodeName": tray, "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
    ]
    found = world.verdict()
    assert found["ok"] is True
    gpus = len(world.fabric.trays[tray]["gpu_uuids"])
    of = found["compute_domains"]["cliques"]
    assert of[first] == {
        **{"nodes": 2, "free_nodes": 1, "stranded_gpus": gpus - 1},
        "blocked_by": {"jobs/train": [tray]},
    }
    assert of[second]["stranded_gpus"] == 0
    assert kubernetes_check.stranded_lines(found["compute_domains"]) == [
        f"Clique {first}: {gpus - 1} GPUs are stranded by jobs/train ({tray});"
        " 1 of 2 nodes can take a new ComputeDomain."
    ]
