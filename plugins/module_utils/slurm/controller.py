# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Slurm controller's own host: what slurmctld runs, what stands in its files, and how the two are changed together.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Seen on slurmctld 24.11.5 and 26.05.5 and relied upon here:
- ``scontrol reconfigure`` starts a second slurmctld that reads everything anew and takes over only if it comes up; else
  the command ends with 1 and the old one runs on. So a topology that is refused does no harm until the next
  restart, which is why the old file is put back at once.
- The reason ("fatal: ...") stands in slurmctld's log only.
- The same reconfigure changes TopologyPlugin (none to block and back), SelectType and PrologFlags; none needs a
  restart.
- Without the topology.conf that its plugin wants, the new slurmctld waits up to 60 s for it and answers
  nobody meanwhile.
- ``scontrol show topoconf`` shows what topology.yaml holds; with topology.conf it is empty even where topology/block
  runs, so there ``scontrol show topology`` is what is read back.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    CONF,
    FILE_NAMES,
    YAML,
    Block,
    ShownBlock,
    SlurmError,
    Topology,
)

Finding = dict[str, Any]
INCLUDE_NAME = "nvlink_topology.conf"
PREVIOUS = ".previous"
# Where Slurm's programs are when PATH does not say so.
BIN_DIRS = ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/opt/slurm/sbin", "/opt/slurm/bin")
# How long a slurmctld that took the reconfigure may need until it shows the new topology, in seconds.
SETTLE = 5.0
MANY = 100


# ------------------------------------------------------------------------------------------------ the running Slurm


class Slurm:
    """Slurm's own programs on this host. Every call is bounded by ``timeout`` seconds; SlurmError where one fails."""

    def __init__(self, bin_dir: str = "", timeout: float = 60.0, conf_dir: str = "") -> None:
        if timeout <= 0:
            raise SlurmError(f"slurm_topology_timeout is {timeout}: use a number of seconds above 0.")
        self.bin_dir = bin_dir
        self.timeout = timeout
        self.conf = os.path.join(conf_dir, "slurm.conf") if conf_dir else ""

    def program(self, name: str) -> str:
        directories = (self.bin_dir,) if self.bin_dir else (*os.environ.get("PATH", "").split(os.pathsep), *BIN_DIRS)
        for directory in directories:
            path = os.path.join(directory, name)
            if directory and os.access(path, os.X_OK):
                return path
        where = self.bin_dir or "PATH"
        raise SlurmError(
            f"There is no {name} in {where}: run this on the Slurm controller, or set slurm_topology_bin_dir."
        )

    def call(self, name: str, *arguments: str, timeout: float | None = None) -> child.Result:
        # No limit on the width of what is shown; the site's own variables must not change what is read.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SCONTROL_"))}
        environment["LC_ALL"] = "C"
        if self.conf:
            environment["SLURM_CONF"] = self.conf
        return child.run([self.program(name), *arguments], timeout or self.timeout, env=environment)

    def ask(self, *arguments: str) -> str:
        """What scontrol says; SlurmError if it fails."""
        result = self.call("scontrol", *arguments)
        if result.rc != 0 or result.timed_out:
            raise SlurmError(
                f"scontrol {' '.join(arguments)} failed ({reason(result)}): see that slurmctld runs and answers."
            )
        return result.stdout

    def version(self) -> rules.Version:
        """The installed slurmctld's version: the one that a restart would run."""
        for name, argument in (("slurmctld", "-V"), ("scontrol", "--version")):
            try:
                result = self.call(name, argument)
            except SlurmError:
                continue
            if result.rc == 0 and result.stdout.strip():
                return rules.parse_version(result.stdout)
        raise SlurmError(
            "Neither slurmctld -V nor scontrol --version tells a version: run this on the Slurm controller."
        )

    def config(self) -> dict[str, str]:
        return files.parse_config(self.ask("show", "config"))

    def nodes(self) -> frozenset[str]:
        records = files.parse_records(self.ask("-a", "-o", "show", "nodes"))
        return frozenset(record["NodeName"] for record in records if "NodeName" in record)

    def partitions(self) -> tuple[rules.Partition, ...]:
        found = []
        for record in files.parse_records(self.ask("-a", "-o", "show", "partitions")):
            if "PartitionName" not in record:
                continue
            nodes = record.get("Nodes", "")
            topology = record.get("Topology", "")
            try:
                names = tuple(expand("" if nodes == "(null)" else nodes))
            except HostlistError:
                names = ()
            found.append(rules.Partition(record["PartitionName"], names, "" if topology == "(null)" else topology))
        return tuple(found)

    def topologies(self, version: rules.Version) -> list[Topology]:
        """What topology.yaml gave the running slurmctld; nothing before 25.05."""
        if version < rules.YAML_SINCE:
            return []
        text = self.ask("show", "topoconf")
        try:
            return [known for known in files.parse_yaml(text) if known.kind != "none"]
        except SlurmError as error:
            raise SlurmError(f"The answer of scontrol show topoconf: {error}") from None

    def shown(self) -> list[ShownBlock]:
        """The blocks that run, whatever file they came from; none where another plugin runs."""
        result = self.call("scontrol", "show", "topology")
        # "No topology information available" is an answer too; slurmctld's silence shows in every other call.
        return files.parse_show_topology(result.stdout) if result.rc == 0 else []

    def reconfigure(self) -> child.Result:
        return self.call("scontrol", "reconfigure")


