# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read regular files of a tray, and write files atomically."""

from __future__ import annotations

import os

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
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
    try:
        os.makedirs(os.path.dirname(path), mode=folder_mode, exist_ok=True)
        atomic.write(path, text.encode("utf-8", "surrogateescape"), mode, (os.geteuid(), os.getegid()), follow=False)
    except OSError as error:
        raise files.ImexError(
            f"{path} cannot be written ({error.strerror}); free space, or correct its folder."
        ) from None
