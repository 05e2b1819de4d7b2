# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of repair: at most one action a tray, with finding, evidence, reason and the brake that refuses it. Pure.

It continues from the ledger: an open incident goes on with the steps that are not done. What may happen to a tray only
after a step, such as the reset after the drain, is asked again when the step is due (is_drained, not_yet).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import DONE, REFUSED, Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, folded, limited, natural_key
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import CHECKED
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, HARDWARE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import RepairError, ledger, policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.brakes import Brakes, resets
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import Incident, when
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.policy import ON_TRAY, Decision
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped

ATTEMPTS = 3
"""Of one step; and incidents of one tray within the ledger's days, of which the last one is answered with replace."""
FIRST_STEPS = ("drain", "evidence", "spare", "ticket")
LAST_STEPS = ("return", "resume", "close")
NEXT = {"reset_gpu": "reboot"}
"""Action that did not help -> the next one; of the others a person replaces the tray."""
SHOWN = 40
_CLOCKS = timedelta(minutes=5)
_NEVER = datetime.min.replace(tzinfo=timezone.utc)
_RERUN = "run the playbook verify on all trays, then this again"
# News of one run, or of a prolog alone: that the next verdict has none says nothing.
_ONCE = ("nvlink_link_recovering", "imex_unit_down")


class Row(TypedDict):
    """One action. tray: the name of a domain where event is true, which has a ticket and no action.

    evidence: what verify reported. brake: why nothing is done; empty where it is allowed or there is nothing to do.
    steps: those that are due now, in their order.
    """

    tray: str
    action: str
    finding: str
    reason: str
    allowed: bool
    brake: str
    incident: str
    evidence: str
    event: bool
    steps: list[str]


class Settings(TypedDict):
    """actions: those that repair may do itself. limits: hour (trays in all), clique and domain (trays out of each)."""

    actions: list[str]
    max_age: int
    limits: dict[str, int]
    rack_share: float
    kill_jobs: bool
    reset: list[str]


class Plan(NamedTuple):
    """lines: decisions and refusals, to append before anything is done. errors: trays of which the verdict has one."""

    rows: list[Row]
    lines: list[Line]
    errors: set[str]


class _Run:
    """What one plan is made from, and its lines and rows so far. checked_at: when verify had read all trays.

    blocker: what forbids any action, or empty. errors: trays with one. racks: domain -> its event, where its trays are
    not repaired alone. closed: subject, whether it is a domain -> when its last incident was closed. opened: subject
    -> its last line of the step open.
    """

    checked_at: datetime
    blocker: str
    errors: set[str]
    racks: dict[str, Decision]

    def __init__(
        self, fabric: Fabric, nodes: Mapping[str, str], known: Sequence[Line], settings: Settings, now: str
    ) -> None:
        self.fabric, self.nodes, self.settings, self.now = fabric, nodes, settings, now
        self.lines, self.rows = resets(settings["reset"], fabric, now), list[Row]()
        lines = [*known, *self.lines]
        self.incidents, self.resets = ledger.incidents(lines), ledger.resets(lines)
        incidents = self.incidents.values()
        self.closed = {(one.subject, one.event): when(one.closed_at) for one in incidents if one.closed_at}
        self.opened = {line["subject"]: line for line in lines if line["step"] == "open"}
        self.brakes = Brakes(fabric, nodes, lines, settings["limits"], now)


