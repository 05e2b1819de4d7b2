# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Common arguments of the dra_driver_* actions: the cluster, the release and the facts of the trays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import preflight, values
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import api_version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.versions import Version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import tray_facts

SPEC: dict[str, Specification] = {
    "kubeconfig": {"type": "path", "required": True},
    "context": {"type": "str", "default": ""},
    "timeout": {"type": "float", "default": 30.0},
    "shape": {"type": "str", "default": "compute_domains"},
    "values": {"type": "dict", "default": {}},
    "chart_version": {"type": "str", "default": "0.5.0"},
    "release": {"type": "str", "default": "dra-driver-nvidia-gpu"},
    "namespace": {"type": "str", "default": "dra-driver-nvidia-gpu"},
    "external_label_writer": {"type": "bool", "default": False},
    "trays": {"type": "list", "elements": "str", "default": []},
    "wait": {"type": "float", "default": 0.0},
}
"""Arguments of each action."""


def trays(names: Sequence[str], hostvars: Any) -> tuple[dict[str, preflight.Tray], list[Finding]]:
    """(the trays with their facts, from an earlier task of this run or a fact cache; why facts are missing)."""
    found: dict[str, preflight.Tray] = {}
    findings: list[Finding] = []
    for name, facts in tray_facts.read(hostvars, names).items():
        node = facts.variables.get("nvlink_kubernetes_node") or name
        if "{" in str(node):
            node = hostvars[name]["nvlink_kubernetes_node"]
        found[name] = preflight.Tray(
            node=str(node),
            fabric=facts.fabric,
            imex=facts.imex,
            root=_root(facts.variables.get("dra_driver_root_files")),
        )
        findings += facts.findings
    return found, findings


def _root(result: Any) -> bool | None:
    """Whether the role's search below the driver root found both programs; None for a tray without a result."""
    if not isinstance(result, Mapping) or not isinstance(result.get("stdout"), str):
        return None
    return {line.rpartition("/")[2] for line in result["stdout"].splitlines()} == {"nvidia-smi", "libnvidia-ml.so.1"}


def plan(options: Arguments, version: Version, snapshot: preflight.Snapshot, **more: Any) -> preflight.Plan:
    """The installation plan. more: further fields of Plan."""
    blank = preflight.Plan({}, version, options["namespace"], options["release"])
    made: values.Values = values.build(
        options["shape"], options["values"], api_version(snapshot), preflight.keeps_old_name(snapshot, blank)
    )
    return preflight.Plan(
        values=None if options["shape"] == "gpu_cluster" else made,
        version=version,
        namespace=options["namespace"],
        release=options["release"],
        external_label_writer=options["external_label_writer"],
        **more,
    )
