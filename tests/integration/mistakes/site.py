# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook site: its trays, its fabric file, its phases; tests/unit/plugins/plugin_utils/rollout has more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import Mistake

HOSTS = ("hosts.yml",)


def hosts(text: str) -> Callable[[Path], object]:
    """Another hosts.yml."""
    return lambda site: (site / "hosts.yml").write_text(text)


def variables(group: str, **given: Any) -> Callable[[Path], object]:
    """More variables of a group; None removes one."""

    def write(site: Path) -> None:
        path = site / "group_vars" / f"{group}.json"
        merged = {**(json.loads(path.read_text()) if path.exists() else {}), **given}
        path.write_text(json.dumps({name: value for name, value in merged.items() if value is not None}))

    return write


def both(*steps: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda site: [step(site) for step in steps]


SITE = "rackscale.nvlink.site"
MISTAKES = [
    Mistake(
        f"{SITE} --skip-tags discover,slurm,imex,kubernetes,verify,report",
        "--tags, --skip-tags: leave no phase to run; run one of discover, slurm, verify, report.",
    ),
    Mistake(
        SITE,
        "site_tray_hosts: is not set, and the groups trays and nvlink have no host; put the trays into the group trays,"
        " or set site_tray_hosts to their pattern.",
        prepare=hosts("compute: {hosts: {new: {}}}\nlogin: {hosts: {front: {}}}\n"),
        inventory=HOSTS,
    ),
    Mistake(
        f"{SITE} --check",
        "No fabric file is set: add -e fabric_file=PATH, the file that the playbook discover writes.",
        prepare=both(variables("all", fabric_file=None), hosts("trays: {hosts: {new: {}}}\n")),
        # Next to the only source, fabric.json would be found.
        inventory=HOSTS * 2,
        long=True,
    ),
]
