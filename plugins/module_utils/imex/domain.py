# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a tray must look like under each owner of IMEX, and how far a tray is from it: pure.

One table of files for every owner: a text where the file must be, None where it must not. So a switch of owner is the
same comparison as a second run, and no owner leaves anything of another behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, packages

DOMAIN, JOB, DRIVER, HOST, NONE = "domain", "job", "driver_managed", "host_managed", "none"
OWNERS = (DOMAIN, JOB, DRIVER, HOST, NONE)
# The owners under which nvidia-imex.service runs with the clique's list.
SERVICE_OWNERS = (DOMAIN, HOST)

DROP_IN = "/etc/systemd/system/nvidia-imex.service.d/50-nvlink.conf"
LIST_SOCKET = "nvlink-imex-list.socket"
SOCKET_UNIT = f"/etc/systemd/system/{LIST_SOCKET}"
SERVICE_UNIT = "/etc/systemd/system/nvlink-imex-list@.service"
PROGRAM = "/usr/local/libexec/nvlink-imex"
TMPFILES = "/etc/tmpfiles.d/nvlink-imex.conf"
MODPROBE = "/etc/modprobe.d/nvlink-imex.conf"
START_APPROVAL = "/run/nvlink-imex/start-approved"
TLS_FOLDER = "/etc/nvidia-imex/tls"
TLS_FILES = {
    "key": f"{TLS_FOLDER}/key.pem",
    "certificate": f"{TLS_FOLDER}/cert.pem",
    "authority": f"{TLS_FOLDER}/ca.pem",
}
# Where the DRA driver asks the host's daemon.
HOST_SOCKET = "/etc/nvidia-imex/imex_ctrl.sock"
# A change of these keeps members from talking to each other, so it is one of the whole clique.
SHARED_KEYS = (
    "SERVER_PORT",
    "IMEX_NODE_CONFIG_FILE",
    "IMEX_ENABLE_AUTH_ENCRYPTION",
    "IMEX_AUTH_ENCRYPTION_MODE",
    "IMEX_WAIT_FOR_QUORUM",
)
PRIVATE_MODE, PROGRAM_MODE, PLAIN_MODE = 0o600, 0o755, 0o644
_MARK = "# Written by the role rackscale.nvlink.imex.\n"


@dataclass(frozen=True)
class Wanted:
    """What the site wants of one tray, checked. ``entries`` is the clique's list, empty where the owner has none."""

    owner: str
    clique: str = ""
    entries: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    manage_package: bool = True
    package: str = ""
    version: str = ""
    channels: tuple[int, ...] = ()
    proc_devices: str = "/proc/devices"
    channel_count: int | None = None
    create_channel0: bool | None = None
    tls: Mapping[str, str] = field(default_factory=dict)
    manage_firewall: bool = True
    list_port: int = 50006
    boot_wait: float = 30.0
    unconfirmed: str = "stay_off"
    job_files: tuple[str, ...] = ()

    @property
    def runs_service(self) -> bool:
        return self.owner in SERVICE_OWNERS

    @property
    def text(self) -> str:
        return files.render_nodes(self.entries)

    @property
    def sha256(self) -> str:
        return files.digest(self.text)

    @property
    def nodes_path(self) -> str:
        return self.settings.get("IMEX_NODE_CONFIG_FILE") or files.NODES_FILE

    @property
    def leaves_config(self) -> bool:
        """Whether config.cfg is no concern of this owner."""
        return self.owner not in (*SERVICE_OWNERS, JOB)

    @property
    def ports(self) -> tuple[int, ...]:
        """What members ask each other on: peers, the command service, the record of the list."""
        named = (("SERVER_PORT", 50000), ("IMEX_CMD_PORT", 50005))
        return (*(int(self.settings.get(key, default)) for key, default in named), self.list_port)

    @property
    def ports_to_open(self) -> tuple[int, ...]:
        """Those of the ports that something listens on under this owner; a list for one job is told to nobody."""
        return self.ports if self.runs_service else self.ports[:2] if self.owner == JOB else ()


