# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tiers: partitions and their file, QoS and the steps to them, wrong options, and the plan with its findings."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.node_names import NodeNames
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import (
    POLICY_NAME,
    SCRIPT_NAME,
    TIERS_NAME,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    Block,
    ShownBlock,
    SlurmError,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import partitions
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.partitions import Partition
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import accounting, segments, tier_plan, tiers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.accounting import Record, Records
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.tiers import Grant, Qos
from hypothesis import given
from hypothesis import strategies as st

OLD, YAML, NEW = (24, 11, 5), (25, 5, 0), (26, 5, 5)
BLOCKS = (
    Block("r01a", ("r01t01", "r01t02"), "r01t[01-02]"),
    Block("r01b", ("r01t03", "r01t04", "r01t05"), "r01t[03-05]"),
    Block("gone"),
)
CLIQUES = {"c1": ["r01a"], "c2": ["r01b"], "gone": ["gone"]}


def build(*given_tiers: dict[str, Any], version: tuple[int, int, int] = NEW, topology: str = "") -> tiers.DesiredTiers:
    return tiers.build(given_tiers, BLOCKS, CLIQUES, version, topology)


# ------------------------------------------------------------------------------------------------- partitions

NAME = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True)
LOWER = st.from_regex(r"[a-z0-9_][a-z0-9._-]{0,20}", fullmatch=True)
SETTINGS = st.lists(
    st.tuples(
        st.from_regex(r"[A-Z][A-Za-z]{1,12}", fullmatch=True).filter(lambda key: key.lower() != "nodes"),
        st.from_regex(r"[A-Za-z0-9.,:/=+%-]{1,20}", fullmatch=True),
    ),
    max_size=6,
    unique_by=lambda pair: pair[0].lower(),
).map(tuple)
PARTITIONS = st.lists(
    st.builds(
        lambda name, first, count, settings: Partition(
            name,
            (("Nodes", f"n[{first:03d}-{first + count - 1:03d}]"), *settings),
            tuple(f"n{number:03d}" for number in range(first, first + count)),
        ),
        NAME,
        st.integers(0, 500),
        st.integers(1, 300),
        SETTINGS,
    ),
    max_size=6,
)
GRANTS = st.frozensets(st.builds(Grant, LOWER, st.one_of(st.just(""), LOWER), LOWER), max_size=5)


@given(PARTITIONS, st.frozensets(LOWER, max_size=4), GRANTS, st.sampled_from([{}, {"JobSubmitPlugins": "lua"}]))
def test_the_file_of_partitions_round_trips(
    partitions: list[Partition], qos: frozenset[str], grants: frozenset[Grant], settings: dict[str, str]
) -> None:
    text = tiers.render(partitions, qos, grants, settings)
    read = tiers.parse(text)
    assert list(read.partitions) == partitions
    assert (read.qos, read.grants) == (qos, grants)
    assert tiers.render(read.partitions, read.qos, read.grants, settings) == text


def test_one_tier_over_blocks_or_one_partition_a_block() -> None:
    one = build({"name": "gold", "blocks": ["r01b", "r01a"]}).partitions
    assert [(known.name, known.get("Nodes"), known.blocks) for known in one] == [
        ("gold", "r01t[01-05]", ("r01a", "r01b"))
    ]
    each = build({"name": "lease", "all": True, "per_block": True}).partitions
    assert [(known.name, known.get("Nodes")) for known in each] == [
        ("lease_r01a", "r01t[01-02]"),
        ("lease_r01b", "r01t[03-05]"),
    ]
    by_clique = build({"name": "gold", "cliques": ["c2"]}).partitions
    assert by_clique[0].nodes == BLOCKS[1].nodes


