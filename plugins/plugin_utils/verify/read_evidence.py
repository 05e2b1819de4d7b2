# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect the evidence of one run: results of trays and Slurm, switches, and a snapshot of the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader, Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import acknowledging
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import PartitionError, wish
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import hosts, reading
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import TrayReport
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import switch_reading
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Controller, Evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence, shown


def reports(options: Arguments, known: hosts.Hosts, results: Mapping[str, Result] | None) -> dict[str, TrayReport]:
    """Tray -> its report, of the trays that this run queried; none where it queried none.

    options: of the module verify. results: those of a reading by ssh, None where the tasks of this run registered them.
    Reads each host's variables once and untemplated: a tray's answer must never be a template, and ten thousand hosts
    must not each start a template engine.
    """
    if results is not None:
        return {host: tray_report.read(host, result) for host, result in results.items()}
    found, misplaced, register = {}, set(), options["observations"]
    for host in () if options["quick"] else map(str, options["trays"]):
        variables = known.variables(host) or {}
        misplaced |= known.misplaced(variables, (reading.OPTION,))
        # The others are outside the limit of this run.
        if register in variables:
            found[host] = tray_report.read(host, variables[register])
    hosts.require_placed(misplaced)
    return found


def read(
    fabric: Fabric,
    options: Arguments,
    reports: Mapping[str, TrayReport],
    now: str,
    last: Object,
    is_found: bool,
    known: hosts.Hosts,
) -> Evidence:
    """The evidence of a run with these options of the module verify.

    now: RFC 3339, in UTC. last: the last verdict. is_found: Evidence.is_found. known: with the hosts of the switches.
    """
    # A run on some trays reads the switches of their domains.
    cliques = {fabric.trays[tray]["clique"] for tray in reports if tray in fabric.trays}
    domains = {fabric.cliques[clique]["domain"] for clique in cliques} or {*fabric.domains}
    snapshot, problem = _cluster(options)
    return Evidence(
        fabric,
        options["fabric_file"],
        quick=options["quick"],
        reports=reports,
        slurm=None if options["slurm"] is None else _controllers(options["slurm"], options["tiers"]),
        kubernetes=snapshot,
        kubernetes_problem=problem,
        kubernetes_cluster=options["kubernetes_cluster"] or None,
        channels=tuple(options["channels"]),
        links_before=mapped(last.get("links")),
        is_found=is_found,
        acknowledged=acknowledging.current(options["fabric_file"], options["state_dir"], now)
        if options["acknowledged"]
        else {},
        switches=switch_reading.read(options["switches"], known, fabric, domains) if options["switches"] else None,
        switch_before=mapped(last.get("switch")),
        wishes=_wishes(options["partitions"], fabric) if options["switches"] else {},
    )


def _wishes(given: Object, fabric: Fabric) -> dict[str, wish.Wish]:
    """Evidence.wishes; a domain whose trays have changed since stops no other one."""
    found = dict[str, wish.Wish]()
    # A shape wants no mode and no limit, and its sizes are of no interest here.
    for domain in (name for name, row in given.items() if isinstance(row, Mapping)):
        try:
            found |= wish.parse({domain: given[domain]}, fabric)
        except PartitionError as error:
            Display().warning(f"{error}; the layer switch compares no modes and limits of {shown(domain)}")
    return found


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
