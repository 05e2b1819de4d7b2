# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the book of a rollout on the controller; the module of the same name documents it."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.modules.rollout import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import clique as imex_clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.progress import Left, Verdict

PHASE = "rollout"
Result = dict[str, Any]


class ActionModule(ActionBase):
    """Touches no host, so that a tray that has died can be spoken of."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Result:
        super().run(tmp, task_vars)
        self._task.args = {option: value for option, value in self._task.args.items() if value is not None}
        _validation, self.options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        variables = task_vars or {}
        self.tray = str(variables["inventory_hostname"])
        self.folder = str(constants.DEFAULT_LOCAL_TMP)
        try:
            self.rollout = progress.check_name(self.options["rollout"])
            if self.options["state"] == "told":
                return self._told()
            self.hosts: list[str] = list(variables.get("ansible_play_hosts_all") or [self.tray])
            play = self._task.play
            self.wave = imex_clique.batch(self.hosts, play.serial or [], self.tray)
            self.path = self._loader.path_dwim(self.options["fabric_file"] or "")
            return getattr(self, f"_{self.options['state']}")()
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None

    # --- What every tray says for itself.

    def _looked(self) -> Result:
        if self.options["absent"]:
            self._say({"state": progress.ABSENT})
            if all(self._rows().get(tray, {}).get("state") == progress.ABSENT for tray in self.wave):
                # Nobody is left to end the wave, so the last who is noted does.
                self._ended()
            return {"changed": False}
        self._say({"state": "looked", "due": self.options["due"]})
        return {"changed": False}

    def _passed(self) -> Result:
        self._say({"state": "passed", "due": True})
        return {"changed": False}

    def _failed(self) -> Result:
        why = " ".join(self.options["why"].split())[:500] or "a task failed"
        self._say({"state": progress.FAILED, "due": True, "why": why})
        return {"changed": False, "msg": f"{self.tray}: {why}"}

    def _say(self, row: dict[str, Any]) -> None:
        run_store.put(self.folder, self.rollout, PHASE, self.tray, row)

    # --- What one speaks for the wave.

    def _begun(self) -> Result:
        fabric = fabric_file.load(self.path)
        cliques = self._cliques(fabric)
        first = self.wave[0] == self.hosts[0]
        book = self._new_book(fabric) if first else self._book()
        outcome: Result = {"changed": False, "cliques": list(cliques), "file": self._file(), "stop": False}
        if progress.stops(book["failed"], book["canary_failed"], self.options["stop_after"]):
            which = "the canary" if book["canary_failed"] else f"{book['failed']} cliques"
            return {**outcome, "stop": True, "msg": f"No further wave begins, since {which} failed."}
        for tray in self.wave:
            run_store.forget(self.folder, self.rollout, [PHASE], tray)
        for name in cliques:
            book["left"][name] = {"state": progress.BEGUN, "trays": {}}
        self._keep(book)
        return {**outcome, "msg": f"Wave of {', '.join(cliques)} with {len(self.wave)} trays."}

    def _weighed(self) -> Result:
        fabric, rows = fabric_file.load(self.path), self._rows()
        unfinished = self._book()["unfinished"]
        due = [
            tray
            for name, trays in self._cliques(fabric).items()
            if name in unfinished or any(rows.get(tray, {}).get("due") for tray in trays)
            for tray in trays
            if rows.get(tray, {}).get("state") == "looked"
        ]
        return {"changed": False, "trays": due, "nodes": [fabric.trays[tray]["slurm_node"] for tray in due]}

    def _judged(self) -> Result:
        fabric = fabric_file.load(self.path)
        verdict = self._verdict(fabric)
        return {
            "changed": False,
            "trays": list(verdict.passed),
            "nodes": [fabric.trays[tray]["slurm_node"] for tray in verdict.passed],
        }

    def _ended(self) -> Result:
        fabric = fabric_file.load(self.path)
        verdict, book = self._verdict(fabric), self._book()
        for name in self._cliques(fabric):
            book["left"].pop(name, None)
        for name, left in verdict.left.items():
            book["left"][name] = {"state": left.state, "trays": dict(left.trays)}
        failed = [name for name, left in verdict.left.items() if left.state == progress.FAILED]
        book["failed"] += len(failed)
        book["canary_failed"] |= bool(failed) and self.wave[0] == self.hosts[0]
        self._keep(book)
        if verdict.left:
            told = progress.told(verdict.left, self._file(), self.rollout)
            return {"changed": False, "left": list(verdict.left), "warnings": [told], "msg": told}
        return {"changed": False, "left": [], "msg": f"{', '.join(self._cliques(fabric))} done."}

    def _told(self) -> Result:
        """At the end of the run: it fails where anything is left."""
        left = {name: Left(**row) for name, row in self._book()["left"].items()}
        if left:
            path = self._book()["file"]
            return {"changed": False, "failed": True, "msg": progress.told(left, path, self.rollout)}
        return {"changed": False, "msg": f"The rollout {self.rollout} is done."}

    # --- HostChanges.

    def _cliques(self, fabric: Fabric, trays: list[str] | None = None) -> dict[str, list[str]]:
        """The cliques of the wave, each with its trays of the run."""
        found: dict[str, list[str]] = {}
        for tray in self.wave if trays is None else trays:
            if tray in fabric.trays:
                found.setdefault(fabric.trays[tray]["clique"], []).append(tray)
        return found

    def _rows(self) -> dict[str, dict[str, Any]]:
        return run_store.rows(self.folder, self.rollout, PHASE, self.wave)

    def _verdict(self, fabric: Fabric) -> Verdict:
        rows = self._rows()
        refused: Mapping[str, str] = self.options["refused"]
        for tray in self.wave:
            node = fabric.trays[tray]["slurm_node"] if tray in fabric.trays else tray
            if node in refused and rows.get(tray, {}).get("state") == "passed":
                rows[tray] = {"state": progress.FAILED, "why": refused[node]}
        return progress.judge(self._cliques(fabric), rows)

    def _file(self) -> str:
        named = self.options["file"]
        return self._loader.path_dwim(named) if named else progress.default_path(self.path, self.rollout)

    def _now(self) -> str:
        return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # The book of this run: what is left, and how many cliques failed. The file holds the first for later runs.

    def _book_path(self) -> str:
        return os.path.join(self.folder, f"nvlink-rollout-{self.rollout}.json")

    def _book(self) -> dict[str, Any]:
        try:
            with open(self._book_path(), encoding="utf-8") as file:
                book: dict[str, Any] = json.load(file)
                return book
        except FileNotFoundError:
            return {"left": {}, "unfinished": [], "failed": 0, "canary_failed": False, "file": ""}

    def _new_book(self, fabric: Fabric) -> dict[str, Any]:
        """All cliques of the run wait, beside those that an earlier run has left and this one does not address."""
        path = self._file()
        left = progress.read(path) if os.path.exists(path) else {}
        left = {name: row for name, row in left.items() if name in fabric.cliques}
        # What a killed run had begun may look done on its trays, and is not.
        unfinished = [name for name, row in left.items() if row.state in (progress.BEGUN, progress.FAILED)]
        for name in self._cliques(fabric, self.hosts):
            left[name] = replace(left.get(name, Left(progress.WAITING)), state=progress.WAITING, trays={})
        rows = {name: {"state": row.state, "trays": dict(row.trays)} for name, row in left.items()}
        return {"left": rows, "unfinished": unfinished, "failed": 0, "canary_failed": False, "file": path}

    def _keep(self, book: dict[str, Any]) -> None:
        with open(self._book_path(), "w", encoding="utf-8") as file:
            json.dump(book, file)
        if not self._task.check_mode:
            left = {name: Left(**row) for name, row in book["left"].items()}
            progress.write(self._file(), self.rollout, left, self._now())
