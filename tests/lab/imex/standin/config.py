# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""config.cfg and nodes_config.cfg as the daemon and its ctl read them."""

from __future__ import annotations

import hashlib
import socket

CONFIG = "/etc/nvidia-imex/config.cfg"
DEFAULTS = {
    "LOG_LEVEL": "4",
    "LOG_FILE_NAME": "/var/log/nvidia-imex.log",
    "LOG_APPEND_TO_LOG": "1",
    "DAEMONIZE": "1",
    "SERVER_PORT": "50000",
    "IMEX_NODE_CONFIG_FILE": "/etc/nvidia-imex/nodes_config.cfg",
    "IMEX_WAIT_FOR_QUORUM": "RECOVERY",
    "IMEX_ENABLE_AUTH_ENCRYPTION": "0",
    "IMEX_AUTH_ENCRYPTION_MODE": "SSL_TLS",
    "IMEX_AUTH_SOURCE": "",
    "IMEX_SERVER_KEY": "",
    "IMEX_SERVER_CERT": "",
    "IMEX_SERVER_CERT_AUTH": "",
    "IMEX_CLIENT_KEY": "",
    "IMEX_CLIENT_CERT": "",
    "IMEX_CLIENT_CERT_AUTH": "",
    "IMEX_CMD_ENABLED": "1",
    "IMEX_CMD_PORT": "50005",
    "IMEX_CMD_UNIX_DOMAIN_PATH": "",
}


class ConfigError(Exception):
    """The daemon or the ctl cannot start with its configuration files."""


def read(path: str) -> dict:
    """Every KEY=VALUE of the file over the defaults."""
    settings = dict(DEFAULTS)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                key, sign, value = line.strip().partition("=")
                if sign and not key.startswith("#"):
                    settings[key.strip()] = value.strip()
    except OSError as error:
        raise ConfigError(f"Failed to open config file {path}: {error.strerror}") from error
    return settings


def number(settings: dict, key: str) -> int:
    try:
        return int(settings[key])
    except ValueError:
        raise ConfigError(f"Invalid value for {key}: {settings[key]}") from None


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


def map_key(entries: list) -> str:
    """What peers compare: the same lines in the same order give the same key."""
    return hashlib.sha256("\n".join(entries).encode()).hexdigest()


def resolve(entry: str) -> str:
    """The address of a line, which may be a name; empty when there is none."""
    try:
        return str(socket.getaddrinfo(entry, None, 0, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):
        return ""


def is_local(address: str) -> bool:
    """Whether an interface of this host has the address: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return bool(address)