# Option of imex_domain -> the role's variable, the least and the most that it may be.
RANGES = {
    "boot_wait": ("imex_boot_wait", 3, 3600),
    "channel_count": ("imex_channel_count", 0, (1 << 20) - 1),
    "ctl_timeout": ("imex_ctl_timeout", 1, 600),
    "list_port": ("imex_list_port", 1, 65535),
    "start_timeout": ("imex_start_timeout", 1, 3600),
    "timeout": ("imex_wait_timeout", 1, 3600),
}


def wanted(options: Mapping[str, Any]) -> Wanted:
    """The options of imex_domain, checked; ImexError for what a person wrote wrong."""
    owner = options["owner"]
    settings = files.check_settings(options.get("config") or {})
    tls = {name: text for name, text in (options.get("tls") or {}).items() if text}
    if tls and set(tls) != set(TLS_FILES):
        missing = ", ".join(sorted(set(TLS_FILES) - set(tls)))
        raise files.ImexError(f"tls: {missing} is missing, give key, certificate and authority together.")
    if owner == HOST:
        forced = {"IMEX_CMD_ENABLED": "1", "IMEX_CMD_UNIX_DOMAIN_PATH": HOST_SOCKET}
        wrong = [key for key, value in forced.items() if key in settings and settings[key] not in ("", value)]
        if wrong:
            raise files.ImexError(
                f"imex_config: {wrong[0]} is {settings[wrong[0]]!r}, but with imex_owner host_managed the DRA driver"
                f" needs {forced[wrong[0]]!r}; leave it out."
            )
        settings.update(forced)
    if tls:
        paths = {f"IMEX_{side}_{part}": TLS_FILES[name] for side in ("SERVER", "CLIENT") for part, name in _TLS_PARTS}
        settings.update(
            paths, IMEX_ENABLE_AUTH_ENCRYPTION="1", IMEX_AUTH_ENCRYPTION_MODE="SSL_TLS", IMEX_AUTH_SOURCE="FILE"
        )
    if settings.get("DAEMONIZE", "1") != "1":
        raise files.ImexError("imex_config: DAEMONIZE is 0, but nvidia-imex.service waits for a fork; leave it at 1.")
    entries = tuple(options.get("nodes") or ())
    if owner in SERVICE_OWNERS:
        if not entries or not options.get("clique"):
            raise files.ImexError(f"nodes and clique are missing, which imex_owner {owner} needs; name a fabric file.")
        files.render_nodes(entries)
    if options.get("version"):
        packages.check_version(options["version"])
    channels = tuple(sorted(set(options.get("channels") or ())))
    if any(not 0 <= minor < 1 << 20 for minor in channels):
        raise files.ImexError(
            f"imex_channels: {list(channels)} has a number that no channel can have, use 0 to 1048575."
        )
    for name, (variable, least, most) in RANGES.items():
        value = options.get(name)
        if value is not None and not least <= value <= most:
            raise files.ImexError(f"{variable} is {value}, use a number from {least} to {most}.")
    return Wanted(
        owner=owner,
        clique=options.get("clique") or "",
        entries=entries if owner in SERVICE_OWNERS else (),
        settings=settings,
        manage_package=bool(options.get("manage_package", True)),
        package=options.get("package") or "",
        version=options.get("version") or "",
        channels=channels if owner in SERVICE_OWNERS else (),
        proc_devices=options.get("proc_devices") or "/proc/devices",
        channel_count=options.get("channel_count"),
        create_channel0=options.get("create_channel0"),
        tls=tls if owner in (*SERVICE_OWNERS, JOB) else {},
        manage_firewall=bool(options.get("manage_firewall", True)),
        list_port=int(options.get("list_port") or 50006),
        boot_wait=float(options.get("boot_wait") or 30),
        unconfirmed=options.get("boot_unconfirmed") or "stay_off",
        job_files=tuple(options.get("job_files") or ()),
    )


_TLS_PARTS = (("KEY", "key"), ("CERT", "certificate"), ("CERT_AUTH", "authority"))


