# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Eighth step of a placement: the state of every tray, and how it follows what happens to the proposal. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import INFO, Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import causes, identity
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.claims import Claims
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    CONFLICT,
    PRESENT,
    STALE,
    UNKNOWN,
    UNPLACED,
    Change,
    Fabric,
    Observation,
    State,
    Tray,
    TrayState,
    natural_key,
    tray_finding,
)

# Findings of fabric_facts on a host without GPUs. A host with any other problem, such as an NVML that hangs, is a tray.
_NO_GPU_CODES = frozenset({"addresses_unknown", "driver_missing", "fabric_unknown", "no_gpu"})
_PENDING = "acceptance_pending"
# Findings that end when the proposal is accepted.
_UNTIL_ACCEPTED = frozenset({_PENDING, "tray_replaced", "domain_uuid_changed", "clique_id_changed"})


def observe(
    previous: State | None,
    observed: Mapping[str, Observation],
    claims: Claims,
    trays: Mapping[str, Tray],
    found: Iterable[Finding],
    now: str,
) -> State:
    """The state of every tray: targets as observed now, the others as before.

    trays: of the next fabric. found: findings of the placement; those about a tray stand in its state.
    """
    before = previous.trays if previous else {}
    of_tray: dict[str, list[Finding]] = defaultdict(list)
    # Earlier ones about hosts that are not targets now.
    of_fabric = [
        row
        for row in (previous.findings if previous else [])
        if row["code"] == "not_a_tray" and row.get("tray") not in observed
    ]
    for row in found:
        subject = row.get("tray")
        (of_tray[subject] if subject else of_fabric).append(row)
    states: dict[str, TrayState] = {}
    for name, tray in before.items():
        if name in observed:
            continue
        tray = _without({_PENDING}, tray)
        if name in trays and tray["state"] == UNPLACED:
            # Placed by hand; not observed there yet.
            states[name] = _given_place(tray, STALE)
        elif name in trays or tray["state"] == UNPLACED:
            states[name] = tray
    for name, observation in observed.items():
        if name in trays or may_be_a_tray(observation):
            states[name] = _tray_state(observation, claims, trays.get(name), before.get(name), of_tray[name])
        else:
            message = f"Host {name} reports no GPU and has no place; leave it out of fabric_hosts if it is not a tray."
            of_fabric.append(finding("not_a_tray", message, tray=name))
    return State(states, sorted(of_fabric, key=_finding_key), now)


def _tray_state(
    observation: Observation, claims: Claims, tray: Tray | None, before: TrayState | None, found: list[Finding]
) -> TrayState:
    """The state of an observed tray; tray: its row in the next fabric."""
    name = observation.tray
    if not observation.reachable:
        status, what = STALE, f"{_keeps(tray)}: {causes.cause(observation.problem)}"
        found.append(tray_finding(name, "tray_unreachable", what, "restore it and discover again"))
    elif observation.inconsistent or name in claims.rivals:
        status = CONFLICT
        if observation.inconsistent:
            what = f"{_keeps(tray)}: its GPUs are in different cliques"
            found.append(tray_finding(name, "tray_not_attached", what, "give its GPUs one NVLink partition"))
    elif name in claims.trays:
        status = PRESENT
    elif observation.node_local and not tray:
        # NVLink within one host (HGX) is not attached to an NVLink domain, nor is a GPU without NVLink (L40S).
        status = UNPLACED
    else:
        status, what = STALE, f"{_keeps(tray)}: not all its GPUs are attached to one clique"
        remedy = "resolve its other findings, then discover again"
        found.append(tray_finding(name, "tray_not_attached", what, remedy))
    # For an unreachable tray the last observation is kept.
    last = before if before and not observation.reachable else None
    state: TrayState = {
        "state": status if tray else UNPLACED,
        "health": observation.health if observation.reachable else UNKNOWN,
        "observed_at": last["observed_at"] if last else observation.observed_at,
        "source": last["source"] if last else observation.source or None,
        "driver_version": last["driver_version"] if last else observation.driver_version,
        "findings": sorted([*observation.findings, *found], key=_finding_key),
    }
    if not tray:
        state["tray_index"] = last.get("tray_index") if last else observation.tray_index
        state["gpu_count"] = last.get("gpu_count", 0) if last else observation.gpu_count
    return state


def mark_pending(state: State, proposed: Fabric, changes: Iterable[Change], accepted: Fabric | None) -> State:
    """The state to write while a fabric is a pending proposal: the fabric file still has the old places."""
    places = accepted.trays if accepted else {}
    trays = dict(state.trays)
    for change in changes:
        name = change["tray"]
        if name not in trays or change["from"] == change["to"]:
            continue
        message = f"Tray {name} is observed in {change['to']}; accept the proposal to give it that place."
        tray = cast(TrayState, dict(trays[name]))
        tray["findings"] = [*tray["findings"], finding(_PENDING, message, tray=name)]
        if name not in places:
            # The fabric file has no row for the tray yet, so the state holds these values.
            row = proposed.trays[name]
            tray["state"], tray["tray_index"], tray["gpu_count"] = UNPLACED, row["tray_index"], len(row["gpu_uuids"])
        trays[name] = tray
    # A domain whose trays report another cluster UUID has no change of a tray.
    findings = [*state.findings, *identity.findings(accepted or Fabric(), proposed)]
    return replace(state, trays=trays, findings=sorted(findings, key=_finding_key))


def mark_accepted(state: State, accepted: Fabric) -> State:
    """The state after the placement was accepted: pending trays have a place now."""
    trays = {}
    for name, tray in state.trays.items():
        trays[name] = row = _without(_UNTIL_ACCEPTED, tray)
        if row is not tray and tray["state"] == UNPLACED and name in accepted.trays:
            trays[name] = _given_place(row, PRESENT)
    return replace(state, trays=trays, findings=[row for row in state.findings if row["code"] not in _UNTIL_ACCEPTED])


def _without(codes: Collection[str], tray: TrayState) -> TrayState:
    """The state of a tray without findings of these codes; the same object if it has none."""
    kept = [row for row in tray["findings"] if row["code"] not in codes]
    return tray if len(kept) == len(tray["findings"]) else cast(TrayState, {**tray, "findings": kept})


def _given_place(tray: TrayState, status: str) -> TrayState:
    """The state of a tray that was unplaced: index and number of GPUs are in the fabric file now."""
    placed = cast(TrayState, {**tray, "state": status})
    placed.pop("tray_index", None)
    placed.pop("gpu_count", None)
    return placed


def _keeps(tray: Tray | None) -> str:
    return f"keeps its place in {tray['clique']}" if tray else "gets no place"


def may_be_a_tray(observation: Observation) -> bool:
    """Whether a host without a place may be a tray: it has GPUs, or a finding that a host without GPUs cannot have."""
    problems = (row for row in observation.findings if row["severity"] != INFO and row["code"] not in _NO_GPU_CODES)
    return bool(observation.gpu_count or observation.identity or any(problems)) or not observation.reachable


def _finding_key(row: Finding) -> tuple[Any, ...]:
    gpu = row.get("gpu")
    return row["code"], natural_key(row.get("tray") or ""), -1 if gpu is None else gpu, row["message"]
