# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of a Kubernetes API server, page by page."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import mapped

PAGE = 500


class ApiServer(http.Client):
    """A client of one API server."""

    def listed(
        self,
        path: str,
        query: Mapping[str, Any] = http.NONE,
        accept: str = http.JSON,
        keep: Callable[[Any], list[Any]] = lambda item: [item],
    ) -> list[Any]:
        """All objects of a list; keep: what of an object is returned, since thousands of them fill the memory.

        A list whose continue token expires is read again from its start, once: two parts of different lists could lack
        objects that changed meanwhile.
        """
        url = self.url + path
        for _attempt in (1, 2):
            found: list[Any] = []
            rest: dict[str, Any] = {}
            while True:
                parameters = urllib.parse.urlencode({"limit": PAGE, **query, **rest})
                answer = self.get(f"{url}?{parameters}", (410,), accept)
                if answer.status == 410:
                    break
                page = mapped(self.json(answer))
                token = mapped(page.get("metadata")).get("continue") or None
                # Null is what Go writes for no item, as of metadata alone.
                items = [] if "items" in page and page["items"] is None else page.get("items")
                if not isinstance(items, list) or (token and token == rest.get("continue")):
                    what = "returned no list of objects, or the same page again"
                    self.fail(url, what, "set the address of a Kubernetes API server")
                found += [kept for item in items for kept in keep(item)]
                if token is None:
                    return found
                rest = {"continue": token}
        self.fail(url, "expires its list while it is read (HTTP 410)", "run it again, or use larger pages")
