# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""200 rounds of random faults and repairs from a seed, through placement, fabric file, renderers and linter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import simulation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Placement, mark_accepted, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import imex, render, slurm
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.ansible_facts import from_facts

from .world import FAULTS, Event, Tray, World

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab import settings

NOW = "2026-11-21T05:00:00Z"
ROUNDS = 200
# Partitions that are cut move more trays than the gates let pass; a person has named them.
POLICY = Policy(override=GATES)


class Simulated:
    """The world's trays as simulated hardware, and the site's file of them."""

    def __init__(self, racks: int, trays: int, seed: int) -> None:
        facts = simulation.fleet(racks=racks, trays_per_rack=trays, seed=seed, observed_at=NOW)
        self.hardware = {name: settings.new_hardware(said) for name, said in facts.items()}
        self.world = World((tray_of(name, said) for name, said in facts.items()), seed)
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
            for name, tray in self.world.trays.items()
        ]

    def discover(self) -> Placement:
        return place(self.fabric, self.state, self.observations(), tuple(self.world.trays), NOW, POLICY)

    def accept(self, placement: Placement) -> None:
        self.fabric, self.state = placement.fabric, mark_accepted(placement.state, placement.fabric)
        self.world.asked()


def tray_of(name: str, facts: dict[str, Any]) -> Tray:
    gpus = tuple(gpu["uuid"] for gpu in facts["gpus"])
    return Tray(name, name[:3], facts["cluster_uuid"], facts["clique_id"], gpus, facts["driver_version"])


def blocks(fabric: Fabric) -> dict[str, tuple[str, int]]:
    return {name: (clique["block"]["name"], clique["block"]["position"]) for name, clique in fabric.cliques.items()}


def check(site: Simulated, before: Fabric, state: State) -> None:
    """What holds after every round, whatever happened."""
    fabric, world = site.fabric, site.world
    written = fabric_file.serialise(fabric)
    assert fabric_file.parse(written, "fabric.json") == fabric, "what is written is valid and is read back as it was"

    assert before.trays.keys() <= fabric.trays.keys(), "no tray is lost"
    shown = {name: tray.shown for name, tray in world.trays.items() if tray.shown}
    assert shown.keys() == fabric.trays.keys()
    for name, place_ in shown.items():
        clique = fabric.trays[name]["clique"]
        assert (fabric.cluster_uuid(clique), fabric.cliques[clique]["clique_id"]) == place_, name
    assert blocks(before).items() <= blocks(fabric).items(), "blocks keep their names and positions"

    made = slurm.blocks(fabric)
    assert sorted(node for block in made for node in block.nodes) == sorted(fabric.trays)
    for style in slurm.RENDERED_FOR:
        assert slurm.text(made, style), [row["message"] for row in slurm.findings(fabric, state)]
    lists = imex.render(fabric, state)
    assert sum(len(text.split()) for text in lists.values()) == len(fabric.trays)


@pytest.mark.parametrize(("racks", "trays"), [(2, 18), (3, 4)])
def test_whatever_happens_no_tray_is_lost_and_everything_renders(racks: int, trays: int) -> None:
    site = Simulated(racks, trays, seed=20261121)
    site.accept(site.discover())
    happened: list[str] = []
    for number in range(ROUNDS):
        for _again in range(site.world.random.randint(1, 3)):
            event = site.world.happen()
            site.follow(event)
            happened.append(event.what)
        before = site.fabric
        site.accept(site.discover())
        assert site.state is not None
        try:
            check(site, before, site.state)
            again = site.discover()
            assert (again.changes, again.fabric) == ([], site.fabric), "asked again, nothing changes"
            assert again.state.fingerprint() == site.state.fingerprint()
            if number % 20 == 0:
                assert all(render(site.fabric, site.state).files.values()), "every consumer has something to read"
        except AssertionError as error:
            raise AssertionError(f"round {number}, after {happened[-6:]}: {error}") from error

    for event in site.world.heal():
        site.follow(event)
    site.accept(site.discover())
    assert {row["state"] for row in site.state.trays.values()} == {"present"}
    assert {row["health"] for row in site.state.trays.values()} == {"healthy"}
    for kind in ("power off", "cut in two", "joined", "another tray", *FAULTS):
        assert any(kind in what for what in happened), f"200 rounds never came to: {kind}"
