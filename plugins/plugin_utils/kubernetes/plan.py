# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be done to an object: it is created, updated, deleted, or left alone with a finding.

Pure. Only objects with the collection's label are managed; others are never changed. Which fields are immutable the
scheduler's own definition decides, by release: the API server rejects the dry run of such an update. A person then
deletes the object, since workloads that name it wait until it exists again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import MANAGED_BY, OWNER
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, mapped

CREATE, UPDATE, DELETE = "create", "update", "delete"
KUEUE = "kueue.x-k8s.io"
# Kueue's finalizer keeps an object in use, a Topology while a flavor names it, and Kueue loses the usage of running
# workloads in its cache when the object is there again: of a Topology before its pull request 8755, of a flavor until
# issue 13878.
_DELETE = {
    KUEUE: "where a ClusterQueue uses it, set spec.stopPolicy: HoldAndDrain there, and remove the flavor from it when "
    "its workloads have ended; delete it, of a Topology first the ResourceFlavors that name it, run again, then add "
    "the flavor and clear stopPolicy",
}
_IMMUTABLE = re.compile(r"HTTP 422: [^)]*? is invalid: (.*mutable.*)\);")
_SERVER_FIELDS = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")


class Step(NamedTuple):
    """One change: action is CREATE, UPDATE or DELETE; what names the object, why gives the reason."""

    action: str
    what: str
    why: str = ""


def is_managed(live: Object) -> bool:
    """Whether an object carries the collection's label."""
    return mapped(mapped(live.get("metadata")).get("labels")).get(MANAGED_BY) == OWNER


def content(live: Object) -> Object:
    """An object without its status and the fields that the API server adds, for comparisons and diffs."""
    metadata = {key: value for key, value in mapped(live.get("metadata")).items() if key not in _SERVER_FIELDS}
    rest = {key: value for key, value in live.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": metadata}


def unmanaged(desired: Object) -> Finding:
    """The finding for an object that exists without the collection's label."""
    why = f"exists without the label {MANAGED_BY}={OWNER}, so it is not changed: set name to another one."
    return finding("object_unmanaged", f"{_what(desired)} {why}")


def immutable(desired: Object, error: str) -> Finding | None:
    """The finding for an update that the API server rejects because of an immutable field; None for another error."""
    match = _IMMUTABLE.search(error)
    if match is None:
        return None
    remedy = _DELETE.get(_group(desired), "delete it when no running workload names it, and run again")
    return finding("jobs_running", f"{_what(desired)} must be deleted and created again ({match[1]}): {remedy}.")


def _group(desired: Object) -> str:
    return str(desired["apiVersion"]).partition("/")[0]


def _what(desired: Object) -> str:
    return f"{desired['kind']} {desired['metadata']['name']} of {_group(desired)}"
