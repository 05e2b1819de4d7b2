# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of a partition change registered: of trays, of Slurm's controllers and on localhost. Pure functions.

A tray is trusted with its own answer alone: it never decides what happens to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Identity
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import names
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import PartitionError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import (
    COMPUTE_DOMAINS,
    REASON,
    Plan,
    Seen,
    is_ours,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.places import Places
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence


def reports(
    trays: Iterable[str], variables: Callable[[str], Variables | None], register: str
) -> dict[str, tray_report.TrayReport]:
    """Tray -> its report. variables: host -> its variables, not templated. register: the variable of its facts."""
    found = {}
    for tray in trays:
        own = variables(tray) or {}
        foreign = trust.foreign_variables(own.get("ansible_facts"))
        found[tray] = tray_report.foreign(tray, foreign) if foreign else tray_report.read(tray, own.get(register))
    return found


def identities(reports: Mapping[str, tray_report.TrayReport]) -> dict[str, Identity | None]:
    """Tray that answers -> its clique, None where its GPUs are in none."""
    parts = {tray: report.gpu for tray, report in reports.items()}
    return {tray: part.observed.identity for tray, part in parts.items() if part and part.observed}


def of_hosts(
    hosts: Iterable[str], variables: Callable[[str], Variables | None], registers: Sequence[str]
) -> dict[str, list[Object]]:
    """Host of the inventory -> what its tasks registered under these names, each empty where none ran."""
    own = {host: variables(host) for host in hosts}
    return {host: [mapped(row.get(key)) for key in registers] for host, row in own.items() if row}


def of_slurm(answers: Mapping[str, Sequence[Object]]) -> tuple[list[str], list[str]]:
    """What the roles of Slurm would change, and why they refuse. answers: controller -> what it registered."""
    lines, refusals = [], []
    for host, rows in answers.items():
        if not any(rows):
            refusals.append(f"Slurm on {host} has not compared the planned blocks; check why, and plan again")
        for row in rows:
            lines += [str(line) for line in as_list(row.get("changes"))]
            if row.get("failed"):
                refusals.append(f"Slurm on {host} refuses the planned blocks: {sentence(row.get('msg'), 1000)}.")
    # A role may register what the run then repeats as the failure of its task.
    return lines, [*dict.fromkeys(refusals)]


def problem(step: str, answers: Mapping[str, Sequence[Object]]) -> str:
    """Why a step failed, in a clause; empty where it did not. answers: host, or empty -> what its tasks registered.

    A host on which the last of them registered nothing did not run all of them.
    """
    for host, rows in answers.items():
        for row in rows:
            if row.get("unreachable") and step == "imex":
                # No IMEX runs on a tray without power.
                continue
            if row.get("failed") or row.get("unreachable"):
                return f"{host or step}: {sentence(row.get('msg')) or 'a task failed'}"
            if unknown := as_list(row.get("unknown_nodes")):
                return f"slurmctld does not have {sentence(unknown[0])}; correct slurm_node in the fabric file"
            if running := mapped(row.get("running_jobs")):
                jobs = {sentence(str(job)) for found in running.values() for job in as_list(found)}
                return f"jobs still run on {names(running)} ({summarize(sorted(jobs))}); wait for them, or cancel them"
        if host and step in ("imex", "slurm") and not any(rows[-1:]):
            return f"{host}: some tasks of this step were skipped; run partition for all hosts"
    return ""


def gpu_problem(plan: Plan, found: Mapping[str, Identity | None]) -> str:
    """Why not all GPUs are in their clique; empty where they are. found: tray that answered -> its clique, or None.

    A tray that answers no more holds no other one back, as long as one shows that the switch has changed: it stays
    drained, and the fabric file follows when it answers.
    """
    wanted = plan["clique_ids"]
    other = {tray: found[tray] for tray in wanted if tray in found and (found[tray] or ("", 0))[1] != wanted[tray]}
    if other:
        now = sorted({f"clique ID {clique[1]}" if clique else "no clique" for clique in other.values()})
        what = f"the GPUs of {names(other)} report {' and '.join(now)} instead of the clique of the plan"
        return f"{what}; correct their partitions on the switch"
    asked = {*wanted} or {*plan["affected"]}
    return "" if asked & found.keys() else f"{names(asked)} did not answer"


class Occupants(NamedTuple):
    """The node of a tray, and the ComputeDomains and pods on it, sorted, as ComputeDomain or pod NAMESPACE/NAME."""

    node: str
    compute_domains: list[str]
    pods: list[str]


def require_idle(found: Mapping[str, Occupants], override: Sequence[str]) -> None:
    """PartitionError where Kubernetes has a pod on a tray, or a ComputeDomain unless a person has overridden that."""
    rows = {
        tray: [*row.pods, *(() if COMPUTE_DOMAINS in override else row.compute_domains)] for tray, row in found.items()
    }
    if busy := {tray: own for tray, own in rows.items() if own}:
        what = summarize(sorted({name for own in busy.values() for name in own}), 3)
        raise PartitionError(f"{what} still on {names(busy)}; wait for it or delete it, then run partition again")


def seen(nodes: Mapping[str, str], jobs: Mapping[str, Sequence[str]], found: Mapping[str, Occupants]) -> Seen:
    """What Slurm and Kubernetes report of trays, without switch and GPUs.

    nodes: tray -> its state in Slurm. jobs: tray -> the jobs on it; its pods are some, too.
    """
    with_pods = {tray: [*jobs.get(tray, ()), *row.pods] for tray, row in found.items()}
    domains = {tray: row.compute_domains for tray, row in found.items()}
    return Seen(None, Places({}, {}), {}, nodes, {**jobs, **with_pods}, domains)


def in_service(seen: Seen, trays: Iterable[str], is_slurm: bool) -> str:
    """Which of these trays jobs may still use, in a clause; empty where their GPUs may leave their partition.

    is_slurm: whether Slurm was asked.
    """
    busy = {tray: seen.jobs[tray] for tray in trays if seen.jobs.get(tray)}
    if busy:
        jobs = summarize(sorted({job for own in busy.values() for job in own}), 3)
        return f"jobs started after the drain, on {names(busy)}: {jobs}; wait for them, or cancel them"
    out = [tray for tray in trays if "DRAIN" not in seen.flags(tray)] if is_slurm else []
    return f"no longer drained: {names(out)}; run partition again, which drains again" if out else ""


def still_out(nodes: Mapping[str, str], trays: Iterable[str]) -> str:
    """Which trays this change has drained and no test has had its end on; empty where none is left.

    nodes: tray -> its state in Slurm, as of slurm/node_states.py. trays: those that answer.
    """
    out = [tray for tray in trays if is_ours(nodes.get(tray, ""), (REASON,))]
    return f"still drained, as the tests failed: {names(out)}; the report of the rollout has the reason" if out else ""