def make(
    verdict: Mapping[str, Any],
    fabric: Fabric,
    nodes: Mapping[str, str] | None,
    known: Sequence[Line],
    settings: Settings,
    blockers: Sequence[str],
    now: str,
) -> Plan:
    """The plan. verdict: content of verdict.json. nodes: tray -> its state in Slurm and the reason; None: no Slurm.

    blockers: sentences on what forbids any action. RepairError for a verdict that is too old or lacks trays or layers.
    """
    checked_at = _checked_at(verdict, len(fabric.trays), settings["max_age"], now)
    if not 0 < settings["rack_share"] <= 1:
        raise RepairError(f"repair_rack_share: {settings['rack_share']:g} is not a share; set a number from 0.1 to 1")
    if nodes is None:
        settings = {**settings, "actions": []}  # a person drains, repairs and returns the tray
    own, events, errors = policy.decide(verdict.get("failures"), fabric, nodes)
    run = _Run(fabric, nodes or {}, known, settings, now)
    run.checked_at, run.errors, run.blocker = checked_at, errors, next(iter(blockers), "")
    unfinished = [one for one in run.incidents.values() if one.closed_at is None]
    open_trays = {one.subject: one for one in unfinished if not one.event}
    open_events = {one.subject: one for one in unfinished if one.event}
    run.racks = dict(policy.bad_racks(own, [*open_trays], fabric, settings["rack_share"]))
    events.update(run.racks)
    for domain in sorted({*events, *open_events}, key=natural_key):
        _event(run, domain, events.get(domain), open_events.get(domain))
    subjects = {tray for tray in {*own, *open_trays} if tray in fabric.trays}
    for tray in sorted(subjects, key=lambda tray: (tray not in open_trays, tray not in errors, natural_key(tray))):
        _tray(run, tray, own.get(tray), open_trays.get(tray))
    for tray, one in open_trays.items():
        if tray not in fabric.trays:
            gone = Decision(one.action, one.code, ERROR, "the fabric file no longer has it", "")
            _row(run, tray, gone, one.id, run.blocker, ["close"])
    return Plan(run.rows, [*run.lines, *run.brakes.lines], errors)


def _checked_at(verdict: Mapping[str, Any], trays: int, max_age: int, now: str) -> datetime:
    """When verify had read all trays; RepairError for a verdict that says too little of them, or of another time."""
    at = verdict.get("checked_at")
    age = when(now) - when(at)
    if age > timedelta(seconds=max_age):
        raise RepairError(f"The verdict is of {at}, and repair_max_age is {max_age} s; {_RERUN}")
    if age < -_CLOCKS:
        raise RepairError(f"The verdict is of {at}, which is in the future; correct the clock, then {_RERUN}")
    state = mapped(verdict.get("layers")).get(HARDWARE)
    if state != CHECKED:
        raise RepairError(f"The verdict has no layer hardware ({state or 'missing'}); {_RERUN}")
    if verdict.get("queried") != trays:
        raise RepairError(f"The verdict is of {verdict.get('queried') or 0} of {trays} trays; {_RERUN}")
    if not isinstance(verdict.get("failures"), list):
        raise RepairError(f"The verdict has no list of failures; {_RERUN}")
    return when(at)


def _event(run: _Run, domain: str, decision: Decision | None, one: Incident | None) -> None:
    if decision is None:
        if one and run.checked_at > when(one.at["open"]):
            gone = Decision(one.action, one.code, ERROR, "verify no longer reports it", "")
            _row(run, domain, gone, one.id, run.blocker, ["close"], is_event=True)
        return
    id_ = one.id if one else ""
    if not one and run.closed.get((domain, True), _NEVER) >= run.checked_at:
        return
    if not run.blocker and (one is None or one.action != decision.action):
        id_ = _open(run, domain, decision, decision.action, id_, is_event=True)
    is_known = one and one.steps.get("ticket") == DONE and one.action == decision.action
    due = [] if is_known else ["ticket"]
    _row(run, domain, decision, id_, run.blocker, due, is_event=True)


def _tray(run: _Run, tray: str, decision: Decision | None, one: Incident | None) -> None:
    if decision and run.closed.get((tray, False), _NEVER) >= run.checked_at:
        decision = None  # of before the tray was returned: only a newer verdict opens another incident
    if one is not None:
        _continue(run, tray, decision, one)
    elif decision and decision.action in ON_TRAY:
        _new(run, tray, decision)
    elif decision and decision.action != "none":
        _row(run, tray, decision, "", "", [])


