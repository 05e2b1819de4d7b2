# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which action the failures of verify ask for, a tray and a domain. Pure functions.

A tray is trusted with its own answer alone: only a failure of one tray asks for its action. What several trays report
is of their domain: one rack event, with a ticket. A text of a tray is never more than text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import OURS, UNPROVEN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings import table
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE, ERROR, INFO
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped, only, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

ON_TRAY = table.REPAIRS[table.REPAIRS.index("reset_gpu") :]
"""The actions on a tray, the weakest first."""
BY_PERSON = ("replace", "contact_support")

_SAME = {"drain": "reset_gpu", "restart_imex": "watch"}
"""Action of a failure -> that of repair, where the words differ: the drain ends what uses P2P before the reset."""
_DRAINED = frozenset(("DRAIN", "DOWN", "FAIL", "FAILING"))
_SILENT = frozenset(("DOWN", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "FUTURE", "UNKNOWN"))
_BUSY = frozenset(("ALLOCATED", "MIXED", "COMPLETING"))
_PROLOG = f"{OURS}IMEX"
_OF_SLURM = ("Not responding", "Node unexpectedly rebooted")
# A link has one end at the GPU and one at the switch.
_LINK_CODES = ("nvlink_links_down", "nvlink_links_degraded", "nvlink_link_recovering", "fabric_unhealthy", "nvlink_xid")
_COUNTED = "nvlink_link_recovering"
SAME_SWITCH = 3
"""Trays of a domain whose links fail together: what they have in common is the switch."""


class Decision(NamedTuple):
    """What one subject needs. reason: why this action. evidence: what verify reported."""

    action: str
    code: str
    severity: str
    reason: str
    evidence: str
    gpu: int | None = None
    link: int | None = None
    port: str | None = None


Decisions = dict[str, Decision]


def strength(action: str) -> int:
    """The place of an action, the weakest first."""
    return table.REPAIRS.index(action) if action in table.REPAIRS else 0


def own_reason(incident: str) -> str:
    """The reason in Slurm of a tray that repair has drained."""
    return f"{OURS}repair {incident}"


def is_out(state: str) -> bool:
    """Whether a node has no new jobs, by the text of its state in Slurm (slurm/node_states.py)."""
    return not _DRAINED.isdisjoint(_flags(state))


def is_drained(state: str) -> bool:
    """Whether a node is out and no job is left on it."""
    return is_out(state) and _BUSY.isdisjoint(_flags(state))


def others_reason(state: str) -> str:
    """The reason of a node that somebody else has taken out of service; empty where repair may act on it."""
    cause = state.partition(": ")[2].partition(" : ")[0]
    is_ours = cause.startswith((own_reason(""), _PROLOG, UNPROVEN))
    is_of_slurm = "DRAIN" not in _flags(state) and (not cause or cause.startswith(_OF_SLURM))
    return "" if not is_out(state) or is_ours or is_of_slurm else cause or "no reason"


def _flags(state: str) -> list[str]:
    return state.partition(": ")[0].split("+")


def decide(failures: Any, fabric: Fabric, nodes: Mapping[str, str] | None) -> tuple[Decisions, Decisions, set[str]]:
    """(tray -> what it needs, domain -> its event, trays with an error)."""
    wanted: dict[str, list[Decision]] = defaultdict(list)
    events: Decisions = {}
    errors: set[str] = set()
    for row in map(mapped, as_list(failures)):
        found = _decision(row)
        trays = [tray for tray in as_list(row.get("trays")) if isinstance(tray, str) and tray in fabric.trays]
        # Of a tray that a person has acknowledged nothing is done, and it is not returned to service.
        is_known = found is not None and found.severity == INFO and found.action in ON_TRAY
        errors.update(trays if is_known or (found and found.severity == ERROR) else ())
        if found is None or found.severity == INFO:
            continue
        if trays == [row.get("tray")] == as_list(row.get("trays")):
            wanted[trays[0]].append(_asked(found, (nodes or {}).get(trays[0], "")))
        elif strength(found.action) > strength("watch"):
            domain = only(domain_of(fabric, tray) for tray in trays)
            if domain and (len(trays) > 1 or found.action == "switch_side"):
                events.setdefault(domain, found._replace(action=_of_event([found.code]), reason="common to its trays"))
    for tray, state in (nodes or {}).items():
        reason = state.partition(": ")[2]
        if tray in fabric.trays and "DRAIN" in _flags(state) and reason.startswith(_PROLOG):
            why = "its prolog drained it"
            wanted[tray].append(Decision("reboot", "imex_unit_down", ERROR, why, sentence(reason)))
    own = {tray: max(rows, key=_first) for tray, rows in wanted.items()}
    for domain, trays in _domains(fabric, own).items():
        _of_switch(domain, {tray: own[tray] for tray in trays}, wanted, own, events)
    return own, events, errors


