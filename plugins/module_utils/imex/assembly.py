# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts ``nvlink_imex`` of one tray: pure, from what survey() has read.

Only the tray's own row of the ctl's output is used: the rows of members that do not respond are filled in from the
list. Whether all members agree is decided by agreement.py, from all members' own rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import quoted
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, Value, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, formats, peers, status
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import (
    Config,
    Facts,
    NodeList,
    Owner,
    Peer,
    Survey,
    Unit,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.processes import DAEMON, Process
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.survey import UNIT
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize

NO_GPU = "NO_GPU"
# A list written while the daemon starts is the one that it reads; times of /proc are exact to about a second.
_START_SLACK = 2.0
# Text in the log -> code; the last one counts, because an older fault may be repaired.
_LOG_CAUSES = {
    "NV_ERR_IN_USE": "imex_in_use",
    "is not matching with current GPU driver version": "imex_version_mismatch",
    "No matching network interface found": "imex_no_own_address",
    "Node configuration mapping mismatch": "imex_list_differs",
}
_LOG_START = "is running "
# A path or a variable's name, but no text of a key; and texts that no template and no terminal would interpret.
_CREDENTIAL = re.compile(r"[A-Za-z0-9_./-]{0,255}")
_PLAIN = re.compile(r"[A-Za-z0-9 ._:+/@#,()=%-]{0,255}")


def assemble(read: Survey) -> Facts:
    """The facts in the shape that fabric_facts documents."""
    notes: list[HostFinding] = []
    config = formats.Config(read["config"]["text"] or "")
    nodes = _nodes(read, notes)
    daemons = [process for process in read["processes"] if process["name"] == DAEMON]
    owners = _owners(read)
    running = bool(daemons)
    unit = read["unit"]
    state = _state(read, notes)
    domain = _domain(read, nodes["own_id"], notes) if running else None
    own = domain.own if domain else None
    if own is not None and own.state == "unavailable":
        own = None  # the tray's own daemon did not answer either, so this row is filled in too
    if state is None and own is not None:
        state = own.state
    version = own.version if own and own.version != NO_GPU else None
    facts: Facts = {
        "observed_at": read["observed_at"],
        "hostname": read["hostname"],
        "installed": read["program"] is not None,
        "package": read["package"],
        "control_tool": read["control_tool"],
        "version": version or read["version"],
        "driver_version": read["driver_version"],
        "running": running,
        "state": state if running else None,
        "domain_state": domain.status if domain else None,
        "ready": running and state == "ready" and not _is_starting(read["unit"]),
        "peers": _peers(domain, nodes["entries"], nodes["own_id"]) if own else [],
        "unit": unit,
        "config": _config(read, config),
        "nodes": nodes,
        "persist_file": read["persist"]["exists"],
        "channels": read["channels"],
        "owners": owners,
        "reason": None,  # the controller's, of the worded findings
        "findings": notes,
    }
    _check_presence(facts, config, notes)
    _check_daemon(facts, daemons, read, notes)
    _check_peers(facts, notes)
    _check_channels(facts, read, notes)
    _check_owners(facts, notes)
    return facts


# --- Parts of the facts.


def _config(read: Survey, config: formats.Config) -> Config:
    """The settings of the file, without values that might be a key's text."""
    text = read["config"]["text"]
    settings = {
        key: value if (_CREDENTIAL if key in formats.SENSITIVE else _PLAIN).fullmatch(value) else None
        for key, value in config.settings().items()
    }
    return {
        "path": read["config"]["path"],
        "sha256": None if text is None else formats.digest(text),
        "settings": settings,
        "unknown_keys": sorted(key for key in settings if key not in formats.KEYS),
    }


def _nodes(read: Survey, notes: list[HostFinding]) -> NodeList:
    text = read["nodes"]["text"]
    parsed = formats.parse_nodes(text or "")
    record = boot.parse_record(read["record"]["text"] or "")
    sha256 = None if text is None else formats.digest(text)
    path = _shown(read["nodes"]["path"])
    if parsed.wrong:
        number, entry, why = parsed.wrong[0]
        line: dict[str, Value] = {"number": number, "path": path, "why": why, "entry": quoted(entry)}
        notes.append(host_finding("imex_list_unusable", "line", **line))
    if record and sha256 and record["sha256"] != sha256:
        written = {"generation": str(record["generation"]), "clique": record["clique"]}
        notes.append(host_finding("imex_list_outdated", "", path=path, **written))
    return {
        "path": path,
        "sha256": sha256,
        "read_sha256": _read_list(read, record, sha256),
        "entries": list(map(_shown, parsed.entries)),
        "own_id": formats.own_id(parsed.entries, read["addresses"], read["names"]),
        "changed_at": read["nodes"]["changed_at"],
        "generation": record["generation"] if record else None,
        "clique": _plain(record["clique"]) if record else None,
        "recorded_owner": _plain(record.get("owner")) if record else None,
        "recorded_sha256": record["sha256"] if record else None,
    }


def _read_list(read: Survey, record: boot.Record | None, sha256: str | None) -> str | None:
    """The hash of the list that the daemon has read; None where that is unknown, or none runs.

    The list may have changed since its start. Then it has read the recorded one, if that was written before.
    """
    starts = [process["started_at"] for process in read["processes"] if process["name"] == DAEMON]
    started = max((start for start in starts if start is not None), default=None)
    changed = read["nodes"]["changed_at"]
    if not starts or started is None or changed is None or changed <= started + _START_SLACK:
        return sha256 if starts else None
    since = record.get("since") if record else None
    return record["sha256"] if record and isinstance(since, float) and since <= started + _START_SLACK else None


def _state(read: Survey, notes: list[HostFinding]) -> str | None:
    answer = read["answers"].get("state")
    if answer is None:
        return None
    if answer.timed_out:
        _hangs(answer, "-q", notes)
        return None
    return status.parse_state(answer.stdout) if answer.rc == 0 else None


def _domain(read: Survey, own_id: int | None, notes: list[HostFinding]) -> status.Domain | None:
    answer = read["answers"].get("domain")
    if answer is None:
        return None
    if answer.timed_out:
        _hangs(answer, "-N -j", notes)
        return None
    output = (answer.error or answer.stderr.strip() or answer.stdout.strip()).partition("\n")[0]
    if status.NOT_CONFIGURED in answer.stdout + answer.stderr:
        notes.append(host_finding("imex_list_unusable", "unread", path=_shown(read["nodes"]["path"])))
        return None
    try:
        if answer.rc != 0:
            raise status.StatusError(f"nvidia-imex-ctl -N -j exited with code {answer.rc}")
        return status.parse_domain(answer.stdout, own_id)
    except status.StatusError as error:
        notes.append(host_finding("imex_not_ready", "ctl", error=str(error), output=quoted(output)))
        return None


def _hangs(answer: child.Result, option: str, notes: list[HostFinding]) -> None:
    stuck = f" and its process {answer.survivor_pid} hangs in the kernel" if answer.survivor_pid else ""
    notes.append(host_finding("imex_timeout", option=option, stuck=stuck))


def _peers(read: status.Domain | None, entries: Sequence[str], own_id: int | None) -> list[Peer]:
    """The peers of this tray, by their ids; the connection is null where the tray does not report it."""
    if read is None or read.own is None:
        return []
    return [
        {"id": number, "host": entry, "connection": read.own.connections.get(number), "state": read.states.get(number)}
        for number, entry in enumerate(entries)
        if number != own_id
    ]


def _owners(read: Survey) -> list[Owner]:
    """Who runs IMEX here, or would at the next boot or job: service, prolog, driver or foreign, each once."""
    unit: Unit = read["unit"] or {}
    found: dict[str, Owner] = {}

    def add(owner: str, why: str, pid: int | None = None) -> None:
        found.setdefault(owner, {"owner": owner, "why": why, "pid": pid})

    for process in read["processes"]:
        owner, why = _owner_of(process, unit, bool(read["prolog_files"]))
        add(owner, why, process["pid"])
    if unit.get("enabled") in ("enabled", "enabled-runtime", "linked", "alias") and unit.get("load") == "loaded":
        add("service", f"{UNIT} is enabled")
    elif unit.get("active") in ("active", "activating", "reloading") and not read["prolog_files"]:
        add("service", f"{UNIT} is {unit['active']}", unit.get("main_pid"))
    for path in read["prolog_files"]:
        add("prolog", f"{path} mentions {DAEMON}")
    return [found[owner] for owner in sorted(found)]


def _owner_of(process: Process, unit: Unit, has_prolog: bool) -> tuple[str, str]:
    argv, cgroup, pid = process["argv"], process["cgroup"], process["pid"]
    config = next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word == "-c"), "")
    if "kubepods" in cgroup or config.startswith("/imexd/") or process["name"] != DAEMON:
        return "driver", f"process {pid} ({process['name']}) belongs to the DRA driver"
    if pid == unit.get("main_pid") or f"/{UNIT}" in cgroup:
        if has_prolog and unit.get("enabled") not in ("enabled", "enabled-runtime"):
            return "prolog", f"{UNIT} runs, is not enabled, and a prolog mentions it"
        return "service", f"process {pid} belongs to {UNIT}"
    if "slurm" in cgroup:
        return "prolog", f"process {pid} was started below slurmd"
    return "foreign", f"process {pid} ({process['name']}) has no known owner"