def files_of(
    want: Wanted, program: str, major: int | None, pin: packages.Offer | None
) -> dict[str, tuple[str | None, int]]:
    """path -> (text or None for absent, mode), of all files but config.cfg, the list and the record.

    ``program``: the text of the boot check. ``major``: that of channels in this boot.
    """
    service = want.runs_service
    texts: dict[str, tuple[str | None, int]] = {
        PROGRAM: (program if service else None, PROGRAM_MODE),
        DROP_IN: (_drop_in(want) if service else None, PLAIN_MODE),
        SOCKET_UNIT: (_socket_unit(want) if service else None, PLAIN_MODE),
        SERVICE_UNIT: (_service_unit() if service else None, PLAIN_MODE),
        TMPFILES: (_tmpfiles(want.channels, major) if want.channels and major is not None else None, PLAIN_MODE),
        MODPROBE: (None if want.owner == NONE else _modprobe(want), PLAIN_MODE),
    }
    keeps_package = want.owner in (*SERVICE_OWNERS, JOB) and want.manage_package
    texts[packages.APT_PIN] = (packages.render_apt_pin(pin) if keeps_package and pin else None, PLAIN_MODE)
    for name, path in TLS_FILES.items():
        texts[path] = (want.tls.get(name), PRIVATE_MODE)
    if want.owner != JOB:
        texts.update((path, (None, PLAIN_MODE)) for path in want.job_files)
    return texts


def _drop_in(want: Wanted) -> str:
    options = (
        f"--nodes {want.nodes_path} --port {want.list_port} --wait {want.boot_wait:g} --unconfirmed {want.unconfirmed}"
    )
    channels = (
        f"ExecStartPre=-{PROGRAM} channels --proc-devices {want.proc_devices} {' '.join(map(str, want.channels))}\n"
        if want.channels
        else ""
    )
    return (
        f"{_MARK}[Unit]\nWants={LIST_SOCKET}\nAfter={LIST_SOCKET} network-online.target\n\n"
        "[Service]\n# A tray that was off while its clique's list changed stays off, with the reason in the journal.\n"
        f"ExecCondition={PROGRAM} check {options}\n{channels}"
        # The package's unit has no limit, and a start that hangs would hold the boot for ever.
        f"TimeoutStartSec={want.boot_wait + 120:g}\n"
    )


def _socket_unit(want: Wanted) -> str:
    return (
        f"{_MARK}[Unit]\nDescription=Which IMEX list this tray has, for the check of its clique's members\n\n"
        f"[Socket]\nListenStream={want.list_port}\nAccept=yes\nMaxConnections=256\n\n"
        "[Install]\nWantedBy=sockets.target\n"
    )


def _service_unit() -> str:
    return (
        f"{_MARK}[Unit]\nDescription=Tell a member of the clique which IMEX list this tray has\n"
        "CollectMode=inactive-or-failed\n\n"
        # It reads no byte of what is sent to it.
        f"[Service]\nExecStart=/bin/cat {files.RECORD_FILE}\nStandardInput=null\nStandardOutput=socket\n"
        "StandardError=journal\nUser=nobody\nNoNewPrivileges=yes\nCapabilityBoundingSet=\nLogLevelMax=notice\n"
        "TimeoutStartSec=10\nRuntimeMaxSec=10\n"
    )


def _tmpfiles(channels: Sequence[int], major: int | None) -> str:
    folder = "/dev/nvidia-caps-imex-channels"
    lines = (f"c {folder}/channel{minor} 0666 root root - {major}:{minor}\n" for minor in channels)
    return f"{_MARK}d {folder} 0755 root root -\n{''.join(lines)}"


def channels_of_tmpfiles(text: str | None) -> set[int]:
    """The channels that an earlier run has made: those of its rule."""
    words = (line.split() for line in (text or "").splitlines())
    return {int(row[1].rpartition("channel")[2]) for row in words if len(row) == 7 and row[0] == "c"}


def _modprobe(want: Wanted) -> str | None:
    options = []
    if want.channel_count is not None:
        options.append(f"NVreg_ImexChannelCount={want.channel_count}")
    if want.create_channel0 is not None:
        options.append(f"NVreg_CreateImexChannel0={int(want.create_channel0)}")
    return f"{_MARK}options nvidia {' '.join(options)}\n" if options else None


