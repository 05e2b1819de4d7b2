# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read regular files of a tray, and write files atomically."""

from __future__ import annotations

import contextlib
import os
import tempfile

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files

_MAX_TEXT = 1 << 20


def read_text(path: str) -> str | None:
    """The first MiB of a regular file, with surrogates for invalid UTF-8; None where it cannot be read.

    No other kind of file is opened: reading a FIFO or a device may block, and opening a channel has side effects in the
    driver.
    """
    if not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read(_MAX_TEXT)
    except OSError:
        return None


def write_text(path: str, text: str, mode: int, folder_mode: int = 0o755) -> None:
    """Replace a file atomically: it is never visible incomplete or with another mode. Raises ImexError."""
    folder = os.path.dirname(path)
    temporary = ""
    try:
        os.makedirs(folder, mode=folder_mode, exist_ok=True)
        # Hidden, because Slurm runs what matches prolog.d/*.
        handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
        # The rename itself is on the disk only with its folder.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise files.ImexError(
            f"{path} cannot be written ({error.strerror}); free space, or correct its folder."
        ) from None
