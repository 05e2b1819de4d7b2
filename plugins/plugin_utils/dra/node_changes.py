# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Enable the DRA driver's plugin on nodes, wave by wave: the phases of dra_driver_phase that change nodes."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    DraError,
    arguments,
    checks,
    device_plugins,
    node_waves,
    preflight,
    versions,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import DEADLINE, Cluster
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import Object

PHASES = ("enable_nodes", "adopt_nodes", "disable_nodes")
PAUSE = 2.0
"""Seconds between two snapshots."""
LABEL, UNLABEL, DELETE_POD, REMOVE_DEVICE_PLUGIN = "label", "unlabel", "delete_pod", "remove_device_plugin"


class NodeChanges:
    """Labels nodes, deletes old pods, waits. Nodes on which the plugin does not become ready are disabled again.

    options: of dra_driver_phase. check, diff: the modes of the task.
    """

    def __init__(self, options: Arguments, hostvars: Any, check: bool, diff: bool) -> None:
        self.options, self.check, self.diff = {**options, "waves": True}, check, diff
        self.trays, self.findings = arguments.trays(options["trays"], hostvars)
        self.enabled: set[str] = set()

    def run(self) -> Result:
        """The result of the task. NvlinkError, but for enable_nodes, which returns it as the failure of each tray."""
        phases = {"enable_nodes": self._enable, "adopt_nodes": self._adopt, "disable_nodes": self._disable}
        phase = self.options["phase"]
        try:
            self.login = login.of_kubeconfig(self.options, "dra_driver")
            return phases[phase]()
        except NvlinkError as error:
            if phase != "enable_nodes":
                raise
            # One host runs the task for the whole wave, so every tray gets the reason that the rollout records.
            return self._outcome(failures=dict.fromkeys(self.trays, f"{str(error).rstrip('.')}."))

    def _snapshot(self) -> tuple[preflight.Snapshot, preflight.Plan]:
        """A snapshot and its plan, by a new client, since a client has one deadline."""
        snapshot = Reader(self.login).snapshot()
        return snapshot, arguments.plan(self.options, versions.pinned(self.options["chart_version"]), snapshot)

    def _rollout(self) -> node_waves.PluginRollout:
        return node_waves.PluginRollout(Cluster("dra_driver", replace(self.login, deadline=DEADLINE)))

    # --- A wave.

    def _enable(self) -> Result:
        ends = time.monotonic() + self.options["wait"]
        rollout = self._rollout()
        snapshot, plan, plugin = self._installed()
        while (revision := rollout.revision(plugin)) is None and time.monotonic() + PAUSE < ends:
            time.sleep(PAUSE)
            snapshot, plan, plugin = self._installed()
        names = {tray.node for tray in self.trays.values()}
        nodes = _selected(snapshot["nodes"], names)
        disabled = [node for node in nodes if not node_waves.is_enabled(node)]
        old = {
            name: pod
            for name, pod in rollout.pods(plugin).items()
            if name in names and revision and node_waves.revision_of(pod) != revision
        }
        moved = node_waves.with_device_plugin(snapshot, names, plan)
        if self.check:
            return self._outcome(_names(disabled), sorted(old), moved=moved)
        # A node with a device plugin is as before, and is not enabled.
        blocked = self._remove_device_plugins(_selected(nodes, moved))
        moved -= blocked.keys()
        disabled = _selected(disabled, names - blocked.keys())
        failures = {name: blocked[tray.node] for name, tray in self.trays.items() if tray.node in blocked}
        self.trays = {name: tray for name, tray in self.trays.items() if tray.node not in blocked}
        try:
            rollout = self._rollout()
            rollout.enable(disabled, self.enabled, moved)
            rollout.delete_pods([pod for name, pod in old.items() if name not in blocked])
            unready = self._wait(time.monotonic() + self.options["wait"])
        except BaseException:
            # On any interruption, nodes that were not checked are disabled again.
            rollout.disable(_selected(disabled, self.enabled | moved))
            raise
        failed = {self.trays[name].node for name in unready}
        reverted = _selected(disabled, failed)
        rollout.disable(reverted)
        done = _selected(nodes, names - blocked.keys() - failed)
        rollout.uncordon(
            [node for node in done if preflight.name_of(node) in moved or node_waves.is_left_cordoned(node)]
        )
        back = set(_names(reverted))
        for name, reason in unready.items():
            node = self.trays[name].node
            then = "the node is disabled again" if node in back else "the node stays cordoned" if node in moved else ""
            failures[name] = f"{reason.rstrip('.')}; {then}." if then else reason
        return self._outcome(
            _names(_selected(disabled, names - back)), sorted(old.keys() - blocked.keys()), failures, moved=moved - back
        )

    def _remove_device_plugins(self, nodes: Sequence[Object]) -> dict[str, str]:
        """Node -> the reason why a device plugin still allocates its GPUs; such a node is restored."""
        names = _names(nodes)
        ends = time.monotonic() + self.options["wait"] + node_waves.GRACE
        reasons: dict[str, str] = {}
        try:
            self._rollout().reserve(nodes)
            while nodes:
                snapshot, _plan = self._snapshot()
                reasons = node_waves.why_not_removed(snapshot, names, self._rollout().pods_of(names))
                if not reasons or time.monotonic() + PAUSE > ends:
                    break
                time.sleep(PAUSE)
        except BaseException:
            self._rollout().restore(nodes)
            raise
        self._rollout().restore(_selected(nodes, reasons))
        return {name: f"{reason.rstrip('.')}; the node is as before." for name, reason in reasons.items()}

    def _installed(self) -> tuple[preflight.Snapshot, preflight.Plan, Object]:
        """(snapshot, plan, DaemonSet); DraError where waves are not possible."""
        snapshot, plan = self._snapshot()
        plugin = checks.plugin(snapshot, plan)
        remedy = "install the driver with waves first"
        if plugin is None:
            raise DraError(f"The DaemonSet of the driver's plugin is missing in namespace {plan.namespace}; {remedy}")
        if not node_waves.is_restricted(plugin):
            raise DraError(f"The DaemonSet {preflight.name_of(plugin)} runs on all nodes at once; {remedy}")
        if device_plugins.by_dra(plan) and not device_plugins.is_gpu_plugin(plugin):
            # Otherwise no program would allocate the GPUs of the wave's nodes.
            raise DraError(f"The DaemonSet {preflight.name_of(plugin)} allocates no GPUs; {remedy} and this shape")
        return snapshot, plan, plugin

    def _wait(self, ends: float) -> dict[str, str]:
        """Tray -> the reason why it is not done, once all are done or the time is over."""
        while True:
            rollout = self._rollout()
            snapshot, plan, plugin = self._installed()
            failures = node_waves.evaluate(snapshot, self.trays, plan, rollout.pods(plugin), rollout.revision(plugin))
            if not failures or time.monotonic() + PAUSE > ends:
                return failures
            time.sleep(PAUSE)

    # --- Before the first wave and after the last.

    def _adopt(self) -> Result:
        snapshot, plan = self._snapshot()
        plugin = checks.plugin(snapshot, plan)
        if plugin is None or node_waves.is_restricted(plugin):
            return self._outcome()
        rollout = self._rollout()
        running = rollout.pods(plugin)
        nodes = [
            node for node in snapshot["nodes"] if preflight.name_of(node) in running and not node_waves.is_enabled(node)
        ]
        if not self.check:
            rollout.enable(nodes, self.enabled)
        return self._outcome(_names(nodes))

    def _disable(self) -> Result:
        rollout = self._rollout()
        nodes = rollout.labelled_nodes()
        if not self.check:
            rollout.disable(nodes)
        return self._outcome(unlabelled=_names(nodes))

    def _outcome(
        self,
        labelled: Sequence[str] = (),
        replaced: Sequence[str] = (),
        failures: Mapping[str, str] | None = None,
        unlabelled: Sequence[str] = (),
        moved: Collection[str] = (),
    ) -> Result:
        rows = (
            (REMOVE_DEVICE_PLUGIN, sorted(moved)),
            (LABEL, labelled),
            (UNLABEL, unlabelled),
            (DELETE_POD, replaced),
        )
        changes = [{"action": action, "node": node} for action, nodes in rows for node in nodes]
        findings = list(self.findings)
        result = {"changed": bool(changes), "changes": changes, "findings": findings, "failures": dict(failures or {})}
        return {**result, **self._labels(unlabelled, labelled)}

    def _labels(self, before: Sequence[str], after: Sequence[str]) -> Result:
        if not self.diff or before == after:
            return {}
        sides = {"before": before, "after": after}
        texts = {
            key: "".join(f"{name}: {node_waves.LABEL}={node_waves.VALUE}\n" for name in names)
            for key, names in sides.items()
        }
        return {"diff": {**texts, "before_header": "labels of nodes", "after_header": "labels of nodes"}}


def _selected(nodes: Sequence[Object], names: Collection[str]) -> list[Object]:
    return [node for node in nodes if preflight.name_of(node) in names]


def _names(nodes: Sequence[Object]) -> list[str]:
    return sorted(preflight.name_of(node) for node in nodes)
