# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source topograph: cliques and blocks from a topology of NVIDIA Topograph.

POST /v1/generate returns a request ID; GET /v1/topology?uid=ID returns 202 until the topology is ready. The engine
slurm answers with topology.conf or topology.yaml, the engine graph with instances as JSON (pkg/engines of Topograph
1.0); the engine slinky writes topology.conf to a ConfigMap instead.

The domain of a block is in a comment before it (`# block001=<domain>`), in topology.conf only: topology.yaml has no
comments. An instance has it as a label. The domain is a clique, `<uuid>.<id>`, only where Topograph read it from
nvidia-smi or the label nvidia.com/gpu.clique (provider.params.accelerator, without which release 1.0 knows no domain).
Elsewhere (NetQ, clouds) it is a number of another kind, so the block of a tray is known, but not its clique.
"""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.doc_fragments import source_topograph
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import key_values, logical_lines
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import plain_yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import check_count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import identity
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, documented
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.redaction import texts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.collector import MAX_TRAYS, Collector
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.expressions import Expression
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.fields import observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence, shown

SOURCE = "topograph"
REQUEST = ("url", "provider", "engine", "nodes", "poll_interval")
"""Options that ask Topograph, none of which goes with config_map."""
OPTIONS = documented(source_topograph.ModuleDocFragment.DOCUMENTATION, SOURCE)
CONFIG_MAP = ("namespace", "name", "key")
PROVIDER = ("name", "params", "creds")
ENGINE = ("name", "params")
BLOCK_ENGINE = {"name": "slurm", "params": {"plugin": "topology/block"}}
REMEDIES = {
    "no accelerator domains": "set provider.params.accelerator: {source: nvidia-smi}, which Topograph needs since 1.0",
    "contains no blocks": "run sudo ibnetdiscover on a node: infiniband-bm leaves out cliques that it does not show",
}
"""Part of the reason why there is no topology -> what to do (pkg/translate of Topograph 1.0)."""
NO_CLIQUE = (
    "which must be a clique: use a provider that reads nvidia-smi or the label nvidia.com/gpu.clique, and the format "
    "topology.conf"
)
"""Remedy for the domain of a block that is no clique."""
DOMAIN = "accelerator.topograph.run/domain"
"""The label of an instance with its domain, in the answer of the engine graph."""

_REQUEST = re.compile(r"[0-9A-Za-z._-]{1,128}")
_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_DOMAIN = re.compile(r"^#[ \t]*([^\s=]{1,256})=(\S{1,256})[ \t]*$", re.MULTILINE)


def discover(options: Any, now: str) -> SourceResult:
    """Return one observation for each node of each block."""
    checked = Options(options, OPTIONS, SOURCE)
    expression = Expression(checked.text("tray_name"), f"{SOURCE}: tray_name") if "tray_name" in checked else None
    cluster = checked.cluster("slurm_cluster")
    client, url, body, max_bytes = (_from_config_map if "config_map" in checked else _from_request)(checked)
    try:
        text = body.decode("utf-8")
        check_count(text.count(",") + text.count("\n"), max_bytes)
        rows = list(read(text))
    except (plain_yaml.YamlError, HostlistError, ValueError, RecursionError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else sentence(str(error))
        client.fail(url, f"returns a topology that cannot be parsed ({why})", "check Topograph's log")
    if not rows:
        # The engine slinky, and the others with the parameter topologyConfigPath, answer so.
        if body.strip() == b"OK":
            remedy = "leave out the engine's topologyConfigPath, or read what the engine slinky writes by config_map"
            client.fail(url, "writes its topology elsewhere", remedy)
        client.fail(url, "returns a topology without blocks", "set the engine slurm with the plugin topology/block")
    fields: dict[str, Any] = {
        "name": expression or itemgetter("node"),
        "clique": lambda row: row["domain"] or "",
        "slurm_node": itemgetter("node"),
        "slurm_cluster": lambda row: cluster,
    }
    trays = Collector(SOURCE, "nodes")
    for row in rows:
        domain = f"the domain {sentence(row['domain'])}" if row["domain"] else "no domain"
        remedies = {"clique": f"its block has {domain}, {NO_CLIQUE}", "slurm_node": "correct the node's name there"}
        trays.add(observation(SOURCE, row, fields, now, remedies))
    return trays.result("correct tray_name")


def read(text: str) -> Iterator[dict[str, str | None]]:
    """Yield node (its name in Slurm, or the ID of an instance), block and domain of each node, null if not given.

    The text is topology.conf, topology.yaml (nothing of a tree) or the instances of the engine graph. YamlError,
    HostlistError, ValueError or RecursionError for an invalid text, also for more than MAX_TRAYS nodes.
    """
    if text.lstrip().startswith("{"):
        for row in map(mapped, as_list(mapped(json.loads(text)).get("instances"))):
            domain = mapped(row.get("labels")).get(DOMAIN)
            node = str(row.get("id") or "")
            yield {"node": node, "block": "", "domain": domain if isinstance(domain, str) else None}
        return
    domains = {match[1]: match[2] for match in _DOMAIN.finditer(text)}
    first = next(iter(logical_lines(text)), "")
    rows = _yaml_blocks(text) if first.startswith(("-", "[")) else _conf_blocks(text)
    total = 0
    for name, hostlist in rows:
        nodes = expand(hostlist)
        total += len(nodes)
        if total > MAX_TRAYS:
            raise HostlistError(f"its blocks have more than {MAX_TRAYS} nodes")
        # The site may make the domain the block's name (blockName in the engine's parameters).
        domain = domains.get(name) or (name if identity(name) else None)
        yield from ({"node": node, "block": name, "domain": domain} for node in nodes)


def _conf_blocks(text: str) -> Iterator[tuple[str, str]]:
    for line in logical_lines(text):
        pairs = {key.lower(): value for key, value in key_values(line)}
        if "blockname" in pairs:
            yield pairs["blockname"], pairs.get("nodes", "")


def _yaml_blocks(text: str) -> Iterator[tuple[str, str]]:
    """The blocks of all topologies in the text; they may repeat the same blocks for other partitions."""
    for topology in as_list(plain_yaml.load(text)):
        for row in as_list(mapped(mapped(topology).get("block")).get("blocks")):
            name, hostlist = mapped(row).get("block"), mapped(row).get("nodes", "")
            if isinstance(name, str) and isinstance(hostlist, str):
                yield name, hostlist


def _from_request(options: Options) -> tuple[http.Client, str, bytes | bytearray, int]:
    """(client, URL, body, max_bytes) of the topology that a running Topograph is asked for."""
    options.refuse(("kubeconfig", "context", "api_url"), "belongs to config_map; leave it out with url")
    config = http.client_config(options, "url", "as in http://topograph.example.org:49021")
    payload, secrets = _payload(options)
    interval = options.number("poll_interval", 2, 0.05, 60)
    client = http.Client(SOURCE, replace(config, secrets=(*config.secrets, *secrets), shows_reason=True))
    answer = _request_topology(client, payload, interval, config.deadline)
    return client, answer.url, answer.body, config.max_bytes


def _from_config_map(options: Options) -> tuple[http.Client, str, bytes | bytearray, int]:
    """(client, URL, body, max_bytes) of the topology in a ConfigMap, where the engine slinky writes it."""
    options.refuse(REQUEST, "and config_map are both set; keep one")
    names = Options(options.mapping("config_map"), CONFIG_MAP, f"{SOURCE}: config_map")
    where = {key: names.needed(key, f"the {key} of the ConfigMap") for key in ("namespace", "name")}
    for key, name in where.items():
        if not _OBJECT_NAME.fullmatch(name):
            raise names.wrong(key, f"is {shown(name)}, write the {key} of a ConfigMap")
    key = names.text("key") or "topology.conf"
    config = login.client_config(options)
    client = http.Client(SOURCE, config)
    url = f"{client.url}/api/v1/namespaces/{where['namespace']}/configmaps/{where['name']}"
    answer = client.get(url, allowed=(404,))
    if answer.status == 404:
        client.fail(url, "does not exist (HTTP 404)", "correct config_map, or wait until Topograph has written it")
    found = mapped(mapped(client.json(answer)).get("data"))
    if not isinstance(found.get(key), str):
        client.fail(url, f"has no key {key}", f"set config_map.key; it has {sentence(summarize(found)) or 'none'}")
    return client, url, found[key].encode(), config.max_bytes


def _request_topology(client: http.Client, payload: Object, interval: float, deadline: float) -> http.Answer:
    """Request a topology and poll until it is ready; the answer contains it."""
    generate = f"{client.url}/v1/generate"
    request = client.send("POST", generate, payload, allowed=(202,)).body.decode("utf-8", "replace").strip()
    if not _REQUEST.fullmatch(request):
        client.fail(generate, "returned no request ID", "set the address of a Topograph API server")
    where = f"{client.url}/v1/topology"
    while True:
        answer = client.get(f"{where}?{urllib.parse.urlencode({'uid': request})}", (202, 400, 404), accept="*/*")
        if answer.status == 404:
            client.fail(where, f"does not know the request {request} any more", "try again, it may have been restarted")
        if answer.status == 400:
            reason = client.reason(answer)
            known = (remedy for part, remedy in REMEDIES.items() if part in reason)
            remedy = next(known, "correct provider and engine")
            client.fail(where, f"has no topology ({reason or 'HTTP 400'})", remedy)
        if answer.status == 200:
            return answer
        if client.left() <= interval:
            client.fail(where, f"has no topology yet after {deadline:g} seconds", "raise deadline, or check its log")
        time.sleep(interval)


def _payload(options: Options) -> tuple[Object, list[str]]:
    """The request body, and the secret texts in it."""
    provider = options.mapping("provider")
    if provider is None:
        raise options.wrong("provider", "is missing; set its name, as in {name: infiniband-bm}")
    provider = _part(provider, PROVIDER, "provider")
    engine = _part(options.mapping("engine") or BLOCK_ENGINE, ENGINE, "engine")
    payload: dict[str, Any] = {"provider": provider, "engine": engine}
    if "nodes" in options:
        payload["nodes"] = _plain(options.sequence("nodes"), f"{SOURCE}: nodes")
    return payload, list(texts(provider.get("creds")))


def _part(values: Any, known: tuple[str, ...], key: str) -> Object:
    part = Options(values, known, f"{SOURCE}: {key}")
    name = part.needed("name", f"the name of the {key} in Topograph")
    rest = {inner: _plain(part.mapping(inner), f"{SOURCE}: {key}: {inner}") for inner in known[1:] if inner in part}
    return {"name": name, **rest}


def _plain(value: Any, where: str) -> Any:
    """Convert a value to plain JSON types."""
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        raise Options({}, (), where).wrong(
            "has", "a value without a JSON type, such as a date; put it in quotes"
        ) from None
