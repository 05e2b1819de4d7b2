# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The findings of a plan of tiers, and the planned changes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.node_names import NodeNames
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import (
    POLICY_NAME,
    SCRIPT_NAME,
    TIERS_NAME,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    Block,
    ShownBlock,
    SlurmError,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import accounting, tier_plan, tiers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.accounting import Record, Records
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.tier_plan import Policy

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


def survey(version: tuple[int, int, int] = NEW, file: str | None = None, **more: Any) -> Observed:
    base = 2 if version < (25, 5, 0) else 3
    values: dict[str, Any] = {
        "includes_tiers": True,
        "partition_records": tuple(more.pop("partitions", ())),
        "texts": {} if file is None else {TIERS_NAME: file},
        "nodes": tuple(map(NodeNames, sorted(more.pop("node_names", NODES)))),
        "records": {"qos": "", "assoc": "", "tres": "node|\ncpu|\n"},
        **more,
        "config": {**CONFIG, **more.get("config", {})},
    }
    return Observed(
        conf_dir="/etc/slurm",
        version=version,
        style="conf" if version < (25, 5, 0) else "yaml",
        running=[] if version < (25, 5, 0) else [Topology("nvlink", blocks=BLOCKS)],
        shown=[ShownBlock(block.name, block.nodes, base, False) for block in BLOCKS],
        **values,
    )


def printed(qos: dict[str, str], *grants: tuple[str, str]) -> dict[str, str]:
    """What sacctmgr prints of QoS, by their descriptions, and of accounts with a QoS."""
    unset = "|" * len(accounting.FIELDS)
    return {
        "qos": "".join(f"{name}|{unset}{description}\n" for name, description in qos.items()),
        "assoc": "".join(f"{account}|||{name}\n" for account, name in grants),
        "tres": "node|\ncpu|\n",
    }


def desired(*given: dict[str, Any], version: tuple[int, int, int] = NEW) -> tiers.DesiredTiers:
    return tiers.build(given, BLOCKS, {}, version)


GOLD = {"name": "gold", "blocks": ["a"]}


def planned(present: Observed, *given: dict[str, Any], **policy: bool) -> tier_plan.TierPlan:
    return tier_plan.plan(present, desired(*given, version=present.version), BLOCKS, Policy(**policy))


def of_partitions(present: Observed, want: tiers.DesiredTiers) -> list[str]:
    return [found["code"] for found in tier_plan._partition_findings(present, want, BLOCKS)]


def of_records(records: Records, want: tiers.DesiredTiers, config: dict[str, str], **policy: bool) -> list[str]:
    found = tier_plan._record_findings(survey(config=config), records, want, Policy(**policy))
    return [row["code"] for row in found]


@pytest.mark.parametrize(
    ("tier", "more", "code"),
    [
        (GOLD, {"site_partitions": {"gold": "/etc/slurm/slurm.conf"}}, "slurm_conf_inconsistent"),
        (GOLD, {"node_names": ["a1"]}, "slurm_tier_unknown"),
        ({**GOLD, "topology": "elsewhere"}, {}, "slurm_tier_unknown"),
        ({**GOLD, "segment": {"max": 3}}, {}, "slurm_segment"),
        (
            {**GOLD, "allow_groups": ["wheel"]},
            {
                "site_partitions": {"all": "slurm.conf"},
                "partitions": [{"PartitionName": "all", "Nodes": "a[1-2],b1"}],
            },
            "slurm_conf_advice",
        ),
    ],
)
def test_findings_of_partitions(tier: dict[str, Any], more: dict[str, Any], code: str) -> None:
    assert of_partitions(survey(**more), desired(tier)) == [code]


def test_an_unrestricted_partition_is_a_finding_only_where_it_shares_trays() -> None:
    closed = {"PartitionName": "all", "Nodes": "a[1-2]", "AllowGroups": "root"}
    other = {"PartitionName": "cpu", "Nodes": "b1"}
    present = survey(site_partitions={"all": "x", "cpu": "x"}, partitions=[closed, other])
    assert of_partitions(present, desired({**GOLD, "allow_groups": ["wheel"]})) == []
    # An unrestricted tier gives all users the trays of a restricted one.
    both = desired({**GOLD, "allow_groups": ["wheel"]}, {"name": "all", "all": True})
    assert of_partitions(survey(), both) == ["slurm_conf_advice"]


def test_a_partition_over_several_blocks_above_the_base_size_is_a_finding() -> None:
    wide, each = {"name": "wide", "all": True}, {"name": "each", "all": True, "per_block": True}
    assert of_partitions(survey(OLD), desired(wide, version=OLD)) == ["slurm_clique_above_base"]
    assert of_partitions(survey(OLD), desired(each, version=OLD)) == []
    assert of_partitions(survey(NEW), desired(wide)) == []


def test_a_segment_above_the_base_size_is_an_error_where_slurm_refuses_it() -> None:
    tier = {"name": "b", "blocks": ["b"], "segment": {"default": 3}}
    assert of_partitions(survey(OLD), desired(tier, version=OLD)) == ["slurm_segment"]
    assert of_partitions(survey(NEW), desired(tier)) == []


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
def test_findings_of_records(tier: dict[str, Any], more: dict[str, Any], code: str) -> None:
    records = more.get("records", Records(tres=frozenset({"node", "cpu"})))
    assert of_records(records, desired({**GOLD, **tier}), more.get("config", {})) == [code]


def test_only_accounts_that_are_granted_a_qos_are_created() -> None:
    granted = desired({**GOLD, "qos": {}, "accounts": ["x"], "allow_accounts": ["x"]})
    assert of_records(Records(), granted, {}, create_accounts=True) == []
    named = desired({**GOLD, "allow_accounts": ["x"]})
    assert of_records(Records(), named, {}, create_accounts=True) == ["slurm_tier_unknown"]


def test_without_slurmdbd_plain_tiers_are_planned_and_qos_refused() -> None:
    present = survey(config={"accountingstoragetype": "accounting_storage/none"})
    plain = planned(present, GOLD)
    assert (plain.findings, list(plain.writes)) == ([], [plain.path])
    assert [found["code"] for found in planned(present, {**GOLD, "qos": {}}).stopped_by()] == ["slurm_tier_unknown"]
    # One that does not answer stops those that need it.
    present = survey(unanswered="slurmdbd does not answer (refused): start it.")
    assert planned(present, GOLD).findings == []
    with pytest.raises(SlurmError, match="slurmdbd does not answer"):
        planned(present, {**GOLD, "qos": {}})


@pytest.mark.parametrize("printed", [{}, {"qos": "a|b", "assoc": "one", "tres": ""}])
def test_what_is_no_output_of_sacctmgr_is_an_error(printed: dict[str, str]) -> None:
    with pytest.raises(SlurmError, match="sacctmgr has printed no records"):
        planned(survey(records=printed), {**GOLD, "qos": {}})


def test_a_missing_include_line_is_an_error_or_added() -> None:
    present = survey(includes_tiers=False)
    assert [found["code"] for found in planned(present, GOLD).stopped_by()] == ["slurm_conf_inconsistent"]
    done = planned(present, GOLD, manage_conf=True)
    assert (done.written[-1], done.change("")["includes"]) == ("/etc/slurm/slurm.conf", TIERS_NAME)
    assert done.difference[-1] == "slurm.conf: gets the line Include nvlink_partitions.conf"
    assert planned(present).written == []


def test_a_partition_that_goes_must_have_no_jobs() -> None:
    present = survey(file=tiers.render(desired(GOLD).partitions), partitions=[{"PartitionName": "gold"}])
    made = planned(present)
    assert (made.difference, made.leaving) == (["partition gold: removed"], ["gold"])
    assert made.to_rehearse(None, False)["leaving"] == made.change("")["leaving"] == ["gold"]
    assert tier_plan.plan_removal(present).leaving == ["gold"]


def test_on_a_standby_only_the_file_is_written() -> None:
    made = planned(survey(acting="ctl1"), {**GOLD, "qos": {}})
    assert (made.before, made.after, made.reconfigure) == ([], [], False)
    assert list(made.writes) == [made.path]


@pytest.mark.parametrize(
    ("job_submit", "script", "codes", "writes"),
    [
        (None, None, [], {"job_submit.lua", "nvlink_segments.lua", TIERS_NAME}),
        # Of a script of the site the host says no more than whether it names the policy.
        ("lua", "", ["slurm_conf_inconsistent"], None),
        ("lua", POLICY_NAME, [], {"nvlink_segments.lua", TIERS_NAME}),
        ("throttle", None, ["slurm_conf_inconsistent"], None),
    ],
)
def test_the_script_for_segments_is_added_to_the_sites(
    job_submit: str | None, script: str | None, codes: list[str], writes: set[str] | None
) -> None:
    texts = {} if script is None else {SCRIPT_NAME: script}
    present = survey(settings={"jobsubmitplugins": job_submit or ""}, texts=texts)
    made = planned(present, {**GOLD, "segment": {"default": 1}}, segment_script=True)
    assert [found["code"] for found in made.findings] == codes
    if writes is not None:
        assert {path.rpartition("/")[2] for path in made.writes} == writes
        assert ("JobSubmitPlugins=lua" in made.writes[made.path]) is (job_submit is None)


def test_a_release_whose_job_submit_has_no_segments_gets_no_script() -> None:
    made = planned(survey(OLD), {**GOLD, "segment": {"default": 1}}, segment_script=True)
    assert (list(made.writes), [found["code"] for found in made.findings]) == ([made.path], ["release_old"])


def test_a_manual_grant_is_kept() -> None:
    records = printed({"gold": MARK}, ("x", "gold"), ("y", "gold"))
    made = planned(survey(records=records), {**GOLD, "qos": {}, "accounts": ["x"]})
    assert (made.findings, made.before, made.after) == ([], [], [])
    # A grant of an earlier run that no tier has any more is revoked, a manual one is not.
    text = tiers.render((), ["gold"], [tiers.Grant("x", "", "gold"), tiers.Grant("z", "", "gold")])
    made = planned(survey(file=text, records=records), {**GOLD, "qos": {}})
    assert [step.description for step in made.after] == ["account x: qos -= gold"]


def test_a_qos_that_another_partition_names_is_kept() -> None:
    present = survey(
        file=tiers.render((), ["gold", "old"], []),
        site_partitions={"special": "slurm.conf"},
        partitions=[{"PartitionName": "special", "QoS": "gold", "AllowAccounts": "x"}],
        records=printed({"gold": MARK, "old": MARK, "site": ""}),
    )
    made = planned(present)
    assert [found["code"] for found in made.findings] == ["slurm_conf_advice"]
    assert [step.description for step in made.after] == ["qos old: removed"]
