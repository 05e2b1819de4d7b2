# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source ssh: read every tray by a probe over ssh, from one process, through gateways where there are any.

A tray may print anything, without end, or nothing: at most MAX_OUTPUT of it is kept, and it has connect_timeout +
command_timeout seconds, so the run ends. A gateway only forwards: each has one connection (a ControlMaster), and what
passes through it is encrypted between this controller and the tray.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shlex
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.doc_fragments import source_ssh
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu.facts import check_options
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import causes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation, SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, SourceError, documented
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import Reporter, fanout, probe
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.ansible_facts import from_facts, sentence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.collector import MAX_TRAYS, tray_name
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.fanout import MAX_OUTPUT
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import shown
from ClusterShell.NodeSet import NodeSet, NodeSetException

SOURCE = "ssh"
OPTIONS = documented(source_ssh.ModuleDocFragment.DOCUMENTATION, SOURCE)

# Exit statuses of a shell that cannot run the tray's Python.
_NO_PYTHON = (126, 127)
# Text in ssh's standard error -> the reason to report. The first match counts.
REASONS = (
    ("connection refused", "connection refused"),
    ("could not resolve hostname", "its name cannot be resolved"),
    ("timed out", "connection timed out"),
    ("no route to host", "no route to it"),
    ("network is unreachable", "no route to it"),
    ("remote host identification has changed", "its host key has changed"),
    ("host key verification failed", "its host key is not known"),
    ("no matching host key", "no common algorithm of host keys"),
    ("permission denied", "authentication refused"),
    ("too many authentication failures", "authentication refused"),
    ("connection reset", "connection closed"),
    ("connection closed", "connection closed"),
)
# In ssh's standard error where a gateway does not connect to a tray; the gateway's reason is not in it.
_NOT_FORWARDED = "session open refused by peer"
_SECONDS_BETWEEN_PROGRESS = 1.0

# As in ssh's ProxyJump; neither part can begin with a dash, which would make it an option of ssh.
_GATEWAY = re.compile(
    r"(?:([A-Za-z0-9_][A-Za-z0-9._-]{0,63})@)?([A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?"
)
# For what ssh to a gateway still prints after its end.
_LAST_WORDS_SECONDS = 0.2
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")


@dataclass(frozen=True)
class ClientConfig:
    """How the ssh client reaches and runs the probe on trays; times in seconds."""

    ssh: str
    ssh_options: tuple[str, ...]
    user: str | None
    port: int
    python: str
    fanout: int
    connect_timeout: int
    command_timeout: int
    probe: tuple[str, ...]
    """The arguments of a tray's Python."""

    @property
    def tray_timeout(self) -> int:
        """Seconds that one tray has."""
        return self.connect_timeout + self.command_timeout


def discover(options: Any, now: str, known: Mapping[str, str], reporter: Reporter) -> SourceResult:
    """Observe each tray of the option hosts, or else each known one; known: tray -> its ssh address."""
    checked = Options(options, OPTIONS, SOURCE)
    config = _client_config(checked)
    trays = _trays(checked, known)
    gateways = _gateways(checked, trays, reporter)
    replies = _Trays(trays, config, reporter)
    try:
        asyncio.run(_read(trays, gateways, replies, config))
    except OSError as error:
        raise SourceError(
            f"{SOURCE}: cannot start {config.ssh} ({error.strerror or error}); correct the option ssh"
        ) from error
    return SourceResult(replies.observations())


# --- The options.


def _client_config(options: Options) -> ClientConfig:
    ssh = os.path.expanduser(options.text("ssh") or "ssh")
    if shutil.which(ssh) is None:
        raise options.wrong("ssh", f"{shown(ssh)} is not a program on this controller; install the OpenSSH client")
    connect_timeout = options.whole("connect_timeout", 10, 1, 3600)
    fanout = options.whole("fanout", 64, 1, 4096)
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors != resource.RLIM_INFINITY and 4 * fanout + 64 > descriptors:
        raise options.wrong("fanout", f"{fanout} needs {4 * fanout + 64} open files, of {descriptors} (ulimit -n)")
    command_timeout = options.whole("command_timeout", 60, 1, 7200)
    return ClientConfig(
        ssh=ssh,
        # First those that nothing may override: a password prompt would hang the run.
        ssh_options=(
            "-T",
            "-oBatchMode=yes",
            f"-oConnectTimeout={connect_timeout}",
            *options.words("ssh_options"),
        ),
        user=options.text("user"),
        port=options.whole("port", 0, 1, 65535),
        python=options.text("python") or "/usr/bin/python3",
        fanout=fanout,
        connect_timeout=connect_timeout,
        command_timeout=command_timeout,
        probe=_probe(options, command_timeout),
    )


