# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases inspect and stop_and_write of an IMEX change on this tray; starting.py has start and wait.

domain.py has the desired state. A phase reads nothing from other trays but the records that members offer and, where a
peer is not connected, its ports; so no phase waits for the same phase on another tray. Every call of a program has a
time limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, own_source
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, HostError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import (
    assembly,
    boot,
    domain,
    firewall,
    formats,
    installing,
    job_host,
    packages,
    slurm_conf,
    slurm_jobs,
    survey,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts, Row, Unit
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.processes import processes
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import state

# For one call of a program.
SECONDS = 30.0
PYTHON = "/usr/bin/python3"
PARAMS = "/proc/driver/nvidia/params"


class Tray:
    """One tray and its desired state."""

    def __init__(self, desired: domain.DesiredState, ctl_timeout: float = 10.0, check: bool = False) -> None:
        self.desired, self.ctl_timeout, self.check = desired, ctl_timeout, check
        self.host = Host(check, SECONDS)

    def facts(self) -> Facts:
        read = survey.survey(timeout=self.ctl_timeout, proc_devices=self.desired.proc_devices)
        if self.desired.owner != domain.JOB or (read["processes"] and state.read_state() is None):
            # stop_and_write removes it; or it has not started this daemon.
            others = [path for path in read["prolog_files"] if os.path.basename(path) != survey.JOB_PROLOG]
            read["prolog_files"] = others
        return assembly.assemble(read)

    # --- inspect: what the decision for the clique needs, and findings that block it. Changes nothing.

    def inspect(self, outside: Sequence[str], slurm_nodes: Sequence[str], allow_jobs: bool) -> Row:
        """The row of the phase inspect.

        ``outside``: lines of members that this run does not reach. ``slurm_nodes``: the clique's nodes, whose jobs are
        looked up where the daemon must stop.
        """
        observed = self.facts()
        findings = job_host.findings_of(self.desired, allow_jobs)
        findings += domain.findings_of(self.desired, observed)
        if self.desired.entries and not boot.is_local(self.desired.own):
            findings.append(host_finding("imex_no_own_address", "desired", address=self.desired.own))
        offer, missing = installing.offer_for(self.host, self.desired, observed)
        findings += missing
        if self.desired.channels and slurm_conf.gives_channels(slurm_conf.read()[1], observed["channels"]["major"]):
            findings.append(host_finding("imex_channel_slurm_conflict", devices="those of option channels"))
        difference = self._difference(observed, offer)
        must_stop = observed["running"] and bool(difference.restart_clique or difference.restart or difference.stop)
        record = read_record()
        if must_stop and not allow_jobs:
            jobs, unknown = slurm_jobs.running_on(slurm_nodes)
            if jobs or unknown:
                findings.append(
                    slurm_jobs.blocking_finding(jobs, unknown, [*difference.restart_clique, *difference.restart])
                )
        # Without a domain that it is in or comes to, a tray has no peers.
        asks = self.desired.owner in domain.LIST_OWNERS or record is not None or difference.stop
        approval = f"{record['generation']} {record['sha256']}\n" if record else None
        pending, change_findings = self._pending(observed, offer, record) if not missing else ([], [])
        waits = self.desired.channel_count and any("ImexChannelCount" in str(row["values"]) for row in change_findings)
        if self.desired.channels and observed["channels"]["major"] is None and not waits:
            findings.append(host_finding("imex_channels_not_offered"))
        return {
            "facts": observed,
            "running": observed["running"],
            "approved": approval is not None and atomic.read_text(domain.START_APPROVAL) == approval,
            "pending": pending,
            "restart_clique": difference.restart_clique,
            "sha256": observed["nodes"]["sha256"],
            "record": record and _of_decision(record),
            "peers": boot.query(list(outside), self.desired.list_port) if outside and asks else {},
            "findings": [*findings, *change_findings],
        }

    def _pending(
        self, observed: Facts, offer: packages.Offer | None, record: boot.Record | None
    ) -> tuple[list[str], list[HostFinding]]:
        """(changes, findings) of stop_and_write on this tray, with the record as it is."""
        dry_run = Tray(self.desired, self.ctl_timeout, check=True)
        found = dry_run.stop_and_write(record["generation"] if record else 0, False, observed, offer)
        uncalled = job_host.uncalled(self.desired)
        # stop_and_write reports them after it has written the files that slurm.conf must name.
        changes = [*dry_run.host.changes, *(f"the findings on slurm.conf ({entry['code']})" for entry in uncalled)]
        return changes, [entry for entry in found["findings"] if entry not in uncalled]

    def _difference(self, observed: Facts, offer: packages.Offer | None) -> domain.Difference:
        return domain.difference(self.desired, observed, atomic.read_text(formats.CONFIG_FILE), offer)

    def _files(self, offer: packages.Offer | None) -> dict[str, tuple[str | None, int]]:
        program = _program() if self.desired.runs_service else ""
        return domain.files_of(self.desired, program, offer if shutil.which("apt-get") else None)

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
        generation: int,
        stop: bool,
        observed: Facts | None = None,
        offer: packages.Offer | None = None,
        allow_jobs: bool = False,
    ) -> Row:
        """The row of the phase stop_and_write. ``observed``, ``offer``: where the caller has just read them."""
        findings: list[HostFinding] = []
        if observed is None:
            observed = self.facts()
            offer, missing = installing.offer_for(self.host, self.desired, observed)
            if missing:
                raise job_host.Blocked(missing[0])
        difference = self._difference(observed, offer)
        install = offer is not None and (observed["package"] or {}) != offer._asdict()
        must_stop = observed["running"] and (
            stop or bool(difference.restart_clique or difference.restart or difference.stop)
        )
        old = read_record()
        if install and offer:
            installing.fetch(self.host, offer)
        job_files = job_host.files_of(self.desired, generation)
        if self.desired.owner != domain.JOB:
            job_host.leave(self.desired, job_files, self.host, allow_jobs)
        elif must_stop and not allow_jobs and not self.check:
            job_host.forbid_jobs()
        if must_stop:
            self._stop(observed)
        if not self.desired.runs_service:
            self._switch_off(observed)
        if not self.desired.offers_list and os.path.exists(domain.SOCKET_UNIT):
            command = ("systemctl", "disable", "--quiet", "--now", domain.LIST_SOCKET)
            self.host.change(f"stop {domain.LIST_SOCKET}", *command)
        desired_files = self._files(offer)
        modprobe_changed = atomic.read_text(domain.MODPROBE) != desired_files[domain.MODPROBE][0]
        tls_changed = any(atomic.read_text(path) != desired_files[path][0] for path in domain.TLS_FILES.values())
        for path, (text, mode) in desired_files.items():
            self._write(path, text, mode, secret=path in domain.TLS_FILES.values())
        if install and offer:
            installing.install(self.host, offer)
        self._write_config()
        if self.desired.runs_service:
            self._write_list(generation)
        else:
            self._remove_list(old)
        if old and old.get("nodes", self.desired.nodes_path) != self.desired.nodes_path:
            self._write(old["nodes"], None)
        self._set_units(observed, any(path.startswith("/etc/systemd/system/") for path in self.host.before))
        if self.desired.owner == domain.JOB:
            job_host.write(job_files, self.host)
            findings += job_host.uncalled(self.desired)
        self._channels(old.get("channels", []) if old else [])
        if self.desired.manage_firewall:
            firewall.apply(self.host, self.desired.ports_to_open)
        if modprobe_changed:
            self._rebuild_initramfs()
        reboot = domain.reboot_needed(self.desired, atomic.read_text(PARAMS), modprobe_changed)
        findings += [reboot] if reboot else []
        sha256 = self.desired.sha256 if self.check and self.desired.runs_service else sha256_of(self.desired.nodes_path)
        return {
            "running": observed["running"] and not must_stop,
            "sha256": sha256,
            "reload": tls_changed and bool(self.desired.tls),
            "findings": findings,
        }

    def _write(self, path: str, text: str | None, mode: int = domain.PLAIN_MODE, secret: bool = False) -> None:
        data = None if text is None else text.encode("utf-8", "surrogateescape")
        self.host.file(path, data, mode=mode, secret=secret)

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
                self.host.call("systemctl", "reset-failed", survey.UNIT)
        if self.desired.owner in (domain.NONE, domain.DRIVER):
            for path in (formats.PERSIST_FILE, domain.HOST_SOCKET):
                self._write(path, None)

    def _write_config(self) -> None:
        """Write config.cfg; under driver_managed and none only where it names the role's TLS files, which go."""
        present = atomic.read_text(formats.CONFIG_FILE) or ""
        has_list = self.desired.owner in domain.LIST_OWNERS
        is_used = has_list or any(path in present for path in domain.TLS_FILES.values())
        if self.desired.config and is_used:
            self._write(formats.CONFIG_FILE, self.desired.config)

    def _write_list(self, generation: int) -> None:
        record = domain.render_record(self.desired, generation, read_record(), time.time())
        text = formats.render_nodes(self.desired.entries)
        if atomic.read_text(self.desired.nodes_path) != text and not self.check:
            # Without its approval, a tray that crashes now does not start with half a change.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(domain.START_APPROVAL)
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

    def _set_units(self, observed: Facts, changed: bool) -> None:
        if changed and not self.check:
            self.host.require("systemctl", "daemon-reload")
        for change in self._unit_changes(self.facts() if not self.check else observed):
            verb, unit = change.split()
            if verb == "mask" and not self.check:
                self.host.call("systemctl", "disable", "--quiet", unit)
                self.host.call("systemctl", "stop", unit, timeout=packages.STOP_SECONDS)
            self.host.change(change, "systemctl", verb, "--quiet", unit)
        current = domain.SOCKET_UNIT not in self.host.before and self.host.is_active(domain.LIST_SOCKET)
        enable = ("systemctl", "enable", "--quiet", domain.LIST_SOCKET)
        if self.desired.offers_list and not current and self.host.change(f"start {domain.LIST_SOCKET}", *enable):
            self.host.require("systemctl", "restart", domain.LIST_SOCKET)
        if not self.desired.tls and not self.check:
            with contextlib.suppress(OSError):
                os.rmdir(domain.TLS_FOLDER)
        if not self.desired.offers_list and not self.check:
            for path in (os.path.dirname(domain.DROP_IN), os.path.dirname(domain.START_APPROVAL)):
                with contextlib.suppress(OSError):
                    os.rmdir(path)

    def _channels(self, old: Sequence[int]) -> None:
        """Create the devices of the desired channels with the major of this boot; remove those of an earlier run."""
        for minor in sorted(set(old) - set(self.desired.channels)):
            self._write(f"{boot.CHANNELS}/channel{minor}", None)
        major = boot.major_of_channels(self.desired.proc_devices)
        if major is None or not self.desired.channels:
            return
        made = boot.make_channels(list(self.desired.channels), major, self.check)
        self.host.changes += [f"create {name}" for name in made]

    def _rebuild_initramfs(self) -> None:
        """Rebuild the initramfs, because the driver may be loaded from there with its old options."""
        for command in (["update-initramfs", "-u"], ["dracut", "--force"]):
            if shutil.which(command[0]):
                self.host.change(
                    f"run {' '.join(command)}", *command, timeout=packages.INSTALL_SECONDS, large_files=True
                )
                return


def _program() -> str:
    """The text of the check at boot, by the system's Python: that of Ansible may be removed later."""
    if not os.path.exists(PYTHON):
        raise formats.ImexError(f"The check at boot runs by {PYTHON}, which this tray lacks; install python3 there.")
    source = own_source.read(boot.__name__)
    if source is None:
        raise formats.ImexError(
            "the source of the check at boot cannot be read; run the role without a module compiler."
        )
    return f"#!{PYTHON} -I\n{source}"


def read_record() -> boot.Record | None:
    """The record of the clique's list, or of its members for jobs: its generation goes on under another owner."""
    return boot.read_record(formats.RECORD_FILE) or boot.read_record(state.SETTINGS_FILE)


def _of_decision(record: boot.Record) -> boot.Record:
    """What the decision for the clique uses of a record."""
    clique, generation, sha256 = record["clique"], record["generation"], record["sha256"]
    return {"clique": clique, "generation": generation, "sha256": sha256, "owner": record.get("owner", "")}


def sha256_of(path: str) -> str | None:
    text = atomic.read_text(path)
    return None if text is None else formats.digest(text)
