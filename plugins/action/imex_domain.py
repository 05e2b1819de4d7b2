# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides each phase of an IMEX change on the controller, clique by clique, and runs it on the trays."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.template import trust_as_template
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, WARNING, Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, files, packages
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.modules.imex_domain import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import certificates, verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import clique as imex_clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import rows as imex_rows
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store as imex_run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import summary as imex_summary
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import variables as role_variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.clique import Clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.rows import Stored
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import absolute, shown

CHANGE_PHASES = ("inspect", "stop_and_write", "start", "wait", "verdict")
# Whether a change is pending. Their rows are stored apart: a tray that dies after its preview is not in the change.
PENDING_PHASES = ("preview", "evaluate")
# Phases with which a run of the role begins, and the rows of an earlier run that they delete.
_REPEATED = {"certificate": CHANGE_PHASES, "inspect": CHANGE_PHASES, "preview": ("preview",)}
# Strategies under which a task begins when all hosts have ended the one before, which the phases rely on.
BARRIERS = ("linear", "debug", "ansible.builtin.linear", "ansible.builtin.debug")
# Options that the tray has no use for.
_CONTROLLER_OPTIONS = ("fabric_file", "tray", "allow_outdated", "templates", "tls_files", "tls_ca", "extra_changes")
# Seconds to connect, to copy the module, to read the tray and to write its files.
_REST = 300.0


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        variables = task_vars
        self.tray = str(self._task.args.get("tray") or variables["inventory_hostname"])
        self.folder, self.play = str(constants.DEFAULT_LOCAL_TMP), imex_run_store.play_of(self._task)
        earlier = _REPEATED.get(str(self._task.args.get("phase")), ())
        if earlier:
            # Of an earlier run of the role in this play; first, so that none counts where this one fails.
            imex_run_store.delete_rows(self.folder, self.play, earlier, self.tray)
            # The modules do not know all variables of the role, nor their names.
            wrong = role_variables.problems(variables, self._templar.template)
            if wrong:
                raise AnsibleActionFail(f"Validation of arguments failed: {'; '.join(wrong)}")
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        self.options: dict[str, Any] = options
        phase, owner = options["phase"], options["owner"]
        play = self._task.play
        strategy = getattr(play, "strategy", "linear") or "linear"
        if strategy not in BARRIERS:
            raise AnsibleActionFail(
                f"imex_domain: the play's strategy is {strategy}, under which trays do not wait for each other between"
                " the phases; use linear."
            )
        hosts = variables.get("ansible_play_hosts_all") or [self.tray]
        self.hosts = set(imex_clique.batch(hosts, play.serial or [], variables["inventory_hostname"]))
        self.variables = variables
        if phase == "compare":
            return _unchanged(unchanged_hosts=self._unchanged_cliques(set(hosts) - self.hosts))
        if phase == "report":
            return _unchanged(text=self._report(hosts))
        if self._task.check_mode and options["fabric_file"] and owner in domain.SERVICE_OWNERS:
            path = options["fabric_file"]
            if not os.path.exists(path):
                # --check of the playbook site on a new cluster: nothing was accepted yet.
                message = f"{path}: does not exist yet, so no IMEX domain can be previewed; run discover and accept."
                return _unchanged(warnings=[message])
        try:
            self.certificate = certificates.plan(variables, self.tray, self.folder) if options["tls_ca"] else None
            if phase == "certificate":
                return _unchanged(certificate=self.certificate)
            self.clique = self._clique(options["fabric_file"], owner)
            self.plan: dict[str, Any] = {}
            if self.clique:
                own = self.clique.entry_of(self.tray)
                self.plan.update(clique=self.clique.name, nodes=list(self.clique.entries), own=own)
            paths = self.certificate["files"] if self.certificate else options["tls_files"]
            self.tls = self._tls(paths) if paths else {}
            return self._run_phase(phase)
        except NvlinkError as error:
            # On a full disk the other members find no result of this tray, which counts as failed too.
            with contextlib.suppress(NvlinkError):
                self._store(phase, {"failed": True, "msg": str(error)})
            if phase in PENDING_PHASES:
                # The change itself would fail with it.
                return _unchanged(pending=True, reasons=[str(error)], refused=str(error))
            raise AnsibleActionFail(str(error)) from None

    def _run_phase(self, phase: str) -> Result:
        clique = self.clique
        if phase == "inspect":
            return self._inspect()
        if phase == "preview":
            return self._preview()
        if phase == "evaluate":
            return self._evaluate()
        if phase == "stop_and_write":
            return self._write_without_list() if clique is None else self._stop_and_write(clique)
        if clique is None:
            return _unchanged(skipped=True, msg=f"owner {self.options['owner']} does not run nvidia-imex.service")
        return {"start": self._start, "wait": self._wait, "verdict": self._verdict}[phase](clique)

    # --- The phases of a change.

    def _inspect(self) -> Result:
        self._plan_inspection()
        return self._run_on_tray("inspect", "inspect")

    def _plan_inspection(self) -> None:
        clique = self.clique or self._placed()
        if clique:
            self.plan["outside"] = [clique.entry_of(tray) for tray in clique.trays if tray not in self.hosts]
        own = str(self.variables.get("nvlink_slurm_node") or self.tray)
        self.plan["slurm_nodes"] = list(self.clique.slurm_nodes) if self.clique else [own]
        # Whether a tray is in this run: it may have another name in the inventory, and not answer.
        self._store(self.options["phase"], {"failed": True, "unreached": True, "msg": "it was not reached"})

    def _unchanged_cliques(self, others: set[str]) -> str:
        """The hosts whose clique is in the desired state, each between commas. others: the hosts of other batches.

        Each clique is decided by its members' rows alone. A text, since the condition of each tray searches it, and
        Ansible templates all entries of a list for that.
        """
        hosts: list[str] = []
        seen: set[str] = set()
        for tray in self._trays("inspect"):
            # The rows of other batches are not read: in a rollout there are as many batches as waves.
            if tray in seen or tray in others:
                continue
            rows = self._rows("inspect", [tray])
            path = rows[tray].get("fabric_file") if tray in rows else None
            if path:
                # A fabric file that changed since is reported by the next phase of each tray.
                with contextlib.suppress(NvlinkError):
                    clique = imex_run_store.clique_of(self.folder, path, tray)
                    if clique:
                        seen.update(clique.trays)
                        rows = self._rows("inspect", clique.trays)
                        hosts += _unchanged_hosts(clique, rows, path)
            elif tray in rows and _is_unchanged_alone(rows[tray]):
                hosts.append(rows[tray]["host"])
        return f",{','.join(sorted(hosts))},"

    def _report(self, hosts: Sequence[str]) -> list[str]:
        """What the phases of this play have done; hosts: all of the play."""
        phases = ("stop_and_write", "start", imex_run_store.JOB)
        rows = [row for phase in phases for row in self._rows(phase, self._trays(phase)).values()]
        failed = set(hosts).difference(self.variables.get("ansible_play_hosts") or hosts)
        return imex_summary.lines(hosts, failed, rows, self._task.check_mode)

    def _write_without_list(self) -> Result:
        own = self._rows("inspect", [self.tray]).get(self.tray, {})
        if not own.get("pending", True):
            return _unchanged()
        clique = self._placed() if _is_in_domain(own) else None
        rows = self._rows("inspect", clique.trays) if clique else {}
        partial = imex_clique.leaves_partially(clique, rows, self.options, self.hosts) if clique else None
        if clique and partial:
            self._store("stop_and_write", {"failed": True, "blocked": True, "msg": partial["message"]})
            leaving = (tray for tray in clique.trays if _is_leaving(rows.get(tray, {})))
            # Reported once, unless the tray would go on to the tasks of the owner job.
            failed = self.tray == next(leaving, self.tray) or self.options["owner"] == "job"
            return _unchanged(failed=failed, blocked=True, msg=partial["message"], findings=[partial])
        return self._run_on_tray("stop_and_write", "stop_and_write")

    def _placed(self) -> Clique | None:
        """The tray's clique, for an owner that needs no fabric file; None without one."""
        path = self.options["fabric_file"] or ""
        if os.path.exists(path):
            # A clique that cannot have a node list, as where a tray has no address, has no IMEX domain either.
            with contextlib.suppress(NvlinkError):
                return imex_run_store.clique_of(self.folder, path, self.tray)
        return None

    def _stop_and_write(self, clique: Clique) -> Result:
        sha256 = files.digest(files.render_nodes(clique.entries))
        inspected = self._rows("inspect", clique.trays)
        decision = imex_clique.decide(clique, sha256, inspected, self.hosts, self.options["allow_outdated"])
        if decision.blocked is not None:
            self._store("stop_and_write", {"failed": True, "blocked": True, "msg": decision.blocked})
            return _unchanged(
                # Reported once for the clique: its other trays pass, unchanged.
                failed=self.tray == _reporting_host(clique, inspected),
                blocked=True,
                msg=decision.blocked,
                findings=list(decision.findings),
            )
        self.plan.update(generation=decision.generation, restart_clique=decision.restart)
        own = inspected.get(self.tray, {})
        if decision.restart and own.get("running") and not own.get("restart_clique"):
            # The tray restarts because of others. They looked for jobs, but a member may be compromised.
            self.plan["slurm_nodes"] = list(clique.slurm_nodes)
        if imex_clique.is_up_to_date(own, decision):
            # The common case needs no second task on the tray, and for a clique that is up as a whole no other phase.
            row: Stored = {"sha256": own["sha256"], "running": own["running"], "reload": False}
            self._store("stop_and_write", {**row, "generation": decision.generation, "unchanged": own["approved"]})
            result = _unchanged()
            if imex_clique.is_unchanged(clique, inspected, decision):
                result.update(unchanged=True, ok=True, clique=clique.name)
        else:
            result = self._run_on_tray("stop_and_write", "stop_and_write")
        self._add_findings(result, decision.findings, clique)
        return result

    def _start(self, clique: Clique) -> Result:
        rows = self._rows("stop_and_write", clique.trays)
        own = rows.get(self.tray, {})
        if own.get("blocked"):
            return _unchanged(blocked=True, msg=own["msg"])
        sha256 = files.digest(files.render_nodes(clique.entries))
        # Trays that were lost between the two phases are outdated too.
        reached = [tray for tray, row in self._rows("inspect", clique.trays).items() if not row.get("unreached")]
        lost = [tray for tray in reached if rows.get(tray, {}).get("sha256") != sha256]
        if self.tray in lost or self.tray not in rows:
            message = (
                f"{self.tray} has another node list than that of clique {clique.name}, so its IMEX stays off; find what"
                " else writes nodes_config.cfg there."
            )
            found = finding("imex_list_differs", message, clique=clique.name, tray=self.tray)
            self._store("start", {"failed": True, "msg": message})
            return _unchanged(failed=True, msg=message, findings=[found])
        self.plan["reload_tls"] = bool(own.get("reload"))
        if own.get("unchanged") and own.get("running"):
            self._store("start", {"failed": False, "unchanged": True})
            return _unchanged()
        result = self._run_on_tray("start", "start")
        self._add_findings(result, imex_clique.outdated_findings(clique, lost, own.get("generation", 0)), clique)
        return result

    def _wait(self, clique: Clique) -> Result:
        rows = self._rows("start", clique.trays)
        self.plan["started"] = [
            clique.entry_of(tray)
            for tray in clique.trays
            if tray != self.tray and tray in rows and not rows[tray].get("failed")
        ]
        own = rows.get(self.tray, {})
        if own.get("unchanged"):
            facts = self._rows("inspect", [self.tray])[self.tray]["facts"]
            connected = facts and all(peer["connection"] == "connected" for peer in facts["peers"])
            if facts and facts["ready"] and facts["domain_state"] == "up" and connected:
                self._store("wait", {"failed": False, "facts": facts, "running": True, "ports": {}})
                return _unchanged(facts=facts)
        self.plan["reconnect"] = bool(own.get("started"))
        return self._run_on_tray("wait", "wait")

    def _verdict(self, clique: Clique) -> Result:
        """Evaluate all members' rows on each member: the tray at fault fails, the others continue."""
        if self._task.check_mode:
            return _unchanged(skipped=True, msg="check mode starts no daemon, so there is no verdict")
        started = self._rows("start", clique.trays)
        if not started:
            return _unchanged(skipped=True, msg=f"IMEX of clique {clique.name} was left unchanged")
        waited = self._rows("wait", clique.trays)
        facts = {
            tray: (waited.get(tray) or {}).get("facts") or (started.get(tray) or {}).get("facts")
            for tray in clique.trays
        }
        evaluated = verdict.evaluate(clique.name, list(zip(clique.trays, clique.entries)), facts)
        findings = [*evaluated.findings, *_port_findings(clique, waited)]
        errors = [entry for entry in findings if entry["severity"] == ERROR]
        reporting_host = next((tray for tray in clique.trays if tray in waited), None)
        own = [entry for entry in errors if entry.get("tray") == self.tray]
        if not own and self.tray == reporting_host:
            # Of no single tray, or of one that cannot fail in this run itself.
            own = [entry for entry in errors if entry.get("tray") not in self.hosts]
        result = _unchanged(ok=evaluated.ok, clique=clique.name, findings=findings)
        if own:
            result.update(failed=True, msg=own[0]["message"])
        if self.tray == reporting_host:
            result["warnings"] = _as_warnings([entry for entry in findings if not own or entry is not own[0]])
        return result

    # --- Whether a change is pending.

    def _preview(self) -> Result:
        self._plan_inspection()
        # Jobs block the change itself, not the preview.
        self.options.update(allow_jobs=True, job_files=[])
        result = self._run_on_tray("preview", "inspect")
        # An error on the tray makes the change pending, which then reports it.
        return _unchanged(findings=result.get("findings") or [])

    def _evaluate(self) -> Result:
        clique = self.clique or self._placed()
        rows = self._rows("preview", clique.trays if clique else [self.tray])
        findings: list[Any] = []
        if clique and self.clique:
            sha256 = files.digest(files.render_nodes(clique.entries))
            decision = imex_clique.decide(clique, sha256, rows, self.hosts, self.options["allow_outdated"])
            reasons = imex_clique.pending_changes(clique, rows, decision, self.tray)
            findings += decision.findings
        else:
            own = rows.get(self.tray)
            reasons = imex_clique.pending_without_list(own)
            if clique and reasons and _is_in_domain(own or {}):
                findings.append(imex_clique.leaves_partially(clique, rows, self.options, self.hosts))
        reasons += self.options["extra_changes"]
        if self.certificate and self.certificate["due"]:
            reasons.append("certificates")
        # Another finding may be gone when the trays are drained.
        partial = [entry["message"] for entry in findings if entry and entry["code"] == "imex_clique_partial"]
        return _unchanged(pending=bool(reasons), reasons=reasons, **({"refused": partial[0]} if partial else {}))

    # --- The tray, the store of the run and the controller's files.

    def _run_on_tray(self, store_as: str, phase: str) -> Result:
        self.plan["files"] = self._rendered()
        options = {
            name: value for name, value in self.options.items() if value is not None and name not in _CONTROLLER_OPTIONS
        }
        result = self.run_module(
            "rackscale.nvlink.imex_domain",
            {**options, "phase": phase, "plan": self.plan, "tls": self.tls},
            self.variables,
            imex_rows.SCHEMA,
            seconds(phase, self.options),
        )
        warnings = [entry for entry in result.get("findings") or [] if entry["severity"] == WARNING]
        if warnings:
            result["warnings"] = _as_warnings(warnings)
        row = dict(result.pop("row", None) or {})
        errors = [entry["message"] for entry in result.get("findings") or [] if entry["severity"] == ERROR]
        if result.get("failed") and row.get("facts"):
            # The unit did not start. The daemon's own errors say more than the tray's message.
            errors += _start_errors(row["facts"]["findings"])
        if errors:
            result.update(failed=True, msg=errors[0])
        if phase == "inspect" and self.options["job_files"] and row.get("job_left"):
            # Without a row the tray counts as not reached, until it is inspected again.
            return {**result, "job_left": True}
        if not result.get("failed") and not imex_rows.is_complete(phase, row):
            row = {}
            message = (
                f"{self.tray} returned no valid result of the phase {phase}; check its Python and what replaces it."
            )
            result.update(failed=True, msg=message)
        row.update(failed=bool(result.get("failed")), msg=str(result.get("msg", "")))
        row["generation"] = self.plan.get("generation", 0)
        if phase == "inspect":
            # Of the controller, for `compare`.
            path = self.options["fabric_file"] if self.clique else None
            row.update(owner=self.options["owner"], fabric_file=path)
        else:
            row["changes"] = list(result.get("changes") or ())
        # Of the shape that SCHEMA checks.
        self._store(store_as, cast(Stored, row))
        return result

    def _rows(self, phase: str, trays: Sequence[str]) -> dict[str, Stored]:
        return imex_run_store.read_rows(self.folder, self.play, phase, trays)

    def _trays(self, phase: str) -> list[str]:
        return imex_run_store.trays(self.folder, self.play, phase)

    def _store(self, phase: str, row: Stored) -> None:
        row = {**row, "host": self.variables["inventory_hostname"]}
        imex_run_store.write_row(self.folder, self.play, phase, self.tray, row)

    def _add_findings(self, result: Result, findings: Sequence[Finding], clique: Clique) -> None:
        """Add findings on the clique to the result; its reporting host prints them as warnings."""
        result["findings"] = [*result.get("findings", []), *findings]
        if findings and self.tray == _reporting_host(clique, self._rows("inspect", clique.trays)):
            result["warnings"] = [*result.get("warnings", []), *_as_warnings(findings)]

    def _clique(self, path: str | None, owner: str) -> Clique | None:
        """None where the owner needs no node list."""
        if owner not in domain.SERVICE_OWNERS:
            return None
        if not path:
            raise AnsibleActionFail(f"imex_domain: owner {owner} needs fabric_file; set it to the fabric file.")
        clique = imex_run_store.clique_of(self.folder, path, self.tray)
        if clique is None:
            raise files.ImexError(
                f"{path}: does not place tray {shown(self.tray)}, so it has no IMEX domain; run discover and accept."
            )
        return clique

    def _rendered(self) -> dict[str, str]:
        """Render the role's templates with the variables of the tray: file on the tray -> text."""
        texts = {}
        for name, path in domain.TEMPLATES.items():
            template = self.options["templates"].get(name)
            if not template:
                continue
            try:
                found = self._loader.path_dwim_relative_stack(self._task.get_search_path(), "templates", template)
                text = self._loader.get_text_file_contents(found)
                texts[path] = str(self._templar.template(trust_as_template(text)))
            except AnsibleError as error:
                raise files.ImexError(
                    f"imex_{name}_template: {template} cannot be rendered ({error}); correct it."
                ) from None
        return texts

    def _tls(self, paths: Mapping[str, str | None]) -> dict[str, str]:
        """Read key, certificate and authority; a vaulted file is decrypted here, in memory."""
        changes_nothing = self._task.check_mode or self.options["phase"] in PENDING_PHASES
        contents = {}
        for name in domain.TLS_FILES:
            path = paths.get(name)
            if not path:
                raise files.ImexError(f"imex_domain, option tls_files: {name} is missing; set it to a file.")
            if self.certificate and changes_nothing and not os.path.exists(path):
                # No tray has this text, so its file counts as changed.
                contents[name] = "to be made\n"
                continue
            try:
                contents[name] = str(self._loader.get_text_file_contents(absolute(path)))
            except (AnsibleError, OSError, ValueError) as error:
                raise files.ImexError(
                    f"imex_domain, option tls_files, {name}: {path} cannot be read ({error}); name a file of the"
                    " controller."
                ) from None
        return contents


