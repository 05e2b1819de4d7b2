# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each state of the module fabric_file does to the files; each function returns the result of the module.

`diff` is a list of lines: the action shows them with --diff only.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import editing, fabric_file, proposal, review
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
    Earlier,
    Placement,
    mark_accepted,
    mark_pending,
    place,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy

_NO_PROPOSAL: Result = {"proposal_file": None, "review_file": None, "diff": []}
_NOTHING: Result = {"changed": False, "changes": [], "findings": [], "diff": []}


def checked(files: Files) -> Result:
    """Check the fabric file."""
    files.read()
    files.check_groups(files.before)
    return {**_NOTHING, "msg": f"{files.path} and the options of placement are valid"}


def pending(files: Files, proposal_file: str | None) -> Result:
    """The pending proposal for a person who decides about it; proposal_file: where it is not at its usual path."""
    files.read()
    file = proposal_file or files.proposal
    found = proposal.accept(files.path, None, files.base, file)
    after = fabric_file.parse(found.data, file)
    rows = review.rows(found.changes, {})
    return {
        **_NOTHING,
        "sha256": found.sha256,
        "proposal_file": file,
        "changes": found.changes,
        "objections": found.objections,
        "lines": [
            *(review.table(rows, files.markdown) or proposal.structure_diff(files.before, after)),
            *review.objection_lines(found.objections),
            files.difference(found.sha256),
        ],
        "msg": f"nothing is accepted; accept the proposal with: {files.accept_command(found.sha256, proposal_file)}",
    }


def accepted(files: Files, sha256: str, proposal_file: str | None) -> Result:
    """Make the proposal with this sha256 the fabric file; proposal_file: where it is not at its usual path."""
    files.read()
    outcome: Result = {**_NOTHING, "sha256": sha256, "proposal_file": None, "objections": []}
    if files.sha256 == sha256:
        return {**outcome, "msg": f"{files.path} is already the proposal with sha256 {sha256}"}
    found = proposal.accept(files.path, sha256, files.base, proposal_file or files.proposal)
    fabric = fabric_file.parse(found.data, files.path)
    files.write_fabric(found.data, fabric, "accepted")
    if files.state:
        files.write_state(replace(mark_accepted(files.state, fabric), written_at=files.now))
    files.drop_proposal()
    becomes = "would be" if files.dry else "is now"
    return {
        **outcome,
        "sha256": found.sha256,
        "changes": found.changes,
        "objections": found.objections,
        "changed": True,
        "diff": [*proposal.diff_text(files.fabric, fabric, found.changes), files.difference(found.sha256)],
        "msg": f"{files.path} {becomes} the proposal with sha256 {found.sha256}{files.to_sign()}",
    }


