# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict of one run and its failures: disagreements with layer, cause and remedy from the findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ACTIONS, CATALOGUE


class Failure(TypedDict):
    """One row of the verdict's failures."""

    code: str
    severity: str
    layer: str
    tray: str | None
    clique: str | None
    trays: list[str]
    """All that it is about."""
    message: str
    cause: str
    """Empty where none is known: the message alone says what it is."""
    action: str
    """One of findings.ACTIONS where the code alone does not decide the remediation, else empty."""
    remediation: str


class ComputeDomains(TypedDict):
    """The GPUs that no new ComputeDomain can use. unknown: why numbers are unknown, empty where they are not."""

    unknown: list[str]
    cliques: dict[str, dict[str, Any]]
    """Clique -> the fields of its stranded.CliqueUse."""


class Verdict(TypedDict):
    """The content of the verdict file. The numbers are of trays and cliques of the fabric file."""

    ok: bool
    checked_at: str
    fabric_file: str
    layers: dict[str, str]
    """Layer -> `checked`, or `skipped: ` followed by the reason."""
    trays: int
    queried: int
    answered: int
    cliques: int
    compute_domains: ComputeDomains | None
    slurm_nodes: dict[str, str] | None
    """Tray -> its state in Slurm and the reason; None where no controller answered."""
    failures: list[Failure]


def failure(
    code: str,
    layer: str,
    message: str,
    tray: str | None = None,
    clique: str | None = None,
    *,
    trays: Sequence[str] = (),
    severity: str | None = None,
    cause: str | None = None,
    action: str = "",
) -> Failure:
    """One failure. The code's symptom decides the layer; `layer` applies to one without.

    trays: all trays it is about, where there are several. severity: that of the catalogue by default.
    """
    row = CATALOGUE[code]
    return {
        "code": code,
        "severity": severity or row.severity,
        "layer": row.symptom.layer or layer,
        "tray": tray,
        "clique": clique,
        "trays": list(trays) or ([tray] if tray else []),
        "message": message if message.endswith(".") else f"{message}.",
        "cause": cause or row.cause,
        "action": action,
        "remediation": ACTIONS.get(action) or row.command or row.remedy,
    }
