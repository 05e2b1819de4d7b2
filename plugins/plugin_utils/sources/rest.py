# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source rest: trays from any JSON, at a URL or in a file, mapped by JMESPath expressions (see fields)."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.doc_fragments import source_rest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import TooManyValuesError, json_document
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, SourceError, documented
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.collector import Collector
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.expressions import Expression
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.fields import CHECKS, observation

SOURCE = "rest"
OPTIONS = documented(source_rest.ModuleDocFragment.DOCUMENTATION, SOURCE)
LINK = "link"

_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_LINK_NEXT = re.compile(r'<([^<>]{1,4096})>\s*((?:;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^\s;,"]+)\s*)*)')


def discover(options: Any, now: str) -> SourceResult:
    """Return one observation for each item that the expression `trays` selects, on all pages."""
    checked = Options(options, OPTIONS, SOURCE)
    items = Expression(checked.needed("trays", "a JMESPath expression that returns a list"), f"{SOURCE}: trays")
    fields = _fields(checked)
    trays = Collector(SOURCE, "items")
    if ("url" in checked) == ("file" in checked):
        raise checked.wrong("url", "or file must be set, exactly one of them")
    for page, where in [_file(checked)] if "file" in checked else _web_pages(checked):
        found = items(page)
        if not isinstance(found, list):
            raise SourceError(f"{SOURCE}: trays returns no list on the page {where}; correct the expression")
        for item in found:
            trays.add(observation(SOURCE, item, fields, now))
    return trays.result("correct the expression name, or exclude such items in trays")


# ------------------------------------------------------------------------------------------------------------- pages


def _file(options: Options) -> tuple[Any, str]:
    """(document of a page, its address for messages), as _web_pages() yields them."""
    of_url = {"next", "max_pages", "token_header", "token_prefix", *http.OPTIONS} - {"max_bytes"}
    options.refuse(sorted(of_url), "applies to url only; leave it out with file")
    limit = http.limits(options)["max_bytes"]
    content = options.content("file", limit)
    path = options.path("file") or ""
    try:
        return json_document(content or b"", limit), path
    except TooManyValuesError as error:
        raise options.wrong("file", f"{path} {error}; split it, or raise max_bytes") from None
    except (ValueError, RecursionError):
        raise options.wrong("file", f"{path} is not a complete JSON document; write it again") from None


def _web_pages(options: Options) -> Iterator[tuple[Any, str]]:
    config = http.client_config(
        options, "url", "an address, as in https://cmdb.example.org/api/trays", *_token_form(options)
    )
    follow = options.text("next")
    expression = None if follow in (None, LINK) else Expression(follow, f"{SOURCE}: next")
    limit = options.whole("max_pages", 1000, 1, 100_000)
    client, url = http.Client(SOURCE, config), config.url
    visited: set[str] = set()
    while len(visited) < limit:
        visited.add(url)
        answer = client.get(url)
        page = client.json(answer)
        yield page, http.address(url)
        if follow is None:
            return
        target = expression(page) if expression else _next_link(answer.headers.getlist("Link"))
        if target in (None, "", False):
            return
        url = _following(client, url, target)
        if url in visited:
            client.fail(url, "names itself as its next page", "correct next, or the server's paging")
    client.fail(url, f"is one page more than max_pages, {limit}", "raise max_pages, or request larger pages")


def _token_form(options: Options) -> tuple[str, str]:
    """The header of the token, and the prefix of the token."""
    header = options.text("token_header") or "Authorization"
    if not _HEADER.fullmatch(header):
        raise options.wrong("token_header", "is not a header name; write one such as X-Auth-Token")
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
    """The URL of the next page: path and query from the server, scheme and port from the option url.

    A server behind a proxy returns its own scheme and port, which are ignored. Another host is an error, since it would
    receive the credentials.
    """
    if not isinstance(target, str):
        client.fail(url, "returns a next page that is not a text", "correct next")
    try:
        there, here = urllib.parse.urlsplit(urllib.parse.urljoin(url, target)), urllib.parse.urlsplit(url)
        same = there.hostname == here.hostname and there.scheme in ("http", "https")
    except ValueError:
        same = False
    if not same:
        client.fail(url, "returns a next page on another host", "correct next, or use that host in url")
    return urllib.parse.urlunsplit((here.scheme, here.netloc, there.path, there.query, ""))


# ------------------------------------------------------------------------------------------------------------ fields


def _fields(options: Options) -> dict[str, Expression]:
    fields = Options(options.mapping("fields"), ("name", *CHECKS), f"{SOURCE}: fields")
    if "name" not in fields:
        raise fields.wrong("name", "is missing; write the expression for the name of a tray")
    return {key: Expression(fields.given(key), f"{fields.name}: {key}") for key in ("name", *CHECKS) if key in fields}
