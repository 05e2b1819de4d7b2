# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proposes and accepts fabric files on the controller; the module of the same name documents it."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.modules.fabric_file import ARGUMENT_SPEC, REQUIRED_IF
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import editing, fabric_file, proposal, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.gates import too_old
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Answer, Merged, ask, merge, percent
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Change,
    Fabric,
    Finding,
    Observation,
    State,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import (
    Placement,
    decided,
    mark_accepted,
    mark_pending,
    merge_pending,
    place,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ansible_facts

Result = dict[str, Any]
display = Display()

# Percent of the trays of a live source that must answer where the site does not say.
_MIN_OF_LIVE = 50.0


class ActionModule(ActionBase):
    """Registered results in, fabric file, state file and proposal out. Touches no host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Result:
        result = super().run(tmp, task_vars)
        # Null is the same as not given, so that a site can pass variables through that it leaves empty.
        self._task.args = {option: value for option, value in self._task.args.items() if value is not None}
        _say_what_is_missing(self._task.args)
        asks_hosts = ansible_facts.SOURCE in map(str, _listed(self._task.args.get("sources", [ansible_facts.SOURCE])))
        required_if = REQUIRED_IF if asks_hosts else [row for row in REQUIRED_IF if row[1] != "proposed"]
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC, required_if=required_if)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = options["fabric_file"]
        try:
            if not os.path.isabs(path):
                raise fabric_file.FabricFileError(
                    f"fabric_file: {path!r} is no absolute path; give one, such as /srv/site/fabric.json"
                )
            files = _Files(path, now, dry=self._task.check_mode)
            with files.held() if options["state"] != "checked" else contextlib.nullcontext():
                observe = functools.partial(_observe, self, options, task_vars or {}, now)
                done = _STATES[options["state"]](files, options, observe)
        except ImportError as error:
            raise AnsibleActionFail(
                f"sources: need the Python library {error.name} on the controller; "
                "install what requirements.txt of the collection names"
            ) from error
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from error
        lines = done.pop("diff")
        if self._task.diff and lines:
            done["diff"] = {"prepared": "".join(f"{line}\n" for line in lines)}
        return {**result, "fabric_file": path, **done}


def _say_what_is_missing(arguments: Mapping[str, Any]) -> None:
    """Name the variable that a playbook's user forgot: Ansible's own words name the option only."""
    if not (arguments.get("fabric_file") or arguments.get("path")):
        raise AnsibleActionFail("fabric_file: is not set; give its path, as -e fabric_file=/srv/site/fabric.json")
    if arguments.get("state") == "accepted" and not arguments.get("proposal"):
        raise AnsibleActionFail(
            "proposal: is not set; give the sha256 that discover printed, as -e fabric_proposal=SHA256"
        )


class _Files:
    """The fabric file and what stands beside it, as they are and as they are to be. Writes nothing if dry."""

    def __init__(self, path: str, now: str, dry: bool) -> None:
        self.path, self.now, self._dry = path, now, dry
        self.base: bytes | None = None
        self.fabric: Fabric | None = None
        self.state: State | None = None

    def held(self) -> contextlib.AbstractContextManager[None]:
        """The lock against other writers; who writes nothing needs none."""
        return contextlib.nullcontext() if self._dry else storage.locked(self.path, self.now)

    def read(self) -> None:
        """Read what is there. The bytes of the fabric file are kept, for a proposal is made from exactly those."""
        self.base = fabric_file.read(self.path) if os.path.exists(self.path) else None
        self.fabric = None if self.base is None else fabric_file.parse(self.base, self.path)
        self.state = fabric_file.load_state(self.path)

    @property
    def sha256(self) -> str | None:
        """Of the fabric file that is there; None where there is none."""
        return None if self.base is None else fabric_file.digest(self.base)

    def differ(self, fabric: Fabric) -> bool:
        """Whether this fabric is not the one in the file; how a person has laid the file out does not matter."""
        return fabric.as_dict() != (self.fabric or Fabric()).as_dict()

    def write_fabric(self, data: bytes) -> None:
        """Make these bytes the fabric file; what stood there becomes <path>.previous."""
        if not self._dry:
            if self.base is not None:
                storage.write_atomic(f"{self.path}.previous", self.base)
            storage.write_atomic(self.path, data)

    def write_state(self, state: State) -> None:
        if not self._dry:
            storage.write_atomic(fabric_file.state_path(self.path), fabric_file.serialise(state))

    def write_proposal(self, proposed: proposal.Proposal) -> None:
        if not self._dry:
            storage.write_atomic(proposal.proposal_path(self.path), proposed.encode())

    def drop_proposal(self) -> bool:
        """Remove a proposal that no longer says anything; whether there was one."""
        beside = proposal.proposal_path(self.path)
        there = os.path.exists(beside)
        if there and not self._dry:
            storage.remove(beside)
        return there

    def last_proposal(self) -> proposal.Proposal | None:
        """The proposal that is there; one that was tampered with counts as none, it is about to be replaced."""
        with contextlib.suppress(fabric_file.FabricFileError):
            return proposal.load_proposal(self.path)
        return None


def _checked(files: _Files, options: Mapping[str, Any], observe: Callable[..., Any]) -> Result:
    files.read()
    _policy(options)
    _sources(options)
    msg = f"{files.path} and the options of placement can be used"
    return {"changed": False, "changes": [], "findings": [], "diff": [], "msg": msg}


def _accepted(files: _Files, options: Mapping[str, Any], observe: Callable[..., Any]) -> Result:
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
        return {**outcome, "changed": False, "msg": f"{files.path} is that proposal already"}
    taken = proposal.accept(files.path, sha256, files.base)
    fabric = fabric_file.parse(taken.data, files.path)
    files.write_fabric(taken.data)
    if files.state:
        files.write_state(replace(mark_accepted(files.state, fabric), written_at=files.now))
    files.drop_proposal()
    return {
        **outcome,
        "sha256": taken.sha256,
        "changes": taken.changes,
        "objections": taken.objections,
        "changed": True,
        "diff": [*proposal.diff_text(files.fabric, fabric, taken.changes), _header(files, taken.sha256)],
        "msg": f"{files.path} is now the proposal with sha256 {taken.sha256}",
    }


def _proposed(files: _Files, options: Mapping[str, Any], observe: Callable[[Fabric | None], Merged]) -> Result:
    policy = _policy(options)
    files.read()
    merged = observe(files.fabric)
    observations = merged.observations
    targets = {observation.tray for observation in observations}

    def place_upon(fabric: Fabric) -> Placement:
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
        )
        if files.differ(placement.fabric):
            # What is going to be written must be readable again.
            fabric_file.check(placement.fabric.as_dict(), files.path, files.fabric)
        return placement

    placement = place_upon(files.fabric or Fabric())
    by_gates = options["accept"] == "gates"
    refused_by = placement.objections if by_gates else []
    if by_gates and not refused_by and files.differ(placement.fabric):
        result = _accepted_by_gates(files, placement)
    else:
        last = files.last_proposal()
        placement = _carry_on(files, last, placement, targets, place_upon, policy)
        differs = files.differ(placement.fabric)
        result = _left_to_a_person(files, last, placement, refused_by, policy) if differs else _unchanged(files)
    waits = result["proposal_file"] is not None
    state = mark_pending(placement, files.fabric) if waits else mark_accepted(placement.state, placement.fabric)
    result["changed"] |= files.state is None or files.state.fingerprint() != state.fingerprint()
    files.write_state(state)
    summary = _summary(placement.fabric, state, placement.changes)
    lines = [
        *proposal.diff_text(files.fabric, placement.fabric, placement.changes),
        *result.pop("diff"),
        *proposal.state_diff_text(files.state, state),
    ]
    return {
        **result,
        "changes": placement.changes,
        "objections": placement.objections,
        "findings": placement.findings,
        "warnings": [row["message"] for row in merged.findings],
        "summary": summary,
        "diff": lines,
        "msg": f"{_counts(summary)}: {result['msg']}",
    }


def _carry_on(
    files: _Files,
    last: proposal.Proposal | None,
    placement: Placement,
    targets: Collection[str],
    place_upon: Callable[[Fabric], Placement],
    policy: Policy,
) -> Placement:
    """The placement, with what the proposal that waits says of trays that are no targets now.

    So job slices add to one proposal. Never done for what gates accept: they must not accept what another run has left
    for a person to look at.
    """
    earlier = [change for change in last.changes if change["tray"] not in targets] if last else []
    if last and earlier and last.base_sha256 == files.sha256:
        fabric = files.fabric or Fabric()
        # Where trays of both claim one GPU or address, only a run that sees both can tell whose it is.
        with contextlib.suppress(fabric_file.FabricFileError):
            pending = fabric_file.parse(last.data, files.path)
            carried = merge_pending(fabric, pending, targets)
            fabric_file.check(carried.as_dict(), files.path)
            both = place_upon(carried)
            changes = [*earlier, *both.changes]
            others = {change["tray"] for change in earlier}
            # The gates look at all that waits together.
            step = replace(
                both.step,
                previous=fabric,
                changes=changes,
                mixed=others.intersection(last.mixed).union(both.step.mixed),
                old=others.intersection(last.old),
            )
            waiting = [row for row in pending.overrides if row not in fabric.overrides]
            return decided(replace(both, changes=changes, step=step), policy, waiting)
    return placement


def _unchanged(files: _Files) -> Result:
    return {
        "changed": files.drop_proposal(),
        "sha256": files.sha256,
        "proposal_file": None,
        "diff": [],
        "msg": f"places are unchanged in {files.path}" if files.base else "no tray has a place yet",
    }


def _accepted_by_gates(files: _Files, placement: Placement) -> Result:
    data = fabric_file.serialise(placement.fabric)
    sha256 = fabric_file.digest(data)
    files.write_fabric(data)
    files.drop_proposal()
    return {
        "changed": True,
        "sha256": sha256,
        "proposal_file": None,
        "diff": [_header(files, sha256)],
        "msg": f"accepted into {files.path} with sha256 {sha256}",
    }


def _left_to_a_person(
    files: _Files,
    last: proposal.Proposal | None,
    placement: Placement,
    refused_by: list[Finding],
    policy: Policy,
) -> Result:
    """Write the proposal, unless the one that waits says the same; gates that were asked and refused fail the task."""
    next_one = proposal.propose(
        files.base,
        placement.fabric,
        placement.changes,
        placement.objections,
        files.now,
        placement.step.mixed,
        too_old(placement.step, policy),
    )
    repeated = last is not None and next_one.repeats(last)
    if last and repeated:
        next_one = last
    else:
        files.write_proposal(next_one)
    result: Result = {
        "changed": not repeated,
        "sha256": next_one.sha256,
        "proposal_file": proposal.proposal_path(files.path),
        "diff": [_header(files, next_one.sha256)],
        "msg": f"accept it with: {_accept_command(files.path, next_one.sha256)}",
    }
    if refused_by:
        names = ", ".join(sorted({row["code"] for row in refused_by}))
        reasons = "; ".join(row["message"].rstrip(".") for row in refused_by)
        result["failed"] = True
        result["msg"] = f"not accepted, since the gate {names} objects ({reasons}); {result['msg']}"
    return result


def _edited(files: _Files, options: Mapping[str, Any], observe: Callable[..., Any]) -> Result:
    files.read()
    before = files.fabric
    if before is None:
        raise fabric_file.FabricFileError(f"{files.path}: does not exist; name a fabric file that discover wrote")
    today, rename = files.now[:10], {str(old): str(new) for old, new in (options["rename"] or {}).items()}
    remove = options["remove"] or []
    after, renamed = editing.rename(before, rename, today)
    after, removed = editing.remove(after, remove, today)
    changes: list[Change] = [*renamed, *removed]
    outcome: Result = {"changed": bool(changes), "changes": changes, "findings": [], "diff": []}
    if not changes:
        return {**outcome, "sha256": files.sha256, "msg": f"nothing to change in {files.path}"}
    fabric_file.check(after.as_dict(), files.path, before)
    data = fabric_file.serialise(after)
    files.write_fabric(data)
    if files.state:
        files.write_state(editing.of_state(files.state, rename, remove))
    void = "; the pending proposal was made from the old file and is removed" if files.drop_proposal() else ""
    return {
        **outcome,
        "sha256": fabric_file.digest(data),
        "diff": [f"{change['tray']}: {change['why']}" for change in changes],
        "msg": f"{count(len(changes), 'tray')} changed in {files.path}{void}",
    }


_STATES: dict[str, Callable[..., Result]] = {
    "proposed": _proposed,
    "accepted": _accepted,
    "edited": _edited,
    "checked": _checked,
}


def _policy(options: Mapping[str, Any]) -> Policy:
    return Policy(
        imex_networks=tuple(options["imex_network"]),
        # YAML reads an unquoted serial as a number.
        domain_names={str(key): str(name) for key, name in options["domain_names"].items()},
        expected_trays=options["expected_trays"],
        moved_percent=options["moved_percent"],
        conflict_policy=options["conflict_policy"],
        expected={str(rack): _declared(rack, trays) for rack, trays in options["expected"].items()},
        max_age=options["max_age"],
        override=tuple(options["override"]),
    )


def _declared(rack: Any, trays: Any) -> list[str]:
    """The trays that a site declares of a rack: a hostlist, or a list of them."""
    try:
        return [name for text in _listed(trays) for name in expand(str(text))]
    except HostlistError as error:
        raise PlacementError(f"expected: {rack} is no hostlist ({str(error).rstrip('.')}); write r01t[01-18]") from None


def _sources(options: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The sources to ask with the options of each, in the order of trust. The fabric file is always known."""
    wanted = []
    for row in options["sources"]:
        if isinstance(row, Mapping) and len(row) == 1:
            wanted.append(next(iter(row.items())))
        elif isinstance(row, str):
            wanted.append((row, None))
        else:
            raise sources.SourceError(
                f"sources: {sources.shown(row)} is neither a name nor one name with its options; write ssh, or ssh: "
                "with its options below it"
            )
    known = (ansible_facts.SOURCE, *sources.KNOWN)
    for number, (name, own) in enumerate(wanted):
        if name not in known:
            raise sources.SourceError(
                f"sources: {sources.shown(name)} is not a known source{sources.nearest(name, known)}"
            )
        if name in [other for other, _own in wanted[:number]]:
            raise sources.SourceError(f"sources: {name} is named twice; name it once")
        if own is not None and name not in sources.LIVE:
            raise sources.SourceError(f"sources: {name} has no options here; write its name alone")
    asked = [(str(name), own) for name, own in wanted if name != sources.FABRIC_FILE]
    if not asked:
        raise sources.SourceError("sources: names nothing to ask; add ansible_facts, ssh or another live source")
    return asked


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _header(files: _Files, sha256: str) -> str:
    return f"{files.path}: sha256 {files.sha256 or 'none'} -> {sha256}"


def _accept_command(path: str, sha256: str) -> str:
    words = [
        "ansible-playbook",
        "rackscale.nvlink.accept",
        "-e",
        f"fabric_file={path}",
        "-e",
        f"fabric_proposal={sha256}",
    ]
    return shlex.join(words)


def _summary(fabric: Fabric, state: State, changes: list[Any]) -> dict[str, int]:
    kinds = Counter(change["kind"] for change in changes)
    states = Counter(tray["state"] for tray in state.trays.values())
    counted = {word: states[word] for word in ("stale", "conflict", "unplaced")}
    return {"trays": len(fabric.trays), "placed": kinds["placed"], "moved": kinds["moved"], **counted}


def _counts(summary: Mapping[str, int]) -> str:
    words = ", ".join(f"{summary[word]} {word}" for word in ("placed", "moved", "stale", "conflict", "unplaced"))
    return f"{count(summary['trays'], 'tray')}, {words}"


# --- what the hosts of this play said ---


def _observe(
    action: ActionBase, options: Mapping[str, Any], task_vars: Mapping[str, Any], now: str, fabric: Fabric | None
) -> Merged:
    """What the sources say, merged in the order of trust. An outage is an error only where no fabric file stands."""
    known = {name: tray.get("ansible_host") or name for name, tray in (fabric or Fabric()).trays.items()}
    least = None if options["min_answer"] is None else percent("min_answer", options["min_answer"])
    site = _SiteOf(action, task_vars)
    answers = []
    for name, own in _sources(options):
        if name == ansible_facts.SOURCE:
            # A site may ask hosts that are off for good, so these are measured only where it says how.
            rows = _registered(options, task_vars)
            answer = Answer(name, rows, measured=least is not None)
        else:
            asked = None if name in sources.ASK_TRAYS else known
            answer = ask(name, functools.partial(sources.observe, name, own, now, known, display), asked)
            answer = replace(answer, hints=name in sources.HINTS)
        if not answer.hints:
            answer = replace(answer, observations=[site.told(row) for row in answer.observations])
        answers.append(answer)
    held = fabric or Fabric()
    nodes = {name: tray["slurm_node"] for name, tray in held.trays.items()}
    blocks = {block.name for cluster in (None, *held.slurm_clusters) for block in held.blocks(cluster)}
    return merge(answers, _MIN_OF_LIVE if least is None else least, fabric is not None, nodes, blocks)


def _registered(options: Mapping[str, Any], task_vars: Mapping[str, Any]) -> list[Observation]:
    """An observation of every host of the play, from the results that a task of this run has registered.

    Reads each host's variables once and untemplated: what a tray said must never be a template, and ten thousand hosts
    must not cost a template engine each.
    """
    hostvars, register = task_vars["hostvars"], options["observations"]
    observations, registered = [], False
    for host in task_vars["ansible_play_hosts_all"]:
        name = str(host)
        variables = hostvars.raw_get(host)
        registered = registered or register in variables
        observations.append(ansible_facts.observe(name, variables.get(register)))
    if not registered:
        # A misspelt name must not make every tray stale.
        raise PlacementError(
            f"observations: no host of this play has a result registered as {register!r}; name the one of this run"
        )
    return observations


class _SiteOf:
    """What the inventory of this run says of trays, whichever source has seen them.

    Only what the site itself wrote is templated, where it is an expression.
    """

    def __init__(self, action: ActionBase, task_vars: Mapping[str, Any]) -> None:
        self._action, self._hostvars = action, task_vars.get("hostvars")
        hosts = [*task_vars.get("ansible_play_hosts_all", ()), *task_vars.get("groups", {}).get("all", ())]
        self._hosts = {str(host): host for host in hosts}

    def told(self, observation: Observation) -> Observation:
        """The observation with the node names, the address and the clusters that the site gives its tray."""
        host = self._hosts.get(observation.tray)
        if host is None or self._hostvars is None:
            return observation
        site = _Site(self._action, observation.tray, self._hostvars.raw_get(host))
        said = {
            "slurm_node": site.node("fabric_slurm_node"),
            "kubernetes_node": site.node("fabric_kubernetes_node"),
            "slurm_cluster": site.cluster("fabric_slurm_cluster"),
            "kubernetes_cluster": site.cluster("fabric_kubernetes_cluster"),
            "ansible_host": site.address(),
        }
        news = {key: value for key, value in said.items() if value is not None}
        return replace(observation, **news) if news else observation


class _Site:
    """What the site's own variables say of one host."""

    def __init__(self, action: ActionBase, host: str, variables: Mapping[str, Any]) -> None:
        self._action, self._host, self._variables = action, host, variables

    def node(self, variable: str) -> str | None:
        """A node name; PlacementError if the site's expression fails or makes none."""
        return self._name(variable, fabric_file.NODE_NAME, "no host name")

    def cluster(self, variable: str) -> str | None:
        """A cluster's name, empty where the site says that the tray is in none; PlacementError as node() does."""
        return self._name(variable, fabric_file.CLUSTER_NAME, "no name of a cluster", none="")

    def _name(self, variable: str, form: re.Pattern[str], wrong: str, none: str | None = None) -> str | None:
        try:
            value = self._value(variable)
        except AnsibleError as error:
            raise PlacementError(f"{variable}: cannot be evaluated for {self._host} ({error}); correct it") from None
        if value is None or value == none:
            return none if value == none else None
        if not form.fullmatch(str(value)):
            raise PlacementError(f"{variable}: is {str(value)[:80]!r} for {self._host}, which is {wrong}; correct it")
        return str(value)

    def address(self) -> str | None:
        """Where Ansible connects to; None if that is not said, or cannot be evaluated: connecting has told of it."""
        with contextlib.suppress(AnsibleError):
            value = self._value("ansible_host")
            if isinstance(value, str) and fabric_file.HOST_ADDRESS.fullmatch(value):
                return str(value)
        return None

    def _value(self, variable: str) -> Any:
        value = self._variables.get(variable)
        if isinstance(value, str) and "{" in value:
            return self._action._templar.copy_with_new_env(available_variables=self._variables).template(value)
        return value
