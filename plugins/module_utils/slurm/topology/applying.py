# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply a planned topology in one transaction.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import PREVIOUS
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.daemon import Transaction
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.comparing import difference
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.planning import Plan, same_named
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.surveying import refresh


def apply(plan: Plan) -> None:
    """Write, load, read back. On any failure the old files are restored and loaded; SlurmError has the reason."""
    observed = plan.survey
    if plan.waits_for:
        raise SlurmError(
            f"This host is a standby, and the active controller {observed.acting} runs another topology"
            f" ({plan.waits_for}): apply the topology on {observed.acting} first; nothing was changed here."
        )

    def problem() -> str:
        differs = plan.differs(refresh(observed))
        return f"slurmctld runs another topology than the written one ({differs})" if differs else ""

    def load(transaction: Transaction) -> str:
        if plan.live is not None:
            result = observed.slurm.place(plan.live.node, plan.live.units)
            if result.rc == 0 and not transaction.wait_until_running():
                return ""
            transaction.require_no_loss()
            plan.live = None  # the result then has reconfigured: true
        return transaction.reconfigure()

    def restored() -> bool:
        after = refresh(observed)
        if (after.running, after.shown) == (observed.running, observed.shown):
            return True
        blocks = [known for known in _topologies(plan, "") if known.kind == "block"]
        return bool(blocks) and not difference(blocks[0], after)

    # The topology first, then the plugin that needs it, then the Include line that sets the plugin.
    order = sorted(plan.writes, key=lambda path: (path != observed.path, path == observed.conf.path))
    previous = same_named(_topologies(plan, PREVIOUS), plan.topology.name) if not plan.writes else None
    Transaction(
        observed.slurm,
        observed.conf_dir,
        {path: plan.writes[path] for path in order},
        what="the new topology",
        problem=problem,
        restored=restored,
        load=load if plan.reconfigure else None,
        stamps=observed.stamps,
        override="" if plan.may_undo else "override (variable slurm_topology_override)",
        reloads=plan.live is None,
        log=observed.config.get("slurmctldlogfile", ""),
        # Written by an earlier run that was interrupted before slurmctld has read it.
        cut_off=(observed.path,) if previous is not None and not difference(previous, observed) else (),
    ).apply()


def _topologies(plan: Plan, suffix: str) -> list[files.Topology]:
    """The topologies of the topology file or its copy; none where it cannot be read."""
    observed = plan.survey
    try:
        data = host.read(observed.path + suffix)
        return files.parse((data or b"").decode("utf-8", "replace"), observed.style)
    except NvlinkError:
        return []
