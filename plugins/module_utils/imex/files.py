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
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

CONFIG_FILE = "/etc/nvidia-imex/config.cfg"
NODES_FILE = "/etc/nvidia-imex/nodes_config.cfg"
# What the role last wrote on this tray, for the check at boot and for fabric_facts.
RECORD_FILE = "/etc/nvidia-imex/nvlink.json"
PERSIST_FILE = "/var/run/nvidia-imex/persist.dat"
LOG_FILE = "/var/log/nvidia-imex.log"


class ImexError(NvlinkError):
    """An option or file of IMEX is wrong."""


class Key(NamedTuple):
    """One key of config.cfg: ``kind`` is text, path, address, flag (0 or 1), number or one of ``choices``."""

    kind: str
    default: str
    low: int = 0
    high: int = 2**31 - 1
    choices: tuple[str, ...] = ()
    # For keys that newer releases dropped: written only where the file has them.
    only_where_present: bool = False


_TEXT, _FLAG = Key("text", ""), Key("flag", "0")
# A path or the name of an environment variable, depending on IMEX_AUTH_SOURCE.
_CREDENTIAL = Key("text", "")
KEYS: dict[str, Key] = {
    "LOG_LEVEL": Key("number", "4", 0, 4),
    "LOG_FILE_NAME": Key("path", LOG_FILE),
    "STATS_FILE_NAME": Key("path", "/var/log/nvidia-imex-stats.log"),
    "LOG_APPEND_TO_LOG": Key("flag", "1"),
    "LOG_FILE_MAX_SIZE": Key("number", "1024", 1),
    "LOG_MAX_ROTATE_COUNT": Key("number", "3"),
    "LOG_USE_SYSLOG": _FLAG,
    "DAEMONIZE": Key("flag", "1"),
    "BIND_INTERFACE_IP": Key("address", ""),
    "SERVER_PORT": Key("number", "50000", 1, 65535),
    "IMEX_NODE_CONFIG_FILE": Key("path", NODES_FILE),
    "NETWORK_INTERFACE": _TEXT,
    "IMEX_WAIT_FOR_QUORUM": Key("choice", "RECOVERY", choices=("NONE", "RECOVERY", "FULL")),
    "IMEX_ENABLE_AUTH_ENCRYPTION": _FLAG,
    "IMEX_AUTH_ENCRYPTION_MODE": Key("choice", "SSL_TLS", choices=("SSL_TLS", "GSS_AUTH_ENCRYPT", "GSS_AUTH_ONLY")),
    "IMEX_AUTH_SOURCE": Key("choice", "", choices=("", "FILE", "ENV_PATH", "ENV_VAL")),
    "IMEX_SERVER_KEY": _CREDENTIAL,
    "IMEX_SERVER_CERT": _CREDENTIAL,
    "IMEX_SERVER_CERT_AUTH": _CREDENTIAL,
    "IMEX_CLIENT_KEY": _CREDENTIAL,
    "IMEX_CLIENT_CERT": _CREDENTIAL,
    "IMEX_CLIENT_CERT_AUTH": _CREDENTIAL,
    "IMEX_SECURITY_TARGET_OVERRIDE": _TEXT,
    "IMEX_GSS_SERVICE_NAME": Key("text", "host"),
    "IMEX_GSS_TIMEOUT_SEC": Key("number", "-1", -1),
    "IMEX_GSS_RETRY_INTERVAL_SEC": Key("number", "5"),
    "IMEX_GSS_SEC_CONTEXT_LIFETIME_SEC": Key("number", "-1", -1),
    "IMEX_GSS_SHUTDOWN_ON_FAILURE": Key("flag", "1"),
    "IMEX_CMD_ENABLED": Key("flag", "1"),
    "IMEX_CMD_BIND_INTERFACE_IP": Key("address", ""),
    "IMEX_CMD_PORT": Key("number", "50005", 1, 65535),
    "IMEX_CMD_UNIX_DOMAIN_PATH": Key("path", ""),
    "IMEX_NODE_DISCONNECTED_GRACE_TIME": Key("number", "-1", -1),
    "IMEX_CONN_WAIT_TIMEOUT": Key("number", "70", only_where_present=True),
}
# May hold a secret if, with IMEX_AUTH_SOURCE=ENV_VAL, a value was written instead of a variable's name.
SENSITIVE = tuple(key for key in KEYS if key.startswith(("IMEX_SERVER_", "IMEX_CLIENT_")))

