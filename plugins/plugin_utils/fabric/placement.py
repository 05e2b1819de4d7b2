# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute the next fabric from the previous one and the observations of a run, with a reason for every change.

Pure: no file and no clock, so equal input gives equal bytes, whatever the order of the observations. A tray passes each
step once, in this order: claims, identity, partitions, naming, addresses, trays, blocks, states, gates. A step reads
the results of those before it. The rules:

- Only an attached observation places or moves a tray. A tray that is down, in progress, unhealthy or in conflict keeps
  its place.
- Only a target of this run may become stale.
- Names and block positions are assigned once, never changed and never reused (naming.py, blocks.py).
- A cluster UUID identifies a domain; cluster UUID and clique ID a clique. A clique ID alone identifies nothing. Where
  these values change and the GPUs stay, domains and cliques keep their names (identity.py).
- A GPU belongs to one tray. A second tray that claims it is in conflict and changes nothing (claims.py).
- The site sets the Slurm and Kubernetes cluster of a tray; without a value it stays as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    addresses,
    blocks,
    claims,
    gates,
    identity,
    naming,
    operations,
    partitions,
    states,
    trays,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Merged
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Change,
    Fabric,
    Observation,
    State,
    natural_sorted,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy


@dataclass(frozen=True)
class Placement:
    """The next fabric with its state, changes and findings. objections: findings of the gates that object.

    mixed, old: see gates.Step, for a later run that adds to the proposal of this fabric.
    """

    fabric: Fabric
    state: State
    changes: list[Change]
    objections: list[Finding]
    mixed: Collection[str]
    old: Collection[str]

    @property
    def findings(self) -> list[Finding]:
        """All findings: those of the trays, then those of the fabric."""
        return [*(row for tray in self.state.trays.values() for row in tray["findings"]), *self.state.findings]


@dataclass(frozen=True)
class Earlier:
    """The pending proposal to which a run adds; the gates check its changes together with those of the run.

    accepted: the fabric of the fabric file. changes: those of trays that are not targets. overrides: rows of gates that
    the proposal overrides.
    """

    accepted: Fabric
    changes: Sequence[Change]
    mixed: Collection[str]
    old: Collection[str]
    overrides: Sequence[Mapping[str, Any]]


def place(
    previous: Fabric | None,
    previous_state: State | None,
    observations: Iterable[Observation],
    targets: Collection[str],
    now: str,
    policy: Policy,
    sources: Merged | None = None,
    earlier: Earlier | None = None,
) -> Placement:
    """Compute the next fabric and state; PlacementError if the site's settings contradict each other.

    observations: at most one for each target. A target without one gave no answer; observations of other trays are
    ignored. now: UTC as in 2026-11-21T05:00:00Z. sources: findings about the sources, for the state, and the blocks of
    a running Slurm: no other clique gets their names and positions, and those without a known tray stay reserved.
    earlier: what of a pending proposal is part of `previous`.
    """
    sources = sources or Merged([], [])
    previous = previous or Fabric()
    naming.check(earlier.accepted if earlier else previous, policy)
    answers = {observation.tray: observation for observation in observations}
    # Sorted once: all steps process the trays in this order.
    observed = {name: answers.get(name) or _no_answer(name) for name in natural_sorted(targets)}
    claimed = claims.collect(previous, observed, policy)
    # The GPUs of a tray in several cliques are no evidence of what became of its clique.
    agreeing = {name: row for name, row in claimed.trays.items() if name not in claimed.mixed}
    known = identity.follow(previous, earlier.accepted if earlier else previous, agreeing)
    if identity.changed_domains(previous, known):
        # A tray with GPUs in several cliques is compared with what its clique is now.
        claimed = claims.collect(known, observed, policy)
    unplaced = len(observed.keys() - claimed.trays.keys() - known.trays.keys())
    claimed, policies = partitions.decide(known, claimed, policy, unplaced)
    names = naming.assign(known, claimed, policy)
    networks = addresses.networks(policy.imex_networks)
    imex = addresses.imex_addresses(claimed.trays, names.places, known.trays, networks)
    placed = trays.place(known, observed, claimed, names, imex, policies, now, policy)
    fabric, mismatches = blocks.assign(known, observed, claimed, names, placed, sources.blocks, sources.unclaimed)
    findings = [*claimed.findings, *names.findings, *placed.findings, *mismatches]
    findings += operations.smaller(fabric, observed)
    state = states.observe(previous_state, observed, claimed, fabric.trays, findings, now)
    changed = {change["tray"] for change in placed.changes}
    times = {name: observed[name].observed_at for name in changed}
    step = gates.Step(previous, fabric, placed.changes, now, times, claimed.mixed & changed, unplaced=unplaced)
    if earlier:
        step = _joined(step, earlier)
    verdict = gates.check(step, state.trays, policy, earlier.overrides if earlier else ())
    return Placement(
        replace(fabric, overrides=[*fabric.overrides, *verdict.overridden]) if verdict.overridden else fabric,
        replace(
            state, findings=[*sources.findings, *state.findings, *verdict.findings, *naming.unused(fabric, policy)]
        ),
        [*step.changes],
        verdict.objections,
        step.mixed,
        verdict.old,
    )


def _joined(step: gates.Step, earlier: Earlier) -> gates.Step:
    """The step from the fabric file over the pending proposal to the next fabric."""
    others = {change["tray"] for change in earlier.changes}
    return replace(
        step,
        previous=earlier.accepted,
        changes=[*earlier.changes, *step.changes],
        mixed=others.intersection(earlier.mixed).union(step.mixed),
        old=others.intersection(earlier.old),
    )


def _no_answer(name: str) -> Observation:
    return Observation(name, "", reachable=False, problem="no answer in this run")
