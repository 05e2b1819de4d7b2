# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the installed DRA driver and before its removal: pure functions of a snapshot.

Helm waits neither for the pods of a DaemonSet nor for what they publish, and accepts a DaemonSet without any pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import device_plugins, domains, node_selection
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import (
    CLASSES,
    Plan,
    Trays,
    containers,
    expected_nodes,
    live_plan,
    name_of,
    owner_of,
    refused,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import CLIQUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

PLUGIN = "-kubelet-plugin"
"""The suffix of the name of the plugin's DaemonSet, also of GPU Operator's."""
CONTROLLER = "compute-domain"
"""The container of the driver's controller, also of GPU Operator's."""


class Claim(NamedTuple):
    """A ResourceClaim with an allocated device of the driver; reserved: whether a pod uses it."""

    namespace: str
    name: str
    uid: str
    reserved: bool


def claims(snapshot: Snapshot) -> list[Claim]:
    """All claims with a device of this driver, sorted."""
    found = []
    for item in snapshot["claims"]:
        metadata, drivers = mapped(item.get("metadata")), {row.get("driver") for row in domains.results(item)}
        if drivers & {domains.DOMAIN_DRIVER, device_plugins.GPU_DRIVER}:
            where = (str(metadata.get("namespace")), str(metadata.get("name")), str(metadata.get("uid")))
            found.append(Claim(*where, bool(as_list(mapped(item.get("status")).get("reservedFor")))))
    return sorted(found)


def lost_claims(before: Sequence[Claim], snapshot: Snapshot) -> list[Finding]:
    """Findings on claims that were in use before an upgrade and still exist, but are no longer allocated and reserved.

    A deleted claim was deleted with its pod, which is no fault.
    """
    existing = {str(mapped(item.get("metadata")).get("uid")) for item in snapshot["claims"]}
    now = {claim.uid: claim for claim in claims(snapshot)}
    found = []
    for claim in before:
        current = now.get(claim.uid)
        if claim.reserved and claim.uid in existing and not (current and current.reserved):
            state = "reserved" if current else "allocated"
            message = f"The claim {claim.namespace}/{claim.name} was in use before and is no longer {state}; check its"
            found.append(finding("dra_plugin_unready", f"{message} pod and the log of the plugin on its node."))
    return found


def check(snapshot: Snapshot, trays: Trays, plan: Plan) -> list[Finding]:
    """V1 to V7, in this order."""
    found = [*_pods(snapshot, trays, plan), *_classes(snapshot, plan), *_slices(snapshot, trays, plan)]
    if plan.compute_domains:
        found += [*_labels(snapshot, trays, plan), *running(snapshot, plan.host_managed), *_alarms(snapshot, plan)]
    return found


def running(snapshot: Snapshot, host_managed: bool, starting: int = 0) -> list[Finding]:
    """V5 and V6: what needs no plan, so verify checks it too.

    starting: the minutes after its last change in which a claim or the controller may still be starting, for a caller
    that does not repeat the checks.
    """
    claims = [row for row in snapshot["claims"] if not domains.is_new(row, snapshot, starting)]
    active = [] if host_managed else domains.check_active({**snapshot, "claims": claims})
    return [*controller(snapshot, starting), *active, *domains.check_deleted(snapshot)]


def starting(snapshot: Snapshot, minutes: int) -> list[str]:
    """What running() leaves out with these minutes, as sentences."""
    rows = [row for row in snapshot["claims"] if domains.domain_of(row) and domains.is_new(row, snapshot, minutes)]
    what = f"{count(len(rows), 'claim')} for channels changed less than {minutes} minutes ago: starting, not checked"
    return [f"{what} ({summarize(sorted(map(name_of, rows)))})."] if rows else []


def live(snapshot: Snapshot, trays: Trays, starting: int) -> list[Finding]:
    """What the role would report of the installed driver and that needs no values of the chart, for verify.

    Without V3 and V4, which verify checks with the fabric file.
    """
    plan = live_plan(snapshot)
    if plan is None:
        return []
    found = [*running(snapshot, plan.host_managed, starting), *refused(snapshot, trays, plan)]
    found += [*_pods(snapshot, trays, plan), *_classes(snapshot, plan), *_alarms(snapshot, plan)]
    found += device_plugins.check(snapshot, trays, plan)
    left = {name_of(row) for row in domains.probes(snapshot) if not domains.is_new(row, snapshot, starting)}
    if left:
        message = f"A probe that was stopped has left {summarize(sorted(left))}; run the playbook kubernetes, which"
        found.append(finding("dra_domain_leftovers", f"{message} deletes them."))
    return found


def controller(snapshot: Snapshot, starting: int) -> Iterator[Finding]:
    """Helm accepts a controller without a replica."""
    rows = [row for row in snapshot["deployments"] if any(part.get("name") == CONTROLLER for part in containers(row))]
    unknown = any(" deployments;" in sentence for sentence in snapshot["not_readable"])
    available = (_count(mapped(row.get("status")), "availableReplicas") for row in rows)
    if not unknown and not any(available) and not any(domains.is_new(row, snapshot, starting) for row in rows):
        what = f"no available replica ({summarize(map(name_of, rows)) or 'there is no Deployment of it'})"
        message = f"The driver's controller has {what}, so no ComputeDomain starts or ends; scale it up, or see"
        yield finding("dra_plugin_unready", f"{message} kubectl describe.")


def blockers(snapshot: Snapshot) -> list[Finding]:
    """What blocks a removal of the driver: only its controller can remove the finalizers of ComputeDomains."""
    found = []
    # The role deletes those of its own probe before.
    names = [name_of(item) for item in snapshot["compute_domains"] if item not in domains.probes(snapshot)]
    if names:
        message = f"ComputeDomains exist ({summarize(sorted(names))}), and only the running driver can delete them;"
        found.append(finding("jobs_running", f"{message} delete them with their workloads, then run again."))
    rows = [row for row in claims(snapshot) if row.reserved and not row.name.startswith(domains.PROBE)]
    used = [f"{claim.namespace}/{claim.name}" for claim in rows]
    if used:
        message = f"Pods still use claims of the driver ({summarize(sorted(used))}); delete those pods, then run again."
        found.append(finding("jobs_running", message))
    return found


def plugin(snapshot: Snapshot, plan: Plan) -> Object | None:
    """The DaemonSet of the kubelet plugin: the release's, or GPU Operator's."""
    for item in snapshot["daemon_sets"]:
        if str(mapped(item.get("metadata")).get("name")).endswith(PLUGIN) and (
            owner_of(item) == (plan.namespace, plan.release) if plan.stand_alone else owner_of(item) is None
        ):
            return item
    return None


def _pods(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """V1."""
    item = plugin(snapshot, plan)
    if item is None:
        message = f"The DaemonSet of the driver's plugin is missing in namespace {plan.namespace}; run the role with"
        yield finding("dra_release_failed", f"{message} the tag release.")
        return
    expected, values = expected_nodes(snapshot, trays), mapped(plan.get("kubeletPlugin", {}))
    status, metadata = mapped(item.get("status")), mapped(item.get("metadata"))
    generation, observed = metadata.get("generation"), status.get("observedGeneration")
    desired, ready, updated = (
        _count(status, key) for key in ("desiredNumberScheduled", "numberReady", "updatedNumberScheduled")
    )
    if observed is None or (generation is not None and observed != generation):
        message = f"The controller manager has not observed the DaemonSet {name_of(item)}; check that it runs."
        yield finding("dra_plugin_unready", message)
    elif desired == 0 or desired < len(expected):
        excluded = {name: node_selection.why_excluded(node, values) for name, node in expected.items() if node}
        first = next((f": node {name}: {reason}" for name, reason in sorted(excluded.items()) if reason), "")
        message = f"The DaemonSet {name_of(item)} runs on {desired} of {count(len(expected), 'node')}{first}; label or"
        message = f"{message} untaint the others, or correct its nodeSelector."
        yield finding("dra_node_not_selected", message, nodes=[name for name in sorted(excluded) if excluded[name]])
    elif ready < desired or updated < desired:
        pods = count(desired, "pod")
        message = f"Of {pods} of the DaemonSet {name_of(item)} {ready} are ready and {updated} of the new revision; see"
        yield finding("dra_plugin_unready", f"{message} kubectl describe and the log of the others.")


def _count(status: Object, key: str) -> int:
    number = status.get(key)
    return number if isinstance(number, int) else 0


def _classes(snapshot: Snapshot, plan: Plan) -> Iterator[Finding]:
    """V2."""
    wanted: list[str] = []
    if plan.compute_domains:
        wanted += CLASSES["compute_domains"]
        wanted += () if plan.host_managed else CLASSES["daemon"]
    if plan.get("resources.gpus.enabled", True) is not False:
        wanted.append(CLASSES["gpus"][0])
    existing = {str(mapped(item.get("metadata")).get("name")) for item in snapshot["device_classes"]}
    missing = [name for name in wanted if name not in existing]
    if missing:
        message = f"Missing DeviceClass: {' and '.join(missing)}; run the role with the tag release again."
        yield finding("dra_release_failed", message)


def _slices(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """V3: per node a pool of ComputeDomain channels, and one of GPUs where DRA allocates them."""
    slices: dict[tuple[str, str], set[str]] = {}
    for item in snapshot["slices"]:
        spec = mapped(item.get("spec"))
        devices = slices.setdefault((str(spec.get("driver")), str(spec.get("nodeName"))), set())
        devices.update(str(mapped(row).get("name")) for row in as_list(spec.get("devices")))
    channels = {"channel-0"} if plan.host_managed else {"channel-0", "daemon-0"}
    without_slice, incomplete, without_gpus = [], [], []
    for name in expected_nodes(snapshot, trays):
        devices = slices.get((domains.DOMAIN_DRIVER, name), set())
        if plan.compute_domains and not devices:
            without_slice.append(name)
        elif plan.compute_domains and not channels <= devices:
            incomplete.append(name)
        if device_plugins.by_dra(plan) and not slices.get((device_plugins.GPU_DRIVER, name)):
            without_gpus.append(name)
    for names, what in (
        (without_slice, f"no ResourceSlice of {domains.DOMAIN_DRIVER}"),
        (incomplete, f"a ResourceSlice without {' and '.join(sorted(channels))}"),
        (without_gpus, f"no ResourceSlice of {device_plugins.GPU_DRIVER}"),
    ):
        if names:
            message = f"The driver publishes {what} on {summarize(sorted(names))}; see the log of its plugin there."
            yield finding("dra_node_outdated", message)


def _labels(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """V4: the clique label of each node against the clique that the GPUs of its tray report.

    An external writer, such as the role k8s_topology after this one, checks its labels itself.
    """
    if plan.external_label_writer:
        return
    gpus = {tray.node: tray.gpu.clique for tray in trays.values() if tray.gpu is not None}
    missing, wrong = [], []
    for name, node in expected_nodes(snapshot, trays).items():
        label = node_selection.labels(node or {}).get(CLIQUE)
        if label == gpus.get(name, label):
            continue
        if label is None:
            missing.append(name)
        else:
            wrong.append((name, label, gpus[name]))
    if missing:
        message = f"The label {CLIQUE} is missing on {summarize(sorted(missing))}, so no scheduler knows the clique"
        remedy = "there; see the log of its writer, which may be a minute late."
        yield finding("k8s_clique_label_wrong", f"{message} {remedy}")
    for name, label, clique in wrong:
        reported = f"report {clique}" if clique else "are in no clique"
        message = f"The label {CLIQUE} of node {name} is {label}, but its GPUs {reported}; restart its writer there."
        yield finding("k8s_clique_label_wrong", message, node=name)


def _alarms(snapshot: Snapshot, plan: Plan) -> Iterator[Finding]:
    """V7: DCGM monitors nvidia-imex.service, which is masked where the driver's daemons run IMEX."""
    if plan.host_managed:
        return
    for item in snapshot["daemon_sets"]:
        scheduled = mapped(item.get("status")).get("desiredNumberScheduled")
        if scheduled and any("dcgm" in str(row.get("image")) for row in containers(item)):
            message = f"{name_of(item)} runs DCGM, whose IMEX health is a false alarm where ComputeDomains own IMEX"
            yield finding("dra_dcgm_imex", message)
