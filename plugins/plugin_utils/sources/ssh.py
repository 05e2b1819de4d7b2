# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source ssh: every tray asked by a probe over ssh, out of one process, through gateways where there are any.

The fan-out is ClusterShell's. A tray may say anything and as much as it likes, or nothing: no more than MAX_OUTPUT of
it is kept while it speaks, and it has connect_timeout + command_timeout seconds, so the run ends.

Trays are asked in two rounds. Nearly all answer in the first, to a plain probe, which hangs or dies with NVML; whoever
gave no facts is then asked by a guarded one, which comes back whatever NVML does, and costs the tray half as much
again. What a tray says to the first it would have said to the second.
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

# Of one tray. Facts of 4 GPUs are 3 kB, so hundreds of GPUs fit.
MAX_OUTPUT = 1024 * 1024
MAX_ERRORS = 8 * 1024
# Exit statuses of a shell that cannot run the tray's Python.
_NO_PYTHON = (126, 127)
# Of standard error: a line that ssh prints -> what it means for the reader. The first that is found counts.
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
# What a tray has for its answer to the plain probe; a driver that first has to wake its GPUs takes longer.
_PLAIN_SECONDS = 5

# ClusterShell logs every closed pipe; without a handler Python would print that among Ansible's output.
logging.getLogger("ClusterShell").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Way:
    """How trays are reached and asked; times in seconds."""

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
    def patience(self) -> int:
        """Seconds that one tray has in the last round."""
        return self.connect_timeout + self.command_timeout


class Round(NamedTuple):
    """What packs the probe for the trays that have given no facts yet, and the seconds that each of them has."""

    packed: Callable[[], bytes]
    patience: int


def discover(options: Any, now: str, known: Mapping[str, str], voice: Reporter) -> SourceResult:
    """One observation for each tray of the option hosts, or for each known one; known: tray -> its ssh address."""
    checked = Options(options, OPTIONS, SOURCE)
    way = _way(checked)
    rounds = _rounds(checked, way)
    trays = _trays(checked, known)
    # A topology file speaks of names, so through gateways trays are reached by theirs.
    targets = {name: name for name in trays} if way.topology else {address: name for name, address in trays.items()}
    asked = _Trays(targets, way, voice)
    findings: list[Finding] = []
    with _fresh_task(way) as task:
        nodes = NodeSet.fromlist(list(targets))
        if way.topology:
            cut_off = nodes & _behind_dead_gateways(task, way, way.topology, findings)
            asked.give_up(cut_off, "its gateway cannot be used")
            nodes -= cut_off
        for number, each in enumerate(rounds):
            if number:
                nodes = asked.forget_the_silent(nodes)
            if nodes:
                _run(task, nodes, _command(way), asked, each.packed(), each.patience, way, tree=bool(way.topology))
    return SourceResult(asked.observations(), findings)


# --- The options.