def reason(result: child.Result) -> str:
    """Why a program failed, in a few words."""
    if result.timed_out:
        stuck = f", process {result.survivor_pid} cannot be ended" if result.survivor_pid else ""
        return f"no answer in time{stuck}"
    if result.error:
        return str(result.error)
    lines = [line.strip() for line in (result.stderr + "\n" + result.stdout).splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"it ended with {result.rc}"


# --------------------------------------------------------------------------------------------------- slurm.conf


@dataclass(frozen=True)
class SlurmConf:
    """What slurm.conf and the files that it includes say, as far as the topology is concerned.

    settings: key in lower case -> value, without our own include; node_topologies: node -> the value of Topology= on
    its
    NodeName line, which wins over the topology file; includes_ours: whether slurm.conf includes our file.
    """

    path: str
    settings: Mapping[str, str] = field(default_factory=dict)
    node_topologies: Mapping[str, str] = field(default_factory=dict)
    includes_ours: bool = False


_KEYS = ("topologyplugin", "selecttype", "prologflags")


def read_slurm_conf(conf_dir: str) -> SlurmConf:
    """Read slurm.conf with its includes; SlurmError where there is none or it cannot be read."""
    path = os.path.join(conf_dir, "slurm.conf")
    settings: dict[str, str] = {}
    node_topologies: dict[str, str] = {}
    cluster = ""
    ours = False
    pending = [(path, 0)]
    while pending:
        name, depth = pending.pop(0)
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError as error:
            if depth:
                continue
            raise SlurmError(
                f"{name} cannot be read ({error.strerror}): set slurm_topology_conf_dir to its folder."
            ) from None
        for line in files.logical_lines(text):
            words = line.split(None, 1)
            if words[0].lower() == "include" and len(words) == 2:
                target = words[1].strip().replace("%c", cluster.lower())
                if os.path.basename(target) == INCLUDE_NAME:
                    ours = True
                elif depth < 10:
                    pending.append((os.path.join(conf_dir, target), depth + 1))
                continue
            pairs = files.key_values(line)
            lowered = {key.lower(): value for key, value in pairs}
            cluster = lowered.get("clustername", cluster)
            settings.update((key, lowered[key]) for key in _KEYS if key in lowered)
            if pairs and pairs[0][0].lower() == "nodename" and lowered.get("topology"):
                with contextlib.suppress(HostlistError):
                    node_topologies.update(dict.fromkeys(expand(lowered["nodename"]), lowered["topology"]))
    return SlurmConf(path, settings, node_topologies, ours)


# ------------------------------------------------------------------------------------------------------- survey


@dataclass
class Survey:
    """What is there: the Slurm that runs, its files, and the other topology file. Read only."""

    slurm: Slurm
    conf_dir: str
    version: rules.Version
    style: str
    conf: SlurmConf
    config: dict[str, str]
    file: bytes | None
    twin: bool
    running: list[Topology]
    shown: list[ShownBlock]

    @property
    def path(self) -> str:
        return os.path.join(self.conf_dir, FILE_NAMES[self.style])

    @property
    def version_text(self) -> str:
        return rules.show_version(self.version)

    @property
    def plugin(self) -> str:
        return self.config.get("topologyplugin", "")

    def written(self) -> list[Topology]:
        """What the topology file says; SlurmError where it cannot be read."""
        if self.file is None:
            return []
        try:
            return files.parse(self.file.decode("utf-8", "replace"), self.style)
        except SlurmError as error:
            raise SlurmError(f"{self.path}: {error}") from None

    def running_topology(self, name: str) -> Topology | None:
        """The running block topology of that name; for topology.conf what ``show topology`` shows."""
        if self.running:
            return next((known for known in self.running if known.name == name and known.kind == "block"), None)
        return from_shown(self.shown, name)


def from_shown(shown: Sequence[ShownBlock], name: str = "default") -> Topology | None:
    """A topology from the lines of ``scontrol show topology``: its sizes are those of which a block exists."""
    blocks = tuple(Block(line.name, line.nodes) for line in shown if not line.aggregated)
    if not blocks:
        return None
    sizes = sorted({line.size for line in shown if line.size})
    return Topology(name=name, blocks=blocks, block_sizes=tuple(sizes))


def survey(slurm: Slurm, conf_dir: str, wanted_style: str) -> Survey:
    """Look at everything once; SlurmError where Slurm is too old, does not answer or has no slurm.conf there."""
    version = slurm.version()
    rules.require_supported(version)
    style = rules.choose_style(wanted_style, version)
    conf = read_slurm_conf(conf_dir)
    config = slurm.config()
    running_version = rules.parse_version(config.get("slurm_version", rules.show_version(version)))
    if running_version[:2] != version[:2]:
        raise SlurmError(
            f"slurmctld {rules.show_version(running_version)} runs while {rules.show_version(version)} is installed:"
            " restart slurmctld first, so that both read the same topology file."
        )
    reads = os.path.dirname(config.get("slurm_conf", ""))
    if reads and os.path.realpath(reads) != os.path.realpath(conf_dir):
        raise SlurmError(
            f"slurmctld reads its files from {reads}, not {conf_dir}: set slurm_topology_conf_dir to {reads}."
        )
    file = read_file(os.path.join(conf_dir, FILE_NAMES[style]))
    twin = os.path.exists(os.path.join(conf_dir, FILE_NAMES[CONF if style == YAML else YAML]))
    return Survey(slurm, conf_dir, version, style, conf, config, file, twin, slurm.topologies(version), slurm.shown())


def read_file(path: str) -> bytes | None:
    """The bytes of a file, None where there is none; SlurmError where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SlurmError(f"{path} cannot be read ({error.strerror}): correct its owner or mode.") from None


# --------------------------------------------------------------------------------------------------------- plan


@dataclass(frozen=True)
class Wish:
    """What a caller wants to run: the blocks in order, sizes (empty: chosen here), the topology's name, policy."""

    blocks: tuple[Block, ...]
    block_sizes: tuple[int, ...] = ()
    name: str = "nvlink"
    manage_conf: bool = False
    segments: tuple[int, ...] = ()


@dataclass
class Plan:
    """What would be done: the new bytes of each file, what is in the way, and the difference in a person's words."""

    survey: Survey
    topology: Topology
    wanted: list[Topology]
    settings: dict[str, str]
    findings: list[Finding]
    writes: dict[str, bytes]
    reconfigure: bool
    moves: list[dict[str, str | None]]
    difference: list[str]

    @property
    def changed(self) -> bool:
        return bool(self.writes) or self.reconfigure

    def stopped_by(self) -> list[Finding]:
        """The findings that forbid to write anything."""
        # A topology.conf that no plugin reads yet is harmless, and must be there before the plugin is set.
        return [
            found for found in self.findings if found["severity"] == "error" and found["code"] != "slurm_plugin_missing"
        ]


def plan(seen: Survey, wish: Wish) -> Plan:
    """Compare the wish with what is there; reads, writes nothing."""
    blocks, findings = rules.drop_placeholders(wish.blocks, seen.version)
    sizes = wish.block_sizes or rules.auto_block_sizes(blocks, seen.version)
    # Slurm calls the one topology of a topology.conf "default".
    name = wish.name if seen.style == YAML else "default"
    topology = Topology(name=name, blocks=blocks, block_sizes=sizes)
    written = seen.written()
    others: list[Topology] = []
    if seen.style == YAML:
        others = [replace(other, cluster_default=False) for other in written if other.name != name]
    elif any(other.kind != "block" for other in written):
        message = f"{seen.path} holds a tree (SwitchName lines), which would be lost: move it away first."
        findings.append(finding("slurm_topology_foreign", message))
    before = seen.running_topology(name)
    overrides = _overrides(seen, topology)
    findings += rules.lint(
        rules.Candidate(
            version=seen.version,
            style=seen.style,
            topology=topology,
            known_nodes=seen.slurm.nodes(),
            partitions=seen.slurm.partitions(),
            previous=before,
            others=tuple(others),
            segments=wish.segments,
            node_topologies=overrides,
        )
    )
    findings += rules.twin_findings(seen.style, seen.version, seen.twin)
    findings += rules.settings_findings(seen.style, seen.config, seen.conf.settings, wish.manage_conf)
    for other in others:
        findings.append(
            finding("slurm_other_topology", f"The topology {other.name} ({other.kind}) stays beside {name}.")
        )
    wanted = [topology, *others]
    writes = {}
    if not _same(written, wanted):
        writes[seen.path] = files.render(wanted, seen.style).encode()
    if wish.manage_conf:
        writes.update(_managed(seen))
    # Where topology.conf is not read yet there is nothing to compare with, and nothing to load.
    loaded = seen.style == YAML or rules.satisfies("TopologyPlugin", seen.plugin)
    settings = rules.wanted_settings(seen.style) if wish.manage_conf else {}
    unset = [key for key in settings if not rules.satisfies(key, seen.config.get(key.lower(), ""))]
    reconfigure = (loaded or wish.manage_conf) and (bool(writes or unset) or difference(topology, seen) != "")
    moves, lines = describe(before if before is not None else _same_named(written, name), topology)
    if not lines and writes.get(seen.path) is not None:
        lines = [f"{os.path.basename(seen.path)}: {'written anew' if seen.file is not None else 'created'}"]
    lines += [f"{os.path.basename(path)}: {_summary(data)}" for path, data in writes.items() if path != seen.path]
    if reconfigure and not lines:
        lines = ["slurmctld: runs another topology than its file, and reads the file again"]
    return Plan(seen, topology, wanted, settings, findings, writes, reconfigure, moves, lines)


def _overrides(seen: Survey, topology: Topology) -> dict[str, str]:
    """node -> block for the NodeName lines in slurm.conf that place a node in this topology themselves."""
    placed = {}
    for node, text in seen.conf.node_topologies.items():
        for part in text.split(","):
            name, _colon, unit = part.strip().partition(":")
            if name == topology.name and unit:
                placed[node] = unit
    return placed


def _same_named(topologies: Sequence[Topology], name: str) -> Topology | None:
    return next((known for known in topologies if known.name == name and known.kind == "block"), None)


def _same(written: Sequence[Topology], wanted: Sequence[Topology]) -> bool:
    return [known.essence() for known in written] == [known.essence() for known in wanted]


def _managed(seen: Survey) -> dict[str, bytes]:
    """Our include file and the Include line in slurm.conf, as far as they are not there yet."""
    settings = [
        f"{key}={value}"
        for key, value in rules.wanted_settings(seen.style).items()
        if key.lower() not in seen.conf.settings
    ]
    path = os.path.join(seen.conf_dir, INCLUDE_NAME)
    text = "\n".join([files.HEADER, *settings]) + "\n"
    writes: dict[str, bytes] = {}
    if not settings and not seen.conf.includes_ours:
        return writes
    if read_file(path) != text.encode():
        writes[path] = text.encode()
    if not seen.conf.includes_ours:
        data = read_file(seen.conf.path) or b""
        # No folder in the name: only such an include travels to configless nodes.
        writes[seen.conf.path] = (
            data + (b"" if data.endswith(b"\n") or not data else b"\n") + f"Include {INCLUDE_NAME}\n".encode()
        )
    return writes


def _summary(data: bytes) -> str:
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line and not line.startswith("#")]
    return f"gets the line {lines[-1]}" if lines and lines[-1].startswith("Include ") else ", ".join(lines) or "emptied"


