# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods are of a job."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped


def is_of_a_job(pod: Any) -> bool:
    """Whether a pod, as the API server has it, is one that has not ended and for which a tray must be waited for.

    Pods of a DaemonSet and of the kubelet itself run on every node.
    """
    owners = map(mapped, as_list(mapped(mapped(pod).get("metadata")).get("ownerReferences")))
    is_of_node = any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)
    return not is_of_node and mapped(mapped(pod).get("status")).get("phase") not in ("Succeeded", "Failed")