def _first(one: Decision) -> tuple[bool, int]:
    """The driver knows what its GPU needs, but for what is no action on a tray; else the strongest action."""
    return one.code == "recovery_action" and one.action in ON_TRAY, strength(one.action)


def _decision(row: Object) -> Decision | None:
    code, severity = row.get("code"), row.get("severity")
    known = CATALOGUE.get(code) if isinstance(code, str) else None
    if known is None:
        return None
    given = row.get("action")
    action = _SAME.get(given, given) if isinstance(given, str) else ""
    is_given = action in table.REPAIRS
    action, reason = (action, f"verify's action for {code}") if is_given else (known.action, f"the action of {code}")
    severity = severity if severity in (ERROR, INFO) else table.WARNING
    about = (whole(row.get("gpu")), whole(row.get("link")), sentence(row.get("port")) or None)
    return Decision(action, str(code), severity, reason, sentence(row.get("message"), 500), *about)


def _asked(found: Decision, state: str) -> Decision:
    """A tray that answers slurmctld has power: what fails is the way to it. state: in Slurm, empty where unknown."""
    answers = state and _SILENT.isdisjoint(_flags(state))
    if found.code != "tray_unreachable" or not answers:
        return found
    return found._replace(action="watch", reason="its slurmd answers slurmctld, so it has power")


def _of_switch(
    domain: str, own: Decisions, wanted: Mapping[str, Sequence[Decision]], found: Decisions, events: Decisions
) -> None:
    """Take the trays whose links fail together for one fault of the switch, in found and events.

    Without those whose own counters of recoveries grow, where they are few: these are the cause of the others.
    """
    failing = [tray for tray, one in own.items() if one.code in _LINK_CODES and _is_link(one)]
    moved = [tray for tray in failing if any(one.code == _COUNTED for one in wanted[tray])]
    rest = [tray for tray in failing if tray not in moved or len(moved) >= SAME_SWITCH]
    faulty = [tray for tray in failing if own[tray].action in ON_TRAY]
    together = [tray for tray in rest if tray in faulty] or rest
    of_switch = [tray for tray, one in own.items() if one.action == "switch_side"]
    if len(together) >= SAME_SWITCH:
        of_switch = [*dict.fromkeys([*of_switch, *rest])]
        faulty = []
    for tray in of_switch:
        why = f"{faulty[0]} has a fault of its own" if faulty else f"of the switches of {domain}"
        found[tray] = own[tray]._replace(action="watch", reason=why)
    if of_switch and not faulty:
        reason = f"the links of {len(of_switch)} of its trays fail together" if len(of_switch) > 1 else ""
        first = own[of_switch[0]]
        events.setdefault(domain, first._replace(action="switch_side", reason=reason or first.reason))


def _is_link(one: Decision) -> bool:
    return one.code != "nvlink_xid" or one.link is not None or one.action == "switch_side"


def _of_event(codes: Sequence[str]) -> str:
    is_of_switch = all("switch_side" in (CATALOGUE[code].action, CATALOGUE[code].symptom.domain) for code in codes)
    return "switch_side" if is_of_switch else "contact_support"


def bad_racks(
    own: Mapping[str, Decision], out: Sequence[str], fabric: Fabric, share: float
) -> Iterator[tuple[str, Decision]]:
    """(domain, its event) where at least this share of its trays needs an action. out: trays of open incidents."""
    size = _domains(fabric, fabric.trays)
    wanted = {tray: one for tray, one in own.items() if one.action in ON_TRAY}
    for domain, trays in _domains(fabric, {*wanted, *out}).items():
        if len(trays) < max(2, share * len(size[domain])):
            continue
        rows = [wanted[tray] for tray in trays if tray in wanted]
        if rows:
            reason = f"{len(trays)} of its {len(size[domain])} trays fail, at least repair_rack_share ({share:g})"
            yield domain, rows[0]._replace(action=_of_event([one.code for one in rows]), reason=reason)


def domain_of(fabric: Fabric, tray: str) -> str:
    """The domain of a tray of the fabric."""
    return fabric.cliques[fabric.trays[tray]["clique"]]["domain"]


def _domains(fabric: Fabric, trays: Iterable[str]) -> dict[str, list[str]]:
    return equal((domain_of(fabric, tray), tray) for tray in trays if tray in fabric.trays)
