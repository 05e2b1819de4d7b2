# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabrics and states to render, built small and legible."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from hypothesis import strategies as st

GRACE = {
    "CPUs": 144,
    "Boards": 1,
    "SocketsPerBoard": 2,
    "CoresPerSocket": 72,
    "ThreadsPerCore": 1,
    "RealMemory": 877568,
}
"""What slurmd -C reports of a GB200 tray."""


FAILURE = {"code": "slurm_blocks_differ", "severity": "error", "layer": "slurm", "tray": "r01t02", "clique": "r01"}
"""A failure of a verdict."""


LINKS = {
    "gpus": [
        {
            "uuid": "A",
            "index": 0,
            "link_count": 18,
            "unknown_counters": ["recoveries"],
            "counters": [{"link": 14, "recoveries": 3}],
            "links": [{"state": "active", "speed": 53125, "links": [14]}],
        }
    ],
    "xids": [
        {"xid": 79, "last_at": 1.0, "pci_bus_id": "0008:01:00", "fatal": True, "boot": True, "action": None}
        | {"gpu": 0, "link": None}
    ],
}
"""The facts nvlink_links of a tray: one GPU, and one Xid of it."""


_OPEN = Line(
    incident="r02t02-20261121T040000Z",
    at="2026-11-21T04:00:00Z",
    step="open",
    state="done",
    subject="r02t02",
    code="gpu_lost",
    detail="{}",
)
REPAIRS: tuple[Line, ...] = (_OPEN, {**_OPEN, "step": "drain", "detail": ""})
"""The ledger of a tray that is drained."""


class HostVars(dict[str, Any]):
    """As Ansible's own: raw_get() does not template."""

    raw_get = dict.__getitem__


def fabric(racks: int = 2, trays: int = 18, split: tuple[int, ...] = (2,), first_index: int = 0) -> Fabric:
    """Racks r01, r02, ...; a split one has two cliques of half its trays, named with a and b."""
    domains: dict[str, Any] = {}
    cliques: dict[str, Any] = {}
    placed: dict[str, Any] = {}
    for rack in range(1, racks + 1):
        domain = f"r{rack:02d}"
        domains[domain] = {
            "cluster_uuid": f"{rack:08x}-1111-4222-8333-444444444444",
            "chassis_serials": [f"1820925{rack:06d}"],
            "expected_trays": trays,
        }
        names = [f"{domain}a", f"{domain}b"] if rack in split else [domain]
        for number, name in enumerate(names):
            cliques[name] = {
                "domain": domain,
                "clique_id": 32766 if len(names) == 1 else number + 1,
                "block": {"name": name, "position": len(cliques)},
            }
        for index in range(trays):
            name = f"{domain}t{index + 1:02d}"
            placed[name] = {
                "clique": names[index * len(names) // trays],
                "tray_index": index + first_index,
                "gpu_uuids": [f"GPU-{rack:04d}-{index:04d}-{gpu}" for gpu in range(4)],
                "imex_address": f"10.0.{rack}.{index + 1}",
                "slurm_node": name,
                "kubernetes_node": name,
                "why": "placed 2026-11-21: attached",
            }
    return Fabric(domains, cliques, placed, [])


def state(of: Fabric, **changes: dict[str, Any]) -> State:
    """Every tray present and healthy, except for ``changes`` of trays by name."""
    trays: dict[str, Any] = {name: _observed() for name in of.trays}
    for name, change in changes.items():
        trays[name] = {**trays.get(name, _observed()), **change}
    return State(trays, [], "2026-11-21T04:00:00Z")


def _observed() -> dict[str, Any]:
    return {
        "state": "present",
        "health": "healthy",
        "observed_at": "2026-11-21T04:00:00Z",
        "source": "ansible_facts",
        "driver_version": "580.95.05",
        "findings": [],
    }


def verdict(*failures: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What verify writes."""
    layers = {"hardware": "checked", "slurm": "checked", "kubernetes": "skipped: no cluster"}
    fixed = {"ok": not failures, "checked_at": "2026-11-21T05:00:00Z", "layers": layers}
    return {**fixed, "failures": list(failures), **more}


def replace_one(data: st.DataObject, document: Any, value: Any) -> None:
    """Replace a value that is drawn, at any depth of a JSON document, with this one."""
    while True:
        key = data.draw(st.sampled_from(sorted(document) if isinstance(document, dict) else range(len(document))))
        if not isinstance(document[key], (dict, list)) or not document[key] or data.draw(st.booleans()):
            document[key] = value
            return
        document = document[key]
