# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of imex_domain: the clique's list from the fabric file, and one decision a clique and phase."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, WARNING, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, files, verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import clique as imex_clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store as imex_run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.clique import Clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import shown

CHANGE = ("look", "stop_and_write", "start", "wait", "verdict")
# Whether there is anything to change. The rows are kept apart: a tray that dies after its answer is not in the change.
QUESTION = ("ask", "due")
PHASES = (*CHANGE, *QUESTION)
# Hosts of one task run side by side, and the next task begins when all have ended: what the phases build upon.
BARRIERS = ("linear", "debug", "ansible.builtin.linear", "ansible.builtin.debug")
_OURS = ("fabric_file", "allow_outdated", "tls_files", "tray")


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        options = {name: arguments.pop(name, None) for name in _OURS}
        phase, owner = arguments.get("phase"), arguments.get("owner")
        if phase not in PHASES:
            raise AnsibleActionFail(f"imex_domain, option phase: {shown(phase)} is none of {', '.join(PHASES)}.")
        if owner not in domain.OWNERS:
            raise AnsibleActionFail(
                f"imex_domain, option owner: {shown(owner)} is none of {', '.join(domain.OWNERS)}, set imex_owner."
            )
        play = self._task.play
        strategy = getattr(play, "strategy", "linear") or "linear"
        if strategy not in BARRIERS:
            raise AnsibleActionFail(
                f"imex_domain: the play's strategy is {strategy}, under which trays do not wait for each other between"
                " the phases; use linear."
            )
        self.tray = str(options["tray"] or variables["inventory_hostname"])
        self.folder, self.play = str(constants.DEFAULT_LOCAL_TMP), str(play._uuid)
        hosts = variables.get("ansible_play_hosts_all") or [self.tray]
        self.hosts = set(imex_clique.batch(hosts, play.serial or [], variables["inventory_hostname"]))
        self.variables = variables
        path = options["fabric_file"]
        if self._task.check_mode and isinstance(path, str) and path and owner in domain.SERVICE_OWNERS:
            path = self._loader.path_dwim(path)
            if not os.path.exists(path):
                # On a new site --check of the whole way comes here before anything was accepted.
                told = f"{path}: is not there yet, so no IMEX domain can be shown; discover and accept it first."
                return {"changed": False, "actions": [], "findings": [], "warnings": [told]}
        try:
            clique = self._clique(options["fabric_file"], owner)
            if clique:
                arguments.update(clique=clique.name, nodes=list(clique.entries))
            if options["tls_files"]:
                arguments["tls"] = self._tls(options["tls_files"])
            return getattr(self, f"_{phase}")(arguments, clique, list(options["allow_outdated"] or []))
        except NvlinkError as error:
            self._note(phase, {"failed": True, "msg": str(error)})
            if phase in QUESTION:
                # The change itself tells it.
                return {"changed": False, "actions": [], "findings": [], "due": True, "why": [str(error)]}
            raise AnsibleActionFail(str(error)) from None

    # --- The phases.

    def _look(self, arguments: dict[str, Any], clique: Clique | None, allow_outdated: list[str]) -> dict[str, Any]:
        imex_run_store.forget(self.folder, self.play, CHANGE, self.tray)
        return self._module("look", self._asking(arguments, clique))

    def _asking(self, arguments: dict[str, Any], clique: Clique | None) -> dict[str, Any]:
        if clique:
            arguments["ask"] = [clique.entry_of(tray) for tray in clique.trays if tray not in self.hosts]
            arguments["slurm_nodes"] = list(clique.slurm_nodes)
        else:
            node = self.variables.get("nvlink_slurm_node") or self.tray
            arguments["slurm_nodes"] = [str(node)]
        return arguments

    def _stop_and_write(
        self, arguments: dict[str, Any], clique: Clique | None, allow_outdated: list[str]
    ) -> dict[str, Any]:
        if clique is None:
            own = imex_run_store.rows(self.folder, self.play, "look", [self.tray]).get(self.tray, {})
            if not own.get("pending", True):
                return {"changed": False, "actions": [], "findings": []}
            return self._module("stop_and_write", arguments)
        sha256 = files.digest(files.render_nodes(clique.entries))
        looked = imex_run_store.rows(self.folder, self.play, "look", clique.trays)
        decision = imex_clique.decide(clique, sha256, looked, self.hosts, allow_outdated)
        if decision.held is not None:
            self._note("stop_and_write", {"failed": True, "held": True, "msg": decision.held})
            reporting_host = next(tray for tray in clique.trays if tray in looked and not looked[tray].get("failed"))
            return {
                "changed": False,
                # Said once for the clique: every other of its trays passes by, untouched.
                "failed": self.tray == reporting_host,
                "held": True,
                "msg": decision.held,
                "findings": list(decision.findings),
            }
        arguments.update(generation=decision.generation, outdated=list(decision.outdated), stop=decision.restart)
        own = looked.get(self.tray, {})
        if imex_clique.is_done(own, decision):
            # What the look found needs no second visit: in most runs every tray is as it should be.
            row = {"sha256": own["sha256"], "running": own["running"], "reload": False, "idle": own["approved"]}
            self._note(
                "stop_and_write", {**row, "outdated": list(decision.outdated), "generation": decision.generation}
            )
            result: dict[str, Any] = {"changed": False, "actions": []}
        else:
            result = self._module("stop_and_write", arguments)
        result["findings"] = [*result.get("findings", []), *decision.findings]
        self._say(result, decision.findings, clique)
        return result

    def _start(self, arguments: dict[str, Any], clique: Clique | None, allow_outdated: list[str]) -> dict[str, Any]:
        if clique is None:
            return {"changed": False, "skipped": True, "msg": f"nothing starts with imex_owner {arguments['owner']}"}
        rows = imex_run_store.rows(self.folder, self.play, "stop_and_write", clique.trays)
        own = rows.get(self.tray, {})
        if own.get("held"):
            return {"changed": False, "held": True, "msg": own["msg"], "findings": []}
        sha256 = files.digest(files.render_nodes(clique.entries))
        proven, notes = imex_clique.starters(clique, sha256, rows)
        if self.tray not in proven:
            message = next((note["message"] for note in notes if note["tray"] == self.tray), "This tray has no list.")
            self._note("start", {"failed": True, "msg": message, "findings": notes})
            return {"changed": False, "failed": True, "msg": message, "findings": notes}
        # Whoever was lost between the two phases owes the list too.
        looked = imex_run_store.rows(self.folder, self.play, "look", clique.trays)
        lost = [tray for tray in looked if tray not in proven]
        outdated = sorted({*own.get("outdated", []), *lost})
        arguments.update(outdated=outdated, reload=bool(own.get("reload")))
        if own.get("idle") and own.get("running") and not lost:
            self._note("start", {"failed": False, "outdated": outdated, "idle": True})
            return {"changed": False, "actions": [], "findings": []}
        result = self._module("start", arguments)
        told = imex_clique.owes(clique, lost, own.get("generation", 0))
        result["findings"] = [*result.get("findings", []), *told]
        self._say(result, told, clique)
        return result

    def _wait(self, arguments: dict[str, Any], clique: Clique | None, allow_outdated: list[str]) -> dict[str, Any]:
        if clique is None:
            return {
                "changed": False,
                "skipped": True,
                "msg": f"nothing to wait for, imex_owner is {arguments['owner']}",
            }
        rows = imex_run_store.rows(self.folder, self.play, "start", clique.trays)
        arguments["expect"] = [
            clique.entry_of(tray)
            for tray in clique.trays
            if tray != self.tray and tray in rows and not rows[tray].get("failed")
        ]
        own = rows.get(self.tray, {})
        if own.get("idle"):
            seen = imex_run_store.rows(self.folder, self.play, "look", [self.tray])[self.tray]["facts"]
            if seen["ready"] and seen["domain_state"] == "up" and _sees_all(seen):
                self._note("wait", {"failed": False, "facts": seen, "running": True, "ports": {}})
                return {"changed": False, "actions": [], "findings": [], "facts": seen}
        arguments["call"] = bool(own.get("started"))
        return self._module("wait", arguments)

    def _verdict(self, arguments: dict[str, Any], clique: Clique | None, allow_outdated: list[str]) -> dict[str, Any]:
        """All members' own rows, read by each member: who is at fault fails, the others carry on."""
        if clique is None or self._task.check_mode:
            return {"changed": False, "skipped": True, "msg": "there is no clique to judge here"}
        started = imex_run_store.rows(self.folder, self.play, "start", clique.trays)
        if not started:
            return {"changed": False, "skipped": True, "msg": "IMEX of this clique was left as it is"}
        waited = imex_run_store.rows(self.folder, self.play, "wait", clique.trays)
        facts = {
            tray: (waited.get(tray) or {}).get("facts") or (started.get(tray) or {}).get("facts")
            for tray in clique.trays
        }
        members = list(zip(clique.trays, clique.entries))
        judged = verdict.judge(clique.name, members, facts)
        notes = [*judged.findings, *_port_findings(clique, waited, judged.findings)]
        errors = [note for note in notes if note["severity"] == ERROR]
        reporting_host = next((tray for tray in clique.trays if tray in waited), None)
        mine = [note for note in errors if note.get("tray") == self.tray]
        if not mine and self.tray == reporting_host:
            mine = [note for note in errors if note.get("tray") not in waited]
        result: dict[str, Any] = {"changed": False, "ok": judged.ok, "clique": clique.name, "findings": notes}
        if mine:
            result.update(failed=True, msg=mine[0]["message"])
        if self.tray == reporting_host:
            said = [note for note in notes if not mine or note is not mine[0]]
            result["warnings"] = [f"{note['code']}: {note['message']}" for note in said]
        return result

    # --- The question whether there is anything to change.

    def _ask(self, arguments: dict[str, Any], clique: Clique | None, allow_outdated: list[str]) -> dict[str, Any]:
        imex_run_store.forget(self.folder, self.play, ["ask"], self.tray)
        # Jobs are in the way of the change itself, not of the question.
        arguments = {**self._asking(arguments, clique), "phase": "look", "allow_jobs": True}
        result = self._module("ask", arguments)
        # What is wrong on the tray makes the change due, which tells it.
        return {"changed": False, "actions": [], "findings": result.get("findings") or []}

    def _due(self, arguments: dict[str, Any], clique: Clique | None, allow_outdated: list[str]) -> dict[str, Any]:
        rows = imex_run_store.rows(self.folder, self.play, "ask", clique.trays if clique else [self.tray])
        if clique:
            sha256 = files.digest(files.render_nodes(clique.entries))
            why = imex_clique.due(clique, sha256, rows, self.hosts, allow_outdated, self.tray)
        else:
            why = imex_clique.due_alone(rows.get(self.tray))
        why += [str(words) for words in arguments.get("besides") or []]
        return {"changed": False, "actions": [], "findings": [], "due": bool(why), "why": why}

    # --- HostChanges.

    def _module(self, phase: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = self._execute_module(
            module_name="rackscale.nvlink.imex_domain", module_args=arguments, task_vars=self.variables
        )
        own = [note for note in result.get("findings") or [] if note["severity"] == WARNING]
        if own:
            result["warnings"] = [f"{note['code']}: {note['message']}" for note in own]
        row = dict(result.get("row") or {})
        row.update(failed=bool(result.get("failed")), msg=str(result.get("msg", "")))
        row.update({name: arguments[name] for name in ("outdated", "generation") if name in arguments})
        self._note(phase, row)
        result.pop("row", None)
        return result

    def _note(self, phase: str, row: dict[str, Any]) -> None:
        imex_run_store.put(self.folder, self.play, phase, self.tray, row)

    def _say(self, result: dict[str, Any], notes: Sequence[dict[str, Any]], clique: Clique) -> None:
        """Findings on a clique as warnings of the run, said by the first of its members that is there."""
        rows = imex_run_store.rows(self.folder, self.play, "look", clique.trays)
        first = next((tray for tray in clique.trays if tray in rows and not rows[tray].get("failed")), None)
        if notes and self.tray == first:
            result["warnings"] = [
                *result.get("warnings", []),
                *(f"{note['code']}: {note['message']}" for note in notes),
            ]

    def _clique(self, path: Any, owner: str) -> Clique | None:
        """None where the owner needs no list."""
        if owner not in domain.SERVICE_OWNERS:
            return None
        if not isinstance(path, str) or not path:
            raise AnsibleActionFail(f"imex_domain: imex_owner {owner} needs fabric_file, name the fabric file.")
        path = self._loader.path_dwim(path)
        clique = imex_run_store.clique_of(self.folder, path, self.tray)
        if clique is None:
            raise files.ImexError(
                f"{path}: has no place for tray {shown(self.tray)}, so it has no IMEX domain; discover and accept it"
                " first."
            )
        return clique

    def _tls(self, paths: Any) -> dict[str, str]:
        """The contents of key, certificate and authority; a vaulted file is decrypted here, in memory."""
        found = {}
        for name in domain.TLS_FILES:
            path = paths.get(name)
            if not path:
                raise files.ImexError(f"imex_tls: the file of the {name} is not named, give {name}.")
            try:
                found[name] = str(self._loader.get_text_file_contents(self._loader.path_dwim(str(path))))
            except (AnsibleError, OSError, ValueError) as error:
                raise files.ImexError(
                    f"imex_tls, {name}: {path} cannot be read ({error}), name a file of the controller."
                ) from None
        return found


def _sees_all(facts: dict[str, Any]) -> bool:
    return all(peer["connection"] == "connected" for peer in facts["peers"])


def _port_findings(
    clique: Clique, waited: dict[str, dict[str, Any]], known: tuple[dict[str, Any], ...]
) -> list[dict[str, Any]]:
    """A port of one member that others found closed while its daemon runs there."""
    names = dict(zip(clique.entries, clique.trays))
    said: dict[tuple[str, int], list[str]] = {}
    for tray, row in waited.items():
        for entry, ports in (row.get("ports") or {}).items():
            for port in ports:
                said.setdefault((names.get(entry, entry), port), []).append(tray)
    notes = []
    for (tray, port), by in sorted(said.items()):
        if (waited.get(tray) or {}).get("running"):
            notes.append(
                finding(
                    "imex_port_blocked",
                    f"Port {port} of {tray} takes no connection from {', '.join(sorted(by)[:3])}, and IMEX runs there;"
                    f" open it for the members of clique {clique.name} in whatever firewall stands between.",
                    clique=clique.name,
                    tray=tray,
                )
            )
    return notes
