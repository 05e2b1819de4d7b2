# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX for one job: the program behind Slurm's Prolog, Epilog and TaskProlog on a tray.

The module imex_job packs this file with the others of module_utils that it imports. Its prolog makes one IMEX domain of
the job's trays in this tray's clique, whose members the settings name, so nobody is asked for them. On the way of
success it starts three other programs (scontrol show hostnames, which reads but slurm.conf; systemctl; nvidia-imex-ctl)
and speaks to no controller. Where the domain does not come up in time, the policy decides what becomes of the job.

What runs stands in RUN, which no boot survives, so an epilog knows whether the daemon is its job's own: it may run
twice, or without a prolog, or after one that was killed half-way.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, status

SETTINGS_FILE = "/etc/nvidia-imex/nvlink-job.json"
RUN = "/run/nvlink-imex-job"
UNIT = "nvidia-imex.service"
DAEMON = "nvidia-imex"
POLICIES = ("drain", "requeue", "run")
SCOPES = ("job", "clique_exclusive")
TRAY, PEER, JOB, CLIQUE = "tray", "peer", "job", "clique"
# Slurm gives prologs no search path at all.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What a failed prolog still has to do after its wait: ask why, stop the daemon, tell the user, requeue. Seconds.
MARGIN = 60
# A ctl that answers needs much less; one that hangs takes this from the wait.
_CTL_TIMEOUT = 6.0
_SLURM_TIMEOUT = 10.0
_LOOK_TIMEOUT = 12.0
_NOTE_TIMEOUT = 5.0
# A daemon comes back to a peer that was not up yet after 15, 31, 62 s; SIGUSR1 makes it call again at once.
_FIRST_NUDGE = 4.0
# A pair whose lists differed stays apart until both daemons are new, so both must be down at one time.
_MISMATCH_PAUSE = 3.0
_KNOCK = 0.5


class Failure(files.ImexError):
    """Why a job gets no IMEX domain: by fault of this tray, perhaps of a peer, of the job, or its clique is taken."""

    def __init__(self, message: str, fault: str = TRAY) -> None:
        super().__init__(message)
        self.fault = fault


class Settings(NamedTuple):
    """What the role says. ``members``: (node in Slurm, line of the list) of this tray's clique, in the list's order."""

    clique: str
    members: tuple[tuple[str, str], ...]
    policy: str = "drain"
    scope: str = "job"
    wait: float = 60.0
    stop_wait: float = 20.0
    least_trays: int = 2
    most_requeues: int = 3
    channel0: bool = False
    path: str = ""
    proc_devices: str = "/proc/devices"


class Job(NamedTuple):
    """What Slurm says of the job in the environment of a prolog."""

    id: str
    node: str
    nodelist: str
    trays: int
    restarts: int
    environ: Mapping[str, str]


def settings_of(text: str) -> Settings:
    """The settings from their file; Failure when it is none of ours."""
    try:
        data = json.loads(text)
        found = Settings(**{**data, "members": tuple((str(node), str(line)) for node, line in data["members"])})
        if found.policy in POLICIES and found.scope in SCOPES and found.wait > 0:
            return found
    except (ValueError, KeyError, TypeError):
        pass
    raise Failure(f"{SETTINGS_FILE} is not what the imex role writes; run the role on this tray")


def job_of(environ: Mapping[str, str]) -> Job:
    try:
        return Job(
            environ["SLURM_JOB_ID"],
            environ["SLURMD_NODENAME"],
            environ["SLURM_JOB_NODELIST"],
            int(environ.get("SLURM_JOB_NUM_NODES", "0")),
            int(environ.get("SLURM_JOB_RESTART_COUNT") or 0),
            environ,
        )
    except (KeyError, ValueError) as error:
        raise Failure(f"Slurm does not say which job this is ({error}); this is for its Prolog and Epilog") from None


