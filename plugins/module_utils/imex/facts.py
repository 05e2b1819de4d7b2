# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts ``nvlink_imex`` of one tray: pure, from what survey() has read.

Only the tray's own row of the ctl's output is used: the rows of members that do not respond are filled in from the
list. Whether all members agree is decided by verdict.py, from all members' own rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.readings import quoted
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, status
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.readings import (
    Config,
    Facts,
    NodeList,
    Owner,
    Peer,
    Process,
    Survey,
    Unit,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.survey import CHANNELS, DAEMON, UNIT
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
_LOST = ("never_connected", "recovering", "disconnected", "invalid", "authenticating")
# A path or a variable's name, but no text of a key; and texts that no template and no terminal would interpret.
_CREDENTIAL = re.compile(r"[A-Za-z0-9_./-]{0,255}")
_PLAIN = re.compile(r"[A-Za-z0-9 ._:+/@#,()=%-]{0,255}")


def assemble(read: Survey) -> Facts:
    """The facts in the shape that fabric_facts documents."""
    notes: list[Finding] = []
    config = files.Config(read["config"]["text"] or "")
    nodes = _nodes(read, notes)
    daemons = [process for process in read["processes"] if process["name"] == DAEMON]
    owners = _owners(read)
    running = bool(daemons)
    unit = read["unit"]
    state = _state(read, notes)
    domain = _domain(read, notes) if running else None
    own = domain.nodes.get(nodes["own_id"]) if domain and nodes["own_id"] is not None else None
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
        "version": version or read["version"],
        "driver_version": read["driver_version"],
        "running": running,
        "state": state if running else None,
        "domain_state": domain.status if domain else None,
        "ready": running and state == "ready" and not _is_starting(read["unit"]),
        "peers": _peers(own, nodes["entries"], nodes["own_id"]),
        "unit": unit,
        "config": _config(read, config),
        "nodes": nodes,
        "persist_file": read["persist"]["exists"],
        "channels": read["channels"],
        "owners": owners,
        "reason": None,
        "findings": notes,
    }
    _check_presence(facts, config, notes)
    _check_daemon(facts, daemons, read, notes)
    _check_peers(facts, notes)
    _check_channels(facts, read["slurm_gives_channels"], notes)
    _check_owners(facts, notes)
    wrong = [note["message"] for note in notes if note["severity"] == ERROR]
    facts["reason"] = wrong[0] if wrong else None
    return facts


# --- Parts of the facts.


def _config(read: Survey, config: files.Config) -> Config:
    """The settings of the file, without values that might be a key's text."""
    text = read["config"]["text"]
    settings = {
        key: value if (_CREDENTIAL if key in files.SENSITIVE else _PLAIN).fullmatch(value) else None
        for key, value in config.settings().items()
    }
    return {
        "path": read["config"]["path"],
        "sha256": None if text is None else files.digest(text),
        "settings": settings,
        "unknown_keys": sorted(key for key in settings if key not in files.KEYS),
    }


def _nodes(read: Survey, notes: list[Finding]) -> NodeList:
    text = read["nodes"]["text"]
    parsed = files.parse_nodes(text or "")
    record = files.parse_record(read["record"]["text"] or "")
    sha256 = None if text is None else files.digest(text)
    path = _shown(read["nodes"]["path"])
    if parsed.wrong:
        number, entry, why = parsed.wrong[0]
        notes.append(
            finding(
                "imex_list_unusable",
                f"Line {number} of {path} is {why} ({quoted(entry)}), and a node's id is its line; run the role imex on"
                " the whole clique, which writes the list again.",
            )
        )
    if record and sha256 and record.sha256 != sha256:
        notes.append(
            finding(
                "imex_list_outdated",
                f"{path} is not the list that was written for generation {record.generation} of clique {record.clique};"
                " run the role imex on the whole clique, which writes one list on all its trays.",
            )
        )
    return {
        "path": path,
        "sha256": sha256,
        "entries": list(map(_shown, parsed.entries)),
        "own_id": files.own_id(parsed.entries, read["addresses"], read["names"]),
        "changed_at": read["nodes"]["changed_at"],
        "generation": record.generation if record else None,
        "clique": record.clique if record and _PLAIN.fullmatch(record.clique) else None,
        "recorded_owner": record.owner if record and _PLAIN.fullmatch(record.owner) else None,
        "recorded_sha256": record.sha256 if record else None,
    }


