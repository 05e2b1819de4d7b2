# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xids in the layer hardware: what the driver logged of a GPU, and whether it still holds. Pure functions.

A fatal Xid (kernel_log.is_fatal) says that the GPU needs a reset, so it holds for its boot until

- a later Xid 154 of this GPU changes the recovery action to None. The driver makes that action of its marks for reset,
  drain and reboot, which a reset removes (NVIDIA/open-gpu-kernel-modules, gpu.c, _gpuRefreshRecoveryActionInLock).
- the driver reports no recovery action of this GPU now. Of a GPU that was reset the action is unknown at first, and
  that change to None logs no Xid 154 (the same function).

A driver that reports no actions leaves what the log has. All other Xids are news of one run. Where the driver reports
another action, or has lost the GPU, that failure remains, with the Xid as its cause (correlation.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import kernel_log
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.kernel_log import XIDS
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, HARDWARE, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import only, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import TrayReport
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import links_check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.hardware_check import RECOVERY

_WORST_FIRST = (*RECOVERY.values(), "switch_side", "watch")


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fatal Xids that hold, and all that are new, as one failure a tray; logs that were not read to their end."""
    for tray, report in evidence.trays.items():
        clique, rows = evidence.clique_of(tray), report.links.xids if report.links else ()
        held = _held(report, rows)
        after = links_check.known(evidence.links_before, tray)["xid_at"]
        new = [row for row in rows if row["last_at"] > after and row["action"] != "none" and row not in held]
        named = summarize(map(kernel_log.text, [*held, *sorted(new, key=lambda row: not row["fatal"])]))
        since = "since the last run" if tray in evidence.links_before else f"in the last {kernel_log.DAYS} days"
        why = summarize(dict.fromkeys(kernel_log.name(row["xid"]) for row in reversed(held or new)))
        action = min((_action(row, bool(held)) for row in held or new), key=_WORST_FIRST.index, default="")
        text = f"{tray}: the kernel logged GPU errors {since}: {named}."
        if held:
            text = f"{tray}: the kernel logged {named}, and nothing that shows a reset of the GPU since."
        if held or new:
            gpu, link = (whole(only(row[key] for row in held or new)) for key in ("gpu", "link"))
            severity = ERROR if held else None
            place = (HARDWARE, text, tray, clique)
            yield failure("nvlink_xid", *place, severity=severity, cause=why, action=action, gpu=gpu, link=link)
        if report.links and not report.links.xids_complete:
            text = f"{tray}: its kernel log was not read to its end in time, so Xids may be missing."
            yield failure("nvlink_links_unknown", HARDWARE, text, tray, clique, severity=WARNING)


def _held(report: TrayReport, rows: Sequence[kernel_log.Row]) -> list[kernel_log.Row]:
    """The fatal Xids that hold."""
    rows = [row for row in rows if row["boot"]]
    ends = {_address(row): row["last_at"] for row in rows if row["action"] == "none"}
    gpus = report.gpu.gpus if report.gpu else ()
    ends.update({kernel_log.address(gpu.pci_bus_id): math.inf for gpu in gpus if gpu.recovery_action == "none"})
    return [row for row in rows if kernel_log.is_fatal(row) and row["last_at"] > ends.get(_address(row), 0)]


def _address(row: kernel_log.Row) -> str:
    return kernel_log.address(str(row["pci_bus_id"]))


def _action(row: kernel_log.Row, is_held: bool) -> str:
    if row["xid"] == kernel_log.RECOVERY_ACTION:
        return RECOVERY.get(str(row["action"]), "reboot") if is_held else "watch"
    xid = XIDS[row["xid"]]
    return (xid.fatal if is_held else xid.other) or "watch"
