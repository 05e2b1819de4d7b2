# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The authentication key of Slurm's daemons: munge's, or slurm.key of auth/slurm.

Private to this collection; it may change in any release. Python 3.9, standard library only.

The role creates it once, on the first Slurm controller's host; here the other hosts get it. No message, log or diff
contains it.
"""

from __future__ import annotations

import base64
import binascii
import os

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError

MUNGE_UNIT = "munge.service"
LOCATIONS = {
    # auth -> path, owner of file and folder, mode of the file, owner and mode of the folder
    "munge": ("/etc/munge/munge.key", "munge:munge", 0o400, "munge:munge", 0o700),
    "slurm": ("/etc/slurm/slurm.key", "slurm:slurm", 0o400, "root:root", 0o755),
}


def path(auth: str) -> str:
    return LOCATIONS[auth][0]


def decoded(text: object, option: str = "key") -> bytes:
    """Decode an option in Base64, as slurp returns it; empty where there is none. SlurmError names the option."""
    try:
        return base64.b64decode(str(text or ""), validate=True)
    except (binascii.Error, ValueError):
        raise SlurmError(f"The option {option} is not Base64: pass it as the first controller returned it.") from None


def install_on_backup(host: Host, options: Arguments) -> Result:
    """The step install_key of slurm_step; in check mode there may be no key yet."""
    if options["key"] or not host.check:
        install(host, options["auth"], decoded(options["key"]))
    return {}


def install(host: Host, auth: str, key: bytes) -> None:
    """Install exactly this key, readable by its owner alone, and restart a running munged to use it."""
    # The bounds of munge; slurm.key must not be guessable either.
    if not 32 <= len(key) <= 1024:
        raise SlurmError(
            f"The key for auth/{auth} has {len(key)} bytes, not 32 to 1024: check {path(auth)} on the controller."
        )
    target, owner, mode, folder_owner, folder_mode = LOCATIONS[auth]
    host.folder(os.path.dirname(target), folder_owner, folder_mode)
    changed = host.file(target, key, owner, mode)
    if auth == "munge" and changed and (host.check or host.is_active(MUNGE_UNIT)):
        host.run(MUNGE_UNIT, restart=True)
