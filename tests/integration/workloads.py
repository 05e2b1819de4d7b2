# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Four trays, a workload on some of them, Helm's environment, and the wait for what a control plane does by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from nvlab.kubernetes import domains

CLAIMS = f"{domains.RESOURCE}/resourceclaims"
DEPLOYMENTS = "apis/apps/v1/namespaces/default/deployments"
ONLY_DOMAINS = ("--set", "resources.gpus.enabled=false")
DOMAIN = {
    "apiVersion": domains.VERSION,
    "kind": "ComputeDomain",
    "metadata": {"name": "work", "namespace": "default"},
    "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "work-channel"}}},
}
FOUR = {"racks": [{"trays": 4, "cliques": [{"id": 1, "trays": [1, 2]}, {"id": 2, "trays": [3, 4]}]}]}
Found = TypeVar("Found")


def until(what: str, condition: Callable[[], Found], seconds: float = 120.0) -> Found:
    """Wait until `condition` returns something true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.1)
    return found


def with_helm(folder: Path) -> dict[str, str]:
    """Variables for Ansible that runs Helm, whose files are in a folder."""
    homes = {f"HELM_{kind}_HOME": str(folder / f"helm-{kind}") for kind in ("CACHE", "CONFIG", "DATA")}
    direct = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
    # kubernetes.core.helm calls one of its own return values deprecated at every use.
    return {"ANSIBLE_DEPRECATION_WARNINGS": "false", **homes, **direct}


def workload(replicas: int, trays: list[str]) -> dict[str, Any]:
    """A Deployment whose pods claim a channel on some trays."""
    only = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": trays}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only]}}}
    container = {"name": "work", "image": "work", "resources": {"claims": [{"name": "channel"}]}}
    claims = [{"name": "channel", "resourceClaimTemplateName": "work-channel"}]
    pod = {"affinity": affinity, "containers": [container], "resourceClaims": claims}
    labels = {"app": "work"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "work"}, "spec": spec}
