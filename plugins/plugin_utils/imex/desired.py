# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The desired state of a tray, from the role's variables and its clique; pure functions."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, formats
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import programs
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.clique import Clique

_PORT_KEYS = ("SERVER_PORT", "IMEX_CMD_PORT")
# A line of a unit, not a comment, that calls the check at boot.
_CHECK_AT_BOOT = re.compile(rf"(?m)^[^#;\n]*{re.escape(domain.PROGRAM)}(?!-job)")


def desired_state(
    values: Mapping[str, Any], texts: Mapping[str, str], clique: Clique | None, tray: str, tls: Mapping[str, str]
) -> domain.DesiredState:
    """The desired state of a tray, checked. Raises ImexError.

    ``values``: of variables.values(). ``texts``: of the role's templates, by path. ``clique``: None where the owner
    needs no node list. ``tls``: the texts of the TLS files.
    """
    service = values["imex_owner"] in domain.SERVICE_OWNERS
    _check_config(formats.Config(texts[formats.CONFIG_FILE]), values["imex_owner"], values["imex_config_owned"])
    if values["imex_owner"] == domain.JOB and _CHECK_AT_BOOT.search(texts[domain.DROP_IN]):
        raise formats.ImexError(
            f"imex_drop_in_template: it names {domain.PROGRAM}, which owner job removes; leave those lines out with"
            " owner job, as the role's own template does."
        )
    channels = tuple(sorted(set(values["imex_channels"])))
    if any(not 0 <= minor < 1 << 20 for minor in channels):
        raise formats.ImexError(f"imex_channels: {list(channels)} has a number out of range; use 0 to 1048575.")
    if clique and len(set(clique.slurm_nodes)) < len(clique.slurm_nodes):
        raise formats.ImexError(f"Clique {clique.name}: two trays have one name in Slurm; correct slurm_node of one.")
    desired = domain.DesiredState(
        clique=clique.name if clique else "",
        nodes=clique.slurm_nodes if clique else (),
        job={name: value for name, value in values.items() if name.startswith("imex_job_")},
        entries=clique.entries if clique else (),
        own=clique.entry_of(tray) if clique else "",
        files=texts,
        channels=channels if service else (),
        tls=tls,
        owner=values["imex_owner"],
        manage_package=values["imex_manage_package"],
        pin_package=values["imex_pin_package"],
        package=values["imex_package"],
        proc_devices=values["imex_proc_devices"],
        channel_count=values["imex_channel_count"],
        create_channel0=values["imex_create_channel0"],
        manage_firewall=values["imex_manage_firewall"],
        list_port=values["imex_list_port"],
        program=programs.check_at_boot() if service else "",
        job_program=(
            base64.b64encode(programs.of_job(values["imex_job_python"])).decode()
            if values["imex_owner"] == domain.JOB
            else ""
        ),
    )
    ports = desired.ports_to_open
    if len(set(ports)) < len(ports):
        raise formats.ImexError(f"Two of the ports {', '.join(map(str, ports))} of IMEX are equal; use three ports.")
    return desired


def _check_config(config: formats.Config, owner: str, keys: Mapping[str, object]) -> None:
    """Raise ImexError where config.cfg contradicts what this collection needs; NVIDIA's daemon checks the rest.

    ``keys``: those that the owner or TLS needs.
    """
    # nvidia-imex.service waits for a fork.
    for key, value in {"DAEMONIZE": "1", **keys}.items():
        if config.get(key) != str(value):
            raise formats.ImexError(
                f"config.cfg: {key} is {config.get(key)!r}, but needs '{value}' with owner {owner}; correct"
                " imex_config_extra, or the template of config.cfg."
            )
    for key in _PORT_KEYS:
        if not re.fullmatch("[0-9]{1,5}", config.get(key)) or not 0 < int(config.get(key)) < 65536:
            raise formats.ImexError(f"config.cfg: {key} is {config.get(key)!r}; use a number from 1 to 65535.")
    if not (config.get("IMEX_NODE_CONFIG_FILE") or formats.NODES_FILE).startswith("/"):
        raise formats.ImexError("config.cfg: IMEX_NODE_CONFIG_FILE is no absolute path; use one.")
