# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""config.cfg and nodes_config.cfg as the daemon and its ctl read them."""

from __future__ import annotations

import os
import socket

CONFIG = "/etc/nvidia-imex/config.cfg"
# The package's own config.cfg.
DEFAULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "config.cfg")


class ConfigError(Exception):
    """The daemon or the ctl cannot start with its configuration files."""


def read(path: str) -> dict:
    """Every KEY=VALUE of the file over the defaults."""
    settings = {}
    for name in (DEFAULTS, path):
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                rows = [line.partition("=") for line in file if "=" in line and not line.lstrip().startswith("#")]
        except OSError as error:
            raise ConfigError(f"Failed to open config file {name}: {error.strerror}") from error
        settings.update((key.strip(), value.strip()) for key, _sign, value in rows)
    return settings


def nodes(path: str) -> list:
    """The lines of the node file, in order."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = [line.strip() for line in file if line.strip()]
    except OSError:
        found = []
    if not found:
        raise ConfigError(f"Failed to read node configuration file {path}")
    return found


def is_local(address: str) -> bool:
    """Whether an interface of this host has the address: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
