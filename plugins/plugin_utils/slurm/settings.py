# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The slurm.conf settings that topology/block needs, and a second topology file next to the used one. Pure.

Private to this collection; it may change in any release.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rules import (
    NODE_RANK_SINCE,
    OLDEST,
    Version,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import CONF, HEADER
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.comparing import has_word

PLUGIN = "topology/block"
NODE_RANK = "BlockAsNodeRank"
_LINE_LENGTH = 120
# Values of TopologyPlugin with which slurmctld does not read topology.conf.
UNUSED_PLUGINS = frozenset(("", "topology/default", "topology/flat", "topology/none"))


def wanted_settings(style: str, version: Version, block_default: bool = True) -> dict[str, str]:
    """The slurm.conf settings that belong to the topology, in Slurm's spelling.

    block_default: whether the block topology is the cluster's default, which BlockAsNodeRank needs.
    """
    settings = {"TopologyPlugin": PLUGIN} if style == CONF else {}
    if style != CONF and version >= NODE_RANK_SINCE and block_default:
        settings["TopologyParam"] = NODE_RANK
    settings["SelectType"] = "select/cons_tres"
    # Alloc runs the prolog when nodes are allocated to a job, before its first step: IMEX prologs rely on it.
    settings["PrologFlags"] = "Alloc"
    return settings


ACCEPTED = {
    "TopologyPlugin": (PLUGIN,),
    "SelectType": ("select/cons_tres",),
    "TopologyParam": (NODE_RANK.lower(),),
    # Contain, X11 and similar flags imply Alloc; slurmctld adds it (observed on 24.11.5: Contain becomes
    # Alloc,Contain).
    "PrologFlags": ("alloc", "contain", "x11", "nohold", "forcerequeueonfail"),
}
"""Setting -> words in lower case of which its value must have one."""


def satisfies(key: str, value: str) -> bool:
    """Whether a setting has a value that the topology accepts."""
    return has_word(value, ACCEPTED[key])


_SETTING_CODES = {"SelectType": "slurm_select_type", "PrologFlags": "slurm_conf_advice"}


def settings_findings(
    style: str, running: Mapping[str, str], written: Mapping[str, str], manage: bool
) -> list[HostFinding]:
    """What is missing or inconsistent in Slurm's settings.

    running: ``scontrol show config`` with keys in lower case; written: slurm.conf with its includes, without
    the file of this collection; manage: whether that file sets what is missing.
    """
    found = []
    for key in ("TopologyPlugin", "SelectType", "PrologFlags"):
        value, runs = written.get(key.lower()), running.get(key.lower(), "")
        if key == "TopologyPlugin" and style != CONF:
            if value is not None and not satisfies(key, value):
                found.append(host_finding("slurm_conf_note", "plugin", value=value))
            continue
        want = wanted_settings(CONF, OLDEST)[key]
        # 26.05 adds Alloc to flags that need it, such as DeferBatch; 24.11 does not (observed). Of two lines with
        # TopologyPlugin Slurm uses the last one.
        given = satisfies(key, runs) and (key == "PrologFlags" or (key == "TopologyPlugin" and manage))
        if value is not None and not satisfies(key, value) and not given:
            how = "change that line" if key != "PrologFlags" else f"add {want} to that line"
            # Without blocks in topology.conf slurmctld would not start with the plugin.
            how += (
                ", without a restart, and run again" if key == "TopologyPlugin" else ", then run scontrol reconfigure"
            )
            code = "slurm_conf_inconsistent" if manage else _SETTING_CODES.get(key, "slurm_conf_inconsistent")
            found.append(host_finding(code, "set", key=key, value=value, want=want, how=how))
        elif not satisfies(key, runs) and not (manage and value is None):
            inconsistent = key == "TopologyPlugin" and value is None and runs.lower() not in UNUSED_PLUGINS
            code = "slurm_conf_inconsistent" if inconsistent else _SETTING_CODES.get(key, "slurm_plugin_missing")
            if value is not None:
                found.append(host_finding(code, "not_loaded", key=key, runs=runs or "unset", value=value))
            else:
                found.append(host_finding(code, "unset", key=key, runs=runs or "none", want=want))
    return found


def writer_findings(path: str, file: str | None, owner: str | None) -> list[HostFinding]:
    """A finding where a second program writes the topology file: the last writer is not the one that is meant to.

    file: its content, None where there is none. owner: `collection`, `other`, or None, which compares nothing.
    Programs that write it without asking: CMDaemon of Base Command Manager, Topograph, the generators of clouds.
    """
    text = file or ""
    if owner is None or not text.strip():
        return []
    ours = text.startswith(HEADER)
    if ours == (owner == "collection"):
        return []
    line = ascii(text.strip().splitlines()[0][:_LINE_LENGTH])
    return [host_finding("slurm_topology_other_writer", "ours" if ours else "other", path=path, line=line)]
