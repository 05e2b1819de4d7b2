# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source ssh: read every tray by a probe over ssh, from one process, through gateways where there are any.

The fan-out is ClusterShell's. A tray may print anything, without end, or nothing: at most MAX_OUTPUT of it is kept, and
it has connect_timeout + command_timeout seconds, so the run ends.

There are two rounds. In the first, nearly all trays return facts to a plain probe, which hangs or dies with NVML. The
others then get a guarded probe, which returns whatever NVML does, and costs the tray half as much again. Both probes
return the same facts.
"""

from __future__ import annotations

import logging
import math
import os
import resource
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.fabric_facts import check_options
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import probe
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.collector import tray_name
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import Reporter, SourceError, SourceResult, shown
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.ansible_facts import from_facts, sentence
from ClusterShell import __version__ as clustershell
from ClusterShell.Event import EventHandler
from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.Propagation import RouteResolvingError
from ClusterShell.Task import Task, TimeoutError, task_self, task_terminate
from ClusterShell.Topology import TopologyError
from ClusterShell.Worker.fastsubprocess import set_nonblock_flag
from ClusterShell.Worker.Ssh import SshClient, WorkerSsh
from ClusterShell.Worker.Tree import TreeWorker

SOURCE = "ssh"
OPTIONS = (
    "hosts",
    "user",
    "port",
    "ssh",
    "ssh_options",
    "python",
    "fanout",
    "connect_timeout",
    "command_timeout",
    "topology",
    "gateway_python",
    "backend",
    "nvidia_smi",
    "timeout",
)

# Bytes of one tray. Facts of 4 GPUs are 3 kB, so hundreds of GPUs fit.
MAX_OUTPUT = 1024 * 1024
MAX_ERRORS = 8 * 1024
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
_SECONDS_BETWEEN_PROGRESS = 1.0
# Seconds for the plain probe; a driver that first has to initialize its GPUs takes longer and gets the second round.
_PLAIN_SECONDS = 5

# ClusterShell logs every closed pipe; without a handler Python would print that into Ansible's output.
logging.getLogger("ClusterShell").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class ClientConfig:
    """How the ssh client reaches and runs the probe on trays; times in seconds."""

    ssh: str
    ssh_options: tuple[str, ...]
    user: str | None
    python: str
    fanout: int
    connect_timeout: int
    command_timeout: int
    topology: str | None
    gateway_python: str

    @property
    def tray_timeout(self) -> int:
        """Seconds that one tray has in the last round."""
        return self.connect_timeout + self.command_timeout


class Round(NamedTuple):
    """One round: the function that packs its probe, and the seconds that each tray has."""

    packed: Callable[[], bytes]
    tray_timeout: int


def discover(options: Any, now: str, known: Mapping[str, str], reporter: Reporter) -> SourceResult:
    """Observe each tray of the option hosts, or else each known one; known: tray -> its ssh address."""
    checked = Options(options, OPTIONS, SOURCE)
    config = _client_config(checked)
    rounds = _rounds(checked, config)
    trays = _trays(checked, known)
    # A topology file has names, so through gateways trays are reached by name.
    targets = {name: name for name in trays} if config.topology else {address: name for name, address in trays.items()}
    replies = _Trays(targets, config, reporter)
    findings: list[Finding] = []
    with _fresh_task(config) as task:
        nodes = NodeSet.fromlist(list(targets))
        if config.topology:
            cut_off = nodes & _behind_dead_gateways(task, config, config.topology, findings)
            replies.give_up(cut_off, "its gateway cannot be used")
            nodes -= cut_off
        for number, each in enumerate(rounds):
            if number:
                nodes = replies.forget_unclear(nodes)
            if nodes:
                _run(
                    task,
                    nodes,
                    _command(config),
                    replies,
                    each.packed(),
                    each.tray_timeout,
                    config,
                    tree=bool(config.topology),
                )
    return SourceResult(replies.observations(), findings)


# --- The options.


def _client_config(options: Options) -> ClientConfig:
    ssh = os.path.expanduser(options.text("ssh") or "ssh")
    if shutil.which(ssh) is None:
        raise options.wrong("ssh", f"{shown(ssh)} is not a program on this controller; install the OpenSSH client")
    connect_timeout = options.whole("connect_timeout", 10, 1, 3600)
    port = options.whole("port", 0, 1, 65535)
    fanout = options.whole("fanout", 64, 1, 4096)
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors != resource.RLIM_INFINITY and 3 * fanout + 64 > descriptors:
        raise options.wrong("fanout", f"{fanout} needs {3 * fanout + 64} open files, of {descriptors} (ulimit -n)")
    return ClientConfig(
        ssh=ssh,
        # First those that nothing may override: a password prompt would hang the run.
        ssh_options=(
            "-T",
            "-oBatchMode=yes",
            f"-oConnectTimeout={connect_timeout}",
            *((f"-oPort={port}",) if port else ()),
            *_words(options, "ssh_options"),
        ),
        user=options.text("user"),
        python=options.text("python") or "/usr/bin/python3",
        fanout=fanout,
        connect_timeout=connect_timeout,
        command_timeout=options.whole("command_timeout", 60, 1, 7200),
        topology=options.path("topology"),
        gateway_python=options.text("gateway_python") or "/usr/bin/python3",
    )


def _words(options: Options, key: str) -> list[str]:
    """A list of words; a string is split as in a shell."""
    try:
        text = options.text(key)
    except SourceError:
        words = options.sequence(key) or []
        if not all(isinstance(word, str) for word in words):
            raise options.wrong(key, "must be a list of texts") from None
        return [str(word) for word in words]
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise options.wrong(key, f"is {shown(text)}, which cannot be split ({error}); correct its quotes") from None


def _rounds(options: Options, config: ClientConfig) -> list[Round]:
    """The rounds; the options of fabric_facts are checked by its own function."""
    own = (
        options.text("backend") or "auto",
        options.text("nvidia_smi") or "nvidia-smi",
        options.number("timeout", 20.0, 0.1, 3600),
    )
    try:
        check_options(*own)
    except NvlinkError as error:
        raise SourceError(f"{SOURCE}: {str(error).rstrip('.')}") from None
    if own[2] >= config.command_timeout:
        raise options.wrong("command_timeout", f"is {config.command_timeout}, use more than timeout, {own[2]:g}")
    guarded = Round(partial(probe.packed, *own, config.command_timeout), config.tray_timeout)
    # nvidia-smi runs in a child in any case; and a gateway that returned nothing would return nothing a second time.
    if own[0] == "nvidia_smi" or config.topology:
        return [guarded]
    plain = min(_PLAIN_SECONDS, config.command_timeout)
    return [Round(partial(probe.packed, *own, plain, guarded=False), config.connect_timeout + plain), guarded]


def _trays(options: Options, known: Mapping[str, str]) -> dict[str, str]:
    """Tray -> its ssh address, of the trays to read."""
    if "hosts" not in options:
        if not known:
            raise options.wrong("hosts", "is missing; name the trays, or add fabric_file to the sources")
        return dict(known)
    names = [str(name) for name in _nodes(options)]
    for name in names:
        if tray_name(name) is None:
            raise options.wrong("hosts", f"has {shown(name)}, which is not a valid tray name")
    if not names:
        raise options.wrong("hosts", "names no tray; name one, or leave it out to read those of the fabric file")
    return {name: known.get(name, name) for name in names}


def _nodes(options: Options) -> NodeSet:
    try:
        texts: Iterable[Any] = [options.text("hosts")]
    except SourceError:
        texts = options.sequence("hosts") or []
    nodes = NodeSet()
    for text in texts:
        if not isinstance(text, str):
            raise options.wrong("hosts", f"has {shown(text)}, write names such as r01t[01-18]")
        try:
            nodes.update(NodeSet(str(text)))
        except NodeSetException as error:
            raise options.wrong("hosts", f"has {shown(text)}, which is not a node set ({error})") from None
    return nodes


# --- The run.


class _Client(SshClient):
    """One ssh: its output goes to the handler in chunks, because a tray that never ends its line would fill the memory.

    It has no terminal, so it cannot prompt for a password and gets no signal of the controller's terminal.
    """

    def _exec_nonblock(self, commandlist: list[str], shell: bool = False, env: Any = None) -> Any:
        (stdin, written), (read, stdout), (errors, stderr) = os.pipe(), os.pipe(), os.pipe()
        try:
            # Not ClusterShell's own, which forks with all of Ansible's memory; this one copies none of it.
            process = subprocess.Popen(
                commandlist, stdin=stdin, stdout=stdout, stderr=stderr, close_fds=False, start_new_session=True
            )
        finally:
            for end in (stdin, stdout, stderr):
                os.close(end)
        for end in (written, read, errors):
            set_nonblock_flag(end)
        self.streams.set_reader(self.worker.SNAME_STDERR, errors)
        self.streams.set_reader(self.worker.SNAME_STDOUT, read)
        self.streams.set_writer(self.worker.SNAME_STDIN, written, retain=False)
        return process

    def _handle_read(self, sname: str) -> None:
        if not self.worker.eh.received(self.key, sname, self._read(sname)):
            node = self.key
            self.abort()
            self.worker.eh.ev_hup(self.worker, node, None)


class _Worker(WorkerSsh):
    SHELL_CLASS = _Client


class _Handler(EventHandler):
    """Collects the output of nodes, bounded; calls done() of the subclass when a node has ended."""

    def __init__(self) -> None:
        self._output: dict[str, tuple[bytearray, bytearray]] = {}

    def received(self, node: str, stream: str, data: bytes) -> bool:
        """Keep the output of a node; False once it exceeds MAX_OUTPUT."""
        output, errors = self._output.setdefault(node, (bytearray(), bytearray()))
        if stream == "stderr":
            errors += data
            del errors[:-MAX_ERRORS]
        elif len(output) <= MAX_OUTPUT:
            output += data
        return len(output) <= MAX_OUTPUT

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        """A line, in tree mode."""
        self.received(node, sname, msg + b"\n")

    def ev_hup(self, worker: Any, node: str, rc: int | None) -> None:
        """A node has ended; rc None: ended by this program, since it printed too much."""
        output, errors = self._output.pop(node, (b"", b""))
        self.done(node, rc, bytes(output), errors.decode("utf-8", "replace"))

    def done(self, node: str, rc: int | None, output: bytes, errors: str) -> None:
        """The output of one node and how it ended: called once for each node that ended in time."""
        raise NotImplementedError  # each subclass defines it


class _Trays(_Handler):
    """Turns the output of trays into observations, and reports progress. targets: ssh address -> tray."""

    def __init__(self, targets: Mapping[str, str], config: ClientConfig, reporter: Reporter) -> None:
        super().__init__()
        self._targets, self._config, self._reporter = targets, config, reporter
        self._observed: dict[str, Observation] = {}
        # Nodes without facts for which a guarded probe may return some.
        self._unclear: set[str] = set()
        self._reported_at = time.monotonic()

    def done(self, node: str, rc: int | None, output: bytes, errors: str) -> None:
        """Keep the tray's observation."""
        tray = self._targets[node]
        facts = None if len(output) > MAX_OUTPUT else probe.facts_in(output)
        if facts is None:
            self._observed[tray] = _unreachable(tray, _reason(rc, output, errors, self._config))
            if rc is not None and rc not in _NO_PYTHON and not _problem_of_ssh(rc, errors):
                self._unclear.add(node)
        else:
            self._observed[tray] = from_facts(tray, facts, SOURCE)
        now = time.monotonic()
        if now - self._reported_at >= _SECONDS_BETWEEN_PROGRESS:
            self._reported_at = now
            self._reporter.v(f"{SOURCE}: {self._progress()}")

    def forget_unclear(self, nodes: NodeSet) -> NodeSet:
        """The nodes for which another probe may return facts; their observations are dropped."""
        unclear = NodeSet.fromlist(
            [node for node in map(str, nodes) if node in self._unclear or self._targets[node] not in self._observed]
        )
        self._unclear.clear()
        for node in map(str, unclear):
            self._observed.pop(self._targets[node], None)
            self._output.pop(node, None)
        if unclear:
            self._reporter.v(f"{SOURCE}: {self._progress()}; the others are read again, with a longer time limit")
        return unclear

    def give_up(self, nodes: Iterable[str], problem: str) -> None:
        """Keep why nodes are not read at all."""
        for node in map(str, nodes):
            self._observed[self._targets[node]] = _unreachable(self._targets[node], problem)

    def observations(self) -> list[Observation]:
        """The observations of all trays, in the order of the targets."""
        late = f"no response within {self._config.tray_timeout} s"
        for tray in self._targets.values():
            if tray not in self._observed:
                self._observed[tray] = _unreachable(tray, late)
        self._reporter.v(f"{SOURCE}: {self._progress()}")
        summary = _summary(self._observed.values())
        if summary:
            self._reporter.warning(f"{SOURCE}: {summary}")
        return [self._observed[tray] for tray in self._targets.values()]

    def _progress(self) -> str:
        answered = sum(observation.reachable for observation in self._observed.values())
        return f"{len(self._observed)} of {len(self._targets)} trays done, {answered} returned facts"


