# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phase stop_and_write of an IMEX change on this tray; reporting.py reads it, starting.py has start and wait.

domain.py has the desired state. No phase waits for the same phase on another tray, and every call of a program has a
time limit. With a Host that only plans, the controller runs the phase on a tray's report, so what is due is what the
phase would change.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import actions, atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, HostError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import (
    boot,
    domain,
    firewall,
    formats,
    installing,
    job_host,
    packages,
    reporting,
    slurm_jobs,
    survey,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Channels, Facts, Report, Row, Unit
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.processes import processes


class Tray:
    """One tray, its desired state, and how it is read."""

    def __init__(self, desired: domain.DesiredState, host: Host, options: reporting.Options) -> None:
        self.desired, self.host, self.options = desired, host, options

    def facts(self) -> Facts:
        return reporting.facts(self.options)[0]

    def _files(self, offer: packages.Offer | None, report: Report) -> dict[str, tuple[str | None, int]]:
        if self.desired.program and reporting.PYTHON not in report["programs"]:
            raise formats.ImexError(
                f"The check at boot runs by {reporting.PYTHON}, which this tray lacks; install python3 there."
            )
        return domain.files_of(self.desired, offer if "apt-get" in report["programs"] else None)

    def _unit_changes(self, observed: Facts) -> list[str]:
        """The changes of the unit, as verb and unit name; without a unit (not installed), only the mask."""
        unit: Unit = observed["unit"] or {}
        enabled = unit.get("enabled") or ""
        masked = unit.get("load") == "masked" or enabled.startswith("masked")
        changes = []
        if self.desired.owner == domain.DRIVER:
            if not masked:
                changes.append(f"mask {survey.UNIT}")
            return changes
        if masked:
            changes.append(f"unmask {survey.UNIT}")
        if self.desired.runs_service and enabled != "enabled":
            changes.append(f"enable {survey.UNIT}")
        elif not self.desired.runs_service and enabled.startswith("enabled"):
            changes.append(f"disable {survey.UNIT}")
        return changes

    def forbid_jobs(self, slurm_nodes: Sequence[str]) -> None:
        """Raise Blocked where jobs run on these nodes; for no nodes none are looked up."""
        jobs, unknown = slurm_jobs.running_on(slurm_nodes) if slurm_nodes else ([], None)
        if jobs or unknown:
            raise job_host.Blocked(slurm_jobs.blocking_finding(jobs, unknown, ["a change of the whole clique"]))

    # --- stop_and_write: stop the daemon where needed, write every file, start nothing.

    def stop_and_write(
        self,
        report: Report,
        generation: int,
        stop: bool,
        offer: packages.Offer | None = None,
        allow_jobs: bool = False,
    ) -> Row:
        """The row of the phase stop_and_write. ``report``: as it was just read. ``offer``: the package to have."""
        findings: list[HostFinding] = []
        observed, slurm, old = report["facts"], report["slurm"], report["record"]
        restart_clique, restart = domain.difference(self.desired, observed, offer)
        install = offer is not None and (observed["package"] or {}) != offer._asdict()
        must_stop = observed["running"] and (stop or bool(restart_clique or restart))
        if install and offer:
            installing.fetch(self.host, offer)
        job_files = job_host.files_of(self.desired, generation, slurm)
        if self.desired.owner != domain.JOB:
            job_host.leave(self.desired, job_files, self.host, slurm["job"], allow_jobs)
        elif must_stop and not allow_jobs and not self.host.check:
            job_host.forbid_jobs()
        if must_stop:
            self._stop(observed)
        if not self.desired.runs_service:
            self._switch_off(observed)
        if not self.desired.offers_list and domain.SOCKET_UNIT in report["files"]:
            command = ("systemctl", "disable", "--quiet", "--now", domain.LIST_SOCKET)
            self.host.change(f"stop {domain.LIST_SOCKET}", *command)
        tls_files = domain.TLS_FILES.values()
        changed = {
            path
            for path, (text, mode) in self._files(offer, report).items()
            if self._write(path, text, mode, secret=path in tls_files)
        }
        if install and offer:
            installing.install(self.host, offer)
        self._write_config(observed)
        if self.desired.runs_service:
            self._write_list(generation, old)
        else:
            self._remove_list(old)
        if old and old.get("nodes", self.desired.nodes_path) != self.desired.nodes_path:
            self._write(old["nodes"], None)
        self._set_units(report, any(path.startswith("/etc/systemd/system/") for path in self.host.before))
        if self.desired.owner == domain.JOB:
            job_host.write(job_files, self.host)
            findings += job_host.uncalled(self.desired, slurm)
        self._channels(old.get("channels", []) if old else [], observed["channels"])
        if self.desired.manage_firewall:
            firewall.apply(self.host, self.desired.ports_to_open, report["firewall"])
        if domain.MODPROBE in changed:
            self._rebuild_initramfs(report["programs"])
        reboot = domain.reboot_needed(self.desired, report["params"], domain.MODPROBE in changed)
        findings += [reboot] if reboot else []
        planned = self.desired.sha256 if self.desired.runs_service else observed["nodes"]["sha256"]
        return {
            "running": observed["running"] and not must_stop,
            "sha256": planned if self.host.check else sha256_of(self.desired.nodes_path),
            "reload": not changed.isdisjoint(tls_files) and bool(self.desired.tls),
            "findings": findings,
        }

    def _write(self, path: str, text: str | None, mode: int = domain.PLAIN_MODE, secret: bool = False) -> bool:
        """Whether the content of the file changed."""
        data = None if text is None else text.encode("utf-8", "surrogateescape")
        return self.host.file(path, data, mode=mode, secret=secret)

    def _stop(self, observed: Facts) -> None:
        stopped = self.host.change(
            f"stop {survey.UNIT}", "systemctl", "stop", survey.UNIT, timeout=packages.STOP_SECONDS
        )
        if not stopped:
            return
        pids = {entry["pid"] for entry in observed["owners"] if entry["owner"] == "service"}
        left = [process["pid"] for process in processes() if process["pid"] in pids]
        if left:
            raise HostError(f"{survey.UNIT} was stopped, but its process {left[0]} still runs; reboot the tray.")

    def _switch_off(self, observed: Facts) -> None:
        """Stop a unit that is starting or failed, and remove the files that a stopped daemon leaves."""
        # Between two attempts of systemd to start it, the unit is neither running nor stopped.
        unit: Unit = observed["unit"] or {}
        if not observed["running"] and unit.get("active") in ("activating", "failed"):
            command = ("systemctl", "stop", survey.UNIT)
            if self.host.change(f"stop {survey.UNIT}", *command, timeout=packages.STOP_SECONDS):
                self.host.call("systemctl", "reset-failed", survey.UNIT, acts=True)
        if self.desired.owner in (domain.NONE, domain.DRIVER):
            for path in (formats.PERSIST_FILE, domain.HOST_SOCKET):
                self._write(path, None)

    def _write_config(self, observed: Facts) -> None:
        """Write config.cfg; under driver_managed and none only where it names the role's TLS files, which go."""
        has_list = self.desired.owner in domain.LIST_OWNERS
        is_used = has_list or not set(domain.TLS_FILES.values()).isdisjoint(observed["config"]["settings"].values())
        if self.desired.config and is_used:
            self._write(formats.CONFIG_FILE, self.desired.config)

    def _write_list(self, generation: int, old: boot.Record | None) -> None:
        record = domain.render_record(self.desired, generation, old, time.time())
        text = formats.render_nodes(self.desired.entries)
        if not self.host.check and atomic.read_text(self.desired.nodes_path) != text:
            # Without its approval, a tray that crashes now does not start with half a change.
            with contextlib.suppress(FileNotFoundError):
                atomic.remove(domain.START_APPROVAL)
        self._write(self.desired.nodes_path, text)
        self._write(formats.RECORD_FILE, record)
        for texts in (self.host.before, self.host.after):
            # In --diff alone: by the time when each tray wrote it, no two records would be equal.
            if formats.RECORD_FILE in texts:
                texts[formats.RECORD_FILE] = re.sub(r'("since": )[0-9.]+', r'\1"its time"', texts[formats.RECORD_FILE])

    def _remove_list(self, old: boot.Record | None) -> None:
        self._write(formats.RECORD_FILE, None)
        self._write(domain.START_APPROVAL, None)
        of_domain = old is not None and old.get("owner") != domain.JOB
        if self.desired.owner == domain.NONE or (self.desired.owner == domain.JOB and of_domain):
            # A manual start could use the old list, because the check at boot is gone. With owner job, a list without a
            # record of a domain is that of a running job.
            self._write(self.desired.nodes_path, None)

    def _set_units(self, report: Report, changed: bool) -> None:
        if changed and not self.host.check:
            self.host.require("systemctl", "daemon-reload")
        for change in self._unit_changes(report["facts"] if self.host.check else self.facts()):
            verb, unit = change.split()
            if verb == "mask" and not self.host.check:
                self.host.call("systemctl", "disable", "--quiet", unit, acts=True)
                self.host.call("systemctl", "stop", unit, timeout=packages.STOP_SECONDS, acts=True)
            self.host.change(change, "systemctl", verb, "--quiet", unit)
        current = domain.SOCKET_UNIT not in self.host.before and report["socket"]
        enable = ("systemctl", "enable", "--quiet", domain.LIST_SOCKET)
        if self.desired.offers_list and not current and self.host.change(f"start {domain.LIST_SOCKET}", *enable):
            self.host.require("systemctl", "restart", domain.LIST_SOCKET)
        if not self.desired.tls and not self.host.check:
            _remove_folder(domain.TLS_FOLDER)
        if not self.desired.offers_list and not self.host.check:
            for path in (os.path.dirname(domain.DROP_IN), os.path.dirname(domain.START_APPROVAL)):
                _remove_folder(path)

    def _channels(self, old: Sequence[int], observed: Channels) -> None:
        """Create the devices of the desired channels with the major of this boot; remove those of an earlier run."""
        for minor in sorted(set(old) - set(self.desired.channels)):
            self._write(f"{boot.CHANNELS}/channel{minor}", None)
        major = observed["major"]
        if major is None:
            return
        minors = [
            minor
            for minor in self.desired.channels
            if {"name": f"channel{minor}", "major": major, "minor": minor, "mode": "0666"} not in observed["devices"]
        ]
        if not self.host.check:
            actions.record(*(f"make {boot.CHANNELS}/{name}" for name in boot.make_channels(minors, major)))
        self.host.changes += [f"create channel{minor}" for minor in minors]

    def _rebuild_initramfs(self, programs: Sequence[str]) -> None:
        """Rebuild the initramfs, because the driver may be loaded from there with its old options."""
        for command in (["update-initramfs", "-u"], ["dracut", "--force"]):
            if command[0] in programs:
                self.host.change(
                    f"run {' '.join(command)}", *command, timeout=packages.INSTALL_SECONDS, large_files=True
                )
                return


def _remove_folder(path: str) -> None:
    """Remove a folder if it is empty."""
    with contextlib.suppress(OSError):
        os.rmdir(path)
        actions.record(f"remove {path}")


def sha256_of(path: str) -> str | None:
    text = atomic.read_text(path)
    return None if text is None else formats.digest(text)
