# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check a topology against what topology/block of each Slurm version accepts, before anything is written.

Private to this collection; it may change in any release. Pure.

Each row of the table has the versions it applies to, what slurmctld itself does (``fatal``: it does not start and
refuses to reconfigure; ``warning``: it logs and continues; ``silent``: it loads the topology and behaves otherwise than
written; ``ours``: the fabric does not accept it, whatever Slurm does). Observed on slurmctld 24.11.5 and 26.05.5
(tests/integration/test_slurm_topology.py repeats it), but for the rows from source: no distribution packages 24.05,
25.05 and 25.11.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import dropwhile, groupby, islice
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import switches
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rules import (
    MAX_NODES,
    NODE_RANK_SINCE,
    OLDEST,
    YAML_SINCE,
    Partition,
    Version,
    show_version,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    CONF,
    YAML,
    Block,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal

# A rule yields the case and the values of the finding for each objection; each finding has the value version as well.
Objection = tuple[str, dict[str, Any]]

MAX_LEVEL = 15  # MAX_BLOCK_LEVELS is 16, the base is level 0


@dataclass(frozen=True)
class Candidate:
    """A topology for Slurm to load, and what is known of that Slurm.

    known_nodes: None where unknown (rendered away from the cluster), then names are not checked. previous: what runs
    now. others: other topologies in topology.yaml. node_topologies: node -> the value of
    Topology= on its NodeName line in slurm.conf. made: those of ``others`` that this collection writes, which are
    checked as well. node_rank: whether TopologyParam has BlockAsNodeRank, or will have it.
    power_saving: whether slurmctld may power nodes down, which some releases do wrong.
    """

    version: Version
    style: str
    topology: Topology
    known_nodes: frozenset[str] | None = None
    partitions: tuple[Partition, ...] = ()
    previous: Topology | None = None
    others: tuple[Topology, ...] = ()
    node_topologies: Mapping[str, str] = field(default_factory=dict)
    made: tuple[Topology, ...] = ()
    node_rank: bool = False
    power_saving: bool = True

    def known(self, block: Block) -> int:
        """How many of a block's nodes Slurm knows: the number that slurmctld compares with the base size (24.11.5)."""
        nodes = set(block.nodes)
        return len(nodes if self.known_nodes is None else nodes & self.known_nodes)

    @cached_property
    def units(self) -> dict[str, frozenset[str] | None]:
        """Topology -> the blocks that a node line may name; None for another kind, where it may name anything."""
        return {
            known.name: frozenset(block.name for block in known.blocks) if known.kind == "block" else None
            for known in (*self.others, self.topology)
        }

    @property
    def base(self) -> int:
        """The planning base block size; without block_sizes Slurm takes the first block that has nodes it knows."""
        if self.topology.block_sizes:
            return self.topology.block_sizes[0]
        return next(filter(None, map(self.known, self.topology.blocks)), 0)


@dataclass(frozen=True)
class Rule:
    """One row of the table; it applies to since <= version < before."""

    code: str
    check: Callable[[Candidate], Iterable[Objection]]
    slurmctld: str
    since: Version = OLDEST
    before: Version = (999, 0, 0)
    style: str = ""

    def applies_to(self, candidate: Candidate) -> bool:
        return self.since <= candidate.version < self.before and self.style in ("", candidate.style)


# ------------------------------------------------------------------------------------- choosing blocks and sizes


def drop_placeholders(blocks: Sequence[Block], version: Version) -> tuple[tuple[Block, ...], list[HostFinding]]:
    """The blocks that this version can load: placeholders keep a retired clique's position only from 25.05."""
    if version >= YAML_SINCE:
        return tuple(blocks), []
    empty = [block.name for block in blocks if not block.nodes]
    if not empty:
        return tuple(blocks), []
    return tuple(block for block in blocks if block.nodes), [
        host_finding(
            "release_old", "empty_blocks", block=empty[0], version=show_version(version), empty=summarize(empty)
        )
    ]


def auto_block_sizes(blocks: Sequence[Block], version: Version) -> tuple[int, ...]:
    """The base block size from the cliques' sizes in the fabric file, never from which trays are up.

    From 25.05 the largest, so that a job of a whole clique stays in one; before, where a block below the base size is
    fatal, the smallest. Only the base size: larger sizes would group cliques by the scale-out network.
    """
    counts = [len(set(block.nodes)) for block in blocks if block.nodes]
    if not counts:
        return ()
    return (max(counts) if version >= YAML_SINCE else min(counts),)


def choose_sizes(
    blocks: Sequence[Block], version: Version, given: Sequence[int] = ()
) -> tuple[tuple[int, ...], list[HostFinding]]:
    """The block sizes to write, and findings: those of the site (given), else the base and the size of a group."""
    base = tuple(given) or auto_block_sizes(blocks, version)
    if len(given) == 1 or not base:
        return base, []
    found = [] if given else _lowered_by_split(blocks, version, base[0])
    outside = outside_groups(blocks)
    if outside and not given:
        names = f"{summarize(outside)} {'is' if len(outside) == 1 else 'are'}"
        return base, [*found, host_finding("slurm_blocks_limited", "no_group", names=names, base=base[0])]
    number, problem = blocks_of_group(blocks)
    if problem:
        return base, [*found, host_finding("slurm_block_size", "groups", problem=problem, base=base[0])]
    return base if given or number == 1 else (*base, number * base[0]), found


def _lowered_by_split(blocks: Sequence[Block], version: Version, base: int) -> list[HostFinding]:
    """The finding where the base block size would be larger if no clique were split."""
    whole = Counter[str]()
    for block in blocks:
        whole[block.clique or f"block {block.name}"] += len(set(block.nodes))
    whole_base = (max if version >= YAML_SINCE else min)(filter(None, whole.values()))
    if base >= whole_base:
        return []
    split = summarize(block.name for block in blocks if block.clique and 0 < len(block.nodes) < whole_base)
    return [host_finding("slurm_blocks_limited", "split", split=split, base=base, whole=whole_base)]


def outside_groups(blocks: Sequence[Block]) -> list[str]:
    """The blocks with nodes that are in no group where others are in one."""
    grouped = any(block.group for block in blocks)
    return [block.name for block in blocks if grouped and block.nodes and not block.group]


def blocks_of_group(blocks: Sequence[Block]) -> tuple[int, str]:
    """The number of blocks that each group has (1 without groups), or why Slurm cannot aggregate the groups, a clause.

    An aggregated block is a power of two of consecutive blocks, counted from the first one (block_record_validate() of
    24.11 and 26.05). So all groups must have the same power of two, one after another, and nodes outside of them would
    fill a group up.
    """
    if not any(block.group for block in blocks):
        return 1, ""
    groups = [(group, len(list(members))) for group, members in groupby(blocks, key=lambda block: block.group)]
    outside = outside_groups(blocks)
    if outside:
        return 1, f"{summarize(outside)} {'is' if len(outside) == 1 else 'are'} in no group"
    if not groups[-1][0]:
        del groups[-1]
    names = [group for group, _number in groups]
    if "" in names or len(set(names)) < len(names):
        return 1, "the blocks of a group are not next to each other"
    (small, fewest), (large, most) = (choose(groups, key=lambda row: row[1]) for choose in (min, max))
    if fewest != most:
        return 1, f"group {large} has {count(most, 'block')} and {small} {fewest}"
    if most & (most - 1):
        return 1, f"each group has {count(most, 'block')}, which is not a power of two"
    return most, ""


def leave_out(blocks: Sequence[Block], minimum: int, version: Version) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """The blocks to write, and those that the site leaves out: before 25.05 the smallest limits the base for all."""
    if version >= YAML_SINCE:
        return tuple(blocks), ()
    small = tuple(block for block in blocks if 0 < len(set(block.nodes)) < minimum)
    return tuple(block for block in blocks if block not in small), small


def enabled_sizes(block_sizes: Sequence[int], base: int) -> tuple[int, ...]:
    """The block sizes that slurmctld schedules with, the base first: without block_sizes five, each twice the last."""
    return tuple(size for size in block_sizes if size > 0) or tuple(base << level for level in range(5) if base)


def aggregates(topology: Topology, base: int) -> list[tuple[int, tuple[str, ...]]]:
    """The aggregated blocks that slurmctld creates: (size in nodes, names of the blocks), in the order of their size.

    Written after block_record_validate() of 24.11 and 26.05: consecutive blocks in file order, levels up to the first
    that covers all blocks, a trailing group only where a lower level does not cover it already.
    """
    names = [block.name for block in topology.blocks]
    if not names or base < 1:
        return []
    sizes = enabled_sizes(topology.block_sizes, base)
    # The base level is always enabled: with topology.conf it is the first size, with topology.yaml Slurm sets it.
    levels = sorted({1, *(size // base for size in sizes if size > 0 and size % base == 0)})
    used: list[int] = []
    for level in levels:
        used.append(level)
        if level >= len(names):
            break
    groups: list[tuple[int, tuple[str, ...]]] = []
    for position in range(1, len(used)):
        level, below = used[position], used[position - 1]
        for start in range(0, len(names), level):
            remaining = len(names) - start
            if level > remaining and below >= remaining:
                continue
            groups.append((level * base, tuple(names[start : start + level])))
    return groups


# ------------------------------------------------------------------------------------------------------ the rules

# Comma and bracket are hostlist syntax (slurmctld joins block names into one), `=`, `#` and white space
# topology.conf's.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z", re.ASCII)
_NUMBERS = re.compile(r"([0-9]+)")


def _has_nodes(candidate: Candidate) -> Iterator[Objection]:
    if not any(block.nodes for block in candidate.topology.blocks):
        yield "no_node", {}


def _block_names(candidate: Candidate) -> Iterator[Objection]:
    for block in candidate.topology.blocks:
        if not _NAME.match(block.name):
            yield "name", {"block": block.name[:80], "name": repr(block.name[:80])}


def _topology_name(candidate: Candidate) -> Iterator[Objection]:
    for name in (candidate.topology.name, *(made.name for made in candidate.made)):
        if not _NAME.match(name):
            yield "topology_name", {"name": repr(name[:80])}
    for name, number in Counter([candidate.topology.name, *(other.name for other in candidate.others)]).items():
        if number > 1:
            yield "topology_twice", {"number": number, "name": name}


def _ranks_follow_names(candidate: Candidate) -> Iterator[Objection]:
    blocks = candidate.topology.blocks
    of = {node: number for number, block in enumerate(blocks) for node in block.nodes}
    runs = [number for number, _nodes in groupby(of[node] for node in sorted(of, key=_by_number))]
    if candidate.topology.cluster_default and not candidate.node_rank and len(runs) > len(set(runs)):
        yield "ranks", {}


def _by_number(name: str) -> list[str | tuple[int, str]]:
    """Slurm's natural sort order, r2 before r10. Text and numbers alternate, so any two keys can be compared.

    A number of any length: its digits, first by how many there are.
    """
    parts: list[str | tuple[int, str]] = list(_NUMBERS.split(name))
    parts[1::2] = [(len(digits), digits) for digits in (str(part).lstrip("0") for part in parts[1::2])]
    return parts


def _empty_blocks(candidate: Candidate) -> Iterator[Objection]:
    for block in candidate.topology.blocks:
        if not block.nodes:
            yield "empty", {"block": block.name}


def _short_blocks(candidate: Candidate) -> Iterator[Objection]:
    base, blocks = candidate.base, candidate.topology.blocks
    if not candidate.topology.block_sizes:
        # Slurm compares with the base from the block on that gives it.
        blocks = tuple(dropwhile(lambda block: not candidate.known(block), blocks))
    for block in blocks:
        if block.nodes and candidate.known(block) < base:
            unknown = "" if candidate.known(block) == len(set(block.nodes)) else " that Slurm knows"
            yield (
                "short",
                {"block": block.name, "nodes": count(candidate.known(block), "node"), "unknown": unknown, "base": base},
            )


def _node_names(candidate: Candidate) -> Iterator[Objection]:
    for block in candidate.topology.blocks:
        for node in block.nodes:
            if not _NAME.match(node):
                yield "node", {"block": block.name, "node": repr(node[:80])}


def _sizes_fit(candidate: Candidate) -> Iterator[Objection]:
    sizes = candidate.topology.block_sizes
    # The base has 16 bits; larger ones above it are loaded (observed).
    wrong = [size for size in sizes if size < 1] or [size for size in sizes[:1] if size >= MAX_NODES]
    for size in wrong:
        yield "no_number", {"size": size}
    for size in () if wrong else sizes:
        factor, rest = divmod(size, sizes[0])
        if rest or factor & (factor - 1):
            yield "no_power", {"size": size, "base": sizes[0], "double": 2 * sizes[0], "fourfold": 4 * sizes[0]}
        elif factor.bit_length() - 1 > MAX_LEVEL:
            yield "no_level", {"size": size, "most": 1 << MAX_LEVEL, "base": sizes[0], "levels": MAX_LEVEL + 1}


def _first_power(number: int) -> int:
    """The smallest power of two from this number on."""
    return 1 << max(number - 1, 0).bit_length()


def _last_group_counts(candidate: Candidate) -> Iterator[Objection]:
    sizes, base, number = candidate.topology.block_sizes, candidate.base, len(candidate.topology.blocks)
    if base < 1 or any(size < 1 or size % base for size in sizes):
        return
    nodes = sum(map(candidate.known, candidate.topology.blocks))
    top = max((size // base for size in sizes), default=0)
    rest = number % top if top > 1 and nodes > top * base else 0
    if rest:
        size = base * max(_first_power(number), _first_power(-(-nodes // base)))
        values = {"nodes": top * base, "last": count(rest, "block"), "group": count(top, "block"), "size": size}
        yield ("last_group" if top < number else "one_group"), values


def _larger_cliques(candidate: Candidate) -> Iterator[Objection]:
    base = candidate.base
    if base < 1:
        return
    for block in candidate.topology.blocks:
        number = len(set(block.nodes))
        if number > base:
            how = "upgrade to 25.05" if candidate.version < YAML_SINCE else "raise the base size"
            yield "block", {"block": block.name, "number": number, "base": base, "more": base + 1, "how": how}


def _overlaps(candidate: Candidate) -> Iterator[Objection]:
    block_of: dict[str, str] = {}
    for block in candidate.topology.blocks:
        for node in block.nodes:
            first = block_of.setdefault(node, block.name)
            if first != block.name:
                yield "blocks", {"tray": node, "block": block.name, "first": first}
        for node, number in Counter(block.nodes).items():
            if number > 1:
                yield "twice", {"tray": node, "block": block.name, "number": number}


def _unknown_nodes(candidate: Candidate) -> Iterator[Objection]:
    if candidate.known_nodes is None:
        return
    for block in candidate.topology.blocks:
        unknown = [node for node in block.nodes if node not in candidate.known_nodes]
        if unknown and len(unknown) < len(block.nodes):
            yield "", {"block": block.name, "tray": unknown[0], "nodes": summarize(unknown)}


def _unknown_blocks(candidate: Candidate) -> Iterator[Objection]:
    if candidate.known_nodes is None:
        return
    for block in candidate.topology.blocks:
        if block.nodes and not candidate.known(block):
            yield "block", {"block": block.name, "number": len(block.nodes), "nodes": summarize(block.nodes)}


def _uncovered_nodes(candidate: Candidate) -> Iterator[Objection]:
    covered = {node for block in candidate.topology.blocks for node in block.nodes}
    for partition in candidate.partitions:
        if not partition.uses(candidate.topology):
            continue
        outside = [node for node in partition.nodes if node not in covered]
        if outside and len(outside) < len(partition.nodes):
            yield "partition", {"tray": outside[0], "partition": partition.name, "nodes": summarize(outside)}


def _partition_topologies(candidate: Candidate) -> Iterator[Objection]:
    names = {candidate.topology.name, *(other.name for other in candidate.others)}
    for partition in candidate.partitions:
        if partition.topology and partition.topology not in names:
            yield (
                "partition_topology",
                {"partition": partition.name, "topology": partition.topology, "known": ", ".join(sorted(names))},
            )


def _node_lines(candidate: Candidate) -> Iterator[tuple[list[str], list[tuple[str, str]], dict[str, Any]]]:
    """The nodes of each value of Topology= in slurm.conf, its (topology, unit) pairs, and the finding's values."""
    for text, nodes in equal((text, node) for node, text in candidate.node_topologies.items()).items():
        units = [part.partition(":")[::2] for part in text.split(",") if part]
        yield nodes, units, {"nodes": summarize(nodes, 2), "topology": text}


def _node_lines_name_units(candidate: Candidate) -> Iterator[Objection]:
    for nodes, units, line in _node_lines(candidate):
        # One objection for a line, whose whole value is in each.
        for unit, why in islice(_refused_units(candidate, units), 1):
            yield "node_line", {"tray": nodes[0], "block": unit, "why": why, **line}


def _refused_units(candidate: Candidate, units: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    known = candidate.units
    for name, unit in units:
        if name not in known:
            yield unit, f"the new topology file has no topology {name!r} ({', '.join(sorted(known))})"
        # slurmctld refuses a unit that a topology of another kind does not have.
        elif (blocks := known[name]) is not None and unit not in blocks:
            yield unit, f"the topology {name} has no block {unit!r}"


def _node_lines_agree(candidate: Candidate) -> Iterator[Objection]:
    # slurmctld takes the node out of every topology that its line does not name.
    places = {
        candidate.topology.name: {node: block.name for block in candidate.topology.blocks for node in block.nodes}
    }
    for made in candidate.made:
        places[made.name] = {node: switch.name for switch in switches.of(made) for node in switch.nodes}
    for nodes, units, line in _node_lines(candidate):
        if any(_refused_units(candidate, units)):
            continue
        named = dict(units)
        for topology, placed in places.items():
            unit = named.get(topology)
            for node in nodes:
                if topology == candidate.topology.name and unit is not None and placed.get(node) != unit:
                    why = f"overrides the topology file ({placed.get(node, 'no block')})"
                elif unit is None and node in placed:
                    why = f"takes {node} out of {placed[node]} of the topology {topology}"
                else:
                    continue
                yield "node_line_differs", {"tray": node, "block": unit or "", "why": why, **line}
                break


def _known_bad_release(candidate: Candidate) -> Iterator[Objection]:
    if candidate.power_saving:
        yield "power_saving", {}


def _updates_drop_nodes(candidate: Candidate) -> Iterator[Objection]:
    # scontrol show topology still lists the node, but no job of blocks gets it until the next reconfigure. From source
    # (SchedMD/slurm pull request 225, at the tags 25-05-6-1 to 26-05-3-1); 26.05.5 does not do it.
    others = [other.name for other in candidate.others if other.kind == "block"]
    if others:
        yield "update", {"others": summarize(others)}


def _aggregates_shift(candidate: Candidate) -> Iterator[Objection]:
    old = candidate.previous
    if old is None or not old.blocks or not candidate.topology.blocks or candidate.base < 1:
        return
    old_base = old.block_sizes[0] if old.block_sizes else 0
    before = {names: size for size, names in aggregates(old, old_base)}
    after = {names: size for size, names in aggregates(candidate.topology, candidate.base)}
    kept_names = {block.name for block in old.blocks} & {block.name for block in candidate.topology.blocks}
    shifted = sorted(",".join(names) for names in before if names not in after and kept_names.issuperset(names))
    if shifted:
        yield "aggregates", {"blocks": summarize(shifted)}


RULES: tuple[Rule, ...] = (
    Rule("slurm_no_blocks", _has_nodes, "ours"),
    Rule("slurm_block_invalid", _block_names, "ours"),
    Rule("slurm_conf_inconsistent", _topology_name, "ours"),
    # Before the sizes: a block of unknown nodes is too small as well, and no release of Slurm helps.
    Rule("node_renamed", _unknown_blocks, "ours"),
    Rule("slurm_block_invalid", _empty_blocks, "fatal", before=YAML_SINCE),
    Rule("slurm_block_size", _short_blocks, "fatal", before=YAML_SINCE),
    Rule("slurm_block_invalid", _node_names, "ours"),
    # In topology.yaml 25.05 to 26.05.2 ignore a bad size without a message (source: commit 314be80425 in 26.05.3).
    Rule("slurm_block_size", _sizes_fit, "fatal", style=CONF),
    Rule("slurm_block_size", _sizes_fit, "silent", before=(26, 5, 3), style=YAML),  # from source
    Rule("slurm_block_size", _sizes_fit, "fatal", since=(26, 5, 3), style=YAML),
    # Source: eval_nodes_block.c uses an integer division of the blocks by the group;
    # tests/integration/test_slurm_prediction.py.
    Rule("slurm_blocks_limited", _last_group_counts, "silent"),
    Rule("slurm_clique_above_base", _larger_cliques, "ours"),
    Rule("slurm_block_overlap", _overlaps, "silent"),
    Rule("slurm_node_unknown", _unknown_nodes, "warning"),
    Rule("tray_unplaced", _uncovered_nodes, "warning"),
    Rule("slurm_conf_inconsistent", _partition_topologies, "fatal", since=YAML_SINCE),
    Rule("slurm_conf_inconsistent", _node_lines_name_units, "fatal", since=YAML_SINCE),
    Rule("slurm_conf_inconsistent", _node_lines_agree, "silent", since=YAML_SINCE),
    Rule("slurm_conf_advice", _ranks_follow_names, "silent", since=NODE_RANK_SINCE),
    Rule("release_old", _known_bad_release, "silent", since=(25, 11, 0), before=(25, 11, 3)),  # from source
    Rule("release_old", _updates_drop_nodes, "silent", since=YAML_SINCE, before=(26, 5, 4)),  # from source
    Rule("slurm_blocks_limited", _aggregates_shift, "silent"),
)


def hits(candidate: Candidate) -> list[tuple[Rule, HostFinding]]:
    """Every finding with its rule, in the order of the table."""
    found: list[tuple[Rule, HostFinding]] = []
    for rule in RULES:
        if rule.applies_to(candidate):
            version = show_version(candidate.version)
            found.extend(
                (rule, host_finding(rule.code, case, version=version, **values))
                for case, values in rule.check(candidate)
            )
    return found


def lint(candidate: Candidate) -> list[HostFinding]:
    """The findings of all rules; with one of severity error the topology must not be written."""
    return [found for _rule, found in hits(candidate)]