def render_record(want: Wanted, generation: int, outdated: Sequence[str]) -> str:
    """The record of files.Record, with the members that could not be given this list."""
    record = files.Record(want.clique, generation, want.sha256, want.owner)
    return json.dumps({**record._asdict(), "outdated": sorted(outdated)}, indent=1, sort_keys=True) + "\n"


@dataclass
class Gap:
    """How far a tray is from what is wanted.

    ``restart_clique``: what must be done on all members together, ``restart``: what only this daemon must be stopped
    for, ``changes``: what can change beside a running daemon. Words for people. ``stop``: the daemon must not run.
    """

    restart_clique: list[str] = field(default_factory=list)
    restart: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    stop: bool = False
    findings: list[dict[str, Any]] = field(default_factory=list)


def gap(
    want: Wanted,
    facts: Mapping[str, Any],
    config_text: str | None,
    now: Mapping[str, str | None],
    then: Mapping[str, tuple[str | None, int]],
    offer: packages.Offer | None,
) -> Gap:
    """Compare a tray (``facts`` nvlink_imex, its files ``now``) with what is wanted (``then`` as files_of() gives).

    Of a daemon that does not run nothing needs a restart.
    """
    found = Gap()
    running = facts["running"]
    if want.runs_service:
        _gap_of_service(want, facts, config_text, found)
    elif running and any(entry["owner"] == "service" for entry in facts["owners"]):
        found.stop = True
        found.restart.append(f"nvidia-imex.service stops, imex_owner is {want.owner}")
    if offer is not None and (facts["package"] or {}) != offer._asdict():
        had = "{name} {version}".format(**facts["package"]) if facts["package"] else "nothing"
        found.restart_clique.append(f"package {offer.name} {offer.version} in place of {had}")
    if want.leaves_config and without_own_tls(files.Config(config_text or "")):
        found.changes.append("take the TLS files out of config.cfg")
    for path, (text, _mode) in sorted(then.items()):
        if text != now.get(path):
            word = "remove" if text is None else "write" if now.get(path) is None else "change"
            found.changes.append(f"{word} {path}")
    if not running:
        found.changes += [*found.restart_clique, *found.restart]
        found.restart_clique, found.restart = [], []
    return found


def _gap_of_service(want: Wanted, facts: Mapping[str, Any], config_text: str | None, found: Gap) -> None:
    if facts["nodes"]["sha256"] != want.sha256 or facts["nodes"]["path"] != want.nodes_path:
        found.restart_clique.append(f"the list of clique {want.clique}")
    settings = files.Config(config_text or "")
    keys = changed_keys(settings, want.settings)
    shared = [key for key in keys if key in SHARED_KEYS]
    if shared:
        found.restart_clique.append(f"{', '.join(shared)} of config.cfg")
    if set(keys) - set(shared):
        found.restart.append(f"{', '.join(key for key in keys if key not in shared)} of config.cfg")
    differing = [peer["host"] for peer in facts["peers"] if peer["connection"] == "map_mismatch"]
    if differing:
        found.restart_clique.append(f"no talk with {', '.join(differing)} (!M!), which only a restart of all heals")
    codes = {note["code"] for note in facts["findings"]}
    if codes & {"imex_list_not_running", "imex_cmd_disabled"}:
        found.restart_clique.append("the daemon has not read the files that it has now")


def changed_keys(config: files.Config, settings: Mapping[str, str]) -> list[str]:
    """The keys that must be written: with another value in the file, or absent with one that is not the default."""
    present = config.settings()
    return [
        key for key, value in settings.items() if (present[key] != value if key in present else _must_add(key, value))
    ]


def without_own_tls(config: files.Config) -> dict[str, str]:
    """What becomes of the keys that name the role's TLS files, under an owner that has none; empty without such keys.

    The files go, and a daemon whose config.cfg names files that are gone does not start under anybody.
    """
    named = [key for key, value in config.settings().items() if value in TLS_FILES.values()]
    return {**dict.fromkeys(named, ""), "IMEX_ENABLE_AUTH_ENCRYPTION": "0"} if named else {}


def _must_add(key: str, value: str) -> bool:
    known = files.KEYS.get(key)
    if known is None:
        return True
    # Releases differ in what they ship for the command service, so its keys always stand in the file.
    return not known.only_where_present and ((key.startswith("IMEX_CMD_") and value != "") or value != known.default)


