# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source rest: whatever keeps the trays as JSON, by URL or in a file, mapped by JMESPath expressions.

What an expression finds passes the same checks as a tray's own facts: a value that cannot be one becomes null with a
finding. A field that is left out, or null, is unknown and no finding.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.collector import Gathering, tray_name
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.expressions import Expression
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import (
    CLUSTER_NAME,
    NODE_NAME,
    is_address,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    DEGRADED,
    HEALTHY,
    UNHEALTHY,
    UNKNOWN,
    ZERO_UUID,
    Address,
    Finding,
    Observation,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import SourceError, SourceResult, check_options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import (
    CLUSTER_UUID,
    GPU_UUID,
    SERIAL,
    TIME,
    VERSION,
    identity,
    sentence,
    text,
    whole,
)

SOURCE = "rest"
OPTIONS = ("url", "file", "trays", "fields", "next", "max_pages", "token_header", "token_prefix", *http.OPTIONS)
LINK = "link"
MAX_LIST = 1024

_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_LINK_NEXT = re.compile(r'<([^<>]{1,4096})>\s*((?:;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^\s;,"]+)\s*)*)')


def discover(options: Any, now: str) -> SourceResult:
    """One observation for each item that the expression `trays` gives, on every page."""
    checked = Options(options, OPTIONS, SOURCE)
    items = Expression(checked.needed("trays", "a JMESPath expression that gives a list"), f"{SOURCE}: trays")
    fields = _fields(checked)
    trays = Gathering(SOURCE, "items")
    for page, where in _pages(checked):
        found = items(page)
        if not isinstance(found, list):
            raise SourceError(f"{SOURCE}: trays gives no list on the page {where}; correct the expression")
        for item in found:
            trays.add(_observation(item, fields, now))
    return trays.result("correct the expression name, or let trays leave such items out")


# ------------------------------------------------------------------------------------------------------------- pages


def _pages(options: Options) -> Iterator[tuple[Any, str]]:
    """(a page's document, its address for sentences)."""
    if ("url" in options) == ("file" in options):
        raise options.wrong("url", "or file must be set, one of the two")
    if "file" in options:
        yield _file(options)
    else:
        yield from _web_pages(options)


def _file(options: Options) -> tuple[Any, str]:
    for key in ("next", "max_pages", "token_header", "token_prefix", *http.OPTIONS):
        if key in options and key != "max_bytes":
            raise options.wrong(key, "belongs to url; leave it out beside file")
    content = options.content("file", http.limits(options)["max_bytes"])
    path = options.path("file") or ""
    try:
        return json.loads(content or b""), path
    except (ValueError, RecursionError):
        raise options.wrong("file", f"{path} is no whole JSON document; write it anew") from None


def _web_pages(options: Options) -> Iterator[tuple[Any, str]]:
    url = http.endpoint(options, "url", "an address, as in https://cmdb.example.org/api/trays")
    header, prefix = _token_form(options)
    follow = options.text("next")
    expression = None if follow in (None, LINK) else Expression(follow, f"{SOURCE}: next")
    most = options.whole("max_pages", 1000, 1, 100_000)
    client = http.Client(SOURCE, http.access(options, header, prefix))
    been: set[str] = set()
    while len(been) < most:
        been.add(url)
        answer = client.get(url)
        page = client.json(answer)
        yield page, http.address(url)
        if follow is None:
            return
        target = expression(page) if expression else _next_link(answer.headers.get_all("Link") or [])
        if target in (None, "", False):
            return
        url = _following(client, url, target)
        if url in been:
            client.fail(url, "is named as the page after itself", "correct next, or the server's paging")
    client.fail(url, f"would be page {most + 1}", "raise max_pages, or ask for larger pages")


def _token_form(options: Options) -> tuple[str, str]:
    """(the header that holds the token, the word before the token)."""
    header = options.text("token_header") or "Authorization"
    if not _HEADER.fullmatch(header):
        raise options.wrong("token_header", "is no header's name; write one as in X-Auth-Token")
    default = "Bearer" if header.lower() == "authorization" else ""
    return header, options.text("token_prefix") or default


def _next_link(headers: list[str]) -> str | None:
    """The target of rel="next" in Link headers (RFC 8288)."""
    for header in headers:
        for match in _LINK_NEXT.finditer(header[:65536]):
            rel = re.search(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]+))', match[2], re.IGNORECASE)
            if rel and "next" in (rel[1] or rel[2] or "").lower().split():
                return match[1]
    return None


def _following(client: http.Client, url: str, target: Any) -> str:
    """The next page's URL: path and query as the server says, on the endpoint that the person wrote.

    A server behind a proxy names pages by the scheme and port that it sees itself, so these stay; another host is an
    error, since it would be sent the credentials.
    """
    if not isinstance(target, str):
        client.fail(url, "names a next page that is no text", "correct next")
    try:
        there, here = urllib.parse.urlsplit(urllib.parse.urljoin(url, target)), urllib.parse.urlsplit(url)
        same = there.hostname == here.hostname and there.scheme in ("http", "https")
    except ValueError:
        same = False
    if not same:
        client.fail(url, "names a next page on another host", "correct next, or write the address that it names in url")
    following = urllib.parse.urlunsplit((here.scheme, here.netloc, there.path, there.query, ""))
    if not http.same_endpoint(url, following):
        client.fail(url, "names a next page that is no usable address", "correct next, or the server's paging")
    return following