_KEY = re.compile(r"[A-Z][A-Z0-9_]{0,79}")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
_SCOPE = re.compile(r"%[A-Za-z0-9_.@-]{1,16}\Z")


class Config:
    """config.cfg as lines: unchanged lines keep their bytes and order, and comments stay."""

    def __init__(self, text: str) -> None:
        self._ends_with_newline = text.endswith("\n")
        self._lines = text.split("\n")
        if self._lines[-1] == "":
            self._lines.pop()

    @property
    def text(self) -> str:
        if not self._lines:
            return ""
        return "\n".join(self._lines) + ("\n" if self._ends_with_newline else "")

    def settings(self) -> dict[str, str]:
        """Every key that the file sets; the last line wins where a key is set twice."""
        return dict(filter(None, map(_setting, self._lines)))

    def get(self, key: str) -> str:
        """The value in force: the file's, else the default, else empty."""
        default = KEYS[key].default if key in KEYS else ""
        return self.settings().get(key, default)

    def changed(self, values: Mapping[str, str]) -> Config:
        """This file with the given values: on every line that sets the key, else on a new line at the end.

        A key of other releases (``only_where_present``) gets no new line. A line with the right value keeps its bytes.
        """
        lines = list(self._lines)
        for key, value in values.items():
            found = False
            for number, line in enumerate(lines):
                set_here = _setting(line)
                if set_here and set_here[0] == key:
                    found = True
                    if set_here[1] != value:
                        lines[number] = f"{key}={value}" + ("\r" if line.endswith("\r") else "")
            if not found and not (key in KEYS and KEYS[key].only_where_present):
                lines.append(f"{key}={value}")
        grown = len(lines) > len(self._lines)
        return Config("\n".join(lines) + ("\n" if lines and (grown or self._ends_with_newline) else ""))


def _setting(line: str) -> tuple[str, str] | None:
    """(key, value) of a line; None for a comment and any other line."""
    key, equals, value = line.partition("=")
    key = key.strip(" \t")
    if not equals or not key.isascii() or not key.isidentifier():
        return None
    return key, value.strip(" \t").rstrip("\r")


def check_settings(settings: Mapping[str, Any], where: str = "option settings") -> dict[str, str]:
    """The settings as text for config.cfg; ImexError for an invalid value.

    Booleans and numbers become text. An unknown key is passed on unchanged.
    """
    return {str(key): _checked(str(key), value, where) for key, value in settings.items()}


def _checked(key: str, value: Any, where: str) -> str:
    if not _KEY.fullmatch(key):
        raise ImexError(f"{where}: {key!r} is not a key of config.cfg; use capital letters, digits and underscores.")
    text = str(int(value)) if isinstance(value, bool) else "" if value is None else str(value)
    if any(not char.isprintable() for char in text) or text != text.strip():
        raise ImexError(f"{where}: the value of {key} must be one line without leading or trailing blanks.")
    known = KEYS.get(key)
    if known is None:
        return text
    if known.kind == "flag" and text not in ("0", "1"):
        raise ImexError(f"{where}: {key} is {text!r}; use 0 or 1.")
    if known.kind == "number":
        if not re.fullmatch(r"-?[0-9]{1,10}", text) or not known.low <= int(text) <= known.high:
            raise ImexError(f"{where}: {key} is {text!r}; use a number from {known.low} to {known.high}.")
        return str(int(text))
    if known.kind == "choice" and text not in known.choices:
        raise ImexError(
            f"{where}: {key} is {text!r}; use one of {', '.join(c or 'an empty value' for c in known.choices)}."
        )
    if known.kind == "path" and text and known.default != "" and not text.startswith("/") and key != "LOG_FILE_NAME":
        raise ImexError(f"{where}: {key} is {text!r}; use an absolute path.")
    if known.kind == "address" and text and normal_address(text) is None:
        raise ImexError(f"{where}: {key} is {text!r}; use an address of the tray, or nothing for all.")
    return text


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


def render_nodes(entries: Iterable[str]) -> str:
    """The text of a node list: one entry per line, a newline at the end, nothing else."""
    text = "".join(f"{entry}\n" for entry in entries)
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
