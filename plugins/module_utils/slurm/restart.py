# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start a slurmctld that exited after a refused reconfigure.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Observed on slurmctld 24.11.5 with slurmdbd: after "Resuming operation, reconfigure failed" the old process may exit
("fatal: assoc_mgr_lock: pthread_rwlock_rdlock(): Resource deadlock avoided"). Jobs are not affected, but nothing else
would start it.
"""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils import child

UNIT = "slurmctld.service"


def start_if_exited(timeout: float) -> bool:
    """Start slurmctld's unit if systemd has it and it is not active; returns whether it was started."""
    shown = child.run(["systemctl", "show", "--property=LoadState,ActiveState", UNIT], timeout)
    words = dict(line.partition("=")[::2] for line in shown.stdout.splitlines())
    if shown.rc != 0 or words.get("LoadState") != "loaded" or words.get("ActiveState") not in ("failed", "inactive"):
        return False
    child.run(["systemctl", "reset-failed", UNIT], timeout)
    return child.run(["systemctl", "start", UNIT], timeout).rc == 0
