# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Optional input of the renderers next to a fabric and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Verdict

GPU_PRESENT = "nvidia.com/gpu.present"


class Level(NamedTuple):
    """One topology level: nodes in one domain of the level share the value of `label`."""

    label: str
    name: str


@dataclass(frozen=True)
class TopologySettings:
    """A site's settings of the topology of Kubernetes' schedulers, as the module k8s_topology documents them.

    name: of the objects. levels_above: the clique, broadest first. templates: scheduler -> the file that a site has
    instead of the role's template.
    """

    name: str = "nvlink"
    levels_above: tuple[Level, ...] = ()
    flavor_labels: Mapping[str, str] = field(default_factory=lambda: {GPU_PRESENT: "true"})
    templates: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> TopologySettings:
        """Those of a module's options of the same names."""
        levels = tuple(Level(row["label"], row["name"]) for row in options["levels_above"])
        labels = {str(key): str(value) for key, value in options["flavor_labels"].items()}
        return cls(options["name"], levels, labels, options["templates"])


@dataclass(frozen=True)
class RenderContext:
    """Input of the renderers of metrics, report, examples, Slurm's files and the DRA driver's values.

    Each part is optional.

    block_sizes: the site's setting of the role slurm_topology, for Slurm's files and what jobs span.
    verdict: what verify last found; jobs: Slurm node name -> the IDs of the jobs
    that run there, None where Slurm was not queried. nodes: tray -> its state in Slurm, None where
    these are not known. without: trays that the report counts as drained. The state that renderers get has both.
    gpus_by_dra: whether the DRA driver allocates GPUs, rather than a device plugin. topology: the settings of
    the role k8s_topology. site: the name of the site for the report; version: that of this collection; each empty where
    it is unknown.
    """

    verdict: Verdict | None = None
    jobs: Mapping[str, tuple[str, ...]] | None = None
    nodes: Mapping[str, str] | None = None
    without: tuple[str, ...] = ()
    block_sizes: tuple[int, ...] = ()
    gpus_by_dra: bool = False
    topology: TopologySettings = field(default_factory=TopologySettings)
    site: str = ""
    version: str = ""


DEFAULT = RenderContext()
"""Without any of them."""