def _unreachable(tray: str, problem: str) -> Observation:
    return Observation(tray=tray, source=SOURCE, reachable=False, problem=problem)


def _reason(rc: int | None, output: bytes, errors: str, config: ClientConfig) -> str:
    """The reason for output of a tray without facts."""
    lines = [line for line in errors.splitlines() if line.strip()]
    last = sentence(lines[-1]) if lines else ""
    if len(output) > MAX_OUTPUT:
        return f"it prints more than {MAX_OUTPUT // 1024} KiB"
    if rc == 255:
        return _problem_of_ssh(rc, errors) or last or "ssh failed without a message"
    if rc == os.EX_PROTOCOL and config.topology:
        return f"its gateway failed ({last})" if last else "its gateway failed"
    if rc in _NO_PYTHON:
        return f"no Python at {sentence(config.python)}"
    if "ImportError" in last or "ModuleNotFoundError" in last or "SyntaxError" in last:
        return f"its Python is too old or incomplete ({last})"
    return f"it printed no facts ({last})" if last else f"it printed no facts (exit status {rc})"


def _problem_of_ssh(rc: int, errors: str) -> str:
    """The known reason why ssh failed; empty for an unknown one."""
    lowered = errors.lower()
    return next((reason for sign, reason in REASONS if rc == 255 and sign in lowered), "")


