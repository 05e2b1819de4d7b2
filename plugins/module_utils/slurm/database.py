# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurmdbd and its database, MariaDB, on the Slurm controller's host.

Private to this collection; it may change in any release. Python 3.9, standard library only.

The database's password stands in slurmdbd.conf alone (0600, of SlurmUser). It goes to MariaDB's client by its standard
input or by a file that only root reads, never by an argument.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.host import Host, LogCursor, read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import reason

MARIADB_UNIT, UNIT, PORT = "mariadb.service", "slurmdbd.service", 6819
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
# What Slurm's accounting guide asks of InnoDB; the buffer pool is a bound, the log file is room on the disk.
MARIADB_SETTINGS = {
    "innodb_buffer_pool_size": "4096M",
    "innodb_log_file_size": "1024M",
    "innodb_lock_wait_timeout": "900",
    "max_allowed_packet": "16M",
}
HEADER = "# Written by rackscale.nvlink (slurm): the next run takes back what is changed here.\n"


@dataclass(frozen=True)
class DesiredState:
    """The database, the file of MariaDB's settings, and settings of slurmdbd.conf that win over ours."""

    auth: str
    database: str
    user: str
    mariadb_file: str
    mariadb_settings: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    conf_dir: str = "/etc/slurm"
    slurm_user: str = "slurm"
    password: str = ""  # the one in force, or a new one, if empty
    host_name: str = "localhost"
    log: str = "/var/log/slurm/slurmdbd.log"


def bring_up(host: Host, wish: DesiredState) -> None:
    """MariaDB with the database and its user, slurmdbd running on it; SlurmError in one sentence."""
    for name in (wish.database, wish.user):
        if not NAME.fullmatch(name):
            raise SlurmError(
                f"{name!r} cannot name a database or its user: use up to 32 letters, digits and underscores."
            )
    settings = {**MARIADB_SETTINGS, **wish.mariadb_settings}
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    with host.restoring(wish.mariadb_file, MARIADB_UNIT):
        tuned = host.file(wish.mariadb_file, f"{HEADER}[mariadb]\n{lines}".encode())
        host.run(MARIADB_UNIT, restart=tuned)
    path = os.path.join(wish.conf_dir, "slurmdbd.conf")
    if any(key.lower() == "storagepass" for key in wish.settings):
        raise SlurmError("slurm_dbd_settings holds StoragePass, which output may show: set slurm_database_password.")
    password = wish.password or _password(path) or secrets.token_urlsafe(36)
    host.logrotate("slurmdbd-nvlink", [wish.log], UNIT)
    with host.restoring(path, UNIT):
        owner = f"{wish.slurm_user}:{wish.slurm_user}"
        changed = host.file(path, slurmdbd_conf(wish, password).encode(), owner, 0o600)
        _ensure_database(host, wish, password)
        since = LogCursor(wish.log)
        host.run(UNIT, restart=changed, log=wish.log)
        _wait(host, wish, since)


def _wait(host: Host, wish: DesiredState, since: LogCursor) -> None:
    """The unit counts as started before slurmdbd has looked at its database."""
    port = int(wish.settings.get("DbdPort", PORT))
    if not host.check and not host.wait_for_port(port, UNIT, host.timeout):
        told = host.why(UNIT, since, f"nothing listens on port {port}")
        raise SlurmError(f"{UNIT} does not start ({told}): correct that first.")


def slurmdbd_conf(wish: DesiredState, password: str) -> str:
    """The text of slurmdbd.conf; a setting with no value is left out."""
    settings = {
        "AuthType": f"auth/{wish.auth}",
        "DbdHost": wish.host_name,
        "DbdPort": str(PORT),
        "SlurmUser": wish.slurm_user,
        "LogFile": wish.log,
        "PidFile": "/run/slurmdbd/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        # localhost is MariaDB's unix socket: the password never passes a network.
        "StorageHost": "localhost",
        "StorageUser": wish.user,
        "StoragePass": password,
        "StorageLoc": wish.database,
        **wish.settings,
    }
    return HEADER + "".join(f"{key}={value}\n" for key, value in settings.items() if value not in (None, ""))


def _password(path: str) -> str:
    """The password that is in force; empty where there is none yet."""
    for line in files.logical_lines((read(path) or b"").decode("utf-8", "replace")):
        for key, value in files.key_values(line):
            if key.lower() == "storagepass":
                return value
    return ""


def _ensure_database(host: Host, wish: DesiredState, password: str) -> None:
    if host.check:
        # Without MariaDB there is nothing to ask; its installation is told already.
        return
    with _options(wish.user, password) as options:
        if _client(host, [f"--defaults-extra-file={options}", wish.database], "SELECT 1;", password) == "":
            return
    host.changes.append(f"database {wish.database} and its user made")
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")
    who = f"'{wish.user}'@'localhost'"
    failed = _client(
        host,
        [],
        f"CREATE DATABASE IF NOT EXISTS {wish.database};\n"
        f"CREATE USER IF NOT EXISTS {who} IDENTIFIED BY '{quoted}';\n"
        f"ALTER USER {who} IDENTIFIED BY '{quoted}';\n"
        f"GRANT ALL ON {wish.database}.* TO {who};\n",
        password,
    )
    if failed:
        raise SlurmError(
            f"MariaDB does not make the database {wish.database} ({failed}): see that root may log in by its socket."
        )


def _client(host: Host, arguments: Sequence[str], statements: str, password: str) -> str:
    """Why MariaDB's client failed, empty where it did not; a server's answer may quote the statement."""
    result = host.call("mariadb", *arguments, "--batch", "--skip-column-names", input=statements)
    return "" if result.rc == 0 else reason(result).replace(password, "***").rstrip(".")


@contextlib.contextmanager
def _options(user: str, password: str) -> Iterator[str]:
    """A file of MariaDB's client options that only root can read, gone at the end."""
    handle, path = tempfile.mkstemp(prefix=".nvlink-", suffix=".cnf")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            quoted = password.replace("\\", "\\\\").replace('"', '\\"')
            file.write(f'[client]\nuser={user}\npassword="{quoted}"\n')
        yield path
    finally:
        os.unlink(path)
