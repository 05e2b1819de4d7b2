# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the output of scontrol and slurmd, and lines of Slurm's files, which a host may have made to cost time."""

from __future__ import annotations

import re
import time

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, hardware, rules, syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, SlurmError, Topology
from hypothesis import given
from hypothesis import strategies as st

# Shape and quoting of `scontrol show topoconf`, 26.05.5, which prints every kind and quotes only where libyaml must.
TOPOCONF = r"""%YAML 1.1
---
- topology: 'my racks: all'
  cluster_default: true
  block:
    block_sizes:
    - 4
    - 8
    blocks:
    - block: 1e3
      nodes: n[01-04]
    - block: true
      nodes: n[05-06],n07
    - block: null
      nodes:
    - block: 'it''s: a'
      nodes: m1
    - block: "\xFCn\xEF"
      nodes: m2
  flat: {}
  ring: {}
  torus3d: {}
  tree: {}
- topology: cpu
  cluster_default: false
  flat: true
- topology: leaf
  cluster_default: false
  block: {}
  tree:
    switches:
    - switch: s1
      children:
      nodes: n[01-02]
...
"""


def test_topoconf_output_is_parsed() -> None:
    block, flat, tree = files.parse_topoconf(TOPOCONF)
    assert (block.name, block.cluster_default, block.block_sizes) == ("my racks: all", True, (4, 8))
    assert [(known.name, known.nodes) for known in block.blocks] == [
        ("1e3", ("n01", "n02", "n03", "n04")),
        ("true", ("n05", "n06", "n07")),
        ("null", ()),
        ("it's: a", ("m1",)),
        ("\xfcn\xef", ("m2",)),
    ]
    assert (flat.name, flat.kind, flat.cluster_default) == ("cpu", "flat", False)
    assert (tree.name, tree.kind, tree.body["switches"][0]["nodes"]) == ("leaf", "tree", "n[01-02]")


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
    document = files.documents(topologies)
    printed = yaml.dump(document, width=10**6, explicit_start=True, explicit_end=True, sort_keys=False)
    assert files.topologies_of(document) == topologies
    assert files.parse_topoconf(printed) == topologies


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
        files.parse_topoconf(text)
    assert files.parse_topoconf("%YAML 1.1\n---\n...\n") == []


def test_show_topology_output_is_parsed() -> None:
    # As 24.11.5 and 26.05.5 print it.
    text = (
        "BlockName=r01 BlockIndex=0 Nodes=r01t[01-02] BlockSize=2\n"
        "BlockName=gone BlockIndex=1 BlockSize=2\n"
        "AggregatedBlock=gone,r01 BlockIndex=2 Nodes=r01t[01-02] BlockSize=4\n"
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n1\n"
    )
    assert files.parse_show_topology(text) == [
        files.ShownBlock("r01", ("r01t01", "r01t02"), 2, False),
        files.ShownBlock("gone", (), 2, False),
        files.ShownBlock("gone,r01", ("r01t01", "r01t02"), 4, True),
    ]


def test_an_empty_value_takes_nothing_of_what_follows() -> None:
    shown = files.parse_show_topology("BlockName=r01 BlockIndex=0 Nodes= BlockSize=36\n")
    assert shown == [files.ShownBlock("r01", (), 36, False)]
    text = "NodeName=n1 AllocTRES= CurrentWatts=0 Comment= Reason=a  b [root@2026]\nnot a record\n"
    record = {"NodeName": "n1", "AllocTRES": "", "CurrentWatts": "0", "Comment": "", "Reason": "a"}
    assert files.parse_records(text) == [record, {}]


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
    assert hardware.parse_slurmd(text) == record


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
