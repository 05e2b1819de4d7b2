# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this process has done, in order, for `actions` in the result of its module: commands, writes and requests.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Each is recorded where it is done: by child.run(), by atomic.write() and atomic.remove(), by the client of HTTP. So a
failure lists what was done before it and what was undone after it, and check mode, which does nothing, lists nothing.
Reads, locks and files of the run itself are left out. No text has the content of a file or of a request.
"""

from __future__ import annotations

import itertools

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import one_line, shortened

MAX_ACTIONS, MAX_LENGTH = 100, 400
"""Actions of a result, besides the line that counts the others; characters of one."""
_done: list[str] = []


def begin() -> None:
    """Forget those of an earlier task: some connections run several in one process."""
    _done.clear()


def record(*texts: str) -> None:
    """Add what was done, each as one printable line."""
    for text in texts:
        _done.append(shortened(one_line(text), MAX_LENGTH))


def done() -> list[str]:
    """The actions, a repeated one once with its number; of more than MAX_ACTIONS the first and the last ones."""
    counted = ((text, len(list(equal))) for text, equal in itertools.groupby(_done))
    lines = [f"{text} ({number} times)" if number > 1 else text for text, number in counted]
    half, more = MAX_ACTIONS // 2, len(lines) - MAX_ACTIONS
    return [*lines[:half], f"({more} more actions)", *lines[-half:]] if more > 0 else lines