def shares_its_trays(environ: Mapping[str, str]) -> str | None:
    """How the job shares its trays with others, as NAME=VALUE; None where it has them alone.

    26.05 has SLURM_JOB_EXCLUSIVE and there says SLURM_JOB_OVERSUBSCRIBE=NO of shared trays too; 24.11 says NO of
    trays that the job has alone and OK of others.
    """
    if "SLURM_JOB_EXCLUSIVE" in environ:
        name, alone = "SLURM_JOB_EXCLUSIVE", {"NODE", "TOPO", "YES"}
    else:
        name, alone = "SLURM_JOB_OVERSUBSCRIBE", {"NO", "TOPO"}
    value = environ.get(name, "")
    return None if value in alone else f"{name}={value}"


def holds_whole_blocks(environ: Mapping[str, str]) -> bool:
    """Whether Slurm keeps every other job from the blocks of this one (--exclusive=topo)."""
    return "TOPO" in (environ.get("SLURM_JOB_EXCLUSIVE"), environ.get("SLURM_JOB_OVERSUBSCRIBE"))


def members_of(settings: Settings, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The job's trays in this clique, in the order that all of them have in common."""
    wanted = set(names)
    return tuple(member for member in settings.members if member[0] in wanted)


# --- Prolog.


def prolog(settings: Settings, environ: Mapping[str, str]) -> None:
    """Bring the job's IMEX domain up, or raise Failure; at once where the job needs none on this tray."""
    began = time.monotonic()
    deadline = began + settings.wait
    job = job_of(environ)
    shared = shares_its_trays(environ)
    members = _members(settings, job)
    with _Lock(deadline):
        if len(members) < settings.least_trays or job.node not in dict(members):
            if not shared and state() is not None:
                clear(settings)  # left by a job whose epilog never ran
            return
        if shared:
            raise Failure(
                f"the job shares its trays ({shared}), and a tray has one IMEX daemon for one job; submit it with"
                " --exclusive, or to a partition that gives whole nodes",
                JOB,
            )
        alone = settings.scope == "job" or holds_whole_blocks(environ)
        if not alone:
            _check_clique(settings, members)
        _write_state({"job": job.id, "clique": settings.clique, "trays": [node for node, _line in members]})
        _stop(settings)
        _remove(files.PERSIST_FILE)
        # The role has checked the lines.
        _write(_list_path(), "".join(f"{line}\n" for _node, line in members))
        if settings.channel0:
            _channel0(settings)
        _start(deadline)
        _wait(settings, job, members, deadline)
        if not alone:
            _check_clique(settings, members)
        waited = time.monotonic() - began
        _log(f"job {job.id}: IMEX domain of {len(members)} trays of clique {settings.clique} ready in {waited:.1f} s")


def _members(settings: Settings, job: Job) -> tuple[tuple[str, str], ...]:
    if job.trays == 1:
        return members_of(settings, [job.node])
    done = child.run(["scontrol", "show", "hostnames", job.nodelist], _SLURM_TIMEOUT)
    if done.rc != 0:
        raise Failure(f"scontrol show hostnames {job.nodelist} failed ({_said(done)}); see that it is in imex_job_path")
    return members_of(settings, done.stdout.split())


def _check_clique(settings: Settings, members: Sequence[tuple[str, str]]) -> None:
    """Failure where a tray of the clique that is not the job's has a daemon: there is another job's domain.

    Both before the own daemon starts and after it is ready: of two jobs that start at one time at least one sees the
    other. A tray that is down says nothing, and has no domain.
    """
    others = [member for member in settings.members if member not in members]
    port = int(files.Config(_text(files.CONFIG_FILE)).get("SERVER_PORT") or 50000)
    taken = _listening([line for _node, line in others], port)
    names = [node for node, line in others if line in taken]
    if names:
        raise Failure(
            f"another job's IMEX domain runs in clique {settings.clique} (on {_listed(names)}), and imex_job_scope"
            " allows one at a time; let it run when that job has ended, or submit such jobs with --exclusive=topo",
            CLIQUE,
        )


def _listening(addresses: Sequence[str], port: int) -> set[str]:
    """Those of the addresses where somebody takes connections on the port, all asked at once."""
    import selectors
    import socket

    found = set()
    with selectors.DefaultSelector() as selector:
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            link = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                link.connect_ex((address, port))
            except OSError:  # a name that means nothing
                link.close()
                continue
            selector.register(link, selectors.EVENT_WRITE, address)
        deadline = time.monotonic() + _KNOCK
        while selector.get_map() and time.monotonic() < deadline:
            for key, _events in selector.select(max(0.0, deadline - time.monotonic())):
                link = key.fileobj  # type: ignore[assignment]
                if link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found.add(key.data)
                selector.unregister(link)
                link.close()
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
    return found


def _start(deadline: float) -> None:
    left = max(0.5, deadline - time.monotonic())
    done = child.run(["systemctl", "start", UNIT], left)
    if done.timed_out:
        raise Failure(_cause(f"{UNIT} did not start within {left:.0f} s; see its log"))
    if done.rc != 0:
        raise Failure(_cause(f"{UNIT} did not start ({_said(done)}); see its log"))


def _wait(settings: Settings, job: Job, members: Sequence[tuple[str, str]], deadline: float) -> None:
    """Until this tray's own row says READY, and CONNECTED of every member; Failure when that is vain, or too late.

    A member that comes late is called anew by SIGUSR1. A member with another list may have the daemon of an earlier
    job still: then this daemon is started anew, with a pause in which the other's is new too.
    """
    own = [node for node, _line in members].index(job.node)
    others = [line for number, (_node, line) in enumerate(members) if number != own]
    pause, patience, nudge, started, seen = 0.1, 1.0, _FIRST_NUDGE, time.monotonic(), _View(None, {}, "")
    while True:
        # The ctl asks every member: asked again and again, it keeps all these daemons from their start.
        _until_connected(others, min(time.monotonic() + patience, deadline))
        left = deadline - time.monotonic()
        if left <= 0:
            raise _verdict(settings, members, own, seen)
        seen = _look(own, min(_CTL_TIMEOUT, max(0.5, left)), seen)
        words = {seen.row.get(number) for number in range(len(members)) if number != own}
        if seen.state == "ready":
            if words <= {"connected"}:
                return
            if "map_mismatch" in words and deadline - time.monotonic() > 2 * _MISMATCH_PAUSE:
                _stop(settings)
                time.sleep(_MISMATCH_PAUSE)
                _start(deadline)
                pause, patience, nudge, started = 0.1, 1.0, _FIRST_NUDGE, time.monotonic()
                continue
            if "version_mismatch" in words and time.monotonic() - started > _MISMATCH_PAUSE:
                raise _verdict(settings, members, own, seen)
            if time.monotonic() - started > nudge:
                nudge = 2 * nudge + 2
                _signal_daemon()
        elif seen.state is None and not daemons():
            raise Failure(_cause(f"{DAEMON} has ended right after its start; see its log"))
        time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
        pause, patience = min(pause * 1.6, 1.0), min(patience * 2, 2.0)


def _until_connected(addresses: Sequence[str], deadline: float) -> None:
    """Until the kernel has a connection to or from IMEX of each address, a hint that costs nobody else anything.

    Only for IPv4. Where a release connects in another way, until the deadline.
    """
    try:
        wanted = {b"%02X%02X%02X%02X" % tuple(map(int, reversed(address.split(".")))) for address in addresses}
    except (ValueError, TypeError):
        return
    port = b"%04X" % int(files.Config(_text(files.CONFIG_FILE)).get("SERVER_PORT") or 50000)
    while time.monotonic() < deadline:
        with open("/proc/net/tcp", "rb") as table:
            rows = [row.split(None, 4)[1:4] for row in table.readlines()[1:]]
        # 01 is ESTABLISHED.
        seen = {there[:8] for here, there, state in rows if state == b"01" and port in (here[9:], there[9:])}
        if wanted <= seen:
            return
        time.sleep(0.03)


class _View(NamedTuple):
    """This tray's own row: its state, id -> connection, and what is wrong with the answer."""

    state: str | None
    row: dict[int, str]
    wrong: str


def _look(own: int, timeout: float, before: _View) -> _View:
    done = child.run(["nvidia-imex-ctl", "-N", "-j"], timeout)
    if done.timed_out:
        return before._replace(state=None, wrong=f"nvidia-imex-ctl gave no answer within {timeout:.0f} s")
    try:
        row = status.parse_domain(done.stdout).nodes.get(own)
    except status.StatusError as error:
        return _View(None, {}, f"{error} ({_said(done)})")
    return (
        _View(row.state, row.connections, "") if row else _View(None, {}, "nvidia-imex-ctl says nothing of this tray")
    )


def _verdict(settings: Settings, members: Sequence[tuple[str, str]], own: int, seen: _View) -> Failure:
    """What the wait has ended with, in one sentence."""
    if seen.wrong:
        return Failure(f"{seen.wrong} though the daemon runs; restart the daemon, and reboot the tray if that recurs")
    if seen.state != "ready":
        word = seen.state or "unknown"
        return Failure(_cause(f"the daemon is {word}, not ready, after {settings.wait:g} s; see its log"))
    found: dict[str, list[str]] = {}
    for number, (node, _line) in enumerate(members):
        word = seen.row.get(number) or "unknown"
        if number != own and word != "connected":
            found.setdefault(word, []).append(node)
    if "map_mismatch" in found:
        text = (
            f"{_listed(found['map_mismatch'])} has another list than this tray (!M!); run the imex role on all trays of"
            f" clique {settings.clique}, which gives them one map"
        )
    elif "version_mismatch" in found:
        text = (
            f"{_listed(found['version_mismatch'])} runs another version of IMEX than this tray (!V!); bring driver and"
            " package to one version"
        )
    else:
        parts = [f"{_listed(nodes)} {word.replace('_', ' ')}" for word, nodes in sorted(found.items())]
        text = (
            f"not connected to all trays of the job in clique {settings.clique} after {settings.wait:g} s:"
            f" {', '.join(parts)}; see that it is up, that its prolog ran, and that IMEX's ports are open between trays"
        )
    return Failure(text, PEER)


def _cause(otherwise: str) -> str:
    """What imex_info would call the reason, the log's word first; asked only when something has failed."""
    found = child.call(_look_for_cause, _LOOK_TIMEOUT).value
    return str(found) if found else otherwise


def _look_for_cause() -> str | None:
    from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import facts, survey

    read = survey.survey(timeout=2.0, prolog_files=())
    notes = [note for note in facts.assemble(read)["findings"] if note["severity"] == "error"]
    general = ("imex_unit_failed", "imex_unit_down", "imex_not_ready", "imex_ctl_failed")
    notes.sort(key=lambda note: note["code"] in general)
    wanted = [note for note in notes if note["code"] not in ("imex_channels_off", "imex_channel_missing")]
    return wanted[0]["message"].rstrip(".") if wanted else None


def _channel0(settings: Settings) -> None:
    """channel0 with the major of this boot, for whoever runs on this tray: it is this job's alone."""
    from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot

    major = boot.major_of_channels(settings.proc_devices)
    if major is None:
        raise Failure("the driver offers no IMEX channels; set NVreg_ImexChannelCount above 0 and reboot the tray")
    if boot.make_channels([0], major):
        _write_state({**(state() or {}), "channel0": True})


# --- Epilog.


def epilog(settings: Settings, environ: Mapping[str, str]) -> None:
    """Stop the job's daemon and clear what is left of it; nothing where this job has none here."""
    job = job_of(environ)
    with _Lock(time.monotonic() + settings.stop_wait):
        started = state()
        if started is not None and started.get("job") == job.id:
            clear(settings)
    _remove(_note_path(job))


def clear(settings: Settings) -> None:
    started = state() or {}
    _stop(settings, others=False)
    _remove(files.PERSIST_FILE)
    _remove(_list_path())
    if started.get("channel0"):
        _remove("/dev/nvidia-caps-imex-channels/channel0")
    _remove(os.path.join(RUN, "state.json"))


def _stop(settings: Settings, others: bool = True) -> None:
    """End the daemon by systemd, which sends SIGTERM, and SIGKILL only after the unit's TimeoutStopSec; then verify.

    ``others``: whether a daemon that is not of the unit is a Failure. It is never ended, for it has an owner.
    """
    running = daemons()
    strangers = [pid for pid, ours in running if not ours]
    if strangers and others:
        raise Failure(
            f"process {strangers[0]} is an IMEX daemon that no job and no {UNIT} started; stop its owner, or give the"
            " trays to that owner by imex_owner"
        )
    if len(strangers) == len(running):
        return
    # systemd itself kills after stop_wait; what is then left is in the kernel.
    done = child.run(["systemctl", "stop", UNIT], settings.stop_wait + 10)
    left = [pid for pid, ours in daemons() if ours]
    if left or done.rc != 0:
        raise Failure(
            f"{UNIT} could not be stopped ({f'process {left[0]} is left' if left else _said(done)}); reboot the tray"
        )
    if "Result=timeout" in child.run(["systemctl", "show", "--property=Result", UNIT], _SLURM_TIMEOUT).stdout:
        _log(f"{UNIT} did not end by SIGTERM within {settings.stop_wait:g} s and was killed; see its log", warning=True)


def daemons() -> list[tuple[int, bool]]:
    """The IMEX daemons: (pid, whether it is of nvidia-imex.service)."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and _text(f"/proc/{entry}/comm", 64).strip() == DAEMON:
            fields = _text(f"/proc/{entry}/stat", 4096).rpartition(")")[2].split()
            if fields and fields[0] not in "ZX":
                found.append((int(entry), f"/{UNIT}" in _text(f"/proc/{entry}/cgroup", 65536)))
    return found


def _signal_daemon() -> None:
    import signal

    for pid, ours in daemons():
        if ours:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)


# --- What becomes of a job without its domain.


def settle(settings: Settings, environ: Mapping[str, str], failure: Failure) -> int:
    """Tell why, then do as the policy says; the exit status of the prolog.

    drain is exit 1: Slurm drains the tray and gives the job back. Where the tray is not at fault (a job that shares its
    trays, a clique that is taken), draining would only take away a good tray: such a job is cancelled or given back.
    A job that another tray has given back, or that its user has cancelled, is left so.
    """
    job = job_of(environ)
    reason = f"IMEX on {job.node} for job {job.id}: {failure}"
    _log(reason, warning=True)
    try:
        with _Lock(time.monotonic() + 1):
            started = state()
            if started is not None and started.get("job") == job.id:
                clear(settings)
    except Failure as second:
        _log(f"job {job.id}: {second}", warning=True)
    seen = _ask(job)
    if settings.policy == "run":
        # A batch job's log is emptied when its script starts, so TaskProlog says it there.
        _write(_note_path(job), f"{reason}; the job runs without IMEX\n")
        _tell(job, seen, f"{reason}; the job runs without IMEX")
        return 0
    drain = settings.policy == "drain"
    # Members of a job that has ended stop their daemons, which says nothing against any tray.
    if seen.get("JobState", "RUNNING") not in _ACTIVE and not (drain and failure.fault == TRAY):
        _tell(job, seen, f"{reason}; the job is {seen['JobState'].lower()} already")
        return 0
    if drain and failure.fault in (TRAY, PEER):
        _tell(job, seen, f"{reason}; the tray is drained")
        _scontrol("update", f"NodeName={job.node}", "State=DRAIN", f"Reason=IMEX: {str(failure)[:900]}")
        return 1
    if failure.fault != JOB:
        held = job.restarts >= settings.most_requeues
        _tell(job, seen, f"{reason}; the job is {'held' if held else 'requeued'}")
        done = _scontrol("requeuehold" if held else "requeue", job.id)
        # Every tray of the job may have asked for it at this moment.
        if done.rc == 0 or any(word in done.stdout + done.stderr for word in ("pending", "complet")):
            return 0
        # Only batch jobs can be given back.
    else:
        _tell(job, seen, f"{reason}; the job is cancelled")
    if child.run(["scancel", job.id], _SLURM_TIMEOUT).rc == 0:
        return 0
    _log(f"job {job.id}: it could not be cancelled, so the prolog fails and Slurm drains the tray", warning=True)
    return 1


_ACTIVE = ("RUNNING", "CONFIGURING", "SUSPENDED")


def _scontrol(*arguments: str) -> child.Result:
    return child.run(["scontrol", *arguments], _SLURM_TIMEOUT)


def _ask(job: Job) -> dict[str, str]:
    """What Slurm says of the job now; nothing where it does not answer."""
    found = _scontrol("show", "job", job.id).stdout
    lines = [line.strip() for line in found.splitlines()]
    fields = dict(word.partition("=")[::2] for line in lines for word in line.split() if "=" in word)
    # These have a line of their own, and may hold blanks.
    fields.update(line.partition("=")[::2] for line in lines if line.startswith(("StdOut=", "WorkDir=")))
    fields["JobName"] = found.partition("JobName=")[2].partition("\n")[0]
    return fields


def _tell(job: Job, seen: Mapping[str, str], text: str) -> None:
    """A line in the job's log: to srun and salloc by Slurm's notify, to a batch job's file as its user."""
    if seen.get("BatchFlag", "0") == "0":
        _scontrol("notify", job.id, text)
        return
    path = _expanded(seen.get("StdOut", ""), job, seen)
    if path:
        # On a tray without the user's file system the line stands in a file of that tray.
        child.call(_append, _NOTE_TIMEOUT, path, f"{text}\n", job.environ.get("SLURM_JOB_UID", ""))


def _expanded(path: str, job: Job, fields: Mapping[str, str]) -> str | None:
    """The file of the pattern, as far as it can be told here; None where it cannot, or is none to write into."""
    task = fields.get("ArrayTaskId", "")
    known = {
        "j": job.id,
        "J": job.id,
        "A": fields.get("ArrayJobId", job.id),
        "a": task if task.isdecimal() else "4294967294",
        "N": fields.get("BatchHost", job.node),
        "n": "0",
        "t": "0",
        "s": "batch",
        "u": job.environ.get("SLURM_JOB_USER", ""),
        "x": fields.get("JobName", ""),
        "%": "%",
    }
    made, rest = "", path
    while "%" in rest:
        before, _mark, rest = rest.partition("%")
        digits = len(rest) - len(rest.lstrip("0123456789"))
        letter = rest[digits : digits + 1]
        if not known.get(letter):
            return None
        made += before + known[letter].zfill(min(int(rest[:digits] or 0), 10))
        rest = rest[digits + 1 :]
    made = os.path.join(fields.get("WorkDir", "/"), made + rest)
    return made if made.startswith("/") and not made.startswith("/dev/") else None


def _append(path: str, text: str, uid: str) -> bool:
    """In a child, as the job's user: what that user may not write, root does not write for him."""
    import pwd

    user = pwd.getpwuid(int(uid))
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CREAT
    with open(os.open(path, flags, 0o644), "a", encoding="utf-8") as file:
        file.write(text)
    return True


def task(environ: Mapping[str, str]) -> None:
    """TaskProlog: what the prolog has left for the job's log, once a tray and step."""
    if environ.get("SLURM_LOCALID", "0") == "0":
        said = _text(os.path.join(RUN, f"note.{environ.get('SLURM_JOB_ID', '')}"))
        if said:
            sys.stdout.write(f"print {said}")


# --- Files, the lock, the log.


def _list_path() -> str:
    return files.Config(_text(files.CONFIG_FILE)).get("IMEX_NODE_CONFIG_FILE") or files.NODES_FILE


def _note_path(job: Job) -> str:
    return os.path.join(RUN, f"note.{job.id}")


def state() -> dict[str, Any] | None:
    """What this program has started here: job, clique, trays and channel0; None for nothing."""
    text = _text(os.path.join(RUN, "state.json"))
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _write_state(state: Mapping[str, Any]) -> None:
    _write(os.path.join(RUN, "state.json"), json.dumps(state, sort_keys=True) + "\n")


def _write(path: str, text: str) -> None:
    """The whole file or none of it."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
    os.replace(f"{path}.new", path)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _text(path: str, most: int = 1 << 20) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""


class _Lock:
    """One prolog or epilog at a time on a tray; the kernel lets go of it for one that was killed."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline

    def __enter__(self) -> None:
        import fcntl

        os.makedirs(RUN, mode=0o755, exist_ok=True)
        self._file = os.open(os.path.join(RUN, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() >= self._deadline:
                    os.close(self._file)
                    raise Failure(
                        "another prolog or epilog of IMEX still runs on this tray; see what it waits for"
                    ) from None
                time.sleep(0.05)

    def __exit__(self, *_error: object) -> None:
        os.close(self._file)


def _log(text: str, warning: bool = False) -> None:
    import syslog

    syslog.openlog("nvlink-imex-job", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_ERR if warning else syslog.LOG_INFO, text)
    if warning:
        os.write(2, f"nvlink-imex-job: {text}\n".encode("utf-8", "replace"))


def _said(done: child.Result) -> str:
    text = (done.error or done.stderr.strip() or done.stdout.strip() or f"exit {done.rc}").splitlines()[0]
    return text[:200]


def _listed(values: Sequence[str]) -> str:
    shown = ", ".join(values[:5])
    return f"{shown} and {len(values) - 5} more" if len(values) > 5 else shown


_ENTRIES = {"prolog_slurmd": "prolog", "epilog_slurmd": "epilog", "prolog_task": "task"}


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """The program: prolog, epilog or task, said by its argument or by Slurm; its exit status."""
    entry = arguments[0] if arguments else _ENTRIES.get(environ.get("SLURM_SCRIPT_CONTEXT", ""), "")
    if entry == "task":
        task(environ)
        return 0
    if entry not in ("prolog", "epilog"):
        os.write(2, b"usage: nvlink-imex-job prolog|epilog|task, from Slurm's Prolog, Epilog and TaskProlog\n")
        return 2
    settings = Settings("", ())
    failure = None
    try:
        if entry == "prolog" or os.path.exists(SETTINGS_FILE):
            settings = settings_of(_text(SETTINGS_FILE))
        os.environ["PATH"] = f"{settings.path}:{SYSTEM_PATH}".lstrip(":")
        (prolog if entry == "prolog" else epilog)(settings, environ)
    except Failure as error:
        failure = error
    except Exception as error:  # a fault of this program must not leave a job hanging either
        failure = Failure(f"{type(error).__name__}: {error}; this is a fault of nvlink-imex-job, please report it")
    if failure is None:
        return 0
    try:
        if entry == "prolog":
            return settle(settings, environ, failure)
        _log(f"job {environ.get('SLURM_JOB_ID')}: {failure}", warning=True)
    except Exception as error:  # as above: the tray is drained, by exit 1
        os.write(2, f"nvlink-imex-job: {failure}; and then {type(error).__name__}: {error}\n".encode())
    return 1
