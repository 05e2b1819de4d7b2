# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clique's label written on all Nodes of one real API server: k8s_topology against kubectl with the same labels.

The server's own CPU seconds are printed next to the writer's: they count where other work shares the machine.
Ours also lists the Nodes, plans, and takes each label over from the manager that has it. In every round each writer
gives every Node a value that it does not have yet, or the server would have nothing to store.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from measure import Cost, once

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab.kubernetes import nodes, plane, programs

NAME = "kubernetes-labels"
KUBECTL, OURS, ALONE = "kubectl apply --server-side", "k8s_topology", "k8s_topology, one request at a time"
WORDS = {KUBECTL: "kubectl", OURS: "ours", ALONE: "alone"}
AIM = 1.0
WRITE = """
import json, sys
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import api
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.topology import Planner, DesiredState
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import Members, Topology
kubeconfig, file, workers = sys.argv[1:]
api.MAX_WORKERS = int(workers) or api.MAX_WORKERS
cliques = json.load(open(file))
topology = Topology(None, tuple(Members(text, text, text, tuple(names), 4) for text, names in cliques.items()))
cluster = api.connect({"kubeconfig": kubeconfig}, "bench")
plan = Planner(cluster, topology, DesiredState(label_writer="collection")).plan()
plan.apply()
print(len(plan.done))
"""


class Run(NamedTuple):
    """What one run cost the writer, and seconds of CPU of the API server with etcd."""

    cost: Cost
    server: float


def table(racks: int, rounds: int, scratch: Path) -> str:
    """The comparison as a Markdown table; SystemExit if one does not write all the labels."""
    scratch.mkdir(parents=True, exist_ok=True)
    with plane.control_plane(components=plane.API_ONLY) as running:
        count = plane.add_racks(running, racks)
        cliques: dict[str, list[str]] = {}
        for row in nodes.of_fleet(racks, running.version):
            cliques.setdefault(row["metadata"]["labels"][nodes.CLIQUE], []).append(row["metadata"]["name"])
        runs: dict[str, list[Run]] = {}
        for number in range(rounds):
            for name in WORDS:
                file = _file(scratch, name, number, cliques)
                before = _server_seconds(running)
                cost = once(running.inside(_command(running, name, file)), _environment(running), scratch / name)
                runs.setdefault(name, []).append(Run(cost, _server_seconds(running) - before))
                _check(running, _value(name, number), count)
    return _lines({name: _median(rows) for name, rows in runs.items()}, count)


def _median(runs: Sequence[Run]) -> Run:
    middle = (statistics.median(getattr(run.cost, part) for run in runs) for part in ("wall", "cpu", "memory"))
    return Run(Cost(*middle), statistics.median(run.server for run in runs))


def _server_seconds(running: plane.ControlPlane) -> float:
    """User and system time of the API server and etcd so far."""
    ticks = 0
    for part in running.components().values():
        fields = Path(f"/proc/{part['pid']}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _file(scratch: Path, name: str, number: int, cliques: Mapping[str, list[str]]) -> Path:
    """What one run writes: cliques of their own values, each with its nodes."""
    file = scratch / f"{_value(name, number)}.json"
    texts = {f"{_value(name, number)}.{place}": names for place, names in enumerate(cliques.values())}
    if name == KUBECTL:
        rows = [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {nodes.CLIQUE: text}}}
            for text, names in texts.items()
            for node in names
        ]
        file.write_text("\n".join(map(json.dumps, rows)))
    else:
        file.write_text(json.dumps(texts))
    return file


def _value(name: str, number: int) -> str:
    return f"{WORDS[name]}-{number}"


def _command(running: plane.ControlPlane, name: str, file: Path) -> list[str]:
    if name == KUBECTL:
        words = [str(programs.kubectl()), *name.split()[1:], "--force-conflicts"]
        return [*words, "--field-manager=by-hand", "-f", str(file)]
    return [sys.executable, "-c", WRITE, str(running.kubeconfig), str(file), "1" if name == ALONE else "0"]


def _environment(running: plane.ControlPlane) -> dict[str, str]:
    collections = next((Path(sys.prefix) / "lib").glob("python3*")) / "site-packages"
    return running.environment(ANSIBLE_COLLECTIONS_PATH=str(collections))


def _check(running: plane.ControlPlane, value: str, count: int) -> None:
    """SystemExit unless every Node has a label of that run."""
    rows = running.api().items(nodes.PATH)
    labelled = sum(row["metadata"]["labels"][nodes.CLIQUE].startswith(f"{value}.") for row in rows)
    if labelled != count:
        raise SystemExit(f"{value} wrote the labels of {labelled} nodes instead of {count}")


def _lines(runs: Mapping[str, Run], count: int) -> str:
    floor = runs[KUBECTL]
    lines = [
        f"| {count:,} nodes | wall s | nodes/s | CPU s | server's CPU s | memory MB | wall ratio | CPU ratio "
        "| server's | aim |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for name, (cost, server) in runs.items():
        ratios = [cost.wall / floor.cost.wall, cost.cpu / floor.cost.cpu, server / floor.server]
        columns = [f"`{name}`", f"{cost.wall:.1f}", f"{count / cost.wall:.0f}", f"{cost.cpu:.1f}", f"{server:.1f}"]
        columns += [f"{cost.memory:.0f}", *(f"{ratio:.2f}" for ratio in ratios)]
        lines.append(f"| {' | '.join(columns)} | {f'<= {AIM:g}' if name == OURS else ''} |")
    return "\n".join([*lines, "", f"kube-apiserver {programs.DEFAULT_VERSION}, {len(runs)} writers in turns."])
