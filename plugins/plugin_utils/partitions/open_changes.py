# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVLink domains whose partitions are being changed, for what else reads or changes their trays meanwhile.

A change is open from its plan on until its last step is done, whether its run lives, was killed or stopped.
"""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import Journal, journals
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import placed


def sentences(path: str, state_dir: str | None) -> dict[str, str]:
    """NVLink domain with an open change -> the sentence on it; of the fabric file at a path.

    FabricFileError where a journal cannot be read.
    """
    found = {}
    for one in _open(path, state_dir):
        since = f"the partitions of NVLink domain {one.domain} are being changed since {one.change[0]['at']}"
        found[one.domain] = f"{since} ({one.path}); run the playbook partition again until it ends the change"
    return found


def moves(path: str, state_dir: str | None) -> dict[str, int]:
    """Tray that an open change moves -> its clique ID after it (Policy.moves)."""
    plans = filter(None, (one.plan for one in _open(path, state_dir)))
    return {tray: number for plan in plans for tray, number in placed(plan, plan["moved"]).items()}


def _open(path: str, state_dir: str | None) -> list[Journal]:
    # They are only read, so nobody asks for the time.
    return [one for one in journals(path, None, state_dir, str).values() if one.change]
