# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The key by which Slurm's daemons know each other: munge's, or slurm.key of auth/slurm.

Private to this collection; it may change in any release. Python 3.9, standard library only.

It is made once, on the Slurm controller's host, and kept for ever. No message, log or diff ever holds it.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.host import Host, read

MUNGE_UNIT = "munge.service"
# munge takes 32 to 1024 bytes; slurm.key must not be guessable either.
LENGTH = 128
PLACES = {
    # auth -> path, owner of file and folder, mode of the file, owner and mode of the folder
    "munge": ("/etc/munge/munge.key", "munge:munge", 0o400, "munge:munge", 0o700),
    "slurm": ("/etc/slurm/slurm.key", "slurm:slurm", 0o400, "root:root", 0o755),
}


def path(auth: str) -> str:
    return PLACES[auth][0]


def decoded(text: str | None) -> bytes:
    """The key of an option, as slurp gives it; empty where there is none."""
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        raise SlurmError("The option key is not Base64: give it as slurp does.") from None


def make(host: Host, auth: str) -> None:
    """Have a key on the controller's host; one that is there stays, whoever made it."""
    if len(read(path(auth)) or b"") < 32:
        give(host, auth, secrets.token_bytes(LENGTH))
    else:
        give(host, auth, read(path(auth)) or b"")


def give(host: Host, auth: str, key: bytes) -> None:
    """Have exactly this key, readable by its owner alone, and running daemons that use it."""
    if not 32 <= len(key) <= 1024:
        raise SlurmError(
            f"The key for auth/{auth} has {len(key)} bytes, not 32 to 1024: look at {path(auth)} on the controller."
        )
    target, owner, mode, folder_owner, folder_mode = PLACES[auth]
    host.folder(os.path.dirname(target), folder_owner, folder_mode)
    changed = host.file(target, key, owner, mode)
    if auth == "munge" and changed and (host.check or host.is_active(MUNGE_UNIT)):
        host.run(MUNGE_UNIT, restart=True)