def difference(wanted: Topology, seen: Survey) -> str:
    """In what the running topology differs from the wanted one, in a few words; empty where it does not."""
    running = seen.running_topology(wanted.name)
    if running is None or (seen.style == YAML and not seen.running):
        return f"no block topology {wanted.name} runs"
    names, running_names = [block.name for block in wanted.blocks], [block.name for block in running.blocks]
    if names != running_names:
        return f"its blocks are {', '.join(running_names[:5])}{' ...' if len(running_names) > 5 else ''}"
    for block, other in zip(wanted.blocks, running.blocks):
        if set(block.nodes) != set(other.nodes):
            return (
                f"block {block.name} runs with {len(set(other.nodes))} nodes that are not its {len(set(block.nodes))}"
            )
    if seen.running:
        if wanted.block_sizes != running.block_sizes:
            return f"its block sizes are {', '.join(str(size) for size in running.block_sizes)}"
        if (
            wanted.cluster_default
            and not next(known for known in seen.running if known.name == wanted.name).cluster_default
        ):
            return "it is not the cluster's default"
        return ""
    base = wanted.block_sizes[0] if wanted.block_sizes else len(set(wanted.blocks[0].nodes)) if wanted.blocks else 0
    shown_base = next((line.size for line in seen.shown if not line.aggregated), None)
    if shown_base != base:
        return f"its base block size is {shown_base}"
    # 24.05 does not show aggregates.
    if seen.version >= (24, 11, 0):
        nodes = {block.name: set(block.nodes) for block in wanted.blocks}
        expected = [
            (size, sorted(set().union(*(nodes[name] for name in group))))
            for size, group in rules.aggregates(wanted, base)
        ]
        shown = [(line.size or 0, sorted(set(line.nodes))) for line in seen.shown if line.aggregated]
        if sorted(expected) != sorted(shown):
            return "its larger blocks are not those of the block sizes"
    return ""


