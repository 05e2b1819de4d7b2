# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read verdict.json of the playbook verify for the report and the metrics. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import view
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.tree import RenderError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list

CHECKED = "checked"
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


@dataclass(frozen=True)
class Verdict:
    """A verdict: its layers in their order, its failures as maps of strings, worst first.

    uses: clique -> the fields of its stranded.CliqueUse,
    None without a cluster that has ComputeDomains. unknown: why numbers of uses are unknown, as sentences. nodes: tray
    -> its state in Slurm, None where it did not answer, or verify was of 1.0.
    """

    ok: bool
    checked_at: str
    layers: tuple[Layer, ...]
    failures: tuple[Mapping[str, Any], ...]
    uses: Mapping[str, Mapping[str, Any]] | None = None
    unknown: tuple[str, ...] = ()
    nodes: Mapping[str, str] | None = None

    @property
    def stranded_gpus(self) -> int | None:
        """The stranded GPUs of all cliques; None where one of them is unknown."""
        numbers = [use["stranded_gpus"] for use in (self.uses or {}).values()]
        return None if None in numbers else sum(filter(None, numbers))


def verdict(document: Any, path: str) -> Verdict:
    """Validate and summarize a verdict that was read from ``path``; RenderError for any other file, or None."""
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("ok"), bool)
        or not isinstance(document.get("failures"), list)
        or not isinstance(document.get("layers", {}), dict)
        or not isinstance(nodes := document.get("slurm_nodes"), (dict, NoneType))
    ):
        raise RenderError(f"{path}: has no verdict; give the file that the playbook rackscale.nvlink.verify wrote.")
    if not all(isinstance(row, dict) for row in document["failures"]):
        raise RenderError(f"{path}: failures has an entry that is no failure; run rackscale.nvlink.verify again.")
    uses, unknown = _uses(document.get("compute_domains"), path)
    failures = sorted((_failure(row) for row in document["failures"]), key=_worst_first)
    words = {name: str(word) for name, word in document.get("layers", {}).items()}
    # A failure of a layer that the verdict does not list is shown too.
    words.update({row["layer"]: CHECKED for row in failures if row["layer"] not in words})
    return Verdict(
        ok=document["ok"],
        checked_at=str(document.get("checked_at") or ""),
        layers=tuple(_layer(name, word, failures) for name, word in words.items()),
        failures=tuple(failures),
        uses=uses,
        unknown=unknown,
        nodes=None if nodes is None else {str(tray): str(shown) for tray, shown in nodes.items()},
    )


def _uses(document: Any, path: str) -> tuple[dict[str, Mapping[str, Any]] | None, tuple[str, ...]]:
    """(the uses of cliques, why numbers are unknown) of compute_domains in a verdict."""
    if document is None:
        return None, ()
    try:
        uses = {str(name): _use(row) for name, row in document["cliques"].items()}
        return uses, tuple(str(row) for row in document["unknown"])
    except (AttributeError, KeyError, TypeError, ValueError):
        message = "compute_domains is not as verify writes it; run rackscale.nvlink.verify again."
        raise RenderError(f"{path}: {message}") from None


def _use(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a stranded.CliqueUse."""
    return {
        "nodes": int(row["nodes"]),
        "free_nodes": int(row["free_nodes"]),
        "stranded_gpus": None if row["stranded_gpus"] is None else int(row["stranded_gpus"]),
        "blocked_by": {str(domain): [str(node) for node in nodes] for domain, nodes in row["blocked_by"].items()},
    }


def _failure(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: str(row.get(key) or "") for key in _TEXTS}, "trays": [*map(str, as_list(row.get("trays")))]}


def _worst_first(row: Mapping[str, str]) -> tuple[Any, ...]:
    clique, tray = (view.model.natural_key(row[key]) for key in ("clique", "tray"))
    return view.severity_rank(row["severity"]), row["layer"], clique, tray, row["code"]


def _layer(name: str, word: str, failures: list[dict[str, str]]) -> Layer:
    own = [row["severity"] for row in failures if row["layer"] == name]
    return Layer(
        name=name,
        checked=word == CHECKED,
        why_not="" if word == CHECKED else word.removeprefix("skipped:").strip(),
        failures={severity: own.count(severity) for severity in view.SEVERITIES if severity in own},
    )
