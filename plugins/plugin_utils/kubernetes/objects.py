# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Topology objects of a Kubernetes cluster's schedulers, from its cliques: one template a scheduler.

The tests validate the objects with the schedulers' own CustomResourceDefinitions.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import KubernetesError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import Topology
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEMPLATES = Path(__file__).resolve().parents[3] / "roles" / "k8s_topology" / "templates"
SCHEDULERS = ("kai", "kueue", "volcano", "grove", "lws", "pod-affinity", "slinky", "runai", "topograph")
"""One template of the role k8s_topology each, in the folder schedulers."""


def environment(folder: str) -> Environment:
    """The templates in a folder of the role."""
    # YAML, not HTML: the values are label values and names of objects.
    return Environment(
        loader=FileSystemLoader(TEMPLATES / folder), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def text(scheduler: str, topology: Topology, cluster_id: str = "") -> str:
    """A comment and a scheduler's objects as YAML documents; the same topology gives the same bytes.

    cluster_id: Run:ai's UUID of the cluster. Raises KubernetesError for a template of a site that cannot be rendered.
    """
    made, path = environment("schedulers"), topology.templates.get(scheduler)
    values = {row.name: getattr(topology, row.name) for row in fields(topology)}
    try:
        template = (
            made.from_string(atomic.bounded(path).decode()) if path else made.get_template(f"{scheduler}.yaml.j2")
        )
        return template.render(values, cluster_id=cluster_id).rstrip() + "\n"
    except (OSError, ValueError, TemplateError) as error:
        raise KubernetesError(f"templates, {scheduler}: {path} cannot be rendered ({error}); correct it") from None


def made(scheduler: str, topology: Topology, cluster_id: str = "") -> list[Any]:
    """A scheduler's objects as they are applied; see text()."""
    try:
        rows = list(yaml.load_all(text(scheduler, topology, cluster_id), Loader=_Loader))
    except yaml.YAMLError:
        raise KubernetesError(f"templates, {scheduler}: renders no valid YAML; correct it") from None
    return [row for row in rows if row is not None]