# --- Findings.


def _check_presence(facts: Facts, config: formats.Config, notes: list[HostFinding]) -> None:
    unit: Unit = facts["unit"] or {}
    if not facts["installed"]:
        if not facts["running"]:
            notes.append(host_finding("imex_missing"))
        return
    if facts["config"]["sha256"] is None:
        notes.append(host_finding("imex_list_unusable", "config", path=facts["config"]["path"]))
    elif facts["running"] and config.get("IMEX_CMD_ENABLED") != "1":
        notes.append(host_finding("imex_cmd_disabled"))
    version, driver = facts["version"], facts["driver_version"]
    if version and driver and not status.is_same_version(version, driver):
        case = "running" if facts["ready"] else "differs"
        notes.append(host_finding("imex_version_mismatch", case, version=version, driver=driver))
    if unit.get("active") == "failed":
        notes.append(host_finding("imex_unit_down", "failed", result=quoted(unit.get("result"))))
    elif facts["running"] and _is_starting(unit):
        notes.append(host_finding("imex_unit_starting"))
    elif unit.get("enabled") == "enabled" and not facts["running"]:
        notes.append(host_finding("imex_unit_down", "stopped", active=quoted(unit.get("active"))))
    if facts["persist_file"] and not facts["running"]:
        notes.append(host_finding("imex_persist_left"))


