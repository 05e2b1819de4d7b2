# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Valid and invalid topologies, and the findings of the linter for each.

Unit tests check the linter with it; tests/integration/test_slurm_topology.py checks real slurmctlds with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import linter

# The cluster that all cases are about: two racks of GPU trays, and two nodes without GPUs.
GPU_NODES = "r[01-02]t[01-18]"
CPU_NODES = "cpu[1-2]"
RACKS = (("r01", "r01t[01-18]"), ("r02", "r02t[01-18]"))
OLD, NEW = (24, 11, 5), (26, 5, 5)


@dataclass(frozen=True)
class Case:
    """A topology; old, new: the codes under 24.11.5 (conf) and 26.05.5 (yaml), None: not tested."""

    name: str
    blocks: tuple[tuple[str, str], ...] = RACKS
    sizes: tuple[int, ...] = (18,)
    old: tuple[str, ...] | None = ()
    new: tuple[str, ...] | None = ()
    partition_nodes: str = GPU_NODES
    partition_topology: str = ""
    node_topologies: dict[str, str] = field(default_factory=dict)
    others: tuple[Topology, ...] = ()
    made: tuple[Topology, ...] | None = None  # those of others that the collection writes: all
    default: bool = True

    def candidate(self, version: rules.Version) -> linter.Candidate:
        style = rules.style_of(version)
        topology = Topology(
            name="nvlink" if style == "yaml" else "default",
            blocks=tuple(block(name, hostlist) for name, hostlist in self.blocks),
            block_sizes=self.sizes,
            cluster_default=self.default,
        )
        return linter.Candidate(
            version=version,
            style=style,
            topology=topology,
            known_nodes=frozenset(expand(f"{GPU_NODES},{CPU_NODES}")),
            partitions=(rules.Partition("gpu", tuple(expand(self.partition_nodes)), self.partition_topology),),
            node_topologies=self.node_topologies,
            others=self.others,
            made=self.others if self.made is None else self.made,
        )

    def codes(self, version: rules.Version) -> tuple[str, ...] | None:
        return self.old if version < rules.YAML_SINCE else self.new


def block(name: str, hostlist: str) -> Block:
    return Block(name, tuple(expand(hostlist)), hostlist)


def tree(*switches: str, name: str = "scaleout") -> tuple[Topology, ...]:
    """A tree of switches, each "name children" or "name =nodes"."""
    entries = []
    for text in switches:
        switch, _space, below = text.partition(" ")
        key = "nodes" if below.startswith("=") else "children"
        entries.append({"switch": switch, **({key: below.lstrip("=")} if below else {})})
    return (Topology(name, "tree", False, body={"switches": entries}),)


def flat(name: str = "flat", default: bool = False) -> Topology:
    return Topology(name, "flat", default, body="true")


LEAVES = ("l1 =r01t[01-18]", "l2 =r02t[01-18]")


SITE = (
    *tree("top l[1-2]", *LEAVES, name="leaves"),
    flat(),
    Topology("rings", "ring", False, body={"rings": [{"ring": "ring0", "nodes": "r01t[01-08]"}]}),
    Topology(
        "cube",
        "torus3d",
        False,
        body={
            "toruses": [{"name": "pod1", "dims": {"x": "4", "y": "4", "z": "2"}, "nodes": "r01t[01-18],r02t[01-14]"}]
        },
    ),
)


def several(name: str, *codes: str, topologies: tuple[Topology, ...]) -> Case:
    """A case of Slurm 25.05 and later: further topologies next to the two racks."""
    return Case(name, others=topologies, old=None, new=codes)


def both(case: Case, *codes: str) -> Case:
    return replace(case, old=codes, new=codes)


def placed(name: str, text: str, *codes: str) -> Case:
    """A case of Slurm 25.05 and later: Topology= on the NodeName line of r01t01, next to topologies of the site."""
    return Case(name, node_topologies={"r01t01": text}, others=SITE, made=(), old=None, new=codes)


