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


def codes(made: tier_plan.TierPlan) -> list[str]:
    return [row["code"] for row in made.findings]


CLOSED, WIDE = {**GOLD, "allow_groups": ["wheel"]}, {"name": "wide", "all": True}
OF_SITE = {"site_partitions": {"all": "x", "cpu": "x"}}
ALL, CPU = {"PartitionName": "all", "Nodes": "a[1-2],b1"}, {"PartitionName": "cpu", "Nodes": "b1"}
SEGMENT = {"name": "b", "blocks": ["b"], "segment": {"default": 3}}


@pytest.mark.parametrize(
    ("given", "more", "expected"),
    [
        ([GOLD], {}, []),
        ([GOLD], {"site_partitions": {"gold": "/etc/slurm/slurm.conf"}}, ["slurm_conf_inconsistent"]),
        ([GOLD], {"node_names": ["a1"]}, ["slurm_tier_unknown"]),
        ([{**GOLD, "topology": "elsewhere"}], {}, ["slurm_tier_unknown"]),
        ([{**GOLD, "segment": {"max": 3}}], {}, ["slurm_segment"]),
        # A segment above the base size, where Slurm refuses it.
        ([SEGMENT], {"version": OLD}, ["slurm_segment"]),
        ([SEGMENT], {}, []),
        # An unrestricted partition or tier gives all users the trays of a restricted one, where it shares them.
        ([CLOSED], {**OF_SITE, "partitions": [ALL]}, ["slurm_conf_advice"]),
        ([CLOSED], {**OF_SITE, "partitions": [{**ALL, "AllowGroups": "root"}, CPU]}, []),
        ([CLOSED, WIDE], {}, ["slurm_conf_advice"]),
        # A partition over several blocks above the base size.
        ([WIDE], {"version": OLD}, ["slurm_clique_above_base"]),
        ([{**WIDE, "per_block": True}], {"version": OLD}, []),
        ([WIDE], {}, []),
        # Records of slurmdbd.
        ([{**GOLD, "qos": {}}], {"records": printed({"gold": ""})}, ["object_unmanaged"]),
        ([{**GOLD, "qos": {"grp_tres": {"gres/gpu": 4}}}], {}, ["slurm_tier_unknown"]),
        ([{**GOLD, "qos": {"preempt": ["lead"]}}], {}, ["slurm_tier_unknown"]),
        ([{**GOLD, "qos": {}, "accounts": ["x"]}], {}, ["slurm_tier_unknown"]),
        ([{**GOLD, "allow_accounts": ["x"]}], {}, ["slurm_tier_unknown"]),
        ([{**GOLD, "allow_accounts": ["ALL"]}], {}, []),
        ([{**GOLD, "allow_accounts": ["x"]}], {"config": {"accountingstoragetype": ""}}, []),
        ([{**GOLD, "qos": {}}], {"config": {"accountingstorageenforce": "associations"}}, ["slurm_conf_advice"]),
        ([{**GOLD, "qos": {"priority": 1}}], {"config": {"priorityweightqos": "0"}}, ["slurm_conf_note"]),
        ([{**GOLD, "qos": {"preempt": ["gold"]}}], {"config": {"preempttype": "x"}}, ["slurm_conf_advice"]),
    ],
)
def test_findings_of_a_plan(given: list[dict[str, Any]], more: dict[str, Any], expected: list[str]) -> None:
    found = planned(survey(**more), *given).findings
    assert [row["code"] for row in found if row["case"] != "segments"] == expected


def test_only_accounts_that_are_granted_a_qos_are_created() -> None:
    granted = {**GOLD, "qos": {}, "accounts": ["x"], "allow_accounts": ["x"]}
    assert codes(planned(survey(), granted, create_accounts=True)) == []
    assert codes(planned(survey(), {**GOLD, "allow_accounts": ["x"]}, create_accounts=True)) == ["slurm_tier_unknown"]


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
