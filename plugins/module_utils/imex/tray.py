# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX on this tray, changed phase by phase: look, stop_and_write, start, wait. What is wanted comes from domain.py.

Nothing here looks at another tray, but for the records that members offer and, where a peer is not seen, its ports: so
no phase waits for what the same phase has still to do elsewhere. Every call of a program is bounded in time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, own_source
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import (
    boot,
    disk,
    domain,
    facts,
    files,
    firewall,
    packages,
    slurm_conf,
    survey,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.hands import (
    INSTALL_SECONDS,
    SECONDS,
    Hands,
    TrayError,
    unpack,
)

PARAMS = "/proc/driver/nvidia/params"
CHANNELS = survey.CHANNELS
# systemd ends a daemon that is deaf to SIGTERM after 90 s.
_STOP_SECONDS = 120.0
_PORT_SECONDS = 1.5
# The daemon heeds SIGUSR1 once in 5 s.
_CALL_SECONDS = 6.0
_NO_SLURM = ("configuration source", "Unable to process configuration", "No such file")


class Tray:
    """One tray under the module's options."""

    def __init__(self, want: domain.Wanted, ctl_timeout: float = 10.0, check: bool = False) -> None:
        self.want, self.ctl_timeout, self.check = want, ctl_timeout, check
        self.hands = Hands(check)

    def facts(self) -> dict[str, Any]:
        read = survey.survey(timeout=self.ctl_timeout, proc_devices=self.want.proc_devices)
        return facts.assemble(read)

    # --- look: everything that the decision for the clique needs, and what stops it. Changes nothing.

    def look(self, ask: Sequence[str], slurm_nodes: Sequence[str], allow_jobs: bool) -> dict[str, Any]:
        """``ask``: members that this run does not reach. ``slurm_nodes``: the clique's, asked for jobs if need be."""
        seen = self.facts()
        driver = self.want.version or seen["driver_version"]
        notes = domain.findings_of(self.want, seen, None, driver)
        offer, missing = self._offer(seen, driver)
        notes += missing
        if self.want.channels and slurm_conf.gives_channels():
            notes.append(domain.channels_in_vain())
        gap = self._gap(seen, offer)
        must_stop = seen["running"] and bool(gap.restart_clique or gap.restart or gap.stop)
        record = read_record()
        jobs: list[str] = []
        if must_stop and not allow_jobs:
            jobs, unknown = running_jobs(slurm_nodes)
            if jobs or unknown:
                notes.append(_jobs_finding(jobs, unknown, [*gap.restart_clique, *gap.restart]))
        blessing = f"{record['generation']} {record['sha256']}\n" if record else None
        pending, noticed = self._pending(seen, offer, record) if not missing else ([], [])
        return {
            "facts": seen,
            "running": seen["running"],
            "blessed": blessing is not None and disk.read_text(domain.BLESSING) == blessing,
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

    def _offer(self, seen: Mapping[str, Any], driver: str | None) -> tuple[packages.Offer | None, list[dict[str, Any]]]:
        """The package to have, None where none is managed; and the finding where there is none to be had."""
        owners = (*domain.SERVICE_OWNERS, domain.JOB)
        if self.want.owner not in owners or not driver:
            return None, []
        has = seen["package"]
        if has and packages.matches(has["version"], driver) and self.want.package in ("", has["name"]):
            return packages.Offer(has["name"], has["version"]), []
        if not self.want.manage_package:
            if seen["installed"] and seen["version"] == driver:
                return None, []
            said = f"{seen['version']} is installed" if seen["installed"] else "nvidia-imex is not installed"
            return None, [
                finding(
                    "imex_version_mismatch",
                    f"{said} and the driver is {driver}; install that version, or let the role do it with"
                    " imex_manage_package.",
                )
            ]
        offers = self._offers(driver)
        chosen = packages.choose(offers, driver, has["name"] if has else None, self.want.package)
        if chosen is None and shutil.which("apt-get"):
            # The lists of packages may be older than the repository.
            offers = self._fresh_offers(driver)
            chosen = packages.choose(offers, driver, has["name"] if has else None, self.want.package)
        if chosen is None:
            return None, [domain.missing_package(driver, offers, self.want.package)]
        return chosen, []

    def _offers(self, driver: str, *options: str) -> list[packages.Offer]:
        names = packages.names(driver, self.want.package)
        if shutil.which("apt-cache"):
            command = ["apt-cache", *options, "madison", *names]
            return packages.parse_madison(unpack(command, SECONDS).stdout)
        if shutil.which("dnf"):
            question = ["dnf", "--quiet", "repoquery", "--qf", "%{name} %{version}-%{release}\\n", *names]
            return packages.parse_repoquery(unpack(question).stdout)
        return []

    def _fresh_offers(self, driver: str) -> list[packages.Offer]:
        """After apt-get update; in check mode into lists of its own, which are thrown away."""
        with tempfile.TemporaryDirectory(prefix="nvlink-imex-") as folder:
            options = []
            if self.check:
                os.mkdir(f"{folder}/partial")
                options = [
                    f"--option=Dir::State::Lists={folder}",
                    "--option=Dir::Cache::pkgcache=",
                    "--option=Dir::Cache::srcpkgcache=",
                ]
            unpack(["apt-get", "--quiet=2", *options, "update"])
            return self._offers(driver, *options)

    def _pending(
        self, seen: dict[str, Any], offer: packages.Offer | None, record: Mapping[str, Any] | None
    ) -> tuple[list[str], list[dict[str, Any]]]:
        """What stop_and_write would do and find here with the record as it is."""
        trial = Tray(self.want, self.ctl_timeout, check=True)
        known = record or {"generation": 0, "owing": []}
        found = trial.stop_and_write(known["generation"], known.get("owing") or [], False, seen, offer)
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
        owing: Sequence[str],
        stop: bool,
        seen: dict[str, Any] | None = None,
        offer: packages.Offer | None = None,
    ) -> dict[str, Any]:
        """``seen`` and ``offer`` where the caller has just read them."""
        notes: list[dict[str, Any]] = []
        if seen is None:
            seen = self.facts()
            offer, missing = self._offer(seen, self.want.version or seen["driver_version"])
            if missing:
                raise TrayError(missing[0]["message"])
        gap = self._gap(seen, offer)
        install = offer is not None and (seen["package"] or {}) != offer._asdict()
        must_stop = seen["running"] and (stop or bool(gap.restart_clique or gap.restart or gap.stop))
        old_channels = domain.channels_of_tmpfiles(disk.read_text(domain.TMPFILES))
        if install and offer:
            self._fetch(offer)
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
            self._install(offer)
        self._write_config()
        if self.want.runs_service:
            self._write_list(generation, owing)
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
            notes += _strangers()
        sha256 = self.want.sha256 if self.check and self.want.runs_service else _hash(self.want.nodes_path)
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
        self.hands.systemctl("stop", survey.UNIT, seconds=_STOP_SECONDS)
        pids = [entry["pid"] for entry in seen["owners"] if entry["owner"] == "service" and entry["pid"]]
        if any(os.path.exists(f"/proc/{pid}/exe") and _name(pid) == survey.DAEMON for pid in pids):
            raise TrayError(f"{survey.UNIT} was stopped and its process {pids[0]} still runs; reboot the tray.")

    def _switch_off(self, seen: Mapping[str, Any]) -> None:
        """What a clean stop leaves, and an unclean one: no owner after this one may find it."""
        # In the middle of its tries to start it is neither running nor off.
        if not seen["running"] and (seen["unit"] or {}).get("active") in ("activating", "failed"):
            self.hands.tell(f"stop {survey.UNIT}")
            if not self.check:
                self.hands.systemctl("stop", survey.UNIT, seconds=_STOP_SECONDS)
                child.run(["systemctl", "reset-failed", survey.UNIT], SECONDS)
        if self.want.owner in (domain.NONE, domain.DRIVER):
            for path in (files.PERSIST_FILE, domain.HOST_SOCKET):
                if os.path.lexists(path):
                    self.hands.write(path, None, 0)

    def _fetch(self, offer: packages.Offer) -> None:
        """Before anything is stopped: a package that cannot be had must not cost a running domain."""
        if self.check or not shutil.which("apt-get"):
            return
        command = [*packages.APT_INSTALL[:-1], "--download-only", "install", f"{offer.name}={offer.version}"]
        self.hands.must(command, INSTALL_SECONDS, f"{offer.name} {offer.version} cannot be fetched")

    def _install(self, offer: packages.Offer) -> None:
        self.hands.tell(f"install {offer.name} {offer.version}")
        if self.check:
            return
        if shutil.which("apt-get"):
            command = [*packages.APT_INSTALL, f"{offer.name}={offer.version}"]
        else:
            command = ["dnf", "--assumeyes", "--quiet", "install", f"{offer.name}-{offer.version}"]
        self.hands.must(command, INSTALL_SECONDS, f"{offer.name} {offer.version} cannot be installed")
        state = child.run(["systemctl", "is-active", survey.UNIT], SECONDS).stdout.strip()
        if state in ("active", "activating", "reloading"):
            # Packages may start what they bring; nothing starts before all members have one list.
            self.hands.systemctl("stop", survey.UNIT, seconds=_STOP_SECONDS)

    def _write_config(self) -> None:
        """Under driver_managed and none config.cfg is left alone."""
        if self.want.owner not in (*domain.SERVICE_OWNERS, domain.JOB):
            return
        text = disk.read_text(files.CONFIG_FILE)
        if text is None and not self.check:
            raise TrayError(f"{files.CONFIG_FILE} is missing, which the package brings; reinstall nvidia-imex.")
        config = files.Config(text or "")
        keys = domain.changed_keys(config, self.want.settings)
        if keys:
            changed = config.changed({key: self.want.settings[key] for key in keys})
            self.hands.write(files.CONFIG_FILE, changed.text, domain.PLAIN_MODE)

    def _write_list(self, generation: int, owing: Sequence[str]) -> None:
        record = domain.render_record(self.want, generation, owing)
        if disk.read_text(self.want.nodes_path) == self.want.text and disk.read_text(files.RECORD_FILE) == record:
            return
        if disk.read_text(self.want.nodes_path) != self.want.text and not self.check:
            # Not blessed from here on: a crash in between must not start half a change.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(domain.BLESSING)
        self.hands.write(self.want.nodes_path, self.want.text, domain.PLAIN_MODE)
        self.hands.write(files.RECORD_FILE, record, domain.PLAIN_MODE)

    def _forget_list(self) -> None:
        ours = os.path.lexists(files.RECORD_FILE)
        self.hands.write(files.RECORD_FILE, None, 0)
        self.hands.write(domain.BLESSING, None, 0)
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
                    self.hands.systemctl("stop", unit, seconds=_STOP_SECONDS, may_fail=True)
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
            for path in (os.path.dirname(domain.DROP_IN), os.path.dirname(domain.BLESSING)):
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

    # --- start

    def start(self, seconds: float, reload: bool, owing: Sequence[str]) -> dict[str, Any]:
        """Bless this list for this boot and start; nothing here waits for another member."""
        sha256 = _hash(self.want.nodes_path)
        record = read_record()
        if not self.check and (sha256 != self.want.sha256 or not record or record["sha256"] != sha256):
            raise TrayError(
                f"{self.want.nodes_path} is not the list of clique {self.want.clique}; find what else writes that file"
                " on this tray, then run the role again."
            )
        if record and list(owing) != record.get("owing"):
            self.hands.write(
                files.RECORD_FILE, domain.render_record(self.want, record["generation"], owing), domain.PLAIN_MODE
            )
        if record:
            blessing = f"{record['generation']} {record['sha256']}\n"
            self.hands.write(domain.BLESSING, blessing, domain.PLAIN_MODE, quiet=True)
        state = _unit_state()
        if state in ("active", "reloading"):
            if reload:
                self.hands.tell("reload the TLS files (SIGUSR1)")
                self._signal(signal.SIGUSR1)
            return {"started": False, "facts": None}
        self.hands.tell(f"start {survey.UNIT}")
        if self.check:
            return {"started": True, "facts": None}
        child.run(["systemctl", "reset-failed", survey.UNIT], SECONDS)
        self.hands.systemctl("start", "--no-block", survey.UNIT)
        deadline = time.monotonic() + seconds
        while True:
            time.sleep(0.2)
            state = _unit_state()
            if state == "active" or time.monotonic() >= deadline:
                break
            if state in ("failed", "inactive") and not _has_job():
                break
        if state in ("failed", "inactive"):
            seen = self.facts()
            raise _NotStarted(_why_not_started(seen), seen)
        return {"started": True, "facts": None}

    def _signal(self, number: int) -> None:
        if not self.check:
            pid = (survey._unit() or {}).get("main_pid")
            if pid:
                os.kill(pid, number)

    # --- wait

    def wait(self, seconds: float, expect: Sequence[str], call: bool) -> dict[str, Any]:
        """Until this tray is READY and sees those of the list that this run has started, at most ``seconds``.

        ``call``: this run has started this daemon, so nobody uses it yet. What it called before a peer was there it
        calls again only after 15, 31, 62, ... seconds, but at once on SIGUSR1.
        """
        called = time.monotonic()
        expected = {files.normal_address(entry) or entry.lower() for entry in expect}
        deadline = time.monotonic() + seconds
        pause = 0.3
        while True:
            seen = self.facts()
            blind = [
                peer["host"]
                for peer in seen["peers"]
                if (files.normal_address(peer["host"]) or peer["host"].lower()) in expected
                and peer["connection"] != "connected"
            ]
            whole = seen["ready"] and not blind and (seen["peers"] or len(self.want.entries) < 2)
            settled = whole and (len(expected) + 1 < len(self.want.entries) or seen["domain_state"] == "up")
            if settled or self.check or time.monotonic() >= deadline or not _may_change(seen):
                break
            if call and seen["ready"] and blind and time.monotonic() - called > _CALL_SECONDS:
                self._signal(signal.SIGUSR1)
                called = time.monotonic()
            time.sleep(min(pause, max(0.05, deadline - time.monotonic())))
            pause = min(pause * 1.5, 3.0)
        ports = {}
        if not settled and not self.check and seen["running"]:
            silent = blind or list(expect)
            ports = closed_ports(silent, self.want.ports[:2])
        return {"facts": seen, "ports": ports, "running": seen["running"]}


class _NotStarted(TrayError):
    """The unit did not start; ``facts`` of then."""

    def __init__(self, message: str, seen: dict[str, Any]) -> None:
        super().__init__(message)
        self.facts = seen


def _steps_on_this_tray() -> list[str]:
    steps = [pid for pid in _pids() if _name(pid) == "slurmstepd" and not _argv_has(pid, "infinity")]
    return [f"{len(steps)} job steps on this tray"] if steps else []


def _why_not_started(seen: Mapping[str, Any]) -> str:
    """The daemon's own reason, else that of the check before it, else where to look."""
    wrong = [note for note in seen["findings"] if note["severity"] == ERROR]
    known = [note["message"] for note in wrong if note["code"] not in ("imex_unit_failed", "imex_unit_down")]
    if known:
        return known[0]
    journal = child.run(["journalctl", "--unit", survey.UNIT, "--output=cat", "--lines=20", "--no-pager"], SECONDS)
    said = [line for line in journal.stdout.splitlines() if line.startswith("nvlink-imex:")]
    if said:
        return said[-1].partition(": ")[2]
    return (
        wrong[0]["message"] if wrong else f"{survey.UNIT} does not start; see journalctl -u {survey.UNIT} on this tray."
    )


def _may_change(seen: Mapping[str, Any]) -> bool:
    """Whether waiting can help: not for a daemon that has ended, nor for lists or versions that differ."""
    if not seen["running"]:
        return (seen["unit"] or {}).get("active") in ("activating", "reloading")
    return not any(peer["connection"] in ("map_mismatch", "version_mismatch") for peer in seen["peers"])


def running_jobs(nodes: Sequence[str], timeout: float = SECONDS) -> tuple[list[str], str | None]:
    """Jobs on these nodes by Slurm's word, and why that is unknown. Without a Slurm here there are none.

    One call for the clique, and only where a daemon must stop. Without Slurm's word the steps on this tray count.
    """
    program = shutil.which("squeue", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin:/opt/slurm/bin")
    if program is None or not nodes:
        return _steps_on_this_tray(), None
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SQUEUE_"))}
    question = [program, "--noheader", f"--nodelist={','.join(nodes)}", "--states=R,S,CG,CF", "--format=%i (%u)"]
    said = child.run(question, timeout, env={**environment, "LC_ALL": "C"})
    if said.rc == 0:
        return sorted({line.strip() for line in said.stdout.splitlines() if line.strip()}), None
    if any(text in said.stderr for text in _NO_SLURM):
        return _steps_on_this_tray(), None
    return [], said.stderr.strip().partition("\n")[0] or "squeue gave no answer in time"


def _jobs_finding(jobs: Sequence[str], unknown: str | None, why: Sequence[str]) -> dict[str, Any]:
    what = "; ".join(why) or "a change"
    if unknown:
        return finding(
            "imex_jobs_unknown",
            f"IMEX of this clique must stop for {what}, and Slurm does not say whether jobs run on it ({unknown});"
            " bring slurmctld back, or allow it with imex_allow_jobs.",
        )
    shown = ", ".join(jobs[:5]) + (f" and {len(jobs) - 5} more" if len(jobs) > 5 else "")
    return finding(
        "imex_jobs_running",
        f"Jobs run on this clique ({shown}) and would break, since IMEX must stop for {what}; wait for them, or"
        " allow it with imex_allow_jobs.",
    )


def closed_ports(hosts: Sequence[str], ports: Sequence[int]) -> dict[str, list[int]]:
    """host -> the ports of it that take no connection from here; of hosts of which at least one port is closed."""

    def probe(pair: tuple[str, int]) -> bool:
        try:
            socket.create_connection(pair, _PORT_SECONDS).close()
            return True
        except OSError:
            return False

    pairs = [(host, port) for host in hosts for port in ports]
    if not pairs:
        return {}
    with ThreadPoolExecutor(min(64, len(pairs))) as pool:
        is_open = list(pool.map(probe, pairs))
    found: dict[str, list[int]] = {}
    for (host, port), yes in zip(pairs, is_open):
        if not yes:
            found.setdefault(host, []).append(port)
    return found


def _program() -> str:
    """The boot check as a program of this tray, with the interpreter that runs this module."""
    source = own_source.read(boot.__name__)
    if source is None:
        raise files.ImexError(
            "the source of the boot check cannot be read here; run the role without a module compiler."
        )
    return f"#!{sys.executable or '/usr/bin/python3'} -I\n{source}"


def _strangers() -> list[dict[str, Any]]:
    found = []
    for pid in _pids():
        if _name(pid) == survey.DAEMON:
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
                    if "kubepods" in file.read() or _argv_has(pid, "/imexd/"):
                        continue
                found.append(pid)
    return [
        finding(
            "imex_two_owners",
            f"{survey.UNIT} is masked, and process {pid} is an IMEX daemon that is not the DRA driver's; stop it.",
        )
        for pid in found[:1]
    ]


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]


def _name(pid: int) -> str:
    return (disk.read_text(f"/proc/{pid}/comm") or "").strip()


def _argv_has(pid: int, word: str) -> bool:
    return word in (disk.read_text(f"/proc/{pid}/cmdline") or "")


def _unit_state() -> str:
    return child.run(["systemctl", "is-active", survey.UNIT], SECONDS).stdout.strip()


def _has_job() -> bool:
    return child.run(["systemctl", "show", "--property=Job", "--value", survey.UNIT], SECONDS).stdout.strip() not in (
        "",
        "0",
    )


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


def _hash(path: str) -> str | None:
    text = disk.read_text(path)
    return None if text is None else files.digest(text)
