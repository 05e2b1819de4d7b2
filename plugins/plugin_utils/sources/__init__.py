# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of the inventory: the fabric file, and live sources that observe trays.

A live source is one module of this package with one row in LIVE, and

    discover(options: Mapping[str, Any], now: str) -> SourceResult

options: the inventory option with the name of the source, unchecked. now: UTC as in 2026-11-21T05:00:00Z. It returns
one observation for each tray that it is to observe, also for those without an answer, and findings about the source as
a whole; a finding about one tray is part of its observation. An invalid option raises SourceError, or another
NvlinkError, whose message starts with the option's name.

A source in TRAY_SOURCES connects to the trays themselves. It also receives the trays of the fabric file and a reporter
of its progress:

    discover(options, now, known: Mapping[str, str], reporter: Reporter)        known: tray -> its ssh address
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import merging
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import OutageError, SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

FABRIC_FILE = "fabric_file"
LIVE: tuple[str, ...] = ("simulation", "ssh", "kubernetes", "topograph", "rest", "slurm")
TRAY_SOURCES: tuple[str, ...] = ("ssh",)
# Sources that observe no tray themselves and only add to the observations of others.
HINTS: tuple[str, ...] = ("slurm",)
# A source that adds findings about what others observe, with hosts of the inventory: of the module fabric_file alone.
EVIDENCE = "nvue"
KNOWN: tuple[str, ...] = (FABRIC_FILE, *LIVE)


class Reporter(Protocol):
    """Receives the progress of a source and the trays without an answer; Ansible's Display is one."""

    def v(self, msg: str) -> None: ...

    def warning(self, msg: str) -> None: ...


def check_names(names: Any, known: Sequence[str] = KNOWN) -> list[str]:
    """Check the names of sources in their order of trust; SourceError for an unknown name, a duplicate, or no name."""
    if not isinstance(names, list) or not names:
        raise SourceError(f"sources: must be a list of one or more of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise SourceError(f"sources: {shown(name)} is not a known source{nearest(name, known)}")
        if names.count(name) > 1:
            raise SourceError(f"sources: {name} is listed twice; list it once")
    return names


def query(source: str, options: Any, now: str, known: Mapping[str, str], reporter: Reporter) -> merging.Answer:
    """The answer of one live source; an outage becomes an answer with its failure, a wrong option is raised.

    known: tray -> ssh address of the trays in the fabric file.
    """
    module = importlib.import_module(f"{__name__}.{source}")
    of_trays, hints = source in TRAY_SOURCES, source in HINTS
    try:
        result: SourceResult = module.discover(options, now, *((known, reporter) if of_trays else ()))
    except OutageError as error:
        return merging.Answer(source, failure=str(error).rstrip("."), hints=hints)
    targets = None if of_trays else known
    return merging.Answer(source, result.observations, targets, "", True, hints, result.findings, result.blocks)
