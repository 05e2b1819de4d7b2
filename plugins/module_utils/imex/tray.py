# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first two phases of a change of IMEX on this tray, look and stop_and_write; starting.py has start and wait.

What is wanted comes from domain.py. Nothing in a phase looks at another tray, but for the records that members offer
and, where a peer is not seen, its ports: so no phase waits for what the same phase has still to do elsewhere. Every
call of a program is bounded in time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, own_source
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import (
    boot,
    disk,
    domain,
    facts,
    files,
    firewall,
    installing,
    packages,
    processes,
    slurm_conf,
    slurm_jobs,
    survey,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.host_changes import (
    INSTALL_SECONDS,
    SECONDS,
    STOP_SECONDS,
    HostChanges,
    TrayError,
)

PARAMS = "/proc/driver/nvidia/params"
CHANNELS = survey.CHANNELS


class Tray:
    """One tray under the module's options."""

    def __init__(self, want: domain.Wanted, ctl_timeout: float = 10.0, check: bool = False) -> None:
        self.want, self.ctl_timeout, self.check = want, ctl_timeout, check
        self.hands = HostChanges(check)

    def facts(self) -> dict[str, Any]:
        read = survey.survey(timeout=self.ctl_timeout, proc_devices=self.want.proc_devices)
        return facts.assemble(read)

    # --- look: everything that the decision for the clique needs, and what stops it. Changes nothing.

    def look(self, ask: Sequence[str], slurm_nodes: Sequence[str], allow_jobs: bool) -> dict[str, Any]:
        """``ask``: members that this run does not reach. ``slurm_nodes``: the clique's, asked for jobs if need be."""
        seen = self.facts()
        driver = self.want.version or seen["driver_version"]
        notes = domain.findings_of(self.want, seen, None, driver)
        offer, missing = installing.offer_for(self.want, seen, driver, self.check)
        notes += missing
        if self.want.channels and slurm_conf.gives_channels():
            notes.append(domain.channels_in_vain())
        gap = self._gap(seen, offer)
        must_stop = seen["running"] and bool(gap.restart_clique or gap.restart or gap.stop)
        record = read_record()
        jobs: list[str] = []
        if must_stop and not allow_jobs:
            jobs, unknown = slurm_jobs.running_on(slurm_nodes)
            if jobs or unknown:
                notes.append(slurm_jobs.in_the_way(jobs, unknown, [*gap.restart_clique, *gap.restart]))
        approval = f"{record['generation']} {record['sha256']}\n" if record else None
        pending, noticed = self._pending(seen, offer, record) if not missing else ([], [])
        return {
            "facts": seen,
            "running": seen["running"],
            "approved": approval is not None and disk.read_text(domain.START_APPROVAL) == approval,
            "pending": pending,
            "restart_clique": gap.restart_clique,
            "restart": gap.restart,
            "changes": gap.changes,
            "jobs": jobs,
            "sha256": seen["nodes"]["sha256"],
            "record": record,
            "peers": boot.ask(list(ask), self.want.list_port) if ask and self.want.runs_service else {},
            "findings": [*notes, *noticed],
        }

    def _pending(
        self, seen: dict[str, Any], offer: packages.Offer | None, record: Mapping[str, Any] | None
    ) -> tuple[list[str], list[dict[str, Any]]]:
        """What stop_and_write would do and find here with the record as it is."""
        trial = Tray(self.want, self.ctl_timeout, check=True)
        known = record or {"generation": 0, "outdated": []}
        found = trial.stop_and_write(known["generation"], known.get("outdated") or [], False, seen, offer)
        return trial.hands.done, found["findings"]

    def _gap(self, seen: Mapping[str, Any], offer: packages.Offer | None) -> domain.Gap:
        then = self._files(offer)
        now = {path: disk.read_text(path) for path in then}
        gap = domain.gap(self.want, seen, disk.read_text(files.CONFIG_FILE), now, then, offer)
        gap.changes += self._unit_changes(seen)
        return gap

    def _files(self, offer: packages.Offer | None) -> dict[str, tuple[str | None, int]]:
        pin = offer if shutil.which("apt-get") else None
        return domain.files_of(self.want, _program(), boot.major_of_channels(self.want.proc_devices), pin)

    def _unit_changes(self, seen: Mapping[str, Any]) -> list[str]:
        """What systemd must be told, in words; without a unit (nothing installed) there is only the mask."""
        unit = seen["unit"] or {}
        enabled = unit.get("enabled") or ""
        masked = unit.get("load") == "masked" or enabled.startswith("masked")
        changes = []
        if self.want.owner == domain.DRIVER:
            if not masked:
                changes.append(f"mask {survey.UNIT}")
            return changes
        if masked:
            changes.append(f"unmask {survey.UNIT}")
        if self.want.runs_service and enabled != "enabled":
            changes.append(f"enable {survey.UNIT}")
        elif not self.want.runs_service and enabled.startswith("enabled"):
            changes.append(f"disable {survey.UNIT}")
        return changes

    # --- stop_and_write: the daemon down where it must be, every file as wanted, nothing started.

    def stop_and_write(
        self,
        generation: int,
        outdated: Sequence[str],
        stop: bool,
        seen: dict[str, Any] | None = None,
        offer: packages.Offer | None = None,
    ) -> dict[str, Any]:
        """``seen`` and ``offer`` where the caller has just read them."""
        notes: list[dict[str, Any]] = []
        if seen is None:
            seen = self.facts()
            offer, missing = installing.offer_for(
                self.want, seen, self.want.version or seen["driver_version"], self.check
            )
            if missing:
                raise TrayError(missing[0]["message"])
        gap = self._gap(seen, offer)
        install = offer is not None and (seen["package"] or {}) != offer._asdict()
        must_stop = seen["running"] and (stop or bool(gap.restart_clique or gap.restart or gap.stop))
        old_channels = domain.channels_of_tmpfiles(disk.read_text(domain.TMPFILES))
        if install and offer:
            installing.fetch(self.hands, offer)
        if must_stop:
            self._stop(seen)
        if not self.want.runs_service:
            self._switch_off(seen)
        then = self._files(offer)
        modprobe_changed = disk.read_text(domain.MODPROBE) != then[domain.MODPROBE][0]
        tls_changed = any(disk.read_text(path) != then[path][0] for path in domain.TLS_FILES.values())
        for path, (text, mode) in then.items():
            self.hands.write(path, text, mode, secret=path in domain.TLS_FILES.values())
        if install and offer:
            installing.install(self.hands, offer)
        self._write_config()
        if self.want.runs_service:
            self._write_list(generation, outdated)
        else:
            self._forget_list()
        self._set_units(seen, any(_is_unit(path) for path in self.hands.before))
        self._channels(old_channels)
        if self.want.manage_firewall:
            firewall.settle(self.hands, self.want.ports_to_open)
        if modprobe_changed:
            self._rebuild_initramfs()
        note = domain.reboot_needed(self.want, disk.read_text(PARAMS), modprobe_changed)
        notes += [note] if note else []
        if self.want.owner == domain.DRIVER and not self.check:
            notes += processes.strangers()
        sha256 = self.want.sha256 if self.check and self.want.runs_service else sha256_of(self.want.nodes_path)
        if self.want.runs_service and sha256 != self.want.sha256:
            raise TrayError(
                f"{self.want.nodes_path} was written and reads back as another list; find what else writes that file"
                " on this tray."
            )
        return {
            "running": seen["running"] and not must_stop,
            "sha256": sha256,
            "reload": tls_changed and bool(self.want.tls),
            "findings": notes,
        }

    def _stop(self, seen: Mapping[str, Any]) -> None:
        self.hands.tell(f"stop {survey.UNIT}")
        if self.check:
            return
        self.hands.systemctl("stop", survey.UNIT, seconds=STOP_SECONDS)
        pids = [entry["pid"] for entry in seen["owners"] if entry["owner"] == "service" and entry["pid"]]
        if any(os.path.exists(f"/proc/{pid}/exe") and processes.name(pid) == survey.DAEMON for pid in pids):
            raise TrayError(f"{survey.UNIT} was stopped and its process {pids[0]} still runs; reboot the tray.")

    def _switch_off(self, seen: Mapping[str, Any]) -> None:
        """What a clean stop leaves, and an unclean one: no owner after this one may find it."""
        # In the middle of its tries to start it is neither running nor off.
        if not seen["running"] and (seen["unit"] or {}).get("active") in ("activating", "failed"):
            self.hands.tell(f"stop {survey.UNIT}")
            if not self.check:
                self.hands.systemctl("stop", survey.UNIT, seconds=STOP_SECONDS)
                child.run(["systemctl", "reset-failed", survey.UNIT], SECONDS)
        if self.want.owner in (domain.NONE, domain.DRIVER):
            for path in (files.PERSIST_FILE, domain.HOST_SOCKET):
                if os.path.lexists(path):
                    self.hands.write(path, None, 0)

    def _write_config(self) -> None:
        """Under driver_managed and none config.cfg is left alone, but for the TLS files that go."""
        text = disk.read_text(files.CONFIG_FILE)
        if text is None and not self.check and not self.want.leaves_config:
            raise TrayError(f"{files.CONFIG_FILE} is missing, which the package brings; reinstall nvidia-imex.")
        config = files.Config(text or "")
        if self.want.leaves_config:
            values = domain.without_own_tls(config)
        else:
            values = {key: self.want.settings[key] for key in domain.changed_keys(config, self.want.settings)}
        if values:
            self.hands.write(files.CONFIG_FILE, config.changed(values).text, domain.PLAIN_MODE)

    def _write_list(self, generation: int, outdated: Sequence[str]) -> None:
        record = domain.render_record(self.want, generation, outdated)
        if disk.read_text(self.want.nodes_path) == self.want.text and disk.read_text(files.RECORD_FILE) == record:
            return
        if disk.read_text(self.want.nodes_path) != self.want.text and not self.check:
            # Not approved from here on: a crash in between must not start half a change.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(domain.START_APPROVAL)
        self.hands.write(self.want.nodes_path, self.want.text, domain.PLAIN_MODE)
        self.hands.write(files.RECORD_FILE, record, domain.PLAIN_MODE)

    def _forget_list(self) -> None:
        ours = os.path.lexists(files.RECORD_FILE)
        self.hands.write(files.RECORD_FILE, None, 0)
        self.hands.write(domain.START_APPROVAL, None, 0)
        if self.want.owner == domain.NONE or (self.want.owner == domain.JOB and ours):
            # Without the check nothing would keep a start by hand from using an old list. Where a prolog is the owner
            # a list without a record is that of a running job.
            self.hands.write(self.want.nodes_path, None, 0)

    def _set_units(self, seen: Mapping[str, Any], changed: bool) -> None:
        if changed and not self.check:
            self.hands.systemctl("daemon-reload")
        for words in self._unit_changes(self.facts() if not self.check else seen):
            self.hands.tell(words)
            if not self.check:
                verb, unit = words.split()
                if verb == "mask":
                    child.run(["systemctl", "disable", "--quiet", unit], SECONDS)
                    self.hands.systemctl("stop", unit, seconds=STOP_SECONDS, may_fail=True)
                self.hands.systemctl(verb, "--quiet", unit)
        active = child.run(["systemctl", "is-active", domain.LIST_SOCKET], SECONDS).stdout.strip() == "active"
        if self.want.runs_service and (not active or domain.SOCKET_UNIT in self.hands.before):
            self.hands.tell(f"start {domain.LIST_SOCKET}")
            if not self.check:
                self.hands.systemctl("enable", "--quiet", domain.LIST_SOCKET)
                self.hands.systemctl("restart", domain.LIST_SOCKET)
        elif not self.want.runs_service and active:
            self.hands.tell(f"stop {domain.LIST_SOCKET}")
            if not self.check:
                child.run(["systemctl", "stop", domain.LIST_SOCKET], SECONDS)
        if not self.want.tls and not self.check:
            with contextlib.suppress(OSError):
                os.rmdir(domain.TLS_FOLDER)
        if not self.want.runs_service and not self.check:
            # The unit's file has gone by now, and with it disable's knowledge of where its link is.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"/etc/systemd/system/sockets.target.wants/{domain.LIST_SOCKET}")
            for path in (os.path.dirname(domain.DROP_IN), os.path.dirname(domain.START_APPROVAL)):
                with contextlib.suppress(OSError):
                    os.rmdir(path)

    def _channels(self, old: set[int]) -> None:
        """Devices of the wanted channels, with the major of this boot; those of an earlier wish go."""
        for minor in sorted(old - set(self.want.channels)):
            self.hands.write(f"{CHANNELS}/channel{minor}", None, 0)
        major = boot.major_of_channels(self.want.proc_devices)
        if major is None or not self.want.channels:
            return
        if self.check:
            missing = [n for n in self.want.channels if not _is_channel(f"{CHANNELS}/channel{n}", major, n)]
            self.hands.done += [f"make channel{minor}" for minor in missing]
        else:
            self.hands.done += [f"make {name}" for name in boot.make_channels(list(self.want.channels), major)]

    def _rebuild_initramfs(self) -> None:
        """The module may be loaded from there, with the options of when it was made."""
        for command in (["update-initramfs", "-u"], ["dracut", "--force"]):
            if shutil.which(command[0]):
                self.hands.tell(f"run {' '.join(command)}")
                if not self.check:
                    self.hands.must(command, INSTALL_SECONDS, "the initramfs cannot be rebuilt")
                return


def _program() -> str:
    """The boot check as a program of this tray, with the interpreter that runs this module."""
    source = own_source.read(boot.__name__)
    if source is None:
        raise files.ImexError(
            "the source of the boot check cannot be read here; run the role without a module compiler."
        )
    return f"#!{sys.executable or '/usr/bin/python3'} -I\n{source}"


def _is_unit(path: str) -> bool:
    return path.startswith("/etc/systemd/system/")


def _is_channel(path: str, major: int, minor: int) -> bool:
    try:
        seen = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISCHR(seen.st_mode) and seen.st_rdev == os.makedev(major, minor) and stat.S_IMODE(seen.st_mode) == 0o666
    )


def read_record() -> dict[str, Any] | None:
    found: dict[str, Any] | None = boot.read_record(files.RECORD_FILE)
    return found


def sha256_of(path: str) -> str | None:
    text = disk.read_text(path)
    return None if text is None else files.digest(text)