def test_exclusive_and_topology_are_written_in_the_form_of_the_version() -> None:
    tier = {"name": "gold", "blocks": ["r01a"]}
    for version, exclusive, line in (
        (OLD, "topo", "ExclusiveTopo=YES"),
        (NEW, "topo", "Exclusive=TOPO"),
        (OLD, "user", "ExclusiveUser=YES"),
        (NEW, "node", "Exclusive=NODE"),
    ):
        assert f" {line}" in build({**tier, "exclusive": exclusive}, version=version).partitions[0].line()
    assert build(tier, version=OLD, topology="nvlink").partitions[0].get("Topology") == ""
    assert build(tier, version=YAML, topology="nvlink").partitions[0].get("Topology") == "nvlink"
    assert build({**tier, "topology": "flat"}, version=YAML).partitions[0].get("Topology") == "flat"
    with pytest.raises(SlurmError, match=r"upgrade to 25.05"):
        build({**tier, "topology": "flat"}, version=OLD)


def test_every_option_of_a_tier_is_in_its_line() -> None:
    made = build(
        {
            "name": "gold",
            "blocks": ["r01a"],
            "default": True,
            "state": "drain",
            "priority_tier": 7,
            "min_nodes": 1,
            "max_nodes": 2,
            "default_time": "30",
            "max_time": "1-00:00:00",
            "allow_groups": ["wheel"],
            "allow_accounts": ["a", "b"],
            "allow_qos": ["normal"],
            "qos": {"priority": 1},
            "partition_qos": {"grp_jobs": 3},
            "options": {"DefMemPerNode": 100},
        }
    )
    assert made.partitions[0].line() == (
        "PartitionName=gold Nodes=r01t[01-02] Default=YES State=DRAIN PriorityTier=7 MinNodes=1 MaxNodes=2"
        " DefaultTime=30 MaxTime=1-00:00:00 AllowAccounts=a,b AllowGroups=wheel AllowQos=gold,normal QOS=gold_limits"
        " DefMemPerNode=100"
    )
    assert made.other_qos == (("gold", "normal"),)


