# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of an IMEX change on the controller: each clique is decided from its rows in the run's store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, formats, packages, peers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import alike, joined
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import agreement, certificates, counts, run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import clique as imex_clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import rows as imex_rows
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.clique import Clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.rows import Stored
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown

# The phases with rows; those of prepare replace those of inspect.
CHANGE_PHASES = ("inspect", "stop_and_write", "start", "wait", "verdict")
# Seconds to connect, to copy the module, to read the tray and to write its files.
_REST = 300.0


@dataclass(frozen=True)
class Run:
    """A run of the role in a play. folder: of the run's store. hosts: of this batch. check: whether in check mode."""

    folder: str
    play: str
    hosts: set[str]
    check: bool

    def rows(self, phase: str, trays: Iterable[str]) -> dict[str, Stored]:
        return run_store.read_rows(self.folder, self.play, phase, trays)

    def trays(self, phase: str) -> list[str]:
        return run_store.trays(self.folder, self.play, phase)

    def forget(self, tray: str) -> None:
        """Delete the rows of an earlier run of the role in this play."""
        run_store.delete_rows(self.folder, self.play, CHANGE_PHASES, tray)

    def inspected(self, hosts: Iterable[str]) -> dict[str, Stored]:
        """tray -> its row of inspect. hosts: of the play.

        The rows of other batches are not read: in a rollout there are as many batches as waves.
        """
        others = set(hosts) - self.hosts
        return self.rows("inspect", [tray for tray in self.trays("inspect") if tray not in others])

    def pending(self, hosts: Iterable[str]) -> dict[str, Result]:
        """Host -> whether the other phases would change it: RV(pending) of the module imex_domain.

        Deletes the rows: a tray that dies before its change, as while it is drained, must not count as inspected.
        """
        inspected = self.inspected(hosts)
        found = {row["host"]: self._due(tray, row, inspected) for tray, row in inspected.items()}
        for tray in inspected:
            self.forget(tray)
        return found

    def _due(self, tray: str, row: Stored, inspected: Mapping[str, Stored]) -> Result:
        if row.get("refused"):
            # The change itself would fail by this error on the controller.
            return {"pending": True, "reasons": [row["msg"]], "refused": row["msg"]}
        owner, allowed = row.get("owner", ""), row.get("allowed", [])
        reasons, findings = imex_clique.pending_without_list(row), list[Any]()
        if clique := _placed(self.folder, row.get("placed", ""), tray):
            rows = {member: inspected[member] for member in clique.trays if member in inspected}
            if row.get("fabric_file"):
                decision = self._decide(clique, row, rows)
                reasons = imex_clique.pending_changes(clique, rows, decision, tray, owner in domain.SERVICE_OWNERS)
                findings += decision.findings
            if _is_leaving(row):
                findings.append(imex_clique.leaves_partially(clique, rows, owner, allowed, self.hosts))
        # Another finding may be gone when the trays are drained.
        partial = [entry["message"] for entry in findings if entry and entry["code"] == "imex_clique_partial"]
        return {"pending": bool(reasons), "reasons": reasons, **({"refused": partial[0]} if partial else {})}

    def _decide(self, clique: Clique, row: Stored, rows: Mapping[str, Stored]) -> imex_clique.Decision:
        """The decision for a clique from the rows of its members. row: of one of them."""
        digest = domain.list_digest(row.get("owner", ""), clique.slurm_nodes, clique.entries)
        return imex_clique.decide(clique, digest, rows, self.hosts, row.get("allowed", []))

    def unchanged_hosts(self, hosts: Iterable[str]) -> dict[str, bool]:
        """The hosts whose clique is in the desired state, each with true. hosts: of the play.

        Each clique is decided by its members' rows alone. A map, since the condition of each tray asks for its own
        name, and Ansible templates all entries of a list for that.
        """
        unchanged: list[str] = []
        inspected = self.inspected(hosts)
        seen: set[str] = set()
        for tray, row in inspected.items():
            if tray in seen:
                continue
            path = row.get("fabric_file")
            # A fabric file that changed since is reported by the next phase of each tray.
            clique = _placed(self.folder, path, tray) if path else None
            if clique:
                seen.update(clique.trays)
                rows = {member: inspected[member] for member in clique.trays if member in inspected}
                serves = row.get("owner") in domain.SERVICE_OWNERS
                same = all(other.get("fabric_file") == path for other in rows.values())
                if same and imex_clique.is_unchanged(clique, rows, self._decide(clique, row, rows), serves):
                    unchanged += [rows[member]["host"] for member in clique.trays]
            elif not path and not row.get("failed") and not row.get("pending", True):
                unchanged.append(row["host"])
        return dict.fromkeys(sorted(unchanged), True)

    def report(self, hosts: Sequence[str], left: Sequence[str]) -> list[str]:
        """What the phases of this play have done. hosts: of the play. left: those that have not failed."""
        rows = [row for phase in ("stop_and_write", "start") for row in self.rows(phase, self.trays(phase)).values()]
        return counts.lines(hosts, set(hosts).difference(left), rows, self.check)


