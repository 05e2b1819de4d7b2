# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The desired state of a tray under each owner of IMEX, and its difference to the observed state: pure functions.

The controller makes it (desired.py of plugin_utils) and sends it.

One table of files for all owners: the text of a file that must exist, None for one that must not. A change of owner is
therefore the same comparison as a second run, and no owner leaves files of another behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.driver import CHANNEL_PARAMETERS
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, formats, packages
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Config, Facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

DOMAIN, JOB, DRIVER, HOST, NONE = "domain", "job", "driver_managed", "host_managed", "none"
OWNERS = (DOMAIN, JOB, DRIVER, HOST, NONE)
# The owners under which nvidia-imex.service runs with the clique's list.
SERVICE_OWNERS = (DOMAIN, HOST)
# The owners under which all trays of a clique have one list of its members, which each offers to the others.
LIST_OWNERS = (*SERVICE_OWNERS, JOB)

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
# The command socket through which the DRA driver queries the host's daemon.
HOST_SOCKET = "/etc/nvidia-imex/imex_ctrl.sock"
# Members with different values of these keys do not connect, so they change on the whole clique at once.
SHARED_KEYS = (
    "SERVER_PORT",
    "IMEX_NODE_CONFIG_FILE",
    "IMEX_ENABLE_AUTH_ENCRYPTION",
    "IMEX_AUTH_ENCRYPTION_MODE",
    "IMEX_WAIT_FOR_QUORUM",
)
# Variable of a template of the role -> the file on the tray; an empty text removes any but config.cfg.
TEMPLATES = {
    "imex_config_template": formats.CONFIG_FILE,
    "imex_drop_in_template": DROP_IN,
    "imex_list_socket_template": SOCKET_UNIT,
    "imex_list_service_template": SERVICE_UNIT,
    "imex_modprobe_template": MODPROBE,
}
PRIVATE_MODE, PROGRAM_MODE, PLAIN_MODE = 0o600, 0o755, 0o644


@dataclass(frozen=True)
class DesiredState:
    """The desired state of one tray. ``entries``: the clique's node list, empty where the owner needs none.

    ``own``: the tray's line in it. ``nodes``: their names in Slurm. ``files``: the texts of the role's templates, by
    path. ``job``: the variables imex_job_* of the role. ``program``: the text of the check at boot; ``job_program``:
    that of IMEX per job, in base64; each where the owner has it.
    """

    owner: str
    clique: str = ""
    entries: Sequence[str] = ()
    own: str = ""
    nodes: Sequence[str] = ()
    job: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    manage_package: bool = True
    pin_package: bool = True
    package: str = ""
    channels: Sequence[int] = ()
    proc_devices: str = "/proc/devices"
    channel_count: int | None = None
    create_channel0: bool | None = None
    tls: Mapping[str, str] = field(default_factory=dict)
    manage_firewall: bool = True
    list_port: int = 50006
    program: str = ""
    job_program: str = ""

    @property
    def config(self) -> str:
        return self.files.get(formats.CONFIG_FILE, "")

    @property
    def offers_list(self) -> bool:
        """Whether this tray reports its list to members, on ``list_port``."""
        return self.owner in LIST_OWNERS and bool(self.files.get(SOCKET_UNIT))

    @property
    def runs_service(self) -> bool:
        return self.owner in SERVICE_OWNERS

    @property
    def sha256(self) -> str:
        return list_digest(self.owner, self.nodes, self.entries)

    @property
    def nodes_path(self) -> str:
        return formats.Config(self.config).get("IMEX_NODE_CONFIG_FILE") or formats.NODES_FILE

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports between members: of peers, of the command service, of the record of the node list."""
        return (
            *(int(formats.Config(self.config).get(key)) for key in ("SERVER_PORT", "IMEX_CMD_PORT")),
            self.list_port,
        )

    @property
    def ports_to_open(self) -> tuple[int, ...]:
        """The ports that something listens on under this owner."""
        if self.offers_list:
            return self.ports
        return self.ports[:2] if self.owner in LIST_OWNERS else ()


def list_digest(owner: str, nodes: Sequence[str], entries: Sequence[str]) -> str:
    """The SHA-256 of what all members have alike: the node list, and with owner job their names in Slurm."""
    names = f"{' '.join(nodes)}\n" if owner == JOB else ""
    return formats.digest(names + formats.render_nodes(entries))


def files_of(desired: DesiredState, pin: packages.Offer | None) -> dict[str, tuple[str | None, int]]:
    """path -> (text or None for absent, mode), of all files but config.cfg, the lists and those of job_files."""
    # At boot systemd-tmpfiles, which expands specifiers, removes the list of a job that died with the tray.
    removed = '# Written by the role rackscale.nvlink.imex.\nr! "{}"\n'.format(desired.nodes_path.replace("%", "%%"))
    texts: dict[str, tuple[str | None, int]] = {
        PROGRAM: (desired.program or None, PROGRAM_MODE),
        TMPFILES: (removed if desired.owner == JOB else None, PLAIN_MODE),
    }
    for path in (DROP_IN, SOCKET_UNIT, SERVICE_UNIT, MODPROBE):
        is_used = desired.owner != NONE if path == MODPROBE else desired.owner in LIST_OWNERS
        texts[path] = ((desired.files.get(path) if is_used else None) or None, PLAIN_MODE)
    pins = desired.owner in LIST_OWNERS and desired.pin_package
    texts[packages.APT_PIN] = (packages.render_apt_pin(pin) if pins and pin else None, PLAIN_MODE)
    for name, path in TLS_FILES.items():
        texts[path] = (desired.tls.get(name), PRIVATE_MODE)
    return texts


def render_record(desired: DesiredState, generation: int, old: boot.Record | None, now: float) -> str:
    """The text of the tray's record. old: the present one, which knows since when the tray has the list."""
    record: boot.Record = {
        "clique": desired.clique,
        "generation": generation,
        "sha256": desired.sha256,
        "owner": desired.owner,
        "nodes": desired.nodes_path,
        "channels": list(desired.channels),
    }
    if old is None or old["sha256"] != desired.sha256:
        record["since"] = now
    elif "since" in old:
        record["since"] = old["since"]
    return json.dumps(record, indent=1, sort_keys=True) + "\n"