def _new(run: _Run, tray: str, decision: Decision) -> None:
    since = max(when(run.now) - ledger.KEPT, run.resets.get(tray, _NEVER))
    before = (one for one in run.incidents.values() if one.subject == tray and not one.event)
    recent = [one for one in before if when(one.opened_at) > since] if (tray, False) in run.closed else []
    if len(recent) + 1 >= ATTEMPTS and decision.action not in policy.BY_PERSON:
        reason = f"incident {len(recent) + 1} of this tray in {ledger.KEPT.days} days"
        decision = decision._replace(action="replace", reason=reason)
    brake = _brake(run, tray) or run.brakes.refuse(tray)
    id_ = "" if brake else _open(run, tray, decision, decision.action, "")
    _row(run, tray, decision, id_, brake, [*FIRST_STEPS, *_action(run, decision.action)])


def _continue(run: _Run, tray: str, decision: Decision | None, one: Incident) -> None:
    is_newer = run.checked_at > max(map(when, one.at.values()))
    state = run.nodes.get(tray, "")
    is_in_service = bool(state) and not policy.is_out(state)
    untouched = "drain" not in one.steps or (is_in_service and one.steps["drain"] != DONE)
    why = ""
    if not decision and is_newer and tray not in run.errors and untouched:
        why = "verify no longer reports it, and the tray was not drained"
    elif one.steps.get("drain") == DONE and is_in_service and "resume" not in one.steps:
        why = "somebody else has returned the tray to service"
    if why:
        # A step as the others: a ticket that is not sent, and a node that stays cordoned, are tried again.
        over = Decision(one.action, one.code, ERROR, why, "")
        _row(run, tray, over, one.id, run.blocker, ["close"])
        return
    shown = decision or Decision(one.action, one.code, ERROR, "its incident is open", "")
    action, reason = _stronger(run, one, decision)
    shown = shown._replace(action=action, reason=reason)
    brake = _brake(run, tray)
    if not brake and action != one.action:
        _open(run, tray, shown, action, one.id)
    # A ticket has the action that is a person's.
    todo = [step for step in FIRST_STEPS if one.steps.get(step) != DONE or (step == "ticket" and action != one.action)]
    if failed := _failed(one):
        brake = brake or f"{failed}; find the cause, then run this with -e repair_reset={tray}"
    elif why := not_yet(one, tray in run.errors, run.checked_at, run.resets.get(tray)):
        todo += [] if one.action == action and one.steps.get("action") == DONE else _action(run, action)
        if not todo:
            shown = shown._replace(reason=why)
    else:
        todo += [step for step in LAST_STEPS if one.steps.get(step) != DONE]
    waits = bool(state) and not policy.is_drained(state) and not run.settings["kill_jobs"]
    if waits and todo and todo[0] == "action":
        brake = brake or f"a job still runs on it ({state.partition(': ')[0]}); wait, or set repair_kill_jobs"
    _row(run, tray, shown, one.id, brake, todo)


def not_yet(one: Incident, is_faulty: bool, checked_at: datetime, reset: datetime | None = None) -> str:
    """Why a tray may not be tested and returned by a verdict of this time; empty where it may.

    is_faulty: whether the verdict has an error of the tray. reset: when a person has reset it, None for never.
    """
    last = max(when(one.at[step]) for step in ("open", "action") if step in one.at)
    by_person = (reset or _NEVER) > when(one.at["open"])
    if checked_at <= last:
        return "the verdict is older than the last step on it; run verify again"
    if is_faulty:
        return "verify still reports an error of it"
    if one.steps.get("action") == DONE or by_person:
        return ""
    if one.action in policy.BY_PERSON or one.code in _ONCE:
        return (
            f"repair cannot do {one.action}: repair the tray by hand, then run this with -e repair_reset={one.subject}"
        )
    return ""