GOLD = {"name": "gold", "blocks": ["r01a"]}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([{"name": "gold"}], "exactly one of blocks, cliques or all"),
        ([{**GOLD, "blocks": ["r99"]}], "'r99' is no block"),
        ([{**GOLD, "blocks": ["gone"]}], "block gone has no tray"),
        ([{**GOLD, "name": "DEFAULT"}], "choose another one"),
        ([{**GOLD, "name": "a b"}], "is not a valid name"),
        ([GOLD, {**GOLD, "name": "GOLD"}], "two partitions are named GOLD"),
        ([{**GOLD, "default": True}, {**GOLD, "name": "b", "default": True}], "gold and b both have default: true"),
        ([{**GOLD, "default": True, "per_block": True}], "with per_block there are several partitions"),
        ([{**GOLD, "min_nodes": 3, "max_nodes": 2}], "min_nodes 3 is above max_nodes 2"),
        ([{**GOLD, "max_time": "soon"}], "'soon' is not a time"),
        ([{**GOLD, "max_time": "10", "default_time": "20"}], "default_time 20 is above max_time"),
        ([{**GOLD, "accounts": ["a"]}], "its qos, which is missing"),
        ([{**GOLD, "options": {"MaxNodes x": "1"}}], "is no setting"),
        ([{**GOLD, "options": {"X": "1 Default=YES"}}], "is no setting"),
        ([{**GOLD, "options": {"X": "1\nPartitionName=y"}}], "is no setting"),
        ([{**GOLD, "options": {"nodes": "ALL"}}], "has an option for nodes"),
        ([{**GOLD, "segment": {"default": 9, "max": 8}}], "default 9 is above max 8"),
        ([{**GOLD, "qos": {"name": "q", "priority": 1}}, {**GOLD, "name": "b", "qos": {"name": "q", "priority": 2}}],
         "another tier defines q differently"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_one_sentence_with_tier_and_field(wrong: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(SlurmError, match=r"^tiers.*\.$") as caught:
        build(*wrong)
    assert message in str(caught.value)


def test_tiers_share_a_qos_that_one_of_them_defines() -> None:
    made = build(
        {**GOLD, "qos": {"name": "paid"}}, {"name": "b", "blocks": ["r01b"], "qos": {"name": "paid", "priority": 5}}
    )
    assert made.qos == (Qos("paid", {"priority": 5}),)


@pytest.mark.parametrize(
    ("key", "value", "differs"),
    [
        ("Nodes", "r01t[01,02]", False),
        ("MaxTime", "1-00:00:00", False),
        ("AllowQos", "ALL", True),
        ("AllowAccounts", "ALL", False),
        ("QoS", "N/A", False),
        ("QoS", "other", True),
        ("PriorityTier", "1", True),
        ("State", "DRAIN", False),
    ],
)
def test_running_partitions_are_compared_by_meaning(key: str, value: str, differs: bool) -> None:
    tier = {**GOLD, "max_time": "1440", "priority_tier": 7, "qos": {}, "allow_qos": ["normal"]}
    (partition,) = build(tier).partitions
    record = {
        "Nodes": "r01t[01-02]",
        "MaxTime": "1-00:00:00",
        "AllowQos": "gold,normal",
        "PriorityTier": "7",
        "State": "UP",
        key: value,
    }
    assert bool(partitions.differences(partition, record)) is differs


def test_times_are_parsed_as_slurm_parses_them() -> None:
    parsed = [tiers.parse_time(text, "x") for text in ("90:30", "1-0", "2-01:30:01", "INFINITE")]
    assert parsed == [91, 1440, 2971, None]


# ------------------------------------------------------------------------------------------------- accounting

MARK = accounting.mark("lab")
COUNTS = st.dictionaries(st.sampled_from(["node", "cpu", "gres/gpu", "mem"]), st.integers(0, 10**6), max_size=4)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "priority": st.integers(0, 10**6),
    "grp_tres": COUNTS,
    "max_tres_per_user": COUNTS,
    "grp_jobs": st.integers(0, 1000),
    "max_wall": st.integers(1, 10**5),
    "flags": st.lists(st.sampled_from(["DenyOnLimit", "OverPartQOS", "NoDecay"]), unique=True),
    "preempt": st.lists(st.sampled_from(["bronze", "silver"]), unique=True),
    "preempt_mode": st.sampled_from(["cluster", "cancel", "requeue"]),
    "grace_time": st.integers(0, 10**4),
    "usage_factor": st.sampled_from([0.5, 1, 1.0, 2.25]),
}
SETTINGS_OF_QOS = st.fixed_dictionaries({}, optional=VALUES)


def play(steps: list[accounting.Step], qos: dict[str, dict[str, Any]], undo: bool = False) -> dict[str, dict[str, Any]]:
    """The records of slurmdbd after steps, as observed: TRES are updated key by key, other fields as a whole."""
    made = {name: dict(settings) for name, settings in qos.items()}
    for step in reversed(steps) if undo else steps:
        verb, _what, name, *rest = step.undo if undo else step.do
        if verb == "delete":
            del made[name]
            continue
        settings = made.setdefault(name, {}) if verb == "add" else made[name]
        for pair in rest:
            key, equals, value = pair.partition("=")
            if not equals or key == "Description":
                continue
            known = next(known for known in accounting.FIELDS if known.key == key)
            if "TRES" in key:
                old = dict(settings.get(known.option, {}))
                for part in value.split(","):
                    kind, _equals, count = part.partition("=")
                    old.pop(kind, None)
                    old.update({} if count == "-1" else {kind: int(count)})
                read: Any = old or None
            else:
                read = known.value(value)
            settings.pop(known.option, None)
            settings.update({} if read is None else {known.option: read})
    return made


@given(SETTINGS_OF_QOS, SETTINGS_OF_QOS, st.booleans())
def test_the_steps_lead_from_any_qos_to_any_other_and_back(
    before: dict[str, Any], after: dict[str, Any], new: bool
) -> None:
    settings = accounting.canonical(Qos("gold", before))
    records = Records({} if new else {"gold": Record(MARK, settings)})
    start = {name: dict(record.settings) for name, record in records.qos.items()}
    steps = accounting.qos_steps([Qos("gold", after)], records, "lab")
    ended = play(steps, start)
    assert ended == {"gold": accounting.canonical(Qos("gold", after))}
    assert play(steps, ended, undo=True) == start
    updated = Records({"gold": Record(MARK, ended["gold"])})
    assert accounting.qos_steps([Qos("gold", after)], updated, "lab") == []


def test_a_qos_belongs_to_the_tiers_of_a_cluster_by_its_mark() -> None:
    assert accounting.is_ours(Record(MARK), "Lab")
    assert not accounting.is_ours(Record(MARK), "other")
    assert not accounting.is_ours(Record("gold"), "lab")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("priority", "high"),
        ("grp_tres", "node=1;cpu=2"),
        ("max_wall", "soon"),
        ("usage_factor", "-0.5"),
        ("nonsense", 1),
    ],
)
def test_a_wrong_setting_of_a_qos_is_named(option: str, value: Any) -> None:
    with pytest.raises(SlurmError, match=f"qos gold.*{option}"):
        accounting.canonical(Qos("gold", {option: value}))