def edited(
    files: Files, rename: Mapping[str, str], remove: Collection[str], groups: Mapping[str, Collection[str]]
) -> Result:
    """Rename and remove trays, and group cliques (see editing.py); remove: hostlists, names of cliques and domains."""
    files.read()
    before = files.fabric
    if before is None:
        raise fabric_file.FabricFileError(f"{files.path}: does not exist; name a fabric file that discover wrote")
    after, renamed = editing.rename(before, rename, files.now[:10])
    removing = [tray for names in remove for tray in after.trays_of(names)]
    after, removed = editing.remove(after, removing, files.now[:10])
    after, grouped = editing.group(after, groups)
    changes = [*renamed, *removed]
    if not (changes or grouped):
        return {**_NOTHING, "sha256": files.sha256, "msg": f"nothing to change in {files.path}"}
    fabric_file.check(after.as_dict(), files.path)
    sha256 = files.write_fabric(fabric_file.serialise(after), after, "edited")
    if files.state:
        files.write_state(editing.of_state(files.state, rename, removing))
    parts = ((len(changes), "tray"), (len(grouped), "clique"))
    what = " and ".join(count(number, word) for number, word in parts if number)
    verb, goes = ("would change", "would be removed") if files.dry else ("changed", "is removed")
    void = f"; the pending proposal was made from the old file and {goes}" if files.drop_proposal() else ""
    return {
        **_NOTHING,
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
    files.read()
    merged, failure = observe(files.fabric)
    last = files.last_proposal()
    placement = _placed(files, policy, merged, files.before)
    if failure:
        # What is placed and proposed stays; without a fabric file there is nothing to keep, and nothing is written.
        if files.fabric is not None:
            files.write_state(_with_pending(files, last, placement.state))
        # Without the findings of all trays: Ansible prints the whole result of a task that fails.
        raise PlacementError(f"{failure}; correct this and discover again: no place has changed")
    refusals = placement.objections if use_gates else []
    if use_gates and not refusals and files.differ(placement.fabric):
        result = _accepted_by_gates(files, placement)
        state = mark_accepted(placement.state, placement.fabric)
    else:
        placement = _merge_with_pending(files, policy, merged, last, placement)
        if files.differ(placement.fabric):
            result = _left_for_review(files, last, placement)
            state = mark_pending(placement.state, placement.fabric, placement.changes, files.fabric)
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
    words = ", ".join(f"{summary[word]} {word}" for word in ("placed", "moved", "stale", "conflict", "unplaced"))
    msg = f"{count(summary['trays'], 'tray')}, {words}: {result['msg']}"
    targets, rows = {row.tray for row in merged.observations}, review.rows(placement.changes, placement.gates)
    if refusals and fails:
        result["failed"] = True
    return {
        **result,
        "is_refused": bool(refusals),
        "lines": [
            *review.table(rows, files.markdown if result["proposal_file"] else "the result of this task"),
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
            *proposal.diff_text(files.fabric, placement.fabric, placement.changes),
            *result["diff"],
            *proposal.state_diff_text(files.state, state),
        ],
        "msg": msg,
    }


def _placed(files: Files, policy: Policy, merged: Merged, fabric: Fabric, earlier: Earlier | None = None) -> Placement:
    """The placement from this fabric; FabricFileError where the file that is to be written would be invalid."""
    targets = {row.tray for row in merged.observations}
    placement = place(fabric, files.state, merged.observations, targets, files.now, policy, merged, earlier)
    if files.differ(placement.fabric):
        fabric_file.check(placement.fabric.as_dict(), files.path)
    return placement


def _with_pending(files: Files, last: proposal.Proposal | None, state: State) -> State:
    """The state where the pending proposal stays as it is."""
    with contextlib.suppress(fabric_file.FabricFileError):
        if last is not None and last.base_sha256 == files.sha256:
            return mark_pending(state, fabric_file.parse(last.data, files.path), last.changes, files.fabric)
    return state


def _merge_with_pending(
    files: Files, policy: Policy, merged: Merged, last: proposal.Proposal | None, placement: Placement
) -> Placement:
    """The placement, merged with the changes of the pending proposal for trays that are not targets of this run.

    Job slices thus add to one proposal. Never done with accept=gates: gates must not accept changes that another run
    left for review.
    """
    if last and last.base_sha256 == files.sha256:
        targets, before = {row.tray for row in merged.observations}, files.before
        changes = [change for change in last.changes if change["tray"] not in targets]
        # Where trays of both claim the same GPU or address, only a run on both can resolve it.
        with contextlib.suppress(fabric_file.FabricFileError):
            pending = fabric_file.parse(last.data, files.path)
            if changes or kept_domains(before, pending, targets):
                combined = merge_pending(before, pending, targets)
                fabric_file.check(combined.as_dict(), files.path)
                overridden = [row for row in pending.overrides if row not in before.overrides]
                earlier = Earlier(before, changes, last.old, overridden)
                return _placed(files, policy, merged, combined, earlier)
    return placement


def _unchanged(files: Files) -> Result:
    return {
        **_NO_PROPOSAL,
        "changed": files.drop_proposal(),
        "sha256": files.sha256,
        "msg": f"no change of places in {files.path}" if files.base else "no tray has a place yet",
    }


def _accepted_by_gates(files: Files, placement: Placement) -> Result:
    sha256 = files.write_fabric(fabric_file.serialise(placement.fabric), placement.fabric, "gates")
    files.drop_proposal()
    return {
        **_NO_PROPOSAL,
        "changed": True,
        "sha256": sha256,
        "diff": [files.difference(sha256)],
        "msg": f"accepted into {files.path} with sha256 {sha256}{files.to_sign()}",
    }


def _left_for_review(files: Files, last: proposal.Proposal | None, placement: Placement) -> Result:
    """Write the proposal, unless the pending one is the same."""
    new = proposal.propose(
        files.base,
        placement.fabric,
        placement.changes,
        placement.objections,
        files.now,
        placement.old,
    )
    repeated = last is not None and new.repeats(last)
    if last and repeated:
        new = last
    else:
        files.write_proposal(new)
    command = files.accept_command(new.sha256)
    after = fabric_file.parse(new.data, files.path)
    files.write_markdown(
        review.markdown(new, files.before, after, review.rows(placement.changes, placement.gates), command)
    )
    is_written = repeated or not files.dry
    msg = "check mode writes no proposal; run discover without --check to write one"
    if is_written:
        msg = f"review {files.markdown}, accept it with: {command}"
    return {
        "changed": not repeated,
        "sha256": new.sha256,
        "proposal_file": files.proposal if is_written else None,
        "review_file": files.markdown if is_written else None,
        "diff": [files.difference(new.sha256)],
        "msg": msg,
    }


def _summary(placement: Placement, state: State) -> dict[str, int]:
    trays, kinds = placement.fabric.trays, Counter(change["kind"] for change in placement.changes)
    # A tray of a pending proposal is unplaced until it is accepted, and is counted as placed here.
    states = Counter(row["state"] for name, row in state.trays.items() if row["state"] != UNPLACED or name not in trays)
    counted: dict[str, Any] = {word: states[word] for word in (STALE, CONFLICT, UNPLACED)}
    return {"trays": len(trays), "placed": kinds["placed"], "moved": kinds["moved"], **counted}
