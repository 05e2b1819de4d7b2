# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pytest plugin: repeat the tests that failed in the last run, each step of a story with the steps before it.

`pytest -p second_try` is pytest's own --last-failed for independent tests. Where a module has the mark
`story("fixture")`, its tests are steps on the state of that fixture, so a step is repeated after those before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    assert config.cache is not None
    failed = set(config.cache.get("cache/lastfailed", {}))
    wanted = {item for item in items if item.nodeid in failed or item.nodeid.partition("::")[0] in failed}
    repeated = [
        item for position, item in enumerate(items) if item in wanted or _leads_to(item, items[position:], wanted)
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in repeated])
    items[:] = repeated


def _leads_to(item: pytest.Item, later: Sequence[pytest.Item], wanted: set[pytest.Item]) -> bool:
    story = _story(item)
    return story is not None and any(_story(other) == story for other in later if other in wanted)


def _story(item: pytest.Item) -> tuple[object, ...] | None:
    """The module and, if there is one, the parameter of the fixture that the steps share; None outside a story."""
    mark = item.get_closest_marker("story")
    if mark is None:
        return None
    call = getattr(item, "callspec", None)
    return item.path, call.params.get(mark.args[0]) if call else None
