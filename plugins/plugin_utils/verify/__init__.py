# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare hardware, fabric file, Slurm, IMEX and Kubernetes: evidence in, a verdict out. Pure functions.

Each layer has one module with a `check`. correlation.py decides which failure is the root cause of which, failure.py
holds the likely cause and the command for each code. docs/verify.md describes the verdict.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import (
    channels,
    correlation,
    failure,
    hardware,
    imex,
    kubernetes,
    slurm,
    versions,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.evidence import Evidence

Check = Callable[[Evidence], Iterator[failure.Failure]]

CHECKS: tuple[tuple[str, Check], ...] = (
    (failure.FABRIC_FILE, hardware.check),
    (failure.DRIVER, versions.check),
    (failure.CHANNELS, channels.check),
    (failure.IMEX, imex.check),
    (failure.SLURM, slurm.check),
    (failure.TIERS, slurm.check_tiers),
    (failure.KUBERNETES, kubernetes.check),
)
"""A layer and its check; that of the fabric file is that of the hardware too."""

CHECKED = "checked"
_ON_TRAYS = (failure.HARDWARE, failure.DRIVER, failure.CHANNELS, failure.IMEX)


def layers(seen: Evidence) -> dict[str, str]:
    """Layer -> "checked", or "skipped: " with the reason."""
    found = dict.fromkeys(failure.LAYERS, CHECKED)
    if seen.quick:
        found.update(dict.fromkeys(_ON_TRAYS, "skipped: no tray was asked (--tags quick)"))
    elif not seen.trays and not seen.silent:
        found.update(dict.fromkeys(_ON_TRAYS, "skipped: this run has asked no tray"))
    elif not imex.is_there(seen):
        found[failure.IMEX] = "skipped: no tray that answered has nvidia-imex"
    if seen.slurm is None or not seen.slurm:
        found[failure.SLURM] = found[failure.TIERS] = "skipped: no Slurm controller is named"
    elif all(controller.tiers is None for controller in seen.slurm):
        found[failure.TIERS] = "skipped: slurm_tiers is not set"
    if seen.kubernetes is None and not seen.kubernetes_problem:
        found[failure.KUBERNETES] = "skipped: no kubeconfig is named"
    return found


def verify(seen: Evidence, checked_at: str) -> dict[str, Any]:
    """The verdict: the document of verdict.json. checked_at: RFC 3339, in UTC."""
    checked = layers(seen)
    rows = [row for layer, check in CHECKS if checked[layer] == CHECKED for row in check(seen)]
    failures = [_told(row, seen) for row in correlation.fold(rows)]
    return {
        "ok": not any(row["severity"] == ERROR for row in failures),
        "checked_at": checked_at,
        "fabric_file": seen.fabric_file,
        "layers": checked,
        "trays": len(seen.fabric.trays),
        "asked": sum(1 for tray in seen.fabric.trays if tray in seen.trays or tray in seen.silent),
        "cliques": sum(1 for members in seen.fabric.members.values() if members),
        "failures": failures,
    }


def _told(row: failure.Failure, seen: Evidence) -> failure.Failure:
    """The failure with the names in its command."""
    told = copy.copy(row)
    names = {"{tray}": ",".join(row["trays"][:5]), "{clique}": row["clique"] or "", "{file}": seen.fabric_file}
    for word, name in names.items():
        told["mend"] = told["mend"].replace(word, name)
    return told
