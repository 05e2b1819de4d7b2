# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source topograph: the Slurm topology that a running NVIDIA Topograph makes, read back as places.

POST /v1/generate gives a request's ID, GET /v1/topology?uid=ID is 202 until the topology is there. A block's domain
stands in a comment before it (`# block001=<domain>`), in topology.conf alone: the yaml form has no comments. Only where
Topograph asked nvidia-smi or the label nvidia.com/gpu.clique is that domain a clique, `<uuid>.<id>`. Elsewhere (NetQ,
clouds) it is a number of another kind, and what is known of a tray is its block, but not its clique.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    SlurmError,
    key_values,
    load_yaml,
    logical_lines,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.collector import MAX_TRAYS, Gathering, tray_name
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, identity, mapped, sentence

SOURCE = "topograph"
OPTIONS = ("url", "provider", "engine", "nodes", "tray_name", "poll_interval", "slurm_cluster", *http.OPTIONS)
PROVIDER = ("name", "params", "creds")
ENGINE = ("name", "params")
BLOCK_ENGINE = {"name": "slurm", "params": {"plugin": "topology/block"}}

_REQUEST = re.compile(r"[0-9A-Za-z._-]{1,128}")
_DOMAIN = re.compile(r"^#[ \t]*([^\s=]{1,256})=(\S{1,256})[ \t]*$", re.MULTILINE)


class Block(NamedTuple):
    """A block as Topograph writes it: its name, its nodes as a hostlist, and its domain's ID, None if not given."""

    name: str
    hostlist: str
    domain: str | None


def discover(options: Any, now: str) -> SourceResult:
    """One observation for each node of each block."""
    checked = Options(options, OPTIONS, SOURCE)
    expression = _name_expression(checked)
    url = http.endpoint(checked, "url", "as in http://topograph.example.org:49021").rstrip("/")
    payload, secrets = _payload(checked)
    cluster = checked.cluster("slurm_cluster")
    interval = checked.number("poll_interval", 2, 0.05, 60)
    way = http.access(checked)
    client = http.Client(SOURCE, replace(way, secrets=(*way.secrets, *secrets)))
    answer = _generated(client, url, payload, interval)
    try:
        blocks = list(read(answer.body.decode("utf-8")))
        names = [(block, expand(block.hostlist)) for block in _bounded(blocks)]
    except (SlurmError, HostlistError, UnicodeDecodeError) as error:
        why = sentence(str(error)) if isinstance(error, (SlurmError, HostlistError)) else "it is no UTF-8"
        client.fail(answer.url, f"gives a topology that cannot be read ({why})", "look at Topograph's log")
    if not blocks:
        what = "writes its topology into a file" if answer.body.strip() == b"OK" else "gives a topology without blocks"
        client.fail(answer.url, what, "set the engine's plugin to topology/block and leave out topologyConfigPath")
    trays = Gathering(SOURCE, "nodes")
    for block, nodes in names:
        for node in nodes:
            trays.add(_observation(node, block, expression, cluster, now))
    return trays.result("correct tray_name")


def read(text: str) -> Iterator[Block]:
    """The blocks of topology.conf or topology.yaml; none of a tree. SlurmError if the text cannot be read."""
    domains = {match[1]: match[2] for match in _DOMAIN.finditer(text)}
    first = next(iter(logical_lines(text)), "")
    rows = _yaml_blocks(text) if first.startswith(("-", "[")) else _conf_blocks(text)
    for name, hostlist in rows:
        # A block may also be named after its domain (blockName in the engine's parameters).
        yield Block(name, hostlist, domains.get(name) or (name if identity(name) else None))


def _conf_blocks(text: str) -> Iterator[tuple[str, str]]:
    for line in logical_lines(text):
        pairs = {key.lower(): value for key, value in key_values(line)}
        if "blockname" in pairs:
            yield pairs["blockname"], pairs.get("nodes", "")


