# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Propose, accept and edit the fabric file on the controller; the module of the same name documents it."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.modules.fabric_file import ARGUMENT_SPEC, REQUIRED_IF
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    audit,
    editing,
    fabric_file,
    proposal,
    review,
    signature,
    storage,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import (
    Answer,
    Merged,
    merge,
    percent,
    query,
    too_few,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    CONFLICT,
    STALE,
    UNPLACED,
    Change,
    Fabric,
    Observation,
    State,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.pending import kept_domains, merge_pending
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Earlier, Placement, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.states import mark_accepted, mark_pending
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ansible_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import (
    CLUSTER_NAME,
    HOST_ADDRESS,
    NODE_NAME,
    absolute,
    nearest,
    shown,
)

display = Display()

# Default of min_answer for live sources, in percent.
_MIN_LIVE_ANSWER = 50.0

_WORD = re.compile(r"\w+")
# The variables by which the playbook discover sets the options of this module.
_VARIABLES = {"imex_network"} | {
    f"fabric_{option}" for option in ARGUMENT_SPEC if option not in ("fabric_file", "trays")
}


class ActionModule(GuardedAction):
    """Read registered results and write fabric file, state file and proposal. Connects to no host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def act(self, task_vars: Variables) -> Result:
        try:
            return self._act(task_vars)
        except NvlinkError as error:
            raise AnsibleActionFail(_with_variable(str(error), task_vars)) from None

    def _act(self, task_vars: Variables) -> Result:
        _check_required(self._task.args)
        _check_values(self._task.args)
        uses_hosts = ansible_facts.SOURCE in map(str, _as_list(self._task.args.get("sources", [ansible_facts.SOURCE])))
        required_if = REQUIRED_IF if uses_hosts else [row for row in REQUIRED_IF if row[1] != "proposed"]
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC, required_if=required_if)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = absolute(options["fabric_file"])
        try:
            awx = (trust.controller_value(task_vars, name) for name in ("awx_user_name", "awx_job_id"))
            files = _Files(path, options["state_dir"], now, self._task.check_mode, audit.who(*awx))
            files.groups = set(task_vars.get("groups") or ())
            with files.locked(options) if options["state"] != "checked" else contextlib.nullcontext():
                observe = functools.partial(_observe, self, options, task_vars, now)
                done = _STATES[options["state"]](files, options, observe)
        except ImportError as error:
            raise AnsibleActionFail(
                f"sources: the Python library {error.name} is missing on the controller; "
                "install the collection's requirements.txt"
            ) from error
        differences = done.pop("diff")
        if self._task.diff and differences:
            done["diff"] = {"prepared": "".join(f"{line}\n" for line in differences)}
            # Ansible shows the difference of a task that changes something, but not where the same proposal lies there.
            if not done["changed"] and "lines" in done:
                done["lines"] = [*differences, *done["lines"]]
        return {"fabric_file": path, **done}


def _with_variable(message: str, task_vars: Variables) -> str:
    """The message about an option, under the name of the variable by which the playbook discover was given it."""
    option = message.partition(":")[0]
    variable = f"fabric_{option}"
    if variable in _VARIABLES and trust.controller_value(task_vars, variable) is not None:
        return f"fabric_{message}"
    return message


# Ansible's own messages about these name a Python class, or only what is allowed: option -> an example.
_HOSTLISTS = {"expected": "r01t[01-18]", "groups": "r[01-04]"}
_NUMBERS = {
    "min_answer": "a percentage, such as 80",
    "moved_percent": "a percentage, such as 10",
    "max_age": "seconds, such as 3600",
    "expected_trays": "a number of trays, such as 18",
}


def _check_values(arguments: Arguments) -> None:
    """Raise an error with a remedy for a value of a wrong type."""
    for option, example in _NUMBERS.items():
        value = arguments.get(option)
        try:
            wrong = isinstance(value, bool) or (value is not None and not math.isfinite(float(value)))
        except (TypeError, ValueError):
            wrong = True
        if wrong:
            raise PlacementError(f"{option}: {shown(value)} is not a number; write {example}")
    accept = arguments.get("accept")
    if accept not in (None, "gates"):
        raise PlacementError(
            f"accept: {shown(accept)} is not known; write gates to accept a proposal to which no gate objects, or "
            "leave it out to write a proposal for review"
        )
    for option in ("domain_names", "expected", "rename", "groups"):
        value = arguments.get(option)
        if value is not None and not isinstance(value, (Mapping, str)):
            raise PlacementError(f"{option}: {shown(value)} is not a mapping; write NAME: VALUE lines below it")


def _check_required(arguments: Arguments) -> None:
    """Raise an error with a remedy for a missing option: Ansible's own message names the option only."""
    if not (arguments.get("fabric_file") or arguments.get("path")):
        raise AnsibleActionFail("fabric_file: is not set; set its path, such as /srv/site/fabric.json")
    if arguments.get("state") == "accepted" and not arguments.get("proposal"):
        raise AnsibleActionFail("proposal: is not set; set the sha256 of the proposal, as state=proposed returned it")


class _Files:
    """The fabric file with its state file and proposal. Writes nothing if dry."""

    def __init__(self, path: str, state_dir: str | None, now: str, dry: bool, who: Mapping[str, str]) -> None:
        if state_dir and not os.path.isabs(state_dir):
            raise fabric_file.FabricFileError(
                f"state_dir: {state_dir!r} is not an absolute path; set one, such as /var/lib/nvlink"
            )
        # All files stay next to each other, and two runs lock the same one, also by a symbolic link.
        self.path, self.state_dir, self.now, self.dry = os.path.realpath(path), state_dir or None, now, dry
        self.proposal = proposal.proposal_path(path, self.state_dir)
        self.markdown = f"{self.proposal.removesuffix('.json')}.md"
        self._who = who
        # Of the inventory, which no tray may be named like.
        self.groups: set[str] = set()
        self.base: bytes | None = None
        self.fabric: Fabric | None = None
        self.state: State | None = None

    @contextlib.contextmanager
    def locked(self, options: Arguments) -> Iterator[None]:
        """The locks against other writers of the files that a run may write; a dry run needs none.

        With state_dir a run that only proposes takes the lock there, as the folder of the fabric file may be read-only.
        """
        proposes = options["state"] == "proposed" and options["accept"] is None
        own = [] if self.state_dir and proposes else [self.path]
        state = [fabric_file.companion(self.path, "json", self.state_dir)] if self.state_dir else []
        remedy = ", or set fabric_state_dir to a folder that is" if proposes and not self.state_dir else ""
        with contextlib.ExitStack() as stack:
            for path in () if self.dry else dict.fromkeys([*own, *state]):
                stack.enter_context(storage.locked(path, self.now, remedy))
            yield

    def read(self) -> None:
        """Read the files; the bytes of the fabric file are kept, since a proposal is made from exactly these."""
        self.base = fabric_file.read_signed(self.path) if os.path.exists(self.path) else None
        self.fabric = None if self.base is None else fabric_file.parse(self.base, self.path)
        self.state = fabric_file.load_state(self.path, self.state_dir)

    @property
    def sha256(self) -> str | None:
        """The sha256 of the current fabric file; None where there is none."""
        return None if self.base is None else fabric_file.digest(self.base)

    def differ(self, fabric: Fabric) -> bool:
        """Whether this fabric differs from the file in content; the layout of the file does not matter."""
        return fabric.as_dict() != (self.fabric or Fabric()).as_dict()

    def write_fabric(self, data: bytes, fabric: Fabric, what: str) -> None:
        """Write the fabric file, after a line in the audit log; the old one becomes <path>.previous.

        data: the bytes of the fabric. what: the word for the audit log.
        """
        fabric_file.check_groups(fabric, self.groups, self.path)
        if not self.dry:
            known = self.fabric.overrides if self.fabric else []
            overrides = [row for row in fabric.overrides if row not in known]
            audit.record(self.path, self._who, self.now, what, self.sha256, fabric_file.digest(data), overrides)
            if self.base is not None:
                storage.write_atomic(f"{self.path}.previous", self.base)
            storage.write_atomic(self.path, data)
            # It was that of the old file; ssh-keygen asks before it replaces one.
            if os.path.exists(signature.signature_path(self.path)):
                storage.remove(signature.signature_path(self.path))

    def write_state(self, state: State) -> None:
        if not self.dry:
            storage.write_atomic(fabric_file.state_path(self.path, self.state_dir), fabric_file.serialise(state))

    def write_proposal(self, proposed: proposal.Proposal) -> None:
        if not self.dry:
            storage.write_atomic(self.proposal, proposed.encode())

    def write_markdown(self, text: str) -> None:
        """Write the proposal's Markdown, unless it is there."""
        if not self.dry and not _has(self.markdown, text.encode()):
            storage.write_atomic(self.markdown, text.encode())

    def drop_proposal(self) -> bool:
        """Remove the proposal and its Markdown, if there is one; whether there was one."""
        exists = os.path.exists(self.proposal)
        for file in (self.proposal, self.markdown):
            if os.path.exists(file) and not self.dry:
                storage.remove(file)
        return exists

    def last_proposal(self) -> proposal.Proposal | None:
        """The pending proposal; None also for an invalid one, which is replaced."""
        with contextlib.suppress(fabric_file.FabricFileError):
            return proposal.load_proposal(self.proposal)
        return None


def _has(path: str, data: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == data
    except OSError:
        return False


def _checked(files: _Files, options: Arguments, observe: Callable[..., Any]) -> Result:
    files.read()
    fabric_file.check_groups(files.fabric or Fabric(), files.groups, files.path)
    _policy(options)
    _sources(options)
    if options["min_answer"] is not None:
        percent("min_answer", options["min_answer"])
    msg = f"{files.path} and the options of placement are valid"
    return {"changed": False, "changes": [], "findings": [], "diff": [], "msg": msg}


def _accepted(files: _Files, options: Arguments, observe: Callable[..., Any]) -> Result:
    files.read()
    sha256 = options["proposal"]
    outcome: Result = {
        "sha256": sha256,
        "proposal_file": None,
        "changes": [],
        "objections": [],
        "findings": [],
        "diff": [],
    }
    if files.sha256 == sha256:
        return {**outcome, "changed": False, "msg": f"{files.path} is already the proposal with sha256 {sha256}"}
    accepted = proposal.accept(files.path, sha256, files.base, options["proposal_file"] or files.proposal)
    fabric = fabric_file.parse(accepted.data, files.path)
    files.write_fabric(accepted.data, fabric, "accepted")
    if files.state:
        files.write_state(replace(mark_accepted(files.state, fabric), written_at=files.now))
    files.drop_proposal()
    becomes = "would be" if files.dry else "is now"
    return {
        **outcome,
        "sha256": accepted.sha256,
        "changes": accepted.changes,
        "objections": accepted.objections,
        "changed": True,
        "diff": [*proposal.diff_text(files.fabric, fabric, accepted.changes), _header(files, accepted.sha256)],
        "msg": f"{files.path} {becomes} the proposal with sha256 {accepted.sha256}{_to_sign(files.path)}",
    }


def _to_sign(path: str) -> str:
    """What remains to do where the site requires a signature."""
    return f"; sign it before the next run: {signature.command(path)}" if signature.required() else ""


def _proposed(files: _Files, options: Arguments, observe: Callable[[Fabric | None], tuple[Merged, str]]) -> Result:
    policy = replace(_policy(options), groups=files.groups)
    files.read()
    merged, failure = observe(files.fabric)
    observations = merged.observations
    targets = {observation.tray for observation in observations}

    def place_on(fabric: Fabric, earlier: Earlier | None = None) -> Placement:
        placement = place(
            fabric,
            files.state,
            observations,
            targets,
            files.now,
            policy,
            merged.findings,
            merged.blocks,
            merged.unclaimed,
            earlier,
        )
        if files.differ(placement.fabric):
            # The file that is to be written must be valid.
            fabric_file.check(placement.fabric.as_dict(), files.path, files.fabric)
        return placement

    placement = place_on(files.fabric or Fabric())
    if failure:
        _keep_places(files, placement)
        # Without the findings of all trays: Ansible prints the whole result of a task that fails.
        raise PlacementError(f"{failure}; correct this and discover again: no place has changed")
    use_gates = options["accept"] == "gates"
    refusals = placement.objections if use_gates else []
    if use_gates and not refusals and files.differ(placement.fabric):
        result = _accepted_by_gates(files, placement)
    else:
        last = files.last_proposal()
        placement = _merge_with_pending(files, last, placement, targets, place_on)
        differs = files.differ(placement.fabric)
        result = _left_for_review(files, last, placement, refusals, policy) if differs else _unchanged(files)
    state = (
        mark_pending(placement.state, placement.fabric, placement.changes, files.fabric)
        if result.pop("is_pending", False)
        else mark_accepted(placement.state, placement.fabric)
    )
    result["changed"] |= files.state is None or files.state.fingerprint() != state.fingerprint()
    files.write_state(state)
    summary = _summary(placement.fabric, state, placement.changes)
    differences = [
        *proposal.diff_text(files.fabric, placement.fabric, placement.changes),
        *result.pop("diff"),
        *proposal.state_diff_text(files.state, state),
    ]
    msg = f"{_counts(summary)}: {result['msg']}"
    rows = _rows(files, placement, placement.objections, policy, placement.old)
    if result.setdefault("is_refused", False) and options["on_objection"] == "fail":
        result["failed"] = True
    return {
        **result,
        "lines": [
            *review.table(rows, files.markdown if result["proposal_file"] else "the result of this task"),
            *(f"gate {row['code']} objects: {row['message']}" for row in placement.objections),
            *review.state_lines(placement.fabric, state, targets),
            msg,
        ],
        "changes": placement.changes,
        "objections": placement.objections,
        "findings": placement.findings,
        "warnings": [row["message"] for row in merged.findings],
        "summary": summary,
        "diff": differences,
        "msg": msg,
    }


def _keep_places(files: _Files, placement: Placement) -> None:
    """Where too few trays answered, what is placed and proposed stays as it is, and the state is written.

    Without a fabric file there is nothing to keep, and nothing is written.
    """
    if files.fabric is None:
        return
    state, last = placement.state, files.last_proposal()
    with contextlib.suppress(fabric_file.FabricFileError):
        if last is not None and last.base_sha256 == files.sha256:
            state = mark_pending(state, fabric_file.parse(last.data, files.path), last.changes, files.fabric)
    files.write_state(state)


def _rows(
    files: _Files, placement: Placement, objections: Sequence[Finding], policy: Policy, old: Collection[str]
) -> list[review.Row]:
    fabrics = (files.fabric or Fabric(), placement.fabric)
    return review.rows(placement.changes, objections, fabrics, policy.expected_in, old)


def _merge_with_pending(
    files: _Files,
    last: proposal.Proposal | None,
    placement: Placement,
    targets: Collection[str],
    place_on: Callable[[Fabric, Earlier], Placement],
) -> Placement:
    """The placement, merged with the changes of the pending proposal for trays that are not targets of this run.

    Job slices thus add to one proposal. Never done with accept=gates: gates must not accept changes that another run
    left for review.
    """
    if last and last.base_sha256 == files.sha256:
        earlier = [change for change in last.changes if change["tray"] not in targets]
        fabric = files.fabric or Fabric()
        # Where trays of both claim the same GPU or address, only a run on both can resolve it.
        with contextlib.suppress(fabric_file.FabricFileError):
            pending = fabric_file.parse(last.data, files.path)
            if not (earlier or kept_domains(fabric, pending, targets)):
                return placement
            combined = merge_pending(fabric, pending, targets)
            fabric_file.check(combined.as_dict(), files.path)
            overridden = [row for row in pending.overrides if row not in fabric.overrides]
            return place_on(combined, Earlier(fabric, earlier, last.mixed, last.old, overridden))
    return placement


def _unchanged(files: _Files) -> Result:
    return {
        "changed": files.drop_proposal(),
        "sha256": files.sha256,
        "proposal_file": None,
        "review_file": None,
        "diff": [],
        "msg": f"no change of places in {files.path}" if files.base else "no tray has a place yet",
    }


def _accepted_by_gates(files: _Files, placement: Placement) -> Result:
    data = fabric_file.serialise(placement.fabric)
    sha256 = fabric_file.digest(data)
    files.write_fabric(data, placement.fabric, "gates")
    files.drop_proposal()
    return {
        "changed": True,
        "sha256": sha256,
        "proposal_file": None,
        "review_file": None,
        "diff": [_header(files, sha256)],
        "msg": f"accepted into {files.path} with sha256 {sha256}{_to_sign(files.path)}",
    }


def _left_for_review(
    files: _Files,
    last: proposal.Proposal | None,
    placement: Placement,
    refusals: list[Finding],
    policy: Policy,
) -> Result:
    """Write the proposal, unless the pending one is the same; with accept=gates an objection fails the task."""
    new = proposal.propose(
        files.base,
        placement.fabric,
        placement.changes,
        placement.objections,
        files.now,
        placement.mixed,
        placement.old,
    )
    repeated = last is not None and new.repeats(last)
    if last and repeated:
        new = last
    else:
        files.write_proposal(new)
    command = _accept_command(files, new.sha256)
    rows = _rows(files, placement, new.objections, policy, new.old)
    before = files.fabric or Fabric()
    files.write_markdown(review.markdown(new, before, fabric_file.parse(new.data, files.path), rows, command))
    is_written = repeated or not files.dry
    result: Result = {
        "changed": not repeated,
        "is_pending": True,
        "sha256": new.sha256,
        "proposal_file": files.proposal if is_written else None,
        "review_file": files.markdown if is_written else None,
        "diff": [_header(files, new.sha256)],
        "msg": f"review {files.markdown}, accept it with: {command}"
        if is_written
        else "check mode writes no proposal; run discover without --check to write one",
    }
    if refusals:
        names = sorted({row["code"] for row in refusals})
        reasons = "; ".join(row["message"].rstrip(".") for row in refusals)
        result["is_refused"] = True
        result["msg"] = (
            f"not accepted: {'gate' if len(names) == 1 else 'gates'} {', '.join(names)} ({reasons}); {result['msg']}"
        )
    return result


def _edited(files: _Files, options: Arguments, observe: Callable[..., Any]) -> Result:
    files.read()
    before = files.fabric
    if before is None:
        raise fabric_file.FabricFileError(f"{files.path}: does not exist; name a fabric file that discover wrote")
    today, rename = files.now[:10], {str(old): str(new) for old, new in (options["rename"] or {}).items()}
    after, renamed = editing.rename(before, rename, today)
    remove = [tray for names in options["remove"] or [] for tray in after.trays_of(names)]
    after, removed = editing.remove(after, remove, today)
    changes: list[Change] = [*renamed, *removed]
    groups = {str(name): _names("groups", name, members) for name, members in (options["groups"] or {}).items()}
    after, grouped = editing.group(after, groups)
    outcome: Result = {"changed": bool(changes or grouped), "changes": changes, "findings": [], "diff": []}
    if not outcome["changed"]:
        return {**outcome, "sha256": files.sha256, "msg": f"nothing to change in {files.path}"}
    fabric_file.check(after.as_dict(), files.path, before)
    data = fabric_file.serialise(after)
    files.write_fabric(data, after, "edited")
    if files.state:
        files.write_state(editing.of_state(files.state, rename, remove))
    parts = ((len(changes), "tray"), (len(grouped), "clique"))
    what = " and ".join(count(number, word) for number, word in parts if number)
    verb, goes = ("would change", "would be removed") if files.dry else ("changed", "is removed")
    void = f"; the pending proposal was made from the old file and {goes}" if files.drop_proposal() else ""
    return {
        **outcome,
        "sha256": fabric_file.digest(data),
        "diff": [*(f"{change['tray']}: {change['why']}" for change in changes), *grouped],
        "lines": grouped,
        "msg": f"{what} {verb} in {files.path}{void}{_to_sign(files.path)}",
    }


_STATES: dict[str, Callable[..., Result]] = {
    "proposed": _proposed,
    "accepted": _accepted,
    "edited": _edited,
    "checked": _checked,
}


def _policy(options: Arguments) -> Policy:
    return Policy(
        imex_networks=tuple(options["imex_network"]),
        # YAML reads an unquoted serial as a number.
        domain_names={str(key): str(name) for key, name in options["domain_names"].items()},
        expected_trays=options["expected_trays"],
        moved_percent=options["moved_percent"],
        conflict_policy=options["conflict_policy"],
        tray_partitions=options["tray_partitions"],
        expected={str(name): _names("expected", name, trays) for name, trays in options["expected"].items()},
        max_age=options["max_age"],
        override=tuple(options["override"]),
    )


def _names(option: str, key: Any, given: Any) -> list[str]:
    """The names below a key of an option: a hostlist, or a list of hostlists."""
    try:
        return [name for text in _as_list(given) for name in expand(str(text))]
    except HostlistError as error:
        raise PlacementError(
            f"{option}: {key} is not a hostlist ({str(error).rstrip('.')}); write it as {_HOSTLISTS[option]}"
        ) from None


def _sources(options: Arguments) -> list[tuple[str, Any]]:
    """The names of the sources with their options, in the order of trust, without the fabric file."""
    rows = []
    for row in options["sources"]:
        if isinstance(row, Mapping) and len(row) == 1:
            rows.append(next(iter(row.items())))
        elif isinstance(row, str):
            rows.append((row, None))
        else:
            raise SourceError(
                f"sources: {shown(row)} is neither a name nor a name with its options; write ssh, or ssh: "
                "with the options below it"
            )
    known = (ansible_facts.SOURCE, *sources.KNOWN)
    for number, (name, own) in enumerate(rows):
        if name not in known:
            raise SourceError(f"sources: {shown(name)} is not a known source{nearest(name, known)}")
        if name in [other for other, _own in rows[:number]]:
            raise SourceError(f"sources: {name} is listed twice; list it once")
        if own is not None and name not in sources.LIVE:
            raise SourceError(f"sources: {name} has no options here; write its name only")
    selected = [(str(name), own) for name, own in rows if name != sources.FABRIC_FILE]
    if not selected:
        raise SourceError("sources: has no live source; add ansible_facts, ssh or another live source")
    return selected


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _header(files: _Files, sha256: str) -> str:
    return f"{files.path}: sha256 {files.sha256 or 'none'} -> {sha256}"


def _accept_command(files: _Files, sha256: str) -> str:
    words = ["ansible-playbook", "rackscale.nvlink.accept", "-e", f"fabric_file={files.path}"]
    if files.state_dir:
        words += ["-e", f"fabric_state_dir={files.state_dir}"]
    return shlex.join([*words, "-e", f"fabric_proposal={sha256}"])


def _summary(fabric: Fabric, state: State, changes: list[Any]) -> dict[str, int]:
    kinds = Counter(change["kind"] for change in changes)
    # A tray of a pending proposal is unplaced until it is accepted, and is counted as placed here.
    states = Counter(
        tray["state"] for name, tray in state.trays.items() if tray["state"] != UNPLACED or name not in fabric.trays
    )
    counted = {word: states[word] for word in (STALE, CONFLICT, UNPLACED)}
    return {"trays": len(fabric.trays), "placed": kinds["placed"], "moved": kinds["moved"], **counted}


def _counts(summary: Mapping[str, int]) -> str:
    words = ", ".join(f"{summary[word]} {word}" for word in ("placed", "moved", "stale", "conflict", "unplaced"))
    return f"{count(summary['trays'], 'tray')}, {words}"


# --- observations ---


def _observe(
    action: GuardedAction, options: Arguments, task_vars: Variables, now: str, fabric: Fabric | None
) -> tuple[Merged, str]:
    """Query the sources and merge their answers; why they are too few for a discovery, empty if they are enough.

    An outage of a source among others is an error only without a fabric file.
    """
    known = {name: tray.get("ansible_host") or name for name, tray in (fabric or Fabric()).trays.items()}
    min_answer = None if options["min_answer"] is None else percent("min_answer", options["min_answer"])
    hosts = _Hosts(action, task_vars)
    answers = []
    for name, own in _sources(options):
        if name == ansible_facts.SOURCE:
            # The play may include hosts that are always off, so min_answer applies only if it is set. Where this is the
            # only source, too_few() applies it, with and without a fabric file.
            rows = hosts.registered(options["trays"], options["observations"])
            answer = Answer(name, rows, measured=min_answer is not None and len(options["sources"]) > 1)
        else:
            expected = None if name in sources.TRAY_SOURCES else known
            answer = query(name, functools.partial(sources.observe, name, own, now, known, display), expected)
            answer = replace(answer, hints=name in sources.HINTS)
            if not answer.hints:
                answer = replace(answer, observations=[hosts.applied(row) for row in answer.observations])
        answers.append(answer)
    current = fabric or Fabric()
    nodes = {name: tray["slurm_node"] for name, tray in current.trays.items()}
    blocks = {block.name for cluster in (None, *current.slurm_clusters) for block in current.blocks(cluster)}
    limit = _MIN_LIVE_ANSWER if min_answer is None else min_answer
    merged = merge(answers, limit, fabric is not None, nodes, blocks)
    return merged, too_few(answers, merged, current.trays, min_answer)


class _Hosts:
    """What Ansible holds of each host: the registered result, and the variables that the site sets for it.

    Only those variables, which the site itself wrote, are templated. A host whose facts set a variable of this
    collection is refused: neither its settings nor any answer about it are used.
    """

    def __init__(self, action: GuardedAction, task_vars: Variables) -> None:
        self._action, self._hostvars = action, task_vars.get("hostvars")

    def registered(self, trays: Sequence[str], register: str) -> list[Observation]:
        """An observation of each tray with its settings, from the results that a task of this run has registered.

        The variables are read without templating: the answer of a tray must never be a template, and templating is
        slow for ten thousand hosts.
        """
        if not trays:
            raise PlacementError(
                "trays: is empty, so no tray was observed in this run; check the pattern of the trays and --limit"
            )
        observations, registered = [], False
        own, misplaced = self._variables("localhost") or {}, set()
        for name in map(str, trays):
            variables = self._variables(name)
            if variables is None:
                raise PlacementError(f"trays: {shown(name)} is not a host of the inventory; correct the list")
            registered = registered or register in variables
            observations.append(self._applied(ansible_facts.observe(name, variables.get(register)), variables))
            differ = {row for row in variables.keys() & _VARIABLES if variables[row] != own.get(row)}
            if differ and not trust.foreign_variables(variables.get("ansible_facts")):
                misplaced |= differ
        if misplaced:
            # Ignored without a word, these would silently lose their effect.
            raise PlacementError(
                f"{', '.join(sorted(misplaced))}: set for trays with another value than for localhost, where it is "
                "read; set it for the group all, for localhost or on the command line"
            )
        if not registered:
            # A misspelt name of the variable must not make every tray stale.
            raise PlacementError(
                f"observations: no tray has a result registered as {register!r}; set the name that this run registers"
            )
        return observations

    def applied(self, observation: Observation) -> Observation:
        """The observation with the node names, address and clusters that the site sets for its tray."""
        variables = self._variables(observation.tray)
        return observation if variables is None else self._applied(observation, variables)

    def _applied(self, observation: Observation, variables: Variables) -> Observation:
        foreign = trust.foreign_variables(variables.get("ansible_facts"))
        if foreign:
            return ansible_facts.refuse(observation.tray, observation.source, foreign)
        site = _HostVariables(self._action, observation.tray, variables)
        try:
            values = {
                "slurm_node": site.node("fabric_slurm_node"),
                "kubernetes_node": site.node("fabric_kubernetes_node"),
                "slurm_cluster": site.cluster("fabric_slurm_cluster"),
                "kubernetes_cluster": site.cluster("fabric_kubernetes_cluster"),
                "ansible_host": site.address(),
            }
        except _OverriddenError as error:
            return ansible_facts.refuse(observation.tray, observation.source, error.names)
        changes: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
        return replace(observation, **changes) if changes else observation

    def _variables(self, name: str) -> Variables | None:
        """The variables of a host, not templated; None for a name that is not in the inventory."""
        if self._hostvars is None or name not in self._hostvars:
            return None
        found: Variables = self._hostvars.raw_get(name)
        return found


class _OverriddenError(Exception):
    """Facts of a host have the names of variables that a template of the site uses."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names


class _HostVariables:
    """The site's variables of one host. Their templates see no facts, by which a tray could take another's name."""

    def __init__(self, action: GuardedAction, host: str, variables: Variables) -> None:
        self._action, self._host, self._variables = action, host, variables

    def node(self, variable: str) -> str | None:
        """A node name; PlacementError for an expression that fails or an invalid name."""
        return self._name(variable, NODE_NAME, "not a host name")

    def cluster(self, variable: str) -> str | None:
        """A cluster name, empty for a tray in no cluster; PlacementError as in node()."""
        return self._name(variable, CLUSTER_NAME, "not a cluster name", none="")

    def _name(self, variable: str, form: re.Pattern[str], wrong: str, none: str | None = None) -> str | None:
        try:
            value = self._value(variable)
        except AnsibleError as error:
            raise PlacementError(
                f"{variable}: cannot be evaluated for {self._host} ({error}); use variables of the inventory, no facts"
            ) from None
        if value is None or value == none:
            return none if value == none else None
        if not form.fullmatch(str(value)):
            raise PlacementError(f"{variable}: is {str(value)[:80]!r} for {self._host}, which is {wrong}; correct it")
        return str(value)

    def address(self) -> str | None:
        """The address that Ansible connects to; None if it is not set or cannot be evaluated."""
        with contextlib.suppress(AnsibleError):
            value = self._value("ansible_host")
            if isinstance(value, str) and HOST_ADDRESS.fullmatch(value):
                return str(value)
        return None

    def _value(self, variable: str) -> Any:
        value = self._variables.get(variable)
        if not isinstance(value, str) or "{" not in value:
            return value
        names = {str(name) for name in self._variables.get("ansible_facts") or ()}
        # Ansible never makes this one a variable.
        hidden = {"ansible_facts", *names, *(f"ansible_{name}" for name in names)} - {"ansible_host"}
        visible = {name: own for name, own in self._variables.items() if name not in hidden}
        try:
            return self._action._templar.copy_with_new_env(available_variables=visible).template(value)
        except AnsibleError:
            used = sorted(hidden.intersection(_WORD.findall(value)))
            if used and "ansible_facts" not in used:
                raise _OverriddenError(used) from None
            raise