def _summary(observations: Iterable[Observation]) -> str:
    """One sentence about the trays without facts, grouped by reason; empty if all returned facts."""
    reasons: dict[str, list[str]] = {}
    total = 0
    for row in observations:
        total += 1
        if not row.reachable:
            reasons.setdefault(row.problem or "no facts", []).append(row.tray)
    if not reasons:
        return ""
    unreachable = sum(map(len, reasons.values()))
    most_first = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    listed = "; ".join(f"{reason}: {NodeSet.fromlist(trays)}" for reason, trays in most_first)
    return f"{unreachable} of {count(total, 'tray')} returned no facts ({listed})"


def _command(config: ClientConfig) -> str:
    """The command for the tray's login shell; every shell runs it."""
    return f"exec {shlex.quote(config.python)} {' '.join(probe.FLAGS)} -c '{probe.BOOTSTRAP}'"


@contextmanager
def _fresh_task(config: ClientConfig) -> Iterator[Task]:
    """A new ClusterShell task of this thread, ended afterwards with everything that it has started."""
    task_terminate()
    task = task_self()
    try:
        for name in ("stdout_msgtree", "stderr_msgtree"):
            task.set_default(name, False)
        task.set_default("distant_worker", WorkerSsh)
        task.set_info("fanout", config.fanout)
        task.set_info("ssh_path", shlex.quote(config.ssh))
        task.set_info("ssh_user", config.user)
        task.set_info("ssh_options", shlex.join(config.ssh_options))
        task.set_info("connect_timeout", 0)  # it is among ssh_options
        yield task
    finally:
        task_terminate()


