# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write and parse topology files, what scontrol and slurmd print, and lines that a host may have made to cost time."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import hardware, rules, scontrol, syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block, SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import topology_files
from hypothesis import given
from hypothesis import strategies as st

# Block names that a YAML reader would like to take for something else, and such that nobody would take for it.
NAMES = st.one_of(
    st.sampled_from(
        ["true", "no", "null", "y", "007", "1e3", "0x1f", "1_000", "12.5", "-", "_", "2026-11-21", "r01", "a.b"]
    ),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True),
)
BLOCKS = st.lists(
    st.builds(
        lambda name, first, count: Block(
            name,
            tuple(f"{name}x{n:02d}" for n in range(first, first + count)),
            f"{name}x[{first:02d}-{first + count - 1:02d}]" if count else "",
        ),
        NAMES,
        st.integers(0, 50),
        st.integers(0, 20),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda block: block.name,
)
SIZES = st.lists(st.integers(1, 70000), max_size=4).map(tuple)


@given(NAMES, BLOCKS, SIZES, st.booleans())
def test_yaml_round_trips_through_our_parser_and_pyyaml(
    name: str, blocks: list[Block], sizes: tuple[int, ...], default: bool
) -> None:
    topology = Topology(name, "block", default, tuple(blocks), sizes)
    text = topology_files.render([topology], "yaml")
    assert topology_files.parse(text, "yaml") == [topology]
    entry = yaml.safe_load(text)[0]
    assert entry["topology"] == name
    assert entry["cluster_default"] is default
    assert entry["block"].get("block_sizes", []) == list(sizes)
    assert [block["block"] for block in entry["block"]["blocks"]] == [block.name for block in blocks]
    assert [block.get("nodes", "") for block in entry["block"]["blocks"]] == [block.folded for block in blocks]


@given(BLOCKS, SIZES)
def test_conf_round_trips(blocks: list[Block], sizes: tuple[int, ...]) -> None:
    topology = Topology(blocks=tuple(blocks), block_sizes=sizes)
    assert topology_files.parse(topology_files.render([topology], "conf"), "conf") == [topology]


@pytest.mark.parametrize(
    "text",
    [
        "- t\n",
        "- topology: t\n  block:\n    blocks:\n      - block: a\n        nodes: a[1-\n",
        "- topology: t\n  block:\n    block_sizes: [x]\n    blocks: []\n",
        "- topology: 'open\n",
        "- topology: t\n  block: *x\n",
        "- topology:\n" + "".join("  " * depth + "- \n" for depth in range(1, 40)),
    ],
)
def test_yaml_that_cannot_be_read_is_one_sentence(text: str) -> None:
    with pytest.raises(SlurmError) as caught:
        topology_files.parse_yaml(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_handwritten_conf_is_parsed() -> None:
    text = "# racks\nblockname=a Nodes=n[1-2] # first\nBlockName=b \\\n  nodes=n3\n\nBLOCKSIZES=1,2\n"
    assert topology_files.parse_conf(text) == Topology(
        blocks=(Block("a", ("n1", "n2"), "n[1-2]"), Block("b", ("n3",), "n3")), block_sizes=(1, 2)
    )


def test_a_tree_of_topology_conf_becomes_one_of_topology_yaml() -> None:
    tree = topology_files.tree_of("# site\nSwitchName=s0 Switches=s[1-2] LinkSpeed=9\nswitchname=s1 nodes=n[1-2]\n")
    assert tree is not None
    assert (tree.name, tree.kind, tree.cluster_default) == ("default", "tree", True)
    assert tree.body == {"switches": [{"switch": "s0", "children": "s[1-2]"}, {"switch": "s1", "nodes": "n[1-2]"}]}
    assert topology_files.tree_of("# nothing\n") is None
    with pytest.raises(SlurmError, match=r"Line 2 is no switch .*Include more.conf\): write"):
        topology_files.tree_of("SwitchName=s0 Nodes=n1\nInclude more.conf\n")


@given(st.lists(st.text(max_size=8), unique=True, max_size=4))
def test_the_header_lists_the_other_topologies(own: list[str]) -> None:
    text = topology_files.render([Topology("nvlink", blocks=(Block("b", ("n1",)),))], "yaml", own)
    assert topology_files.own_topologies(text) == sorted(own)
    assert [known.name for known in topology_files.parse_yaml(text)] == ["nvlink"]
    assert topology_files.own_topologies("# Other topologies of rackscale.nvlink: " + "[" * 100_000) == []


R01 = Block("r01", ("n1", "n2"), "n[1-2]")


@pytest.mark.parametrize(
    "text",
    [
        "topology: t\ncluster_default: t\nblock:\n  block_sizes: 2\n  blocks:\n    block: r01\n    nodes: n[1-2]\n",
        "\ufeff- topology: >-\n    t\n  cluster_default: Y # yes\n  'block': &b\n    \"blocks\":\n"
        "    - {block: r01, nodes: !!str 'n[1-2]'}\n    block_sizes: [\n      2, # nodes\n    ]\n",
        "%YAML 1.1\r\n---\r\n- topology: t\r\n  cluster_default: on\r\n  flat: no\r\n  tree: ~\r\n  block:\r\n"
        "    block_sizes: [2]\r\n    blocks:\r\n"
        "    - block: |-\r\n        r01\r\n      nodes:\r\n       n[1-2]\r\n...\n",
    ],
)
def test_yaml_is_read_as_slurmctld_reads_it(text: str) -> None:
    assert topology_files.parse_yaml(text) == [Topology("t", "block", True, (R01,), (2,))]


def test_the_comments_of_a_replaced_file_stay() -> None:
    old = """# racks of hall 2
---
- topology: leaves   # the fat tree
  # ask the network team
  tree:
    switches:
      - {switch: top, nodes: "n[1-2]"}

# block topology
- topology: nvlink
  block:
    # one rack
    blocks: [{block: r01, nodes: n1}]
- topology: flat
  cluster_default: t # cpu
  flat: true
# end
"""
    leaves, _nvlink, flat = topology_files.parse_yaml(old)
    blocks = Topology("nvlink", "block", False, (R01,), (2,))
    made = [replace(leaves, cluster_default=True), blocks, replace(flat, cluster_default=False)]
    text = f"""{scontrol.HEADER}
# racks of hall 2
---
- topology: leaves   # the fat tree
  cluster_default: true
  # ask the network team
  tree:
    switches:
      - {{switch: top, nodes: "n[1-2]"}}
# block topology
# one rack
- topology: nvlink
  cluster_default: false
  block:
    block_sizes:
      - 2
    blocks:
      - block: r01
        nodes: n[1-2]
- topology: flat
  cluster_default: false # cpu
  flat: true
# end
"""
    assert topology_files.render(made, "yaml", old=old) == topology_files.render(made, "yaml", old=text) == text
    # An item in braces is written anew where its default changes, and stays as it is elsewhere.
    braces = "- {topology: flat, flat: {}} # cpu\n- topology: leaves\n  tree: {switches: [{switch: top, nodes: n1}]}\n"
    flat, leaves = topology_files.parse_yaml(braces + "... # end\n")
    assert topology_files.render([flat, leaves], "yaml", old=braces) == f"{scontrol.HEADER}\n---\n{braces}"
    text = topology_files.render([replace(flat, cluster_default=True), leaves], "yaml", old=braces + "... # end\n")
    assert text.startswith(
        f"{scontrol.HEADER}\n# end\n---\n# cpu\n- topology: flat\n  cluster_default: true\n  flat: true\n- topology: le"
    )
    # A single map, or JSON, becomes a list; its comments stand above it.
    single = "# my tree\ntopology: leaves\ntree: {switches: [{switch: top, nodes: n1}]} # all\n"
    (leaves,) = topology_files.parse_yaml(single)
    text = topology_files.render([leaves, blocks], "yaml", old=single)
    assert text.startswith(f"{scontrol.HEADER}\n# my tree\n# all\n---\n- topology: leaves\n")
    assert topology_files.parse_yaml(text) == [leaves, blocks]


def test_nested_lists_of_another_topology_stay_lists() -> None:
    made = topology_files.parse_yaml('- topology: leaves\n  tree: {lists: [[a, "1"], "# text", {}]}\n')
    assert topology_files.parse_yaml(topology_files.render(made, "yaml")) == made


# ---------------------------------------------------------------------------------------------------- scontrol's output

# Texts that libyaml quotes, escapes or leaves as they are.
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=12)


@given(st.lists(st.tuples(TEXTS, st.booleans(), st.lists(st.tuples(TEXTS, st.integers(0, 3)))), min_size=1))
def test_topoconf_is_read_as_pyyaml_writes_it(rows: list[tuple[str, bool, list[tuple[str, int]]]]) -> None:
    topologies = [
        Topology(
            name, "block", default, tuple(Block(block, (f"n{nodes}",), f"n{nodes}") for block, nodes in blocks), (1,)
        )
        for name, default, blocks in rows
    ]
    document = scontrol.documents(topologies)
    printed = yaml.dump(document, width=10**6, explicit_start=True, explicit_end=True, sort_keys=False)
    assert scontrol.topologies_of(document) == topologies
    assert scontrol.parse_topoconf(printed) == topologies


@pytest.mark.parametrize(
    "text",
    [
        "slurm_load_topo error: Unable",
        "- topology: a\n   b: c\n",
        "a: b\n",
        "- block: {}\n",
        '"\\xZZ"\n',
        '"\\UFFFFFFFF"\n',
    ],
)
def test_another_text_than_topoconf_is_an_error(text: str) -> None:
    with pytest.raises(SlurmError):
        scontrol.parse_topoconf(text)
    assert scontrol.parse_topoconf("%YAML 1.1\n---\n...\n") == []


def test_an_empty_value_takes_nothing_of_what_follows() -> None:
    shown = scontrol.parse_show_topology("BlockName=r01 BlockIndex=0 Nodes= BlockSize=36\n")
    assert shown == [scontrol.ShownBlock("r01", (), 36, False)]
    text = "NodeName=n1 AllocTRES= CurrentWatts=0 Comment= Reason=a  b OS=x [root@2026]\nnot a record\n"
    record = {"NodeName": "n1", "AllocTRES": "", "CurrentWatts": "0", "Comment": "", "Reason": "a  b OS=x", "OS": "x"}
    record["ReasonBy"] = "root@2026"
    assert scontrol.parse_records(text) == [record, {}]


@pytest.mark.parametrize(
    ("version", "limit"),
    [((24, 11, 5), 18), ((25, 5, 9), 18), ((25, 11, 0), None), ((26, 5, 5), None)],
)
def test_a_segment_is_limited_to_the_base_before_25_11(version: rules.Version, limit: int | None) -> None:
    assert rules.segment_limit(version, 18) == limit


# ---------------------------------------------------------------------------------------- lines of slurmd and files

RECORD = dict(zip(hardware.KEYS, (144, 1, 2, 72, 1, 878123)))
PRINTED = "NodeName=r01t01 CPUs=144 Boards=1 SocketsPerBoard=2 CoresPerSocket=72 ThreadsPerCore=1 RealMemory=878123"


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (f"{PRINTED}\nUpTime=0-03:39:01\n", RECORD),
        (f"slurmd: warning about something\n{PRINTED} Gres=gpu:4\n", RECORD),
        ("", None),
        ("slurmd: fatal: no", None),
        ("NodeName=r01t01 CPUs=many RealMemory=1", None),
        ("NodeName=r01t01 CPUs=0", None),
    ],
)
def test_the_output_of_slurmd_is_parsed(text: str, record: hardware.Record | None) -> None:
    assert [*hardware.parse_nodes(text).values()] == ([record] if record else [])


