# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Call sacctmgr on the host of slurmctld; the Ansible controller reads and plans its records.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError


class Sacctmgr:
    """sacctmgr for one cluster."""

    def __init__(self, slurm: Slurm, cluster: str) -> None:
        self.slurm = slurm
        self.cluster = cluster

    def records(self, columns: str) -> dict[str, str]:
        """What ``sacctmgr -nP show`` prints of QoS with these columns, of associations and of TRES, by these names.

        SlurmError in one sentence where slurmdbd does not answer.
        """
        associations = ("where", f"cluster={self.cluster}", "wopi", "format=Account,User,Partition,QOS")
        asked = {"qos": (f"format={columns}",), "assoc": associations, "tres": ("format=Type,Name",)}
        return {name: self._show(name, *arguments) for name, arguments in asked.items()}

    def _show(self, *arguments: str) -> str:
        result = self.slurm.call("sacctmgr", "-nP", "show", *arguments)
        if result.rc != 0 or result.timed_out:
            raise SlurmError(
                f"slurmdbd does not answer ({_short(result.reason)}): start it and its database; nothing was changed."
            )
        return result.stdout

    def run(self, arguments: Sequence[str]) -> str:
        """Run a changing command; its error, empty on success."""
        result = self.slurm.call("sacctmgr", "-i", "-Q", *arguments, acts=True)
        return "" if result.rc == 0 and not result.timed_out else _short(result.reason) or "it failed"


def _short(text: str) -> str:
    text = re.sub(r"^sacctmgr: (error: )?", "", text.strip())
    return text.rstrip(".")[:200]