def describe(before: Topology | None, after: Topology) -> tuple[list[dict[str, str | None]], list[str]]:
    """The way from one topology to the other: moves node by node, and lines that a person reads.

    The trays of new blocks are told one by one up to MANY of them; beyond that each such block is one line, so that the
    first apply of a large fabric stays readable.
    """
    old_blocks = {block.name: block for block in before.blocks} if before else {}
    new_blocks = {block.name: block for block in after.blocks}
    was = {node: block.name for block in old_blocks.values() for node in block.nodes}
    now = {node: block.name for block in after.blocks for node in block.nodes}
    many = sum(1 for node, name in now.items() if node not in was and name not in old_blocks) > MANY
    moves: list[dict[str, str | None]] = []
    lines: list[str] = []
    for position, block in enumerate(after.blocks):
        if block.name not in old_blocks:
            count = "1 tray" if len(block.nodes) == 1 else f"{len(block.nodes)} trays"
            what = f"{count}: {block.hostlist()}" if block.nodes else "a placeholder without trays"
            lines.append(f"block {block.name}: new at position {position}, {what}")
    for node in [*now, *(node for node in was if node not in now)]:
        source, target = was.get(node), now.get(node)
        if source == target:
            continue
        moves.append({"node": node, "from": source, "to": target})
        if source is None and target not in old_blocks and many:
            continue  # told by the line of its new block
        lines.append(f"{node}: {source or '(no block)'} -> {target or '(no block)'}")
    for name, block in old_blocks.items():
        if name not in new_blocks:
            lines.append(f"block {name}: removed")
        elif block.nodes and not new_blocks[name].nodes:
            lines.append(f"block {name}: retired, its place is kept")
    kept = [name for name in new_blocks if name in old_blocks]
    if kept != [name for name in old_blocks if name in new_blocks]:
        lines.append(f"block order: {', '.join(kept[:10])}{' ...' if len(kept) > 10 else ''}")
    if before and before.block_sizes and _levels(before) != _levels(after):
        shown = [",".join(str(size) for size in topology.block_sizes) for topology in (before, after)]
        lines.append(f"block sizes: {shown[0]} -> {shown[1]}")
    return moves, lines


