# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each state of the module fabric_file does to the files; each function returns the result of the module.

`diff` is a list of lines: the action shows them with --diff only.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    differences,
    editing,
    fabric_file,
    gates,
    proposal,
    review,
    storage,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.files import Files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Merged
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    CONFLICT,
    STALE,
    UNPLACED,
    Fabric,
    State,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.pending import kept_domains, merge_pending
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import (
    Placement,
    mark_accepted,
    mark_pending,
    place,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import names
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import whole


def checked(files: Files) -> Result:
    """Check the fabric file."""
    files.check_groups(files.before)
    return {"msg": f"{files.path} and the options of placement are valid"}


def pending(files: Files, policy: Policy, proposal_file: str | None) -> Result:
    """The pending proposal for a person who decides about it; proposal_file: where it is not at its usual path."""
    file = proposal_file or files.proposal
    found = proposal.accept(files.path, None, files.base, file)
    files.check_groups(found.fabric)
    changes = differences.tray_changes(files.before, found.fabric)
    # Those that need no observation are checked again, since the proposal may lack them.
    step = gates.Step(files.before, found.fabric, changes, files.now)
    checked = gates.check(step, replace(policy, max_age=None), found.fabric.overrides)
    own = [row for row in found.objections if row["message"] not in {row["message"] for row in checked.objections}]
    return {
        "sha256": found.sha256,
        "proposal_file": file,
        "changes": changes,
        "objections": [*checked.objections, *own],
        "lines": [
            *review.all_changes(files.before, found.fabric, checked.gates),
            *review.objection_lines(checked.objections),
            *(f"in the proposal: {line}" for line in review.objection_lines(own)),
            files.difference(found.sha256),
        ],
        "diff": differences.diff_text(files.before, found.fabric),
        "msg": f"no proposal was accepted; accept this one with: {files.accept_command(found.sha256, proposal_file)}",
    }


def accepted(files: Files, sha256: str, proposal_file: str | None) -> Result:
    """Make the proposal with this sha256 the fabric file; proposal_file: where it is not at its usual path."""
    outcome: Result = {"sha256": sha256, "proposal_file": None, "objections": [], "lines": []}
    if files.sha256 == sha256:
        return {**outcome, "msg": f"{files.path} is already the proposal with sha256 {sha256}"}
    found = proposal.accept(files.path, sha256, files.base, proposal_file or files.proposal)
    files.write_fabric(found.fabric, "accepted")
    if files.state:
        files.write_state(replace(mark_accepted(files.state, found.fabric), written_at=files.now))
    files.drop_proposal()
    becomes = "would be" if files.dry else "is now"
    return {
        **outcome,
        "sha256": found.sha256,
        "changes": differences.tray_changes(files.before, found.fabric),
        "objections": found.objections,
        "lines": review.all_changes(files.before, found.fabric, {}),
        "changed": True,
        "diff": [*differences.diff_text(files.before, found.fabric), files.difference(found.sha256)],
        "msg": f"{files.path} {becomes} the proposal with sha256 {found.sha256}{files.to_sign()}",
    }


def edited(
    files: Files, rename: Mapping[str, str], remove: Collection[str], groups: Mapping[str, Collection[str]]
) -> Result:
    """Rename and remove trays, and group cliques (see editing.py); remove: hostlists, names of cliques and domains."""
    if files.base is None:
        raise fabric_file.FabricFileError(fabric_file.missing(files.path))
    before, renamed = editing.rename(files.before, rename, files.now[:10])
    removing = [tray for names in remove for tray in before.trays_of(names)]
    kept = editing.remove(before, removing)
    changes = [*renamed, *differences.tray_changes(before, kept)]
    after = editing.group(kept, groups)
    grouped = differences.structure_diff(before, after)
    if not (changes or grouped):
        return {"sha256": files.sha256, "msg": f"nothing to change in {files.path}"}
    fabric_file.check(after.as_dict(), files.path)
    sha256 = files.write_fabric(after, "edited")
    if files.state:
        files.write_state(editing.of_state(files.state, rename, removing))
    parts = ((len(changes), "tray"), (len(grouped), "clique"))
    what = " and ".join(count(number, word) for number, word in parts if number)
    verb, goes = ("would change", "would be removed") if files.dry else ("changed", "is removed")
    void = f"; the pending proposal was made from the old file and {goes}" if files.drop_proposal() else ""
    return {
        "changed": True,
        "changes": changes,
        "sha256": sha256,
        "diff": [*(f"{change['tray']}: {change['why']}" for change in changes), *grouped],
        "lines": grouped,
        "msg": f"{what} {verb} in {files.path}{void}{files.to_sign()}",
    }


def proposed(
    files: Files, policy: Policy, observe: Callable[[Fabric | None], tuple[Merged, str]], use_gates: bool, fails: bool
) -> Result:
    """Place the observed trays, and propose the result or let the gates accept it.

    observe: the fabric of the file -> the observations, and why they are too few (empty if they are enough). use_gates:
    a proposal to which no gate objects is accepted. fails: whether the task fails where a gate then objects.
    """
    known = None if files.base is None else files.before
    merged, failure = observe(known)
    last = files.pending()
    placement = _placed(files, policy, merged, files.before)
    if failure:
        # What is placed and proposed stays; without a fabric file there is nothing to keep, and nothing is written.
        if known is not None:
            state = mark_pending(placement.state, last.fabric, known) if last else placement.state
            files.write_state(state)
        # Without the findings of all trays: Ansible prints the whole result of a task that fails.
        raise PlacementError(f"{failure}; correct this and discover again: no place has changed")
    refusals = placement.objections if use_gates else []
    if use_gates and not refusals and placement.fabric != files.before:
        result = _accepted_by_gates(files, placement)
        state = mark_accepted(placement.state, placement.fabric)
    else:
        placement = _merge_with_pending(files, policy, merged, last, placement)
        if placement.fabric != files.before:
            result = _left_for_review(files, last, placement)
            state = mark_pending(placement.state, placement.fabric, files.before)
        else:
            result = _unchanged(files)
            state = mark_accepted(placement.state, placement.fabric)
    if refusals:
        names = sorted({row["code"] for row in refusals})
        reasons = "; ".join(row["message"].rstrip(".") for row in refusals)
        gates = "gate" if len(names) == 1 else "gates"
        result["msg"] = f"not accepted: {gates} {', '.join(names)} ({reasons}); {result['msg']}"
    result["changed"] |= files.state is None or files.state.fingerprint() != state.fingerprint()
    files.write_state(state)
    summary = _summary(placement, state)
    states = [word for word in ("placed", "moved", "stale", "conflict", "unplaced") if summary[word]]
    words = ", ".join([count(summary["trays"], "tray"), *(f"{summary[word]} {word}" for word in states)])
    msg = f"{words}: {result['msg']}"
    targets, more_in = {row.tray for row in merged.observations}, result.get("review_file", "the result of this task")
    return {
        "proposal_file": None,
        "review_file": None,
        **result,
        "failed": bool(refusals) and fails,
        "is_refused": bool(refusals),
        "lines": [
            *review.table(placement.changes, placement.gates, more_in),
            *review.objection_lines(placement.objections),
            *review.state_lines(placement.fabric, state, targets),
            msg,
        ],
        "changes": placement.changes,
        "objections": placement.objections,
        "findings": placement.findings,
        "warnings": [row["message"] for row in merged.findings],
        "summary": summary,
        "diff": [
            *differences.diff_text(files.before, placement.fabric),
            *([files.difference(result["sha256"])] if placement.fabric != files.before else []),
            *differences.state_diff_text(files.state, state),
        ],
        "msg": msg,
    }


def planned(
    files: Files, policy: Policy, observe: Callable[[Fabric | None], tuple[Merged, str]], folder: str
) -> Result:
    """Place the trays as if those of policy.moves had their new clique, and write that fabric file into a folder.

    Nothing of the site is written, so it is the same in check mode. observe: as for proposed().
    """
    if files.base is None:
        raise fabric_file.FabricFileError(fabric_file.missing(files.path))
    before, moves = files.before, policy.moves
    merged, failure = observe(before)
    if failure:
        raise PlacementError(f"{failure}; correct this, and plan again")
    answered = {row.tray for row in merged.observations if row.reachable and row.tray in before.trays}
    if wrong := [tray for tray, number in moves.items() if tray not in answered or not whole(number)]:
        what = "gave no answer, or has no place or no clique ID above 0"
        raise PlacementError(f"moves: {names(wrong)} {what}; leave it out, or correct it, and plan again")
    rows = [
        replace(row, identity=(before.cluster_uuid(before.trays[row.tray]["clique"]), moves[row.tray]))
        if row.tray in moves
        else row
        for row in merged.observations
    ]
    placement = _placed(files, policy, replace(merged, observations=rows), before)
    path, data = os.path.join(folder, "fabric.planned.json"), fabric_file.serialise(placement.fabric)
    storage.write_atomic(path, data, listed=False)
    return {
        "planned": path,
        "sha256": fabric_file.digest(data),
        "proposal_file": files.proposal if files.pending() else None,
        "gates": sorted({row["code"] for row in placement.objections}),
        "changes": placement.changes,
        "objections": placement.objections,
        "lines": [
            *review.all_changes(before, placement.fabric, placement.gates),
            *review.objection_lines(placement.objections),
        ],
        "diff": differences.diff_text(before, placement.fabric),
        "msg": f"{count(len(placement.changes), 'tray')} of {files.path} would change",
    }


def _placed(files: Files, policy: Policy, merged: Merged, fabric: Fabric) -> Placement:
    """The placement from this fabric; FabricFileError where the file that is to be written would be invalid."""
    placement = place(fabric, files.state, merged.observations, files.now, policy, merged, files.before)
    if placement.fabric != files.before:
        fabric_file.check(placement.fabric.as_dict(), files.path)
    return placement


def _merge_with_pending(
    files: Files, policy: Policy, merged: Merged, last: proposal.Proposal | None, placement: Placement
) -> Placement:
    """The placement, merged with the changes of the pending proposal for trays that are not targets of this run.

    Job slices thus add to one proposal. Never done with accept=gates: gates must not accept changes that another run
    left for review.
    """
    targets = {row.tray for row in merged.observations}
    changed = {row["tray"] for row in differences.tray_changes(files.before, last.fabric)} if last else set()
    if last and (changed - targets or kept_domains(files.before, last.fabric, targets)):
        # Where trays of both claim the same GPU or address, only a run on both can resolve it.
        with contextlib.suppress(fabric_file.FabricFileError):
            combined = merge_pending(files.before, last.fabric, targets)
            fabric_file.check(combined.as_dict(), files.path)
            return _placed(files, policy, merged, combined)
    return placement


def _unchanged(files: Files) -> Result:
    return {
        "changed": files.drop_proposal(),
        "sha256": files.sha256,
        "msg": f"no tray changes its place in {files.path}" if files.base else "no tray has a place yet",
    }


def _accepted_by_gates(files: Files, placement: Placement) -> Result:
    sha256 = files.write_fabric(placement.fabric, "gates")
    files.drop_proposal()
    return {
        "changed": True,
        "sha256": sha256,
        "msg": f"{'would be ' * files.dry}accepted into {files.path} with sha256 {sha256}{files.to_sign()}",
    }


def _left_for_review(files: Files, last: proposal.Proposal | None, placement: Placement) -> Result:
    """Write the proposal, unless the pending one is the same."""
    new = proposal.propose(files.base, placement.fabric, placement.objections, files.now)
    repeated = last is not None and new.repeats(last)
    if last and repeated:
        new = last
    command = files.accept_command(new.sha256)
    files.write(files.proposal, new.encode())
    files.write(files.markdown, review.markdown(new, files.before, placement.gates, command).encode())
    result: Result = {"changed": not repeated, "sha256": new.sha256}
    if files.dry and not repeated:
        return {**result, "msg": "check mode writes no proposal; run discover without --check to write one"}
    msg = f"review {files.markdown}, accept it with: {command}"
    return {**result, "proposal_file": files.proposal, "review_file": files.markdown, "msg": msg}


def _summary(placement: Placement, state: State) -> dict[str, int]:
    trays, kinds = placement.fabric.trays, Counter(change["kind"] for change in placement.changes)
    # A tray of a pending proposal is unplaced until it is accepted, and is counted as placed here.
    states = Counter(row["state"] for name, row in state.trays.items() if row["state"] != UNPLACED or name not in trays)
    counted: dict[str, Any] = {word: states[word] for word in (STALE, CONFLICT, UNPLACED)}
    return {"trays": len(trays), "placed": kinds["placed"], "moved": kinds["moved"], **counted}
