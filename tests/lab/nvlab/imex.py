# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The IMEX stand-in of tests/lab/imex as .deb files, packed once for each content of its sources.

The names are those of both archives: plain nvidia-imex, and nvidia-imex-BRANCH which provides, replaces and conflicts
with it. Contents as of the real ones: the two programs, the unit, config.cfg as a conffile, and no nodes_config.cfg.
"""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

from . import cached, paths, tools

STANDIN = paths.LAB / "imex" / "standin"
# The first is the version of the lab's driver. 570 has a key that later releases dropped, 595 one that is unknown.
VERSIONS = ("580.173.02", "570.172.08", "595.58.03")
EARLY_KEYS = {"570.172.08": "IMEX_CONN_WAIT_TIMEOUT=70\n", "595.58.03": "IMEX_STANDIN_KEY_OF_595=on\n"}

UNIT = """\
[Unit]
Description=NVIDIA IMEX service
After=network-online.target
Requires=network-online.target

[Service]
User=root
PrivateTmp=false
Type=forking
TimeoutStartSec=infinity

ExecStart=/usr/bin/nvidia-imex -c /etc/nvidia-imex/config.cfg

Environment="KRB5_CLIENT_KTNAME=/etc/krb5.keytab"
LimitCORE=infinity
Restart=on-failure
RestartSec=1s

[Install]
WantedBy=multi-user.target
"""
CONFIG = """\
LOG_LEVEL=4
LOG_FILE_NAME=/var/log/nvidia-imex.log
STATS_FILE_NAME=/var/log/nvidia-imex-stats.log
LOG_APPEND_TO_LOG=1
LOG_FILE_MAX_SIZE=1024
LOG_MAX_ROTATE_COUNT=3
LOG_USE_SYSLOG=0
DAEMONIZE=1
BIND_INTERFACE_IP=
SERVER_PORT=50000
IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg
NETWORK_INTERFACE=
IMEX_WAIT_FOR_QUORUM=RECOVERY
IMEX_ENABLE_AUTH_ENCRYPTION=0
IMEX_AUTH_ENCRYPTION_MODE=SSL_TLS
IMEX_AUTH_SOURCE=
IMEX_SERVER_KEY=
IMEX_SERVER_CERT=
IMEX_SERVER_CERT_AUTH=
IMEX_CLIENT_KEY=
IMEX_CLIENT_CERT=
IMEX_CLIENT_CERT_AUTH=
IMEX_SECURITY_TARGET_OVERRIDE=
IMEX_GSS_SERVICE_NAME=host
IMEX_GSS_TIMEOUT_SEC=-1
IMEX_GSS_RETRY_INTERVAL_SEC=5
IMEX_GSS_SEC_CONTEXT_LIFETIME_SEC=-1
IMEX_GSS_SHUTDOWN_ON_FAILURE=1
IMEX_CMD_ENABLED=1
IMEX_CMD_BIND_INTERFACE_IP=
IMEX_CMD_PORT=50005
IMEX_CMD_UNIX_DOMAIN_PATH=
IMEX_NODE_DISCONNECTED_GRACE_TIME=-1
"""
PROGRAM = """\
#!/usr/bin/python3 -IS
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib", "nvidia-imex-standin"))
sys.dont_write_bytecode = True
from standin.{module} import main

sys.exit(main())
"""
RELOAD = "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl --system daemon-reload || true; fi\n"


@functools.cache
def packages() -> Path:
    """A folder of .deb files: nvidia-imex and nvidia-imex-BRANCH of all VERSIONS."""

    def make(folder: Path, _lock: int) -> None:
        for version in VERSIONS:
            _pack(folder, version)

    sources = [Path(__file__), *sorted(STANDIN.glob("*.py"))]
    return cached.folder("imex", [source.read_bytes() for source in sources], make)


def _pack(folder: Path, version: str) -> None:
    tree = folder / f"tree-{version}"
    library = tree / "usr/lib/nvidia-imex-standin/standin"
    library.mkdir(parents=True)
    for source in STANDIN.glob("*.py"):
        shutil.copyfile(source, library / source.name)
    (library / "VERSION").write_text(f"{version}\n")
    (library / "config.cfg").write_text(CONFIG)
    files = {
        "usr/bin/nvidia-imex": PROGRAM.format(module="daemon"),
        "usr/bin/nvidia-imex-ctl": PROGRAM.format(module="ctl"),
        "usr/lib/systemd/system/nvidia-imex.service": UNIT,
        "etc/nvidia-imex/config.cfg": CONFIG + EARLY_KEYS.get(version, ""),
    }
    for name, text in files.items():
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755 if "bin/" in name else 0o644)
    for directory in (tree, *(path for path in tree.rglob("*") if path.is_dir())):
        directory.chmod(0o755)
    for name in ("nvidia-imex", f"nvidia-imex-{version.partition('.')[0]}"):
        _archive(folder, tree, name, f"{version}-1")


def _archive(folder: Path, tree: Path, name: str, version: str) -> None:
    """One .deb of the tree; dpkg-deb reads the control files inside it, so they are there only meanwhile."""
    control = {
        "Package": name,
        "Version": version,
        "Architecture": "all",
        "Maintainer": "rackscale.nvlink contributors <nobody@example.org>",
        "Section": "utils",
        "Priority": "optional",
        "Depends": "python3",
    }
    if name != "nvidia-imex":
        control.update(dict.fromkeys(("Provides", "Replaces", "Conflicts"), "nvidia-imex"))
    control["Description"] = "stand-in for NVIDIA IMEX, for tests only"
    debian = tree / "DEBIAN"
    debian.mkdir()
    debian.chmod(0o755)
    try:
        (debian / "control").write_text("".join(f"{key}: {value}\n" for key, value in control.items()))
        (debian / "conffiles").write_text("/etc/nvidia-imex/config.cfg\n")
        for script in ("postinst", "postrm"):
            (debian / script).write_text(RELOAD)
            (debian / script).chmod(0o755)
        target = folder / f"{name}_{version}_all.deb"
        tools.call(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(target)], f"packing {name}"
        )
    finally:
        shutil.rmtree(debian)