def _probe(options: Options, command_timeout: int) -> tuple[str, ...]:
    """The arguments of a tray's Python; the options of fabric_facts are checked by its own function."""
    own = (
        options.text("backend") or "auto",
        options.text("nvidia_smi") or "nvidia-smi",
        options.number("timeout", 20.0, 0.1, 3600),
    )
    try:
        check_options(*own)
    except NvlinkError as error:
        raise SourceError(f"{SOURCE}: {str(error).rstrip('.')}") from None
    if own[2] >= command_timeout:
        raise options.wrong("command_timeout", f"is {command_timeout}, use more than timeout, {own[2]:g}")
    return tuple(probe.arguments(*own, command_timeout))


def _trays(options: Options, known: Mapping[str, str]) -> dict[str, str]:
    """Tray -> its ssh address, of the trays to read."""
    if "hosts" not in options:
        if not known:
            raise options.wrong("hosts", "is missing; name the trays, or add fabric_file to the sources")
        return dict(known)
    names = [str(name) for name in _nodes(options, "hosts", _texts(options))]
    if not names:
        raise options.wrong("hosts", "names no tray; name one, or leave it out to read those of the fabric file")
    return {name: known.get(name, name) for name in names}


def _texts(options: Options) -> list[Any]:
    """The option hosts, a text or a list of texts."""
    try:
        return [options.text("hosts")]
    except SourceError:
        return options.sequence("hosts") or []


def _gateways(options: Options, trays: Iterable[str], reporter: Reporter) -> dict[str, str]:
    """Tray -> its gateway, of the trays that have one."""
    if "jump" not in options:
        return {}
    try:
        jump: Mapping[Any, Any] | None = options.mapping("jump")
    except SourceError:
        gateway = _gateway(options, options.text("jump"))
        return dict.fromkeys(trays, gateway)
    wanted = set(trays)
    found: dict[str, str] = {}
    for hosts, value in (jump or {}).items():
        gateway = _gateway(options, value)
        names = {str(name) for name in _nodes(options, "jump", [hosts])}
        twice = sorted(names & found.keys())
        if twice:
            raise options.wrong("jump", f"has two gateways for {twice[0]}; name each tray once")
        found.update(dict.fromkeys(names, gateway))
        if not names & wanted:
            reporter.warning(f"{SOURCE}: jump has {shown(hosts)}, and none of these trays is read")
    return {name: gateway for name, gateway in found.items() if name in wanted}


def _gateway(options: Options, value: Any) -> str:
    match = _GATEWAY.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[3] or 22) < 65536:
        raise options.wrong("jump", f"has {shown(value)}, which is not a gateway; write one as in admin@gw1:22")
    return str(value)


def _nodes(options: Options, key: str, texts: Iterable[Any]) -> NodeSet:
    """The names of trays in texts; an error for more than MAX_TRAYS, found before their ranges are expanded."""
    nodes = NodeSet()
    for text in texts:
        if not isinstance(text, str):
            raise options.wrong(key, f"has {shown(text)}, write names such as r01t[01-18]")
        spans = sum(int(high) - int(low) for low, high in _RANGE.findall(text[:MAX_OUTPUT]) if len(high) < 20)
        too_many = options.wrong(key, f"has {shown(text)}, which is more than {MAX_TRAYS} trays; name fewer")
        if spans > MAX_TRAYS or len(text) > MAX_OUTPUT:
            raise too_many
        if any(len(part) > 253 for part in re.split(r"[],[\s]", text)):
            raise options.wrong(key, f"has {shown(text)}, and a tray's name has at most 253 characters; correct it")
        try:
            found = NodeSet(str(text))
        except (NodeSetException, AssertionError) as error:  # the latter for a range that is too large
            raise options.wrong(key, f"has {shown(text)}, which is not a node set ({error})") from None
        if len(found) > MAX_TRAYS:
            raise too_many
        nodes.update(found)
    for name in nodes:
        if tray_name(str(name)) is None:
            raise options.wrong(key, f"has {shown(str(name))}, which is not a valid tray name")
    return nodes


