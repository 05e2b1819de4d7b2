# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the progress of a rollout on the controller; the module of the same name documents it."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.modules.rollout import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import clique as imex_clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.progress import Unfinished, WaveResult

PHASE = "rollout"
Result = dict[str, Any]


class ActionModule(ActionBase):
    """Connects to no host, so that a result can be recorded for an unreachable tray."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Result:
        return {"changed": False, "changes": [], "findings": [], **self._run(tmp, task_vars)}

    def _run(self, tmp: str | None, task_vars: dict[str, Any] | None) -> Result:
        super().run(tmp, task_vars)
        self._task.args = {option: value for option, value in self._task.args.items() if value is not None}
        _validation, self.options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        variables = task_vars or {}
        self.tray = str(variables["inventory_hostname"])
        self.folder = str(constants.DEFAULT_LOCAL_TMP)
        try:
            self.rollout = progress.check_name(self.options["rollout"])
            if self.options["state"] == "reported":
                return self._reported()
            self.hosts: list[str] = list(variables.get("ansible_play_hosts_all") or [self.tray])
            play = self._task.play
            self.wave = imex_clique.batch(self.hosts, play.serial or [], self.tray)
            self.path = self._loader.path_dwim(self.options["fabric_file"] or "")
            return getattr(self, f"_{self.options['state']}")()
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None

    # --- States of each tray.

    def _observed(self) -> Result:
        if self.options["unreachable"]:
            self._record({"state": progress.SKIPPED})
            if all(self._rows().get(tray, {}).get("state") == progress.SKIPPED for tray in self.wave):
                # No tray remains to finish the wave, so the last one recorded does.
                self._finished()
            return {"changed": False}
        self._record({"state": "observed", "due": self.options["due"]})
        return {"changed": False}

    def _passed(self) -> Result:
        self._record({"state": "passed", "due": True})
        return {"changed": False}

    def _failed(self) -> Result:
        reason = " ".join(self.options["reason"].split())[:500] or "a task failed"
        self._record({"state": progress.FAILED, "due": True, "reason": reason})
        return {"changed": False, "msg": f"{self.tray}: {reason}"}

    def _record(self, row: dict[str, Any]) -> None:
        run_store.write_row(self.folder, self.rollout, PHASE, self.tray, row)

    # --- States of the wave.

    def _started(self) -> Result:
        fabric = fabric_file.load(self.path)
        cliques = self._cliques(fabric)
        first = self.wave[0] == self.hosts[0]
        record = self._new_record(fabric) if first else self._read_record()
        outcome: Result = {"changed": False, "cliques": list(cliques), "progress_file": self._file(), "stop": False}
        if progress.must_stop(record["failed"], record["canary_failed"], self.options["stop_after"]):
            failed = "the canary" if record["canary_failed"] else count(record["failed"], "clique")
            return {**outcome, "stop": True, "msg": f"No further wave starts: {failed} failed."}
        for tray in self.wave:
            run_store.delete_rows(self.folder, self.rollout, [PHASE], tray)
        for name in cliques:
            record["cliques"][name] = {"state": progress.STARTED, "trays": {}}
        self._write_record(record)
        return {**outcome, "msg": f"Wave of {summarize(cliques)} with {count(len(self.wave), 'tray')}."}

    def _selected(self) -> Result:
        fabric, rows = fabric_file.load(self.path), self._rows()
        unfinished = self._read_record()["unfinished"]
        due = [
            tray
            for name, trays in self._cliques(fabric).items()
            if name in unfinished or any(rows.get(tray, {}).get("due") for tray in trays)
            for tray in trays
            if rows.get(tray, {}).get("state") == "observed"
        ]
        return {"changed": False, "trays": due, "nodes": [fabric.trays[tray]["slurm_node"] for tray in due]}

    def _evaluated(self) -> Result:
        fabric = fabric_file.load(self.path)
        outcome = self._outcome(fabric)
        return {
            "changed": False,
            "trays": list(outcome.passed),
            "nodes": [fabric.trays[tray]["slurm_node"] for tray in outcome.passed],
        }

    def _finished(self) -> Result:
        fabric = fabric_file.load(self.path)
        outcome, record = self._outcome(fabric), self._read_record()
        for name in self._cliques(fabric):
            record["cliques"].pop(name, None)
        for name, clique in outcome.unfinished.items():
            record["cliques"][name] = {"state": clique.state, "trays": dict(clique.trays)}
        failed = [name for name, clique in outcome.unfinished.items() if clique.state == progress.FAILED]
        record["failed"] += len(failed)
        record["canary_failed"] |= bool(failed) and self.wave[0] == self.hosts[0]
        self._write_record(record)
        if outcome.unfinished:
            message = progress.summary(outcome.unfinished, self._file(), self.rollout)
            return {"changed": False, "unfinished": list(outcome.unfinished), "warnings": [message], "msg": message}
        return {"changed": False, "unfinished": [], "msg": f"Finished {summarize(self._cliques(fabric))}."}

    def _reported(self) -> Result:
        """At the end of the run: fails if a clique is unfinished."""
        record = self._read_record()
        unfinished = {name: Unfinished(**row) for name, row in record["cliques"].items()}
        if unfinished:
            message = progress.summary(unfinished, record["progress_file"], self.rollout)
            return {"changed": False, "failed": True, "msg": message}
        return {"changed": False, "msg": f"The rollout {self.rollout} is complete."}

    # --- Helpers.

    def _cliques(self, fabric: Fabric, trays: list[str] | None = None) -> dict[str, list[str]]:
        """Clique -> its trays, of the wave or of these trays."""
        found: dict[str, list[str]] = {}
        for tray in self.wave if trays is None else trays:
            if tray in fabric.trays:
                found.setdefault(fabric.trays[tray]["clique"], []).append(tray)
        return found

    def _rows(self) -> dict[str, dict[str, Any]]:
        return run_store.read_rows(self.folder, self.rollout, PHASE, self.wave)

    def _outcome(self, fabric: Fabric) -> WaveResult:
        rows = self._rows()
        failed_tests: Mapping[str, str] = self.options["failed_tests"]
        for tray in self.wave:
            node = fabric.trays[tray]["slurm_node"] if tray in fabric.trays else tray
            if node in failed_tests and rows.get(tray, {}).get("state") == "passed":
                rows[tray] = {"state": progress.FAILED, "reason": failed_tests[node]}
        return progress.evaluate(self._cliques(fabric), rows)

    def _file(self) -> str:
        given = self.options["progress_file"]
        return self._loader.path_dwim(given) if given else progress.default_path(self.path, self.rollout)

    def _now(self) -> str:
        return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # The record of this run: unfinished and failed cliques. The progress file has the former for later runs.

    def _record_path(self) -> str:
        return os.path.join(self.folder, f"nvlink-rollout-{self.rollout}.json")

    def _read_record(self) -> dict[str, Any]:
        try:
            with open(self._record_path(), encoding="utf-8") as file:
                record: dict[str, Any] = json.load(file)
                return record
        except FileNotFoundError:
            return {"cliques": {}, "unfinished": [], "failed": 0, "canary_failed": False, "progress_file": ""}

    def _new_record(self, fabric: Fabric) -> dict[str, Any]:
        """All cliques of the run are pending; unfinished ones of an earlier run that are not in this one stay."""
        path = self._file()
        earlier = progress.read(path) if os.path.exists(path) else {}
        cliques = {name: row for name, row in earlier.items() if name in fabric.cliques}
        # A clique that a killed run had started may look complete on its trays, and is not.
        unfinished = [name for name, row in cliques.items() if row.state in (progress.STARTED, progress.FAILED)]
        for name in self._cliques(fabric, self.hosts):
            cliques[name] = Unfinished(progress.PENDING)
        rows = {name: {"state": row.state, "trays": dict(row.trays)} for name, row in cliques.items()}
        return {
            "cliques": rows,
            "unfinished": unfinished,
            "failed": 0,
            "canary_failed": False,
            "progress_file": path,
        }

    def _write_record(self, record: dict[str, Any]) -> None:
        storage.write_atomic(self._record_path(), json.dumps(record).encode(), durable=False)
        if not self._task.check_mode:
            unfinished = {name: Unfinished(**row) for name, row in record["cliques"].items()}
            progress.write(self._file(), self.rollout, unfinished, self._now())