def test_missing_grants_and_accounts_are_created_and_can_be_undone() -> None:
    grants = [Grant("a", "", "gold"), Grant("a", "alice", "gold"), Grant("b", "bob", "gold")]
    records = Records(members=frozenset({("a", ""), ("a", "alice")}), grants=frozenset({Grant("a", "", "gold")}))
    made = [step.description for step in accounting.account_steps(grants, records, "lab")]
    assert made == ["account b: new", "user bob of account b: new"]
    steps = accounting.grant_steps({*grants} - records.grants, "+=", "lab")
    assert [step.description for step in steps] == [
        "user alice of account a: qos += gold",
        "user bob of account b: qos += gold",
    ]
    assert steps[0].do[-1] == "QOS+=gold"
    assert steps[0].undo[-1] == "QOS-=gold"
    assert [step.do for step in accounting.grant_steps(records.grants, "-=", "lab")] == [
        ("modify", "account", "where", "Name=a", "Cluster=lab", "set", "QOS-=gold")
    ]


# ------------------------------------------------------------------------------------------------------ the plan

NODES = frozenset(node for block in BLOCKS for node in block.nodes)
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
        running=[] if version < (25, 5, 0) else [Topology("nvlink", blocks=BLOCKS[:2])],
        shown=[ShownBlock(block.name, block.nodes, base, False) for block in BLOCKS[:2]],
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


def planned(present: Observed, *given: dict[str, Any], **policy: bool) -> tier_plan.TierPlan:
    options = {"manage_conf": False, "create_accounts": False, "segment_script": False, **policy}
    return tier_plan.plan(present, desired(*given, version=present.version), BLOCKS, options)


def codes(made: tier_plan.TierPlan) -> list[str]:
    return [row["code"] for row in made.findings]


CLOSED, WIDE = {**GOLD, "allow_groups": ["wheel"]}, {"name": "wide", "all": True}
OF_SITE = {"site_partitions": {"all": "x", "cpu": "x"}}
ALL, CPU = {"PartitionName": "all", "Nodes": "r01t[01-03]"}, {"PartitionName": "cpu", "Nodes": "r01t03"}
SEGMENT = {"name": "b", "blocks": ["r01b"], "segment": {"default": 3}}


@pytest.mark.parametrize(
    ("given", "more", "expected"),
    [
        ([GOLD], {}, []),
        ([GOLD], {"site_partitions": {"gold": "/etc/slurm/slurm.conf"}}, ["slurm_conf_inconsistent"]),
        ([GOLD], {"node_names": ["r01t01"]}, ["slurm_tier_unknown"]),
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


def test_the_dry_run_shows_the_limits_of_what_is_new() -> None:
    tier = {**GOLD, "max_time": "4:00:00", "exclusive": "node", "qos": {"max_wall": "1:00:00"}}
    assert planned(survey(), tier).difference == [
        "qos gold: new, MaxWall=60",
        "partition gold: new, r01a, State=UP, MaxTime=4:00:00, AllowQos=gold, Exclusive=NODE",
    ]


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
    assert made.to_rehearse(None, None)["leaving"] == made.change("")["leaving"] == ["gold"]
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


def test_the_path_of_the_policy_is_quoted() -> None:
    assert segments.script_text('/a"b').count('\\"') == 1


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
