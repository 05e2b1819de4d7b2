# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a tray, read without surprises and written in one step."""

from __future__ import annotations

import contextlib
import os
import tempfile

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files

_MAX_TEXT = 1 << 20


def read_text(path: str) -> str | None:
    """The first MiB of a regular file, what is no UTF-8 as surrogates; None where there is none that can be read.

    Nothing else is opened: a FIFO or a device (of a channel, which the driver would notice) may keep its reader for
    ever.
    """
    if not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read(_MAX_TEXT)
    except OSError:
        return None


def write_text(path: str, text: str, mode: int, folder_mode: int = 0o755) -> None:
    """Replace a file in one step; nobody reads, or runs, it before it is whole and has its mode. Raises ImexError."""
    folder = os.path.dirname(path)
    temporary = ""
    try:
        os.makedirs(folder, mode=folder_mode, exist_ok=True)
        # Slurm runs what matches prolog.d/*, which leaves out hidden files.
        handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise files.ImexError(
            f"{path} cannot be written ({error.strerror}); make room or correct its folder."
        ) from None
