# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the actions about the DRA driver are all told: the cluster, the release, and what the trays said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import DraError, preflight, values, waves
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import api_version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.versions import Version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options

SPEC: dict[str, dict[str, Any]] = {
    "kubeconfig": {"type": "path", "required": True},
    "context": {"type": "str", "default": ""},
    "timeout": {"type": "float", "default": 30.0},
    "shape": {"type": "str", "default": "compute_domains"},
    "values": {"type": "dict", "default": {}},
    "chart_version": {"type": "str", "default": "0.5.0"},
    "release": {"type": "str", "default": "dra-driver-nvidia-gpu"},
    "namespace": {"type": "str", "default": "dra-driver-nvidia-gpu"},
    "label_writer": {"type": "str", "choices": ["", "site"], "default": ""},
    "waves": {"type": "bool", "default": False},
    "trays": {"type": "list", "elements": "str", "default": []},
    "wait": {"type": "float", "default": 0.0},
}
"""Arguments that each of them has."""


def way(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a connection."""
    given = {"kubeconfig": options["kubeconfig"], "timeout": options["timeout"]}
    return {**given, "context": options["context"]} if options["context"] else given


def connection(options: Mapping[str, Any]) -> Options:
    """The same, checked, as kubeconfig.client_config() takes them."""
    keys = ("kubeconfig", "context", "api_url", "timeout", "deadline", "max_bytes")
    return Options(way(options), keys, "dra_driver")


def trays(names: Sequence[str], hostvars: Mapping[str, Any]) -> dict[str, preflight.Tray]:
    """What the trays said of themselves earlier in this run, or in a cache of facts."""
    found = {}
    for name in names:
        known = hostvars.get(name) or {}
        facts = known.get("ansible_facts") or {}
        found[name] = preflight.Tray(
            node=str(known.get("nvlink_kubernetes_node") or name),
            fabric=facts.get("nvlink_fabric") or known.get("nvlink_fabric"),
            imex=facts.get("nvlink_imex") or known.get("nvlink_imex"),
            root=known.get("dra_driver_root_found"),
        )
    return found


def plan(options: Mapping[str, Any], version: Version, seen: preflight.Seen, **more: Any) -> preflight.Plan:
    """What is to be installed there; DraError where it cannot be. more: further fields of Plan."""
    blank = preflight.Plan({}, version, options["namespace"], options["release"])
    made = values.build(options["shape"], options["values"], api_version(seen), preflight.keeps_old_name(seen, blank))
    if options["waves"]:
        if options["shape"] == "gpu_cluster":
            raise DraError("dra_driver_waves: GPU Operator rolls its own driver out; leave it out with gpu_cluster")
        made = waves.held_back(made)
    return preflight.Plan(
        values=None if options["shape"] == "gpu_cluster" else made,
        version=version,
        namespace=options["namespace"],
        release=options["release"],
        label_writer=options["label_writer"],
        waves=options["waves"],
        **more,
    )
