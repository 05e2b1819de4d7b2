# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source ssh: read the GPUs of every tray over ssh, from one process, through gateways where there are any."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.rackscale.nvlink.plugins.doc_fragments import source_ssh
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import grouped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, SourceError, documented
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import Reporter, gateways, reading
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.collector import MAX_TRAYS, tray_name
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown

if TYPE_CHECKING:
    from ClusterShell.NodeSet import NodeSet

SOURCE = "ssh"
OPTIONS = documented(source_ssh.ModuleDocFragment.DOCUMENTATION, SOURCE)

_MAX_TEXT = 1024 * 1024
_BRACKETS = re.compile(r"\[([^]]*)")
_RANGE = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
# In brackets, without spaces: what ClusterShell may read as a larger range than _RANGE does, such as 1-400_000_000.
_ODD_RANGE = re.compile(r"[^0-9,/-]|(?<![0-9])-|[0-9]{21}")


def discover(options: Any, now: str, known: Mapping[str, str], reporter: Reporter) -> SourceResult:
    """Observe each tray of the option hosts, or else each known one; known: tray -> its ssh address."""
    checked = Options(options, OPTIONS, SOURCE)
    trays = _trays(checked, known)
    jump = _gateways(checked, trays, reporter)
    asked = _read(trays, jump, checked, reporter)
    results = reading.run(asked, SOURCE, "correct the option ssh, or lower fanout")
    observed = [tray_report.read(tray, result).observation(SOURCE) for tray, result in results.items()]
    problems = [(row.tray, row.problem) for row in observed if not row.reachable]
    if problems:
        these = f"{len(problems)} of {count(len(trays), 'tray')}"
        reporter.warning(f"{SOURCE}: {these} returned no facts ({'; '.join(grouped(problems))})")
    return SourceResult(observed)


async def _read(
    trays: Mapping[str, str], jump: Mapping[str, str], options: Options, reporter: Reporter
) -> dict[str, Result]:
    """Read all trays; trays: tray -> its address, jump: tray -> its gateway."""
    connect_timeout = options.whole("connect_timeout", 10, 1, 3600)
    command_timeout = options.whole("command_timeout", 60, 1, 7200)
    asked, fanout = _asked(options, command_timeout), options.whole("fanout", reading.FANOUT, 1, 4096)
    question = reading.of_facts(asked, command_timeout, connect_timeout + command_timeout, fanout)
    program = os.path.expanduser(options.text("ssh") or "ssh")
    if shutil.which(program) is None:
        raise options.wrong("ssh", f"{shown(program)} is not a program on this controller; install the OpenSSH client")
    # First what nothing may override: a password prompt would hang the run.
    own = ["-T", "-oBatchMode=yes", f"-oConnectTimeout={connect_timeout}", *options.words("ssh_options")]
    user, port = options.text("user"), options.whole("port", 0, 1, 65535)
    to_trays = [program, *([f"-oPort={port}"] if port else []), *(["-l", user] if user else []), *own]
    python = (options.text("python") or reading.PYTHON,)
    async with gateways.connected(jump.values(), [program, *own], fanout, question.seconds) as connections:
        targets = {
            tray: reading.Target(address, to_trays, python, connections[jump[tray]] if tray in jump else None)
            for tray, address in trays.items()
        }
        return await reading.read(targets, question, reporter, SOURCE)


# --- The options.


def _asked(options: Options, command_timeout: int) -> subsets.Options:
    """The options of fabric_facts, checked by its own function."""
    asked = subsets.Options(
        backend=options.text("backend") or "auto",
        nvidia_smi=options.text("nvidia_smi") or "nvidia-smi",
        timeout=options.number("timeout", 20.0, 0.1, 3600),
    )
    try:
        subsets.check_options(asked)
    except NvlinkError as error:
        raise SourceError(f"{SOURCE}: {str(error).rstrip('.')}") from None
    if asked.timeout >= command_timeout:
        raise options.wrong("command_timeout", f"is {command_timeout}, use more than timeout, {asked.timeout:g}")
    return asked


def _trays(options: Options, known: Mapping[str, str]) -> dict[str, str]:
    """Tray -> its ssh address, of the trays to read."""
    if "hosts" not in options:
        if not known:
            raise options.wrong("hosts", "is missing; name the trays, or add fabric_file to the sources")
        return dict(known)
    given = options.given("hosts")
    names = list(map(str, _nodes(options, "hosts", given if isinstance(given, list) else [given])))
    if not names:
        raise options.wrong("hosts", "names no tray; name one, or leave it out to read those of the fabric file")
    return {name: known.get(name, name) for name in names}


def _gateways(options: Options, trays: Collection[str], reporter: Reporter) -> dict[str, str]:
    """Tray -> its gateway, of the trays that have one."""
    jump = options.given("jump")
    if isinstance(jump, str):
        return dict.fromkeys(trays, _gateway(options, jump))
    found: dict[str, str] = {}
    for hosts, value in (options.mapping("jump") or {}).items():
        names = set(map(str, _nodes(options, "jump", [hosts])))
        twice = sorted(names & found.keys())
        if twice:
            raise options.wrong("jump", f"has two gateways for {twice[0]}; name each tray once")
        found.update(dict.fromkeys(names, _gateway(options, value)))
        if names.isdisjoint(trays):
            reporter.warning(f"{SOURCE}: jump has {shown(hosts)}, and none of these trays is read")
    return {name: gateway for name, gateway in found.items() if name in trays}


def _gateway(options: Options, value: Any) -> str:
    if not gateways.is_gateway(value):
        raise options.wrong("jump", f"has {shown(value)}, which is not a gateway; write one as in admin@gw1:22")
    return str(value)


def _nodes(options: Options, key: str, texts: Iterable[Any]) -> NodeSet:
    """The names of trays in texts; an error for more than MAX_TRAYS, of ranges before they are expanded."""
    # Here, since every controller can load this file, and the library is needed for this source alone.
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    nodes = NodeSet()
    for text in texts:
        if not isinstance(text, str):
            raise options.wrong(key, f"has {shown(text)}, write names such as r01t[01-18]")
        if len(text) > _MAX_TEXT:
            raise options.wrong(key, f"has {shown(text)}, which has more than {_MAX_TEXT} characters; write ranges")
        ranges = "".join(",".join(_BRACKETS.findall(text)).split())
        if _ODD_RANGE.search(ranges):
            what = "which is not a node set; write ranges such as 01-18, of at most 20 digits"
            raise options.wrong(key, f"has {shown(text)}, {what}")
        spans = sum(max(0, int(high) - int(low)) for low, high in _RANGE.findall(ranges))
        try:
            nodes.update(str(text) if spans <= MAX_TRAYS else None)
        except (NodeSetException, AssertionError) as error:  # the latter for a range that is too large
            raise options.wrong(key, f"has {shown(text)}, which is not a node set ({error})") from None
        if spans > MAX_TRAYS or len(nodes) > MAX_TRAYS:
            raise options.wrong(key, f"has {shown(text)}, which is more than {MAX_TRAYS} trays; name fewer")
    for name in nodes:
        if tray_name(str(name)) is None:
            raise options.wrong(key, f"has {shown(str(name))}, which is not a valid tray name")
    return nodes
