# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurmdbd and its database, MariaDB, on the Slurm controller's host.

Private to this collection; it may change in any release. Python 3.9, standard library only.

The database's password is stored in slurmdbd.conf alone (0600, owner SlurmUser). MariaDB's client receives it through
its standard input or through a file that only root can read, never through an argument.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils.host import LogCursor, read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import reason

MARIADB_UNIT, UNIT, PORT = "mariadb.service", "slurmdbd.service", 6819
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
# Recommended by Slurm's accounting guide; the buffer pool is an upper bound, the log file is allocated on disk.
MARIADB_SETTINGS = {
    "innodb_buffer_pool_size": "4096M",
    "innodb_log_file_size": "1024M",
    "innodb_lock_wait_timeout": "900",
    "max_allowed_packet": "16M",
}
HEADER = "# Written by rackscale.nvlink (slurm): the next run overwrites changes made here.\n"


@dataclass(frozen=True)
class DesiredState:
    """The database, MariaDB's settings and where they are written, and settings that override slurmdbd_conf()'s."""

    auth: str
    database: str
    user: str
    mariadb_file: str
    mariadb_settings: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    conf_dir: str = "/etc/slurm"
    slurm_user: str = "slurm"
    password: str = ""  # if empty: the one in slurmdbd.conf, or a new one
    host_name: str = "localhost"
    log: str = "/var/log/slurm/slurmdbd.log"


def bring_up(host: Host, desired: DesiredState) -> None:
    """Start MariaDB, create the database and its user, start slurmdbd; SlurmError in one sentence."""
    for name in (desired.database, desired.user):
        if not NAME.fullmatch(name):
            raise SlurmError(
                f"database_name or database_user is {name!r}: use up to 32 letters, digits and underscores, a letter"
                " first."
            )
    settings = {**MARIADB_SETTINGS, **desired.mariadb_settings}
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    with host.restoring(desired.mariadb_file, MARIADB_UNIT):
        tuned = host.file(desired.mariadb_file, f"{HEADER}[mariadb]\n{lines}".encode())
        host.run(MARIADB_UNIT, restart=tuned)
    path = os.path.join(desired.conf_dir, "slurmdbd.conf")
    if any(key.lower() == "storagepass" for key in desired.settings):
        raise SlurmError("dbd_settings contains StoragePass, which output may show: set database_password instead.")
    password = desired.password or _password(path) or secrets.token_urlsafe(36)
    host.logrotate("slurmdbd-nvlink", [desired.log], UNIT)
    with host.restoring(path, UNIT):
        owner = f"{desired.slurm_user}:{desired.slurm_user}"
        changed = host.file(path, slurmdbd_conf(desired, password).encode(), owner, 0o600)
        _ensure_database(host, desired, password)
        cursor = LogCursor(desired.log)
        host.run(UNIT, restart=changed, log=desired.log)
        _wait(host, desired, cursor)


def _wait(host: Host, desired: DesiredState, cursor: LogCursor) -> None:
    """Wait until slurmdbd listens: its unit is active before it has connected to its database."""
    port = int(desired.settings.get("DbdPort", PORT))
    if not host.check and not host.wait_for_port(port, UNIT, host.timeout):
        error = host.last_error(UNIT, cursor, f"nothing listens on port {port}")
        raise SlurmError(f"{UNIT} does not start ({error}): correct that first.")


def slurmdbd_conf(desired: DesiredState, password: str) -> str:
    """The text of slurmdbd.conf; a setting with no value is left out."""
    settings = {
        "AuthType": f"auth/{desired.auth}",
        "DbdHost": desired.host_name,
        "DbdPort": str(PORT),
        "SlurmUser": desired.slurm_user,
        "LogFile": desired.log,
        "PidFile": "/run/slurmdbd/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        # localhost is MariaDB's unix socket: the password never passes a network.
        "StorageHost": "localhost",
        "StorageUser": desired.user,
        "StoragePass": password,
        "StorageLoc": desired.database,
        **desired.settings,
    }
    return HEADER + "".join(f"{key}={value}\n" for key, value in settings.items() if value not in (None, ""))


def _password(path: str) -> str:
    """The password in slurmdbd.conf; empty where there is none yet."""
    for line in files.logical_lines((read(path) or b"").decode("utf-8", "replace")):
        for key, value in files.key_values(line):
            if key.lower() == "storagepass":
                return value
    return ""


def _ensure_database(host: Host, desired: DesiredState, password: str) -> None:
    if host.check:
        # Without MariaDB nothing can be queried; its installation is already among the changes.
        return
    with _options(desired.user, password) as options:
        if _client(host, [f"--defaults-extra-file={options}", desired.database], "SELECT 1;", password) == "":
            return
    host.changes.append(f"database {desired.database} and its user created")
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")
    who = f"'{desired.user}'@'localhost'"
    failed = _client(
        host,
        [],
        f"CREATE DATABASE IF NOT EXISTS {desired.database};\n"
        f"CREATE USER IF NOT EXISTS {who} IDENTIFIED BY '{quoted}';\n"
        f"ALTER USER {who} IDENTIFIED BY '{quoted}';\n"
        f"GRANT ALL ON {desired.database}.* TO {who};\n",
        password,
    )
    if failed:
        raise SlurmError(
            f"MariaDB does not create the database {desired.database} ({failed}): let root log in through its socket."
        )


def _client(host: Host, arguments: Sequence[str], statements: str, password: str) -> str:
    """Run MariaDB's client; its error, empty on success, without the password: a server may quote the statement."""
    result = host.call("mariadb", *arguments, "--batch", "--skip-column-names", input=statements)
    return "" if result.rc == 0 else reason(result).replace(password, "***").rstrip(".")


@contextlib.contextmanager
def _options(user: str, password: str) -> Iterator[str]:
    """A temporary file of MariaDB's client options that only root can read."""
    handle, path = tempfile.mkstemp(prefix=".nvlink-", suffix=".cnf")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            quoted = password.replace("\\", "\\\\").replace('"', '\\"')
            file.write(f'[client]\nuser={user}\npassword="{quoted}"\n')
        yield path
    finally:
        os.unlink(path)
