# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of Slurm's versions, as observed on 24.11.5 and 26.05.5 or from source, and the gates of an apply."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.node_names import NodeNames
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules, scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Job
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import HEADER, Block, SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import (
    linter,
    plan_gates,
    planning,
    settings,
    topology_files,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.linter import Candidate
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_corpus import (
    CASES,
    NEW,
    OLD,
    Case,
)


def codes(candidate: Candidate) -> list[str]:
    found = linter.lint(candidate)
    # Each has its message, with a value for each placeholder.
    rows = [(CATALOGUE[row["code"]], row) for row in found]
    texts = [(entry.messages[row["case"]], row) for entry, row in rows]
    assert all(text.format(**{**row, **row["values"]}) for text, row in texts)
    return [row["code"] for row in found]


def racks(*sizes: int, base: tuple[int, ...] = (), name: str = "nvlink") -> Topology:
    """Blocks a, b, ... of those sizes."""
    blocks = []
    for letter, size in zip("abcdefghij", sizes):
        blocks.append(Block(letter, tuple(f"{letter}{number}" for number in range(size))))
    return Topology(name=name, blocks=tuple(blocks), block_sizes=base)


@pytest.mark.parametrize("version", [OLD, NEW], ids=rules.show_version)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_corpus_gets_its_findings(case: Case, version: rules.Version) -> None:
    expected = case.codes(version)
    if expected is not None:
        assert sorted(codes(case.candidate(version))) == sorted(expected)


@pytest.mark.parametrize("rule", linter.RULES, ids=lambda rule: f"{rule.code}-{rule.since}")
def test_every_rule_has_its_row_in_the_catalogue(rule: linter.Rule) -> None:
    assert rule.code in CATALOGUE
    assert rule.slurmctld in ("fatal", "warning", "silent", "ours")
    # What slurmctld refuses must never be written.
    assert rule.slurmctld != "fatal" or CATALOGUE[rule.code].severity == "error"


def test_versions_are_parsed() -> None:
    parsed = [rules.parse_version(text) for text in ("slurm-wlm 24.11.5", "slurm 25.11.2\n", "26.05.5")]
    assert parsed == [(24, 11, 5), (25, 11, 2), (26, 5, 5)]


@pytest.mark.parametrize("version", [(23, 11, 10), (23, 2, 7), (22, 5, 8)])
def test_an_old_slurm_is_refused_with_the_reason(version: rules.Version) -> None:
    with pytest.raises(SlurmError, match="BlockLevels"):
        rules.require_supported(version)


def test_the_base_size_is_that_of_the_cliques() -> None:
    blocks = racks(18, 9, 9).blocks
    assert [linter.auto_block_sizes(blocks, version) for version in (NEW, OLD)] == [(18,), (9,)]
    assert linter.auto_block_sizes(racks(0).blocks, OLD) == ()


def grouped(groups: str) -> list[Block]:
    """Blocks b1, b2, ... of one tray, each with the letter of its group."""
    letters = groups.replace(" ", "")
    return [Block(f"b{at}", (f"t{at}",), group=letter.strip("-")) for at, letter in enumerate(letters, 1)]


@pytest.mark.parametrize(
    ("groups", "number", "problem"),
    [
        ("", 1, ""),
        ("a b c", 1, ""),
        ("aa bb", 2, ""),
        ("aaabbb", 1, "each group has 3 blocks, which is not a power of two"),
        ("aab", 1, "group a has 2 blocks and b 1"),
        ("aa-", 1, "b3 is in no group"),
    ],
)
def test_a_group_is_a_power_of_two_of_blocks_that_stand_together(groups: str, number: int, problem: str) -> None:
    assert linter.blocks_of_group(grouped(groups)) == (number, problem)


def test_the_sites_block_sizes_are_kept_with_groups() -> None:
    blocks = grouped("aabb")
    assert linter.choose_sizes(blocks, NEW) == ((1, 2), [])
    assert linter.choose_sizes(blocks, NEW, (1, 4)) == ((1, 4), [])
    _given, found = linter.choose_sizes(blocks[:3], NEW, (1, 4))
    assert [row["code"] for row in found] == ["slurm_block_size"]
    assert linter.choose_sizes(blocks[:3], NEW, (1,)) == ((1,), []), "without a larger size nothing is aggregated"
    # A block in no group leaves the base block size, and blocks without nodes have none.
    sizes, found = linter.choose_sizes(grouped("aa-"), NEW)
    assert (sizes, [row["code"] for row in found]) == ((1,), ["slurm_blocks_limited"])
    assert worded(found[0])["message"].startswith("b3 is in no group, so Slurm cannot aggregate the others")
    assert linter.choose_sizes([replace(block, nodes=()) for block in grouped("aab")], NEW) == ((), [])


# From source, as no distribution packages them: a bad size in topology.yaml was silently left out before 26.05.3.
@pytest.mark.parametrize(
    ("version", "style", "slurmctld"),
    [
        ((26, 5, 2), "yaml", "silent"),
        ((26, 5, 3), "yaml", "fatal"),
        ((25, 5, 3), "conf", "fatal"),
    ],
)
def test_a_bad_block_size_is_an_error_in_every_version(version: rules.Version, style: str, slurmctld: str) -> None:
    hit = linter.hits(Candidate(version, style, racks(4, 4, base=(4, 12))))
    assert [(rule.code, rule.slurmctld, worded(found)["severity"]) for rule, found in hit] == [
        ("slurm_block_size", slurmctld, "error")
    ]


def test_placeholders_are_left_out_where_they_are_fatal() -> None:
    blocks = racks(4, 0, 4).blocks
    assert linter.drop_placeholders(blocks, NEW) == (blocks, [])
    kept, findings = linter.drop_placeholders(blocks, OLD)
    assert [block.name for block in kept] == ["a", "c"]
    assert [(found["code"], found["block"]) for found in findings] == [("release_old", "b")]
    assert "shifts the larger block sizes" in worded(findings[0])["message"]


def test_a_removed_block_shifts_the_aggregates_after_it() -> None:
    before = racks(4, 4, 4, 4, base=(4, 8))
    gone = replace(before, blocks=before.blocks[:1] + before.blocks[2:])
    kept = replace(before, blocks=(before.blocks[0], Block("b"), *before.blocks[2:]))
    assert "slurm_blocks_limited" in codes(Candidate(NEW, "yaml", gone, previous=before))
    assert "slurm_blocks_limited" not in codes(Candidate(NEW, "yaml", kept, previous=before))
    assert "slurm_blocks_limited" not in codes(Candidate(NEW, "yaml", before, previous=before))
    assert "slurm_blocks_limited" not in codes(
        Candidate(NEW, "yaml", replace(gone, block_sizes=(4,)), previous=replace(before, block_sizes=(4,)))
    )


@pytest.mark.parametrize("name", ["", "a b", "a,b", "x" * 200, "{{ x }}", "a\nb"])
def test_an_invalid_topology_name_is_an_error(name: str) -> None:
    assert codes(Candidate(NEW, "yaml", racks(4, base=(4,), name=name))) == ["slurm_conf_inconsistent"]


BLOCKS = racks(4, base=(4,))
SECOND = replace(BLOCKS, name="pods", cluster_default=False)
FLAT = Topology("flat", "flat", False, body="true")


@pytest.mark.parametrize(
    ("version", "others", "power_saving", "bad"),
    [
        # They lose nodes, only where nodes are switched off.
        ((25, 11, 0), (), True, True),
        ((25, 11, 2), (), True, True),
        ((25, 11, 3), (), True, False),
        ((25, 11, 0), (), False, False),
        # An update drops a node from another block, only where there is one.
        ((25, 5, 0), (SECOND,), False, True),
        ((26, 5, 3), (SECOND,), False, True),
        ((26, 5, 4), (SECOND,), False, False),
        ((25, 5, 0), (FLAT,), False, False),
    ],
)
def test_releases_that_lose_nodes_are_findings(
    version: rules.Version, others: tuple[Topology, ...], power_saving: bool, bad: bool
) -> None:
    candidate = Candidate(version, "yaml", BLOCKS, others=others, power_saving=power_saving)
    assert ("release_old" in codes(candidate)) is bad


BLOCK = {"topologyplugin": "topology/block"}
TREE, DEFER = {"topologyplugin": "topology/tree"}, {"prologflags": "DeferBatch"}


@pytest.mark.parametrize(
    ("style", "running", "written", "manage", "expected"),
    [
        ("yaml", "topology/flat select/cons_tres Alloc", {}, False, []),
        ("conf", "topology/default select/cons_tres Alloc", {}, False, ["slurm_plugin_missing"]),
        ("conf", "topology/default select/cons_tres Alloc", {}, True, []),
        ("conf", "topology/tree select/cons_tres Alloc", TREE, False, ["slurm_conf_inconsistent"]),
        ("conf", "topology/tree select/cons_tres Alloc", TREE, True, ["slurm_conf_inconsistent"]),
        ("conf", "topology/tree select/cons_tres Alloc", {}, False, ["slurm_conf_inconsistent"]),
        ("conf", "topology/tree select/cons_tres Alloc", BLOCK, False, ["slurm_plugin_missing"]),
        # Of two lines, as where the site's has other settings, too, the last one runs.
        ("conf", "topology/block select/cons_tres Alloc", TREE, True, []),
        ("conf", "topology/block select/cons_tres Alloc", TREE, False, ["slurm_conf_inconsistent"]),
        ("yaml", "topology/tree select/cons_tres Alloc", TREE, True, ["slurm_conf_note"]),
        ("yaml", "topology/flat select/linear Alloc", {"selecttype": "select/cons_tres"}, False, ["slurm_select_type"]),
        ("yaml", "topology/flat select/cons_tres ", {}, False, ["slurm_conf_advice"]),
        ("yaml", "topology/flat select/cons_tres Alloc,Contain", {"prologflags": "Contain"}, True, []),
        ("yaml", "topology/flat select/cons_tres Serial", {"prologflags": "Serial"}, True, ["slurm_conf_inconsistent"]),
        # 26.05 adds Alloc to DeferBatch by itself, 24.11 does not (observed).
        ("yaml", "topology/flat select/cons_tres Alloc,DeferBatch", DEFER, True, []),
        ("conf", "topology/block select/cons_tres DeferBatch", DEFER, True, ["slurm_conf_inconsistent"]),
    ],
)
def test_settings_that_are_missing_or_wrong_are_findings(
    style: str, running: str, written: dict[str, str], manage: bool, expected: list[str]
) -> None:
    values = dict(zip(("topologyplugin", "selecttype", "prologflags"), running.split(" ")))
    findings = settings.settings_findings(style, values, written, manage)
    assert [found["code"] for found in findings] == expected


OURS = f"{HEADER}\nBlockName=r01 Nodes=r01t[01-18]\n"
OTHERS = "\n# Autogenerated\x1b[2J by a daemon\nBlockName=r01 Nodes=r01t[01-18]\n"


@pytest.mark.parametrize(
    ("file", "owner", "expected"),
    [
        (OURS, "collection", ""),
        (OURS, "other", "slurm_topology wrote /etc/slurm/topology.conf last"),
        (OTHERS, "collection", r"begins with '# Autogenerated\x1b[2J by a daemon'"),
        (OTHERS, None, ""),
        ("\ufffd\ufffd", "collection", r"begins with '\ufffd\ufffd'"),
        (None, "collection", ""),
    ],
)
def test_a_second_writer_of_the_topology_file_is_a_finding(file: str | None, owner: str | None, expected: str) -> None:
    found = settings.writer_findings("/etc/slurm/topology.conf", file, owner)
    assert [row["code"] for row in found] == ["slurm_topology_other_writer"] * bool(expected)
    assert all(expected in worded(row)["message"] for row in found)


# ---------------------------------------------------------------------------------------------------------------- gates

RACKS = {"r01": "r01t[01-18]", "r02": "r02t[01-18]"}
NODES = expand("r[01-04]t[01-20]")


def topology(**blocks: str) -> Topology:
    made = tuple(Block(name, tuple(expand(nodes)), nodes) for name, nodes in blocks.items())
    return Topology(name="nvlink", blocks=made, block_sizes=(18,))


def objections(planned: dict[str, str], *override: str, live: dict[str, str] | None = None) -> dict[str, str]:
    found = plan_gates.check(topology(**(RACKS if live is None else live)), topology(**planned), NODES, override)
    return {row["code"]: worded(row)["message"] for row in found}


SHRINKS, VANISHES = ["block_shrinks"], ["block_vanishes"]


@pytest.mark.parametrize(
    ("planned", "codes", "lost"),
    [
        pytest.param(RACKS, [], "", id="the same"),
        pytest.param({"r01": "r01t[02-18]", "r02": "r02t[01-18],r01t01"}, [], "", id="one node that moves"),
        pytest.param({"r01": "r01t[02-18],r02t01", "r02": "r02t[02-18],r01t01"}, [], "", id="two nodes that swap"),
        pytest.param({**RACKS, "r01": "r01t[01-04]"}, SHRINKS, "r01t[05-18]", id="4 of 18 nodes"),
        pytest.param({"r01": "r01t[01-16]", "r02": "r02t[01-18],r01t[17-18]"}, SHRINKS, "", id="two nodes that move"),
        pytest.param({"r01": "r01t[01-18]"}, VANISHES, "r02t[01-18]", id="a block that vanishes"),
        pytest.param({"r01": "r01t[01-18]", "r02": "", "r02a": "r02t[01-18]"}, [], "", id="its name as a placeholder"),
        pytest.param({"r01": "r01t[01-18]", "r2a": "r02t[01-09]", "r2b": "r02t[10-18]"}, VANISHES, "", id="split"),
        pytest.param({"r01": "r01t[01-18]", "rack2": "r02t[01-17]"}, VANISHES, "r02t18", id="renamed, a node less"),
        pytest.param({"r01": "r01t[01-04]"}, [*VANISHES, *SHRINKS], "-18]", id="the file of another site"),
    ],
)
def test_nodes_that_leave_running_blocks_stop_the_apply(planned: dict[str, str], codes: list[str], lost: str) -> None:
    found = objections(planned)
    assert list(found) == codes
    for message in found.values():
        assert (f"{lost} would be in no block: " in message) is bool(lost)
        # One option overrides all gates that object.
        assert f" or set override (variable slurm_topology_override) to {','.join(sorted(codes))} " in message


def test_a_gate_is_overridden_by_its_name_alone() -> None:
    planned = {"r01": "r01t[01-04]"}
    found = objections(planned, "block_shrinks")
    assert list(found) == ["block_vanishes", "slurm_gate_overridden"]
    assert "slurm_topology_override) to block_shrinks,block_vanishes " in found["block_vanishes"]
    assert found["slurm_gate_overridden"].startswith(
        "The gate block_shrinks is overridden: Block r01 would shrink from"
    )
    assert list(objections(planned, *plan_gates.GATES)) == ["slurm_gate_overridden"]
    assert objections({**RACKS, "r01": "r01t[01-04]"})["block_shrinks"] == (
        "Block r01 would shrink from 18 to 4 nodes, and r01t[05-18] would be in no block: check the fabric file, or set"
        " override (variable slurm_topology_override) to block_shrinks if this is intended."
    )


def test_a_first_configuration_and_nodes_that_slurm_no_longer_has_pass() -> None:
    assert plan_gates.check(None, topology(r01="r01t01"), NODES, ()) == []
    assert objections({"r01": "r01t01"}, live={}) == {}
    kept = expand("r01t[01-17],r02t[01-18]")
    planned = topology(**{**RACKS, "r01": "r01t[01-17]"})
    assert plan_gates.check(topology(**RACKS), planned, kept, ()) == []


def observed(loaded: bool = True, **more: Any) -> Observed:
    written = topology(**RACKS)
    return Observed(
        conf_dir="/etc/slurm",
        version=(24, 11, 5),
        style=scontrol.CONF,
        config={"topologyplugin": "topology/block" if loaded else "topology/flat"},
        running=[],
        shown=[scontrol.ShownBlock(block.name, block.nodes, 18, False) for block in written.blocks] if loaded else [],
        texts={"topology.conf": topology_files.render([written], scontrol.CONF)},
        nodes=tuple(map(NodeNames, NODES)),
        **more,
    )


@pytest.mark.parametrize(
    ("style", "names", "runs", "cases"),
    [
        (scontrol.YAML, "topology.yaml topology.conf", True, ["other_file"]),
        # What slurmctld still reads is not to be removed yet.
        (scontrol.YAML, "topology.yaml topology.conf", False, ["other_file_soon"]),
        (scontrol.YAML, "topology.conf", False, ["other_file_soon"]),
        (scontrol.YAML, "topology.yaml", True, []),
        (scontrol.CONF, "topology.yaml topology.conf", True, ["other_file_later"]),
        (scontrol.CONF, "topology.conf", True, []),
    ],
)
def test_a_file_of_the_other_format_is_a_finding(style: str, names: str, runs: bool, cases: list[str]) -> None:
    text = topology_files.render([topology(**RACKS)], style)
    texts = {name: text if name == scontrol.FILE_NAMES[style] else "" for name in names.split()}
    version = (24, 11, 5) if style == scontrol.CONF else (26, 5, 5)
    seen = replace(observed(), style=style, version=version, texts=texts, running=[topology(**RACKS)] if runs else [])
    plan = planning.plan(seen, planning.DesiredState(topology(**RACKS).blocks))
    assert [row["case"] for row in plan.findings if row["case"].startswith("other_file")] == cases


SITES_SIZES = "BlockName=r01 Nodes=r01t[01-18]\nBlockName=r02 Nodes=r02t[01-18]\nBlockSizes=9,18\n"


@pytest.mark.parametrize(
    ("head", "given", "override", "codes"),
    [
        ("", (), (), ["block_sizes_change"]),
        ("", (), ("block_sizes_change",), ["slurm_gate_overridden"]),
        ("", (9, 18), (), []),
        ("", (18,), (), []),
        (f"{HEADER}\n", (), (), []),
    ],
)
@pytest.mark.parametrize("style", [scontrol.CONF, scontrol.YAML])
def test_block_sizes_that_the_site_has_set_change_only_by_name(
    style: str, head: str, given: tuple[int, ...], override: tuple[str, ...], codes: list[str]
) -> None:
    """From 25.05 on also those of a topology.conf that a first topology.yaml would hide."""
    version = (24, 11, 5) if style == scontrol.CONF else (26, 5, 5)
    seen = replace(observed(), style=style, version=version, texts={"topology.conf": head + SITES_SIZES})
    desired = planning.DesiredState(topology(**RACKS).blocks, block_sizes=given, override=override)
    found = {row["code"]: worded(row)["message"] for row in planning.plan(seen, desired).findings}
    assert [code for code in found if code in ("block_sizes_change", "slurm_gate_overridden")] == codes
    expected = "The block sizes 9, 18 of the site's file would become 18: slurm_topology_block_sizes"
    assert all(expected in found[code] for code in codes)


def test_a_file_of_another_writer_with_the_same_blocks_gets_the_header() -> None:
    """Else verify would report a second writer of a topology that this run has accepted."""
    ours = topology_files.render([topology(**RACKS)], scontrol.CONF)
    seen = replace(observed(), texts={"topology.conf": ours.partition("\n")[2]})
    adopted = planning.plan(seen, planning.DesiredState(topology(**RACKS).blocks))
    assert (adopted.writes, adopted.reconfigure) == ({"/etc/slurm/topology.conf": ours}, False)
    assert settings.writer_findings("x", ours, "collection") == []


@pytest.mark.parametrize(
    ("texts", "manage", "stopped", "unset"),
    [
        ("SwitchName=top Nodes=r01t[01-18]", True, ["cluster_default_changes"], "TopologyPlugin"),
        ("SwitchName=top Nodes=r01t[01-18]", False, ["slurm_topology_foreign", "slurm_conf_inconsistent"], ""),
        ("Include more.conf", True, ["slurm_topology_foreign"], "TopologyPlugin"),
        # As after an earlier release's advice to move the tree away.
        ("", True, [], "TopologyPlugin"),
    ],
)
@pytest.mark.parametrize("line", [TREE, BLOCK], ids=["tree", "block"])
def test_a_running_tree_moves_only_by_name(
    texts: str, manage: bool, stopped: list[str], unset: str, line: dict[str, str]
) -> None:
    seen = replace(observed(False), config=TREE, settings=line, texts={"topology.conf": texts} if texts else {})
    plan = planning.plan(seen, planning.DesiredState(topology(**RACKS).blocks, manage_conf=manage))
    expected = [code for code in stopped if line == TREE or code != "slurm_conf_inconsistent"]
    assert [row["code"] for row in plan.stopped_by() if row["code"] != "slurm_select_type"] == expected
    assert (plan.unset, plan.reconfigure) == (unset if line == TREE else "", manage)
    messages = [worded(row)["message"] for row in plan.findings]
    assert not manage or not [text for text in messages if "without a restart" in text and "Include" not in text]
    if texts.startswith("Switch") and manage:
        assert messages[0].startswith("Partitions without Topology= would use the blocks instead of the tree of")
        assert messages[0].endswith("to cluster_default_changes if this is intended.")


@pytest.mark.parametrize("loaded", [True, False])
def test_a_file_that_slurmctld_has_not_loaded_stops_nothing(loaded: bool) -> None:
    blocks = topology(r01="r01t[01-18]").blocks
    plan = planning.plan(observed(loaded), planning.DesiredState(blocks))
    assert ("block_vanishes" in {row["code"] for row in plan.findings}, plan.reconfigure) == (loaded, loaded)


@pytest.mark.parametrize("line", ["SwitchName=s0 Nodes=r01t[01-18]", "Include more.conf"])
def test_lines_that_would_be_lost_are_an_error(line: str) -> None:
    found = planning.plan(replace(observed(), texts={"topology.conf": f"{line}\n"}), planning.DesiredState(()))
    assert "slurm_topology_foreign" in [row["code"] for row in found.stopped_by()]


def test_a_removal_gives_the_site_its_default_topology_back() -> None:
    site = [Topology(name, "flat", name == "site", body="true") for name in ("other", "site")]
    text = "".join(
        f"- topology: {known.name}\n  cluster_default: {known.cluster_default}\n  flat: true\n" for known in site
    )
    desired = planning.DesiredState(topology(**RACKS).blocks)
    new = {"version": (26, 5, 5), "style": scontrol.YAML, "running": site, "shown": []}
    for _run in range(2):  # a second apply keeps it
        plan = planning.plan(replace(observed(), texts={"topology.yaml": text}, **new), desired)
        assert [known.name for known in plan.topologies if known.cluster_default] == ["nvlink"]
        text = plan.writes.get("/etc/slurm/topology.yaml", text)
    kept = planning.kept_yaml(text, "nvlink")
    assert kept is not None
    assert [known.fingerprint() for known in topology_files.parse_yaml(kept)] == [known.fingerprint() for known in site]


JOBS = (
    Job("8", "ann", "batch", ("r01t01", "r01t02")),
    Job("9", "bob", "batch", ("r01t03",)),
    # Their trays are in one block afterwards, too.
    Job("10", "bob", "batch", ("r01t01",)),
    Job("11", "bob", "batch", ("r01t01", "r02t02")),
)


@pytest.mark.parametrize(
    ("allowed", "acting", "code"),
    [(False, "", "jobs_running"), (True, "", "slurm_gate_overridden"), (False, "other", "")],
)
def test_jobs_on_trays_that_change_their_block_stop_the_apply(allowed: bool, acting: str, code: str) -> None:
    blocks = topology(r01="r01t[02-18],r02t01", r02="r02t[02-18],r01t01").blocks
    plan = planning.plan(observed(acting=acting, jobs=JOBS), planning.DesiredState(blocks, allow_moving_jobs=allowed))
    assert [job["job"] for job in plan.jobs] == (["8"] if code else [])
    found = {row["code"] for row in plan.findings} & {"jobs_running", "slurm_gate_overridden"}
    assert found == ({code} if code else set())


def test_a_base_that_is_chosen_here_must_not_shrink() -> None:
    live = replace(topology(r01="a[01-18]", r02="b[01-18]"), block_sizes=(18,))
    planned = replace(topology(r01="a[01-18]", r02="b[01-18]", r03="c01"), block_sizes=(1,))
    known = expand("a[01-18],b[01-18],c01")
    (found,) = map(worded, plan_gates.check(live, planned, known, (), base=True))
    assert (found["code"], found["severity"]) == ("base_shrinks", "error")
    assert found["message"].startswith(
        "The base block size would shrink from 18 to 1, since block r03 has fewer nodes: a job of 2 to 18 nodes"
    )
    assert found["message"].endswith("(variable slurm_topology_override) to base_shrinks if this is intended.")
    # The site's own size passes, and so does the override.
    assert plan_gates.check(live, planned, known, ()) == []
    (warned,) = plan_gates.check(live, planned, known, ("base_shrinks",), base=True)
    assert warned["code"] == "slurm_gate_overridden"
    assert plan_gates.check(planned, live, known, (), base=True)[0]["code"] != "base_shrinks"


def test_small_cliques_are_left_out_before_25_05_alone() -> None:
    blocks = topology(r01="a[01-18]", r02="b[01-17]", r03="c01").blocks
    kept, left_out = linter.leave_out(blocks, 16, (24, 11, 5))
    assert ([block.name for block in kept], [block.name for block in left_out]) == (["r01", "r02"], ["r03"])
    assert linter.auto_block_sizes(kept, (24, 11, 5)) == (17,)
    assert linter.leave_out(blocks, 16, (25, 5, 0)) == (blocks, ())
    assert linter.leave_out(blocks, 0, (24, 11, 5)) == (blocks, ())
    present = observed()
    plan = planning.plan(present, planning.DesiredState(blocks, (17,), min_block_size=16))
    text = plan.writes["/etc/slurm/topology.conf"]
    assert topology_files.left_out(text) == ["r03"]
    again = planning.plan(replace(present, texts={"topology.conf": text}), plan.desired)
    assert list(again.writes) == []


@pytest.mark.parametrize(
    ("default", "override", "codes"),
    [
        (("leaves", "nvlink"), (), ["cluster_default_changes"]),
        (("leaves", "nvlink"), ("cluster_default_changes",), ["slurm_gate_overridden"]),
        (("leaves", "leaves"), (), []),
        (("", "nvlink"), (), []),
    ],
)
def test_the_default_topology_never_changes_silently(
    default: tuple[str, str], override: tuple[str, ...], codes: list[str]
) -> None:
    found = plan_gates.check(None, topology(r01="r01t01"), NODES, override, default=default)
    assert [one["code"] for one in found] == codes
    if not override and codes:
        assert worded(found[0])["message"] == (
            "Partitions without Topology= would use nvlink instead of leaves: set cluster_default (variable"
            " slurm_topology_cluster_default) to leaves to keep it, or set override (variable slurm_topology_override)"
            " to cluster_default_changes if this is intended."
        )