def _check_daemon(facts: Facts, daemons: Sequence[Process], read: Survey, notes: list[HostFinding]) -> None:
    unit: Unit = facts["unit"] or {}
    codes = {note["code"] for note in notes}
    expected = facts["running"] or unit.get("enabled") == "enabled" or unit.get("active") == "failed"
    cause = _cause_in_log(read["log"]) if expected and not facts["ready"] else None
    nodes = facts["nodes"]
    # Without any address of the tray its own line cannot be found.
    unlisted = bool(nodes["entries"]) and nodes["own_id"] is None and bool(read["addresses"])
    if (unlisted and expected) or cause == "imex_no_own_address":
        notes.append(host_finding("imex_no_own_address", path=nodes["path"]))
    if cause == "imex_in_use":
        notes.append(host_finding("imex_in_use"))
    if cause == "imex_version_mismatch" and cause not in codes:
        notes.append(host_finding("imex_version_mismatch", "log"))
    if nodes["sha256"] is None and expected and "imex_list_unusable" not in codes:
        notes.append(host_finding("imex_list_unusable", "missing", path=nodes["path"]))
    state = facts["state"]
    if state == "waiting_for_recovery":
        missing = [peer["host"] for peer in facts["peers"] if peer["connection"] != "connected"]
        words = f" ({summarize(missing)} not connected)" if missing else ""
        notes.append(host_finding("imex_waiting_for_recovery", missing=words))
    elif facts["running"] and state not in (None, "ready"):
        notes.append(
            host_finding("imex_not_ready", "state", state=state, log=_shown(read["log_path"]) or "the journal")
        )
    elif facts["running"] and state is None and not codes & {"imex_timeout", "imex_cmd_disabled", "imex_not_ready"}:
        notes.append(host_finding("imex_not_ready", "no_state"))
    if daemons and nodes["sha256"] and nodes["read_sha256"] is None:
        notes.append(host_finding("imex_restart_pending", path=nodes["path"]))


