# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The findings of a plan of tiers, and the planned changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import worded
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import programs
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import TIERS_NAME, SlurmConf
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, ShownBlock, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import accounting, segments, tier_plan, tiers
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.accounting import Record, Records
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import surveying

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
    tmp_path: Path,
    version: tuple[int, int, int] = NEW,
    file: str | None = None,
    conf: dict[str, Any] | None = None,
    **more: Any,
) -> tier_plan.TierSurvey:
    base = 2 if version < (25, 5, 0) else 3
    observed = surveying.Survey(
        slurm=programs.Slurm(str(tmp_path / "bin")),
        conf_dir=str(tmp_path),
        version=version,
        style="conf" if version < (25, 5, 0) else "yaml",
        conf=SlurmConf(str(tmp_path / "slurm.conf"), **{"includes_tiers": True, **(conf or {})}),
        config={**CONFIG, **more.pop("config", {})},
        running=[] if version < (25, 5, 0) else [Topology("nvlink", blocks=BLOCKS)],
        shown=[ShownBlock(block.name, block.nodes, base, False) for block in BLOCKS],
    )
    values: dict[str, Any] = {
        "partitions": [],
        "nodes": NODES,
        "records": Records(tres=frozenset({"node", "cpu"})),
        **more,
    }
    return tier_plan.TierSurvey(observed=observed, file=None if file is None else file.encode(), **values)


def desired(*given: dict[str, Any], version: tuple[int, int, int] = NEW) -> tiers.DesiredTiers:
    return tiers.build(given, BLOCKS, {}, version)


GOLD = {"name": "gold", "blocks": ["a"]}


def of_partitions(present: tier_plan.TierSurvey, want: tiers.DesiredTiers) -> list[str]:
    return [found["code"] for found in tier_plan._partition_findings(present, want, BLOCKS)]


def of_records(present: tier_plan.TierSurvey, want: tiers.DesiredTiers, **policy: bool) -> list[str]:
    return [found["code"] for found in tier_plan._record_findings(present, want, tier_plan.Policy(**policy))]


@pytest.mark.parametrize(
    ("tier", "more", "code"),
    [
        (GOLD, {"conf": {"partitions": {"gold": "/etc/slurm/slurm.conf"}}}, "slurm_conf_inconsistent"),
        (GOLD, {"nodes": frozenset({"a1"})}, "slurm_tier_unknown"),
        ({**GOLD, "topology": "elsewhere"}, {}, "slurm_tier_unknown"),
        ({**GOLD, "segment": {"max": 3}}, {}, "slurm_segment"),
        (
            {**GOLD, "allow_groups": ["wheel"]},
            {
                "conf": {"partitions": {"all": "slurm.conf"}},
                "partitions": [{"PartitionName": "all", "Nodes": "a[1-2],b1"}],
            },
            "slurm_conf_advice",
        ),
    ],
)
def test_findings_of_partitions(tmp_path: Path, tier: dict[str, Any], more: dict[str, Any], code: str) -> None:
    assert of_partitions(survey(tmp_path, **more), desired(tier)) == [code]


def test_an_unrestricted_partition_is_a_finding_only_where_it_shares_trays(tmp_path: Path) -> None:
    closed = {"PartitionName": "all", "Nodes": "a[1-2]", "AllowGroups": "root"}
    other = {"PartitionName": "cpu", "Nodes": "b1"}
    present = survey(tmp_path, conf={"partitions": {"all": "x", "cpu": "x"}}, partitions=[closed, other])
    assert of_partitions(present, desired({**GOLD, "allow_groups": ["wheel"]})) == []
    # An unrestricted tier gives all users the trays of a restricted one.
    both = desired({**GOLD, "allow_groups": ["wheel"]}, {"name": "all", "all": True})
    assert of_partitions(survey(tmp_path), both) == ["slurm_conf_advice"]


def test_a_partition_over_several_blocks_above_the_base_size_is_a_finding(tmp_path: Path) -> None:
    wide, each = {"name": "wide", "all": True}, {"name": "each", "all": True, "per_block": True}
    assert of_partitions(survey(tmp_path, OLD), desired(wide, version=OLD)) == ["slurm_clique_above_base"]
    assert of_partitions(survey(tmp_path, OLD), desired(each, version=OLD)) == []
    assert of_partitions(survey(tmp_path, NEW), desired(wide)) == []


def test_a_segment_above_the_base_size_is_an_error_where_slurm_refuses_it(tmp_path: Path) -> None:
    tier = {"name": "b", "blocks": ["b"], "segment": {"default": 3}}
    assert of_partitions(survey(tmp_path, OLD), desired(tier, version=OLD)) == ["slurm_segment"]
    assert of_partitions(survey(tmp_path, NEW), desired(tier)) == []