def _levels(topology: Topology) -> tuple[int, frozenset[int]]:
    """The base and the sizes that have an effect: a running topology.conf shows no others."""
    base = topology.block_sizes[0] if topology.block_sizes else 0
    return base, frozenset(size for size, _names in rules.aggregates(topology, base))


def report(slurm: Slurm, conf_dir: str, name: str) -> dict[str, Any]:
    """What runs, in plain values: the result of slurm_topology_info. SlurmError where slurmctld does not answer."""
    seen = survey(slurm, conf_dir, "auto")
    if not seen.running and seen.style == YAML:
        # 25.05 and later run a topology.conf too.
        data = read_file(os.path.join(conf_dir, FILE_NAMES[CONF]))
        seen = replace(seen, style=CONF, file=data, twin=seen.file is not None) if data is not None else seen
    blocks = [known for known in seen.running if known.kind == "block"]
    found = next((known for known in blocks if known.name == name), blocks[0] if blocks else None)
    topology = found or from_shown(seen.shown)
    others = tuple(known for known in seen.running if known is not found)
    findings: list[Finding] = []
    matches: bool | None = False
    try:
        written = seen.written()
    except SlurmError:
        matches = None
    else:
        mine = _same_named(written, topology.name) if topology else None
        matches = mine is not None and not difference(mine, seen)
    if topology is not None:
        findings += rules.lint(
            rules.Candidate(
                version=seen.version,
                style=seen.style,
                topology=topology,
                known_nodes=slurm.nodes(),
                partitions=slurm.partitions(),
                others=others,
            )
        )
    if topology is not None and not matches:
        message = f"slurmctld runs another topology than {seen.path} says: run slurm_topology, or scontrol reconfigure."
        findings.append(finding("slurm_topology_differs", message))
    findings += rules.twin_findings(seen.style, seen.version, seen.twin)
    findings += rules.settings_findings(seen.style, seen.config, seen.conf.settings, seen.conf.includes_ours)
    shown = topology and {
        "name": topology.name,
        "cluster_default": topology.cluster_default,
        "block_sizes": list(topology.block_sizes),
        "blocks": [{"name": block.name, "nodes": list(block.nodes)} for block in topology.blocks],
    }
    base = topology.block_sizes[0] if topology and topology.block_sizes else 0
    return {
        "version": seen.version_text,
        "plugin": seen.plugin,
        "topology": shown,
        "others": [other.name for other in others],
        "file": {"path": seen.path, "exists": seen.file is not None, "running": matches},
        "segment_max": rules.segment_limit(seen.version, base) if base else None,
        "findings": findings,
    }