def seconds(phase: str, options: Arguments) -> float:
    """The time limit of a phase on a tray, above all that the tray itself waits for."""
    # Each reading of the tray calls nvidia-imex-ctl twice.
    reading = 2 * options["timeout"]
    install = packages.INSTALL_SECONDS if options["manage_package"] else 0
    return float(
        _REST
        + {
            # Package lists may be fetched.
            "inspect": reading + install,
            # They are, a package is fetched and installed, an initramfs is made, and the unit may stop again then.
            "stop_and_write": 2 * reading + 3 * install + packages.INSTALL_SECONDS + 3 * packages.STOP_SECONDS,
            "start": reading + options["start_wait"],
            # The last reading may begin at the end of the wait.
            "wait": reading + options["ready_wait"],
        }[phase]
    )


def _unchanged(**more: Any) -> Result:
    return {"changed": False, "changes": [], "findings": [], **more}


def _as_warnings(findings: Sequence[Finding]) -> list[str]:
    return [f"{entry['code']}: {entry['message']}" for entry in findings]


def _start_errors(findings: Sequence[Finding]) -> list[str]:
    """The errors that may be why a daemon does not start; not that it does not run."""
    return [row["message"] for row in findings if row["severity"] == ERROR and row["code"] != "imex_unit_down"]


