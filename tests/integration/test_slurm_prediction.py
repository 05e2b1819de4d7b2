# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare predictions for random topologies with what real slurmctlds do.

Evaluates are the daemon's log (whether it loads the file), ``show topology`` (its blocks) and ``sbatch --test-only``
(which jobs it places). The generator writes topology files itself, so that an error of the renderer cannot hide one of
the linter. A case is a function of its seed; a failure names the seed and the file. BATCHES=100 SEED=2000 compares
2,000 other cases of each release.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand, fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import placement, scontrol
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import linter, spans, topology_files

from .slurm_site import FILE
from .slurmctld import EACH_SUITE, Slurmctld, sandbox

pytestmark = pytest.mark.lab

RACKS, TRAYS = 6, 18
NODES = tuple(f"r{rack:02d}t{tray:02d}" for rack in range(1, RACKS + 1) for tray in range(1, TRAYS + 1))
BATCH = 20
BATCHES = int(os.environ.get("BATCHES", "6"))  # of each release; `make test` has the first of the newest
SEED = int(os.environ.get("SEED", "0"))  # of the first case


@dataclass(frozen=True)
class Random:
    """One random case: a topology file, the nodes that a job must not use, and jobs (nodes, segment)."""

    text: str
    without: tuple[str, ...]
    jobs: tuple[tuple[int, int], ...]


