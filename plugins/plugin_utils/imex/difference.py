# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is due on a tray: the difference between its desired state and its report, a pure function.

The phase stop_and_write itself runs on the report, with a Host that plans: so what is due is what it would change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from ansible_collections.rackscale.nvlink.plugins.module_utils.host import FileState, Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import (
    domain,
    firewall,
    formats,
    installing,
    job_files,
    job_host,
    packages,
    reporting,
    slurm_jobs,
    tray,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Report
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import state
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.rows import Stored


class _Plan(Host):
    """A Host in check mode whose files are those of a report; it calls no program."""

    def __init__(self, files: Mapping[str, FileState]) -> None:
        super().__init__(check=True)
        self.files = files

    def call(self, *argv: str, **_options: Any) -> NoReturn:
        """Nothing that a tray reports may decide what runs on the controller."""
        raise RuntimeError(f"{argv[0]} is for the tray, not for the controller")

    def state(self, path: str) -> FileState | None:
        return self.files.get(path)

    def content(self, path: str) -> None:
        """A report has no texts."""


def paths(desired: domain.DesiredState) -> list[str]:
    """The files that the collection may own on a tray under any owner, but those that the tray's record names."""
    return [
        *domain.files_of(desired, None),
        *(formats.CONFIG_FILE, formats.RECORD_FILE, desired.nodes_path, formats.PERSIST_FILE),
        *(domain.HOST_SOCKET, domain.START_APPROVAL, firewall.OPENED, state.state_path()),
        *job_files.paths(desired.job),
    ]


def difference(desired: domain.DesiredState, report: Report, allow_jobs: bool) -> Stored:
    """The row by which its clique is decided. allow_jobs: whether jobs on the tray block nothing. Raises ImexError."""
    observed, record = report["facts"], report["record"]
    offer, missing = installing.offer_of(desired, observed, report["offers"])
    findings = [*job_host.findings_of(desired, report["slurm"], allow_jobs), *domain.findings_of(desired, observed)]
    if not report["local"]:
        findings.append(host_finding("imex_no_own_address", "desired", address=desired.own))
    findings += missing
    if desired.channels and report["gives_channels"]:
        findings.append(host_finding("imex_channel_slurm_conflict", devices="those of option channels"))
    restart_clique, restart = domain.difference(desired, observed, offer)
    why = [*restart_clique, *restart]
    if why and not allow_jobs and (report["jobs"] or report["unknown"]):
        findings.append(slurm_jobs.blocking_finding(report["jobs"], report["unknown"], why))
    pending, more = _pending(desired, report, offer) if not missing else ([], [])
    waits = desired.channel_count and any("ImexChannelCount" in str(row["values"]) for row in more)
    if desired.channels and observed["channels"]["major"] is None and not waits:
        findings.append(host_finding("imex_channels_not_offered"))
    return {
        "facts": observed,
        "running": observed["running"],
        "approved": report["approved"],
        "pending": pending,
        "restart_clique": restart_clique,
        "sha256": observed["nodes"]["sha256"],
        "record": record,
        "peers": report["peers"],
        "offer": offer and [*offer],
        "findings": trust.host_findings([*findings, *more]),
    }


def _pending(
    desired: domain.DesiredState, report: Report, offer: packages.Offer | None
) -> tuple[list[str], list[HostFinding]]:
    """(changes, findings) of stop_and_write, with the record as it is."""
    plan, record = _Plan(report["files"]), report["record"]
    phase = tray.Tray(desired, plan, reporting.Options(desired.owner))
    row = phase.stop_and_write(report, record["generation"] if record else 0, False, offer, allow_jobs=True)
    uncalled = job_host.uncalled(desired, report["slurm"])
    # stop_and_write reports them after it has written the files that slurm.conf must name.
    changes = [*plan.changes, *(f"the findings on slurm.conf ({entry['code']})" for entry in uncalled)]
    return changes, [entry for entry in row["findings"] if entry not in uncalled]