# --- The run.


async def _read(trays: Mapping[str, str], gateways: Mapping[str, str], replies: _Trays, config: ClientConfig) -> None:
    """Read all trays, config.fanout at a time; trays: tray -> its address, gateways: tray -> its gateway."""
    async with _jumps(gateways.values(), config) as jumps:
        of_trays = {tray: jumps[gateway] for tray, gateway in gateways.items()}
        replies.give_up({tray: jump.problem for tray, jump in of_trays.items() if jump.problem})
        waiting = [tray for tray in trays if tray not in of_trays or not of_trays[tray].problem]
        archive = probe.archive()

        async def read(tray: str) -> None:
            jump = of_trays.get(tray)
            ended = await fanout.run(_tray_command(trays[tray], config, jump), archive, config.tray_timeout)
            replies.keep(tray, ended, jump)

        await fanout.each(waiting, config.fanout, read)


@asynccontextmanager
async def _jumps(gateways: Iterable[str], config: ClientConfig) -> AsyncIterator[dict[str, _Jump]]:
    """Gateway -> the connection to it, or why there is none. The connections end with the context."""
    names = dict.fromkeys(gateways)
    with ExitStack() as stack:
        # Not in TMPDIR, since the path of a socket has at most 108 bytes. Only this user can enter it.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nvlink-ssh-", dir="/tmp")) if names else ""
        jumps = {name: _Jump(name, f"{folder}/{number}", config) for number, name in enumerate(names)}
        try:
            await fanout.each(jumps.values(), config.fanout, _Jump.open)
            yield jumps
        finally:
            await asyncio.gather(*(jump.close() for jump in jumps.values()))


def _tray_command(address: str, config: ClientConfig, jump: _Jump | None) -> list[str]:
    return [
        config.ssh,
        *(jump.client_options() if jump else ()),
        *((f"-oPort={config.port}",) if config.port else ()),
        *config.ssh_options,
        *_flag("-l", config.user or ""),
        "--",
        address,
        f"exec {shlex.join([config.python, *config.probe])}",
    ]


class _Jump:
    """The connection to one gateway, over which the connections to the trays behind it are forwarded.

    sshd counts a forwarded connection neither as a start of a connection (MaxStartups) nor as a session (MaxSessions).
    """

    def __init__(self, gateway: str, socket: str, config: ClientConfig) -> None:
        self.name, self._socket, self._config = gateway, socket, config
        self._master: fanout.Program | None = None
        self.problem = ""
        """Why it cannot be used; empty for an open one."""

    async def open(self) -> None:
        """Connect; afterwards it can be used, or has a problem."""
        # It matches, since _gateway() has checked the name.
        user, host, port = (part or "" for part in _GATEWAY.fullmatch(self.name).groups())  # type: ignore[union-attr]
        own = ["-N", "-oControlMaster=yes", "-oControlPersist=no", "-oClearAllForwardings=yes"]
        to = ["-S", self._socket, *_flag("-l", user), *_flag("-p", port), "--", host.strip("[]")]
        # The shell in the background ends ssh when this process is killed: its standard input ends then.
        watch = 'exec 3<&0; (read -r _ <&3; kill $$) & exec "$@" 3<&- </dev/null'
        words = [self._config.ssh, *own, *self._config.ssh_options, *to]
        self._master = await fanout.start(["/bin/sh", "-c", watch, "sh", *words])
        ends = time.monotonic() + self._config.tray_timeout
        # ssh makes its socket once it has logged in, complete under this name.
        while not os.path.exists(self._socket):
            if self.has_ended or time.monotonic() > ends:
                await self._master.wait(_LAST_WORDS_SECONDS)
                reason = _reason(self._master.ended(), self._config)
                self.problem = f"its gateway {self.name} cannot be used ({reason})"
                return
            await asyncio.sleep(0.02)

    @property
    def has_ended(self) -> bool:
        """Whether the connection has ended."""
        return self._master is None or self._master.rc is not None

    async def close(self) -> None:
        """End the connection."""
        if self._master is not None:
            await self._master.end()

    def client_options(self) -> list[str]:
        """Options of ssh to a tray behind this gateway: as ProxyJump, through this connection and no other."""
        # Without its socket it must fail, not connect once more for each tray.
        words = [self._config.ssh, "-F/dev/null", "-S", self._socket, "-oProxyCommand=false"]
        forward = f"{shlex.join(words).replace('%', '%%')} -W '[%h]:%p' -- gateway"
        return [f"-oProxyCommand={forward}", "-oProxyUseFdpass=no"]


