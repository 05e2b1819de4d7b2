# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one fabric file changes of another, computed from the two alone, every field. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Change, Fabric, State, Tray
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped

# Kind of a change -> the fields of a tray. Those of the first three are one change, of its place or hardware.
_FIELDS: dict[str, tuple[str, ...]] = {
    "gpus": ("gpu_uuids",),
    "slot": ("tray_index",),
    "address": ("imex_address",),
    "name": ("slurm_node", "kubernetes_node", "ansible_host"),
    "cluster": ("slurm_cluster", "kubernetes_cluster"),
    "block": ("block",),
}
_OF_PLACE = ("gpus", "slot", "address")


def tray_changes(before: Fabric, after: Fabric) -> list[Change]:
    """The changes of the trays, in natural order of their names."""
    differing = (name for name in {*before.trays, *after.trays} if before.trays.get(name) != after.trays.get(name))
    return [
        row
        for name in natural_sorted(differing)
        for row in _of_tray(name, before.trays.get(name), after.trays.get(name))
    ]


def _of_tray(name: str, old: Tray | None, new: Tray | None) -> Iterator[Change]:
    if old is None or new is None:
        # A new tray has its own name in Slurm and Kubernetes, and no more, unless the site sets it. Its address, in
        # which each differs, is a line of structure_diff(), so that trays that are placed alike can share a row.
        usual = {"slurm_node": name, "kubernetes_node": name, "ansible_host": new and new.get("ansible_host")}
        extra = _steps((*_FIELDS["name"], *_FIELDS["cluster"]), usual, new) if new else []
        why = "; ".join([new["why"], *extra]) if new else "removed"
        kind = "placed" if new else "removed"
        yield {"tray": name, "from": old and old["clique"], "to": new and new["clique"], "kind": kind, "why": why}
        return
    steps = {kind: _steps(keys, old, new) for kind, keys in _FIELDS.items()}
    is_moved = old["clique"] != new["clique"]
    is_replaced = bool(old["gpu_uuids"]) and set(old["gpu_uuids"]).isdisjoint(new["gpu_uuids"])
    of_place = [text for kind in _OF_PLACE for text in steps[kind]]
    if new["why"] != old["why"]:
        of_place.insert(0, new["why"] or "no reason")
    first = (
        "moved" if is_moved else "replaced" if is_replaced else next((row for row in _OF_PLACE if steps[row]), "why")
    )
    rows = [(first, of_place)] if is_moved or of_place else []
    for kind, texts in [*rows, *((row, steps[row]) for row in ("name", "cluster", "block") if steps[row])]:
        yield {"tray": name, "from": old["clique"], "to": new["clique"], "kind": kind, "why": "; ".join(texts)}


def _steps(keys: Iterable[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [_step(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)]


def _step(key: str, before: Any, after: Any) -> str:
    if key == "gpu_uuids":
        added, gone = set(after) - set(before), set(before) - set(after)
        lost = f", {len(gone)} removed" if len(gone) > len(added) else ""
        return f"{len(added)} of {count(len(after), 'GPU')} new{lost}"
    return f"{key} {_shown(before)} -> {_shown(after)}"


def diff_text(before: Fabric, after: Fabric) -> list[str]:
    """The differences as lines: each changed tray and why, then all that changes of the rest."""
    return [*map(_tray_line, tray_changes(before, after)), *structure_diff(before, after)]


def structure_diff(before: Fabric, after: Fabric) -> list[str]:
    """The differences of domains, cliques, blocks, clusters and overrides, and the addresses of new trays, as lines."""
    both = before, after
    lines = list(_rows("domain", before.domains, after.domains))
    lines.extend(_rows("clique", before.cliques, after.cliques))
    lines.extend(_rows("reserved block", _positions(before, None), _positions(after, None)))
    for name in natural_sorted({*before.slurm_clusters, *after.slurm_clusters}):
        old, new = (fabric.clusters.get("slurm", {}).get(name, {"blocks": {}})["blocks"] for fabric in both)
        lines.extend(_rows(f"Slurm cluster {name}, block of", old, new))
        kept = f"Slurm cluster {name}, reserved block"
        lines.extend(_rows(kept, _positions(before, name), _positions(after, name)))
    for kind in ("slurm", "kubernetes"):
        names = ({name: dict[str, Any]() for name in mapped(fabric.clusters.get(kind))} for fabric in both)
        lines.extend(_rows(f"{kind} cluster", *names))
    lines.extend(_rows("override", *({f"{row['gate']}, {row['what']}": row for row in one.overrides} for one in both)))
    for name in natural_sorted(after.trays.keys() - before.trays.keys()):
        lines.extend(f"tray {name}: {step}" for step in _steps(("ansible_host",), {}, after.trays[name]))
    return lines


def _positions(fabric: Fabric, cluster: str | None) -> dict[str, dict[str, int]]:
    return {name: {"position": position} for name, position in fabric.reserved(cluster).items()}


def state_diff_text(before: State | None, after: State) -> list[str]:
    """One line for each tray whose state or health differs."""
    old: Mapping[str, Any] = before.trays if before else {}
    rows = {name: _steps(("state", "health"), old.get(name, {}), after.trays[name]) for name in after.trays}
    return [f"{name}: {', '.join(rows[name])}" for name in natural_sorted(rows) if rows[name]]


def _tray_line(change: Change) -> str:
    if change["from"] == change["to"]:
        return f"{change['tray']}: {change['to']} ({change['why']})"
    return f"{change['tray']}: {change['from'] or 'none'} -> {change['to'] or 'none'} ({change['why']})"


def _rows(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in natural_sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if new is None:
            yield f"{kind} {name}: removed"
        elif old is None:
            yield ", ".join([f"{kind} {name}: new", *(f"{key} {_shown(new[key])}" for key in sorted(new))])
        elif old != new:
            yield f"{kind} {name}: {', '.join(_steps(sorted({*old, *new}), old, new))}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {value[key]}" for key in sorted(value))
    if value is None:
        return "none"
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