def test_a_manual_state_is_a_finding_until_the_tier_changes(tmp_path: Path) -> None:
    want = desired(GOLD)
    text = tiers.render(want.partitions)
    running = [{"PartitionName": "gold", "State": "DRAIN"}]
    assert of_partitions(survey(tmp_path, file=text, partitions=running), want) == ["slurm_conf_note"]
    assert of_partitions(survey(tmp_path, file=text, partitions=running), desired({**GOLD, "state": "down"})) == []


@pytest.mark.parametrize(
    ("tier", "more", "code"),
    [
        ({"qos": {}}, {"records": Records({"gold": Record("gold")})}, "object_unmanaged"),
        ({"qos": {"grp_tres": {"gres/gpu": 4}}}, {}, "slurm_tier_unknown"),
        ({"qos": {"preempt": ["lead"]}}, {}, "slurm_tier_unknown"),
        ({"qos": {}, "accounts": ["x"]}, {}, "slurm_tier_unknown"),
        ({"allow_accounts": ["x"]}, {}, "slurm_tier_unknown"),
        ({"qos": {}}, {"config": {"accountingstorageenforce": "associations,limits"}}, "slurm_conf_advice"),
        ({"qos": {"priority": 1}}, {"config": {"priorityweightqos": "0"}}, "slurm_conf_note"),
        ({"qos": {"preempt": ["gold"]}}, {"config": {"preempttype": "preempt/none"}}, "slurm_conf_advice"),
    ],
)
def test_findings_of_records(tmp_path: Path, tier: dict[str, Any], more: dict[str, Any], code: str) -> None:
    assert of_records(survey(tmp_path, **more), desired({**GOLD, **tier})) == [code]


def test_only_accounts_that_are_granted_a_qos_are_created(tmp_path: Path) -> None:
    granted = desired({**GOLD, "qos": {}, "accounts": ["x"], "allow_accounts": ["x"]})
    assert of_records(survey(tmp_path), granted, create_accounts=True) == []
    assert of_records(survey(tmp_path), desired({**GOLD, "allow_accounts": ["x"]}), create_accounts=True) == [
        "slurm_tier_unknown"
    ]


