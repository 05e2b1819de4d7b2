# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric file: discover, accept, render, report, and the inventory of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import Mistake

DISCOVER = "rackscale.nvlink.discover -e fabric_hosts=nvlink"
FIRST = f"{DISCOVER} -e fabric_file={{site}}/first.json"
ACCEPT = "rackscale.nvlink.accept"
REPORT = "rackscale.nvlink.render --tags report"
WRITES = ("fabric.state.json", "fabric.proposed.json", "fabric.proposed.md")
ALL = "4 trays (r[01-02]t[01-02])"
AGAIN = "; correct this and discover again: no place has changed"
NOWHERE = "connect to host: No route to host"


def _host(name: str, **variables: Any) -> Callable[[Path], object]:
    def write(site: Path) -> None:
        (site / "host_vars").mkdir()
        (site / "host_vars" / f"{name}.json").write_text(json.dumps(variables))

    return write


def _renamed(site: Path) -> None:
    (site / "cluster.nvlink.yml").rename(site / "cluster.yml")


MISTAKES = [
    # Nobody answers, or too few.
    Mistake(DISCOVER, f"no tray answered: {ALL}: {NOWHERE}{AGAIN}", writes=WRITES[:1]),
    Mistake(
        f"{FIRST} -e fabric_min_answer=100",
        "3 of 4 trays answered, and min_answer is 100 percent: 1 tray (r01t01): The module interpreter "
        f"'/usr/bin/python9' was not found{AGAIN}",
        prepare=_host("r01t01", ansible_python_interpreter="/usr/bin/python9"),
        answering=True,
        lines=80,
    ),
    # One of them.
    Mistake(
        DISCOVER,
        "stale: 1 tray (r01t01): The module interpreter '/usr/bin/python9' was not found",
        status=0,
        prepare=_host("r01t01", ansible_python_interpreter="/usr/bin/python9"),
        answering=True,
        writes=WRITES,
        lines=80,
    ),
    Mistake(
        f"{FIRST} --check",
        "check mode writes no proposal; run discover without --check to write one",
        status=0,
        answering=True,
        long=True,
    ),
    Mistake(ACCEPT, "fabric.proposed.json: there is no proposal; run discover first"),
    # A file of the inventory that has not the usual name is read too.
    Mistake(
        REPORT,
        "4 trays in 2 cliques of 2 NVLink domains",
        status=0,
        prepare=_renamed,
        inventory=("cluster.yml", "hosts.yml"),
        long=True,
    ),
]