def _yaml_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Of all topologies in the text, each of which names the same blocks, perhaps for other partitions."""
    for topology in as_list(load_yaml(text)):
        for row in as_list(mapped(mapped(topology).get("block")).get("blocks")):
            name, hostlist = mapped(row).get("block"), mapped(row).get("nodes", "")
            if isinstance(name, str) and isinstance(hostlist, str):
                yield name, hostlist


def _bounded(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks while a hostlist of a few bytes cannot have become more nodes than any cluster has."""
    total = 0
    for block in blocks:
        total += block.hostlist.count(",") + 1 if "[" not in block.hostlist else len(expand(block.hostlist))
        if total > MAX_TRAYS:
            raise HostlistError(f"its blocks hold more than {MAX_TRAYS} nodes")
        yield block


def _observation(node: str, block: Block, expression: Any, cluster: str | None, now: str) -> Observation | None:
    said = expression({"node": node, "block": block.name, "domain": block.domain}) if expression else node
    tray = tray_name(said)
    if tray is None:
        return None
    place = identity(block.domain)
    findings: tuple[Finding, ...] = ()
    if place is None:
        says = f"the domain {sentence(block.domain)}" if block.domain else "no domain"
        message = (
            f"Topograph gives {says} for the block of tray {tray}, which is no clique; let it ask nvidia-smi or the "
            "label nvidia.com/gpu.clique, and write topology.conf."
        )
        findings = (finding("domain_no_clique", message, tray=tray),)
    return Observation(
        tray,
        SOURCE,
        observed_at=now,
        identity=place,
        findings=findings,
        slurm_node=tray_name(node),
        slurm_cluster=cluster,
    )


def _generated(client: http.Client, url: str, payload: Mapping[str, Any], interval: float) -> http.Answer:
    """The answer with the topology that Topograph makes of the payload."""
    request = client.post(f"{url}/v1/generate", payload, passed=(202,)).body.decode("utf-8", "replace").strip()
    if not _REQUEST.fullmatch(request):
        client.fail(f"{url}/v1/generate", "gives no request ID", "write the address of a Topograph API server")
    where = f"{url}/v1/topology"
    while True:
        answer = client.get(f"{where}?{urllib.parse.urlencode({'uid': request})}", passed=(202, 404), accept="*/*")
        if answer.status == 404:
            client.fail(where, f"no longer knows the request {request}", "ask again, it may have been restarted")
        if answer.status == 200:
            return answer
        client.wait(interval, where, "has no topology yet")


def _payload(options: Options) -> tuple[dict[str, Any], list[str]]:
    """(what to post, the texts in it that are secret)."""
    provider = options.mapping("provider")
    if provider is None:
        raise options.wrong("provider", "is missing; write its name, as in {name: infiniband-bm}")
    provider = _part(provider, PROVIDER, "provider")
    engine = _part(options.mapping("engine") or BLOCK_ENGINE, ENGINE, "engine")
    payload: dict[str, Any] = {"provider": provider, "engine": engine}
    if "nodes" in options:
        payload["nodes"] = _plain(options.sequence("nodes"), f"{SOURCE}: nodes")
    return payload, list(_texts(provider.get("creds")))


def _part(values: Any, known: tuple[str, ...], key: str) -> dict[str, Any]:
    part = Options(values, known, f"{SOURCE}: {key}")
    name = part.needed("name", f"the {key}'s name as Topograph calls it")
    rest = {inner: _plain(part.mapping(inner), f"{SOURCE}: {key}: {inner}") for inner in known[1:] if inner in part}
    return {"name": name, **rest}


def _plain(value: Any, where: str) -> Any:
    """The value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item, where) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise Options({}, (), where).wrong("holds", "a value that JSON does not have, as a date; put it in quotes")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _name_expression(options: Options) -> Any:
    if "tray_name" not in options:
        return None
    from ansible_collections.rackscale.nvlink.plugins.plugin_utils.expressions import Expression

    return Expression(options.text("tray_name"), f"{SOURCE}: tray_name")