def generate(seed: int, suite: str) -> Random:
    chance = random.Random(f"{suite} {seed}")
    style = FILE[suite].partition(".")[2]
    blocks = _blocks(chance, style)
    sizes = _sizes(chance, style, [len(nodes) for _name, nodes in blocks])
    text = _conf(chance, blocks, sizes) if style == "conf" else _yaml(chance, blocks, sizes)
    known = [node for _name, nodes in blocks for node in nodes if node in NODES]
    without: list[str] = []
    if chance.random() < 0.6:
        for _name, nodes in blocks:
            gone = chance.choice((0, 0, 0, 1, 2, len(nodes)))
            without += [node for node in chance.sample(nodes, min(gone, len(nodes))) if node in NODES]
    base = sizes[0] if sizes and sizes[0] > 0 else next((len(nodes) for _name, nodes in blocks if nodes), 1)
    total = len(set(known) - set(without))
    steps = [factor * base + more for factor in (1, 2, 3, 4, 6, 8) for more in (-1, 0, 1)]
    wanted = {total, chance.randint(1, len(NODES)), *chance.sample(steps, 2), total - chance.randrange(4)}
    jobs = [(job, 0) for job in sorted(wanted) if 0 < job <= len(NODES)]
    segment = chance.randint(1, max(base, 1))
    if segment * 2 <= len(NODES):
        most = max(1, total // segment)
        jobs.append((segment * chance.choice((most, max(1, most - 1), 2)), segment))
    # Slurm places a job that may use nodes of no block alone as if there were no blocks.
    valid = tuple(job for job in jobs if 0 < job[0] <= len(NODES)) if total > 0 else ()
    return Random(text, tuple(sorted(without)), valid)


def _blocks(chance: random.Random, style: str) -> list[tuple[str, list[str]]]:
    """Blocks of whole racks, of parts of racks, or of nodes in any order; sometimes with a fault."""
    shape = chance.choice(("racks", "racks", "halves", "parts", "scattered"))
    names = list(NODES)
    made: list[list[str]] = []
    if shape == "racks":
        whole = [names[at : at + TRAYS] for at in range(0, len(names), TRAYS)]
        made = [nodes[: chance.choice((18, 18, 18, 17, 16, 9))] for nodes in whole[: chance.randint(1, RACKS)]]
    elif shape == "halves":
        made = [names[at : at + 9] for at in range(0, 9 * chance.randint(1, 12), 9)]
        if chance.random() < 0.5:
            made[:2] = [[node for nodes in made[:2] for node in nodes]]
    else:
        if shape == "scattered":
            chance.shuffle(names)
        for _block in range(chance.randint(1, 9)):
            number = chance.choice((1, 2, 3, 4, 4, 4, 6, 8, 12))
            made, names = [*made, names[:number]], names[number:]
    if chance.random() < 0.2:
        chance.shuffle(made)
    made = [nodes for nodes in made if nodes]
    blocks = [(f"b{number:02d}", nodes) for number, nodes in enumerate(made, 1)]
    if style == "yaml" and chance.random() < 0.25:
        blocks.insert(chance.randint(0, len(blocks)), ("retired", []))
    fault = chance.random()
    if fault < 0.05:
        blocks[-1][1].append("unknown01")
    elif fault < 0.08:
        blocks.append(("gone", ["gone01", "gone02"]))
    return blocks


def _sizes(chance: random.Random, style: str, counts: list[int]) -> list[int]:
    """Block sizes: none, a base, or a base with doubles of it, in any order; sometimes one that Slurm refuses."""
    if chance.random() < 0.12:
        return []
    filled = [number for number in counts if number]
    smaller = chance.choice((min(filled), max(1, min(filled) // 2), max(1, min(filled) // 4), 4, 3))
    base = smaller if style == "conf" and chance.random() < 0.9 else chance.choice((max(filled), smaller))
    levels = chance.sample(range(1, 6), chance.choice((0, 0, 1, 2, 3, 4)))
    if chance.random() < 0.8:
        levels.sort()
    sizes = [base, *(base << level for level in levels)]
    fault = chance.random()
    if fault < 0.05:
        sizes.append(chance.choice((base * 3, base + 1, 0, base << 16)))
    elif fault < 0.1:
        sizes.append(chance.choice(sizes))
    return sizes


def _conf(chance: random.Random, blocks: list[tuple[str, list[str]]], sizes: list[int]) -> str:
    lines = [f"BlockName={name} Nodes={_hostlist(chance, nodes)}" for name, nodes in blocks]
    if sizes:
        lines.insert(chance.choice((0, len(lines))), f"BlockSizes={','.join(map(str, sizes))}")
    return "\n".join(lines) + "\n"


def _yaml(chance: random.Random, blocks: list[tuple[str, list[str]]], sizes: list[int]) -> str:
    lines = ["- topology: racks", "  cluster_default: true", "  block:"]
    lines += [f"    block_sizes: {sizes}"] if sizes else []
    lines.append("    blocks:")
    for name, nodes in blocks:
        lines += [f"      - block: {name}", *([f"        nodes: {_hostlist(chance, nodes)}"] if nodes else [])]
    return "\n".join(lines) + "\n"


def _hostlist(chance: random.Random, nodes: list[str]) -> str:
    return chance.choice((fold, ",".join))(nodes)


@pytest.fixture(params=EACH_SUITE, scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurmctld]:
    with sandbox(request.param, tmp_path_factory.mktemp("prediction") / "slurm") as made:
        nodes = [made.nodes(f"r0{rack}t[01-18]", f"Port=[2{rack}001-2{rack}018]") for rack in range(1, RACKS + 1)]
        plugin = "topology/block" if made.suite == "trixie" else ""
        made.configure(*nodes, "PartitionName=gpu Nodes=ALL Default=YES", plugin=plugin, select="select/cons_tres")
        whole = scontrol.Topology("racks", blocks=(scontrol.Block("whole", NODES),), block_sizes=(18,))
        text = topology_files.render([whole], FILE[made.suite].partition(".")[2])
        (made.conf_dir / FILE[made.suite]).write_text(text)
        made.start()
        yield made


@pytest.mark.parametrize("batch", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, BATCHES))])
def test_predictions_hold(cluster: Slurmctld, batch: int) -> None:
    first = SEED + batch * BATCH
    wrong = [line for seed in range(first, first + BATCH) for line in compare(cluster, seed)]
    assert not wrong, "\n".join(wrong)


def read(cluster: Slurmctld, text: str) -> scontrol.Topology:
    [topology] = topology_files.parse(text, FILE[cluster.suite].partition(".")[2])
    return topology


def compare(cluster: Slurmctld, seed: int) -> list[str]:
    """What differs between prediction and daemon for one random case, one line for each."""
    case = generate(seed, cluster.suite)
    style = FILE[cluster.suite].partition(".")[2]
    head = f"seed {seed} of {cluster.suite}"
    candidate = linter.Candidate((*cluster.version, 5), style, read(cluster, case.text), known_nodes=frozenset(NODES))
    found = linter.hits(candidate)
    fatal = load(cluster, case.text)
    wrong = []
    if bool(fatal) != any(rule.slurmctld == "fatal" for rule, _row in found):
        wrong.append(f"{head}: slurmctld {fatal or 'loads it'}, predicted {[row['message'] for _rule, row in found]}")
    elif not fatal:
        wrong += [f"{head}: {line}" for line in (*_shown(cluster, candidate), *_placed(cluster, candidate, case))]
    return [*wrong, case.text] if wrong else []


def load(cluster: Slurmctld, text: str) -> str:
    """Load a topology file; slurmctld's fatal message, empty where it loads."""
    (cluster.conf_dir / FILE[cluster.suite]).write_text(text)
    before = cluster.log.stat().st_size
    loaded = cluster.reconfigure()
    new = cluster.log.read_text()[before:]
    fatal = [line.partition("fatal: ")[2] for line in new.splitlines() if "fatal: " in line]
    assert loaded or fatal, new
    return "" if loaded else fatal[-1]


def _shown(cluster: Slurmctld, candidate: linter.Candidate) -> Iterator[str]:
    """What ``show topology`` prints other than predicted."""
    blocks = {block.name: frozenset(block.nodes) & frozenset(NODES) for block in candidate.topology.blocks}
    expected = [(candidate.base, False, nodes) for nodes in blocks.values()]
    expected += [
        (size, True, frozenset().union(*(blocks[name] for name in names)))
        for size, names in linter.aggregates(candidate.topology, candidate.base)
    ]
    printed = scontrol.parse_show_topology(cluster.run("scontrol", "show", "topology").stdout)
    shown = [(line.size or 0, line.aggregated, frozenset(line.nodes) & frozenset(NODES)) for line in printed]
    # A level's blocks in any order; the same block twice is a difference too.
    if Counter(expected) != Counter(shown):
        yield f"show topology has {[(size, fold(sorted(nodes))) for size, _aggregated, nodes in shown]}"


def _placed(cluster: Slurmctld, candidate: linter.Candidate, case: Random) -> Iterator[str]:
    """Jobs that slurmctld places other than predicted."""
    blocks = [frozenset(block.nodes) & frozenset(NODES) for block in candidate.topology.blocks]
    counts = [len(nodes - set(case.without)) for nodes in blocks]
    sizes = linter.enabled_sizes(candidate.topology.block_sizes, candidate.base)
    for (job, segment), nodes in zip(case.jobs, place(cluster, case.jobs, case.without), strict=True):
        what = f"-N {job}{f' --segment={segment}' if segment else ''} without {fold(case.without)}: {counts} {sizes}"
        [span] = spans.spans(counts, sizes, [job])
        starts = placement.segments_fit(counts, job, segment) if segment else span.starts
        # Where its search met a block without a working tray, 25.11 and later search again.
        again = candidate.version >= (25, 11, 0) and 0 in counts and len(sizes) > 1 and not segment
        if (nodes is not None) != starts and not (nodes is not None and again):
            yield f"{what}: slurmctld {'waits' if nodes is None else f'places it on {fold(nodes)}'}"
        elif nodes is not None and not segment:
            used = sum(bool(block.intersection(nodes)) for block in blocks)
            # 26.05 may place a job of one node in no block.
            least = 0 if job == 1 else span.needed
            if least is None or not least <= used <= span.allowed:
                yield f"{what}: slurmctld uses {used} blocks, predicted {span.needed} to {span.allowed}"
        elif nodes is not None:
            parts = [len(block.intersection(nodes)) for block in blocks]
            if any(part % segment for part in parts) and sum(parts) == job:
                yield f"{what}: slurmctld places {parts}"


def place(
    cluster: Slurmctld, jobs: tuple[tuple[int, int], ...], without: tuple[str, ...]
) -> list[tuple[str, ...] | None]:
    """The nodes that each job gets on the idle cluster, None where it would wait; one shell for all."""
    leave = f"-x {fold(without)}" if without else ""
    lines = [
        f"sbatch --test-only --exclusive -N{nodes} {f'--segment={segment}' if segment else ''} {leave} --wrap true"
        for nodes, segment in jobs
    ]
    done = cluster.run("sh", "-c", "; ".join(f"echo job; {line} 2>&1" for line in lines))
    answers = done.stdout.split("job\n")[1:]
    assert len(answers) == len(jobs), done
    return [_nodes(answer) for answer in answers]


def _nodes(answer: str) -> tuple[str, ...] | None:
    if " to start at " not in answer:
        refused = ("Requested node configuration is not available", "does not fit the job size", "is larger than")
        assert any(text in answer for text in refused), answer
        return None
    return tuple(expand(answer.partition(" on nodes ")[2].split(" ")[0]))
