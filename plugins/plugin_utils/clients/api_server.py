# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of a Kubernetes API server, page by page."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, mapped

PAGE = 500


class ApiServer(http.Client):
    """A client of one API server."""

    def found(self, path: str, accept: str = http.JSON, empty: Collection[int] = (403, 404)) -> tuple[int, Object]:
        """(status, the object at a path), an empty one where it is missing (404) or may not be read (403)."""
        answer = self.get(self.url + path, empty, accept)
        # Such an answer may be no JSON.
        return answer.status, mapped(self.json(answer)) if answer.status == 200 else {}

    def listed(
        self,
        path: str,
        query: Mapping[str, str | int] = http.NONE,
        accept: str = http.JSON,
        keep: Callable[[Any], list[Any]] = lambda item: [item],
    ) -> list[Any]:
        """All objects of a list; keep: what of an object is returned, since thousands of them fill the memory.

        An API server keeps the continue token of a list for at least five minutes; one that expires is an error.
        """
        found: list[Any] = []
        rest: dict[str, str] = {}
        while True:
            parameters = urllib.parse.urlencode({"limit": PAGE, **query, **rest})
            page = mapped(self.json(self.get(f"{self.url}{path}?{parameters}", accept=accept)))
            token = mapped(page.get("metadata")).get("continue") or None
            # Null is what Go writes for no item, as of metadata alone.
            items = [] if "items" in page and page["items"] is None else page.get("items")
            if not isinstance(items, list) or (token and token == rest.get("continue")):
                what = "returned no list of objects, or the same page again"
                self.fail(self.url + path, what, "set the address of a Kubernetes API server")
            found += [kept for item in items for kept in keep(item)]
            if token is None:
                return found
            rest = {"continue": token}