def _state(read: Survey, notes: list[Finding]) -> str | None:
    answer = read["answers"].get("state")
    if answer is None:
        return None
    if answer.timed_out:
        _hangs(answer, "-q", notes)
        return None
    return status.parse_state(answer.stdout) if answer.rc == 0 else None


def _domain(read: Survey, notes: list[Finding]) -> status.Domain | None:
    answer = read["answers"].get("domain")
    if answer is None:
        return None
    if answer.timed_out:
        _hangs(answer, "-N -j", notes)
        return None
    output = (answer.error or answer.stderr.strip() or answer.stdout.strip()).partition("\n")[0]
    if status.NOT_CONFIGURED in answer.stdout + answer.stderr:
        notes.append(
            finding(
                "imex_list_unusable",
                f"IMEX cannot read its list {_shown(read['nodes']['path'])}; run the role imex, which writes it.",
            )
        )
        return None
    try:
        if answer.rc != 0:
            raise status.StatusError(f"nvidia-imex-ctl -N -j exited with code {answer.rc}")
        return status.parse_domain(answer.stdout)
    except status.StatusError as error:
        notes.append(
            finding(
                "imex_not_ready",
                f"{error} but {quoted(output)}; run nvidia-imex-ctl -N on the tray, and check"
                " that IMEX_CMD_ENABLED is 1.",
            )
        )
        return None


def _hangs(answer: child.Result, option: str, notes: list[Finding]) -> None:
    stuck = f" and its process {answer.survivor_pid} hangs in the kernel" if answer.survivor_pid else ""
    notes.append(
        finding(
            "imex_timeout",
            f"nvidia-imex-ctl {option} did not respond in time{stuck}; drain the tray and restart the daemon, and"
            " reboot the tray if it hangs again.",
        )
    )