def _stronger(run: _Run, one: Incident, decision: Decision | None) -> tuple[str, str]:
    """The action of an open incident, and why: an older recovery takes nothing back, only a person's reset does."""
    if failed := _failed(one):
        return "contact_support", failed
    if decision is None or decision.action not in ON_TRAY:
        return one.action, "its incident is open"
    is_reset = run.resets.get(one.subject, _NEVER) > when(one.at["open"])
    if is_reset or policy.strength(decision.action) > policy.strength(one.action):
        return decision.action, decision.reason
    if one.steps.get("action") == DONE and run.checked_at > when(one.at["action"]):
        return NEXT.get(one.action, "replace"), f"{one.action} did not help"
    return one.action, decision.reason


def _failed(one: Incident) -> str:
    return next((f"step {step} failed {ATTEMPTS} times" for step, times in one.failed.items() if times >= ATTEMPTS), "")


def _action(run: _Run, action: str) -> list[str]:
    """The steps of an action that the site lets repair do."""
    is_own = action in run.settings["actions"] and action not in policy.BY_PERSON
    return ["action", *LAST_STEPS] if is_own else []


def _brake(run: _Run, tray: str) -> str:
    if run.blocker:
        return run.blocker
    if reason := policy.others_reason(run.nodes.get(tray, "")):
        return f"somebody else has taken it out of service ({reason}); resume it, or leave it to them"
    rack = run.racks.get(policy.domain_of(run.fabric, tray))
    return f"no tray is repaired alone: {rack.reason}" if rack else ""


def _open(run: _Run, subject: str, found: Decision, action: str, id_: str, is_event: bool = False) -> str:
    id_ = id_ or ledger.new_id(subject, run.now, run.incidents)
    what = {**found._asdict(), "action": action, "event": is_event}
    run.lines.append(ledger.opened(id_, run.now, subject, found.code, what))
    return id_


def _row(
    run: _Run, subject: str, found: Decision, id_: str, brake: str, steps: list[str], is_event: bool = False
) -> None:
    """Add a row, and the line of a refusal, once."""
    allowed = not brake and (is_event or found.action in ON_TRAY)
    run.rows.append(
        Row(
            tray=subject,
            action=found.action,
            finding=found.code,
            reason=found.reason,
            allowed=allowed,
            brake=brake,
            incident=id_,
            evidence=found.evidence,
            event=is_event,
            steps=steps if allowed else [],
        )
    )
    if brake:
        new = Line(incident=id_, at=run.now, step="open", state=REFUSED, subject=subject, code=found.code, detail=brake)
        if {**run.opened.get(subject, new), "at": run.now} != new or subject not in run.opened:
            run.lines.append(new)


def text(plan: Plan) -> list[str]:
    """The plan as lines of text."""
    trays = [row for row in plan.rows if not row["event"] and row["action"] in ON_TRAY]
    allowed = [row for row in trays if row["allowed"]]
    events = count(sum(row["event"] for row in plan.rows), "rack event")
    refused = len(trays) - len(allowed)
    first = f"{count(len(trays), 'tray')} to repair: {len(allowed)} allowed, {refused} refused; {events}."
    alike = ("action", "finding", "reason", "brake", "event")
    shown, more = limited(equal((tuple(str(row.get(key)) for key in alike), row) for row in plan.rows), SHOWN)
    found = [first]
    for (action, code, reason, brake, _event), rows in shown:
        names = folded((row["tray"] for row in rows), "NVLink domain" if rows[0]["event"] else "tray")
        found.append(f"{names}: {action} for {code} ({reason}); {rows[0]['evidence'] or 'no new finding'}.")
        steps = rows[0]["steps"]
        found += [f"    refused: {brake}."] if brake else [f"    steps: {', '.join(steps)}."] if steps else []
    return [*found, *([f"{count(more, 'more row')}."] if more else [])]
