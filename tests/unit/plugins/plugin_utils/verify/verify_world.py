# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of racks on which all layers agree, for tests to change: simulated GPUs, IMEX facts from their own reader,
Slurm and Kubernetes results in the form of their readers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import assembly, formats
from ansible_collections.rackscale.nvlink.plugins.module_utils.subsets import FACTS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report, verify
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ansible_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Controller, Evidence
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex import imex_fleet
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.dra import dra_cluster

NOW = "2026-11-21T05:00:00Z"
VERSION = imex_fleet.VERSION
Row = dict[str, Any]


class World:
    """Evidence of agreeing layers; every part is plain data that a test may change."""

    def __init__(self, racks: int = 2, trays: int = 4, **shape: Any) -> None:
        fleet = fleets.fleet(racks, NOW, trays_per_rack=trays, **shape)
        for row in fleet.values():
            row["driver_version"] = VERSION
        observed = [ansible_facts.from_facts(tray, row) for tray, row in fleet.items()]
        policy = Policy(imex_networks=("10.0.0.0/8",), expected_trays=trays)
        self.fabric: Fabric = place(None, None, observed, NOW, policy).fabric
        self.trays: dict[str, Row] = {tray: self._tray(tray, row) for tray, row in fleet.items()}
        self.unreachable: dict[str, str] = {}
        self.info: Row = self._slurm()
        self.tiers: Row | None = {"changed": False, "changes": [], "findings": []}
        self.kubernetes: Row = self._kubernetes()

    def _tray(self, tray: str, fabric: Row) -> Row:
        clique = self.fabric.trays[tray]["clique"]
        entries = [str(self.fabric.trays[name]["imex_address"]) for name in self.fabric.members[clique]]
        imex = self.imex(tray, entries)
        return {
            "gpu": fabric,
            "imex": imex,
            "channels": {**copy.deepcopy(imex["channels"]), "parameters": {}, "findings": []},
            "versions": {
                "driver": VERSION,
                "imex": VERSION,
                "imex_package": f"{VERSION}-1",
                "slurmd": "25.11.2",
                "kernel": "6.8.0",
                "findings": [],
            },
            "findings": [],
        }

    def imex(self, tray: str, entries: list[str], **changes: Any) -> Row:
        """The IMEX facts of a tray with this node list, assembled by the real code."""
        own = str(self.fabric.trays[tray]["imex_address"])
        read = imex_fleet.read(
            addresses=[own],
            nodes={"path": formats.NODES_FILE, "text": formats.render_nodes(entries), "changed_at": 900.0},
            answers={
                "state": imex_fleet.answer("READY\n"),
                "domain": imex_fleet.answer(imex_fleet.domain_json(entries)),
            },
        )
        found: Row = trust.with_findings(assembly.assemble({**read, **changes}))
        # Beside Slurm the cluster has the DRA driver, which would refuse a service of the tray's own.
        return {**found, "unit": {**found["unit"], "load": "masked", "active": "inactive"}}

    def report(self, tray: str, part: str, *codes: str) -> None:
        """Add findings to a part of a tray's facts."""
        notes = [finding(code, f"Something is wrong ({code}).") for code in codes]
        self.trays[tray][part]["findings"] += notes
        self.trays[tray]["findings"] += [dict(note, part=part) for note in notes]

    def entries(self, clique: str) -> list[str]:
        return [str(self.fabric.trays[tray]["imex_address"]) for tray in self.fabric.members[clique]]

    def _slurm(self) -> Row:
        blocks = [{"name": view.name, "nodes": list(view.trays)} for view in self.fabric.blocks()]
        return {
            "version": "25.11.2",
            "cluster": "alps",
            "plugin": "topology/block",
            "topology": {"name": "nvlink", "cluster_default": True, "block_sizes": [4], "blocks": blocks},
            "file": {"path": "/etc/slurm/topology.yaml", "exists": True, "running": True},
            "findings": [],
        }

    @property
    def blocks(self) -> list[Row]:
        """The running blocks."""
        found: list[Row] = self.info["topology"]["blocks"]
        return found

    def put(self, tray: str, *names: str) -> None:
        """Let slurmctld have the tray in these blocks alone."""
        for block in self.blocks:
            block["nodes"] = [*(node for node in block["nodes"] if node != tray), *([tray] * (block["name"] in names))]

    def says(self, code: str, message: str = "x", **more: Any) -> None:
        """Let the survey of slurmctld have one finding."""
        self.info["findings"] = [finding(code, message, **more)]

    def of_tiers(self, **more: Any) -> None:
        self.tiers = {"changed": True, "changes": [], "findings": [], **more}

    def connect(self, tray: str, others: Iterable[str], connection: str, both: bool = False) -> None:
        """Let other trays report this state of their connection to a tray; both: the tray of theirs, too."""
        pairs = [(other, tray) for other in others] + [(tray, other) for other in others if both]
        for one, other in pairs:
            for peer in self.trays[one]["imex"]["peers"]:
                if peer["host"] == str(self.fabric.trays[other]["imex_address"]):
                    peer["connection"] = connection

    def _kubernetes(self) -> Row:
        nodes, slices = [], []
        for tray, row in self.fabric.trays.items():
            labels = {"nvidia.com/gpu.clique": self.fabric.clique_text(row["clique"])}
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            nodes.append({"metadata": {"name": tray, "labels": labels}, "status": ready})
            for driver, devices in (("compute-domain.nvidia.com", 2), ("gpu.nvidia.com", len(row["gpu_uuids"]))):
                spec = {"driver": driver, "nodeName": tray, "devices": [{"name": str(at)} for at in range(devices)]}
                slices.append({"metadata": {"name": f"{tray}-{driver}"}, "spec": spec})
        clique = next(iter(self.fabric.cliques))
        daemons = [
            {"nodeName": tray, "cliqueID": self.fabric.clique_text(clique), "status": "Ready"}
            for tray in self.fabric.members[clique]
        ]
        return {
            **dra_cluster.installed(),
            "groups": {"resource.k8s.io": ["v1"], "resource.nvidia.com": ["v1beta1"]},
            "nodes": nodes,
            "slices": slices,
            "daemon_sets": [dra_cluster.daemon_set(count=len(nodes))],
            "compute_domain_cliques": [{"metadata": {}, "daemons": daemons}],
            "pods": [],
        }

    def node(self, tray: str) -> Row:
        return next(node for node in self.kubernetes["nodes"] if node["metadata"]["name"] == tray)

    def labels(self, tray: str) -> Row:
        """The labels of a tray's node."""
        found: Row = self.node(tray)["metadata"]["labels"]
        return found

    @property
    def daemons(self) -> list[Row]:
        """The daemons of the one ComputeDomainClique."""
        found: list[Row] = self.kubernetes["compute_domain_cliques"][0]["daemons"]
        return found

    def without_slices(self, node: str, driver: str = "") -> None:
        """Of this driver, else of any."""
        slices = self.kubernetes["slices"]
        names = (f"{node}-{driver}",) if driver else (f"{node}-gpu.nvidia.com", f"{node}-compute-domain.nvidia.com")
        self.kubernetes["slices"] = [row for row in slices if row["metadata"]["name"] not in names]

    def versions(self, trays: Iterable[str], **versions: str) -> None:
        for tray in trays:
            self.trays[tray]["versions"].update(versions)

    def gpus(self, tray: str) -> list[Row]:
        return list(self.trays[tray]["gpu"]["gpus"])

    def identity(self, clique: str) -> tuple[str, int]:
        return self.fabric.cluster_uuid(clique), self.fabric.cliques[clique]["clique_id"]

    def attach(self, trays: Iterable[str], uuid: str | None, clique_id: int | None, labelled: bool = False) -> None:
        """Let all GPUs of the trays report this cluster UUID and clique ID; labelled: the node label follows."""
        for tray in trays:
            fabric = self.trays[tray]["gpu"]
            for gpu in fabric["gpus"]:
                gpu["fabric"].update(cluster_uuid=uuid, clique_id=clique_id)
            fabric.update(cluster_uuid=uuid, clique_id=clique_id, attached=uuid is not None)
            fabric["clique"] = f"{uuid}.{clique_id}" if uuid else None
            if labelled:
                self.labels(tray)["nvidia.com/gpu.clique"] = f"{uuid}.{clique_id}"

    def answer(self, tray: str) -> Row:
        """What the task of fabric_facts returned for a tray."""
        parts = self.trays[tray]
        facts = {name: parts.get(subset) for subset, name in FACTS.items()}
        return {"ansible_facts": facts, "findings": parts["findings"]}

    def reports(self) -> dict[str, tray_report.TrayReport]:
        silent = {tray: {"unreachable": True, "msg": why} for tray, why in self.unreachable.items()}
        answers = {**{tray: self.answer(tray) for tray in self.trays}, **silent}
        return {tray: tray_report.read(tray, answer) for tray, answer in answers.items()}

    def evidence(self, **changes: Any) -> Evidence:
        made = Evidence(
            self.fabric,
            "fabric.json",
            reports=self.reports(),
            slurm=[Controller("ctl", self.info, self.tiers)],
            kubernetes=self.kubernetes,
        )
        return replace(made, **changes)

    def verdict(self, **changes: Any) -> Row:
        return verify.verify(self.evidence(**changes), NOW)


Change = Callable[[World], object]