def _peers(own: status.Node | None, entries: Sequence[str], own_id: int | None) -> list[Peer]:
    """The peers of this tray, by their ids; the connection is null where the tray does not report it."""
    if own is None:
        return []
    return [
        {"id": number, "host": entry, "connection": own.connections.get(number)}
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
    return "foreign", f"process {pid} ({quoted(' '.join(argv))}) has no known owner"


# --- Findings.


def _check_presence(facts: Facts, config: files.Config, notes: list[Finding]) -> None:
    unit: Unit = facts["unit"] or {}
    if not facts["installed"]:
        if not facts["running"]:
            notes.append(
                finding("imex_missing", "nvidia-imex is not installed; run the role imex where IMEX is needed.")
            )
        return
    if facts["config"]["sha256"] is None:
        path = facts["config"]["path"]
        notes.append(
            finding(
                "imex_list_unusable",
                f"{path} cannot be read; reinstall the package of nvidia-imex, which has that file.",
            )
        )
    elif facts["running"] and config.get("IMEX_CMD_ENABLED") != "1":
        notes.append(
            finding(
                "imex_cmd_disabled",
                "IMEX_CMD_ENABLED is not 1, so the state of this daemon cannot be read; set it to 1 and restart the"
                " daemons of the clique.",
            )
        )
    version, driver = facts["version"], facts["driver_version"]
    if version and driver and not status.is_same_version(version, driver):
        if facts["ready"]:
            message = (
                f"nvidia-imex runs as version {version} and the driver is {driver}, with which it would not restart"
            )
        else:
            message = f"nvidia-imex is version {version} and the driver {driver}, so it does not start"
        notes.append(finding("imex_version_mismatch", f"{message}; install the package of the driver's exact version."))
    if unit.get("active") == "failed":
        result = unit.get("result")
        notes.append(
            finding(
                "imex_unit_down",
                f"{UNIT} has failed ({quoted(result)}); check its log and remove the cause, then run systemctl"
                " reset-failed nvidia-imex and start it.",
            )
        )
    elif facts["running"] and _is_starting(unit):
        notes.append(
            finding(
                "imex_unit_starting",
                f"{UNIT} is still starting though its daemon runs, and systemd ends it after the unit's"
                f" TimeoutStartSec; check journalctl -u {UNIT}, then restart it.",
            )
        )
    elif unit.get("enabled") == "enabled" and not facts["running"]:
        notes.append(
            finding(
                "imex_unit_down",
                f"{UNIT} is enabled and does not run ({quoted(unit.get('active'))}); check journalctl -u {UNIT}, then"
                " start it.",
            )
        )
    if facts["persist_file"] and not facts["running"]:
        notes.append(
            finding(
                "imex_persist_left",
                "A persist file is left from an unclean stop, so the next start waits for the peers of that time; start"
                " with a changed list, or remove the file when no job of that time runs any more.",
            )
        )


def _check_daemon(facts: Facts, daemons: Sequence[Process], read: Survey, notes: list[Finding]) -> None:
    unit: Unit = facts["unit"] or {}
    codes = {note["code"] for note in notes}
    expected = facts["running"] or unit.get("enabled") == "enabled" or unit.get("active") == "failed"
    cause = _cause_in_log(read["log"]) if expected and not facts["ready"] else None
    nodes = facts["nodes"]
    # Without any address of the tray its own line cannot be found.
    unlisted = bool(nodes["entries"]) and nodes["own_id"] is None and bool(read["addresses"])
    if (unlisted and expected) or cause == "imex_no_own_address":
        notes.append(
            finding(
                "imex_no_own_address",
                f"No line of {nodes['path']} is an address of this tray, so it is not a node of its IMEX domain;"
                " correct imex_address in the fabric file, or let the daemon start after the network.",
            )
        )
    if cause == "imex_in_use":
        notes.append(
            finding(
                "imex_in_use",
                "The driver's one IMEX session belongs to another daemon (NV_ERR_IN_USE); stop the other owner, perhaps"
                " in a container, then start this one.",
            )
        )
    if cause == "imex_version_mismatch" and cause not in codes:
        notes.append(
            finding(
                "imex_version_mismatch",
                "nvidia-imex ended because its version is not the loaded driver's; install the package of the driver's"
                " exact version, and reboot where a newer driver waits to be loaded.",
            )
        )
    if nodes["sha256"] is None and expected and "imex_list_unusable" not in codes:
        notes.append(
            finding("imex_list_unusable", f"There is no list {nodes['path']}; run the role imex, which writes it.")
        )
    state = facts["state"]
    if state == "waiting_for_recovery":
        missing = [peer["host"] for peer in facts["peers"] if peer["connection"] != "connected"]
        notes.append(
            finding(
                "imex_waiting_for_recovery",
                "IMEX waits for its peers of before an unclean stop"
                + (f" ({summarize(missing)} not connected)" if missing else "")
                + "; bring them up, or restart the daemons of the whole clique with a changed list or"
                " IMEX_WAIT_FOR_QUORUM=NONE.",
            )
        )
    elif facts["running"] and state not in (None, "ready"):
        log = _shown(read["log_path"]) or "the journal"
        notes.append(
            finding(
                "imex_not_ready",
                f"IMEX is in the state {state}, not ready; check its log, {log}.",
            )
        )
    elif facts["running"] and state is None and not codes & {"imex_timeout", "imex_cmd_disabled", "imex_not_ready"}:
        notes.append(
            finding(
                "imex_not_ready", "nvidia-imex-ctl -q printed no state; run it on the tray, then restart the daemon."
            )
        )
    started = [daemon["started_at"] for daemon in daemons if daemon["started_at"] is not None]
    changed = nodes["changed_at"]
    if started and changed is not None and changed > max(started) + _START_SLACK:
        notes.append(
            finding(
                "imex_restart_pending",
                f"{nodes['path']} was written after the daemon started, which reads it at its start only; restart the"
                " daemons of the whole clique together.",
            )
        )


# Peer's state -> the finding's code and what follows the names of this tray and the peers.
_DISCONNECTED = {
    "map_mismatch": (
        "imex_list_differs",
        "started with different lists (!M!) and do not connect; write one list on all trays of the clique, then stop"
        " all daemons and start all.",
    ),
    "version_mismatch": (
        "imex_peer_version",
        "run different versions (!V!) and do not connect; install one version of driver and IMEX on the whole clique.",
    ),
    "authentication_error": (
        "imex_peer_authentication",
        "cannot authenticate (!A!) and do not connect; check on both that the TLS files of config.cfg are of one"
        " authority and not expired, then restart the daemons of the clique.",
    ),
}


def _check_peers(facts: Facts, notes: list[Finding]) -> None:
    by_connection: dict[str, list[str]] = {}
    for peer in facts["peers"]:
        by_connection.setdefault(peer["connection"] or "invalid", []).append(peer["host"])
    explained = False
    for connection, (code, words) in _DISCONNECTED.items():
        hosts = by_connection.pop(connection, [])
        if hosts:
            explained = True
            notes.append(finding(code, f"This tray and {summarize(hosts)} {words}"))
    by_connection.pop("connected", None)
    if by_connection:
        total = sum(map(len, by_connection.values()))
        words = "; ".join(f"{connection}: {summarize(hosts)}" for connection, hosts in sorted(by_connection.items()))
        notes.append(
            finding(
                "imex_peer_lost",
                f"{total} of {count(len(facts['peers']), 'peer')} {'is' if total == 1 else 'are'} not connected"
                f" ({words}); run fabric_facts with gather_subset=imex on them, and check that ports 50000 and 50005"
                " are open between members.",
            )
        )
    elif facts["ready"] and facts["domain_state"] in ("degraded", "down") and not explained:
        what = "This tray is connected to all its peers" if facts["peers"] else "No peer of this tray is known"
        notes.append(
            finding(
                "imex_peer_lost",
                f"{what}, but the domain is {facts['domain_state']}; run fabric_facts with gather_subset=imex on the"
                " other members, and check that port 50005 is open between members.",
            )
        )


def _check_channels(facts: Facts, slurm_gives_channels: bool, notes: list[Finding]) -> None:
    """Slurm's plugin creates its devices where only the job has them: those in the folder are not Slurm's."""
    major, devices = facts["channels"]["major"], facts["channels"]["devices"]
    if slurm_gives_channels and devices:
        names = summarize([device["name"] for device in devices])
        notes.append(
            finding(
                "imex_channel_slurm_conflict",
                f"{names} in {CHANNELS} and Slurm's switch/nvidia_imex conflict: each start of slurmd and each"
                " scontrol reconfigure removes the device, and until then jobs of every user reach it on Slurm 24.11;"
                " remove it, and let the driver create none (NVreg_CreateImexChannel0=0).",
            )
        )
    stale = [device["name"] for device in devices if major is not None and device["major"] != major]
    if stale:
        notes.append(
            finding(
                "imex_channel_stale",
                f"{summarize(stale)} {'has' if len(stale) == 1 else 'have'} another major number than {major}, the"
                " driver's since this boot; remove and create the device again.",
            )
        )
    if not facts["running"]:
        return
    if major is None:
        notes.append(
            finding(
                "imex_channels_off",
                "The driver has no IMEX channels (no line nvidia-caps-imex-channels in /proc/devices); set"
                " NVreg_ImexChannelCount above 0 and reboot.",
            )
        )
    elif not devices and not slurm_gives_channels:
        notes.append(
            finding(
                "imex_channel_missing",
                "There is no channel device, without which CUDA calls are not permitted; the role imex creates one, and"
                " Slurm's switch/nvidia_imex creates one for each job step.",
            )
        )


def _check_owners(facts: Facts, notes: list[Finding]) -> None:
    owners = facts["owners"]
    if len(owners) > 1:
        words = " and ".join(f"{entry['owner']} ({entry['why']})" for entry in owners)
        notes.append(
            finding(
                "imex_two_owners",
                f"IMEX has more than one owner here: {words}; a host has one IMEX session, so keep one of them.",
            )
        )
    elif owners and owners[0]["owner"] == "foreign":
        notes.append(
            finding(
                "imex_foreign_daemon",
                f"An IMEX daemon runs that neither {UNIT}, nor a prolog, nor the DRA driver started"
                f" ({owners[0]['why']});"
                " stop it and start its owner.",
            )
        )


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


def _shown(text: str) -> str:
    """A path or an entry, quoted where it has characters that must not be printed."""
    return text if _PLAIN.fullmatch(text) else quoted(text)
