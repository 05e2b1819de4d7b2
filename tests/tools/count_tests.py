# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pytest plugin: keep the counts "DONE TOTAL FAILED", and a line for each failed test, in the file of COUNT_FILE.

gates.py prints from it how far the tests are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest


class Count:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.total = 0
        self.done: set[str] = set()
        self.failed: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.total = max(self.total, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self.total = len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        if report.when == "teardown":
            self.done.add(report.nodeid)
        counts = f"{len(self.done)} {self.total} {len(self.failed)}"
        self.file.write_text("\n".join([counts, *sorted(self.failed)]))


def pytest_configure(config: pytest.Config) -> None:
    file = os.environ.get("COUNT_FILE")
    if file and not hasattr(config, "workerinput"):  # pytest-xdist's workers report to the process that counts
        config.pluginmanager.register(Count(Path(file)))
