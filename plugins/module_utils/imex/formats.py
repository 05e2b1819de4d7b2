# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The formats of config.cfg and nodes_config.cfg: pure functions.

Keys, defaults and ranges after NVIDIA's IMEX guide and the
configuration that the DRA driver ships (R580).
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

CONFIG_FILE = "/etc/nvidia-imex/config.cfg"
NODES_FILE = "/etc/nvidia-imex/nodes_config.cfg"
# What the role last wrote on this tray, for the check at boot and for fabric_facts.
RECORD_FILE = "/etc/nvidia-imex/nvlink.json"
PERSIST_FILE = "/var/run/nvidia-imex/persist.dat"
LOG_FILE = "/var/log/nvidia-imex.log"


class ImexError(NvlinkError):
    """An option or file of IMEX is wrong."""


KEYS = {
    "LOG_LEVEL": "4",
    "LOG_FILE_NAME": LOG_FILE,
    "STATS_FILE_NAME": "/var/log/nvidia-imex-stats.log",
    "LOG_APPEND_TO_LOG": "1",
    "LOG_FILE_MAX_SIZE": "1024",
    "LOG_MAX_ROTATE_COUNT": "3",
    "LOG_USE_SYSLOG": "0",
    "DAEMONIZE": "1",
    "BIND_INTERFACE_IP": "",
    "SERVER_PORT": "50000",
    "IMEX_NODE_CONFIG_FILE": NODES_FILE,
    "NETWORK_INTERFACE": "",
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
    "IMEX_SECURITY_TARGET_OVERRIDE": "",
    "IMEX_GSS_SERVICE_NAME": "host",
    "IMEX_GSS_TIMEOUT_SEC": "-1",
    "IMEX_GSS_RETRY_INTERVAL_SEC": "5",
    "IMEX_GSS_SEC_CONTEXT_LIFETIME_SEC": "-1",
    "IMEX_GSS_SHUTDOWN_ON_FAILURE": "1",
    "IMEX_CMD_ENABLED": "1",
    "IMEX_CMD_BIND_INTERFACE_IP": "",
    "IMEX_CMD_PORT": "50005",
    "IMEX_CMD_UNIX_DOMAIN_PATH": "",
    "IMEX_NODE_DISCONNECTED_GRACE_TIME": "-1",
    "IMEX_CONN_WAIT_TIMEOUT": "70",
}
"""Key of config.cfg -> its default in the releases 570 to 595."""
# May hold a secret if, with IMEX_AUTH_SOURCE=ENV_VAL, a value was written instead of a variable's name.
SENSITIVE = tuple(key for key in KEYS if key.startswith(("IMEX_SERVER_", "IMEX_CLIENT_")))

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
_SCOPE = re.compile(r"%[A-Za-z0-9_.@-]{1,16}\Z")


class Config:
    """The settings of config.cfg; of two lines with one key, the last one counts."""

    def __init__(self, text: str) -> None:
        self._settings = dict(filter(None, map(_setting, text.split("\n"))))

    def settings(self) -> dict[str, str]:
        """Every key that the file sets."""
        return dict(self._settings)

    def get(self, key: str) -> str:
        """The value in force: the file's, else the default, else empty."""
        return self._settings.get(key, KEYS.get(key, ""))


def _setting(line: str) -> tuple[str, str] | None:
    """(key, value) of a line; None for a comment and any other line."""
    key, equals, value = line.partition("=")
    key = key.strip(" \t")
    if not equals or not key.isascii() or not key.isidentifier():
        return None
    return key, value.strip(" \t").rstrip("\r")


class Nodes(NamedTuple):
    """nodes_config.cfg: ``entries`` in order, and ``wrong``: (line number from 1, text, why) of invalid lines."""

    entries: tuple[str, ...]
    wrong: tuple[tuple[int, str, str], ...]


def parse_nodes(text: str) -> Nodes:
    """Parse one entry per line; its line number from 0 is the node's id, so only empty lines at the end are skipped."""
    entries: list[str] = []
    wrong: list[tuple[int, str, str]] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(text.rstrip("\n").split("\n") if text.strip() else [], 1):
        entry = line.strip()
        plain = normal_address(entry) or entry.lower()
        if not entry:
            wrong.append((number, "", "empty"))
        elif entry.startswith("#"):
            wrong.append((number, entry, "a comment"))
        elif normal_address(entry) is None and not _NAME.fullmatch(entry):
            wrong.append((number, entry, "neither an address nor a name"))
        elif plain in seen:
            wrong.append((number, entry, f"on line {seen[plain]} already"))
        seen.setdefault(plain, number)
        entries.append(entry)
    return Nodes(tuple(entries), tuple(wrong))


def nodes_text(entries: Iterable[str]) -> str:
    """The text of nodes_config.cfg: one entry per line, a newline at the end, nothing else.

    No document says that the daemon accepts comments or empty lines.
    """
    return "".join(f"{entry}\n" for entry in entries)


def render_nodes(entries: Iterable[str]) -> str:
    """The text of a node list that is checked. Raises ImexError."""
    text = nodes_text(entries)
    wrong = parse_nodes(text).wrong
    if wrong:
        number, entry, why = wrong[0]
        raise ImexError(f"IMEX node list: line {number} ({entry!r}) is {why}; give every tray one address of its own.")
    return text


def digest(text: str) -> str:
    """The SHA-256 by which the node lists of trays are compared."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


@functools.lru_cache(maxsize=1 << 16)
def normal_address(text: str) -> str | None:
    """An IPv4 or IPv6 address in its shortest form, without a scope; None for anything else."""
    try:
        return str(ipaddress.ip_address(_SCOPE.sub("", text)))
    except ValueError:
        return None


def own_id(entries: Iterable[str], addresses: Iterable[str], names: Iterable[str] = ()) -> int | None:
    """The node id of a host with these addresses and names: the first match, as the daemon decides."""
    mine = {normal_address(address) for address in addresses} - {None}
    called = {name.lower() for name in names if name}
    for number, entry in enumerate(entries):
        address = normal_address(entry)
        if address in mine if address else entry.lower() in called:
            return number
    return None