class Phases:
    """The phases of one tray. values: of variables.values(). on_tray: runs a phase on the tray, by the plan."""

    def __init__(
        self,
        run: Run,
        host: str,
        tray: str,
        values: Mapping[str, Any],
        variables: Variables,
        on_tray: Callable[[str, Phases], Result],
    ) -> None:
        self._run, self.host, self.tray, self.values, self.on_tray = run, host, tray, values, on_tray
        self._variables = variables
        self.owner = values["imex_owner"]
        self.fabric_file = absolute(values["imex_fabric_file"]) if values["imex_fabric_file"] else ""
        # What a phase does on the tray, and what counts where the phase decides nothing.
        self.plan: dict[str, Any] = {
            # The Slurm nodes of the clique, whose jobs are looked up.
            "slurm_nodes": [],
            # Name and version of the package to have.
            "offer": None,
            # Lines of the other members that were started, for which `wait` waits.
            "started": [],
            "generation": 0,
            # Whether all daemons of the clique stop before any starts.
            "restart_clique": False,
            # Whether a running daemon must load new TLS files.
            "reload_tls": False,
            # Whether `wait` may signal the daemon to connect to its peers again.
            "reconnect": False,
            "allow_jobs": values["imex_allow_jobs"],
            "ready_wait": values["imex_ready_wait"],
            "start_wait": values["imex_start_wait"],
        }
        # Options of reporting, of this phase.
        self.asked: dict[str, Any] = {}
        self.clique: Clique | None = None
        self.certificate: dict[str, Any] | None = None
        self.changes_nothing = run.check

    def run(self, phase: str) -> Result:
        self.changes_nothing |= phase == "inspect"
        path = self.fabric_file
        needs_file = self._run.check and path and self.owner in domain.LIST_OWNERS
        if needs_file and (warning := fabric_file.not_yet(path, "no IMEX domain can be previewed")):
            return {"warnings": [warning]}
        try:
            if self.values["imex_tls_used"] and self.values["imex_tls"] == "ca":
                self.certificate = certificates.plan(self._variables, self.tray, self._run.folder)
            self.clique = self._clique()
            if not self._runs_service and phase in ("start", "wait", "verdict"):
                return {"skipped": True, "msg": f"owner {self.owner} does not run nvidia-imex.service"}
            result: Result = getattr(self, f"_{phase}")()
            return result
        except NvlinkError as error:
            # On a full disk the other members find no result of this tray, which counts as failed too.
            with contextlib.suppress(NvlinkError):
                stored = "inspect" if phase == "prepare" else phase
                self._store(stored, {"failed": True, "refused": True, "msg": str(error)})
            raise

    # --- The phases of a change.

    def _inspect(self) -> Result:
        """An error that is found fails the phase prepare: nothing may be due, or a rollout asks whether it is."""
        # Jobs block the change itself.
        self.plan["allow_jobs"] = True
        result = self._read("inspect")
        if self.certificate:
            result["certificate"] = self.certificate
        return {**result, "failed": False}

    def _prepare(self) -> Result:
        """What must be true at the moment of the change is asked now."""
        own = str(self._variables.get("nvlink_slurm_node") or self.tray)
        if not self.plan["allow_jobs"]:
            self.asked["nodes"] = list(self.clique.slurm_nodes) if self.clique and self._runs_service else [own]
        if self.values["imex_manage_package"] and self.owner in domain.LIST_OWNERS:
            self.asked["package"] = self.values["imex_package"]
        return self._read("prepare")

    def _read(self, phase: str) -> Result:
        clique = self.clique or _placed(self._run.folder, self.fabric_file, self.tray)
        if clique:
            self.asked["outside"] = [clique.entry_of(tray) for tray in clique.trays if tray not in self._run.hosts]
        # Whether a tray is in this run: it may have another name in the inventory, and not answer.
        self._store("inspect", {"failed": True, "unreached": True, "msg": "it was not reached"})
        return self._on_tray(phase)

    def _stop_and_write(self) -> Result:
        clique = self.clique
        if clique is None:
            return self._write_without_list()
        inspected = self._rows("inspect", clique)
        own = inspected.get(self.tray, {})
        if not self._runs_service and (refused := self._refused_to_leave(clique, inspected)):
            return refused
        decision = imex_clique.decide(
            clique, self._digest(clique), inspected, self._run.hosts, self.values["imex_allow_outdated"]
        )
        if decision.blocked is not None:
            # Reported once for the clique: its other trays pass, unchanged.
            return self._blocked(decision.findings[0], self.tray == _reporting_host(clique, inspected))
        self.plan.update(generation=decision.generation, restart_clique=decision.restart, offer=own.get("offer"))
        if decision.restart and own.get("running") and not own.get("restart_clique"):
            # The tray restarts because of others. They looked for jobs, but a member may be compromised.
            self.plan["slurm_nodes"] = list(clique.slurm_nodes)
        if not imex_clique.remaining_changes(own, decision):
            # The common case needs no second task on the tray.
            row: Stored = {"sha256": own["sha256"], "running": own["running"], "reload": False}
            self._store("stop_and_write", {**row, "generation": decision.generation, "unchanged": own["approved"]})
            result: Result = {}
        else:
            result = self._on_tray("stop_and_write")
        return self._with_findings(result, decision.findings, clique)

    def _write_without_list(self) -> Result:
        own = self._run.rows("inspect", [self.tray]).get(self.tray, {})
        if not own.get("pending", True):
            return {}
        clique = _placed(self._run.folder, self.fabric_file, self.tray)
        refused = self._refused_to_leave(clique, self._rows("inspect", clique)) if clique else None
        self.plan["offer"] = own.get("offer")
        return refused or self._on_tray("stop_and_write")

    def _refused_to_leave(self, clique: Clique, rows: Mapping[str, Stored]) -> Result | None:
        """The result for a tray that would leave its IMEX domain while trays that the run leaves out stay in it."""
        if not _is_leaving(rows.get(self.tray, {}), self.owner):
            return None
        stays, nodes = self.values["imex_allow_outdated"], zip(clique.trays, clique.slurm_nodes)
        partial = imex_clique.leaves_partially(clique, rows, self.owner, stays, self._run.hosts)
        # A job may have begun since on any of them.
        self.plan["slurm_nodes"] = [node for tray, node in nodes if tray not in stays]
        # Reported once.
        first = next((tray for tray in clique.trays if _is_leaving(rows.get(tray, {}))), self.tray)
        return self._blocked(partial, self.tray == first) if partial else None

    def _blocked(self, found: Finding, failed: bool) -> Result:
        message = found["message"]
        self._store("stop_and_write", {"failed": True, "blocked": True, "msg": message})
        return {"failed": failed, "blocked": True, "msg": message, "findings": [found]}

    def _start(self) -> Result:
        clique = cast(Clique, self.clique)
        rows = self._rows("stop_and_write", clique)
        own = rows.get(self.tray, {})
        if own.get("blocked"):
            return {"blocked": True, "msg": own["msg"]}
        self.plan["reload_tls"] = bool(own.get("reload"))
        if own.get("unchanged") and own.get("running"):
            self._store("start", {"failed": False, "unchanged": True})
            return {}
        result = self._on_tray("start")
        # Trays that were lost between the two phases are outdated too, unless they had the list before.
        digest = self._digest(clique)
        reached = {tray: row for tray, row in self._rows("inspect", clique).items() if not row.get("unreached")}
        had = [tray for tray, row in reached.items() if (record := row.get("record")) and record["sha256"] == digest]
        lost = [tray for tray in reached if tray not in had and rows.get(tray, {}).get("sha256") != digest]
        found = imex_clique.outdated_findings(clique, lost, own.get("generation", 0))
        return self._with_findings(result, found, clique)

    def _wait(self) -> Result:
        clique = cast(Clique, self.clique)
        rows = self._rows("start", clique)
        self.plan["started"] = [
            clique.entry_of(tray)
            for tray in clique.trays
            if tray != self.tray and tray in rows and not rows[tray].get("failed")
        ]
        own = rows.get(self.tray, {})
        if own.get("unchanged"):
            facts = self._rows("inspect", clique)[self.tray]["facts"]
            others = [entry for entry in clique.entries if entry != clique.entry_of(self.tray)]
            if facts and peers.is_up(facts, len(clique.trays), others):
                self._store("wait", {"failed": False, "facts": facts})
                return {}
        self.plan["reconnect"] = bool(own.get("started"))
        return self._on_tray("wait")

    def _verdict(self) -> Result:
        """Evaluate all members' rows on each member: the tray at fault fails, the others continue."""
        clique = cast(Clique, self.clique)
        if self._run.check:
            return {"skipped": True, "msg": "check mode starts no daemon, so there is no verdict"}
        started, waited = self._rows("start", clique), self._rows("wait", clique)
        if not started:
            return {"skipped": True, "msg": f"IMEX of clique {clique.name} was left unchanged"}
        facts = {
            tray: (waited.get(tray) or {}).get("facts") or (started.get(tray) or {}).get("facts")
            for tray in clique.trays
        }
        evaluated = agreement.evaluate(clique.name, list(zip(clique.trays, clique.entries)), facts)
        findings = evaluated.findings
        errors = [entry for entry in findings if entry["severity"] == ERROR]
        reporting_host = next((tray for tray in clique.trays if tray in waited), None)
        own = [entry for entry in errors if entry.get("tray") == self.tray]
        if not own and self.tray == reporting_host:
            # Of no single tray, or of one that cannot fail in this run itself.
            own = [entry for entry in errors if entry.get("tray") not in self._run.hosts]
        result: Result = {"ok": evaluated.ok, "clique": clique.name, "findings": findings}
        if own:
            result.update(failed=True, msg=own[0]["message"])
        if self.tray == reporting_host:
            # A tray outside the run was not asked, so nothing is known of it.
            unasked = {("tray_unreachable", tray) for tray in clique.trays if tray not in self._run.hosts}
            left = [e for e in findings if e not in own[:1] and (e["code"], e.get("tray")) not in unasked]
            result["warnings"] = _as_warnings(left)
        return result

    # --- The tray and the store of the run.

    def _on_tray(self, phase: str) -> Result:
        """The result of a phase on the tray, whose row is stored."""
        result = self.on_tray(phase, self)
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
        if not result.get("failed") and not imex_rows.is_complete(phase, row):
            row = {}
            message = f"{self.tray} returned no valid result of the phase {phase}; check its Python and its shell."
            result.update(failed=True, msg=message)
        row.update(failed=bool(result.get("failed")), msg=str(result.get("msg", "")))
        row["generation"] = self.plan["generation"]
        stored = phase
        if phase in ("inspect", "prepare"):
            stored = "inspect"
            # Of the controller, for unchanged_hosts() and pending().
            row.update(owner=self.owner, fabric_file=self.fabric_file if self.clique else None)
            row.update(placed=self.fabric_file, allowed=self.values["imex_allow_outdated"])
            if phase == "inspect" and self.certificate and self.certificate["due"]:
                row["pending"] = [*row.get("pending", ()), "certificates"]
        else:
            row["changes"] = list(result.get("changes") or ())
        # Of the shape that SCHEMA checks.
        self._store(stored, cast(Stored, row))
        return result

    @property
    def _runs_service(self) -> bool:
        return self.owner in domain.SERVICE_OWNERS

    def _digest(self, clique: Clique) -> str:
        return domain.list_digest(self.owner, clique.slurm_nodes, clique.entries)

    def _rows(self, phase: str, clique: Clique) -> dict[str, Stored]:
        return self._run.rows(phase, clique.trays)

    def _store(self, phase: str, row: Stored) -> None:
        run_store.write_row(self._run.folder, self._run.play, phase, self.tray, {**row, "host": self.host})

    def _with_findings(self, result: Result, findings: Sequence[Finding], clique: Clique) -> Result:
        """Add findings on the clique to the result; its reporting host prints them as warnings."""
        result["findings"] = [*result.get("findings", []), *findings]
        if findings and self.tray == _reporting_host(clique, self._rows("inspect", clique)):
            result["warnings"] = [*result.get("warnings", []), *_as_warnings(findings)]
        return result

    def _clique(self) -> Clique | None:
        """None where the owner needs no list; with owner job also for a tray in none."""
        if self.owner not in domain.LIST_OWNERS or (self.owner == domain.JOB and not self.fabric_file):
            return None
        if not self.fabric_file:
            raise formats.ImexError(f"imex_owner {self.owner} needs imex_fabric_file; set it to the fabric file.")
        clique = run_store.clique_of(self._run.folder, self.fabric_file, self.tray)
        if clique is None and self._runs_service:
            raise formats.ImexError(
                f"{self.fabric_file}: does not place tray {shown(self.tray)}, so it has no IMEX domain; run discover"
                " and accept."
            )
        return clique


