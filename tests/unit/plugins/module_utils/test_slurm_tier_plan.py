# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in the way of tiers, or is worth knowing of them: the findings, each by what calls for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import (
    accounting,
    programs,
    segments,
    surveying,
    tier_plan,
    tiers,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.accounting import Association, Record, Records
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import SlurmConf
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, ShownBlock, Topology

OLD, NEW = (24, 11, 5), (26, 5, 5)
BLOCKS = (Block("a", ("a1", "a2"), "a[1-2]"), Block("b", ("b1", "b2", "b3"), "b[1-3]"))
NODES = frozenset(node for block in BLOCKS for node in block.nodes)
MARK = accounting.mark("lab")
CONFIG = {
    "clustername": "lab",
    "accountingstoragetype": "accounting_storage/slurmdbd",
    "accountingstorageenforce": "associations,limits,qos",
    "preempttype": "preempt/qos",
    "priorityweightqos": "1000",
}


def survey(
    tmp_path: Path, version: tuple[int, int, int] = NEW, file: str | None = None, **more: Any
) -> tier_plan.TierSurvey:
    base = 2 if version < (25, 5, 0) else 3
    seen = surveying.Survey(
        slurm=programs.Slurm(str(tmp_path / "bin")),
        conf_dir=str(tmp_path),
        version=version,
        style="conf" if version < (25, 5, 0) else "yaml",
        conf=SlurmConf(str(tmp_path / "slurm.conf")),
        config={**CONFIG, **more.pop("config", {})},
        file=None,
        twin=False,
        running=[] if version < (25, 5, 0) else [Topology("nvlink", blocks=BLOCKS)],
        shown=[ShownBlock(block.name, block.nodes, base, False) for block in BLOCKS],
    )
    values: dict[str, Any] = {
        "partitions": [],
        "nodes": NODES,
        "foreign": {},
        "includes_ours": True,
        "job_submit": None,
        "records": Records({}, (), frozenset({"node", "cpu"})),
        **more,
    }
    return tier_plan.TierSurvey(seen=seen, file=None if file is None else file.encode(), **values)


def wanted(*given: dict[str, Any], version: tuple[int, int, int] = NEW) -> tiers.Wanted:
    return tiers.build(given, BLOCKS, {}, {}, version)


GOLD = {"name": "gold", "blocks": ["a"]}


def of_partitions(seen: tier_plan.TierSurvey, want: tiers.Wanted) -> list[str]:
    return [found["code"] for found in tier_plan._partition_findings(seen, want, BLOCKS)]


def of_records(seen: tier_plan.TierSurvey, want: tiers.Wanted, **policy: bool) -> list[str]:
    return [found["code"] for found in tier_plan._record_findings(seen, want, tier_plan.Policy(**policy))]


def test_nothing_is_said_of_tiers_in_order(tmp_path: Path) -> None:
    want = wanted({**GOLD, "qos": {"priority": 5}})
    assert of_partitions(survey(tmp_path), want) == []
    assert of_records(survey(tmp_path), want) == []


@pytest.mark.parametrize(
    ("tier", "more", "code"),
    [
        (GOLD, {"foreign": {"gold": "/etc/slurm/slurm.conf"}}, "slurm_tier_partition_foreign"),
        (GOLD, {"nodes": frozenset({"a1"})}, "slurm_tier_node_unknown"),
        ({**GOLD, "topology": "elsewhere"}, {}, "slurm_tier_topology"),
        ({**GOLD, "segment": {"maximum": 3}}, {}, "slurm_tier_segment"),
        (
            {**GOLD, "groups": ["wheel"]},
            {"foreign": {"all": "slurm.conf"}, "partitions": [{"PartitionName": "all", "Nodes": "a[1-2],b1"}]},
            "slurm_tier_open_partition",
        ),
    ],
)
def test_what_is_wrong_with_a_partition(tmp_path: Path, tier: dict[str, Any], more: dict[str, Any], code: str) -> None:
    assert of_partitions(survey(tmp_path, **more), wanted(tier)) == [code]


def test_an_open_partition_is_only_told_where_it_opens_something(tmp_path: Path) -> None:
    closed = {"PartitionName": "all", "Nodes": "a[1-2]", "AllowGroups": "root"}
    beside = {"PartitionName": "cpu", "Nodes": "b1"}
    seen = survey(tmp_path, foreign={"all": "x", "cpu": "x"}, partitions=[closed, beside])
    assert of_partitions(seen, wanted({**GOLD, "groups": ["wheel"]})) == []
    # A tier that lets everybody in opens another one as well.
    both = wanted({**GOLD, "groups": ["wheel"]}, {"name": "all", "all": True})
    assert of_partitions(survey(tmp_path), both) == ["slurm_tier_open_partition"]


