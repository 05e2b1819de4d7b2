# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waves of a rollout: whole cliques, a canary first, and the progress file of a run that ended early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file, record, waves
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.progress_file import Unfinished
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.record import Rows
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import RolloutError, Wave
from hypothesis import given
from hypothesis import strategies as st

from ..fabrics import fabric, state

TWO = fabric(racks=2, trays=4)
FIVE = fabric(racks=5, trays=2, split=())


def names(planned: list[Wave]) -> list[list[str]]:
    return [list(wave) for wave in planned]


@given(
    racks=st.integers(1, 12),
    trays=st.integers(1, 6),
    split=st.sets(st.integers(1, 12)),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    chance=st.randoms(use_true_random=False),
)
def test_every_addressed_tray_is_in_one_wave_with_all_of_its_clique(
    racks: int, trays: int, split: set[int], sizes: list[int], chance: Any
) -> None:
    made = fabric(racks, 2 * trays, tuple(split))
    addressed = {tray for tray in made.trays if chance.random() < 0.8} | {"not-of-the-fabric"}
    planned = waves.plan(made, addressed, made.cliques, sizes)
    assert sorted(tray for wave in planned for trays_of in wave.values() for tray in trays_of) == sorted(
        addressed & made.trays.keys()
    )
    cliques = [name for wave in planned for name in wave]
    assert len(cliques) == len(set(cliques)), "every clique is in one wave"
    assert not planned or len(planned[0]) == 1, "the canary goes alone"
    for number, wave in enumerate(planned[1:]):
        domains = {made.cliques[name]["domain"] for name in wave}
        assert len(domains) <= sizes[min(number, len(sizes) - 1)]


def test_the_canary_is_one_healthy_clique_and_the_rest_of_its_rack_follows() -> None:
    assert names(waves.plan(TWO, TWO.trays, TWO.cliques, [5], "r02a")) == [["r02a"], ["r01", "r02b"]]
    ill = state(TWO, r01t02={"health": "unhealthy"})
    assert names(waves.plan(TWO, TWO.trays, TWO.cliques, state=ill)) == [["r02a"], ["r01"], ["r02b"]]
    away = state(TWO, **{tray: {"state": "stale"} for tray in TWO.trays})
    assert names(waves.plan(TWO, TWO.trays, TWO.cliques, state=away))[0] == ["r01"], "one has to be the first"


@pytest.mark.parametrize(("domains", "canary"), [([], ""), ([0], ""), ([1, -1], ""), ([1], "r09")])
def test_an_invalid_plan_is_rejected(domains: list[int], canary: str) -> None:
    with pytest.raises(RolloutError, match=r"^rollout_(domains|canary): "):
        waves.plan(TWO, TWO.trays, TWO.cliques, domains, canary)


def test_trays_are_named_by_hostlists_cliques_and_domains() -> None:
    assert TWO.trays_of("r01t[01-02]") == ["r01t01", "r01t02"]
    assert TWO.trays_of("r02a,r02t01") == ["r02t01", "r02t02"]
    assert TWO.trays_of("r02 r03t01") == [*(f"r02t0{n}" for n in range(1, 5)), "r03t01"]
    assert waves.cliques_of(TWO, "r02t01,r02t04") == {"r02a", "r02b"}
    assert waves.cliques_of(TWO, "r02t01,r03t01", check=False) == {"r02a"}
    with pytest.raises(RolloutError, match="rollout_trays: 'r03t01' is no tray, clique or domain of the fabric file"):
        waves.cliques_of(TWO, "r02t01,r03t01")
    with pytest.raises(RolloutError, match=r"progress\.json: 'r02' is no clique"):
        waves.check_names(["r02a", "r02"], TWO.cliques, "progress.json", "clique")


@given(
    cliques=st.dictionaries(st.sampled_from("abcdef"), st.just(()), min_size=1),
    drawn=st.data(),
)
def test_every_tray_is_passed_or_unfinished(cliques: dict[str, Any], drawn: Any) -> None:
    trays = {name: [f"{name}{number}" for number in range(3)] for name in cliques}
    word = st.sampled_from(["passed", "failed", "skipped", "observed"])
    rows: Rows = {
        tray: {"state": drawn.draw(word)} for each in trays.values() for tray in each if drawn.draw(st.booleans())
    }
    unfinished = record.evaluate(trays, rows)
    for name, each in trays.items():
        wrong = set(unfinished[name]["trays"]) if name in unfinished else set()
        assert wrong == {tray for tray in each if rows.get(tray) != {"state": "passed"}}
        away = all(rows.get(tray, {"state": "skipped"})["state"] == "skipped" for tray in wrong)
        assert not wrong or (unfinished[name]["state"] == "skipped") == away


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (["r02", "r03"], ""),
        (["r02", "r03", "r04"], "3 cliques failed"),
        (["r01"], "the canary failed"),
        # r05 failed in an earlier run, and is not in this one.
        (["r02", "r03", "r05"], ""),
    ],
)
def test_it_stops_after_the_limit_of_failures_and_after_a_failed_canary(failed: list[str], reason: str) -> None:
    made = record.new(FIVE, waves.plan(FIVE, FIVE.trays, FIVE.cliques.keys() - {"r05"}), "", 3)
    made.cliques.update({name: {"state": "failed", "trays": {}} for name in failed})
    assert made.why_stop() == reason


def test_the_progress_file_is_read_back_and_removed_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    unfinished: dict[str, Unfinished] = {
        "r01": {"state": "failed", "trays": {"r01t02": "no list"}},
        "r02": {"state": "pending", "trays": {}},
    }
    progress_file.write(str(path), "imex", unfinished, "2026-11-21T04:00:00Z")
    assert progress_file.read(str(path)) == unfinished
    assert progress_file.summary(unfinished, str(path), "imex") == (
        "Rollout imex: 2 cliques unfinished: r01 (failed: r01t02, no list), r02 (pending); fix the cause and run"
        f" it again with -e rollout_resume={path}."
    )
    assert progress_file.summary(unfinished, "", "imex").endswith("; fix the cause and run it again.")
    # A run keeps what it leaves out, but no clique whose trays are in others now.
    cliques = {**TWO.cliques, "r00": {**TWO.cliques["r01"], "clique_id": 7}}
    moved: dict[str, Unfinished] = {**unfinished, "r00": {"state": "failed", "trays": {}}}
    progress_file.write(str(path), "imex", moved, "2026-11-21T04:00:00Z")
    left_out = record.new(type(TWO)(TWO.domains, cliques, TWO.trays, []), [{}], str(path), 3).cliques
    assert set(left_out) == {name for name in unfinished if TWO.members.get(name)}
    progress_file.write(str(path), "imex", {}, "2026-11-21T04:00:00Z")
    assert not path.exists()
    progress_file.write(str(path), "imex", {}, "2026-11-21T04:00:00Z")


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 2}', '{"schema_version": 1, "left": []}'])
def test_any_other_file_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "progress.json"
    path.write_text(text)
    with pytest.raises(RolloutError, match="is not the progress file of a rollout"):
        progress_file.read(str(path))
    with pytest.raises(RolloutError, match="cannot be read"):
        progress_file.read(str(tmp_path / "none.json"))


def test_the_progress_file_is_next_to_the_fabric_file() -> None:
    assert progress_file.default_path("/srv/fabric.json", "imex") == "/srv/fabric.rollout-imex.json"
    with pytest.raises(RolloutError, match="one lower-case word"):
        progress_file.default_path("/srv/fabric.json", "../etc")