def fake(tmp_path: Path, **outputs: str) -> None:
    """Slurm's programs as scripts with a fixed output."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    for name, text in outputs.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        path.chmod(0o755)


def test_without_slurmdbd_plain_tiers_are_planned_and_qos_refused(tmp_path: Path) -> None:
    present = survey(tmp_path, config={"accountingstoragetype": "accounting_storage/none"})
    plain = tier_plan.plan(present, desired(GOLD), BLOCKS, tier_plan.Policy())
    assert plain.findings == []
    assert list(plain.writes) == [os.path.join(str(tmp_path), TIERS_NAME)]
    refused = tier_plan.plan(present, desired({**GOLD, "qos": {}}), BLOCKS, tier_plan.Policy())
    assert [found["code"] for found in refused.stopped_by()] == ["slurm_tier_unknown"]


def test_a_missing_include_line_is_an_error_or_added(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=lab")
    present = survey(tmp_path, conf={"includes_tiers": False})
    refused = tier_plan.plan(present, desired(GOLD), BLOCKS, tier_plan.Policy())
    assert [found["code"] for found in refused.stopped_by()] == ["slurm_conf_inconsistent"]
    done = tier_plan.plan(present, desired(GOLD), BLOCKS, tier_plan.Policy(manage_conf=True))
    assert done.writes[str(tmp_path / "slurm.conf")] == b"ClusterName=lab\nInclude nvlink_partitions.conf\n"
    assert tier_plan.plan(present, desired(), BLOCKS, tier_plan.Policy()).writes == {}


def test_a_partition_with_jobs_is_not_removed(tmp_path: Path) -> None:
    text = tiers.render(desired(GOLD).partitions)
    present = survey(tmp_path, file=text, partitions=[{"PartitionName": "gold"}])
    fake(tmp_path, squeue="17 alice gold")
    stopped = tier_plan.plan(present, desired(), BLOCKS, tier_plan.Policy())
    assert "job 17 of alice in gold" in worded(stopped.stopped_by()[0])["message"]
    fake(tmp_path, squeue="")
    assert tier_plan.plan(present, desired(), BLOCKS, tier_plan.Policy()).difference == ["partition gold: removed"]


def test_on_a_standby_only_the_file_is_written(tmp_path: Path) -> None:
    present = survey(tmp_path)
    present.observed.acting = "ctl1"
    made = tier_plan.plan(present, desired({**GOLD, "qos": {}}), BLOCKS, tier_plan.Policy())
    assert (made.before, made.after, made.reconfigure) == ([], [], False)
    assert list(made.writes) == [present.path]


@pytest.mark.parametrize(
    ("job_submit", "script", "codes", "writes"),
    [
        (None, None, [], {"job_submit.lua", "nvlink_segments.lua", TIERS_NAME}),
        ("lua", "function slurm_job_submit() end", ["slurm_conf_inconsistent"], None),
        ("lua", "dofile('nvlink_segments.lua')", [], {"nvlink_segments.lua", TIERS_NAME}),
        ("throttle", None, ["slurm_conf_inconsistent"], None),
    ],
)
def test_the_script_for_segments_is_added_to_the_sites(
    tmp_path: Path, job_submit: str | None, script: str | None, codes: list[str], writes: set[str] | None
) -> None:
    if script is not None:
        (tmp_path / segments.SCRIPT_NAME).write_text(script)
    present = survey(tmp_path, conf={"settings": {"jobsubmitplugins": job_submit or ""}})
    want = desired({**GOLD, "segment": {"default": 1}})
    made = tier_plan.plan(present, want, BLOCKS, tier_plan.Policy(segment_script=True))
    assert [found["code"] for found in made.findings] == codes
    if writes is not None:
        assert {os.path.basename(path) for path in made.writes} == writes
        assert (b"JobSubmitPlugins=lua" in made.writes[present.path]) is (job_submit is None)


@pytest.mark.parametrize(
    ("parameters", "cli_filter", "there", "set_by_us", "codes"),
    [
        ("idle_on_node_suspend,enable_configless", None, None, True, []),
        ("enable_configless", "lua", None, False, []),
        # On a host without the script sbatch would fail.
        ("", None, None, False, ["slurm_conf_inconsistent"]),
        ("enable_configless", "lua", "-- the site's own", None, ["slurm_conf_inconsistent"]),
    ],
)
def test_before_25_11_2_the_policy_is_a_script_of_the_commands_that_submit(
    tmp_path: Path, parameters: str, cli_filter: str | None, there: str | None, set_by_us: bool | None, codes: list[str]
) -> None:
    script = tmp_path / segments.CLIENT_NAME
    if there:
        script.write_text(there)
    want = desired({**GOLD, "default": True, "segment": {"default": 1}}, version=OLD)
    settings = {"clifilterplugins": cli_filter or ""}
    present = survey(tmp_path, OLD, conf={"settings": settings}, config={"slurmctldparameters": parameters})
    made = tier_plan.plan(present, want, BLOCKS, tier_plan.Policy(segment_script=True))
    assert [found["code"] for found in made.findings] == codes
    assert (str(script) in made.writes) is (there is None)
    assert (b"CliFilterPlugins=lua" in made.writes[present.path]) is (set_by_us is True)
    if there is None:
        assert b'default_partition = "gold"' in made.writes[str(script)]
        # Written before the file that loads it.
        assert list(made.writes) == [str(script), present.path]


def test_a_slurm_without_lua_gets_no_script(tmp_path: Path) -> None:
    want = desired({**GOLD, "segment": {"default": 1}}, version=OLD)
    config = {"slurmctldparameters": "enable_configless", "plugindir": f"{tmp_path}:{tmp_path}/more"}
    for plugin in (False, True):
        if plugin:
            (tmp_path / "cli_filter_lua.so").touch()
        present = survey(tmp_path, OLD, config=config)
        made = tier_plan.plan(present, want, BLOCKS, tier_plan.Policy(segment_script=True))
        assert (str(tmp_path / segments.CLIENT_NAME) in made.writes) is plugin
        assert ["slurm_conf_inconsistent"] * (not plugin) == [found["code"] for found in made.findings]


def test_a_manual_grant_is_a_finding_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want = desired({**GOLD, "qos": {}, "accounts": ["x"]})
    records = Records(
        {"gold": Record(MARK)},
        frozenset({("x", ""), ("y", "")}),
        frozenset({tiers.Grant("x", "", "gold"), tiers.Grant("y", "", "gold")}),
    )
    monkeypatch.setattr(tier_plan.Sacctmgr, "records", lambda _self: records)
    made = tier_plan.plan(survey(tmp_path), want, BLOCKS, tier_plan.Policy())
    assert [found["code"] for found in made.findings] == ["slurm_conf_note"]
    assert made.before == []
    assert made.after == []
    # A grant of an earlier run that no tier has any more is revoked, a manual one is not.
    text = tiers.render((), ["gold"], [tiers.Grant("x", "", "gold"), tiers.Grant("z", "", "gold")])
    less = desired({**GOLD, "qos": {}})
    made = tier_plan.plan(survey(tmp_path, file=text), less, BLOCKS, tier_plan.Policy())
    assert [step.description for step in made.after] == ["account x: qos -= gold"]


def test_a_qos_that_another_partition_names_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records({"gold": Record(MARK), "old": Record(MARK), "site": Record("")})
    monkeypatch.setattr(tier_plan.Sacctmgr, "records", lambda _self: records)
    present = survey(
        tmp_path,
        file=tiers.render((), ["gold", "old"], []),
        conf={"partitions": {"special": "slurm.conf"}},
        partitions=[{"PartitionName": "special", "QoS": "gold", "AllowAccounts": "x"}],
    )
    made = tier_plan.plan(present, desired(), BLOCKS, tier_plan.Policy())
    assert [found["code"] for found in made.findings] == ["slurm_conf_advice"]
    assert [step.description for step in made.after] == ["qos old: removed"]