def test_a_partition_over_a_larger_clique_is_told_of_where_the_base_is_smaller(tmp_path: Path) -> None:
    wide, each = {"name": "wide", "all": True}, {"name": "each", "all": True, "per_block": True}
    assert of_partitions(survey(tmp_path, OLD), wanted(wide, version=OLD)) == ["slurm_tier_spans"]
    assert of_partitions(survey(tmp_path, OLD), wanted(each, version=OLD)) == []
    assert of_partitions(survey(tmp_path, NEW), wanted(wide)) == []


def test_a_segment_above_the_base_is_refused_where_slurm_refuses_it(tmp_path: Path) -> None:
    tier = {"name": "b", "blocks": ["b"], "segment": {"default": 3}}
    assert of_partitions(survey(tmp_path, OLD), wanted(tier, version=OLD)) == ["slurm_tier_segment"]
    assert of_partitions(survey(tmp_path, NEW), wanted(tier)) == []


def test_a_state_by_hand_is_told_until_the_tier_changes(tmp_path: Path) -> None:
    want = wanted(GOLD)
    text = tiers.render(want.partitions)
    running = [{"PartitionName": "gold", "State": "DRAIN"}]
    assert of_partitions(survey(tmp_path, file=text, partitions=running), want) == ["slurm_tier_state"]
    assert of_partitions(survey(tmp_path, file=text, partitions=running), wanted({**GOLD, "state": "down"})) == []


@pytest.mark.parametrize(
    ("tier", "more", "code"),
    [
        ({"qos": {}}, {"records": Records({"gold": Record("gold", "gold")})}, "slurm_tier_qos_foreign"),
        ({"qos": {}}, {"records": Records({"gold": Record("gold", accounting.mark("x"))})}, "slurm_tier_qos_foreign"),
        ({"qos": {"grp_tres": {"gres/gpu": 4}}}, {}, "slurm_tier_tres_unknown"),
        ({"qos": {"preempt": ["lead"]}}, {}, "slurm_tier_qos_unknown"),
        ({"allow_qos": ["lead"]}, {}, "slurm_tier_qos_unknown"),
        ({"qos": {}, "accounts": ["x"]}, {}, "slurm_tier_account_missing"),
        ({"allow_accounts": ["x"]}, {}, "slurm_tier_account_missing"),
        ({"qos": {}}, {"config": {"accountingstorageenforce": "associations,limits"}}, "slurm_tier_enforce"),
        ({"qos": {}}, {"config": {"accountingstorageenforce": "none"}}, "slurm_tier_enforce"),
        ({"qos": {"priority": 1}}, {"config": {"priorityweightqos": "0"}}, "slurm_tier_priority"),
        ({"qos": {"preempt": ["gold"]}}, {"config": {"preempttype": "preempt/none"}}, "slurm_tier_preempt"),
    ],
)
def test_what_is_wrong_with_records(tmp_path: Path, tier: dict[str, Any], more: dict[str, Any], code: str) -> None:
    assert of_records(survey(tmp_path, **more), wanted({**GOLD, **tier})) == [code]


def test_accounts_may_be_made_but_not_those_that_are_only_let_in(tmp_path: Path) -> None:
    granted = wanted({**GOLD, "qos": {}, "accounts": ["x"], "allow_accounts": ["x"]})
    assert of_records(survey(tmp_path), granted, create_accounts=True) == []
    assert of_records(survey(tmp_path), wanted({**GOLD, "allow_accounts": ["x"]}), create_accounts=True) == [
        "slurm_tier_account_missing"
    ]


