# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Common arguments of the dra_driver_* actions: the cluster, the release and the facts of the trays."""

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
    "external_label_writer": {"type": "bool", "default": False},
    "waves": {"type": "bool", "default": False},
    "trays": {"type": "list", "elements": "str", "default": []},
    "wait": {"type": "float", "default": 0.0},
}
"""Arguments of each action."""


def client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the API client."""
    given = {"kubeconfig": options["kubeconfig"], "timeout": options["timeout"]}
    return {**given, "context": options["context"]} if options["context"] else given


def connection(options: Mapping[str, Any]) -> Options:
    """The validated options for kubeconfig.client_config()."""
    keys = ("kubeconfig", "context", "api_url", "timeout", "deadline", "max_bytes")
    return Options(client_options(options), keys, "dra_driver")


def trays(names: Sequence[str], hostvars: Mapping[str, Any]) -> dict[str, preflight.Tray]:
    """The facts of the trays, from an earlier task of this run or a fact cache."""
    found = {}
    for name in names:
        variables = hostvars.get(name) or {}
        facts = variables.get("ansible_facts") or {}
        found[name] = preflight.Tray(
            node=str(variables.get("nvlink_kubernetes_node") or name),
            fabric=facts.get("nvlink_fabric") or variables.get("nvlink_fabric"),
            imex=facts.get("nvlink_imex") or variables.get("nvlink_imex"),
            root=variables.get("dra_driver_root_found"),
        )
    return found


def plan(options: Mapping[str, Any], version: Version, snapshot: preflight.Snapshot, **more: Any) -> preflight.Plan:
    """The installation plan; DraError for options that exclude each other. more: further fields of Plan."""
    blank = preflight.Plan({}, version, options["namespace"], options["release"])
    made = values.build(
        options["shape"], options["values"], api_version(snapshot), preflight.keeps_old_name(snapshot, blank)
    )
    if options["waves"]:
        if options["shape"] == "gpu_cluster":
            raise DraError("waves: GPU Operator rolls out its own driver; set waves to false with shape gpu_cluster")
        made = waves.restricted(made)
    return preflight.Plan(
        values=None if options["shape"] == "gpu_cluster" else made,
        version=version,
        namespace=options["namespace"],
        release=options["release"],
        external_label_writer=options["external_label_writer"],
        waves=options["waves"],
        **more,
    )