def _check_peers(facts: Facts, notes: list[HostFinding]) -> None:
    by_connection: dict[str, list[str]] = {}
    for peer in facts["peers"]:
        by_connection.setdefault(peer["connection"] or "invalid", []).append(peer["host"])
    explained = False
    for connection, code in peers.MISMATCHES.items():
        hosts = by_connection.pop(connection, [])
        if hosts:
            explained = True
            notes.append(host_finding(code, "peers", peers=hosts))
    by_connection.pop("connected", None)
    if by_connection:
        total = sum(map(len, by_connection.values()))
        lost = f"{total} of {count(len(facts['peers']), 'peer')} {'is' if total == 1 else 'are'}"
        words = "; ".join(f"{connection}: {summarize(hosts)}" for connection, hosts in sorted(by_connection.items()))
        notes.append(host_finding("imex_peer_lost", "disconnected", lost=lost, connections=words))
    elif facts["ready"] and facts["domain_state"] in ("degraded", "down") and not explained:
        case = "domain" if facts["peers"] else "no_peers"
        silent = summarize([peer["host"] for peer in facts["peers"] if peer["state"] == "unavailable"])
        by = f" by {silent} (UNAVAILABLE)" if silent else ""
        notes.append(host_finding("imex_peer_lost", case, state=f"{facts['domain_state']}{by}"))


def _check_channels(facts: Facts, read: Survey, notes: list[HostFinding]) -> None:
    """Slurm's plugin creates its devices where only the job has them: those in the folder are not Slurm's."""
    major, devices = facts["channels"]["major"], facts["channels"]["devices"]
    if read["slurm_gives_channels"] and devices:
        notes.append(host_finding("imex_channel_slurm_conflict", devices=[device["name"] for device in devices]))
    stale = [device["name"] for device in devices if major is not None and device["major"] != major]
    if stale:
        notes.append(host_finding("imex_channel_stale", devices=stale, major=major))
    if facts["running"] and major is None:
        notes.append(host_finding("imex_channels_off"))
    by_service = any(entry["owner"] == "service" for entry in facts["owners"])
    # The DRA driver, which uses the daemon by this socket, injects a channel into its pods.
    by_driver = facts["config"]["settings"].get("IMEX_CMD_UNIX_DOMAIN_PATH")
    given = devices or read["slurm_gives_channels"] or read["prolog_gives_channels"] or by_driver
    # Before it is ready, the daemon's own error is the cause.
    if facts["ready"] and by_service and not given:
        notes.append(host_finding("imex_channel_missing"))


def _check_owners(facts: Facts, notes: list[HostFinding]) -> None:
    owners = facts["owners"]
    if len(owners) > 1:
        words = " and ".join(f"{entry['owner']} ({entry['why']})" for entry in owners)
        notes.append(host_finding("imex_two_owners", "owners", owners=words))
    elif owners and owners[0]["owner"] == "foreign":
        notes.append(host_finding("imex_foreign_daemon", why=owners[0]["why"]))


def _is_starting(unit: Unit | None) -> bool:
    """Whether systemd still waits for the start to return: such a daemon may be ready and is ended all the same."""
    return unit is not None and unit.get("active") == "activating"


def _cause_in_log(log: str) -> str | None:
    """The last known fault since the daemon's last start."""
    cause = None
    for line in log.splitlines():
        if "IMEX version" in line and _LOG_START in line:
            cause = None
        cause = next((code for text, code in _LOG_CAUSES.items() if text in line), cause)
    return cause


def _plain(value: object) -> str | None:
    """A text of the record; None where it has characters that must not be printed, or is no text."""
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else None


def _shown(text: str) -> str:
    """A path or an entry, quoted where it has characters that must not be printed."""
    return text if _PLAIN.fullmatch(text) else quoted(text)