# -------------------------------------------------------------------------------------------------------- apply


@contextlib.contextmanager
def locked(conf_dir: str, timeout: float) -> Iterator[None]:
    """One apply at a time on this host: a lock on the folder itself, so that nothing is left behind."""
    try:
        handle = os.open(conf_dir, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise SlurmError(f"{conf_dir} cannot be opened ({error.strerror}): set slurm_topology_conf_dir.") from None
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    break  # a network file system without locks on folders: go on unlocked rather than not at all
                if time.monotonic() > deadline:
                    raise SlurmError(
                        f"Another apply works in {conf_dir} since {timeout:.0f} s: wait for it to end."
                    ) from None
                time.sleep(0.2)
        yield
    finally:
        os.close(handle)


@dataclass
class _Written:
    """One file that was replaced: what undoing it takes."""

    path: str
    existed: bool


class Files:
    """Replaces files one by one and can put all of them back; the old one stays beside as ``.previous``."""

    def __init__(self, model: str) -> None:
        self.model = model  # a file whose owner and mode new files get
        self.done: list[_Written] = []

    def write(self, path: str, data: bytes) -> None:
        """Replace one file atomically, keeping its owner and mode; OSError where the file system does not let us."""
        path = os.path.realpath(path)  # a link stays a link, its target changes
        existed = os.path.exists(path)
        like = os.stat(path if existed else self.model)
        folder = os.path.dirname(path)
        handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
                os.fsync(file.fileno())
            if existed:
                _keep(path)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        self.done.append(_Written(path, existed))
        _sync(folder)

    def undo(self) -> None:
        """Put back what was there. Renames only: works on a full disk too."""
        for written in reversed(self.done):
            if written.existed:
                os.replace(written.path + PREVIOUS, written.path)
            else:
                os.unlink(written.path)
            _sync(os.path.dirname(written.path))
        self.done.clear()


def _keep(path: str) -> None:
    """The file that is about to be replaced stays as ``.previous``: a second name of it, no copy that needs room."""
    spare = f"{path}{PREVIOUS}.{os.getpid()}"
    try:
        os.link(path, spare)
    except OSError:  # a file system without hard links
        try:
            shutil.copy2(path, spare)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(spare)
            raise
    os.replace(spare, path + PREVIOUS)


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def apply(plan: Plan) -> None:
    """Write, load, read back; on any failure the old files are back and loaded. SlurmError says what happened."""
    seen = plan.survey
    changes = Files(seen.conf.path)
    try:
        # The topology first, then the plugin that wants it, then the line that makes the plugin known.
        for path in sorted(plan.writes, key=lambda path: (path != seen.path, path == seen.conf.path)):
            changes.write(path, plan.writes[path])
    except OSError as error:
        changes.undo()
        raise SlurmError(
            f"{error.filename or seen.path} could not be written ({error.strerror}): make room or correct the mode of"
            f" {seen.conf_dir}; nothing was changed."
        ) from None
    if not plan.reconfigure:
        return
    log = _Log(seen.config.get("slurmctldlogfile", ""))
    try:
        problem = _load(plan, log)
    except BaseException:
        # Interrupted or unforeseen: the old files first, whatever it was.
        _restore(plan, changes)
        raise
    if problem:
        raise SlurmError(f"{problem}; {_restore(plan, changes)}.")


def _load(plan: Plan, log: _Log) -> str:
    """Have slurmctld read the files and compare; the problem in a clause, empty where all is well."""
    seen = plan.survey
    result = seen.slurm.reconfigure()
    if result.rc != 0 or result.timed_out:
        fatal = log.fatal()
        return (
            f"slurmctld refused the new topology ({fatal})"
            if fatal
            else f"scontrol reconfigure failed ({reason(result)})"
        )
    deadline = time.monotonic() + SETTLE
    while True:
        try:
            after = _look_again(seen)
            problem = difference(plan.topology, after)
            for key in plan.settings:
                value = after.config.get(key.lower(), "")
                if not problem and not rules.satisfies(key, value):
                    problem = f"{key} is {value or 'unset'}"
            if not problem:
                return ""
            problem = f"slurmctld runs another topology than the one it was given ({problem})"
        except SlurmError as error:
            problem = f"slurmctld does not answer after the reconfigure ({str(error).rstrip('.')})"
        if time.monotonic() > deadline:
            return problem
        time.sleep(0.25)


def _look_again(seen: Survey) -> Survey:
    slurm = seen.slurm
    return replace(seen, config=slurm.config(), running=slurm.topologies(seen.version), shown=slurm.shown())


def _restore(plan: Plan, changes: Files) -> str:
    """Put the old files back and have them loaded; says in a clause how far that came."""
    seen = plan.survey
    name = os.path.basename(seen.path)
    if changes.done:
        changes.undo()
        told = f"the old {name} is back" if seen.file is not None else f"the new {name} is removed again"
    else:
        told = _restore_previous(seen, plan)
    deadline = time.monotonic() + max(seen.slurm.timeout, SETTLE)
    while True:
        # A slurmctld that still waits for a file answers nobody; it takes the old one when it comes back.
        with contextlib.suppress(SlurmError):
            # Where the reconfigure fails for another reason, the slurmctld of before may still be the one that runs.
            seen.slurm.reconfigure()
            after = _look_again(seen)
            if (after.running, after.shown) == (seen.running, seen.shown) or _runs_its_file(after):
                return f"{told} and running"
        if time.monotonic() > deadline:
            return f"{told}, but slurmctld does not run it: look at its log and restart it"
        time.sleep(0.5)


def _runs_its_file(seen: Survey) -> bool:
    """Whether the first block topology of the file that is there is what runs."""
    data = read_file(seen.path)
    if data is None:
        return False
    written = files.parse(data.decode("utf-8", "replace"), seen.style)
    topology = next((known for known in written if known.kind == "block"), None)
    return topology is not None and not difference(topology, seen)


def _restore_previous(seen: Survey, plan: Plan) -> str:
    """Nothing was written in this run, yet the file is refused: an earlier run was cut off before its check.

    The file before it comes back if it is what runs.
    """
    name = os.path.basename(seen.path)
    data = read_file(seen.path + PREVIOUS)
    if data is not None:
        try:
            old = files.parse(data.decode("utf-8", "replace"), seen.style)
        except SlurmError:
            old = []
        topology = _same_named(old, plan.topology.name)
        if topology is not None and not difference(topology, seen):
            os.replace(seen.path + PREVIOUS, seen.path)
            _sync(seen.conf_dir)
            return f"the old {name} is back"
    return f"{name} stays as it was found"


class _Log:
    """What slurmctld adds to its log from now on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.start = self._size()

    def _size(self) -> int:
        try:
            return os.path.getsize(self.path) if self.path else 0
        except OSError:
            return 0

    def fatal(self) -> str:
        """The last fatal line, without its time; empty where there is none or no log file."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.start if self._size() >= self.start else 0)
                text = file.read(1 << 20).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""
        lines = [line.partition("fatal: ")[2] for line in text.splitlines() if "fatal: " in line]
        return lines[-1].strip()[:300] if lines else ""
