# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action that brings an object to its desired state: none, create, update, recreate or delete.

Pure. Only objects with the collection's label are managed; others are never changed. No update can change an immutable
field, so the object must be deleted and created again. New workloads that name it wait meanwhile, so a person must
allow that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import HOSTNAME, MANAGED_BY, OWNER
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import Object, as_list, mapped

CREATE, UPDATE, RECREATE, DELETE = "create", "update", "recreate", "delete"
_SERVER_FIELDS = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")


class Step(NamedTuple):
    """One change: action is CREATE, UPDATE, RECREATE or DELETE; what names the object, why gives the reason."""

    action: str
    what: str
    why: str = ""

    def as_dict(self) -> dict[str, str]:
        """The row of the module's result."""
        return self._asdict()


def is_managed(live: Object) -> bool:
    """Whether an object carries the collection's label."""
    return mapped(mapped(live.get("metadata")).get("labels")).get(MANAGED_BY) == OWNER


def content(live: Object) -> Object:
    """An object without its status and the fields that the API server adds, for comparisons and diffs."""
    metadata = {key: value for key, value in mapped(live.get("metadata")).items() if key not in _SERVER_FIELDS}
    rest = {key: value for key, value in live.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": metadata}


def unchangeable(live: Object, desired: Object) -> str | None:
    """The immutable field that differs, by the rules in the schedulers' own definitions; None without one."""
    kind, group = str(desired["kind"]), str(desired["apiVersion"]).partition("/")[0]
    old, new = mapped(live.get("spec")), mapped(desired.get("spec"))
    before, after = _labels(old), _labels(new)
    if (group, kind) == ("kai.scheduler", "Topology") and before != after:
        return "the labels of spec.levels"
    if (group, kind) == ("kueue.x-k8s.io", "Topology") and before != after:
        hosts = before[-1:] == [HOSTNAME] and after[-1:] == [HOSTNAME]
        if not hosts or str(desired["apiVersion"]).endswith("/v1beta1"):
            return "spec.levels"
    if (group, kind) == ("kueue.x-k8s.io", "ResourceFlavor"):
        name = old.get("topologyName")
        if name and name != new.get("topologyName"):
            return "spec.topologyName"
    return None


def _labels(spec: Object) -> list[Any]:
    return [mapped(level).get("nodeLabel") for level in as_list(spec.get("levels"))]


def flavors(queue: Object) -> set[str]:
    """The names of the flavors of a ClusterQueue."""
    groups = map(mapped, as_list(mapped(queue.get("spec")).get("resourceGroups")))
    return {str(mapped(row).get("name")) for group in groups for row in as_list(group.get("flavors"))}


def used_by_kueue(desired: Object, queues: Sequence[str]) -> Finding:
    """A recreation of an object in use, which every release of Kueue forbids or gets wrong.

    Kueue's finalizer keeps an object in use from being deleted, and Kueue loses the usage of running workloads in its
    cache when the object is there again: of a Topology before its pull request 8755, of a flavor until issue 13878.
    """
    message = (
        f"{desired['kind']} {desired['metadata']['name']} must be deleted and created again, and the ClusterQueue "
        f"{summarize(queues)} uses it: set spec.stopPolicy: HoldAndDrain there, remove the flavor from it when its "
        "workloads have ended, run again, then add the flavor and clear stopPolicy."
    )
    return finding("jobs_running", message)


def step(live: Object | None, desired: Object, allow_recreate: bool) -> tuple[str | None, list[Finding]]:
    """(CREATE, UPDATE or RECREATE, findings); None with findings where nothing may be done.

    UPDATE means that an update is possible; its dry run shows whether it changes anything.
    """
    what = f"{desired['kind']} {desired['metadata']['name']} of {str(desired['apiVersion']).partition('/')[0]}"
    if live is None:
        return CREATE, []
    if not is_managed(live):
        message = (
            f"{what} exists without the label {MANAGED_BY}={OWNER}, so it is not changed: set name to another one."
        )
        return None, [finding("object_unmanaged", message)]
    field = unchangeable(live, desired)
    if field is None:
        return UPDATE, []
    if not allow_recreate:
        message = (
            f"{what} must be deleted and created again to change {field}, and workloads that name it wait meanwhile: "
            "set allow_recreate to true when they may."
        )
        return None, [finding("jobs_running", message)]
    return RECREATE, []