def _way(options: Options) -> Way:
    ssh = os.path.expanduser(options.text("ssh") or "ssh")
    if shutil.which(ssh) is None:
        raise options.wrong("ssh", f"{shown(ssh)} is no program on this controller; install OpenSSH's client")
    connect_timeout = options.whole("connect_timeout", 10, 1, 3600)
    port = options.whole("port", 0, 1, 65535)
    fanout = options.whole("fanout", 64, 1, 4096)
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors != resource.RLIM_INFINITY and 3 * fanout + 64 > descriptors:
        raise options.wrong("fanout", f"{fanout} needs {3 * fanout + 64} open files, of {descriptors} (ulimit -n)")
    return Way(
        ssh=ssh,
        # First those that nothing may override: whoever asks for a password here would hang the run.
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
    """A list of words; a text is split as a shell would."""
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


def _rounds(options: Options, way: Way) -> list[Round]:
    """The rounds; the options that are fabric_facts' own are checked by it."""
    own = (
        options.text("backend") or "auto",
        options.text("nvidia_smi") or "nvidia-smi",
        options.number("timeout", 20.0, 0.1, 3600),
    )
    try:
        check_options(*own)
    except NvlinkError as error:
        raise SourceError(f"{SOURCE}: {str(error).rstrip('.')}") from None
    if own[2] >= way.command_timeout:
        raise options.wrong("command_timeout", f"is {way.command_timeout}, use more than timeout, {own[2]:g}")
    guarded = Round(partial(probe.packed, *own, way.command_timeout), way.patience)
    # nvidia-smi is a child anyway; and what a gateway did not bring back it would not bring back a second time either.
    if own[0] == "nvidia_smi" or way.topology:
        return [guarded]
    plain = min(_PLAIN_SECONDS, way.command_timeout)
    return [Round(partial(probe.packed, *own, plain, guarded=False), way.connect_timeout + plain), guarded]


def _trays(options: Options, known: Mapping[str, str]) -> dict[str, str]:
    """Tray -> its ssh address, of those to be asked."""
    if "hosts" not in options:
        if not known:
            raise options.wrong("hosts", "is missing; name the trays, or add fabric_file to the sources")
        return dict(known)
    names = [str(name) for name in _nodes(options)]
    for name in names:
        if tray_name(name) is None:
            raise options.wrong("hosts", f"has {shown(name)}, which cannot be a tray's name")
    if not names:
        raise options.wrong("hosts", "names no tray; name one, or leave it out to ask those of the fabric file")
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
            raise options.wrong("hosts", f"has {shown(text)}, which is no node set ({error})") from None
    return nodes


# --- The run.


class _Client(SshClient):
    """One ssh: its output goes to the handler as it comes, for a tray that never ends its line would fill the memory.

    It has no terminal, so it can ask nobody for a password, and no signal of the controller's terminal.
    """

    def _exec_nonblock(self, commandlist: list[str], shell: bool = False, env: Any = None) -> Any:
        (stdin, written), (read, stdout), (told, stderr) = os.pipe(), os.pipe(), os.pipe()
        try:
            # Not ClusterShell's own, which forks all of Ansible's memory; this one needs no copy of it.
            process = subprocess.Popen(
                commandlist, stdin=stdin, stdout=stdout, stderr=stderr, close_fds=False, start_new_session=True
            )
        finally:
            for end in (stdin, stdout, stderr):
                os.close(end)
        for end in (written, read, told):
            set_nonblock_flag(end)
        self.streams.set_reader(self.worker.SNAME_STDERR, told)
        self.streams.set_reader(self.worker.SNAME_STDOUT, read)
        self.streams.set_writer(self.worker.SNAME_STDIN, written, retain=False)
        return process

    def _handle_read(self, sname: str) -> None:
        if not self.worker.eh.heard(self.key, sname, self._read(sname)):
            node = self.key
            self.abort()
            self.worker.eh.ev_hup(self.worker, node, None)


class _Worker(WorkerSsh):
    SHELL_CLASS = _Client


class _Handler(EventHandler):
    """Gathers what nodes print, bounded; a subclass learns in done() how each of them has ended."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[bytearray, bytearray]] = {}

    def heard(self, node: str, stream: str, data: bytes) -> bool:
        """Keep what a node has printed; False if it has now printed more than it may."""
        output, errors = self._said.setdefault(node, (bytearray(), bytearray()))
        if stream == "stderr":
            errors += data
            del errors[:-MAX_ERRORS]
        elif len(output) <= MAX_OUTPUT:
            output += data
        return len(output) <= MAX_OUTPUT

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        """A line, in tree mode."""
        self.heard(node, sname, msg + b"\n")

    def ev_hup(self, worker: Any, node: str, rc: int | None) -> None:
        """A node has ended; rc None: by us, since it printed too much."""
        output, errors = self._said.pop(node, (b"", b""))
        self.done(node, rc, bytes(output), errors.decode("utf-8", "replace"))

    def done(self, node: str, rc: int | None, output: bytes, errors: str) -> None:
        """What one node said and how it ended: once for each, but for those that did not end in time."""
        raise NotImplementedError  # every subclass gathers something else; this one is never made


class _Trays(_Handler):
    """Turns what trays print into observations, and says how far the run is. targets: ssh address -> tray."""

    def __init__(self, targets: Mapping[str, str], way: Way, voice: Reporter) -> None:
        super().__init__()
        self._targets, self._way, self._voice = targets, way, voice
        self._seen: dict[str, Observation] = {}
        # Nodes whose silence a guarded probe may explain.
        self._unclear: set[str] = set()
        self._told = time.monotonic()

    def done(self, node: str, rc: int | None, output: bytes, errors: str) -> None:
        """Keep the tray's observation."""
        tray = self._targets[node]
        facts = None if len(output) > MAX_OUTPUT else probe.facts_in(output)
        if facts is None:
            self._seen[tray] = _silent(tray, _reason(rc, output, errors, self._way))
            if rc is not None and rc not in _NO_PYTHON and not _problem_of_ssh(rc, errors):
                self._unclear.add(node)
        else:
            self._seen[tray] = from_facts(tray, facts, SOURCE)
        now = time.monotonic()
        if now - self._told >= _SECONDS_BETWEEN_PROGRESS:
            self._told = now
            self._voice.v(f"{SOURCE}: {self._progress()}")

    def forget_the_silent(self, nodes: NodeSet) -> NodeSet:
        """Those of the nodes that another probe may make speak; what was seen of them no longer counts."""
        silent = NodeSet.fromlist(
            [node for node in map(str, nodes) if node in self._unclear or self._targets[node] not in self._seen]
        )
        self._unclear.clear()
        for node in map(str, silent):
            self._seen.pop(self._targets[node], None)
            self._said.pop(node, None)
        if silent:
            self._voice.v(f"{SOURCE}: {self._progress()}; the others are asked again, with more patience")
        return silent

    def give_up(self, nodes: Iterable[str], problem: str) -> None:
        """Keep why nodes are not asked at all."""
        for node in map(str, nodes):
            self._seen[self._targets[node]] = _silent(self._targets[node], problem)

    def observations(self) -> list[Observation]:
        """Of every tray, in the order in which they were given."""
        late = f"no answer within {self._way.patience} s"
        for tray in self._targets.values():
            if tray not in self._seen:
                self._seen[tray] = _silent(tray, late)
        self._voice.v(f"{SOURCE}: {self._progress()}")
        told = _summary(self._seen.values())
        if told:
            self._voice.warning(f"{SOURCE}: {told}")
        return [self._seen[tray] for tray in self._targets.values()]

    def _progress(self) -> str:
        answered = sum(seen.reachable for seen in self._seen.values())
        return f"{len(self._seen)} of {len(self._targets)} trays done, {answered} gave facts"


def _silent(tray: str, problem: str) -> Observation:
    return Observation(tray=tray, source=SOURCE, reachable=False, problem=problem)


def _reason(rc: int | None, output: bytes, errors: str, way: Way) -> str:
    """Why there are no facts in what a tray printed."""
    lines = [line for line in errors.splitlines() if line.strip()]
    last = sentence(lines[-1]) if lines else ""
    if len(output) > MAX_OUTPUT:
        return f"it prints more than {MAX_OUTPUT // 1024} KiB"
    if rc == 255:
        return _problem_of_ssh(rc, errors) or last or "ssh failed without a word"
    if rc == os.EX_PROTOCOL and way.topology:
        return f"its gateway failed ({last})" if last else "its gateway failed"
    if rc in _NO_PYTHON:
        return f"no Python at {sentence(way.python)}"
    if "ImportError" in last or "ModuleNotFoundError" in last or "SyntaxError" in last:
        return f"its Python is too old or not whole ({last})"
    return f"it printed no facts ({last})" if last else f"it printed no facts (exit status {rc})"


def _problem_of_ssh(rc: int, errors: str) -> str:
    """What kept ssh from the tray, as far as it is known; else empty."""
    lowered = errors.lower()
    return next((reason for sign, reason in REASONS if rc == 255 and sign in lowered), "")


def _summary(seen: Iterable[Observation]) -> str:
    """One sentence about the trays that gave no facts, folded by reason; empty if all gave some."""
    reasons: dict[str, list[str]] = {}
    count = 0
    for row in seen:
        count += 1
        if not row.reachable:
            reasons.setdefault(row.problem or "no facts", []).append(row.tray)
    if not reasons:
        return ""
    silent = sum(map(len, reasons.values()))
    most_first = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    told = "; ".join(f"{reason}: {NodeSet.fromlist(trays)}" for reason, trays in most_first)
    return f"{silent} of {count} trays gave no facts ({told})"


def _command(way: Way) -> str:
    """What the tray's login shell is given, whichever shell that is."""
    return f"exec {shlex.quote(way.python)} {' '.join(probe.FLAGS)} -c '{probe.BOOTSTRAP}'"


@contextmanager
def _fresh_task(way: Way) -> Iterator[Task]:
    """ClusterShell's task of this thread, new, and gone again afterwards with all that it has started."""
    task_terminate()
    task = task_self()
    try:
        for name in ("stdout_msgtree", "stderr_msgtree"):
            task.set_default(name, False)
        task.set_default("distant_worker", WorkerSsh)
        task.set_info("fanout", way.fanout)
        task.set_info("ssh_path", shlex.quote(way.ssh))
        task.set_info("ssh_user", way.user)
        task.set_info("ssh_options", shlex.join(way.ssh_options))
        task.set_info("connect_timeout", 0)  # stands among the options
        yield task
    finally:
        task_terminate()


def _run(
    task: Task,
    nodes: NodeSet,
    command: str,
    handler: _Handler,
    sent: bytes,
    patience: int,
    way: Way,
    tree: bool = False,
) -> None:
    """Send the same to all nodes and wait until they have ended, or have had their time, wave by wave."""
    worker: Any = (TreeWorker if tree else _Worker)(nodes, handler, patience, command=command, stderr=True)
    if tree:
        worker.invoke_gateway = f"{shlex.quote(way.gateway_python)} -m ClusterShell.Gateway -Bu"
    waves = math.ceil(len(nodes) / way.fanout)
    task.schedule(worker)
    if sent:
        worker.write(sent)
    worker.set_write_eof()
    try:
        # Every client has its own time; this is for gateways, which ClusterShell gives none.
        task.resume((waves + tree) * patience + 10)
    except (TimeoutError, RouteResolvingError):
        # The second: the last gateway has gone meanwhile. Who has not answered yet counts as late.
        worker.abort()
    except OSError as error:
        raise SourceError(f"{SOURCE}: cannot start {way.ssh} ({error.strerror or error}); correct that") from error


# --- Gateways.


class _Versions(_Handler):
    """What gateways say of their ClusterShell: node -> its version, or why there is none."""

    def __init__(self, way: Way) -> None:
        super().__init__()
        self._way = way
        self.found: dict[str, str] = {}
        self.unreachable: dict[str, str] = {}

    def done(self, node: str, rc: int | None, output: bytes, errors: str) -> None:
        """Keep the version, the last word that the gateway has printed."""
        words = output.decode("utf-8", "replace").split()
        if rc == 0 and words:
            self.found[node] = sentence(words[-1])
        elif rc == 255:
            self.unreachable[node] = _reason(rc, output, errors, self._way)
        else:
            self.found[node] = ""


def _behind_dead_gateways(task: Task, way: Way, topology: str, findings: list[Finding]) -> NodeSet:
    """The nodes all whose gateways cannot be used. Gives the task the tree that the topology file holds.

    SourceError for a gateway next to the controller that has another ClusterShell, or none.
    """
    _load(task, topology)
    groups = [group for group in task.topology.root.children() if group.children_len()]
    cut_off = NodeSet()
    if groups:
        dead = _dead_gateways(task, NodeSet.fromlist([group.nodeset for group in groups]), way, findings)
        for group in groups:
            if group.nodeset.issubset(dead):
                cut_off.update(_below(group))
    return cut_off


def _load(task: Task, topology: str) -> None:
    try:
        with open(topology, encoding="utf-8") as file:
            file.read()  # ClusterShell takes a file that it cannot read for an empty one
        task.load_topology(topology)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SourceError(f"{SOURCE}: topology {topology} cannot be read ({why}); correct it") from None
    except (TopologyError, NodeSetException, KeyError) as error:
        raise SourceError(
            f"{SOURCE}: topology {topology} is no tree that starts at this controller ({error}); correct it"
        ) from None


def _below(group: Any) -> NodeSet:
    """All nodes that a group of the topology leads to."""
    nodes = NodeSet()
    for child in group.children():
        nodes.update(child.nodeset)
        nodes.update(_below(child))
    return nodes


def _dead_gateways(task: Task, gateways: NodeSet, way: Way, findings: list[Finding]) -> NodeSet:
    versions = _Versions(way)
    command = f"{shlex.quote(way.gateway_python)} -c 'import ClusterShell;print(ClusterShell.__version__)'"
    _run(task, gateways, command, versions, b"", way.patience, way)
    for gateway, version in sorted(versions.found.items()):
        if version != clustershell:
            has = f"has ClusterShell {version}" if version else f"has no ClusterShell for {way.gateway_python}"
            raise SourceError(
                f"{SOURCE}: gateway {gateway} {has} and this controller {clustershell}; install the same on both"
            )
    silent = [str(node) for node in gateways if node not in versions.found]
    if silent:
        why = "; ".join(sorted(set(versions.unreachable.values()))) or "no answer in time"
        message = f"{SOURCE}: gateways {NodeSet.fromlist(silent)} cannot be used ({why}); bring them back."
        findings.append(finding("gateway_unusable", message))
    return NodeSet.fromlist(silent)
