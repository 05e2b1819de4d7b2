# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be done with an object so that it is as wanted: nothing, create, update, recreate or delete.

Pure. An object is ours when it carries our label; another one is never touched. Some fields cannot be changed by any
update, so the object must go and come back, during which new workloads that name it wait: that needs a person's word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import HOSTNAME, MANAGED_BY, OWNER
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped

CREATE, UPDATE, RECREATE, DELETE = "create", "update", "recreate", "delete"
_OF_THE_SERVER = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")


class Step(NamedTuple):
    """One change: action is CREATE, UPDATE, RECREATE or DELETE; what and why are for people."""

    action: str
    what: str
    why: str = ""

    def as_dict(self) -> dict[str, str]:
        """As the module returns it."""
        return self._asdict()


def is_ours(live: Mapping[str, Any]) -> bool:
    """Whether an object carries our label."""
    return mapped(mapped(live.get("metadata")).get("labels")).get(MANAGED_BY) == OWNER


def content(live: Mapping[str, Any]) -> dict[str, Any]:
    """An object without what the API server adds and without its status, to compare and to show."""
    metadata = {key: value for key, value in mapped(live.get("metadata")).items() if key not in _OF_THE_SERVER}
    rest = {key: value for key, value in live.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": metadata}


def unchangeable(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """The field that differs and that no update can change, by the rules in the schedulers' own definitions."""
    kind, group = str(wanted["kind"]), str(wanted["apiVersion"]).partition("/")[0]
    old, new = mapped(live.get("spec")), mapped(wanted.get("spec"))
    before, after = _labels(old), _labels(new)
    if (group, kind) == ("kai.scheduler", "Topology") and before != after:
        return "the labels of spec.levels"
    if (group, kind) == ("kueue.x-k8s.io", "Topology") and before != after:
        hosts = before[-1:] == [HOSTNAME] and after[-1:] == [HOSTNAME]
        if not hosts or str(wanted["apiVersion"]).endswith("/v1beta1"):
            return "spec.levels"
    if (group, kind) == ("kueue.x-k8s.io", "ResourceFlavor"):
        name = old.get("topologyName")
        if name and name != new.get("topologyName"):
            return "spec.topologyName"
    return None


def _labels(spec: Mapping[str, Any]) -> list[Any]:
    return [mapped(level).get("nodeLabel") for level in as_list(spec.get("levels"))]


def step(
    live: Mapping[str, Any] | None, wanted: Mapping[str, Any], allow_recreate: bool
) -> tuple[str | None, list[Finding]]:
    """(CREATE, UPDATE or RECREATE, findings); None with findings where nothing may be done.

    UPDATE says only that an update is possible: whether it changes something, a dry run of it shows.
    """
    what = f"{wanted['kind']} {wanted['metadata']['name']} of {str(wanted['apiVersion']).partition('/')[0]}"
    if live is None:
        return CREATE, []
    if not is_ours(live):
        message = f"{what} is there and lacks the label {MANAGED_BY}={OWNER}, so it is left: set name to another one."
        return None, [finding("k8s_object_unmanaged", message)]
    field = unchangeable(live, wanted)
    if field is None:
        return UPDATE, []
    if not allow_recreate:
        message = (
            f"{what} must be deleted and made anew to change {field}, and workloads that name it wait meanwhile: "
            "set allow_recreate to true when they may."
        )
        return None, [finding("k8s_recreate_required", message)]
    return RECREATE, []
