# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import random
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Answer, Merged, merge
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Address, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, percent
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import OutageError
from hypothesis import given
from hypothesis import strategies as st

ONE, OTHER = ("aaaaaaaa-0000-4000-8000-000000000001", 32766), ("bbbbbbbb-0000-4000-8000-000000000002", 32766)


def observed(tray: str, source: str, **reported: Any) -> Observation:
    return Observation(tray, source, **{"observed_at": f"2026-11-21T05:00:0{len(source)}Z", **reported})


def silent(tray: str, source: str) -> Observation:
    return Observation(tray, source, reachable=False, problem="down")


def merged(*answers: list[Observation]) -> Merged:
    return merge([Answer(rows[0].source, rows) for rows in answers], 0, fabric_file=True)


def test_two_sources_that_disagree_are_both_shown_with_their_times() -> None:
    first = observed("a", "ssh", identity=ONE, gpu_uuids=("GPU-1",))
    second = observed("a", "rest", identity=OTHER, gpu_uuids=("GPU-2",), addresses=(Address("x", "10.0.0.1", 24),))
    (found,) = merged([first], [second]).observations
    assert (found.identity, found.gpu_uuids, found.addresses) == (ONE, ("GPU-1",), ())
    (row,) = found.findings
    assert (row["code"], row["severity"], row["tray"]) == ("sources_disagree", "warning", "a")
    assert row["message"] == (
        f"Tray a: source ssh reports clique {ONE[0]}.32766, GPUs GPU-1 (2026-11-21T05:00:03Z), source rest reports "
        f"clique {OTHER[0]}.32766, GPUs GPU-2 (2026-11-21T05:00:04Z); ssh counts, which sources lists first; correct "
        "the source that is wrong, or the order of sources."
    )


CLUSTERS = st.sampled_from([None, "alpha", "beta"])


@given(
    st.lists(st.tuples(CLUSTERS, CLUSTERS), min_size=2, max_size=4),
    st.sampled_from([None, "alpha", "beta"]),
)
def test_different_clusters_of_one_kind_are_a_finding_and_the_most_trusted_decides(
    reported: list[tuple[str | None, str | None]], running: str | None
) -> None:
    """By sources that see the tray, and by a running Slurm (running), which only adds to what they say."""
    names = ("ssh", "kubernetes", "topograph", "rest")
    answers = [
        Answer(name, [observed("a", name, slurm_cluster=slurm, kubernetes_cluster=kubernetes)])
        for name, (slurm, kubernetes) in zip(names, reported, strict=False)
    ]
    hint = Observation("a", "slurm", reachable=False, slurm_cluster=running, block=("x", 0))
    (found,) = merge([*answers, Answer("slurm", [hint], hints=True)], 0, fabric_file=True).observations
    for kind, key in enumerate(("slurm_cluster", "kubernetes_cluster")):
        named = [row[kind] for row in reported if row[kind]]
        values = [*named, running] if running and not kind else named
        assert getattr(found, key) == (values[0] if values else None)
        result = [row for row in found.findings if f"{key.partition('_')[0].capitalize()} cluster" in row["message"]]
        assert len(result) == sum(value != values[0] for value in values)
        assert {row["code"] for row in result} <= {"sources_disagree"}
    assert found.block == (("x", 0) if running in (None, found.slurm_cluster) else None)


def test_a_node_name_that_two_clusters_have_means_the_tray_of_that_cluster() -> None:
    rows = [
        observed(tray, "ssh", slurm_node="node001", slurm_cluster=cluster) for tray, cluster in (("a", "A"), ("b", "B"))
    ]
    hint = Observation("node001", "slurm", reachable=False, slurm_node="node001", slurm_cluster="B", block=("x", 3))
    found = merge([Answer("ssh", rows), Answer("slurm", [hint], hints=True)], 0, fabric_file=True).observations
    assert [(row.tray, row.block, row.findings) for row in found] == [("a", None, ()), ("b", ("x", 3), ())]


def test_values_that_the_first_does_not_report_come_from_the_next_that_agrees() -> None:
    labels = observed("a", "kubernetes", identity=ONE, gpu_count=4, tray_index=0)
    inventory = observed("a", "rest", gpu_uuids=("GPU-1",), tray_index=0, driver_version="580.1", health="degraded")
    (found,) = merged([labels], [inventory]).observations
    assert (found.source, found.identity, found.gpu_uuids) == ("kubernetes", ONE, ("GPU-1",))
    assert (found.driver_version, found.health, found.gpu_count, found.findings) == ("580.1", "degraded", 4, ())