def _unchanged_hosts(clique: Clique, rows: Mapping[str, Stored], path: str) -> list[str]:
    """The hosts of a clique that is in the desired state, as its members see it by this fabric file."""
    if any(row.get("fabric_file") != path for row in rows.values()):
        return []
    sha256 = files.digest(files.render_nodes(clique.entries))
    decision = imex_clique.decide(clique, sha256, rows, clique.trays, ())
    unchanged = decision.blocked is None and imex_clique.is_unchanged(clique, rows, decision)
    return [str(rows[tray]["host"]) for tray in clique.trays] if unchanged else []


def _is_unchanged_alone(row: Stored) -> bool:
    """Whether a tray whose owner needs no node list is as desired; IMEX per job has a module of its own."""
    return not row.get("failed") and row.get("owner") != domain.JOB and not row.get("pending", True)


def _is_in_domain(row: Stored) -> bool:
    """Whether a tray runs an IMEX domain for its clique, or has its node list; not one for a job or in a container."""
    facts = row.get("facts")
    if row.get("record") or not facts:
        return bool(row.get("record") or row.get("running"))
    # A member may be compromised, and lack it.
    by_service = any(entry.get("owner") == "service" for entry in facts.get("owners") or ())
    # The daemon of a new image has no list.
    return bool(row.get("running")) and by_service and len(facts["nodes"]["entries"]) > 1