def seconds(phase: str, values: Mapping[str, Any]) -> float:
    """The time limit of a phase on a tray, above all that the tray itself waits for."""
    # Each reading of the tray calls nvidia-imex-ctl three times at most.
    reading = 3 * values["imex_ctl_timeout"]
    install = packages.INSTALL_SECONDS if values["imex_manage_package"] else 0
    return float(
        _REST
        + {
            "inspect": reading,
            # Package lists may be fetched.
            "prepare": reading + install,
            # They are, a package is fetched and installed, an initramfs is made, and the unit may stop again then.
            "stop_and_write": 2 * reading + 3 * install + packages.INSTALL_SECONDS + 3 * packages.STOP_SECONDS,
            "start": reading + values["imex_start_wait"],
            # The last reading may begin at the end of the wait.
            "wait": reading + values["imex_ready_wait"],
        }[phase]
    )


def _placed(folder: str, path: str, tray: str) -> Clique | None:
    """The tray's clique, for an owner that needs no fabric file; None without one, or where the fabric file is none.

    A clique that cannot have a node list, as where a tray has no address, has no IMEX domain either.
    """
    if os.path.exists(path):
        with contextlib.suppress(NvlinkError):
            return run_store.clique_of(folder, path, tray)
    return None


def _as_warnings(findings: Sequence[Finding]) -> list[str]:
    """One text for findings that differ in their tray only."""
    return [f"{same[0]['code']}: {joined(same)['message']}" for same in alike(findings, ("code",))]


def _start_errors(findings: Sequence[Finding]) -> list[str]:
    """The errors that may be why a daemon does not start; not that it does not run."""
    return [row["message"] for row in findings if row["severity"] == ERROR and row["code"] != "imex_unit_down"]


def _is_leaving(row: Stored, owner: str = "") -> bool:
    """Whether a tray comes to the change of its owner and leaves its IMEX domain by that. owner: the row's own."""
    stays = row.get("failed") or (owner or row.get("owner")) in domain.SERVICE_OWNERS
    return not stays and bool(row.get("pending")) and imex_clique.is_in_domain(row)


def _reporting_host(clique: Clique, rows: Mapping[str, Stored]) -> str | None:
    """The tray that reports for the clique: the first one whose inspection succeeded."""
    return next((tray for tray in clique.trays if tray in rows and not rows[tray].get("failed")), None)
