# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the settings in the tray's slurm.conf that matter to IMEX."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, child
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import slurmd
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import conf_lines, key_values

# The settings with patterns of files that slurmd runs as root for a job; a relative one is of the folder of slurm.conf.
PROLOGS = ("prolog", "epilog")
# Not a setting: "NAME NODES" of each partition whose jobs may share nodes.
SHARED_PARTITIONS = "shared partitions"
CHANNEL_PLUGIN = "switch/nvidia_imex"
_SECONDS = 5.0


def read(path: str | None = None) -> tuple[str | None, dict[str, list[str]]]:
    """(the slurm.conf that slurmd uses, key in lower case -> its values in order); None where there is none.

    The settings of a slurmd that runs by one that is not found are those that slurmctld prints.
    """
    conf, prefix = slurmd.Slurmd(path if os.path.isfile(path) else None, "") if path else slurmd.find()
    settings: dict[str, list[str]] = {}
    defaults: dict[str, str] = {}
    lines = conf_lines(conf, lambda name: atomic.read_text(name) or "") if conf else _printed(prefix)
    for _file, line in lines:
        pairs = key_values(line)
        keys = {key.lower(): value for key, value in pairs}
        if keys.get("partitionname", "").upper() == "DEFAULT":
            defaults.update(keys)
        elif "partitionname" in keys and not _is_exclusive({**defaults, **keys}):
            shared = f"{keys['partitionname']} {keys.get('nodes', defaults.get('nodes', ''))}"
            settings.setdefault(SHARED_PARTITIONS, []).append(shared)
        # Lines of nodes and partitions may have keys of the same name.
        if len(pairs) == 1:
            key, value = pairs[0][0].lower(), pairs[0][1]
            names = (os.path.join(os.path.dirname(conf or "/"), name.strip()) for name in value.split(","))
            settings.setdefault(key, []).extend(names if key in PROLOGS else [value])
    return conf, settings


def _printed(prefix: str) -> Iterator[tuple[str, str]]:
    """``scontrol show config`` as conf_lines(); nothing without a slurmd that runs."""
    text = child.run([f"{prefix}/bin/scontrol", "show", "config"], _SECONDS).stdout if prefix else ""
    yield from (("", re.sub(r"^(\w+)\[\d+\] +=", r"\1=", line)) for line in text.splitlines())


def _is_exclusive(keys: Mapping[str, str]) -> bool:
    """Whether a partition's jobs have whole nodes: Exclusive= from 26.05 on, two other keys before."""
    return (
        keys.get("exclusive", "").upper() in ("NODE", "TOPO")
        or keys.get("oversubscribe", "").upper() == "EXCLUSIVE"
        or keys.get("exclusivetopo", "").upper() == "YES"
    )


def gives_channels(settings: Mapping[str, Sequence[str]], major: int | None) -> bool:
    """Whether Slurm gives each job an IMEX channel of its own: without their major its plugin does nothing."""
    plugin, parameters = (settings.get(key, [""])[-1].lower() for key in ("switchtype", "switchparameters"))
    return plugin == CHANNEL_PLUGIN and (major is not None or "imex_dev_major=" in parameters)