def _run(
    task: Task,
    nodes: NodeSet,
    command: str,
    handler: _Handler,
    sent: bytes,
    tray_timeout: int,
    config: ClientConfig,
    tree: bool = False,
) -> None:
    """Run the command on all nodes and wait until they have ended or timed out, fanout nodes at a time."""
    worker: Any = (TreeWorker if tree else _Worker)(nodes, handler, tray_timeout, command=command, stderr=True)
    if tree:
        worker.invoke_gateway = f"{shlex.quote(config.gateway_python)} -m ClusterShell.Gateway -Bu"
    waves = math.ceil(len(nodes) / config.fanout)
    task.schedule(worker)
    if sent:
        worker.write(sent)
    worker.set_write_eof()
    try:
        # Every client has its own time limit; this one is for gateways, which ClusterShell gives none.
        task.resume((waves + tree) * tray_timeout + 10)
    except (TimeoutError, RouteResolvingError):
        # The second: the last gateway has failed meanwhile. Nodes that have not ended yet count as timed out.
        worker.abort()
    except OSError as error:
        raise SourceError(
            f"{SOURCE}: cannot start {config.ssh} ({error.strerror or error}); correct the option ssh"
        ) from error


# --- Gateways.


class _Versions(_Handler):
    """The ClusterShell versions of gateways: node -> its version (empty for none), or why it is unreachable."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__()
        self._config = config
        self.found: dict[str, str] = {}
        self.unreachable: dict[str, str] = {}

    def done(self, node: str, rc: int | None, output: bytes, errors: str) -> None:
        """Keep the version, the last word that the gateway prints."""
        words = output.decode("utf-8", "replace").split()
        if rc == 0 and words:
            self.found[node] = sentence(words[-1])
        elif rc == 255:
            self.unreachable[node] = _reason(rc, output, errors, self._config)
        else:
            self.found[node] = ""


def _behind_dead_gateways(task: Task, config: ClientConfig, topology: str, findings: list[Finding]) -> NodeSet:
    """The nodes all whose gateways cannot be used. Loads the tree of the topology file into the task.

    SourceError for a gateway next to the controller that has another ClusterShell, or none.
    """
    _load(task, topology)
    groups = [group for group in task.topology.root.children() if group.children_len()]
    cut_off = NodeSet()
    if groups:
        dead = _dead_gateways(task, NodeSet.fromlist([group.nodeset for group in groups]), config, findings)
        for group in groups:
            if group.nodeset.issubset(dead):
                cut_off.update(_below(group))
    return cut_off


def _load(task: Task, topology: str) -> None:
    try:
        with open(topology, encoding="utf-8") as file:
            file.read()  # ClusterShell treats a file that it cannot read as empty
        task.load_topology(topology)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SourceError(f"{SOURCE}: topology {topology} cannot be read ({why}); correct it") from None
    except (TopologyError, NodeSetException, KeyError) as error:
        raise SourceError(
            f"{SOURCE}: topology {topology} is not a tree that starts at this controller ({error}); correct it"
        ) from None


def _below(group: Any) -> NodeSet:
    """All nodes below a group of the topology."""
    nodes = NodeSet()
    for child in group.children():
        nodes.update(child.nodeset)
        nodes.update(_below(child))
    return nodes


def _dead_gateways(task: Task, gateways: NodeSet, config: ClientConfig, findings: list[Finding]) -> NodeSet:
    versions = _Versions(config)
    command = f"{shlex.quote(config.gateway_python)} -c 'import ClusterShell;print(ClusterShell.__version__)'"
    _run(task, gateways, command, versions, b"", config.tray_timeout, config)
    for gateway, version in sorted(versions.found.items()):
        if version != clustershell:
            has = f"has ClusterShell {version}" if version else f"has no ClusterShell for {config.gateway_python}"
            raise SourceError(
                f"{SOURCE}: gateway {gateway} {has} and this controller {clustershell}; install the same on both"
            )
    unusable = [str(node) for node in gateways if node not in versions.found]
    if unusable:
        why = "; ".join(sorted(set(versions.unreachable.values()))) or "no response in time"
        message = f"{SOURCE}: gateways {NodeSet.fromlist(unusable)} cannot be used ({why}); bring them up."
        findings.append(finding("gateway_unusable", message))
    return NodeSet.fromlist(unusable)
