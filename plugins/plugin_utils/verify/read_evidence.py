# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect the evidence of one run: what its tasks registered of trays and Slurm, and a snapshot of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader, Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import acknowledging
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import TrayReport
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Controller, Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence


def read(
    fabric: Fabric, path: str, options: Arguments, hostvars: Any, now: str, *, links: Object, is_found: bool
) -> Evidence:
    """The evidence of a run with these options of the module verify.

    path: of the fabric file. now: RFC 3339, in UTC. links: Evidence.links_before.
    """
    snapshot, problem = _cluster(options)
    return Evidence(
        fabric,
        path,
        quick=options["quick"],
        reports={} if options["quick"] else _reports(options["trays"], options["observations"], hostvars),
        slurm=None if options["slurm"] is None else _controllers(options["slurm"], options["tiers"]),
        kubernetes=snapshot,
        kubernetes_problem=problem,
        kubernetes_cluster=options["kubernetes_cluster"] or None,
        channels=tuple(options["channels"]),
        links_before=links,
        is_found=is_found,
        acknowledged=acknowledging.current(path, options["state_dir"], now) if options["acknowledged"] else {},
    )


def _reports(hosts: Sequence[Any], register: str, hostvars: Any) -> dict[str, TrayReport]:
    """Tray -> its report, of trays that this run queried.

    Reads each host's variables once and untemplated: a tray's answer must never be a template, and ten thousand hosts
    must not each start a template engine.
    """
    rows = ((host, hostvars.raw_get(host)) for host in hosts)
    # The others are outside the limit of this run.
    return {str(host): tray_report.read(str(host), row[register]) for host, row in rows if register in row}


def _controllers(slurm: list[Result], tiers: list[Result]) -> list[Controller]:
    """Controllers from the registered results of two loops over them."""
    by_host = {_host(row): row for row in tiers if not row.get("skipped")}
    found = []
    for row in slurm:
        host = _host(row)
        failed = row.get("failed") or row.get("unreachable")
        problem = (sentence(row.get("msg")) or tray_report.NO_RESULT) if failed else ""
        found.append(Controller(host, {} if failed else row, by_host.get(host), problem))
    return found


def _host(row: Result) -> str:
    """The host of a row of a loop."""
    return str(row.get(row.get("ansible_loop_var", "item")))


def _cluster(options: Arguments) -> tuple[Snapshot | None, str]:
    """(snapshot of the cluster or None, why there is none)."""
    if not options["kubeconfig"]:
        return None, ""
    # A wrong kubeconfig is a user error and fails; a server that does not answer is a finding.
    access = login.of_kubeconfig(options, "verify")
    try:
        return Reader(access).snapshot(pods=True), ""
    except NvlinkError as error:
        return None, sentence(str(error))