def _flag(flag: str, value: str) -> tuple[str, ...]:
    return (flag, value) if value else ()


class _Trays:
    """Turns the output of trays into observations, and reports progress. trays: tray -> its ssh address."""

    def __init__(self, trays: Iterable[str], config: ClientConfig, reporter: Reporter) -> None:
        self._trays, self._config, self._reporter = list(trays), config, reporter
        self._observed: dict[str, Observation] = {}
        self._reported_at = time.monotonic()

    def keep(self, tray: str, ended: fanout.Ended, jump: _Jump | None) -> None:
        """Keep the tray's observation."""
        facts = None if len(ended.output) > MAX_OUTPUT else probe.facts_in(ended.output)
        if facts is not None:
            self._observed[tray] = from_facts(tray, facts, SOURCE)
        else:
            self._observed[tray] = _unreachable(tray, _reason(ended, self._config, jump))
        now = time.monotonic()
        if now - self._reported_at >= _SECONDS_BETWEEN_PROGRESS:
            self._reported_at = now
            self._reporter.v(f"{SOURCE}: {self._progress()}")

    def give_up(self, problems: Mapping[str, str]) -> None:
        """Keep why trays are not read at all; those with an empty text are."""
        for tray, problem in problems.items():
            if problem:
                self._observed[tray] = _unreachable(tray, problem)

    def observations(self) -> list[Observation]:
        """The observations of all trays, in their order."""
        self._reporter.v(f"{SOURCE}: {self._progress()}")
        problems = [(tray, row.problem) for tray, row in self._observed.items() if not row.reachable]
        if problems:
            these = f"{len(problems)} of {count(len(self._trays), 'tray')}"
            self._reporter.warning(f"{SOURCE}: {these} returned no facts ({'; '.join(causes.grouped(problems))})")
        return [self._observed[tray] for tray in self._trays]

    def _progress(self) -> str:
        answered = sum(observation.reachable for observation in self._observed.values())
        return f"{len(self._observed)} of {len(self._trays)} trays done, {answered} returned facts"


def _unreachable(tray: str, problem: str) -> Observation:
    return Observation(tray=tray, source=SOURCE, reachable=False, problem=problem)


def _reason(ended: fanout.Ended, config: ClientConfig, jump: _Jump | None = None) -> str:
    """The reason for output of a tray without facts."""
    lines = [line for line in ended.errors.splitlines() if line.strip()]
    last = sentence(lines[-1]) if lines else ""
    if len(ended.output) > MAX_OUTPUT:
        return f"it prints more than {MAX_OUTPUT // 1024} KiB"
    if ended.rc is None:
        return f"no response within {config.tray_timeout} s"
    if ended.rc == 255:
        return _problem_of_ssh(ended, jump) or last or "ssh failed without a message"
    if ended.rc in _NO_PYTHON:
        return f"no Python at {sentence(config.python)}"
    if any(error in last for error in ("AttributeError", "ImportError", "ModuleNotFoundError", "SyntaxError")):
        return f"its Python is too old or incomplete ({last})"
    return f"it printed no facts ({last})" if last else f"it printed no facts (exit status {ended.rc})"


def _problem_of_ssh(ended: fanout.Ended, jump: _Jump | None) -> str:
    """The known reason why ssh failed; empty for an unknown one."""
    if ended.rc != 255:
        return ""
    if jump and jump.has_ended:
        return f"its gateway {jump.name} closed the connection"
    lowered = ended.errors.lower()
    if jump and _NOT_FORWARDED in lowered:
        return f"its gateway {jump.name} cannot connect to it"
    return next((reason for sign, reason in REASONS if sign in lowered), "")