def fake(tmp_path: Path, **says: str) -> None:
    """Slurm's programs, of which each only says one thing."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    for name, text in says.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        path.chmod(0o755)


def test_without_slurmdbd_tiers_need_no_records_and_qos_are_refused(tmp_path: Path) -> None:
    seen = survey(tmp_path, config={"accountingstoragetype": "accounting_storage/none"})
    plain = tier_plan.plan(seen, wanted(GOLD), BLOCKS, tier_plan.Policy())
    assert plain.findings == []
    assert list(plain.writes) == [os.path.join(str(tmp_path), tiers.INCLUDE_NAME)]
    refused = tier_plan.plan(seen, wanted({**GOLD, "qos": {}}), BLOCKS, tier_plan.Policy())
    assert [found["code"] for found in refused.stopped_by()] == ["slurm_tier_accounting"]


def test_the_include_line_is_asked_for_or_added(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=lab")
    seen = survey(tmp_path, includes_ours=False)
    told = tier_plan.plan(seen, wanted(GOLD), BLOCKS, tier_plan.Policy())
    assert [found["code"] for found in told.stopped_by()] == ["slurm_tier_include"]
    done = tier_plan.plan(seen, wanted(GOLD), BLOCKS, tier_plan.Policy(manage_conf=True))
    assert done.writes[str(tmp_path / "slurm.conf")] == b"ClusterName=lab\nInclude nvlink_partitions.conf\n"
    assert tier_plan.plan(seen, wanted(), BLOCKS, tier_plan.Policy()).writes == {}


def test_a_partition_with_jobs_does_not_go(tmp_path: Path) -> None:
    text = tiers.render(wanted(GOLD).partitions)
    seen = survey(tmp_path, file=text, partitions=[{"PartitionName": "gold"}])
    fake(tmp_path, squeue="17 alice gold")
    stopped = tier_plan.plan(seen, wanted(), BLOCKS, tier_plan.Policy())
    assert "job 17 of alice in gold" in stopped.stopped_by()[0]["message"]
    fake(tmp_path, squeue="")
    assert tier_plan.plan(seen, wanted(), BLOCKS, tier_plan.Policy()).difference == ["partition gold: removed"]


def test_a_standby_only_keeps_the_file(tmp_path: Path) -> None:
    seen = survey(tmp_path)
    seen.seen.acting = "ctl1"
    made = tier_plan.plan(seen, wanted({**GOLD, "qos": {}}), BLOCKS, tier_plan.Policy())
    assert (made.before, made.after, made.reconfigure) == ([], [], False)
    assert list(made.writes) == [seen.path]


@pytest.mark.parametrize(
    ("job_submit", "script", "codes", "writes"),
    [
        (None, None, [], {"job_submit.lua", "nvlink_segments.lua", tiers.INCLUDE_NAME}),
        ("lua", "function slurm_job_submit() end", ["slurm_tier_segment_script"], None),
        ("lua", "dofile('nvlink_segments.lua')", [], {"nvlink_segments.lua", tiers.INCLUDE_NAME}),
        ("throttle", None, ["slurm_tier_segment_script"], None),
    ],
)
def test_the_segments_script_joins_what_a_site_has(
    tmp_path: Path, job_submit: str | None, script: str | None, codes: list[str], writes: set[str] | None
) -> None:
    if script is not None:
        (tmp_path / segments.SCRIPT_NAME).write_text(script)
    seen = survey(tmp_path, job_submit=job_submit)
    want = wanted({**GOLD, "segment": {"default": 1}})
    made = tier_plan.plan(seen, want, BLOCKS, tier_plan.Policy(segment_script=True))
    assert [found["code"] for found in made.findings] == codes
    if writes is not None:
        assert {os.path.basename(path) for path in made.writes} == writes
        assert (b"JobSubmitPlugins=lua" in made.writes[seen.path]) is (job_submit is None)


def test_segments_are_advice_where_slurm_does_not_know_them(tmp_path: Path) -> None:
    want = wanted({**GOLD, "segment": {"default": 1}}, version=OLD)
    made = tier_plan.plan(survey(tmp_path, OLD), want, BLOCKS, tier_plan.Policy(segment_script=True))
    assert [found["code"] for found in made.findings] == ["slurm_tier_segment_advice"]
    assert list(made.writes) == [made.survey.path]


def test_a_grant_by_hand_is_told_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want = wanted({**GOLD, "qos": {}, "accounts": ["x"]})
    records = Records(
        {"gold": Record("gold", MARK)},
        (Association("x", "", "", frozenset({"gold"})), Association("y", "", "", frozenset({"gold"}))),
    )
    monkeypatch.setattr(tier_plan.Sacctmgr, "records", lambda _self: records)
    made = tier_plan.plan(survey(tmp_path), want, BLOCKS, tier_plan.Policy())
    assert [found["code"] for found in made.findings] == ["slurm_tier_grant_by_hand"]
    assert made.before == []
    assert made.after == []
    # What an earlier run granted and nobody wants any more is taken back, what is by hand is not.
    text = tiers.render((), ["gold"], [tiers.Grant("x", "", "gold"), tiers.Grant("z", "", "gold")])
    less = wanted({**GOLD, "qos": {}})
    made = tier_plan.plan(survey(tmp_path, file=text), less, BLOCKS, tier_plan.Policy())
    assert [step.told for step in made.after] == ["account x: qos -= gold"]


def test_a_qos_that_another_partition_still_names_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records({"gold": Record("gold", MARK), "old": Record("old", MARK), "site": Record("site", "")})
    monkeypatch.setattr(tier_plan.Sacctmgr, "records", lambda _self: records)
    seen = survey(
        tmp_path,
        file=tiers.render((), ["gold", "old"], []),
        foreign={"special": "slurm.conf"},
        partitions=[{"PartitionName": "special", "QoS": "gold", "AllowAccounts": "x"}],
    )
    made = tier_plan.plan(seen, wanted(), BLOCKS, tier_plan.Policy())
    assert [found["code"] for found in made.findings] == ["slurm_tier_qos_used"]
    assert [step.told for step in made.after] == ["qos old: removed"]
