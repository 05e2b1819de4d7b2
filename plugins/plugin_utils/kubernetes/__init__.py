# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One Kubernetes cluster: its API, the writer of the clique label, and the topology objects of its schedulers."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError


class KubernetesError(NvlinkError):
    """A wrong option for a cluster, or a change of it that is not possible or was made only in part."""
