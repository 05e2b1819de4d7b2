# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source topograph: cliques and blocks from the Slurm topology of a running NVIDIA Topograph.

POST /v1/generate returns a request ID; GET /v1/topology?uid=ID returns 202 until the topology is ready. The domain of a
block is in a comment before it (`# block001=<domain>`), in topology.conf only: topology.yaml has no comments. The
domain is a clique, `<uuid>.<id>`, only where Topograph read it from nvidia-smi or the label nvidia.com/gpu.clique.
Elsewhere (NetQ, clouds) it is a number of another kind, so the block of a tray is known, but not its clique.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError, load_yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import key_values, logical_lines
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding, Observation, SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.collector import MAX_TRAYS, Collector, tray_name
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import (
    as_list,
    check_count,
    identity,
    mapped,
    sentence,
)

SOURCE = "topograph"
OPTIONS = ("url", "provider", "engine", "nodes", "tray_name", "poll_interval", "slurm_cluster", *http.OPTIONS)
PROVIDER = ("name", "params", "creds")
ENGINE = ("name", "params")
BLOCK_ENGINE = {"name": "slurm", "params": {"plugin": "topology/block"}}

_REQUEST = re.compile(r"[0-9A-Za-z._-]{1,128}")
_DOMAIN = re.compile(r"^#[ \t]*([^\s=]{1,256})=(\S{1,256})[ \t]*$", re.MULTILINE)


class Block(NamedTuple):
    """A block of Topograph's topology; hostlist: its nodes; domain: the ID of its domain, None if not given."""

    name: str
    hostlist: str
    domain: str | None


def discover(options: Any, now: str) -> SourceResult:
    """Return one observation for each node of each block."""
    checked = Options(options, OPTIONS, SOURCE)
    expression = _name_expression(checked)
    url = http.endpoint(checked, "url", "as in http://topograph.example.org:49021").rstrip("/")
    payload, secrets = _payload(checked)
    cluster = checked.cluster("slurm_cluster")
    interval = checked.number("poll_interval", 2, 0.05, 60)
    config = http.client_config(checked)
    client = http.Client(SOURCE, replace(config, secrets=(*config.secrets, *secrets)))
    answer = _request_topology(client, url, payload, interval)
    try:
        text = answer.body.decode("utf-8")
        check_count(text.count(",") + text.count("\n"), config.max_bytes)
        blocks = list(read(text))
        names = [(block, expand(block.hostlist)) for block in _bounded(blocks)]
    except (SlurmError, HostlistError, ValueError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else sentence(str(error))
        client.fail(answer.url, f"returns a topology that cannot be parsed ({why})", "check Topograph's log")
    if not blocks:
        what = "writes its topology to a file" if answer.body.strip() == b"OK" else "returns a topology without blocks"
        client.fail(answer.url, what, "set the engine's plugin to topology/block and leave out topologyConfigPath")
    trays = Collector(SOURCE, "nodes")
    for block, nodes in names:
        for node in nodes:
            trays.add(_observation(node, block, expression, cluster, now))
    return trays.result("correct tray_name")


def read(text: str) -> Iterator[Block]:
    """Yield the blocks of topology.conf or topology.yaml; none of a tree topology. SlurmError for an invalid text."""
    domains = {match[1]: match[2] for match in _DOMAIN.finditer(text)}
    first = next(iter(logical_lines(text)), "")
    rows = _yaml_blocks(text) if first.startswith(("-", "[")) else _conf_blocks(text)
    for name, hostlist in rows:
        # A block may also have the name of its domain (blockName in the engine's parameters).
        yield Block(name, hostlist, domains.get(name) or (name if identity(name) else None))


def _conf_blocks(text: str) -> Iterator[tuple[str, str]]:
    for line in logical_lines(text):
        pairs = {key.lower(): value for key, value in key_values(line)}
        if "blockname" in pairs:
            yield pairs["blockname"], pairs.get("nodes", "")


def _yaml_blocks(text: str) -> Iterator[tuple[str, str]]:
    """The blocks of all topologies in the text; they may repeat the same blocks for other partitions."""
    for topology in as_list(load_yaml(text)):
        for row in as_list(mapped(mapped(topology).get("block")).get("blocks")):
            name, hostlist = mapped(row).get("block"), mapped(row).get("nodes", "")
            if isinstance(name, str) and isinstance(hostlist, str):
                yield name, hostlist


def _bounded(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks; HostlistError where their hostlists expand to more than MAX_TRAYS nodes."""
    total = 0
    for block in blocks:
        total += block.hostlist.count(",") + 1 if "[" not in block.hostlist else len(expand(block.hostlist))
        if total > MAX_TRAYS:
            raise HostlistError(f"its blocks have more than {MAX_TRAYS} nodes")
        yield block


def _observation(node: str, block: Block, expression: Any, cluster: str | None, now: str) -> Observation | None:
    name = expression({"node": node, "block": block.name, "domain": block.domain}) if expression else node
    tray = tray_name(name)
    if tray is None:
        return None
    place = identity(block.domain)
    findings: tuple[Finding, ...] = ()
    if place is None:
        domain = f"the domain {sentence(block.domain)}" if block.domain else "no domain"
        message = (
            f"Topograph returns {domain} for the block of tray {tray}, which is not a clique; use a provider "
            "that reads "
            "nvidia-smi or the label nvidia.com/gpu.clique, and the format topology.conf."
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


def _request_topology(client: http.Client, url: str, payload: Mapping[str, Any], interval: float) -> http.Answer:
    """Request a topology and poll until it is ready; the answer contains it."""
    request = client.post(f"{url}/v1/generate", payload, allowed=(202,)).body.decode("utf-8", "replace").strip()
    if not _REQUEST.fullmatch(request):
        client.fail(f"{url}/v1/generate", "returned no request ID", "set the address of a Topograph API server")
    where = f"{url}/v1/topology"
    while True:
        answer = client.get(f"{where}?{urllib.parse.urlencode({'uid': request})}", allowed=(202, 404), accept="*/*")
        if answer.status == 404:
            client.fail(where, f"does not know the request {request} any more", "try again, it may have been restarted")
        if answer.status == 200:
            return answer
        client.wait(interval, where, "has no topology yet")


def _payload(options: Options) -> tuple[dict[str, Any], list[str]]:
    """The request body, and the secret texts in it."""
    provider = options.mapping("provider")
    if provider is None:
        raise options.wrong("provider", "is missing; set its name, as in {name: infiniband-bm}")
    provider = _part(provider, PROVIDER, "provider")
    engine = _part(options.mapping("engine") or BLOCK_ENGINE, ENGINE, "engine")
    payload: dict[str, Any] = {"provider": provider, "engine": engine}
    if "nodes" in options:
        payload["nodes"] = _plain(options.sequence("nodes"), f"{SOURCE}: nodes")
    return payload, list(_texts(provider.get("creds")))


def _part(values: Any, known: tuple[str, ...], key: str) -> dict[str, Any]:
    part = Options(values, known, f"{SOURCE}: {key}")
    name = part.needed("name", f"the name of the {key} in Topograph")
    rest = {inner: _plain(part.mapping(inner), f"{SOURCE}: {key}: {inner}") for inner in known[1:] if inner in part}
    return {"name": name, **rest}


def _plain(value: Any, where: str) -> Any:
    """Convert a value to plain JSON types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item, where) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise Options({}, (), where).wrong("has", "a value without a JSON type, such as a date; put it in quotes")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _name_expression(options: Options) -> Any:
    if "tray_name" not in options:
        return None
    from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.expressions import Expression

    return Expression(options.text("tray_name"), f"{SOURCE}: tray_name")
