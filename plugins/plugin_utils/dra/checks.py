# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be true once the DRA driver is installed, and before it goes: pure functions of a snapshot.

Helm waits neither for the pods of a DaemonSet nor for what they publish, and a DaemonSet that wants no pod is content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import domains, placing
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import (
    CLASSES,
    Plan,
    Seen,
    Trays,
    containers,
    expected_nodes,
    name_of,
    owner_of,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped

GPU_DRIVER = "gpu.nvidia.com"
CLIQUE = "nvidia.com/gpu.clique"
BANDWIDTH = "nvbandwidth"
"""How the names of the MPIJobs begin that prove a clique's bandwidth, the collection's examples among them."""
PLUGIN = "-kubelet-plugin"
"""How the name of the plugin's DaemonSet ends, also GPU Operator's."""


class Claim(NamedTuple):
    """A ResourceClaim that one of the driver's devices is allocated to; reserved: whether a pod uses it."""

    namespace: str
    name: str
    uid: str
    reserved: bool


def claims(seen: Seen) -> list[Claim]:
    """Every claim with a device of this driver, in order."""
    return sorted(_claims(seen))


def _claims(seen: Seen) -> Iterator[Claim]:
    for item in seen["claims"]:
        metadata, status = mapped(item.get("metadata")), mapped(item.get("status"))
        rows = as_list(mapped(mapped(status.get("allocation")).get("devices")).get("results"))
        if any(mapped(row).get("driver") in (domains.DOMAIN_DRIVER, GPU_DRIVER) for row in rows):
            where = (str(metadata.get("namespace")), str(metadata.get("name")), str(metadata.get("uid")))
            yield Claim(*where, bool(as_list(status.get("reservedFor"))))


def lost(before: Sequence[Claim], seen: Seen) -> list[Finding]:
    """Claims that were in use before an upgrade and are still there, but no longer allocated and reserved.

    A claim that is gone altogether went with its pod, which is nobody's fault.
    """
    there = {str(mapped(item.get("metadata")).get("uid")) for item in seen["claims"]}
    now = {claim.uid: claim for claim in claims(seen)}
    found = []
    for claim in before:
        held = now.get(claim.uid)
        if claim.reserved and claim.uid in there and not (held and held.reserved):
            word = "reserved" if held else "allocated"
            message = f"The claim {claim.namespace}/{claim.name} was in use before and is no longer {word}; look at its"
            found.append(finding("dra_claim_lost", f"{message} pod and at the log of the plugin on its node."))
    return found


def check(seen: Seen, trays: Trays, plan: Plan) -> list[Finding]:
    """V1 to V8, in their order. Of ComputeDomains only what lives; probe.py judges those that are made for a trial."""
    found = [*_pods(seen, trays, plan), *_classes(seen, plan), *_slices(seen, trays, plan)]
    if plan.compute_domains:
        found += [*_labels(seen, trays, plan), *domains.living(seen, plan), *domains.ending(seen)]
        found += [*_bandwidth(seen), *_alarms(seen, plan)]
    return found


def published(seen: Seen, trays: Trays, plan: Plan) -> list[Finding]:
    """What these trays' nodes lack of V3 and V4."""
    return [*_slices(seen, trays, plan), *(_labels(seen, trays, plan) if plan.compute_domains else ())]


def in_the_way(seen: Seen) -> list[Finding]:
    """What must go before the driver does: its controller alone can remove the finalizers of ComputeDomains."""
    found = []
    domains = [name_of(item) for item in seen["compute_domains"]]
    if domains:
        message = f"ComputeDomains live ({summarize(sorted(domains))}), and only the running driver can end them; delete them with"
        found.append(finding("dra_domains_active", f"{message} their workloads, then run this again."))
    held = [f"{claim.namespace}/{claim.name}" for claim in claims(seen) if claim.reserved]
    if held:
        message = (
            f"Pods still use claims of the driver ({summarize(sorted(held))}); delete those pods, then run this again."
        )
        found.append(finding("dra_claims_in_use", message))
    return found


def plugin(seen: Seen, plan: Plan) -> Mapping[str, Any] | None:
    """The DaemonSet of the kubelet plugin: our release's, or GPU Operator's."""
    for item in seen["daemon_sets"]:
        if str(mapped(item.get("metadata")).get("name")).endswith(PLUGIN) and (
            owner_of(item) == (plan.namespace, plan.release) if plan.stand_alone else owner_of(item) is None
        ):
            return item
    return None


def _pods(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """V1."""
    item = plugin(seen, plan)
    if item is None:
        message = f"There is no DaemonSet of the driver's plugin in namespace {plan.namespace}; run the tag release."
        yield finding("dra_plugin_missing", message)
        return
    expected = expected_nodes(seen, trays)
    status = mapped(item.get("status"))
    metadata = mapped(item.get("metadata"))
    generation, observed = metadata.get("generation"), status.get("observedGeneration")
    desired, ready = _count(status, "desiredNumberScheduled"), _count(status, "numberReady")
    updated = _count(status, "updatedNumberScheduled")
    if observed is None or (generation is not None and observed != generation):
        message = (
            f"Kubernetes has not yet looked at the DaemonSet {name_of(item)}; see that the controller manager runs."
        )
        yield finding("dra_plugin_unready", message)
    elif plan.waves and not expected:
        # The first wave is still to come.
        return
    elif desired == 0:
        yield finding("dra_plugin_unscheduled", _empty(item, expected, plan))
    elif desired < len(expected):
        values = mapped(plan.get("kubeletPlugin", {}))
        reasons = {name: placing.why_not(node, values) for name, node in expected.items() if node is not None}
        first = next((f": node {name}: {reason}" for name, reason in sorted(reasons.items()) if reason), "")
        message = f"The DaemonSet {name_of(item)} runs on {desired} of {len(expected)} nodes{first}"
        yield finding("dra_plugin_incomplete", f"{message}; label or untaint the others.")
    elif ready < desired or (updated < desired and not plan.waves):
        message = (
            f"Of {desired} pods of the DaemonSet {name_of(item)} {ready} are ready and {updated} of the new kind; see"
        )
        yield finding("dra_plugin_unready", f"{message} kubectl describe and the log of those that are not.")


def _empty(item: Mapping[str, Any], expected: Mapping[str, Mapping[str, Any] | None], plan: Plan) -> str:
    values = mapped(plan.get("kubeletPlugin", {}))
    for name, node in sorted(expected.items()):
        reason = placing.why_not(node, values) if node is not None else None
        if reason:
            return f"The DaemonSet {name_of(item)} wants no pod at all; of node {name} the reason is that {reason}."
    return f"The DaemonSet {name_of(item)} wants no pod at all; compare its nodeSelector with the nodes' labels."


def _count(status: Mapping[str, Any], key: str) -> int:
    number = status.get(key)
    return number if isinstance(number, int) else 0


def _classes(seen: Seen, plan: Plan) -> Iterator[Finding]:
    """V2."""
    wanted: list[str] = []
    if plan.compute_domains:
        wanted += CLASSES["compute_domains"]
        wanted += () if plan.host_managed else CLASSES["daemon"]
    if plan.get("resources.gpus.enabled", True) is not False:
        wanted.append(CLASSES["gpus"][0])
    there = {str(mapped(item.get("metadata")).get("name")) for item in seen["device_classes"]}
    missing = [name for name in wanted if name not in there]
    if missing:
        message = f"The DeviceClass {' and '.join(missing)} is not there; run the tag release again."
        yield finding("dra_class_missing", message)


def _slices(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """V3: per node a pool of ComputeDomain channels, and one of GPUs where they are by DRA."""
    published: dict[tuple[str, str], set[str]] = {}
    for item in seen["slices"]:
        spec = mapped(item.get("spec"))
        devices = published.setdefault((str(spec.get("driver")), str(spec.get("nodeName"))), set())
        devices.update(str(mapped(row).get("name")) for row in as_list(spec.get("devices")))
    channels = {"channel-0"} if plan.host_managed else {"channel-0", "daemon-0"}
    silent, poor, without_gpus = [], [], []
    for name in expected_nodes(seen, trays):
        devices = published.get((domains.DOMAIN_DRIVER, name), set())
        if plan.compute_domains and not devices:
            silent.append(name)
        elif plan.compute_domains and not channels <= devices:
            poor.append(name)
        if plan.get("resources.gpus.enabled", True) is not False and not published.get((GPU_DRIVER, name)):
            without_gpus.append(name)
    for names, what in (
        (silent, f"no ResourceSlice of {domains.DOMAIN_DRIVER}"),
        (poor, f"a ResourceSlice without {' and '.join(sorted(channels))}"),
        (without_gpus, f"no ResourceSlice of {GPU_DRIVER}"),
    ):
        if names:
            message = f"The driver publishes {what} on {summarize(sorted(names))}; see the log of its plugin there."
            yield finding("dra_slice_missing", message)


def _labels(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """V4: the clique's label of each node against what the GPUs of its tray say.

    Where the site writes the label itself, as by the role k8s_topology after this one, that writer judges it.
    """
    if plan.label_writer:
        return
    gpus = {tray.node: tray.fabric.get("clique") for tray in trays.values() if tray.fabric is not None}
    missing, wrong = [], []
    for name, node in expected_nodes(seen, trays).items():
        label = placing.labels(node or {}).get(CLIQUE)
        if label == gpus.get(name, label):
            continue
        if label is None:
            missing.append(name)
        else:
            wrong.append((name, label, gpus[name]))
    if missing:
        message = f"The label {CLIQUE} is not on {summarize(sorted(missing))}, so no scheduler sees the clique; see the log of the"
        yield finding("dra_label_missing", f"{message} label's writer there, which may be a minute late.")
    for name, label, clique in wrong:
        said = f"say {clique}" if clique else "are in no clique"
        message = f"The label {CLIQUE} of node {name} is {label} and its GPUs {said}; restart the label's writer there."
        yield finding("dra_label_wrong", message, node=name)


def _bandwidth(seen: Seen) -> Iterator[Finding]:
    """V7: the jobs of nvbandwidth that somebody ran. Where nobody ran any, nothing is said."""
    proven, failed, crossing, tried = set(), {}, [], False
    for job in seen["mpi_jobs"]:
        if not str(mapped(job.get("metadata")).get("name")).startswith(BANDWIDTH):
            continue
        tried = True
        cliques, ended = _cliques_of(job), _ended(job)
        if len(cliques) > 1:
            crossing += [name_of(job)] if ended == "Succeeded" else []
        elif ended == "Succeeded":
            proven.update(cliques)
        elif ended == "Failed":
            failed.update(dict.fromkeys(cliques, name_of(job)))
    for clique, name in sorted(failed.items()):
        if clique not in proven:
            message = f"The bandwidth of clique {clique} is not proven, as {name} failed; see its launcher's log."
            yield finding("dra_bandwidth_failed", message, clique=clique)
    for name in crossing:
        message = f"{name} had NVLink between two cliques, which cannot be; compare the label {CLIQUE} with the GPUs."
        yield finding("dra_bandwidth_failed", message)
    labels = {str(placing.labels(node)[CLIQUE]) for node in seen["nodes"] if CLIQUE in placing.labels(node)}
    rest = labels - proven - set(failed)
    if tried and rest:
        message = f"No nvbandwidth has ended well in clique {summarize(sorted(rest))}; run one there when it is free."
        yield finding("dra_bandwidth_untested", message)


def _cliques_of(job: Mapping[str, Any]) -> list[str]:
    """The cliques that a job's workers are bound to."""
    worker = mapped(mapped(mapped(job.get("spec")).get("mpiReplicaSpecs")).get("Worker"))
    affinity = mapped(mapped(mapped(worker.get("template")).get("spec")).get("affinity"))
    required = mapped(mapped(affinity.get("nodeAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution"))
    return [
        str(value)
        for term in map(mapped, as_list(required.get("nodeSelectorTerms")))
        for row in map(mapped, as_list(term.get("matchExpressions")))
        if row.get("key") == CLIQUE and row.get("operator") == "In"
        for value in as_list(row.get("values"))
    ]


def _ended(job: Mapping[str, Any]) -> str | None:
    rows = map(mapped, as_list(mapped(job.get("status")).get("conditions")))
    true = {str(row.get("type")) for row in rows if row.get("status") == "True"}
    return next((word for word in ("Succeeded", "Failed") if word in true), None)


def _alarms(seen: Seen, plan: Plan) -> Iterator[Finding]:
    """V8: DCGM looks for nvidia-imex.service, which is off where the driver's own daemons have IMEX."""
    if plan.host_managed:
        return
    for item in seen["daemon_sets"]:
        wants = mapped(item.get("status")).get("desiredNumberScheduled")
        if wants and any("dcgm" in str(row.get("image")) for row in containers(item)):
            message = f"{name_of(item)} runs DCGM, whose health of IMEX is a false alarm where ComputeDomains own IMEX;"
            yield finding("dra_dcgm_imex", f"{message} leave that out of what it watches.")
