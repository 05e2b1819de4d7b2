# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets the DRA driver's plugin onto nodes, from the controller; the module of the same name documents it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    DraError,
    arguments,
    checks,
    preflight,
    versions,
    waves,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import kubeconfig
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import Cluster

PAUSE = 2.0
"""Seconds between two looks."""
Result = dict[str, Any]


class ActionModule(ActionBase):
    """Labels nodes, deletes old pods, waits. What did not come up is taken back."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        _spec, self.options = self.validate_argument_spec(
            argument_spec={"state": {"type": "str", "choices": ["present", "kept", "absent"], "required": True}}
            | arguments.SPEC
        )
        self.options["waves"] = True
        self.trays = arguments.trays(self.options["trays"], (task_vars or {}).get("hostvars") or {})
        self.opened: set[str] = set()
        try:
            result.update(getattr(self, f"_{self.options['state']}")())
        except NvlinkError as error:
            sentence = f"{str(error).rstrip('.')}."
            if self.options["state"] != "present":
                raise AnsibleActionFail(sentence) from None
            # One speaks for the whole wave here, so it says of each tray what the rollout is to note.
            result.update(self._outcome(refused=dict.fromkeys(self.trays, sentence)))
        return result

    def _look(self) -> tuple[preflight.Seen, preflight.Plan]:
        """A snapshot; each look has the whole deadline of a client."""
        seen = Reader(*kubeconfig.client_config(arguments.connection(self.options))).snapshot()
        return seen, arguments.plan(self.options, versions.pinned(self.options["chart_version"]), seen)

    def _gate(self) -> waves.Gate:
        return waves.Gate(Cluster(arguments.way(self.options), "dra_driver"))

    # --- A wave.

    def _present(self) -> Result:
        ends = time.monotonic() + self.options["wait"]
        gate = self._gate()
        seen, _plan, plugin = self._installed()
        while (revision := gate.revision(plugin)) is None and time.monotonic() + PAUSE < ends:
            time.sleep(PAUSE)
            seen, _plan, plugin = self._installed()
        names = {tray.node for tray in self.trays.values()}
        nodes = [node for node in seen["nodes"] if preflight.name_of(node) in names]
        closed = [node for node in nodes if not waves.is_let_in(node)]
        old = [
            pod
            for name, pod in gate.pods(plugin).items()
            if name in names and revision and waves.revision_of(pod) != revision
        ]
        labelled = sorted(preflight.name_of(node) for node in closed)
        replaced = sorted(str(pod["spec"]["nodeName"]) for pod in old)
        if self._task.check_mode:
            return self._outcome(labelled, replaced)
        try:
            gate.open(closed, self.opened)
            gate.delete(old)
            refused = self._wait(ends)
        except BaseException:
            # Whatever ends this, also a person: what nobody has judged is held back again.
            gate.close([node for node in closed if preflight.name_of(node) in self.opened])
            raise
        back = [node for node in closed if any(self.trays[name].node == preflight.name_of(node) for name in refused)]
        gate.close(back)
        held = {preflight.name_of(node) for node in back}
        told = {
            name: f"{why.rstrip('.')}; the node is held back again." if self.trays[name].node in held else why
            for name, why in refused.items()
        }
        return self._outcome([name for name in labelled if name not in held], replaced, told)

    def _installed(self) -> tuple[preflight.Seen, preflight.Plan, Mapping[str, Any]]:
        """The look, with the DaemonSet; DraError where no wave can be."""
        seen, plan = self._look()
        plugin = checks.plugin(seen, plan)
        remedy = "run the playbook kubernetes with -e dra_driver_waves=true first"
        if plugin is None:
            raise DraError(f"There is no DaemonSet of the driver's plugin in namespace {plan.namespace}; {remedy}")
        if not waves.holds_back(plugin):
            raise DraError(f"The DaemonSet {preflight.name_of(plugin)} runs on all nodes at once; {remedy}")
        return seen, plan, plugin

    def _wait(self, ends: float) -> dict[str, str]:
        """Tray -> why it is not done, when all are or the time is over."""
        while True:
            gate = self._gate()
            seen, plan, plugin = self._installed()
            refused = waves.judge(seen, self.trays, plan, gate.pods(plugin), gate.revision(plugin))
            if not refused or time.monotonic() + PAUSE > ends:
                return refused
            time.sleep(PAUSE)

    # --- Before the first wave and after the last.

    def _kept(self) -> Result:
        """A plugin that runs already is not to go only because waves begin."""
        seen, plan = self._look()
        plugin = checks.plugin(seen, plan)
        if plugin is None or waves.holds_back(plugin):
            return self._outcome()
        gate = self._gate()
        there = gate.pods(plugin)
        nodes = [node for node in seen["nodes"] if preflight.name_of(node) in there and not waves.is_let_in(node)]
        if not self._task.check_mode:
            gate.open(nodes, self.opened)
        return self._outcome(sorted(preflight.name_of(node) for node in nodes))

    def _absent(self) -> Result:
        gate = self._gate()
        nodes = gate.ours()
        if not self._task.check_mode:
            gate.close(nodes)
        names = sorted(preflight.name_of(node) for node in nodes)
        return {**self._outcome(), "changed": bool(names), **self._diff(names, [])}

    def _outcome(
        self, labelled: list[str] | None = None, replaced: list[str] | None = None, refused: Any = None
    ) -> Result:
        labelled, replaced = labelled or [], replaced or []
        rest = {"labelled": labelled, "replaced": replaced, "refused": refused or {}}
        return {"changed": bool(labelled or replaced), **rest, **self._diff([], labelled)}

    def _diff(self, before: list[str], after: list[str]) -> Result:
        if not self._task.diff or before == after:
            return {}
        rows = {"before": before, "after": after}
        told = {key: "".join(f"{name}: {waves.LABEL}={waves.VALUE}\n" for name in names) for key, names in rows.items()}
        return {"diff": {**told, "before_header": "labels of nodes", "after_header": "labels of nodes"}}