CASES = (
    both(Case("whole racks")),
    both(
        Case("all levels below the size of a rack", sizes=(4, 8, 16)),
        *2 * ["slurm_clique_above_base"],
        "slurm_blocks_limited",
    ),
    both(Case("no sizes, unknown first block", (("gone", "x[1-18]"), *RACKS), ()), "node_renamed"),
    Case(
        "no sizes, unknown last block",
        (*RACKS, ("gone", "x[1-18]")),
        (),
        ("node_renamed", "slurm_block_size"),
        ("node_renamed",),
    ),
    Case(
        "a rack in two halves",
        (RACKS[0], ("r02a", "r02t[01-09]"), ("r02b", "r02t[10-18]")),
        (18,),
        ("slurm_block_size", "slurm_block_size"),
        (),
    ),
    Case(
        "one tray short",
        (RACKS[0], ("r02", "r02t[01-17]")),
        (18,),
        ("slurm_block_size", "tray_unplaced"),
        ("tray_unplaced",),
    ),
    both(
        Case("no sizes, the first block smaller", (("r02", "r02t[01-17]"), RACKS[0]), ()),
        "slurm_clique_above_base",
        "tray_unplaced",
    ),
    Case("a placeholder", (RACKS[0], ("gone", ""), RACKS[1]), (18,), ("slurm_block_invalid",), ()),
    Case(
        "names that run through two blocks",
        (("odd", "r01t[01-09],r02t[01-09]"), ("even", "r01t[10-18],r02t[10-18]")),
        (18,),
        (),
        ("slurm_conf_advice",),
    ),
    Case("only placeholders", (("gone", ""),), (18,), ("slurm_block_invalid", "slurm_no_blocks"), ("slurm_no_blocks",)),
    both(Case("no blocks", ()), "slurm_no_blocks"),
    both(Case("a size that is no multiple", sizes=(18, 30)), "slurm_block_size"),
    both(Case("the sixteenth level", sizes=(18, 18 << 15))),
    # 1 << 16 ends both with a division by 0, and no message.
    Case("a base size above 16 bits", sizes=((1 << 16) + 1,), old=("slurm_block_size",) * 3, new=("slurm_block_size",)),
    both(Case("the seventeenth level", sizes=(18, 18 << 16)), "slurm_block_size"),
    both(
        Case("a tray in two blocks", (RACKS[0], ("r02", "r01t18,r02t[01-18]"))),
        "slurm_clique_above_base",
        "slurm_block_overlap",
    ),
    both(
        Case("a tray twice in its block", (RACKS[0], ("r02", "r02t[01-18],r02t18"))),
        "slurm_block_overlap",
    ),
    Case(
        "an unknown tray that the base needs",
        (RACKS[0], ("r02", "r02t[02-19]")),
        (18,),
        ("slurm_block_size", "slurm_node_unknown", "tray_unplaced"),
        ("slurm_node_unknown", "tray_unplaced"),
    ),
    Case(
        "an unknown block",
        (*RACKS, ("r03", "r03t[01-18]")),
        (18,),
        ("slurm_block_size", "node_renamed"),
        ("node_renamed",),
    ),
    both(Case("names like YAML's words", (("true", "r01t[01-18]"), ("007", "r02t[01-18]")), (18, 36))),
    both(Case("a bracket in a name", (("r[0", "r01t[01-18]"), RACKS[1]), (18, 36)), "slurm_block_invalid"),
    both(
        Case("a partition over both kinds of nodes", partition_nodes=f"{GPU_NODES},{CPU_NODES}"),
        "tray_unplaced",
    ),
    Case("a partition of a missing topology", partition_topology="trees", old=None, new=("slurm_conf_inconsistent",)),
    Case(
        "a node line that names a missing block",
        node_topologies={"cpu1": "nvlink:r09"},
        old=None,
        new=("slurm_conf_inconsistent",),
    ),
    Case(
        "a node line that names another block",
        node_topologies={"r01t01": "nvlink:r02"},
        old=None,
        new=("slurm_conf_inconsistent",),
    ),
    *(
        placed(f"a node line with {text}", text)
        for text in (
            "nvlink:r01,leaves:l1",
            "nvlink:r01,leaves:top:new:leaf",
            "nvlink:r01,flat",
            "nvlink:r01,rings:ring0:3",
            "nvlink:r01,cube:pod1:0:0:0",
        )
    ),
    *(
        placed(f"a node line with {text}", text, "slurm_conf_inconsistent")
        for text in (
            # slurmctld loads these two, and the node is in another block, or in none.
            "nvlink:r01,nvlink:r02",
            "flat",
            "nvlink:r01,gone",
            "nvlink:r01:x",
            "nvlink",
            "NVLINK:r01",
        )
    ),
    several("a flat topology", topologies=(flat(),)),
    several("a tree", topologies=tree("top l[1-2]", *LEAVES)),
    Case("a flat topology as the default", others=(flat(default=True),), default=False, old=None),
    several("two topologies of one name", "slurm_conf_inconsistent", topologies=(flat("nvlink"),)),
)