def difference(desired: DesiredState, facts: Facts, offer: packages.Offer | None) -> tuple[list[str], list[str]]:
    """Why all daemons of the clique must restart, and why this one alone must restart or stop; none where none runs.

    Both are descriptions of changes. ``facts``: nvlink_imex of fabric_facts.
    """
    clique: list[str] = []
    own: list[str] = []
    if not facts["running"]:
        return clique, own
    if desired.runs_service:
        clique, own = _service_difference(desired, facts)
    elif any(entry["owner"] == "service" for entry in facts["owners"]):
        own.append(f"owner {desired.owner}, which does not run nvidia-imex.service")
    if offer is not None and (facts["package"] or {}) != offer._asdict():
        had = "{name} {version}".format(**facts["package"]) if facts["package"] else "nothing"
        (own if desired.owner == JOB else clique).append(f"package {offer.name} {offer.version} instead of {had}")
    return clique, own


def _service_difference(desired: DesiredState, facts: Facts) -> tuple[list[str], list[str]]:
    clique: list[str] = []
    own: list[str] = []
    # A file that changed under a daemon which has read the right list is written again without a restart.
    if facts["nodes"].get("read_sha256") != desired.sha256 or facts["nodes"]["path"] != desired.nodes_path:
        clique.append(f"the node list of clique {desired.clique}")
    keys = changed_keys(facts["config"], desired.config) if desired.config else []
    shared = [key for key in keys if key in SHARED_KEYS]
    if shared:
        clique.append(f"{', '.join(shared)} of config.cfg")
    if set(keys) - set(shared):
        own.append(f"{', '.join(key for key in keys if key not in shared)} of config.cfg")
    differing = [peer["host"] for peer in facts["peers"] if peer["connection"] == "map_mismatch"]
    if differing:
        clique.append(f"the lost connection to {summarize(differing)} (!M!)")
    codes = {entry["code"] for entry in facts["findings"]}
    if codes & {"imex_restart_pending", "imex_cmd_disabled"}:
        clique.append("files that the daemon has not read since they changed")
    return clique, own


def changed_keys(present: Config, text: str) -> list[str]:
    """The keys with another value in the file, which is present, than in the text.

    A missing key has its default, or, for IMEX_CMD_*, whose defaults differ by release, an empty value. A value that
    the facts do not show differs where the file does.
    """
    if present["sha256"] == formats.digest(text):
        return []
    had: Mapping[str, str | None] = present["settings"]
    desired = formats.Config(text).settings()

    def value(settings: Mapping[str, str | None], key: str) -> str | None:
        return settings.get(key, "" if key.startswith("IMEX_CMD_") else formats.KEYS.get(key, ""))

    return [key for key in {**desired, **had} if value(had, key) != value(desired, key)]


def findings_of(desired: DesiredState, facts: Facts) -> list[HostFinding]:
    """The findings that block a change on this tray."""
    findings = [entry for entry in facts["findings"] if entry["code"] == "imex_two_owners"]
    # A prolog that is not the role's own, which goes, would start a second daemon.
    wrong = {"foreign": True, "driver": desired.owner != DRIVER, "prolog": desired.owner not in (JOB, NONE)}
    for entry in facts["owners"]:
        if wrong.get(entry["owner"]) and not findings:
            findings.append(host_finding("imex_two_owners", entry["owner"], why=entry["why"], owner=desired.owner))
    if desired.owner not in LIST_OWNERS:
        return findings
    if facts["driver_version"] is None:
        findings.append(host_finding("driver_missing", "imex"))
    return findings


def missing_package(driver: str, offers: Sequence[packages.Offer], given: str) -> HostFinding:
    """The finding for repositories without a package of the driver's version."""
    names = packages.names(driver, given)
    others = sorted({f"{offer.name} {offer.version}" for offer in offers if offer.name in names})
    available = f" (available: {summarize(others)})" if others else ""
    words = {"names": " or ".join(names), "driver": driver, "available": available}
    return host_finding("imex_package_missing", **words)


def reboot_needed(desired: DesiredState, loaded: Mapping[str, int | None], changed: bool) -> HostFinding | None:
    """The finding for a loaded driver with other options than the desired ones, or None.

    ``loaded``: driver.channel_parameters(). ``changed``: whether this run changed the options.
    """
    if desired.owner == NONE:
        return None
    pairs = zip(CHANNEL_PARAMETERS, (desired.channel_count, desired.create_channel0))
    desired_values = {name: int(value) for name, value in pairs if value is not None}
    waiting = [
        name
        for name, value in desired_values.items()
        if (loaded.get(name) != value if loaded.get(name) is not None else changed)
    ]
    if not waiting:
        return None
    return host_finding("imex_reboot_needed", options=" and NVreg_".join(waiting), file=MODPROBE)