observations = st.builds(
    Observation,
    tray=st.sampled_from(["a", "b", "c"]),
    source=st.just(""),
    reachable=st.booleans(),
    identity=st.sampled_from([None, ONE, OTHER]),
    gpu_uuids=st.sampled_from([(), ("GPU-1",), ("GPU-2",)]),
    tray_index=st.sampled_from([None, 0, 1]),
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), observations), min_size=1, max_size=4), st.randoms())
def test_within_a_source_no_order_matters_and_the_first_that_reached_a_tray_names_its_clique(
    reported: list[dict[str, Observation]], chance: random.Random
) -> None:
    named = [
        [Observation(**{**vars(row), "tray": tray, "source": f"s{number}"}) for tray, row in rows.items()]
        for number, rows in enumerate(reported)
    ]

    def by_tray(rows: list[list[Observation]]) -> dict[str, Observation]:
        answers = [Answer(f"s{number}", row) for number, row in enumerate(rows)]
        return {found.tray: found for found in merge(answers, 0, fabric_file=False).observations}

    found = by_tray(named)
    assert found == by_tray([chance.sample(rows, len(rows)) for rows in named])
    for tray, row in found.items():
        result = [other for rows in named for other in rows if other.tray == tray]
        reached = [other for other in result if other.reachable]
        assert (row.source, row.identity) == ((reached or result)[0].source, (reached or result)[0].identity)
        others = {other.identity for other in reached if other.identity}
        if row.reachable and row.identity and len(others) > 1:
            assert "sources_disagree" in {finding["code"] for finding in row.findings}


# --- findings about a source as a whole ---


def test_findings_about_a_source_are_kept_and_are_no_outage() -> None:
    found = [finding("source_list_invalid", "Two have no name.")]
    answers = [Answer("rest", [observed("a", "rest")], findings=found), Answer("ssh", [observed("a", "ssh")])]
    assert merge(answers, 100, fabric_file=False) == Merged([observed("a", "rest")], found)
    assert merge([Answer("rest", failure="rest: is down")], 100, fabric_file=True).outage
    # Without a fabric file, the findings of the source are the reason in the error.
    answer = Answer("ssh", [silent("a", "ssh")], findings=[finding("source_failed", "ssh: no gateway; bring it back.")])
    with pytest.raises(OutageError, match=r"^ssh: answers for 0 of 1 tray, .* percent \(ssh: no gateway\); restore it"):
        merge([answer], 100, fabric_file=False)


# --- outages ---


def answered(of: int, reached: int) -> Answer:
    rows = [observed(f"t{n}", "ssh") if n < reached else silent(f"t{n}", "ssh") for n in range(of)]
    return Answer("ssh", rows)


@pytest.mark.parametrize(
    ("answer", "percent", "sentence"),
    [
        (answered(10, 5), 50, None),
        (answered(10, 4), 50, "ssh: answers for 4 of 10 trays, min_answer is 50 percent"),
        (answered(10, 0), 0, None),
        (Answer("rest", []), 50, "rest: answers for 0 of 0 trays, min_answer is 50 percent"),
        (Answer("rest", []), 0, None),
        (Answer("rest", [observed("a", "rest")], targets=["a", "b", "c"]), 50, "rest: answers for 1 of 3 trays, "),
        (Answer("rest", failure="rest: https://x refuses the connection; start it"), 0, "rest: https://x refuses "),
    ],
)
def test_an_outage_is_an_error_unless_the_fabric_file_is_a_source(
    answer: Answer, percent: float, sentence: str | None
) -> None:
    found = merge([answer], percent, fabric_file=True)
    assert len(found.findings) == (sentence is not None)
    assert len(found.observations) == len(answer.observations)
    if sentence is None:
        merge([answer], percent, fabric_file=False)
        return
    assert found.findings[0]["message"].startswith(sentence)
    assert found.findings[0]["message"].endswith(
        "; the places in the fabric file are kept, discover again when the source is back."
    )
    with pytest.raises(OutageError, match="^" + sentence.replace(".", r"\.")):
        merge([answer], percent, fabric_file=False)


@pytest.mark.parametrize("value", [-1, 101, "many", None, float("nan")])
def test_an_invalid_percentage_is_an_error(value: object) -> None:
    with pytest.raises(PlacementError, match=r"^min_answer: .* must be a number from 0 to 100$"):
        percent("min_answer", value)