def _is_leaving(row: Stored) -> bool:
    """Whether a tray comes to the change of its owner and leaves its IMEX domain by that."""
    stays = row.get("failed") or row.get("owner") in domain.SERVICE_OWNERS
    return not stays and bool(row.get("pending")) and _is_in_domain(row)


def _reporting_host(clique: Clique, rows: dict[str, Stored]) -> str | None:
    """The tray that reports for the clique: the first one whose inspection succeeded."""
    return next((tray for tray in clique.trays if tray in rows and not rows[tray].get("failed")), None)


def _port_findings(clique: Clique, waited: dict[str, Stored]) -> list[Finding]:
    """Ports that other members cannot connect to although the daemon runs.

    What one member alone reports is a finding on itself: it, or the network at it, may be at fault, or compromised.
    """
    names = dict(zip(clique.entries, clique.trays))
    reporters: dict[tuple[str, int], list[str]] = {}
    for tray, row in waited.items():
        for entry, ports in (row.get("ports") or {}).items():
            for port in ports if names.get(entry, tray) != tray else ():
                reporters.setdefault((names[entry], port), []).append(tray)
    return [
        finding(
            "imex_pair_disconnected",
            f"Port {port} of {tray} accepts no connection from {summarize(sorted(by))} although IMEX runs there; open"
            f" it for the members of clique {clique.name} in every firewall between them.",
            clique=clique.name,
            tray=tray if len(by) > 1 else by[0],
        )
        for (tray, port), by in sorted(reporters.items())
        if (waited.get(tray) or {}).get("running")
    ]