def test_node_lines_give_their_records_back() -> None:
    lines = PRINTED.replace("r01t01", "r01t[01-02],x") + "\n" + PRINTED.replace("r01t01", "DEFAULT") + "\nNodeName=y[\n"
    assert hardware.parse_nodes(lines) == dict.fromkeys(("r01t01", "r01t02", "x"), RECORD)


@given(st.integers(1, 2_000_000), st.integers(1, 2_000_000), st.integers(0, 4096))
def test_memory_is_never_more_than_the_tray_has(measured: int, before: int, step: int) -> None:
    stable = hardware.stable({"CPUs": 1, "RealMemory": measured}, {"CPUs": 1, "RealMemory": before}, step)
    assert 0 < stable["RealMemory"] <= measured
    again = hardware.stable({"CPUs": 1, "RealMemory": measured}, stable, step)
    assert again == stable, "a second run changes nothing"


@pytest.mark.parametrize(
    ("measured", "before", "stable"),
    [
        (878123, None, 877568),
        (877500, 877568, 876544),  # less than configured: slurmctld would refuse the tray
        (977568, 877568, 976896),  # memory was added
    ],
)
def test_memory_is_rounded_and_stays(measured: int, before: int | None, stable: int) -> None:
    old = {"CPUs": 1, "RealMemory": before} if before else None
    assert hardware.stable({"CPUs": 1, "RealMemory": measured}, old, 1024)["RealMemory"] == stable


WORDS = st.lists(st.sampled_from(["a", "b1", "1", "_", "é", "=", " ", "'", '"', "-", "\t"]), max_size=14).map("".join)


@given(WORDS)
def test_a_key_is_what_stands_before_an_equals_sign(line: str) -> None:
    """As the plain expression has it, which tries each character of a word."""
    plain = re.findall(r"""([A-Za-z_]\w*)\s*=\s*("[^"]*"|'[^']*'|\S*)""", line)
    assert [key for key, _value in syntax.key_values(line)] == [key for key, _value in plain]


@pytest.mark.parametrize("part", ["a", "a1", "1", "é", "a ", "a =", 'a="', "a='\"", " ", "=", "a=b"])
def test_the_time_is_linear_in_the_length_of_a_line(part: str) -> None:
    def seconds(length: int) -> float:
        line, begin = part * length, time.process_time()
        syntax.key_values(line)
        syntax.shown_values(line)
        return time.process_time() - begin

    # Quadratic time is 400 times as much.
    assert seconds(400_000) < 100 * max(seconds(20_000), 0.002)
