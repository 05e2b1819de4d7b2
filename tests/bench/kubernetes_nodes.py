# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source kubernetes and the role dra_driver's snapshot against kubectl, on one real API server that has nothing
else to do: all Nodes, and for the snapshot what the driver would publish of each.

Each reader also logs in, ours by the official client in a child process, which is in its CPU seconds.
The API server's own work is on the same CPUs and in the wall clock of both; CPU seconds and memory are the reader's.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measure import Cost, interleaved

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab.kubernetes import domains, nodes, plane, programs, store

NAME = "kubernetes"
KUBECTL, OURS, SNAPSHOT = "kubectl get nodes -o json", "source kubernetes", "dra_driver_info"
AIMS = {OURS: 0.5, SNAPSHOT: 1.0}
ASK = """
import json, sys
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources
result = sources.observe("kubernetes", json.loads(sys.argv[1]), "2026-11-21T05:00:00Z")
assert all(row.identity for row in result.observations)
print(len(result.observations))
"""
# What each check of the role reads, ResourceSlices too, and evaluates.
CHECK = """
import json, sys
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import checks, preflight, values, versions
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
snapshot = Reader(login.of_kubeconfig({"context": "", "timeout": 30, **json.loads(sys.argv[1])}, "")).snapshot()
plan = preflight.Plan(values.build("compute_domains", {}, "v1"), versions.pinned("0.5.0"), "dra", "dra")
preflight.preflight(snapshot, {}, plan)
found = checks.check(snapshot, {}, plan)
assert "dra_node_outdated" not in {row["code"] for row in found}
print(len(snapshot["nodes"]))
"""


def table(racks: int, rounds: int, scratch: Path) -> str:
    """The comparison as a Markdown table; SystemExit if the two do not read the same nodes."""
    scratch.mkdir(parents=True, exist_ok=True)
    with plane.control_plane(components=plane.API_ONLY) as running:
        count = plane.add_racks(running, racks)
        # One at a time: what this process holds would count as the memory of those that it starts.
        slices = (domains.domain_slice(_with_uid(row), False) for row in nodes.of_fleet(racks, running.version))
        first = running.api().create(domains.SLICES, next(slices))
        store.put(running.name, (store.like(first, row) for row in slices), store.SLICES)
        request = json.dumps({"kubeconfig": str(running.kubeconfig)})
        commands = {
            KUBECTL: running.inside([programs.kubectl(), "get", "nodes", "-o", "json"]),
            OURS: running.inside([sys.executable, "-c", ASK, request]),
            SNAPSHOT: running.inside([sys.executable, "-c", CHECK, request]),
        }
        collections = next((Path(sys.prefix) / "lib").glob("python3*")) / "site-packages"
        environment = running.environment(ANSIBLE_COLLECTIONS_PATH=str(collections))
        costs = interleaved(commands, environment, scratch, rounds)
        server = running.components()["kube-apiserver"]["memory_mb"]
    size = (scratch / KUBECTL).stat().st_size
    read = {int((scratch / name).read_text()) for name in (OURS, SNAPSHOT)}
    if read != {count} or (scratch / KUBECTL).read_text().count('"nodeInfo"') != count:
        raise SystemExit(f"kubectl, the source and the snapshot do not all read {count} nodes")
    return _lines(costs, count, size, server)


def _with_uid(node: dict[str, Any]) -> dict[str, Any]:
    """Owners are not checked here."""
    return {**node, "metadata": {**node["metadata"], "uid": str(uuid.uuid4())}}


def _lines(costs: Mapping[str, Cost], count: int, size: int, server: int) -> str:
    floor = costs[KUBECTL]
    lines = [
        f"| {count:,} nodes, {size / 1e6:.0f} MB of JSON | wall s | CPU s | memory MB | wall ratio | CPU ratio "
        "| memory ratio | aim |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for name, cost in costs.items():
        ratios = [cost.wall / floor.wall, cost.cpu / floor.cpu, cost.memory / floor.memory]
        columns = [f"`{name}`", f"{cost.wall:.2f}", f"{cost.cpu:.2f}", f"{cost.memory:.0f}"]
        columns += [f"{ratio:.2f}" for ratio in ratios]
        lines.append(f"| {' | '.join(columns)} | {f'<= {AIMS[name]:g}' if name in AIMS else ''} |")
    return "\n".join([*lines, "", f"kube-apiserver {programs.DEFAULT_VERSION} itself held {server} MB after it."])
