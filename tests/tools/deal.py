# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pytest plugin: run one share of the tests, dealt out so that each file has some in every share.

`pytest -p deal` with DEAL=0/2 runs the first, third, ... test of each file and DEAL=1/2 the others. A file with fewer
tests than shares, and a story, whose tests are steps on one state, are in every share.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest


def share(files: list[Path | None], number: int, of: int) -> list[int]:
    """The positions that a share has, of the files of tests in their order; None is a test in every share.

    >>> share([Path("a"), Path("a"), Path("a"), Path("b"), None], 1, 2)
    [1, 3, 4]
    """
    seen: defaultdict[Path, int] = defaultdict(int)
    kept = []
    for position, file in enumerate(files):
        if file is None or files.count(file) < of:
            kept.append(position)
            continue
        if seen[file] % of == number:
            kept.append(position)
        seen[file] += 1
    return kept


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Last, so that it deals out what the marks and names of the command line have left.
    number, of = map(int, os.environ["DEAL"].split("/"))
    files = [None if item.get_closest_marker("story") else item.path for item in items]
    kept = set(share(files, number, of))
    config.hook.pytest_deselected(items=[item for position, item in enumerate(items) if position not in kept])
    items[:] = [item for position, item in enumerate(items) if position in kept]
