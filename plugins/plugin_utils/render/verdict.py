# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read verdict.json of the playbook verify for the report and the metrics. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import DEGRADED, UNHEALTHY, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_key
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import (
    CHECKED,
    ComputeDomains,
    Finding,
    Verdict,
    rank,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import (
    ERROR,
    HARDWARE,
    INFO,
    SEVERITIES,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import RenderError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list

_TEXTS = ("code", "severity", "layer", "tray", "clique", "message", "cause", "remediation")


@dataclass(frozen=True)
class Layer:
    """One layer of the cluster: whether it was checked, otherwise why not, and its failures by severity."""

    name: str
    checked: bool
    why_not: str
    failures: Mapping[str, int]

    @property
    def ok(self) -> bool:
        """Whether the layer was checked and has no failure of severity error."""
        return self.checked and not self.failures.get("error")


def verdict(document: Any, path: str) -> Verdict:
    """A verdict that was read from ``path``, its failures worst first; RenderError for any other content, or none."""
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("ok"), bool)
        or not isinstance(failures := document.get("failures"), list)
        or not all(isinstance(row, dict) for row in failures)
        or not isinstance(document.get("layers", {}), dict)
        or not isinstance(nodes := document.get("slurm_nodes"), (dict, NoneType))
    ):
        raise RenderError(f"{path}: has no verdict; give the file that the playbook rackscale.nvlink.verify wrote.")
    failures = sorted(map(_failure, failures), key=_worst_first)
    words = {name: str(word) for name, word in document.get("layers", {}).items()}
    # A failure of a layer that the verdict does not list is shown too.
    words.update({row["layer"]: CHECKED for row in failures if row["layer"] not in words})
    found = {
        "checked_at": str(document.get("checked_at") or ""),
        "layers": words,
        "compute_domains": _compute_domains(document.get("compute_domains"), path),
        "slurm_nodes": None if nodes is None else {str(tray): str(shown) for tray, shown in nodes.items()},
        "failures": failures,
    }
    return cast("Verdict", {**document, **found})


def worst(failures: Iterable[Finding]) -> dict[str, Finding]:
    """Tray -> the worst failure about it; without notes."""
    found: dict[str, Finding] = {}
    for row in sorted(failures, key=lambda one: rank(one["severity"])):
        for tray in row["trays"] if row["severity"] != INFO else ():
            found.setdefault(tray, row)
    return found


def state_of(failure: Finding) -> str:
    """The health of a tray by its worst failure."""
    return UNHEALTHY if failure["severity"] == ERROR else DEGRADED


def applied(state: State, found: Verdict | None) -> State:
    """The state, with the health of the trays whose hardware has a failure in a verdict that is newer than it."""
    if found is None:
        return state
    trays = dict(state.trays)
    failures = [row for row in found["failures"] if row["layer"] == HARDWARE]
    for tray, row in worst(failures).items():
        now = trays.get(tray)
        if now and now["health"] != UNHEALTHY and (now["observed_at"] or "") < found["checked_at"]:
            trays[tray] = {**now, "health": state_of(row)}
    return replace(state, trays=trays)


def layers(found: Verdict) -> list[Layer]:
    """The layers of a verdict in their order."""
    return [_layer(name, word, found["failures"]) for name, word in found["layers"].items()]


def uses(found: Verdict | None) -> dict[str, dict[str, Any]]:
    """Clique -> the fields of its stranded.CliqueUse; empty without a cluster that has ComputeDomains."""
    return ((found and found["compute_domains"]) or {"cliques": {}})["cliques"]


def stranded_gpus(found: Verdict | None) -> int | None:
    """The stranded GPUs of all cliques; None where one of them is unknown."""
    numbers = [use["stranded_gpus"] for use in uses(found).values()]
    return None if None in numbers else sum(numbers)


def _compute_domains(document: Any, path: str) -> ComputeDomains | None:
    if document is None:
        return None
    try:
        cliques = {str(name): _use(row) for name, row in document["cliques"].items()}
        return {"unknown": [str(row) for row in document["unknown"]], "cliques": cliques}
    except (AttributeError, KeyError, TypeError, ValueError):
        message = "compute_domains is not as verify writes it; run rackscale.nvlink.verify again."
        raise RenderError(f"{path}: {message}") from None


def _use(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stranded.CliqueUse."""
    return {
        "nodes": int(row["nodes"]),
        "free_nodes": int(row["free_nodes"]),
        "stranded_gpus": None if row["stranded_gpus"] is None else int(row["stranded_gpus"]),
        "blocked_by": {str(domain): [str(node) for node in nodes] for domain, nodes in row["blocked_by"].items()},
    }


def _failure(row: Mapping[str, Any]) -> Finding:
    texts = {key: str(row.get(key) or "") for key in _TEXTS}
    return cast("Finding", {**texts, "trays": [*map(str, as_list(row.get("trays")))]})


def _worst_first(row: Finding) -> tuple[Any, ...]:
    clique, tray = (natural_key(row[key] or "") for key in ("clique", "tray"))
    return rank(row["severity"]), row["layer"], clique, tray, row["code"]


def _layer(name: str, word: str, failures: Iterable[Finding]) -> Layer:
    own = [row["severity"] for row in failures if row["layer"] == name]
    return Layer(
        name=name,
        checked=word == CHECKED,
        why_not="" if word == CHECKED else word.removeprefix("skipped:").strip(),
        failures={severity: own.count(severity) for severity in SEVERITIES if severity in own},
    )
