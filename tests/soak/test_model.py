# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds of random faults and repairs from a seed, through placement, fabric file, renderers and linter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import simulation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Placement, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.states import mark_accepted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import imex, render, slurm_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.ansible_facts import from_facts

from .racks import FAULTS, Event, RackModel, Tray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab import settings

NOW = "2026-11-21T05:00:00Z"
# Event -> the gate that stops it.
NEW_IDS = {"new cluster UUID": "domain_uuid_changed", "other clique IDs": "clique_id_changed"}
# Rounds in which every kind of event happens.
ALL_KINDS = 200
# A split partition moves more trays than the gates allow, so they are overridden.
POLICY = Policy(override=GATES)


class Simulated:
    """The trays of the model as simulated hardware, and the site's fabric file."""

    def __init__(self, racks: int, trays: int, seed: int) -> None:
        facts = simulation.fleet(racks=racks, trays_per_rack=trays, seed=seed, observed_at=NOW)
        self.hardware = {name: settings.new_hardware(tray) for name, tray in facts.items()}
        self.model = RackModel((tray_of(name, tray) for name, tray in facts.items()), seed, new_ids=True)
        self.fabric, self.state = Fabric(), None

    def follow(self, event: Event) -> None:
        for name, changes in event.settings.items():
            for change in changes:
                key, _equals, value = change.partition("=")
                self.hardware[name] = settings.apply_setting(self.hardware[name], key, value)

    def observations(self) -> list[Observation]:
        return [
            from_facts(name, self.hardware[name]["facts"])
            if tray.on
            else Observation(name, "ansible_facts", reachable=False, problem="down")
            for name, tray in self.model.trays.items()
        ]

    def discover(self) -> Placement:
        return place(self.fabric, self.state, self.observations(), tuple(self.model.trays), NOW, POLICY)

    def accept(self, placement: Placement) -> None:
        self.fabric, self.state = placement.fabric, mark_accepted(placement.state, placement.fabric)
        self.model.observed()


def tray_of(name: str, facts: dict[str, Any]) -> Tray:
    gpus = tuple(gpu["uuid"] for gpu in facts["gpus"])
    return Tray(name, name[:3], facts["cluster_uuid"], facts["clique_id"], gpus, facts["driver_version"])


def blocks(fabric: Fabric) -> dict[str, tuple[str, int]]:
    return {name: (clique["block"]["name"], clique["block"]["position"]) for name, clique in fabric.cliques.items()}


def check(site: Simulated, before: Fabric, state: State) -> None:
    """Check what must hold after every round."""
    fabric, model = site.fabric, site.model
    written = fabric_file.serialise(fabric)
    assert fabric_file.parse(written, "fabric.json") == fabric, "the file is valid and reads back unchanged"

    assert before.trays.keys() <= fabric.trays.keys(), "no tray is lost"
    shown = {name: tray.shown for name, tray in model.trays.items() if tray.shown}
    assert shown.keys() == fabric.trays.keys()
    for name, place_ in shown.items():
        clique = fabric.trays[name]["clique"]
        # The IDs of its clique may change without it.
        keeps = not model.trays[name].attached and clique == before.trays[name]["clique"]
        assert keeps or fabric.identity(clique) == place_, name
    assert blocks(before).items() <= blocks(fabric).items(), "blocks keep their names and positions"

    planned = slurm_blocks.blocks(fabric)
    assert sorted(node for block in planned for node in block.nodes) == sorted(fabric.trays)
    for style in slurm_files.RENDERED_FOR:
        assert slurm_files.text(planned, style), [row["message"] for row in slurm_files.findings(fabric, state)]
    lists = imex.render(fabric, state)
    assert sum(len(text.split()) for text in lists.values()) == len(fabric.trays)


@pytest.mark.parametrize(
    ("racks", "trays", "rounds"),
    [
        (3, 4, 25),
        pytest.param(3, 4, ALL_KINDS, marks=pytest.mark.long),
        pytest.param(2, 18, ALL_KINDS, marks=pytest.mark.long),
    ],
)
def test_no_event_loses_a_tray_or_breaks_rendering(racks: int, trays: int, rounds: int) -> None:
    site = Simulated(racks, trays, seed=20261121)
    site.accept(site.discover())
    happened: list[str] = []
    for number in range(rounds):
        before, kept, gates = site.fabric, set(), set()
        for _again in range(site.model.random.randint(1, 3)):
            event = site.model.inject()
            site.follow(event)
            happened.append(event.what)
            kept.update(event.keeps)
            gates.update(gate for what, gate in NEW_IDS.items() if event.what.endswith(what))
        site.accept(site.discover())
        assert site.state is not None
        try:
            check(site, before, site.state)
            cliques = {name: (before.trays[name]["clique"], site.fabric.trays[name]["clique"]) for name in kept}
            assert all(old == new for old, new in cliques.values()), f"cliques keep their names: {cliques}"
            overridden = {row["gate"] for row in site.fabric.overrides[len(before.overrides) :]}
            assert gates <= overridden, "a gate objects to other IDs"
            again = site.discover()
            assert (again.changes, again.fabric) == ([], site.fabric), "a second discovery changes nothing"
            assert again.state.fingerprint() == site.state.fingerprint()
            if number % 20 == 0:
                assert all(render(site.fabric, site.state).files.values()), "no rendered file is empty"
        except AssertionError as error:
            raise AssertionError(f"round {number}, after {happened[-6:]}: {error}") from error

    for event in site.model.repair_all():
        site.follow(event)
    site.accept(site.discover())
    assert {row["state"] for row in site.state.trays.values()} == {"present"}
    assert {row["health"] for row in site.state.trays.values()} == {"healthy"}
    kinds = (
        "power off",
        "split in two",
        "split per tray",
        "joined",
        "another tray",
        "new cluster UUID",
        "other clique IDs",
    )
    for kind in (*kinds, *FAULTS):
        assert rounds < ALL_KINDS or any(kind in what for what in happened), f"{rounds} rounds had no event: {kind}"