# ------------------------------------------------------------------------------------------------------------ fields


def _fields(options: Options) -> dict[str, Expression]:
    where = f"{SOURCE}: fields"
    said = check_options(options.mapping("fields"), ("name", *_CHECKS), where)
    if "name" not in said:
        raise SourceError(f"{where}: name is missing; write the expression that gives a tray's name")
    return {str(key): Expression(value, f"{where}: {key}") for key, value in said.items() if value is not None}


def _observation(item: Any, fields: Mapping[str, Expression], now: str) -> Observation | None:
    """What an item says through the expressions; None if it has no usable name."""
    tray = tray_name(fields["name"](item))
    if tray is None:
        return None
    said: dict[str, Any] = {}
    findings: list[Finding] = []
    for field, expression in fields.items():
        if field == "name":
            continue
        raw = expression(item)
        value = _CHECKS[field](raw) if raw is not None else None
        if value is not None:
            said[field] = value
        elif raw is not None:
            message = f"Source {SOURCE} gives an unusable {field} for tray {tray}; correct it there, or its expression."
            findings.append(finding("unusable_value", message, tray=tray))
    if said.get("problem"):
        return Observation(tray, SOURCE, reachable=False, problem=said["problem"], findings=tuple(findings))
    gpu_uuids = said.get("gpu_uuids", ())
    return Observation(
        tray=tray,
        source=SOURCE,
        observed_at=said.get("observed_at", now),
        identity=_identity(said),
        chassis_serial=said.get("chassis_serial"),
        tray_index=said.get("tray_index"),
        gpu_uuids=gpu_uuids,
        gpu_count=max(len(gpu_uuids), said.get("gpu_count", 0)),
        addresses=said.get("addresses", ()),
        driver_version=said.get("driver_version"),
        health=said.get("health", UNKNOWN),
        findings=tuple(findings),
        slurm_node=said.get("slurm_node"),
        kubernetes_node=said.get("kubernetes_node"),
        ansible_host=said.get("ansible_host"),
        slurm_cluster=said.get("slurm_cluster"),
        kubernetes_cluster=said.get("kubernetes_cluster"),
    )


def _identity(said: Mapping[str, Any]) -> tuple[str, int] | None:
    """The clique by its text form, else by its two parts; the zero UUID names none."""
    if "clique" in said:
        place: tuple[str, int] = said["clique"]
        return place
    uuid, clique_id = said.get("cluster_uuid"), said.get("clique_id")
    return (uuid, clique_id) if uuid and uuid != ZERO_UUID and clique_id is not None else None


def _number(value: Any) -> int | None:
    """A whole number, also as text, as custom fields often hold it."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,10}", value):
        value = int(value)
    return whole(value)


def _serial(value: Any) -> str | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18
    return text(SERIAL)(str(value) if is_number else value)


def _gpu_uuids(value: Any) -> tuple[str, ...] | None:
    """GPU UUIDs in their order; None if one of them is none."""
    if not isinstance(value, list) or len(value) > MAX_LIST:
        return None
    uuids = [text(GPU_UUID)(item) for item in value]
    return None if None in uuids else tuple(dict.fromkeys(uuid for uuid in uuids if uuid))


def _addresses(value: Any) -> tuple[Address, ...] | None:
    """Addresses out of a text, or a list of texts or of objects with address, interface and prefix."""
    rows = value if isinstance(value, list) else [value]
    if len(rows) > MAX_LIST:
        return None
    found = [_address(row) for row in rows if row is not None]
    return None if None in found else tuple(address for address in found if address)


def _address(row: Any) -> Address | None:
    fields = row if isinstance(row, Mapping) else {"address": row}
    said = fields.get("address")
    if not isinstance(said, str):
        return None
    address, _slash, length = said.partition("/")
    prefix = _number(length) if length else _number(fields.get("prefix"))
    if not is_address(address) or (length and prefix is None):
        return None
    return Address(sentence(fields.get("interface")), address, prefix or 0)


def _health(value: Any) -> str | None:
    word = value.lower() if isinstance(value, str) else None
    return word if word in (HEALTHY, DEGRADED, UNHEALTHY, UNKNOWN) else None


def _lower(check: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    return lambda value: check(value.lower() if isinstance(value, str) else value)


def _host(value: Any) -> str | None:
    return str(value) if isinstance(value, str) and is_address(value) else text(NODE_NAME)(value)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "clique": identity,
    "cluster_uuid": _lower(text(CLUSTER_UUID)),
    "clique_id": _number,
    "chassis_serial": _serial,
    "tray_index": _number,
    "gpu_uuids": _gpu_uuids,
    "gpu_count": _number,
    "addresses": _addresses,
    "driver_version": text(VERSION),
    "health": _health,
    "observed_at": text(TIME),
    "problem": lambda value: sentence(value) or None,
    "slurm_node": text(NODE_NAME),
    "kubernetes_node": text(NODE_NAME),
    "ansible_host": _host,
    "slurm_cluster": text(CLUSTER_NAME),
    "kubernetes_cluster": text(CLUSTER_NAME),
}
"""Field -> its check."""
