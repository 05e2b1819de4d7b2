# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person reviews before NVLink partitions change: the plans with all that follows them, and a SHA-256. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import signature
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, folded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import (
    partition_answers,
    partition_plan,
    partition_steps,
    places,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_changes import Changes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.wish import Wish
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended, shown

FOLLOWS = ("moved_percent", "clique_shrank", "tray_partitions")
"""The gates of the fabric file that object to what a person asks for: moves, small cliques, one for each tray."""


def plan(
    options: Arguments,
    wanted: Mapping[str, Wish],
    changes: Changes,
    seen: partition_plan.Seen,
    known: Mapping[str, Sequence[places.Gpu]],
    listed: Callable[[str], Sequence[nvue.Partition] | None],
) -> Result:
    """Plan each domain of the changes: what the module returns with its state planned.

    options: override, the gates that do not object. known: tray -> its GPUs. listed: domain -> what its switch lists,
    None by hand.
    """
    made: Result = {"plans": [], "moves": {}, "objections": []}
    for domain, journal in changes.journals.items():
        rows = listed(domain)
        own = replace(seen, partitions=rows, places=places.locate(known, rows or ()), put=journal.put)
        found, objections = partition_plan.make(domain, wanted[domain], changes.fabric, own, journal.used, journal.made)
        made["plans"].append(found)
        made["moves"].update(found["clique_ids"])
        made["objections"] += [one.message for one in objections if one.gate not in options["override"]]
        if found["moved"] and not {*found["affected"]} & own.observed.keys():
            what = f"{folded(found['affected'])} of NVLink domain {domain} would change, and none of them answers"
            made["objections"].append(
                f"{what}; start one, or add it to the inventory, since only its answer shows the new cliques"
            )
    return made


def set_owner(plans: Sequence[partition_plan.Plan], owner_of: Callable[[str], str | None]) -> list[str]:
    """Set the owner of IMEX, which must be the same for all affected trays: they may share a clique then.

    owner_of: tray -> its imex_owner, None where it is not known. Returns what objects to that, as sentences.
    """
    trays = [tray for row in plans for tray in row["affected"]]
    rows = equal((owner, tray) for tray in trays if (owner := owner_of(tray)) is not None)
    for row in plans:
        row["imex_owner"] = next(iter(rows), "")
    what = " and ".join(f"{shown(owner) if owner else 'not set'} for {folded(own)}" for owner, own in rows.items())
    problem = f"imex_owner is {what}, which change together; set one for all of them in group_vars/all.yml"
    return [problem] if len(rows) > 1 else []


def review(
    options: Arguments,
    wanted: Mapping[str, Wish],
    fabric: Fabric,
    planned: Fabric,
    seen: partition_plan.Seen,
    answers: Mapping[str, Sequence[Object]],
) -> Result:
    """The review of the plans in the options of the module partition: what it returns with its state reviewed.

    planned: the fabric file as it would be accepted. answers: controller of Slurm -> what its roles registered.
    """
    gates: list[Finding] = options["planned"]["objections"]
    accepted = [row for row in gates if row["code"] in FOLLOWS]
    slurm, refusals = partition_answers.of_slurm(answers)
    lines = [*options["lines"], *slurm]
    objections, plans, text = [*options["objections"], *refusals], list[partition_plan.Plan](), list[str]()
    for given in options["plans"]:
        plan, found = partition_plan.named(given, wanted[given["domain"]], planned)
        objections += [one.message for one in found]
        text += partition_plan.text(plan, fabric, planned, seen)
        plans.append(plan)
    answering = {tray for plan in plans for tray in plan["clique_ids"]}
    others = partition_steps.disagreements(plans, answering, fabric, planned)
    objections += [
        f"the next fabric file would not be that of the plan: {row}; run the playbook discover, and plan again"
        for row in others
    ]
    objections += [f"the next fabric file: {row['message']}" for row in gates if row not in accepted]
    if file := options["planned"].get("proposal_file"):
        objections.append(
            f"{file} is a proposal that this change would be merged with; accept or remove it, and plan again"
        )
    overridden = {*options["override"], *(row["code"] for row in accepted)}
    sha256 = partition_plan.sha(plans, planned, overridden, lines)
    if options["plan"] not in (None, sha256):
        objections.append(f"partition_plan: the SHA-256 of the plan is {sha256} now; review it again")
    objections += _unwatched(options, [tray for plan in plans for tray in plan["affected"]], seen)
    objections = [*map(ended, objections)]
    text += [*lines, *map(accepted_line, accepted), *objections]
    if options["scontrol"] is None:
        text.append("The inventory has no Slurm controller: trays are not drained, and running jobs are unknown.")
    text.append(f"SHA-256 of this plan: {sha256}")
    is_due = any(plan["moved"] for plan in plans)
    return {"plans": plans, "objections": objections, "sha256": sha256, "text": text, "is_due": is_due}


def _unwatched(options: Arguments, affected: Sequence[str], seen: partition_plan.Seen) -> Iterator[str]:
    """Why the jobs on some of the affected trays are not known; where there is Slurm, it is to drain each of them."""
    is_slurm = options["scontrol"] is not None
    known = seen.nodes if is_slurm else seen.compute_domains
    trays = [tray for tray in affected if tray not in known and not options["simulated"]]
    if trays and is_slurm:
        yield f"Slurm has no node of {folded(trays)}; correct slurm_node in the fabric file, or add the nodes to Slurm"
    elif trays and partition_plan.JOBS not in options["override"]:
        what = f"jobs are not known, since the run has no Slurm controller and no node in Kubernetes of {folded(trays)}"
        yield f"{what}; add one, or stop all jobs there, and set partition_override to {partition_plan.JOBS}"


def accepted_line(row: Finding) -> str:
    """A gate that objects, and that the plan takes along."""
    return f"accepted: {row['code']} ({row['message'].partition(';')[0]})"


def signing(is_required: bool) -> list[str]:
    """What a plan says where a fabric file must be signed."""
    what = "the run ends when it has accepted the next fabric file, and the trays stay drained"
    return [f"{signature.VARIABLE} is set: {what}; sign it, then run partition again"] if is_required else []
