# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the settings in the tray's slurm.conf that matter to IMEX."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import conf_lines, key_values

# Where slurmd finds slurm.conf: its own file, or the one fetched in a configless cluster.
PLACES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")
KEYS = (
    "prolog",
    "epilog",
    "taskprolog",
    "prologflags",
    "prologepilogtimeout",
    "prologtimeout",
    "epilogtimeout",
    "switchtype",
    "grestypes",
)
# Not a setting: "NAME NODES" of each partition whose jobs may share nodes.
SHARED_PARTITIONS = "shared partitions"
CHANNEL_PLUGIN = "switch/nvidia_imex"


def read(path: str | None = None) -> tuple[str | None, dict[str, list[str]]]:
    """(the slurm.conf that slurmd uses, key in lower case -> its values in order); None where there is none."""
    found = next((name for name in ([path] if path else PLACES) if os.path.isfile(name)), None)
    settings: dict[str, list[str]] = {}
    defaults: dict[str, str] = {}
    if found:
        for _file, line in conf_lines(found, lambda name: atomic.read_text(name) or ""):
            pairs = key_values(line)
            keys = {key.lower(): value for key, value in pairs}
            if keys.get("partitionname", "").upper() == "DEFAULT":
                defaults.update(keys)
            elif "partitionname" in keys and not _is_exclusive({**defaults, **keys}):
                shared = f"{keys['partitionname']} {keys.get('nodes', defaults.get('nodes', ''))}"
                settings.setdefault(SHARED_PARTITIONS, []).append(shared)
            # Lines of nodes and partitions may have keys of the same name.
            if len(pairs) == 1 and pairs[0][0].lower() in KEYS:
                settings.setdefault(pairs[0][0].lower(), []).append(pairs[0][1])
    return found, settings


def _is_exclusive(keys: Mapping[str, str]) -> bool:
    """Whether a partition's jobs have whole nodes: Exclusive= from 26.05 on, two other keys before."""
    return (
        keys.get("exclusive", "").upper() in ("NODE", "TOPO")
        or keys.get("oversubscribe", "").upper() == "EXCLUSIVE"
        or keys.get("exclusivetopo", "").upper() == "YES"
    )


def gives_channels() -> bool:
    """Whether Slurm gives each job an IMEX channel of its own on this tray."""
    return read()[1].get("switchtype", [""])[-1].lower() == CHANNEL_PLUGIN
