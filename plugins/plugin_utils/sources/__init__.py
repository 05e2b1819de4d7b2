# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the inventory's knowledge comes from: the fabric file, and live sources that observe trays.

A live source is one module of this package with one row in LIVE, and

    discover(options: Mapping[str, Any], now: str) -> SourceResult

options is the inventory option of the source's own name, unchecked; now is UTC as in 2026-11-21T05:00:00Z. It gives one
observation for each tray that it was asked for, also for those that gave no answer, and findings about the source as a
whole; a finding about one tray stands in its observation. It raises SourceError, or another NvlinkError, whose sentence
starts with the option's name, for what a person wrote wrongly.

A source in ASK_TRAYS, which goes to the trays themselves, is also told which trays the fabric file knows, and whom to
tell how far it is:

    discover(options, now, known: Mapping[str, str], voice: Reporter)    known: tray -> the address at which ssh reaches it
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding, Observation

FABRIC_FILE = "fabric_file"
LIVE: tuple[str, ...] = ("simulation", "ssh", "kubernetes", "topograph", "rest", "slurm")
ASK_TRAYS: tuple[str, ...] = ("ssh",)
# Sources that see no tray themselves and only add to what others say of it.
HINTS: tuple[str, ...] = ("slurm",)
KNOWN: tuple[str, ...] = (FABRIC_FILE, *LIVE)


class Reporter(Protocol):
    """Who hears how far a source is, and which trays are silent; Ansible's Display is one."""

    def v(self, msg: str) -> None: ...

    def warning(self, msg: str) -> None: ...


class Silent:
    """Nobody hears it."""

    def v(self, msg: str) -> None:
        """Keep it to oneself."""

    def warning(self, msg: str) -> None:
        """Keep it to oneself."""


@dataclass(frozen=True)
class SourceResult:
    """What one source says: of trays, and in findings of itself as a whole, which no tray can hold."""

    observations: list[Observation]
    findings: list[Finding] = field(default_factory=list)
    # Name and position of every block of a running Slurm, also of those without a node.
    blocks: tuple[tuple[str, int], ...] = ()


class SourceError(NvlinkError):
    """An option of a source, or the list of sources, is wrong."""


def check_names(names: Any) -> list[str]:
    """The names of sources in their order of trust; SourceError if one is unknown, named twice, or there is none."""
    if not isinstance(names, list) or not names:
        raise SourceError(f"sources: must be a list of one or more of {', '.join(KNOWN)}")
    for name in names:
        if name not in KNOWN:
            raise SourceError(f"sources: {shown(name)} is not a known source{nearest(name, KNOWN)}")
        if names.count(name) > 1:
            raise SourceError(f"sources: {name} is named twice; name it once")
    return names


def check_options(options: Any, known: Sequence[str], source: str) -> Mapping[str, Any]:
    """A source's own option as a mapping with no unknown key; None, which is the option left out, is an empty one."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise SourceError(f"{source}: must be a mapping of options, not {shown(options)}")
    for key in options:
        if key not in known:
            raise SourceError(f"{source}: {shown(key)} is not a known option{nearest(key, known)}")
    return options


def observe(
    source: str, options: Any, now: str, known: Mapping[str, str] | None = None, voice: Reporter | None = None
) -> SourceResult:
    """What one live source says; known: tray -> ssh address, of those that the fabric file holds."""
    module = importlib.import_module(f"{__name__}.{source}")
    more = (known or {}, voice or Silent()) if source in ASK_TRAYS else ()
    told: SourceResult = module.discover(options, now, *more)
    return told


def nearest(word: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: the one that was probably meant, else all that there are."""
    import difflib  # only ever needed when the run has failed

    words = list(known)
    close = difflib.get_close_matches(str(word), words, n=1)
    return f"; did you mean {close[0]}?" if close else f"; use one of {', '.join(words)}"


def shown(value: object) -> str:
    """A value fit for a sentence: one line, not endless."""
    # str() first: Ansible's own strings carry tags, which are no part of the value.
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