def findings_of(
    want: Wanted, facts: Mapping[str, Any], offer: packages.Offer | None, driver: str | None
) -> list[dict[str, Any]]:
    """What stops everything before the first change."""
    notes = [note for note in facts["findings"] if note["code"] == "imex_two_owners"]
    foreign = [entry["why"] for entry in facts["owners"] if entry["owner"] == "foreign"]
    if foreign and not notes:
        notes.append(
            finding(
                "imex_two_owners",
                f"An IMEX daemon of no known owner runs here ({foreign[0]}) and imex_owner is {want.owner}; stop that"
                " daemon first.",
            )
        )
    if any(entry["owner"] == "driver" for entry in facts["owners"]) and want.owner != DRIVER and not notes:
        notes.append(
            finding(
                "imex_two_owners",
                f"The DRA driver runs IMEX here and imex_owner is {want.owner}; remove the tray's ComputeDomains, or"
                " set imex_owner to driver_managed.",
            )
        )
    if (
        any(entry["owner"] == "prolog" for entry in facts["owners"])
        and not notes
        and want.owner in (*SERVICE_OWNERS, DRIVER)
    ):
        # Files of the role itself are removed with the switch; another prolog would start a second daemon.
        why = next(entry["why"] for entry in facts["owners"] if entry["owner"] == "prolog")
        own = set(want.job_files)
        if not any(path in why for path in own):
            notes.append(
                finding(
                    "imex_two_owners",
                    f"A prolog of Slurm starts IMEX here ({why}) and imex_owner is {want.owner}; remove that prolog, or"
                    " set imex_owner to job.",
                )
            )
    if want.owner not in (*SERVICE_OWNERS, JOB):
        return notes
    if driver is None:
        notes.append(
            finding(
                "imex_driver_unknown",
                "The loaded driver's version cannot be read, and IMEX must have the same; load the driver, or set"
                " imex_version.",
            )
        )
    elif want.version and facts["driver_version"] and want.version != facts["driver_version"]:
        notes.append(
            finding(
                "imex_version_mismatch",
                f"imex_version is {want.version} and the loaded driver {facts['driver_version']}, with which it would"
                " not start; load that driver, or correct imex_version.",
            )
        )
    return notes


def channels_in_vain() -> dict[str, Any]:
    """The finding where channels are asked for and Slurm's plugin is there."""
    return finding(
        "imex_channel_slurm_conflict",
        "imex_channels asks for channel devices, and Slurm's switch/nvidia_imex gives each job its own: each start of"
        " slurmd and each scontrol reconfigure removes these, and until then on Slurm 24.11 jobs of every user reach"
        " them; leave imex_channels empty.",
    )


def missing_package(driver: str, offers: Sequence[packages.Offer], given: str) -> dict[str, Any]:
    """The finding where no repository has the driver's version."""
    wanted_names = packages.names(driver, given)
    others = sorted({f"{offer.name} {offer.version}" for offer in offers if offer.name in wanted_names})
    has = f" (there is {', '.join(others[:4])})" if others else ""
    return finding(
        "imex_package_missing",
        f"No repository of this tray has {' or '.join(wanted_names)} in version {driver} of the loaded driver{has}; add"
        " the repository that the driver came from.",
    )


def reboot_needed(want: Wanted, params: str | None, changed: bool) -> dict[str, Any] | None:
    """A finding where the loaded module does not run with the options that are wanted.

    ``params``: the text of /proc/driver/nvidia/params, None where there is none.
    """
    if want.owner == NONE:
        return None
    pairs = {"ImexChannelCount": want.channel_count, "CreateImexChannel0": want.create_channel0}
    asked = {name: int(value) for name, value in pairs.items() if value is not None}
    said = dict(line.split(": ", 1) for line in (params or "").splitlines() if ": " in line)
    waiting = [name for name, value in asked.items() if (said[name].strip() != str(value) if name in said else changed)]
    if not waiting:
        return None
    return finding(
        "imex_reboot_needed",
        f"NVreg_{' and NVreg_'.join(waiting)} of {MODPROBE} take effect when the driver is loaded anew; reboot"
        " the tray.",
    )
