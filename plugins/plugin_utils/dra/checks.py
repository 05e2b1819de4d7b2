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
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import placing
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import (
    CLASSES,
    Plan,
    Seen,
    Trays,
    expected_nodes,
    named,
    owner_of,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import listed, mapped

DOMAIN_DRIVER, GPU_DRIVER = "compute-domain.nvidia.com", "gpu.nvidia.com"
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
        rows = listed(mapped(mapped(status.get("allocation")).get("devices")).get("results"))
        if any(mapped(row).get("driver") in (DOMAIN_DRIVER, GPU_DRIVER) for row in rows):
            where = (str(metadata.get("namespace")), str(metadata.get("name")), str(metadata.get("uid")))
            yield Claim(*where, bool(listed(status.get("reservedFor"))))


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
    """V1 to V3: pods, DeviceClasses and what each node publishes."""
    return [*_pods(seen, trays, plan), *_classes(seen, plan), *_slices(seen, trays, plan)]


def in_the_way(seen: Seen) -> list[Finding]:
    """What must go before the driver does: its controller alone can remove the finalizers of ComputeDomains."""
    found = []
    domains = [_name(item) for item in seen["compute_domains"]]
    if domains:
        message = f"ComputeDomains live ({named(domains)}), and only the running driver can end them; delete them with"
        found.append(finding("dra_domains_live", f"{message} their workloads, then run this again."))
    held = [f"{claim.namespace}/{claim.name}" for claim in claims(seen) if claim.reserved]
    if held:
        message = f"Pods still use claims of the driver ({named(held)}); delete those pods, then run this again."
        found.append(finding("dra_claims_live", message))
    return found


def _name(item: Mapping[str, Any]) -> str:
    metadata = mapped(item.get("metadata"))
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


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
        message = f"Kubernetes has not yet looked at the DaemonSet {_name(item)}; see that the controller manager runs."
        yield finding("dra_plugin_unready", message)
    elif desired == 0:
        yield finding("dra_plugin_empty", _empty(item, expected, plan))
    elif desired < len(expected):
        values = mapped(plan.get("kubeletPlugin", {}))
        reasons = {name: placing.why_not(node, values) for name, node in expected.items() if node is not None}
        first = next((f": node {name}: {reason}" for name, reason in sorted(reasons.items()) if reason), "")
        message = f"The DaemonSet {_name(item)} runs on {desired} of {len(expected)} nodes{first}"
        yield finding("dra_plugin_short", f"{message}; label or untaint the others.")
    elif ready < desired or updated < desired:
        message = (
            f"Of {desired} pods of the DaemonSet {_name(item)} {ready} are ready and {updated} of the new kind; see"
        )
        yield finding("dra_plugin_unready", f"{message} kubectl describe and the log of those that are not.")


def _empty(item: Mapping[str, Any], expected: Mapping[str, Mapping[str, Any] | None], plan: Plan) -> str:
    values = mapped(plan.get("kubeletPlugin", {}))
    for name, node in sorted(expected.items()):
        reason = placing.why_not(node, values) if node is not None else None
        if reason:
            return f"The DaemonSet {_name(item)} wants no pod at all; of node {name} the reason is that {reason}."
    return f"The DaemonSet {_name(item)} wants no pod at all; compare its nodeSelector with the nodes' labels."


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
        devices.update(str(mapped(row).get("name")) for row in listed(spec.get("devices")))
    channels = {"channel-0"} if plan.host_managed else {"channel-0", "daemon-0"}
    silent, poor, without_gpus = [], [], []
    for name in expected_nodes(seen, trays):
        devices = published.get((DOMAIN_DRIVER, name), set())
        if plan.compute_domains and not devices:
            silent.append(name)
        elif plan.compute_domains and not channels <= devices:
            poor.append(name)
        if plan.get("resources.gpus.enabled", True) is not False and not published.get((GPU_DRIVER, name)):
            without_gpus.append(name)
    for names, what in (
        (silent, f"no ResourceSlice of {DOMAIN_DRIVER}"),
        (poor, f"a ResourceSlice without {' and '.join(sorted(channels))}"),
        (without_gpus, f"no ResourceSlice of {GPU_DRIVER}"),
    ):
        if names:
            message = f"The driver publishes {what} on {named(names)}; see the log of its plugin there."
            yield finding("dra_slice_missing", message)
